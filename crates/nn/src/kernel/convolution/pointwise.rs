//! 1 x 1 convolutions: matrix products of pixels and weights. There are no windows and no borders, so that with stride 1
//! the products read the input where it is, and only batch norm and ReLU make a copy, of a few rows at a time. With a larger
//! stride the pixels that count are gathered, a few rows at a time too. Their sums have the order of direct convolutions, row
//! by row.

use std::ops::Range;

use equipoise_simd::{Amx, Bf16, Simd, TILE, TILE_BYTES, dispatch};

use super::direct::{Direct, add_channel_sums};
use super::tiled::{Pixels, write_pixels};
use super::{Backward, Forward, Geometry, Scratch, ScratchSize, cycles, groups, next_group, pair_rows};
use crate::kernel::fused_norm::{Band, Frame, Source, drain, fill};
use crate::kernel::gemm::{Gemm, Outer, Segment, gemm, outer};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::tile_product::{
    self, TILE_VALUES, TileGradient, TileProduct, exchanged_row, gradient, product, transpose,
};
use crate::kernel::value::Activation;

/// Pixels in a group of small images, and in a band of a large one if its weights come from far away for every band.
const PIXELS: usize = 192;
/// Values of a band's input, its gradient and the output's gradient that fit in the cache of a core.
const BAND_VALUES: usize = 64 << 10;
/// Weights that fit in the cache beside a band.
const CACHED_WEIGHTS: usize = 32 << 10;

/// A planned 1 x 1 convolution.
pub(super) struct Pointwise {
    /// Packs the weights.
    pub(super) direct: Direct,
    geometry: Geometry,
    /// Images that are worked on together.
    pub(super) group: usize,
    /// Rows of an output that are worked on together: all of them, if a group has several images.
    band: usize,
    segments: [Segment; 1],
    /// Values of a word.
    depth: usize,
    /// How tiles multiply, if they do.
    tiles: Option<PointwiseTiles>,
}

/// Where the tiles of a 1 x 1 convolution are.
struct PointwiseTiles {
    amx: Option<Amx>,
    /// Multiples of a tile's bytes, for the values of a pixel.
    multiples: Vec<isize>,
    /// Where every 32 pixels of a channel begin in bytes, and their numbers.
    stretches: Vec<[usize; 2]>,
    /// Values of a row with a channel of a band.
    row: usize,
}

impl Pointwise {
    /// Whether the algorithm can compute a convolution.
    pub(super) fn fits(geometry: &Geometry) -> bool {
        geometry.kernel == 1 && geometry.pad == 0
    }

    /// Plans a convolution for at most `images`.
    pub(super) fn new<S: Activation>(geometry: Geometry, images: usize) -> Self {
        let [height, width] = geometry.out();
        let group = PIXELS.div_ceil(height * width).next_power_of_two().min(images);
        let least = if geometry.weights() > CACHED_WEIGHTS { PIXELS } else { PIXELS / 2 };
        let pixels = (BAND_VALUES / (2 * geometry.inputs + geometry.outputs)).max(least);
        let bands = if group == 1 { height.div_ceil((pixels / width).max(1)) } else { 1 };
        Self {
            direct: Direct::new::<S>(geometry, images),
            depth: S::DEPTH,
            geometry,
            group,
            // even bands
            band: height.div_ceil(bands),
            segments: [Segment { offset: 0, length: geometry.inputs }],
            tiles: None,
        }
    }

    /// Whether tiles can compute a convolution: whole ones only, because they read the input where it is.
    pub(super) fn fits_tiles(geometry: &Geometry) -> bool {
        Self::fits(geometry)
            && geometry.stride == 1
            && [geometry.inputs, geometry.outputs].iter().all(|n| n.is_multiple_of(TILE_VALUES))
    }

