//! Windows of 3 x 3 and 1 x 1 pixels with stride 1 or 2, in bf16, by products of tiles (`kernel/tile_product.rs`).
//!
//! A tile takes sixteen pixels that are the same distance apart. Pixels of the output therefore have one number each: rows
//! follow each other with a margin of zeros between them, so that the windows at both ends of a row read zeros there. Products
//! are also computed for the pixels of the margin, and not used. With stride 2, even and odd rows of the input make up two
//! planes, in which the input of a pixel is twice its number away.

use std::ops::Range;

use equipoise_simd::{Amx, Bf16, Simd, TILE, Tiles, VectorTiles, dispatch};

use super::direct::{Direct, PixelClass};
use super::{Backward, F32_SUMS, Forward, Geometry, Scratch, ScratchSize, clear, flush, groups, next_group};
use crate::kernel::fused_norm::{Band, Frame, Source, drain, fill};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::tile_product::{
    TILE_CYCLES, TILE_VALUES, TileGradient, TileProduct, exchanged_row, multiples, pair_pixels, tile_gradient,
    tile_product, transpose,
};
use crate::kernel::value::Activation;

/// Values of f32 results that are computed before they are used, so that they are still in the cache.
const BAND_VALUES: usize = 32 << 10;
/// Bytes of a value.
const BYTES: isize = size_of::<Bf16>() as isize;

/// The products that give the gradient of one class of the input's pixels.
struct ClassProduct {
    /// Row and column of the class's first pixel, below the stride.
    first: [usize; 2],
    /// Its number of rows.
    rows: usize,
    /// Where the output gradients of the taps begin, in bytes from those of a pixel.
    stretches: Vec<isize>,
}

/// A planned convolution by tiles.
pub(super) struct Tiled {
    /// Packs the weights.
    pub(super) direct: Direct,
    geometry: Geometry,
    amx: Option<Amx>,
    /// Rows of zeros above and below an image, and pixels of zeros between its rows.
    margin: usize,
    /// Distance from one row's pixels to the next row's.
    pitch: usize,
    /// Pixels of an image with its margins and what tiles read behind them, a multiple of 32.
    pixels: usize,
    /// Where the rows of a window begin, in bytes from a pixel.
    stretches: Vec<isize>,
    classes: Vec<ClassProduct>,
    /// Where the tiles of the exchanged input are that make up the weight gradient, in bytes.
    gradient_tiles: Vec<isize>,
    /// Multiples of a tile's bytes.
    multiples: Vec<isize>,
}

impl Tiled {
    /// Whether the algorithm can compute a convolution.
    pub(super) fn fits(geometry: &Geometry) -> bool {
        let &Geometry { inputs, kernel, stride, pad, .. } = geometry;
        matches!((kernel, pad), (3, 1) | (1, 0)) && stride <= 2 && inputs.is_multiple_of(TILE)
    }

    /// Plans a convolution.
    pub(super) fn new(geometry: Geometry) -> Self {
        let Geometry { inputs, kernel, pad: margin, .. } = geometry;
        let [height, width] = geometry.out();
        let pitch = width + margin;
        // tiles read up to a row and 33 pixels behind the last pixel
        let pixels = (margin + (height + 2 * margin) * pitch + 2 * TILE_VALUES).next_multiple_of(TILE_VALUES);
        let mut plan = Self {
            direct: Direct::tiled::<Bf16>(geometry, 1),
            geometry,
            amx: Amx::request(),
            margin,
            pitch,
            pixels,
            stretches: Vec::new(),
            classes: Vec::new(),
            gradient_tiles: Vec::new(),
            multiples: multiples(pixels),
        };
        for y in 0..kernel {
            plan.stretches.extend(plan.stretches(plan.input_pixel([y, 0]), inputs, kernel));
        }
        plan.classes = plan.direct.classes.iter().map(|class| plan.class_product(class)).collect();
        plan.gradient_tiles = plan.plan_gradient();
        plan
    }

    /// Where the tiles of a row of the window begin, in bytes: of `taps` pixels of some channels, from a pixel on.
    fn stretches(&self, pixel: isize, channels: usize, taps: usize) -> impl Iterator<Item = isize> + use<> {
        let tiles = self.direct.rows(taps * channels) / TILE_VALUES;
        (0..tiles).map(move |k| (pixel * channels as isize + (k * TILE_VALUES) as isize) * BYTES)
    }

