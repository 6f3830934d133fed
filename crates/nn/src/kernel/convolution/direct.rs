//! Convolutions as they are defined: a sum over the window, as matrix products without a copy of the windows.

use std::ops::Range;

use equipoise_simd::{Simd, dispatch};

use super::{
    Backward, F32_SUMS, Forward, Geometry, Scratch, ScratchSize, cycles, flush, groups, next_group, pair_rows,
    read_band, read_group,
};
use crate::kernel::CHANNELS;
use crate::kernel::fused_norm::{Band, Frame, drain};
use crate::kernel::gemm::{Gemm, Outer, Segment, gemm, outer, panel};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::tile_product::{TILE_VALUES, tile_panel};
use crate::kernel::value::Activation;

/// Pixels in a group, where images are smaller.
const GROUP_PIXELS: usize = 192;
/// Weights that stay in the cache of a core while a row of pixels after the other is multiplied with them.
const CACHED_WEIGHTS: usize = 160 << 10;
/// Values of a band of an output gradient that stay in the cache beside the weight gradients.
const BAND_VALUES: usize = 32 << 10;

/// The pixels of the input that see the same taps of the window.
pub(super) struct PixelClass {
    /// Row and column of the first of them; the others follow at distances of the stride.
    pub(super) first: [usize; 2],
    /// Their numbers of rows and columns.
    pub(super) size: [usize; 2],
    /// Where the taps' output pixels are, from the first pixel's.
    segments: Vec<Segment>,
    /// Rows and columns of the taps, in the order of the segments.
    pub(super) taps: Vec<[usize; 2]>,
}

/// The taps of one side of the window that see a pixel, each with its offset in the output, and the number of such
/// pixels.
type SideTaps = (Vec<(usize, isize)>, usize);

/// A planned direct convolution.
pub(super) struct Direct {
    geometry: Geometry,
    /// Images that are worked on together.
    pub(super) group: usize,
    /// Rows of pixels that are multiplied with one panel of weights before the next panel is read.
    block_rows: usize,
    /// Rows of an output gradient that are read together.
    band: usize,
    /// Where a window's rows are in a padded input image.
    segments: Vec<Segment>,
    pub(super) classes: Vec<PixelClass>,
    /// Height, width, top and left of a frame with a padded output gradient.
    gradient_frame: [usize; 4],
    /// Values of a word.
    depth: usize,
    /// Whether the weights are packed for tiles: in panels of the same width at every level of instructions, with zeros where
    /// the rows of a window, or of a class's taps, do not fill whole tiles.
    tiled: bool,
}

impl Direct {
    /// Plans a convolution for at most `images`.
    pub(super) fn new<S: Activation>(geometry: Geometry, images: usize) -> Self {
        let Geometry { inputs, kernel, .. } = geometry;
        let [height, width] = geometry.out();
        let band = (BAND_VALUES / (width * geometry.outputs)).max(1);
        let block_rows = if geometry.weights() > CACHED_WEIGHTS { (GROUP_PIXELS / width).max(1) } else { 1 };
        let group = GROUP_PIXELS.div_ceil(height * width).next_power_of_two().min(images);
        let (gradient_frame, classes) = plan_classes(&geometry);
        let mut plan = Self {
            geometry,
            group,
            block_rows,
            band,
            segments: Vec::new(),
            classes,
            gradient_frame,
            depth: S::DEPTH,
            tiled: false,
        };
        let row = plan.input_frame().row as isize;
        let segment = |y: usize| Segment { offset: y as isize * row, length: kernel * inputs };
        plan.segments = (0..kernel).map(segment).collect();
        plan
    }

    /// The same with weights packed for tiles.
    pub(super) fn tiled<S: Activation>(geometry: Geometry, images: usize) -> Self {
        Self { tiled: true, ..Self::new::<S>(geometry, images) }
    }

    /// Columns of a panel of packed weights.
    #[inline(always)]
    fn panel<I: Simd>(&self, columns: usize) -> usize {
        if self.tiled { tile_panel(columns) } else { panel::<I>(columns) }
    }

    /// Rows of packed weights for a stretch of as many values.
    #[inline(always)]
    pub(super) fn rows(&self, values: usize) -> usize {
        if self.tiled { values.next_multiple_of(TILE_VALUES) } else { values }
    }