    /// Plans a convolution by tiles.
    pub(super) fn tiled(geometry: Geometry, images: usize) -> Self {
        let Geometry { inputs, outputs, size: [_, width], .. } = geometry;
        let plan = Self::new::<Bf16>(geometry, images);
        let pixels = plan.group * plan.band * width;
        let row = exchanged_row(pixels);
        let tiles = PointwiseTiles {
            amx: Amx::request(),
            multiples: (0..inputs.max(outputs) / TILE_VALUES).map(|k| (k * TILE_BYTES) as isize).collect(),
            stretches: (0..pixels.div_ceil(TILE_VALUES)).map(|k| [k * TILE_BYTES, k * TILE_VALUES]).collect(),
            row,
        };
        Self { direct: Direct::tiled::<Bf16>(geometry, images), tiles: Some(tiles), ..plan }
    }

    /// Whether the products are by tiles, which takes all channels at once.
    pub(super) fn is_tiled(&self) -> bool {
        self.tiles.is_some()
    }

    pub(super) fn scratch_size(&self) -> ScratchSize {
        let Geometry { inputs, outputs, stride, size, .. } = self.geometry;
        let width = self.geometry.out()[1];
        let pixels = self.group * self.band * width;
        let rows = if self.tiles.is_some() { pixels.next_multiple_of(TILE) } else { pixels };
        let (input, m) = (rows * inputs, rows * outputs);
        let v = match &self.tiles {
            Some(tiles) => tiles.row.div_ceil(2) * inputs,
            None if self.depth > 1 => self.group * self.band * width.div_ceil(self.depth) * inputs,
            None => 0,
        };
        let du = match self.tiles {
            Some(_) => pixels.next_multiple_of(TILE_VALUES) / 2 * outputs,
            // a row of the input, or of its gradient and of zeros
            None if stride > 1 => 2 * size[1] * inputs,
            None => 0,
        };
        ScratchSize { input, v, m, gradient: input, du, sums: 3 * inputs.max(outputs) }
    }

    /// Cuts rows of an image into bands.
    fn bands(&self, rows: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (Range { start, end }, band) = (rows.clone(), self.band);
        (start..end).step_by(band).map(move |first| first..end.min(first + band))
    }

    /// The rows of the input from the one that a row of the output sees to the next such row, or to the last one.
    fn seen_rows(&self, row: usize) -> Range<usize> {
        let Geometry { stride, size: [height, _], .. } = self.geometry;
        let end = if row + 1 == self.geometry.out()[0] { height } else { (row + 1) * stride };
        row * stride..end
    }

    /// Rows and columns of as many pixels, for sums over them: one after the other, but row by row with a stride.
    fn sum_size(&self, pixels: usize) -> [usize; 2] {
        let width = self.geometry.out()[1];
        if self.geometry.stride == 1 { [1, pixels] } else { [pixels / width, width] }
    }

    /// The layout of an input whose rows follow each other.
    fn frame(&self, channels: usize) -> Frame {
        let [height, width] = self.geometry.size;
        Frame { height, width, channels, row: width * channels }
    }
}

