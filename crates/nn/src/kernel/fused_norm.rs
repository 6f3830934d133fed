//! Batch norm, ReLU and residual sums, fused into the convolutions: computed while a convolution reads its input, and
//! their gradients while it writes its input's gradient. None of them makes a pass over memory of its own.

use std::ops::Range;

use equipoise_simd::{Simd, dispatch};

use super::CHANNELS;
use super::convolution::{F32_SUMS, flush};
use super::prefetch::Prefetch;
use super::value::Activation;

/// A convolution's output y with the batch norm that follows: a y + b, by channel.
#[derive(Clone, Copy)]
pub(crate) struct Normed<S> {
    pub(crate) y: *const S,
    pub(crate) a: *const f32,
    pub(crate) b: *const f32,
}

/// What is added before the last ReLU of a block.
#[derive(Clone, Copy)]
pub(crate) enum Shortcut<S> {
    Nothing,
    /// The block's input.
    Same(*const S),
    /// Every `step`-th pixel of the block's input, with `before` zero channels ahead of its own.
    Strided {
        z: *const S,
        size: [usize; 2],
        stored: usize,
        channels: usize,
        before: usize,
        step: usize,
    },
    /// A convolution's output after its batch norm.
    Normed(Normed<S>),
}

/// What a convolution reads.
///
/// A source is *valid for an image* of a number of pixels and channels if its `y` (or plain values) and its shortcut
/// are valid for reading that image, `a` and `b` for a value per channel, and `keep` for writing that image.
#[derive(Clone, Copy)]
pub(crate) enum Source<S> {
    /// Values as they are.
    Plain(*const S),
    /// relu(a y + b)
    Active(Normed<S>),
    /// relu(a y + b + shortcut), also written to `keep`.
    Joined { normed: Normed<S>, shortcut: Shortcut<S>, keep: *mut S },
}

impl<S: Activation> Source<S> {
    /// Schedules what will be read and written for images of `image_len` values.
    pub(crate) fn prefetch(&self, image_len: usize, ahead: f32, prefetch: &mut Prefetch) {
        match *self {
            Self::Plain(y) | Self::Active(Normed { y, .. }) => prefetch.add(y, image_len, ahead),
            Self::Joined { normed, shortcut, keep } => {
                prefetch.add(normed.y, image_len, ahead);
                prefetch.add(keep, image_len, ahead);
                if let Shortcut::Same(y) | Shortcut::Normed(Normed { y, .. }) = shortcut {
                    prefetch.add(y, image_len, ahead);
                }
            }
        }
    }
}

/// The layout of an image in scratch memory: rows of `row` values, `channels` per pixel.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    pub(crate) row: usize,
}

/// Some rows of an image.
#[derive(Clone)]
pub(crate) struct Band {
    pub(crate) image: usize,
    pub(crate) rows: Range<usize>,
}

/// Writes a band of a source to a frame.
///
/// # Safety
/// `source` is valid for the image of the frame's pixels and channels; `into` is valid for writing the rows of the
/// frame, which it may begin after. It overlaps nothing of the source, or is where a joined source keeps the image.
/// `frame.channels` is a multiple of 16 unless the source is plain.
#[inline(always)]
pub(crate) unsafe fn fill<I: Simd, S: Activation, F: Activation>(
    simd: I,
    source: &Source<S>,
    band: &Band,
    frame: &Frame,
    into: *mut F,
) {
    let n = band.image;
    for y in band.rows.clone() {
        let at = (n * frame.height + y) * frame.width * frame.channels;
        // SAFETY: row y lies inside the frame and inside image `n`, for which the contract makes both valid.
        unsafe {
            let to = into.wrapping_add(y * frame.row);
            match *source {
                Source::Plain(from) => {
                    copy(simd, from.add(at), to, frame.width * frame.channels);
                }
                Source::Active(normed) => fill_active(simd, &normed, at, frame, to),
                Source::Joined { normed, shortcut, keep } => {
                    fill_joined(simd, &normed, &shortcut, [n, y], frame, to, keep);
                }
            }
        }
    }
}

dispatch! {
    /// Writes a band of a joined source to where it is kept.
    ///
    /// # Safety
    /// `source` is valid for the image of the frame's pixels and channels, which are a multiple of 16; the band's rows lie in it,
    /// and the frame's rows follow each other.
    pub(crate) unsafe fn join<T: Activation>(source: &Source<T>, band: &Band, frame: &Frame) = join_kernel with bf16 if T::IS_BF16
}