    /// The plane of a tap's row or column, and how many rows or columns of the output it lies further on.
    fn plane(&self, tap: usize) -> (usize, isize) {
        let (stride, offset) = (self.geometry.stride as isize, tap as isize - self.geometry.pad as isize);
        (offset.rem_euclid(stride) as usize, offset.div_euclid(stride))
    }

    /// Where the input pixel of a tap is, from the input of the same output pixel.
    fn input_pixel(&self, [y, x]: [usize; 2]) -> isize {
        let Geometry { stride, pad, .. } = self.geometry;
        let (plane, down) = self.plane(y);
        let (stride, across) = (stride as isize, x as isize - pad as isize);
        (plane * self.pixels) as isize * stride + stride * down * self.pitch as isize + across
    }

    fn class_product(&self, class: &PixelClass) -> ClassProduct {
        let Geometry { outputs, stride, pad, .. } = self.geometry;
        let [down, across] = class.window();
        let shift = |first: usize, tap: usize| ((first + pad) as isize - tap as isize).div_euclid(stride as isize);
        let stretches = (0..down).flat_map(|run| {
            let [y, x] = class.taps[run * across];
            let pixel = shift(class.first[0], y) * self.pitch as isize + shift(class.first[1], x);
            self.stretches(pixel, outputs, across)
        });
        ClassProduct { first: class.first, rows: class.size[0], stretches: stretches.collect() }
    }

    /// Finds the tiles of the exchanged input, tap by tap.
    fn plan_gradient(&self) -> Vec<isize> {
        let Geometry { inputs, kernel, stride, .. } = self.geometry;
        let mut tiles = Vec::new();
        for [y, x] in (0..kernel * kernel).map(|tap| [tap / kernel, tap % kernel]) {
            let ((row_plane, down), (column_plane, across)) = (self.plane(y), self.plane(x));
            let plane = row_plane * stride + column_plane;
            let shift = down * self.pitch as isize + across;
            tiles.extend((0..inputs).step_by(TILE).map(|i| {
                let row = ((plane * inputs + i) * self.row()) as isize;
                (row + self.first() as isize + shift) * BYTES
            }));
        }
        tiles
    }

    /// The number of the first pixel.
    fn first(&self) -> usize {
        self.margin + self.margin * self.pitch
    }

    /// Pixels of some rows, with the margins between them.
    fn row_pixels(&self, rows: usize) -> usize {
        rows * self.pitch - self.margin
    }

    /// Values of a row of the exchanged input.
    fn row(&self) -> usize {
        exchanged_row(self.pixels)
    }

    /// Multiples of 32 pixels from the first to the last one.
    fn blocks(&self) -> usize {
        self.row_pixels(self.geometry.out()[0]).div_ceil(TILE_VALUES)
    }

    /// Rows of a band, of which a row has results of as many pixels and channels.
    fn band(&self, rows: usize, values: usize) -> usize {
        (BAND_VALUES / (self.pitch * values)).clamp(1, rows)
    }

    /// Rows of a band of the output, and of the input's planes.
    fn band_rows(&self) -> [usize; 2] {
        let Geometry { inputs, outputs, stride, .. } = self.geometry;
        let rows = self.geometry.out()[0];
        [self.band(rows, outputs), self.band(rows, stride * stride * inputs)]
    }

    pub(super) fn scratch_size(&self) -> ScratchSize {
        let Geometry { inputs, outputs, stride, .. } = self.geometry;
        let planes = stride * stride;
        let [output, input] = self.band_rows().map(|rows| self.row_pixels(rows).next_multiple_of(TILE));
        // two values of bf16 take the place of one
        ScratchSize {
            input: (planes * self.pixels * inputs).div_ceil(2),
            v: (planes * self.row() * inputs).div_ceil(2),
            m: (self.pixels * outputs).div_ceil(2),
            gradient: (output * outputs).max(planes * input * inputs),
            du: self.blocks() * TILE * outputs,
            sums: 3 * inputs.max(outputs),
        }
    }
}

dispatch! {
    /// Runs the forward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::forward`](super::Convolution::forward).
    pub(super) unsafe fn forward<S: Activation, T: Activation>(c: &Tiled, run: &Forward<S, T>, scratch: &Scratch) = forward_kernel with bf16 if S::IS_BF16 && T::IS_BF16
}

dispatch! {
    /// Runs the backward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::backward`](super::Convolution::backward).
    pub(super) unsafe fn backward<S: Activation, T: Activation>(c: &Tiled, run: &Backward<S, T>, scratch: &Scratch) = backward_kernel with bf16 if S::IS_BF16 && T::IS_BF16
}