dispatch! {
    /// Runs the forward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::forward`](super::Convolution::forward).
    pub(super) unsafe fn forward<S: Activation, T: Activation>(c: &Pointwise, run: &Forward<S, T>, scratch: &Scratch) = forward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

dispatch! {
    /// Runs the backward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::backward`](super::Convolution::backward).
    pub(super) unsafe fn backward<S: Activation, T: Activation>(c: &Pointwise, run: &Backward<S, T>, scratch: &Scratch) = backward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward).
#[inline(always)]
unsafe fn forward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Forward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let part = run.part(&c.geometry);
    for images in groups(&run.images, c.group) {
        let work = images.len() * height * width * cycles::<I, S>(c.geometry.weights());
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, c.group));
        if !run.cached {
            let ahead = c.prefetch_distance();
            prefetch.add(run.y, c.geometry.output_len(), ahead);
            // with a stride, most of the input is not read
            if c.geometry.stride == 1 {
                run.source.prefetch(c.geometry.input_len(), ahead, &mut prefetch);
            }
        }
        for rows in c.bands(&part.rows) {
            let pixels = images.len() * rows.len() * width;
            // SAFETY: by the contract of `forward`, the source has the images, `y` their output, and the scratch a band of
            // a group.
            unsafe {
                let a = read_input(simd, c, &run.source, &images, &rows, scratch);
                let y = run.y.add((images.start * height + rows.start) * width * outputs);
                if let (true, Some(tiles)) = (const { S::IS_BF16 }, &c.tiles) {
                    let a = whole_tile(a.cast(), pixels, inputs, scratch.input.cast());
                    let into = Into { rows: pixels, columns: outputs, c: scratch.m };
                    multiply(simd, tiles, (a, inputs), run.weights.cast(), &into, &prefetch);
                    let result = Pixels {
                        from: scratch.m,
                        size: [images.len() * rows.len(), width],
                        pitch: width,
                        channels: outputs,
                    };
                    write_pixels(simd, &result, y, run.sums, scratch.sums);
                    continue;
                }
                let product = Gemm {
                    count: 1,
                    next: [0; 3],
                    rows: pixels,
                    columns: part.channels.len(),
                    a,
                    a_stride: inputs,
                    segments: &c.segments,
                    b: run.weights.add(part.channels.start * inputs),
                    c: y.add(part.channels.start),
                    c_stride: outputs,
                    prefetch: &prefetch,
                };
                gemm(simd.level(), &product);
                if let Some((shift, sums)) = run.sums {
                    let [rows, columns] = c.sum_size(pixels);
                    for row in 0..rows {
                        let y = y.add(row * columns * outputs);
                        add_channel_sums(simd, y, columns, outputs, shift, scratch.sums, sums);
                    }
                }
            }
        }
    }
}

/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward).
#[inline(always)]
unsafe fn backward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Backward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let wanted = run.wants_input_gradient();
    let mut fresh = true;
    for images in groups(&run.images, c.group) {
        let passes = if wanted { 2 } else { 1 };
        let work = images.len() * height * width * passes * cycles::<I, S>(c.geometry.weights());
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, c.group));
        let ahead = c.prefetch_distance();
        if c.geometry.stride == 1 {
            run.source.prefetch(c.geometry.input_len(), ahead, &mut prefetch);
        }
        prefetch.add(run.back.g, c.geometry.output_len(), ahead);
        prefetch.add(run.back.y, c.geometry.output_len(), ahead);
        // the sink comes last
        run.sink.prefetch(c.geometry.input_len(), ahead / 2.0, &mut prefetch);
        for rows in c.bands(&(0..height)) {
            // SAFETY: by the contract of `backward`, source and output gradient have the images, and the scratch a band of
            // a group; the sink, if it wants the gradient, has the images too. A frame's row of the scratch lies at its
            // distance from the band's first.
            unsafe {
                let a = read_input(simd, c, &run.source, &images, &rows, scratch);
                read_output_gradient(simd, c, run, &images, &rows, scratch.m.cast::<S>());
                let pixels = images.len() * rows.len() * width;
                if let (true, Some(tiles)) = (const { S::IS_BF16 }, &c.tiles) {
                    add_tiled_weight_gradient(simd, c, tiles, (a.cast(), pixels), (run.dw, fresh), scratch, &prefetch);
                } else {
                    let size = c.sum_size(pixels);
                    let words = if S::DEPTH == 1 { a.cast() } else { pair_pixels(simd, c, a, size, scratch.v) };
                    add_weight_gradient(simd, c, run, (words, scratch.m.cast::<S>()), size, fresh, &prefetch);
                }
                fresh = false;
                if !wanted {
                    continue;
                }
                if let (true, Some(tiles)) = (const { S::IS_BF16 }, &c.tiles) {
                    let into = Into { rows: pixels, columns: inputs, c: scratch.gradient };
                    let dy = whole_tile(scratch.m.cast(), pixels, outputs, scratch.m.cast());
                    multiply(simd, tiles, (dy, outputs), run.weights.cast(), &into, &prefetch);
                } else {
                    input_gradient(simd, c, run, pixels, scratch, &prefetch);
                }
                if c.geometry.stride > 1 {
                    write_strided(simd, c, run, &images, &rows, scratch);
                    continue;
                }
                let frame = c.frame(inputs);
                for (i, n) in images.clone().enumerate() {
                    let from = scratch.gradient.add(i * rows.len() * frame.row).wrapping_sub(rows.start * frame.row);
                    let band = Band { image: n, rows: rows.clone() };
                    drain(simd, &run.sink, &band, &frame, from, scratch.sums, run.sums);
                }
            }
        }
    }
}