/// # Safety
/// The contract of [`join`].
#[inline(always)]
unsafe fn join_kernel<I: Simd, T: Activation>(simd: I, source: &Source<T>, band: &Band, frame: &Frame) {
    if let Source::Joined { keep, .. } = *source {
        // SAFETY: the contract is the same, and what is kept is where the image is.
        unsafe { fill(simd, source, band, frame, keep.add(band.image * frame.height * frame.row)) };
    }
}

/// Copies values, which become others if the types differ.
///
/// # Safety
/// `from` is valid for reading and `to` for writing `number` values; they do not overlap.
#[inline(always)]
unsafe fn copy<I: Simd, S: Activation, F: Activation>(simd: I, from: *const S, to: *mut F, number: usize) {
    // SAFETY: by the contract, both have `number` values; whole vectors and the rest lie among them. Types of the same depth
    // are the same.
    unsafe {
        if S::DEPTH == F::DEPTH {
            return std::ptr::copy_nonoverlapping(from, to.cast(), number);
        }
        let vectors = number / I::WIDTH * I::WIDTH;
        for k in (0..vectors).step_by(I::WIDTH) {
            F::store(simd, to.add(k), S::load(simd, from.add(k)));
        }
        for k in vectors..number {
            *to.add(k) = F::from_f32((*from.add(k)).to_f32());
        }
    }
}

/// Writes relu(a y + b) of the row of pixels that begins at `at`.
///
/// # Safety
/// `normed.y` is valid for reading a row of the frame from `at` on, `a` and `b` for a value per channel, and `to` for
/// writing a row.
#[inline(always)]
unsafe fn fill_active<I: Simd, S: Activation, F: Activation>(
    simd: I,
    normed: &Normed<S>,
    at: usize,
    frame: &Frame,
    to: *mut F,
) {
    let &Frame { width, channels, .. } = frame;
    let zero = simd.splat(0.0);
    // SAFETY: k and x stay inside the channels and the row, for which the contract makes the pointers valid.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let (a, b) = (simd.load(normed.a.add(k)), simd.load(normed.b.add(k)));
            for x in 0..width {
                let pixel = x * channels + k;
                let value = simd.fma(a, S::load(simd, normed.y.add(at + pixel)), b);
                F::store(simd, to.add(pixel), simd.max(zero, value));
            }
        }
    }
}

/// Writes relu(a y + b + shortcut) of row `y` of image `n`.
///
/// # Safety
/// `normed` and `shortcut` are valid for reading row `y` of image `n`, `to` for writing a row, and `keep` for writing
/// that row of that image.
#[inline(always)]
unsafe fn fill_joined<I: Simd, S: Activation, F: Activation>(
    simd: I,
    normed: &Normed<S>,
    shortcut: &Shortcut<S>,
    [n, y]: [usize; 2],
    frame: &Frame,
    to: *mut F,
    keep: *mut S,
) {
    let &Frame { height, width, channels, .. } = frame;
    let at = (n * height + y) * width * channels;
    // only the row itself need be in memory that `keep` points into
    let keep = keep.wrapping_add(at);
    let zero = simd.splat(0.0);
    // SAFETY: k and x stay inside the channels and the row, for which the contract makes the pointers valid. A strided
    // shortcut is copied first, at `step` x in its own row `step` y.
    unsafe {
        // it waits where the result will be kept
        if let Shortcut::Strided { z, size, stored, channels: old, before, step } = *shortcut {
            let z = z.add((n * size[0] + step * y) * size[1] * stored);
            std::ptr::write_bytes(keep, 0, width * channels);
            for x in 0..width {
                let (from, to) = (z.add(step * x * stored), keep.add(x * channels + before));
                std::ptr::copy_nonoverlapping(from, to, old);
            }
        }
        for k in (0..channels).step_by(I::WIDTH) {
            let (a, b) = (simd.load(normed.a.add(k)), simd.load(normed.b.add(k)));
            let (mut other_a, mut other_b) = (zero, zero);
            let other = match *shortcut {
                Shortcut::Nothing => std::ptr::null(),
                Shortcut::Same(z) => z.add(at),
                Shortcut::Strided { .. } => keep.cast_const(),
                Shortcut::Normed(other) => {
                    (other_a, other_b) = (simd.load(other.a.add(k)), simd.load(other.b.add(k)));
                    other.y.add(at)
                }
            };
            let other_normed = matches!(shortcut, Shortcut::Normed(_));
            let apart = !std::ptr::eq(to.cast(), keep);
            for x in 0..width {
                let pixel = x * channels + k;
                let mut value = simd.fma(a, S::load(simd, normed.y.add(at + pixel)), b);
                if other_normed {
                    value = simd.add(simd.fma(other_a, S::load(simd, other.add(pixel)), other_b), value);
                } else if !other.is_null() {
                    value = simd.add(S::load(simd, other.add(pixel)), value);
                }
                // in this order NaN stays NaN
                let value = simd.max(zero, value);
                if apart {
                    F::store(simd, to.add(pixel), value);
                }
                S::store(simd, keep.add(pixel), value);
            }
        }
    }
}