    /// Whether packed weights have rows that no weight is in.
    pub(super) fn has_padding(&self) -> bool {
        let Geometry { inputs, outputs, kernel, .. } = self.geometry;
        let is_padded = |values: usize| self.rows(values) != values;
        is_padded(kernel * inputs) || self.classes.iter().any(|class| is_padded(class.window()[1] * outputs))
    }

    /// Values of the weights packed for the pass that needs most.
    pub(super) fn packed(&self) -> usize {
        let Geometry { inputs, outputs, kernel, .. } = self.geometry;
        let back = self.classes.iter().map(|class| class.depth(self) * inputs).sum();
        (kernel * self.rows(kernel * inputs) * outputs).max(back)
    }

    /// The frame of a padded input image; its height counts the padding too.
    fn input_frame(&self) -> Frame {
        let Geometry { inputs, pad, size, .. } = self.geometry;
        let [height, width] = size.map(|side| side + 2 * pad);
        Frame { height, width, channels: inputs, row: width * inputs }
    }

    /// The first pixel of a row of a class, from the beginning of the images.
    #[inline(always)]
    fn first_pixel(&self, class: &PixelClass, image: usize, row: usize) -> usize {
        let Geometry { stride, size: [height, width], .. } = self.geometry;
        (image * height + class.first[0] + stride * row) * width + class.first[1]
    }

    pub(super) fn scratch_size(&self) -> ScratchSize {
        let Geometry { inputs, outputs, .. } = self.geometry;
        let frame = self.input_frame();
        let [height, width, ..] = self.gradient_frame;
        ScratchSize {
            input: self.group * frame.height * frame.row,
            v: if self.depth > 1 { frame.height * frame.row } else { 0 },
            m: self.group * height * width * outputs,
            gradient: self.group * self.geometry.input_len(),
            du: 0,
            sums: 3 * inputs.max(outputs),
        }
    }
}

impl PixelClass {
    /// Numbers of rows of the window that see the pixels, and of taps in each.
    pub(super) fn window(&self) -> [usize; 2] {
        let across = self.taps.iter().take_while(|tap| tap[0] == self.taps[0][0]).count();
        [self.taps.len() / across.max(1), across]
    }

    /// Rows of its packed weights.
    #[inline(always)]
    fn depth(&self, c: &Direct) -> usize {
        let [down, across] = self.window();
        down * c.rows(across * c.geometry.outputs)
    }
}

/// Sorts the input's pixels by the taps that see them, and finds the frame that holds all of their output pixels.
fn plan_classes(geometry: &Geometry) -> ([usize; 4], Vec<PixelClass>) {
    let &Geometry { outputs, kernel, stride, pad, size, .. } = geometry;
    // along one side: the taps of every remainder
    let along = |side: usize| -> Vec<SideTaps> {
        let taps = |r: usize| -> Vec<(usize, isize)> {
            let offset = |tap: usize| (r + pad) as isize - tap as isize;
            let fits = |tap: &usize| offset(*tap).rem_euclid(stride as isize) == 0;
            // from left to right in the output
            (0..kernel).rev().filter(fits).map(|tap| (tap, offset(tap).div_euclid(stride as isize))).collect()
        };
        (0..stride.min(side)).map(|r| (taps(r), (side - r).div_ceil(stride))).collect()
    };
    let sides = size.map(along);
    let mut frame = [[0isize, 0]; 2];
    for (frame, (side, out)) in frame.iter_mut().zip(sides.iter().zip(geometry.out())) {
        let offsets = side.iter().flat_map(|(taps, n)| taps.iter().map(|tap| (tap.1, tap.1 + *n as isize)));
        let (first, last) = offsets.fold((0, out as isize), |(a, b), (from, to)| (a.min(from), b.max(to)));
        *frame = [-first, last - first];
    }
    let [[top, height], [left, width]] = frame;
    let row = width * outputs as isize;
    let mut classes = Vec::new();
    for (ry, (down, rows)) in sides[0].iter().enumerate() {
        for (rx, (across, columns)) in sides[1].iter().enumerate() {
            let (mut segments, mut taps) = (Vec::new(), Vec::new());
            for (y, oy) in down {
                for (x, ox) in across {
                    segments.push(Segment { offset: oy * row + ox * outputs as isize, length: outputs });
                    taps.push([*y, *x]);
                }
            }
            classes.push(PixelClass { first: [ry, rx], size: [*rows, *columns], segments, taps });
        }
    }
    ([height as usize, width as usize, top as usize, left as usize], classes)
}