impl Pointwise {
    /// How far ahead a band is prefetched, as a share of the group's work.
    #[inline(always)]
    fn prefetch_distance(&self) -> f32 {
        (2.0 * self.band as f32 / self.geometry.out()[0] as f32).min(1.0)
    }
}

/// Returns where the input of a band is: all pixels of some rows of `images`, one after the other. A joined source is
/// read into its place, an active one and one with a stride into the scratch.
///
/// # Safety
/// `source` is valid for every one of `images`, which are at most a group; `scratch` is valid for writing a band of a
/// group. `rows` are all rows if there are several images.
#[inline(always)]
unsafe fn read_input<I: Simd, S: Activation>(
    simd: I,
    c: &Pointwise,
    source: &Source<S>,
    images: &Range<usize>,
    rows: &Range<usize>,
    scratch: &Scratch,
) -> *const S {
    if c.geometry.stride > 1 {
        // SAFETY: the contract is the same.
        return unsafe { read_strided(simd, c, source, images, rows, scratch) };
    }
    let scratch = scratch.input.cast::<S>();
    let (frame, length) = (c.frame(c.geometry.inputs), c.geometry.input_len());
    let first = images.start * length + rows.start * frame.row;
    // SAFETY: by the contract, the source has the images; image i of the scratch begins after i bands.
    unsafe {
        match *source {
            Source::Plain(from) => from.add(first),
            Source::Joined { keep, .. } => {
                for n in images.clone() {
                    let band = Band { image: n, rows: rows.clone() };
                    fill(simd, source, &band, &frame, keep.add(n * length));
                }
                keep.add(first)
            }
            Source::Active(_) => {
                for (i, n) in images.clone().enumerate() {
                    let into = scratch.add(i * rows.len() * frame.row).wrapping_sub(rows.start * frame.row);
                    fill(simd, source, &Band { image: n, rows: rows.clone() }, &frame, into);
                }
                scratch
            }
        }
    }
}

/// Gathers the pixels that a band of the output sees, and returns where they are.
///
/// # Safety
/// The contract of [`read_input`].
#[inline(always)]
unsafe fn read_strided<I: Simd, S: Activation>(
    simd: I,
    c: &Pointwise,
    source: &Source<S>,
    images: &Range<usize>,
    rows: &Range<usize>,
    scratch: &Scratch,
) -> *const S {
    let Geometry { inputs, stride, .. } = c.geometry;
    let (frame, length, width) = (c.frame(inputs), c.geometry.input_len(), c.geometry.out()[1]);
    let (gathered, row) = (scratch.input.cast::<S>(), scratch.du.cast::<S>());
    let mut into = gathered;
    for n in images.clone() {
        for y in rows.clone() {
            let first = stride * y * frame.row;
            // SAFETY: by the contract, the source has the images and the scratch a band, and a row of the input.
            unsafe {
                let from = match *source {
                    Source::Plain(from) => from.add(n * length + first),
                    Source::Joined { keep, .. } => {
                        fill(simd, source, &Band { image: n, rows: c.seen_rows(y) }, &frame, keep.add(n * length));
                        keep.add(n * length + first).cast_const()
                    }
                    Source::Active(_) => {
                        let band = Band { image: n, rows: stride * y..stride * y + 1 };
                        fill(simd, source, &band, &frame, row.wrapping_sub(first));
                        row.cast_const()
                    }
                };
                for x in 0..width {
                    std::ptr::copy_nonoverlapping(from.add(stride * x * inputs), into, inputs);
                    into = into.add(inputs);
                }
            }
        }
    }
    gathered
}

