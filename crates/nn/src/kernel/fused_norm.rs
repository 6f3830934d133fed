//! What happens at the two ends of a convolution: batch norm, ReLU and the sum with a shortcut while its input is read, and
//! their gradients while its input's gradient is written. Nothing of this makes a pass over memory of its own.

use std::ops::Range;

use super::convolution::{SUMMED, flush};
use super::prefetch::Prefetch;
use crate::isa::Isa;

/// A convolution's output y with the batch norm that follows: a y + b, by channel.
#[derive(Clone, Copy)]
pub(crate) struct Normed {
    pub(crate) y: *const f32,
    pub(crate) a: *const f32,
    pub(crate) b: *const f32,
}

/// What is added before a block's last ReLU.
#[derive(Clone, Copy)]
pub(crate) enum Shortcut {
    Nothing,
    /// The block's input.
    Same(*const f32),
    /// Every `step`-th pixel of the block's input, whose channels come after `before` zeros.
    Strided {
        z: *const f32,
        size: [usize; 2],
        stored: usize,
        channels: usize,
        before: usize,
        step: usize,
    },
    /// A convolution's output after its batch norm.
    Normed(Normed),
}

/// What a convolution reads.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Values as they are.
    Plain(*const f32),
    /// relu(a y + b)
    Active(Normed),
    /// relu(a y + b + shortcut), also written to `keep`.
    Joined { normed: Normed, shortcut: Shortcut, keep: *mut f32 },
}

impl Source {
    /// Notes what will be read and written with some images of `one` value each.
    pub(crate) fn prefetch(&self, images: &Range<usize>, one: usize, prefetch: &mut Prefetch) {
        match *self {
            Self::Plain(y) | Self::Active(Normed { y, .. }) => prefetch.add(y, images, one),
            Self::Joined { normed, shortcut, keep } => {
                prefetch.add(normed.y, images, one);
                prefetch.add(keep, images, one);
                if let Shortcut::Same(y) | Shortcut::Normed(Normed { y, .. }) = shortcut {
                    prefetch.add(y, images, one);
                }
            }
        }
    }
}

/// Where the images of a source go: rows of `row` values, `channels` per pixel.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) row: usize,
}

/// Writes image `n` of a source to a frame.
///
/// # Safety
/// Pointers must be good for their images, and `into` for the frame; `channels` is a multiple of 16 except for plain values.
#[inline(always)]
pub(crate) unsafe fn fill<I: Isa>(source: &Source, n: usize, frame: &Frame, into: *mut f32) {
    let &Frame { height, width, channels, row } = frame;
    // SAFETY: the caller's promises, for every pixel of image `n` and of the frame.
    unsafe {
        let zero = I::splat(0.0);
        for y in 0..height {
            let to = into.add(y * row);
            let at = (n * height + y) * width * channels;
            match *source {
                Source::Plain(from) => std::ptr::copy_nonoverlapping(from.add(at), to, width * channels),
                Source::Active(Normed { y: from, a, b }) => {
                    for k in (0..channels).step_by(I::WIDTH) {
                        let (a, b) = (I::load(a.add(k)), I::load(b.add(k)));
                        for x in 0..width {
                            let here = x * channels + k;
                            let value = I::fma(a, I::load(from.add(at + here)), b);
                            I::store(to.add(here), I::max(zero, value));
                        }
                    }
                }
                Source::Joined { normed: Normed { y: from, a, b }, shortcut, keep } => {
                    if let Shortcut::Strided { z, size, stored, channels: old, before, step } = shortcut {
                        let z = z.add((n * size[0] + step * y) * size[1] * stored);
                        std::ptr::write_bytes(to, 0, width * channels);
                        for x in 0..width {
                            let (from, to) = (z.add(step * x * stored), to.add(x * channels + before));
                            std::ptr::copy_nonoverlapping(from, to, old);
                        }
                    }
                    for k in (0..channels).step_by(I::WIDTH) {
                        let (a, b) = (I::load(a.add(k)), I::load(b.add(k)));
                        let (mut other_a, mut other_b) = (zero, zero);
                        let other = match shortcut {
                            Shortcut::Nothing => std::ptr::null(),
                            Shortcut::Same(z) => z.add(at),
                            Shortcut::Strided { .. } => to.cast_const(),
                            Shortcut::Normed(other) => {
                                (other_a, other_b) = (I::load(other.a.add(k)), I::load(other.b.add(k)));
                                other.y.add(at)
                            }
                        };
                        let normed = matches!(shortcut, Shortcut::Normed(_));
                        for x in 0..width {
                            let here = x * channels + k;
                            let mut value = I::fma(a, I::load(from.add(at + here)), b);
                            if normed {
                                value = I::add(I::fma(other_a, I::load(other.add(here)), other_b), value);
                            } else if !other.is_null() {
                                value = I::add(I::load(other.add(here)), value);
                            }
                            // in this order what is not a number stays so
                            let value = I::max(zero, value);
                            I::store(to.add(here), value);
                            I::store(keep.add(at + here), value);
                        }
                    }
                }
            }
        }
    }
}