dispatch! {
    /// Packs the weights of the input channels `rows`.
    ///
    /// # Safety
    /// The contract of [`Convolution::pack`](super::Convolution::pack).
    pub(super) unsafe fn pack<S: Activation>(c: &Direct, w: *const f32, rows: Range<usize>, forward: *mut S, back: *mut S) = pack_kernel with bf16 if S::IS_BF16
}

dispatch! {
    /// Runs the forward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::forward`](super::Convolution::forward).
    pub(super) unsafe fn forward<S: Activation, T: Activation>(c: &Direct, run: &Forward<S, T>, scratch: &Scratch) = forward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

dispatch! {
    /// Runs the backward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::backward`](super::Convolution::backward).
    pub(super) unsafe fn backward<S: Activation, T: Activation>(c: &Direct, run: &Backward<S, T>, scratch: &Scratch) = backward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

/// # Safety
/// The contract of [`Convolution::pack`](super::Convolution::pack).
#[inline(always)]
unsafe fn pack_kernel<I: Simd, S: Activation>(
    simd: I,
    c: &Direct,
    w: *const f32,
    rows: Range<usize>,
    forward: *mut S,
    back: *mut S,
) {
    let Geometry { inputs, outputs, kernel, .. } = c.geometry;
    let width = c.panel::<I>(outputs);
    let row_depth = c.rows(kernel * inputs);
    let depth = kernel * row_depth;
    // SAFETY: by the contract of `pack`, `w` holds all weights, and so do `forward` and `back` unless they are null. With pairs,
    // `rows` are an even number. The taps of the classes are those of the window, each once.
    unsafe {
        let taps = if forward.is_null() { 0 } else { kernel * kernel };
        for tap in 0..taps {
            for i in rows.clone().step_by(S::DEPTH) {
                let k = tap / kernel * row_depth + tap % kernel * inputs + i;
                for o in (0..outputs).step_by(I::WIDTH) {
                    let from = w.add((tap * inputs + i) * outputs + o);
                    let mut words = simd.load(from);
                    if S::DEPTH == 2 {
                        words = simd.pair_bf16(words, simd.load(from.add(outputs)));
                    }
                    let to = forward.add(o / width * width * depth + k * width + o % width * S::DEPTH);
                    simd.store(to.cast(), words);
                }
            }
        }
        if back.is_null() {
            return;
        }
        let width = c.panel::<I>(inputs);
        let mut back = back;
        for class in &c.classes {
            let (depth, [_, across]) = (class.depth(c), class.window());
            let row_depth = c.rows(across * outputs);
            for (t, [y, x]) in class.taps.iter().enumerate() {
                for i in rows.clone().step_by(CHANNELS) {
                    let from = w.add(((y * kernel + x) * inputs + i) * outputs);
                    for o in (0..outputs).step_by(CHANNELS) {
                        let words = transpose::<I, S>(simd, from.add(o), outputs);
                        for (k, words) in words.iter().enumerate().take(CHANNELS / S::DEPTH) {
                            let row = t / across * row_depth + t % across * outputs + o + k * S::DEPTH;
                            for lane in (0..CHANNELS).step_by(I::WIDTH) {
                                let column = i + lane;
                                let panel = column / width * width * depth;
                                let to = back.add(panel + row * width + column % width * S::DEPTH);
                                simd.store(to.cast(), simd.load(words.as_ptr().add(lane)));
                            }
                        }
                    }
                }
            }
            back = back.add(depth * inputs);
        }
    }
}

/// The words of 16 values in each of 16 rows, with the rows as lanes. With pairs, only the first half is used.
///
/// # Safety
/// `from` is valid for reading 16 values in each of 16 rows, `stride` apart.
#[inline(always)]
unsafe fn transpose<I: Simd, S: Activation>(simd: I, from: *const f32, stride: usize) -> [[f32; CHANNELS]; CHANNELS] {
    let mut rounded = [[S::default(); CHANNELS]; CHANNELS];
    let mut words = [[0.0; CHANNELS]; CHANNELS];
    // SAFETY: by the contract, all rows are there. A word of `rounded` has four bytes, which lie inside of a row.
    unsafe {
        for (r, rounded) in rounded.iter_mut().enumerate() {
            for o in (0..CHANNELS).step_by(I::WIDTH) {
                S::store(simd, rounded.as_mut_ptr().add(o), simd.load(from.add(r * stride + o)));
            }
        }
        for (k, words) in words.iter_mut().enumerate().take(CHANNELS / S::DEPTH) {
            for (word, rounded) in words.iter_mut().zip(&rounded) {
                *word = rounded.as_ptr().add(k * S::DEPTH).cast::<f32>().read_unaligned();
            }
        }
    }
    words
}

/// Cuts a range into blocks of at most `size`.
#[inline(always)]
fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |first| first..end.min(first + size))
}