/// Moves the input gradient of a band to the sink: zero for pixels that the output does not see.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient; `images` are at
/// most a group of the run's, and `scratch.gradient` has the gradient of the band's pixels.
#[inline(always)]
unsafe fn write_strided<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Backward<S, T>,
    images: &Range<usize>,
    rows: &Range<usize>,
    scratch: &Scratch,
) {
    let Geometry { inputs, stride, size: [_, width], .. } = c.geometry;
    let columns = c.geometry.out()[1];
    // every row is the same one of the scratch
    let frame = Frame { row: 0, ..c.frame(inputs) };
    // SAFETY: by the contract, the sink has the images, `scratch.gradient` the band's pixels, and `scratch.du` two rows of the
    // input.
    unsafe {
        let (spread, zeros) = (scratch.du, scratch.du.add(width * inputs));
        std::ptr::write_bytes(spread, 0, 2 * width * inputs);
        let mut from = scratch.gradient.cast_const();
        for n in images.clone() {
            for y in rows.clone() {
                for x in 0..columns {
                    std::ptr::copy_nonoverlapping(from, spread.add(stride * x * inputs), inputs);
                    from = from.add(inputs);
                }
                for row in c.seen_rows(y) {
                    let from = if row == stride * y { spread } else { zeros };
                    let band = Band { image: n, rows: row..row + 1 };
                    drain(simd, &run.sink, &band, &frame, from, scratch.sums, run.sums);
                }
            }
        }
    }
}

/// The result of a product by tiles.
struct Into {
    rows: usize,
    columns: usize,
    c: *mut f32,
}

/// Returns where at least sixteen pixels are: if there are fewer, they are copied to the scratch, with zeros behind them.
///
/// # Safety
/// `a` is valid for reading as many pixels of `channels` values, and `scratch`, which is `a` or does not overlap it, for writing
/// sixteen of them.
#[inline(always)]
unsafe fn whole_tile(a: *const Bf16, pixels: usize, channels: usize, scratch: *mut Bf16) -> *const Bf16 {
    if pixels >= TILE {
        return a;
    }
    // SAFETY: the contract.
    unsafe {
        if !std::ptr::eq(a, scratch) {
            std::ptr::copy_nonoverlapping(a, scratch, pixels * channels);
        }
        std::ptr::write_bytes(scratch.add(pixels * channels), 0, (TILE - pixels) * channels);
    }
    scratch
}

/// Multiplies pixels of `channels` values with packed weights, by tiles.
///
/// # Safety
/// `a` is valid for reading the rows of `into`, and at least sixteen, `weights` for as many rows of weights as there are
/// channels, and `into.c` for writing as many rows as are read.
#[inline(always)]
unsafe fn multiply<I: Simd>(
    simd: I,
    tiles: &PointwiseTiles,
    (a, channels): (*const Bf16, usize),
    weights: *const Bf16,
    into: &Into,
    prefetch: &Prefetch,
) {
    let p = TileProduct {
        rows: into.rows,
        last: into.rows.saturating_sub(TILE),
        columns: into.columns,
        a,
        a_stride: channels * size_of::<Bf16>(),
        stretches: &tiles.multiples[..channels / TILE_VALUES],
        b: weights,
        c: into.c,
        c_stride: into.columns,
        prefetch,
    };
    // SAFETY: the contract is the same; the last tile ends with the last row.
    unsafe { product(simd, tiles.amx, &p) }
}

/// Adds the weight gradient of a band by tiles; a `fresh` one is overwritten.
///
/// # Safety
/// `a` is valid for reading as many pixels of the input, at most a band, whose output gradient is in `scratch.m`; `w` is valid for
/// reading and writing all weights.
#[inline(always)]
unsafe fn add_tiled_weight_gradient<I: Simd>(
    simd: I,
    c: &Pointwise,
    tiles: &PointwiseTiles,
    (a, pixels): (*const Bf16, usize),
    (w, fresh): (*mut f32, bool),
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let exchanged = scratch.v.cast::<Bf16>();
    // SAFETY: by the contract, `a` and `scratch.m` have the pixels; the scratch has room for a band's exchange and pairs.
    unsafe {
        transpose(simd, a, [inputs, pixels, inputs], exchanged, tiles.row);
        let stretches = &tiles.stretches[..pixels.div_ceil(TILE_VALUES)];
        let words = [stretches.len() * TILE, 2];
        tile_product::pair_pixels(simd, scratch.m.cast(), [pixels, outputs], scratch.du, words);
        let g = TileGradient {
            fresh,
            rows: inputs,
            columns: outputs,
            a: exchanged,
            a_stride: tiles.row * size_of::<Bf16>(),
            stretches,
            words: scratch.du,
            step: 2,
            taps: &[(0, 0)],
            w,
            prefetch,
        };
        gradient(simd, tiles.amx, &g);
    }
}