/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward).
#[inline(always)]
unsafe fn forward_kernel<I: Simd, S: Activation, T: Activation>(simd: I, c: &Tiled, run: &Forward<S, T>, scratch: &Scratch) {
    if const { !(S::IS_BF16 && T::IS_BF16) } {
        unreachable!("tiles multiply bf16");
    }
    // SAFETY: the contract is the same.
    unsafe {
        match c.amx.filter(|_| I::HAS_DOT_BF16) {
            Some(amx) => forward_with(simd, &mut amx.tiles(), c, run, scratch),
            None => forward_with(simd, &mut VectorTiles::new(simd), c, run, scratch),
        }
    }
}

/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward).
#[inline(always)]
unsafe fn backward_kernel<I: Simd, S: Activation, T: Activation>(simd: I, c: &Tiled, run: &Backward<S, T>, scratch: &Scratch) {
    if const { !(S::IS_BF16 && T::IS_BF16) } {
        unreachable!("tiles multiply bf16");
    }
    // SAFETY: the contract is the same.
    unsafe {
        match c.amx.filter(|_| I::HAS_DOT_BF16) {
            Some(amx) => backward_with(simd, &mut amx.tiles(), c, run, scratch),
            None => backward_with(simd, &mut VectorTiles::new(simd), c, run, scratch),
        }
    }
}

/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward).
#[inline(always)]
unsafe fn forward_with<I: Simd, S: Activation, T: Activation, M: Tiles>(
    simd: I,
    tiles: &mut M,
    c: &Tiled,
    run: &Forward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let [height, _] = c.geometry.out();
    let [band, _] = c.band_rows();
    for images in groups(&run.images, 1) {
        let work = c.row_pixels(height).div_ceil(TILE) * outputs / TILE * c.stretches.len() * TILE_CYCLES;
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, 1));
        if !run.cached {
            prefetch.add(run.y, c.geometry.output_len(), 1.0);
            run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        }
        // SAFETY: by the contract of `forward`, the source has the image, `y` its output, and the scratch its planes and a
        // band of results.
        unsafe {
            let input = scratch.input.cast::<S>();
            read_planes(simd, c, &run.source, images.start, input);
            for first in (0..height).step_by(band) {
                let rows = first..height.min(first + band);
                let pixel = c.first() + rows.start * c.pitch;
                tile_product(
                    tiles,
                    &TileProduct {
                        rows: c.row_pixels(rows.len()),
                        last: usize::MAX,
                        columns: outputs,
                        a: input.add(pixel * stride * inputs).cast(),
                        a_stride: stride * inputs * size_of::<Bf16>(),
                        stretches: &c.stretches,
                        b: run.weights.cast(),
                        c: scratch.gradient,
                        c_stride: outputs,
                        prefetch: &prefetch,
                    },
                );
                for y in rows.clone() {
                    let from = scratch.gradient.add((y - rows.start) * c.pitch * outputs);
                    let width = c.geometry.out()[1];
                    let to = run.y.add((images.start * height + y) * width * outputs);
                    write_pixels(simd, from, width, outputs, to, run.sums, scratch.sums);
                }
            }
        }
    }
}

/// Rounds pixels of a result and writes them, and adds the sums by channel of what was written, if they are wanted.
///
/// # Safety
/// `from` is valid for reading and `to` for writing as many pixels of `channels`, a multiple of 16; `sums` are valid for a shift
/// and two sums per channel, and `scratch` for two values per channel.
#[inline(always)]
pub(super) unsafe fn write_pixels<I: Simd, S: Activation>(
    simd: I,
    from: *const f32,
    pixels: usize,
    channels: usize,
    to: *mut S,
    sums: Option<(*const f32, *mut f64)>,
    scratch: *mut f32,
) {
    for first in (0..pixels).step_by(F32_SUMS) {
        let some = first..pixels.min(first + F32_SUMS);
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: k and x lie in the channels and pixels, for which the contract makes the pointers valid.
            unsafe {
                let Some((shift, _)) = sums else {
                    for x in some.clone() {
                        let at = x * channels + k;
                        S::store(simd, to.add(at), simd.load(from.add(at)));
                    }
                    continue;
                };
                let shift = simd.load(shift.add(k));
                let (mut sum, mut squares) = (simd.splat(0.0), simd.splat(0.0));
                for x in some.clone() {
                    let at = x * channels + k;
                    S::store(simd, to.add(at), simd.load(from.add(at)));
                    let value = simd.sub(S::load(simd, to.add(at)), shift);
                    sum = simd.add(sum, value);
                    squares = simd.fma(value, value, squares);
                }
                simd.store(scratch.add(k), sum);
                simd.store(scratch.add(channels + k), squares);
            }
        }
        if let Some((_, sums)) = sums {
            // SAFETY: by the contract, there are two values per channel of both.
            unsafe { flush(scratch, sums, 2 * channels) };
        }
    }
}