/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward).
#[inline(always)]
unsafe fn forward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Forward<S, T>,
    scratch: &Scratch,
) {
    let height = c.geometry.out()[0];
    let frame = c.input_frame();
    let part = run.part(&c.geometry);
    for images in groups(&run.images, c.group) {
        let work = images.len() * height * c.geometry.out()[1] * cycles::<I, S>(c.geometry.weights());
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, c.group));
        if !run.cached {
            prefetch.add(run.y, c.geometry.output_len(), 1.0);
            run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        }
        let rows = c.geometry.input_rows(&part.rows);
        for (i, n) in images.clone().enumerate() {
            // SAFETY: by the contract of `forward`, the source has the images, and the scratch a group of padded ones.
            unsafe {
                let into = scratch.input.cast::<S>().add(i * frame.height * frame.row);
                read_band(simd, &c.geometry, &frame, &run.source, &Band { image: n, rows: rows.clone() }, into);
            }
        }
        // from the first image's first row to the last one's last row
        let rows = part.rows.start..(images.len() - 1) * height + part.rows.end;
        for some in blocks(rows, c.block_rows) {
            // SAFETY: by the contract of `forward`, `y` has the images' output; the rows of the input have been read.
            unsafe { forward_rows(simd, c, run, scratch, (images.start, some), &part.channels, &prefetch) };
        }
    }
}

/// Computes some rows of a group's output, which begins with image `first`, and adds their sums.
///
/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward); the rows of the input that they see are in the scratch.
#[inline(always)]
unsafe fn forward_rows<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Forward<S, T>,
    scratch: &Scratch,
    (first, rows): (usize, Range<usize>),
    channels: &Range<usize>,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let ([height, width], frame) = (c.geometry.out(), c.input_frame());
    // a panel of weights for all rows, where all of the weights would be read from far away for every row
    let columns = if c.block_rows > 1 { c.panel::<I>(outputs) } else { channels.len() };
    let depth = c.geometry.kernel * c.rows(c.geometry.kernel * inputs);
    // SAFETY: by the contract, all windows of the rows lie in the scratch's padded images, `y` has the rows, and the weights
    // all panels.
    unsafe {
        for column in channels.clone().step_by(columns) {
            for row in rows.clone() {
                let (n, y) = (row / height, row % height);
                let product = Gemm {
                    count: 1,
                    next: [0; 3],
                    rows: width,
                    columns,
                    a: scratch.input.cast::<S>().add((n * frame.height + y * stride) * frame.row),
                    a_stride: stride * inputs,
                    segments: &c.segments,
                    b: run.weights.add(column * depth),
                    c: run.y.add((first * height + row) * width * outputs + column),
                    c_stride: outputs,
                    prefetch,
                };
                gemm(simd.level(), &product);
            }
        }
        for row in rows {
            if let Some((shift, sums)) = run.sums {
                let y = run.y.add((first * height + row) * width * outputs);
                add_channel_sums(simd, y, width, outputs, shift, scratch.sums, sums);
            }
        }
    }
}

/// Adds the sums of the shifted values and of their squares by channel: in f32 over some pixels, in f64 over all.
///
/// # Safety
/// `y` is valid for reading `pixels` `outputs` values and `shift` for `outputs`; `scratch` and `sums` for reading and
/// writing 2 `outputs`. `outputs` is a multiple of 16.
#[inline(always)]
pub(super) unsafe fn add_channel_sums<I: Simd, T: Activation>(
    simd: I,
    y: *const T,
    pixels: usize,
    outputs: usize,
    shift: *const f32,
    scratch: *mut f32,
    sums: *mut f64,
) {
    for first in (0..pixels).step_by(F32_SUMS) {
        let last = pixels.min(first + F32_SUMS);
        // SAFETY: k and x stay below `outputs` and `pixels`, for which the contract makes the pointers valid.
        unsafe {
            for k in (0..outputs).step_by(I::WIDTH) {
                let shift = simd.load(shift.add(k));
                let (mut sum, mut squares) = (simd.splat(0.0), simd.splat(0.0));
                for x in first..last {
                    let value = simd.sub(T::load(simd, y.add(x * outputs + k)), shift);
                    sum = simd.add(sum, value);
                    squares = simd.fma(value, value, squares);
                }
                simd.store(scratch.add(k), sum);
                simd.store(scratch.add(outputs + k), squares);
            }
            flush(scratch, sums, 2 * outputs);
        }
    }
}