/// Words of pixels and their neighbors in the same row, in `into`.
///
/// # Safety
/// `a` is valid for reading as many rows and columns of pixels, and `into` for writing a word for every two values of a row.
#[inline(always)]
unsafe fn pair_pixels<I: Simd, S: Activation>(
    simd: I,
    c: &Pointwise,
    a: *const S,
    [rows, columns]: [usize; 2],
    into: *mut f32,
) -> *const f32 {
    let inputs = c.geometry.inputs;
    for row in 0..rows {
        for first in (0..columns).step_by(2) {
            // SAFETY: by the contract, `a` has both pixels, or the last one of an odd number, and `into` half as many.
            unsafe {
                let low = a.add((row * columns + first) * inputs);
                let high = (first + 1 < columns).then(|| low.add(inputs));
                pair_rows(simd, low, high, inputs, into.add((row * columns.div_ceil(2) + first / 2) * inputs));
            }
        }
    }
    into
}

/// Reads the output gradient of a band.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); `images` are at most a group of the run's,
/// and `into` is valid for writing a band of a group.
#[inline(always)]
unsafe fn read_output_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Backward<S, T>,
    images: &Range<usize>,
    rows: &Range<usize>,
    into: *mut S,
) {
    let (outputs, [height, width]) = (c.geometry.outputs, c.geometry.out());
    let first = (images.start * height + rows.start) * width * outputs;
    let pixels = images.len() * rows.len() * width;
    // a few pixels for every load of the factors, but not so many that memory is read with large steps only
    for some in (0..pixels).step_by(8) {
        for k in (0..outputs).step_by(I::WIDTH) {
            // SAFETY: by the contract of `backward`, `run.back` has the images and three factors per channel.
            unsafe {
                let factors = run.back.factors(simd, outputs, k);
                for pixel in some..pixels.min(some + 8) {
                    let at = pixel * outputs + k;
                    S::store(simd, into.add(at), run.back.at(simd, first + at, factors));
                }
            }
        }
    }
}

/// Adds the weight gradient of a band; a `fresh` one is overwritten.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); `a` is valid for reading words of the input, and
/// `d` the output gradient, of as many rows and columns of pixels.
#[inline(always)]
unsafe fn add_weight_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Backward<S, T>,
    (a, d): (*const f32, *const S),
    size: [usize; 2],
    fresh: bool,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let sum = Outer {
        count: 1,
        next: [0; 3],
        fresh,
        rows: inputs,
        columns: outputs,
        size,
        a,
        a_strides: [size[1].div_ceil(S::DEPTH) * inputs, inputs],
        d,
        d_strides: [size[1] * outputs, outputs],
        w: run.dw,
        w_stride: outputs,
        prefetch,
    };
    // SAFETY: by the contract, `a` and `d` have the pixels, and `run.dw` has all weights.
    unsafe { outer(simd.level(), &sum) }
}

/// Computes the input gradient of a band whose output gradient is in `scratch.m`, into `scratch.gradient`.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient; `pixels`
/// are at most those of a band.
#[inline(always)]
unsafe fn input_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Pointwise,
    run: &Backward<S, T>,
    pixels: usize,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let product = Gemm {
        count: 1,
        next: [0; 3],
        rows: pixels,
        columns: inputs,
        a: scratch.m.cast::<S>(),
        a_stride: outputs,
        segments: &[Segment { offset: 0, length: outputs }],
        b: run.weights,
        c: scratch.gradient,
        c_stride: inputs,
        prefetch,
    };
    // SAFETY: by the contract, `scratch.m` and `scratch.gradient` have a band, and `run.weights` all weights.
    unsafe { gemm(simd.level(), &product) }
}