/// Reads an image into its planes.
///
/// # Safety
/// `source` is valid for the image, of the geometry's input size and channels, and `into` for writing all planes.
#[inline(always)]
unsafe fn read_planes<I: Simd, S: Activation>(simd: I, c: &Tiled, source: &Source<S>, image: usize, into: *mut S) {
    let Geometry { inputs, kernel, stride, size: [height, width], .. } = c.geometry;
    let frame = Frame { height, width, channels: inputs, row: 0 };
    let (plane, row) = (c.pixels * stride * inputs, c.pitch * stride * inputs);
    let first = c.first() * stride * inputs;
    // a window of one pixel sees even rows only; the others may have to be kept
    let planes = if kernel == 1 && matches!(source, Source::Plain(_)) { 1 } else { stride };
    for p in 0..planes {
        let rows = height.saturating_sub(p).div_ceil(stride);
        // SAFETY: the planes have room for the rows and their margins, by the contract.
        unsafe {
            let into = into.add(p * plane);
            clear(simd, into, 0..first, inputs);
            for y in 0..rows {
                let to = into.add(first + y * row);
                let image_row = stride * y + p;
                fill(simd, source, &Band { image, rows: image_row..image_row + 1 }, &frame, to);
                clear(simd, to, width * inputs..row, inputs);
            }
            clear(simd, into, first + rows * row..plane, inputs);
        }
    }
}

/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward).
#[inline(always)]
unsafe fn backward_with<I: Simd, S: Activation, T: Activation, M: Tiles>(
    simd: I,
    tiles: &mut M,
    c: &Tiled,
    run: &Backward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let wanted = run.wants_input_gradient();
    let [_, band] = c.band_rows();
    let mut fresh = true;
    for images in groups(&run.images, 1) {
        let products = c.gradient_tiles.len() * c.blocks() * if wanted { 2 } else { 1 };
        let work = products * outputs / TILE * TILE_CYCLES;
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, 1));
        run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        prefetch.add(run.back.g, c.geometry.output_len(), 1.0);
        prefetch.add(run.back.y, c.geometry.output_len(), 1.0);
        // the sink comes last, so that its part of this image is early enough
        run.sink.prefetch(c.geometry.input_len(), 0.0, &mut prefetch);
        // SAFETY: by the contract of `backward`, source and output gradient have the image, and the scratch its planes, their
        // exchange, the output gradient with its pairs, and a band of results; `run.dw` has all weights.
        unsafe {
            let (input, exchanged, m) =
                (scratch.input.cast::<S>(), scratch.v.cast::<Bf16>(), scratch.m.cast::<S>());
            read_planes(simd, c, &run.source, images.start, input);
            exchange(simd, c, input.cast(), exchanged);
            read_output_gradient(simd, c, run, images.start, m);
            let pixels = c.blocks() * TILE_VALUES;
            pair_pixels(simd, m.add(c.first() * outputs).cast(), pixels, outputs, scratch.du);
            tile_gradient(
                tiles,
                &TileGradient {
                    fresh,
                    tiles: &c.gradient_tiles,
                    columns: outputs,
                    a: exchanged,
                    a_stride: c.row() * size_of::<Bf16>(),
                    stretches: &c.multiples[..c.blocks()],
                    pairs: scratch.du,
                    w: run.dw,
                    prefetch: &prefetch,
                },
            );
            fresh = false;
            if wanted {
                let rows = c.geometry.size[0].div_ceil(stride);
                for first in (0..rows).step_by(band) {
                    input_gradient(simd, tiles, c, run, first..rows.min(first + band), scratch, &prefetch);
                    drain_band(simd, c, run, images.start, first..rows.min(first + band), scratch, inputs);
                }
            }
        }
    }
}