/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward).
#[inline(always)]
unsafe fn backward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Backward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, size, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let wanted = run.wants_input_gradient();
    let mut fresh = true;
    for images in groups(&run.images, c.group) {
        let passes = if wanted { 2 } else { 1 };
        let work = images.len() * height * width * passes * cycles::<I, S>(c.geometry.weights());
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, c.group));
        run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        // the weight gradient comes first, and reads band after band if there is no other
        let ahead = if wanted { 1.0 } else { (2.0 * c.band as f32 / height as f32).min(1.0) };
        prefetch.add(run.back.g, c.geometry.output_len(), ahead);
        prefetch.add(run.back.y, c.geometry.output_len(), ahead);
        // the sink comes last, so that its part of this group is early enough
        run.sink.prefetch(c.geometry.input_len(), 0.0, &mut prefetch);
        // SAFETY: by the contract of `backward`, source and output gradient have the images, and the scratch a group of
        // padded inputs and output gradients; the sink, if it wants the gradient, has the images too.
        unsafe {
            read_group(simd, &c.geometry, &c.input_frame(), &run.source, &images, scratch.input.cast::<S>());
            if wanted {
                clear_output_gradient(c, images.len(), scratch.m.cast::<S>());
            }
            add_weight_gradient(simd, c, run, &images, scratch, fresh, &prefetch);
            fresh = false;
            if !wanted {
                continue;
            }
            input_gradient(simd, c, run, images.len(), scratch, &prefetch);
            let inner = Frame { height: size[0], width: size[1], channels: inputs, row: size[1] * inputs };
            for (i, n) in images.clone().enumerate() {
                let from = scratch.gradient.add(i * size[0] * inner.row);
                let band = Band { image: n, rows: 0..size[0] };
                drain(simd, &run.sink, &band, &inner, from, scratch.sums, run.sums);
            }
        }
    }
}

/// Clears the padded frames of a group's output gradients, of which only the insides will be written.
///
/// # Safety
/// `m` is valid for writing as many frames.
#[inline(always)]
unsafe fn clear_output_gradient<S: Activation>(c: &Direct, images: usize, m: *mut S) {
    let [height, width, ..] = c.gradient_frame;
    // SAFETY: the contract.
    unsafe { std::ptr::write_bytes(m, 0, images * height * width * c.geometry.outputs) };
}

/// Reads some rows of the output gradient of image `n` into rows of a padded frame, from `into` on.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); the image is one of the run's, and `into` is valid
/// for writing the pixels of as many rows of a frame.
#[inline(always)]
unsafe fn read_output_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Backward<S, T>,
    n: usize,
    rows: &Range<usize>,
    into: *mut S,
) {
    let outputs = c.geometry.outputs;
    let [height, width] = c.geometry.out();
    let frame_row = c.gradient_frame[1] * outputs;
    for (i, y) in rows.clone().enumerate() {
        // SAFETY: by the contract, `into` has row i, and `run.back` the run's images.
        unsafe {
            let to = into.add(i * frame_row);
            let at = (n * height + y) * width * outputs;
            for k in (0..outputs).step_by(I::WIDTH) {
                let factors = run.back.factors(simd, outputs, k);
                for x in 0..width {
                    let g = run.back.at(simd, at + x * outputs + k, factors);
                    S::store(simd, to.add(x * outputs + k), g);
                }
            }
        }
    }
}