/// The gradient with respect to a convolution's output, from that of its batch norm: k0 g + k1 y + k2, by channel.
#[derive(Clone, Copy)]
pub(crate) struct OutputGradient<T> {
    pub(crate) g: *const T,
    pub(crate) y: *const T,
    /// Three values per channel, `channels` apart.
    pub(crate) k: *const f32,
}

impl<T: Activation> OutputGradient<T> {
    /// The factors k0, k1 and k2 of the channels from `k` on.
    ///
    /// # Safety
    /// `self.k` is valid for reading 3 `channels` values, and k + `WIDTH` <= `channels`.
    #[inline(always)]
    pub(crate) unsafe fn factors<I: Simd>(&self, simd: I, channels: usize, k: usize) -> [I::V; 3] {
        // SAFETY: by the contract, each of the three rows has a vector at `k`.
        unsafe {
            let row = |i: usize| self.k.add(i * channels + k);
            [simd.load(row(0)), simd.load(row(1)), simd.load(row(2))]
        }
    }

    /// The gradient of the vector at `at`, with its channels' factors.
    ///
    /// # Safety
    /// `self.g` and `self.y` are valid for reading a vector at `at`.
    #[inline(always)]
    pub(crate) unsafe fn at<I: Simd>(&self, simd: I, at: usize, factors: [I::V; 3]) -> I::V {
        // SAFETY: by the contract, there is a vector at `at` of both.
        unsafe { Self::combine(simd, [T::load(simd, self.g.add(at)), T::load(simd, self.y.add(at))], factors) }
    }

    /// k0 g + k1 y + k2.
    #[inline(always)]
    pub(crate) fn combine<I: Simd>(simd: I, [g, y]: [I::V; 2], [k0, k1, k2]: [I::V; 3]) -> I::V {
        simd.fma(k0, g, simd.fma(k1, y, k2))
    }
}

/// What a shortcut adds to the gradient of a block's input.
#[derive(Clone, Copy)]
pub(crate) enum ShortcutBack<S> {
    Nothing,
    /// The gradient of the block's output, or of the shortcut's convolution.
    Same(*const S),
    /// The gradient of the block's output, at every `step`-th pixel, from channel `before` on.
    Strided {
        g: *const S,
        size: [usize; 2],
        stored: usize,
        before: usize,
        step: usize,
    },
}

/// A batch norm whose gradient sums are wanted: the output and the mean of its convolution.
#[derive(Clone, Copy)]
pub(crate) struct Centered<S> {
    pub(crate) y: *const S,
    pub(crate) mean: *const f32,
}

/// What becomes of the gradient with respect to a convolution's input.
///
/// A sink is *valid for an image* of a number of pixels and channels if its inputs (`y`, `z`, the shortcut) are valid
/// for reading that image, `a`, `b` and `mean` for a value per channel, and `out` for writing that image.
#[derive(Clone, Copy)]
pub(crate) enum Sink<S> {
    /// It is not wanted.
    Nothing,
    /// As it is, with the shortcut's.
    Plain { shortcut: ShortcutBack<S>, out: *mut S },
    /// Through the ReLU of relu(a y + b); sums for that batch norm.
    Active { normed: Normed<S>, centered: Centered<S>, out: *mut S },
    /// With the shortcut's, through the ReLU that gave z; sums for the batch norms that were added there.
    Joined { shortcut: ShortcutBack<S>, z: *const S, centered: Centered<S>, second: Option<Centered<S>>, out: *mut S },
}

impl<S: Activation> Sink<S> {
    /// Schedules what will be read and written for images of `image_len` values, beside the convolution's own input.
    pub(crate) fn prefetch(&self, image_len: usize, ahead: f32, prefetch: &mut Prefetch) {
        if let Self::Plain { out, .. } | Self::Active { out, .. } | Self::Joined { out, .. } = *self {
            prefetch.add(out, image_len, ahead);
        }
        if let Self::Plain { shortcut, .. } | Self::Joined { shortcut, .. } = *self
            && let ShortcutBack::Same(g) = shortcut
        {
            prefetch.add(g, image_len, ahead);
        }
        if let Self::Joined { centered, .. } = *self {
            prefetch.add(centered.y, image_len, ahead);
        }
    }
}