/// Exchanges pixels and channels of all planes.
///
/// # Safety
/// `input` is valid for reading all planes, and `into` for writing a row for every channel of each plane.
#[inline(always)]
unsafe fn exchange<I: Simd>(simd: I, c: &Tiled, input: *const Bf16, into: *mut Bf16) {
    let Geometry { inputs, kernel, stride, .. } = c.geometry;
    let planes = if kernel == 1 { 1 } else { stride };
    for [y, x] in (0..planes * planes).map(|plane| [plane / planes, plane % planes]) {
        // SAFETY: by the contract, every plane has its pixels, and there is a row for each of its channels.
        unsafe {
            let from = input.add((y * c.pixels * stride + x) * inputs);
            let into = into.add((y * stride + x) * inputs * c.row());
            transpose(simd, from, [stride * inputs, c.pixels, inputs], into, c.row());
        }
    }
}

/// Reads an image's output gradient, with its margins.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); `into` is valid for writing all pixels.
#[inline(always)]
unsafe fn read_output_gradient<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Tiled,
    run: &Backward<S, T>,
    image: usize,
    into: *mut S,
) {
    let outputs = c.geometry.outputs;
    let [height, width] = c.geometry.out();
    let (first, row) = (c.first() * outputs, c.pitch * outputs);
    // SAFETY: by the contract of `backward`, `run.back` has the image; all rows lie inside of the pixels.
    unsafe {
        clear(simd, into, 0..first, outputs);
        for y in 0..height {
            let to = into.add(first + y * row);
            let at = (image * height + y) * width * outputs;
            for k in (0..outputs).step_by(I::WIDTH) {
                let factors = run.back.factors(simd, outputs, k);
                for x in 0..width {
                    S::store(simd, to.add(x * outputs + k), run.back.at(simd, at + x * outputs + k, factors));
                }
            }
            clear(simd, to, width * outputs..row, outputs);
        }
        clear(simd, into, first + height * row..c.pixels * outputs, outputs);
    }
}

/// Computes the input gradient of some rows of every plane, whose output gradient has been read, into `scratch.gradient`.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient; `rows` are at
/// most a band.
#[inline(always)]
unsafe fn input_gradient<I: Simd, S: Activation, T: Activation, M: Tiles>(
    simd: I,
    tiles: &mut M,
    c: &Tiled,
    run: &Backward<S, T>,
    rows: Range<usize>,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let mut weights = run.weights.cast::<Bf16>();
    for class in &c.classes {
        let [y, x] = class.first;
        let pixels = c.row_pixels(rows.len());
        // SAFETY: by the contract, the scratch has the output gradient and a band of every plane, and `run.weights` the
        // weights of all classes, one after the other.
        unsafe {
            let into = scratch.gradient.add(y * c.plane_values() + x * inputs);
            if class.stretches.is_empty() {
                // no window covers these pixels
                for pixel in 0..pixels {
                    clear(simd, into.add(pixel * stride * inputs), 0..inputs, inputs);
                }
                continue;
            }
            if rows.start < class.rows {
                let pixel = c.first() + rows.start * c.pitch;
                tile_product(
                    tiles,
                    &TileProduct {
                        rows: pixels,
                        last: usize::MAX,
                        columns: inputs,
                        a: scratch.m.cast::<Bf16>().add(pixel * outputs),
                        a_stride: outputs * size_of::<Bf16>(),
                        stretches: &class.stretches,
                        b: weights,
                        c: into,
                        c_stride: stride * inputs,
                        prefetch,
                    },
                );
            }
            weights = weights.add(class.stretches.len() * TILE_VALUES * inputs);
        }
    }
}

impl Tiled {
    /// Values of a plane's part of a band of input gradients.
    fn plane_values(&self) -> usize {
        let Geometry { inputs, stride, .. } = self.geometry;
        self.row_pixels(self.band_rows()[1]).next_multiple_of(TILE) * stride * inputs
    }
}

/// Gives the input gradient of some rows of every plane to the sink.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient; the rows are in
/// `scratch.gradient`.
#[inline(always)]
unsafe fn drain_band<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Tiled,
    run: &Backward<S, T>,
    image: usize,
    rows: Range<usize>,
    scratch: &Scratch,
    inputs: usize,
) {
    let Geometry { stride, size: [height, width], .. } = c.geometry;
    let frame = Frame { height, width, channels: inputs, row: 0 };
    for row in rows.clone() {
        for p in 0..stride {
            let y = stride * row + p;
            if y >= height {
                continue;
            }
            // SAFETY: by the contract, plane p has this row, and the sink the image.
            unsafe {
                let at = p * c.plane_values() + (row - rows.start) * c.pitch * stride * inputs;
                let band = Band { image, rows: y..y + 1 };
                drain(simd, &run.sink, &band, &frame, scratch.gradient.add(at), scratch.sums, run.sums);
            }
        }
    }
}