/// Reads the output gradients of a group and adds its weight gradient; a `fresh` one is overwritten. Every tile of weights
/// goes through the output gradient once, which is therefore taken in bands that stay in the cache; without an input gradient,
/// nobody needs a band any more when the next one is read, and all take the same place.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); `images` are at most a group of the run's, whose
/// input has been read.
#[inline(always)]
unsafe fn add_weight_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Backward<S, T>,
    images: &Range<usize>,
    scratch: &Scratch,
    fresh: bool,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, kernel, stride, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let frame = c.input_frame();
    let [frame_height, frame_width, top, left] = c.gradient_frame;
    let frame_row = frame_width * outputs;
    let keeps_bands = run.wants_input_gradient();
    for (n, image) in images.clone().enumerate() {
        // SAFETY: by the contract of `backward`, `scratch.input` and `scratch.m` have a frame for every image of a
        // group, inside of which windows and output pixels lie, and `run.dw` has all weights.
        unsafe {
            let input = scratch.input.cast::<S>().add(n * frame.height * frame.row);
            let a = if S::DEPTH == 1 {
                input.cast()
            } else {
                let (all, next) = (frame.height * frame.row, stride * inputs);
                pair_rows(simd, input, Some(input.add(next)), all - next, scratch.v);
                pair_rows(simd, input.add(all - next), None, next, scratch.v.add(all - next));
                scratch.v.cast_const()
            };
            for rows in blocks(0..height, c.band) {
                let row = if keeps_bands { n * frame_height + top + rows.start } else { 0 };
                let d = scratch.m.cast::<S>().add(row * frame_row + left * outputs);
                read_output_gradient(simd, c, run, image, &rows, d);
                let sum = Outer {
                    count: kernel,
                    next: [frame.row, 0, kernel * inputs * outputs],
                    fresh: fresh && n == 0 && rows.start == 0,
                    rows: kernel * inputs,
                    columns: outputs,
                    size: [rows.len(), width],
                    a: a.add(rows.start * stride * frame.row),
                    a_strides: [stride * frame.row, stride * inputs * S::DEPTH],
                    d,
                    d_strides: [frame_row, outputs],
                    w: run.dw,
                    w_stride: outputs,
                    prefetch,
                };
                outer(simd.level(), &sum);
            }
        }
    }
}

/// Computes the input gradient of a group whose output gradient has been read, into `scratch.gradient`.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient;
/// `images` are at most a group.
#[inline(always)]
unsafe fn input_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Direct,
    run: &Backward<S, T>,
    images: usize,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let mut weights = run.weights;
    for class in &c.classes {
        // SAFETY: the contract is the same, and `run.weights` has every class's taps, one class after the other.
        unsafe {
            if class.segments.is_empty() {
                clear_class(c, class, images, scratch.gradient);
            } else {
                class_gradient(simd, c, class, weights, images, scratch, prefetch);
            }
            weights = weights.add(class.taps.len() * outputs * inputs);
        }
    }
}

/// Clears the gradient of pixels that no window covers.
///
/// # Safety
/// `gradient` is valid for writing as many `images`, whose pixels the class is.
#[inline(always)]
unsafe fn clear_class(c: &Direct, class: &PixelClass, images: usize, gradient: *mut f32) {
    let Geometry { inputs, stride, .. } = c.geometry;
    let [rows, pixels] = class.size;
    for row in 0..images * rows {
        for p in 0..pixels {
            // SAFETY: the pixel lies in an image, for which the contract makes `gradient` valid.
            unsafe {
                let into = gradient.add(c.first_pixel(class, row / rows, row % rows) * inputs);
                std::ptr::write_bytes(into.add(p * stride * inputs), 0, inputs);
            }
        }
    }
}

/// Computes the gradient of a class of pixels.
///
/// # Safety
/// The contract of [`input_gradient`]; `weights` are those of the class's taps.
#[inline(always)]
unsafe fn class_gradient<I: Simd, S: Activation>(
    simd: I,
    c: &Direct,
    class: &PixelClass,
    weights: *const S,
    images: usize,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let [frame_height, frame_width, top, left] = c.gradient_frame;
    let frame_row = frame_width * outputs;
    let [rows, pixels] = class.size;
    let depth = class.depth(c);
    let columns = if c.block_rows > 1 { c.panel::<I>(inputs) } else { inputs };
    for some in blocks(0..images * rows, c.block_rows) {
        for column in (0..inputs).step_by(columns) {
            for row in some.clone() {
                let (n, y) = (row / rows, row % rows);
                // SAFETY: by the contract of `backward`, `scratch.m` has a frame for every image of a group, inside of which
                // the classes' segments lie; `scratch.gradient` has every image, whose pixels the class is.
                unsafe {
                    let inside = scratch.m.cast::<S>().add(top * frame_row + left * outputs);
                    let product = Gemm {
                        count: 1,
                        next: [0; 3],
                        rows: pixels,
                        columns,
                        a: inside.add((n * frame_height + y) * frame_row),
                        a_stride: outputs,
                        segments: &class.segments,
                        b: weights.add(column * depth),
                        c: scratch.gradient.add(c.first_pixel(class, n, y) * inputs + column),
                        c_stride: stride * inputs,
                        prefetch,
                    };
                    gemm(simd.level(), &product);
                }
            }
        }
    }
}