/// A row of an image's gradient on its way to a sink.
#[derive(Clone, Copy)]
struct Row {
    /// The image and the row in it.
    image: usize,
    y: usize,
    /// Where the row begins in all images.
    at: usize,
    width: usize,
    channels: usize,
    /// The row in the frame.
    from: *const f32,
    /// Three f32 sums per channel.
    sums: *mut f32,
}

impl Row {
    /// The gradient at pixel `x` and channel `k`, with what the shortcut adds.
    ///
    /// # Safety
    /// `self.from` is valid for reading the row, and `shortcut` for reading row `y` of the image; x and k lie in the
    /// row.
    #[inline(always)]
    unsafe fn gradient<I: Simd, S: Activation>(&self, simd: I, shortcut: &ShortcutBack<S>, x: usize, k: usize) -> I::V {
        let pixel = x * self.channels + k;
        // SAFETY: by the contract, the row and the shortcut have a vector at this pixel; a strided one has a pixel for
        // every `step`-th of the row.
        unsafe {
            let g = simd.load(self.from.add(pixel));
            match *shortcut {
                ShortcutBack::Nothing => g,
                ShortcutBack::Same(other) => simd.add(g, S::load(simd, other.add(self.at + pixel))),
                ShortcutBack::Strided { g: other, size, stored, before, step } => {
                    if self.y.is_multiple_of(step) && x.is_multiple_of(step) {
                        let pixel = (self.image * size[0] + self.y / step) * size[1] + x / step;
                        let from = other.add(pixel * stored);
                        simd.add(g, load_within(simd, from, before + k..stored))
                    } else {
                        g
                    }
                }
            }
        }
    }
}

/// Reads a vector from the start of a range on, with zeros from its end on.
///
/// # Safety
/// `from` is valid for reading the values in the range.
#[inline(always)]
unsafe fn load_within<I: Simd, S: Activation>(simd: I, from: *const S, range: Range<usize>) -> I::V {
    if range.start + I::WIDTH <= range.end {
        // SAFETY: the whole vector lies in the range.
        return unsafe { S::load(simd, from.add(range.start)) };
    }
    let mut values = [S::default(); CHANNELS];
    for (value, at) in values.iter_mut().zip(range) {
        // SAFETY: `at` lies in the range.
        *value = unsafe { *from.add(at) };
    }
    // SAFETY: an array of 16 values has a vector.
    unsafe { S::load(simd, values.as_ptr()) }
}

/// Moves the gradient of a band from a frame to a sink, and adds its sums of g, g (y - mean) and, with a
/// second batch norm, g (y2 - mean2), by channel.
///
/// # Safety
/// `sink` is valid for the image of the frame's pixels and channels, and `from` for reading the rows of the frame, which
/// it may begin after; the rows of an image come in their order. `sums`, zeros between images, and `into` are valid for reading and
/// writing three values per channel. `frame.channels` is a multiple of 16.
#[inline(always)]
pub(crate) unsafe fn drain<I: Simd, S: Activation>(
    simd: I,
    sink: &Sink<S>,
    band: &Band,
    frame: &Frame,
    from: *const f32,
    sums: *mut f32,
    into: *mut f64,
) {
    let &Frame { height, width, channels, row } = frame;
    let (n, summed) = (band.image, matches!(sink, Sink::Active { .. } | Sink::Joined { .. }));
    let sum_rows = F32_SUMS.div_ceil(width);
    for y in band.rows.clone() {
        let at = (n * height + y) * width * channels;
        // SAFETY: row y lies inside the frame and inside image `n`, for which the contract makes both valid; the sums
        // have three values per channel.
        unsafe {
            let row = Row { image: n, y, at, width, channels, from: from.wrapping_add(y * row), sums };
            match sink {
                Sink::Nothing => {}
                Sink::Plain { shortcut, out } => drain_plain(simd, &row, shortcut, *out),
                Sink::Active { normed, centered, out } => drain_active(simd, &row, normed, centered, *out),
                Sink::Joined { shortcut, z, centered, second, out } => {
                    drain_joined(simd, &row, shortcut, *z, centered, second.as_ref(), *out);
                }
            }
            // a few rows in f32, their sums in f64
            if summed && ((y + 1).is_multiple_of(sum_rows) || y + 1 == height) {
                flush(sums, into, 3 * channels);
            }
        }
    }
}