/// The gradient with respect to a convolution's output, from that of its batch norm: k0 g + k1 y + k2, by channel.
#[derive(Clone, Copy)]
pub(crate) struct OutputGradient {
    pub(crate) g: *const f32,
    pub(crate) y: *const f32,
    /// Three values per channel, `channels` apart.
    pub(crate) k: *const f32,
}

impl OutputGradient {
    /// The factors of the channels from `k`.
    ///
    /// # Safety
    /// The pointer must be good there.
    #[inline(always)]
    pub(crate) unsafe fn factors<I: Isa>(&self, channels: usize, k: usize) -> [I::V; 3] {
        // SAFETY: the caller's.
        unsafe { [I::load(self.k.add(k)), I::load(self.k.add(channels + k)), I::load(self.k.add(2 * channels + k))] }
    }

    /// The gradient at `at`.
    ///
    /// # Safety
    /// The pointers must be good there.
    #[inline(always)]
    pub(crate) unsafe fn at<I: Isa>(&self, at: usize, [k0, k1, k2]: [I::V; 3]) -> I::V {
        // SAFETY: the caller's.
        unsafe { Self::of::<I>([I::load(self.g.add(at)), I::load(self.y.add(at))], [k0, k1, k2]) }
    }

    /// The same from a gradient and an output.
    ///
    /// # Safety
    /// For CPUs with the level's instructions.
    #[inline(always)]
    pub(crate) unsafe fn of<I: Isa>([g, y]: [I::V; 2], [k0, k1, k2]: [I::V; 3]) -> I::V {
        // SAFETY: the caller's.
        unsafe { I::fma(k0, g, I::fma(k1, y, k2)) }
    }
}

/// What a shortcut adds to the gradient of a block's input.
#[derive(Clone, Copy)]
pub(crate) enum ShortcutBack {
    Nothing,
    /// The gradient of the block's output, or of the shortcut's convolution.
    Same(*const f32),
    /// The gradient of the block's output, at every `step`-th pixel, from channel `before` on.
    Strided {
        g: *const f32,
        size: [usize; 2],
        stored: usize,
        before: usize,
        step: usize,
    },
}

/// A batch norm whose sums are wanted: its convolution's output and mean.
#[derive(Clone, Copy)]
pub(crate) struct Centered {
    pub(crate) y: *const f32,
    pub(crate) mean: *const f32,
}

/// What becomes of the gradient with respect to a convolution's input.
#[derive(Clone, Copy)]
pub(crate) enum Sink {
    /// Not wanted.
    Nothing,
    /// As it is, with the shortcut's.
    Plain { shortcut: ShortcutBack, out: *mut f32 },
    /// Through the ReLU of relu(a y + b); sums for that batch norm.
    Active { normed: Normed, centered: Centered, out: *mut f32 },
    /// With the shortcut's, through the ReLU that gave z; sums for the batch norms that met there.
    Joined { shortcut: ShortcutBack, z: *const f32, centered: Centered, second: Option<Centered>, out: *mut f32 },
}

/// The gradient at a pixel of a row, with what the shortcut adds.
#[inline(always)]
unsafe fn with<I: Isa>(
    shortcut: &ShortcutBack,
    [n, y, x, k]: [usize; 4],
    at: usize,
    channels: usize,
    from: *const f32,
) -> I::V {
    let here = x * channels + k;
    // SAFETY: the caller's pointers are good at this pixel.
    unsafe {
        let g = I::load(from.add(here));
        match *shortcut {
            ShortcutBack::Nothing => g,
            ShortcutBack::Same(other) => I::add(g, I::load(other.add(at + here))),
            ShortcutBack::Strided { g: other, size, stored, before, step } => {
                if y.is_multiple_of(step) && x.is_multiple_of(step) {
                    let pixel = (n * size[0] + y / step) * size[1] + x / step;
                    I::add(g, I::load(other.add(pixel * stored + before + k)))
                } else {
                    g
                }
            }
        }
    }
}

impl Sink {
    /// Notes what will be read and written for some images of `one` value each, beside the convolution's own input.
    pub(crate) fn prefetch(&self, images: &Range<usize>, one: usize, prefetch: &mut Prefetch) {
        if let Self::Plain { out, .. } | Self::Active { out, .. } | Self::Joined { out, .. } = *self {
            prefetch.add(out, images, one);
        }
        if let Self::Plain { shortcut, .. } | Self::Joined { shortcut, .. } = *self
            && let ShortcutBack::Same(g) = shortcut
        {
            prefetch.add(g, images, one);
        }
        if let Self::Joined { centered, .. } = *self {
            prefetch.add(centered.y, images, one);
        }
    }
}

/// Takes image `n`'s gradient from a frame, and adds its sums of g, g (y - mean) and, with a second one, g (y2 - mean2), by channel.
///
/// # Safety
/// Pointers must be good for their images, `from` for the frame, `sums` (zeros between calls) and `into` for three values per
/// channel.
#[inline(always)]
pub(crate) unsafe fn drain<I: Isa>(
    sink: &Sink,
    n: usize,
    frame: &Frame,
    from: *const f32,
    sums: *mut f32,
    into: *mut f64,
) {
    let &Frame { height, width, channels, row } = frame;
    let (band, summed) = (SUMMED.div_ceil(width), matches!(sink, Sink::Active { .. } | Sink::Joined { .. }));
    // SAFETY: the caller's promises, for every pixel of image `n` and of the frame.
    unsafe {
        for y in 0..height {
            let from = from.add(y * row);
            let at = (n * height + y) * width * channels;
            for k in (0..channels).step_by(I::WIDTH) {
                match sink {
                    Sink::Nothing => {}
                    Sink::Plain { shortcut, out } => {
                        for x in 0..width {
                            I::store(
                                out.add(at + x * channels + k),
                                with::<I>(shortcut, [n, y, x, k], at, channels, from),
                            );
                        }
                    }
                    Sink::Active { normed: Normed { y: values, a, b }, centered, out } => {
                        let (a, b, mean) = (I::load(a.add(k)), I::load(b.add(k)), I::load(centered.mean.add(k)));
                        let (mut sum, mut product) = (I::load(sums.add(k)), I::load(sums.add(channels + k)));
                        for x in 0..width {
                            let here = x * channels + k;
                            let value = I::load(values.add(at + here));
                            let g = I::where_positive(I::fma(a, value, b), I::load(from.add(here)));
                            I::store(out.add(at + here), g);
                            sum = I::add(sum, g);
                            product = I::fma(g, I::sub(value, mean), product);
                        }
                        I::store(sums.add(k), sum);
                        I::store(sums.add(channels + k), product);
                    }
                    Sink::Joined { shortcut, z, centered, second, out } => {
                        let mean = I::load(centered.mean.add(k));
                        let (mut sum, mut product) = (I::load(sums.add(k)), I::load(sums.add(channels + k)));
                        for x in 0..width {
                            let here = at + x * channels + k;
                            let g = I::where_positive(
                                I::load(z.add(here)),
                                with::<I>(shortcut, [n, y, x, k], at, channels, from),
                            );
                            I::store(out.add(here), g);
                            sum = I::add(sum, g);
                            product = I::fma(g, I::sub(I::load(centered.y.add(here)), mean), product);
                        }
                        I::store(sums.add(k), sum);
                        I::store(sums.add(channels + k), product);
                        if let Some(second) = second {
                            let mean = I::load(second.mean.add(k));
                            let mut product = I::load(sums.add(2 * channels + k));
                            for x in 0..width {
                                let here = at + x * channels + k;
                                let value = I::sub(I::load(second.y.add(here)), mean);
                                product = I::fma(I::load(out.add(here)), value, product);
                            }
                            I::store(sums.add(2 * channels + k), product);
                        }
                    }
                }
            }
            // a few rows in f32, their sums in f64
            if summed && ((y + 1).is_multiple_of(band) || y + 1 == height) {
                flush(sums, into, 3 * channels);
            }
        }
    }
}