/// Writes a row's gradient with the shortcut's.
///
/// # Safety
/// `row.from` and `shortcut` are valid for reading the row, `out` for writing it from `row.at` on.
#[inline(always)]
unsafe fn drain_plain<I: Simd, S: Activation>(simd: I, row: &Row, shortcut: &ShortcutBack<S>, out: *mut S) {
    for k in (0..row.channels).step_by(I::WIDTH) {
        for x in 0..row.width {
            // SAFETY: x and k lie in the row, for which the contract makes the pointers valid.
            unsafe {
                let g = row.gradient(simd, shortcut, x, k);
                S::store(simd, out.add(row.at + x * row.channels + k), g);
            }
        }
    }
}

/// Writes a row's gradient through the ReLU of relu(a y + b), and adds its sums.
///
/// # Safety
/// `row.from` is valid for reading the row, `normed.y` for reading and `out` for writing it from `row.at` on, `a`, `b`
/// and `mean` for reading a value per channel, `row.sums` for reading and writing two.
#[inline(always)]
unsafe fn drain_active<I: Simd, S: Activation>(
    simd: I,
    row: &Row,
    normed: &Normed<S>,
    centered: &Centered<S>,
    out: *mut S,
) {
    let &Row { at, width, channels, from, sums, .. } = row;
    // SAFETY: k and x lie in the channels and the row, for which the contract makes the pointers valid.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let (a, b) = (simd.load(normed.a.add(k)), simd.load(normed.b.add(k)));
            let mean = simd.load(centered.mean.add(k));
            let (mut sum, mut product) = (simd.load(sums.add(k)), simd.load(sums.add(channels + k)));
            for x in 0..width {
                let pixel = x * channels + k;
                let value = S::load(simd, normed.y.add(at + pixel));
                let g = simd.where_positive(simd.fma(a, value, b), simd.load(from.add(pixel)));
                S::store(simd, out.add(at + pixel), g);
                sum = simd.add(sum, g);
                product = simd.fma(g, simd.sub(value, mean), product);
            }
            simd.store(sums.add(k), sum);
            simd.store(sums.add(channels + k), product);
        }
    }
}

/// Writes a row's gradient with the shortcut's through the ReLU that gave z, and adds its sums.
///
/// # Safety
/// `row.from` and `shortcut` are valid for reading the row; `z` and both `y` for reading and `out` for writing it from
/// `row.at` on; both means for reading a value per channel, `row.sums` for reading and writing three.
#[inline(always)]
unsafe fn drain_joined<I: Simd, S: Activation>(
    simd: I,
    row: &Row,
    shortcut: &ShortcutBack<S>,
    z: *const S,
    centered: &Centered<S>,
    second: Option<&Centered<S>>,
    out: *mut S,
) {
    let &Row { at, width, channels, sums, .. } = row;
    // SAFETY: k and x lie in the channels and the row, for which the contract makes the pointers valid.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let mean = simd.load(centered.mean.add(k));
            let (mut sum, mut product) = (simd.load(sums.add(k)), simd.load(sums.add(channels + k)));
            for x in 0..width {
                let pixel = at + x * channels + k;
                let g = simd.where_positive(S::load(simd, z.add(pixel)), row.gradient(simd, shortcut, x, k));
                S::store(simd, out.add(pixel), g);
                sum = simd.add(sum, g);
                product = simd.fma(g, simd.sub(S::load(simd, centered.y.add(pixel)), mean), product);
            }
            simd.store(sums.add(k), sum);
            simd.store(sums.add(channels + k), product);
            if let Some(second) = second {
                let mean = simd.load(second.mean.add(k));
                let mut product = simd.load(sums.add(2 * channels + k));
                for x in 0..width {
                    let pixel = at + x * channels + k;
                    let value = simd.sub(S::load(simd, second.y.add(pixel)), mean);
                    product = simd.fma(S::load(simd, out.add(pixel)), value, product);
                }
                simd.store(sums.add(2 * channels + k), product);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_simd::Portable;

    use super::*;

    /// The last channels of a padded shortcut, at the very end of their memory.
    #[test]
    fn nothing_is_read_behind_the_end_of_a_range() {
        let values: Box<[f32]> = (0..19).map(|i| i as f32).collect();
        for start in 0..22 {
            let mut got = [0.0; 4];
            // SAFETY: all values are valid for reading, and the array has a vector of this level.
            unsafe { Portable.store(got.as_mut_ptr(), load_within(Portable, values.as_ptr(), start..values.len())) };
            let want: Vec<f32> = (start..start + 4).map(|i| values.get(i).copied().unwrap_or(0.0)).collect();
            assert_eq!(got, want[..], "{start}");
        }
    }
}
