//! Windows of 3 x 3 and 1 x 1 pixels with stride 1 or 2, in bf16, by products of tiles (`kernel/tile_product.rs`).
//!
//! A tile takes sixteen pixels that are the same distance apart. Pixels of the output therefore have one number each: rows
//! follow each other with a margin of zeros between them, so that the windows at both ends of a row read zeros there. Products
//! are also computed for the pixels of the margin, and not used. With stride 2, even and odd rows of the input make up two
//! planes, in which the input of a pixel is twice its number away.

use std::ops::Range;

use equipoise_simd::{Amx, Bf16, Simd, TILE, TILE_BYTES, Tiles, VectorTiles, dispatch};

use super::direct::{Direct, PixelClass};
use super::{Backward, F32_SUMS, Forward, Geometry, Scratch, ScratchSize, clear, flush, groups, next_group};
use crate::kernel::fused_norm::{Band, Frame, Source, drain, fill};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::tile_product::{
    TILE_CYCLES, TILE_VALUES, TileGradient, TileProduct, exchanged_row, pair_pixels, tile_gradient, tile_product,
    transpose,
};
use crate::kernel::value::Activation;

/// Values of f32 results that are computed before they are used, so that they are still in the cache.
const BAND_VALUES: usize = 32 << 10;
/// Multiples of 32 pixels whose weight gradients are summed before they are written, about.
const GROUP_BLOCKS: usize = 16;
/// About how many cycles a pass over sixteen channels of a pixel takes.
const PASS_CYCLES: usize = 4;
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
    /// Pixels of an image with its margins and what tiles read behind them.
    pixels: usize,
    /// Where the rows of a window begin, in bytes from a pixel.
    stretches: Vec<isize>,
    classes: Vec<ClassProduct>,
    /// The taps of every plane, by even and odd columns: how many pixels further on they read, and their numbers.
    taps: Vec<Vec<(isize, usize)>>,
    /// Images whose weight gradients are summed together, because one has few pixels.
    group: usize,
    /// Where every 32 pixels of a group begin in a row of the exchanged input, in bytes, and in the words of the output gradient.
    gradient_stretches: Vec<[usize; 2]>,
}

impl Tiled {
    /// Whether the algorithm can compute a convolution.
    pub(super) fn fits(geometry: &Geometry) -> bool {
        let &Geometry { inputs, kernel, stride, pad, .. } = geometry;
        matches!((kernel, pad), (3, 1) | (1, 0)) && stride <= 2 && inputs.is_multiple_of(TILE)
    }

    /// Plans a convolution for at most `images`.
    pub(super) fn new(geometry: Geometry, images: usize) -> Self {
        let Geometry { inputs, kernel, pad: margin, .. } = geometry;
        let [height, width] = geometry.out();
        let pitch = width + margin;
        // tiles read up to 33 pixels behind the last row
        let pixels = margin + (height + 2 * margin) * pitch + TILE_VALUES + 1;
        let mut plan = Self {
            direct: Direct::tiled::<Bf16>(geometry, 1),
            geometry,
            amx: Amx::request(),
            margin,
            pitch,
            pixels,
            stretches: Vec::new(),
            classes: Vec::new(),
            taps: Vec::new(),
            group: 1,
            gradient_stretches: Vec::new(),
        };
        for y in 0..kernel {
            plan.stretches.extend(plan.stretches(plan.input_pixel([y, 0]), inputs, kernel));
        }
        plan.classes = plan.direct.classes.iter().map(|class| plan.class_product(class)).collect();
        plan.plan_gradient(images);
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

    /// Sorts the taps by the planes that they read, and finds the group's stretches.
    fn plan_gradient(&mut self, images: usize) {
        let Geometry { kernel, stride, .. } = self.geometry;
        self.taps = vec![Vec::new(); stride * stride];
        for tap in 0..kernel * kernel {
            let ((row_plane, down), (column_plane, across)) = (self.plane(tap / kernel), self.plane(tap % kernel));
            self.taps[row_plane * stride + column_plane].push((down * self.pitch as isize + across, tap));
        }
        let blocks = self.blocks();
        self.group = (GROUP_BLOCKS / blocks).clamp(1, images);
        self.gradient_stretches = (0..self.group * blocks)
            .map(|k| [k * TILE_BYTES, k / blocks * self.word_rows() + k % blocks * TILE_VALUES])
            .collect();
    }

    /// Pixels before the first one that a shifted tile begins at.
    fn lead(&self) -> usize {
        self.margin * (self.pitch + 1)
    }

    /// Rows of words of an image's output gradient.
    fn word_rows(&self) -> usize {
        self.blocks() * TILE_VALUES + 2 * self.lead()
    }

    /// The number of the first pixel.
    fn first(&self) -> usize {
        self.margin + self.margin * self.pitch
    }

    /// Pixels of some rows, with the margins between them.
    fn row_pixels(&self, rows: usize) -> usize {
        rows * self.pitch - self.margin
    }

    /// Values of a row of a group's exchanged input.
    fn row(&self) -> usize {
        exchanged_row(self.group * self.blocks() * TILE_VALUES)
    }

    /// Multiples of 32 pixels from the first to the last one.
    fn blocks(&self) -> usize {
        self.row_pixels(self.geometry.out()[0]).div_ceil(TILE_VALUES)
    }

    /// About how many cycles a pass over some rows of pixels takes.
    fn row_cycles(&self, rows: usize, channels: usize) -> usize {
        rows * self.pitch * channels / TILE * PASS_CYCLES
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
            m: (self.group * self.pixels * outputs).div_ceil(2),
            gradient: (output * outputs).max(planes * input * inputs),
            du: self.group * self.word_rows() * outputs,
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
unsafe fn forward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Tiled,
    run: &Forward<S, T>,
    scratch: &Scratch,
) {
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
unsafe fn backward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Tiled,
    run: &Backward<S, T>,
    scratch: &Scratch,
) {
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
    let [height, width] = c.geometry.out();
    let [band, _] = c.band_rows();
    for images in groups(&run.images, 1) {
        let products = c.row_pixels(height).div_ceil(TILE) * outputs / TILE * c.stretches.len();
        let passes = c.row_cycles(stride * stride * height, inputs) + c.row_cycles(height, outputs);
        let work = products * TILE_CYCLES + passes;
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, 1));
        if !run.cached {
            prefetch.add(run.y, c.geometry.output_len(), 1.0);
            run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        }
        // SAFETY: by the contract of `forward`, the source has the image, `y` its output, and the scratch its planes and a
        // band of results.
        unsafe {
            let input = scratch.input.cast::<S>();
            read_planes(simd, c, &run.source, images.start, input, &prefetch);
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
                prefetch.during(c.row_cycles(rows.len(), outputs));
                let to = run.y.add((images.start * height + rows.start) * width * outputs);
                let result =
                    Pixels { from: scratch.gradient, size: [rows.len(), width], pitch: c.pitch, channels: outputs };
                write_pixels(simd, &result, to, run.sums, scratch.sums);
            }
        }
    }
}

/// Rows of pixels of a result.
pub(super) struct Pixels {
    pub(super) from: *const f32,
    /// Numbers of rows, and of pixels in each.
    pub(super) size: [usize; 2],
    /// Distance from one row to the next, in pixels.
    pub(super) pitch: usize,
    pub(super) channels: usize,
}

/// Rounds pixels and writes them one after the other, and adds the sums by channel of what was written, if they are wanted.
///
/// # Safety
/// `p.from` is valid for reading and `to` for writing all pixels, with a multiple of 16 channels; `sums` are valid for a shift
/// and two sums per channel, and `scratch` for two values per channel.
#[inline(always)]
pub(super) unsafe fn write_pixels<I: Simd, S: Activation>(
    simd: I,
    p: &Pixels,
    to: *mut S,
    sums: Option<(*const f32, *mut f64)>,
    scratch: *mut f32,
) {
    let &Pixels { from, size: [rows, width], pitch, channels } = p;
    let sum_rows = F32_SUMS.div_ceil(width);
    for first in (0..rows).step_by(sum_rows) {
        let some = first..rows.min(first + sum_rows);
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: k and x lie in the channels and pixels, for which the contract makes the pointers valid.
            unsafe {
                let shift = sums.map_or(simd.splat(0.0), |(shift, _)| simd.load(shift.add(k)));
                let (mut sum, mut squares) = ([simd.splat(0.0); 2], [simd.splat(0.0); 2]);
                for y in some.clone() {
                    let (from, to) = (from.add(y * pitch * channels + k), to.add(y * width * channels + k));
                    for x in 0..width {
                        S::store(simd, to.add(x * channels), simd.load(from.add(x * channels)));
                        if sums.is_some() {
                            let value = simd.sub(S::load(simd, to.add(x * channels)), shift);
                            sum[x % 2] = simd.add(sum[x % 2], value);
                            squares[x % 2] = simd.fma(value, value, squares[x % 2]);
                        }
                    }
                }
                simd.store(scratch.add(k), simd.add(sum[0], sum[1]));
                simd.store(scratch.add(channels + k), simd.add(squares[0], squares[1]));
            }
        }
        // SAFETY: by the contract, there are two values per channel of both.
        unsafe {
            match sums {
                Some((_, sums)) => flush(scratch, sums, 2 * channels),
                None => std::ptr::write_bytes(scratch, 0, 2 * channels),
            }
        }
    }
}

/// Reads an image into its planes.
///
/// # Safety
/// `source` is valid for the image, of the geometry's input size and channels, and `into` for writing all planes.
#[inline(always)]
unsafe fn read_planes<I: Simd, S: Activation>(
    simd: I,
    c: &Tiled,
    source: &Source<S>,
    image: usize,
    into: *mut S,
    prefetch: &Prefetch,
) {
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
                prefetch.during(c.row_cycles(stride, inputs));
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
    let Geometry { inputs, outputs, stride, size: [height, _], .. } = c.geometry;
    let wanted = run.wants_input_gradient();
    let [_, band] = c.band_rows();
    let mut fresh = true;
    for images in groups(&run.images, c.group) {
        let products = c.geometry.weights() / (TILE * TILE) * c.blocks() * if wanted { 2 } else { 1 };
        let rows = c.geometry.out()[0];
        let passes = c.row_cycles(2 * stride * stride * rows, inputs) + c.row_cycles(rows, outputs);
        let work = images.len() * (products * TILE_CYCLES + passes);
        let mut prefetch = Prefetch::new(work, &images, &next_group(&images, &run.images, run.after, c.group));
        run.source.prefetch(c.geometry.input_len(), 1.0, &mut prefetch);
        prefetch.add(run.back.g, c.geometry.output_len(), 1.0);
        prefetch.add(run.back.y, c.geometry.output_len(), 1.0);
        // the sink comes last, so that its part of this group is early enough
        run.sink.prefetch(c.geometry.input_len(), 0.0, &mut prefetch);
        // SAFETY: by the contract of `backward`, source and output gradient have the images, and the scratch the planes of an
        // image, and of a group their exchange, the output gradient and its words; a band of results; `run.dw` has all weights.
        unsafe {
            let (input, m) = (scratch.input.cast::<S>(), scratch.m.cast::<S>());
            for (i, image) in images.clone().enumerate() {
                read_planes(simd, c, &run.source, image, input, &prefetch);
                exchange(simd, c, input.cast(), scratch.v.cast::<Bf16>().add(i * c.blocks() * TILE_VALUES));
                let m = m.add(i * c.pixels * outputs);
                read_output_gradient(simd, c, run, image, m, &prefetch);
                let first = c.first() - c.lead();
                let (m, words) = (m.add(first * outputs).cast(), scratch.du.add(i * c.word_rows() * outputs));
                pair_pixels(simd, m, [c.pixels - first, outputs], words, [c.word_rows(), 1]);
            }
            for (plane, taps) in c.taps.iter().enumerate() {
                let gradient = TileGradient {
                    fresh,
                    rows: inputs,
                    columns: outputs,
                    a: scratch.v.cast::<Bf16>().add(plane * inputs * c.row()),
                    a_stride: c.row() * size_of::<Bf16>(),
                    stretches: &c.gradient_stretches[..images.len() * c.blocks()],
                    words: scratch.du.add(c.lead() * outputs),
                    step: 1,
                    taps,
                    w: run.dw,
                    prefetch: &prefetch,
                };
                tile_gradient(tiles, &gradient);
            }
            fresh = false;
            if !wanted {
                continue;
            }
            let rows = height.div_ceil(stride);
            for (i, image) in images.clone().enumerate() {
                let m = m.add(i * c.pixels * outputs).cast();
                for first in (0..rows).step_by(band) {
                    let rows = first..rows.min(first + band);
                    input_gradient(simd, tiles, c, (m, run.weights.cast()), &rows, scratch, &prefetch);
                    drain_band(simd, c, run, image, &rows, scratch, &prefetch);
                }
            }
        }
    }
}

/// Exchanges pixels and channels of all planes, from the first pixel on.
///
/// # Safety
/// `input` is valid for reading all planes, and `into` for writing an image's part of a row for every channel of each plane.
#[inline(always)]
unsafe fn exchange<I: Simd>(simd: I, c: &Tiled, input: *const Bf16, into: *mut Bf16) {
    let Geometry { inputs, stride, .. } = c.geometry;
    let first = c.first();
    for (plane, _) in c.taps.iter().enumerate().filter(|(_, taps)| !taps.is_empty()) {
        let [y, x] = [plane / stride, plane % stride];
        // SAFETY: by the contract, every plane has its pixels, and there is a row for each of its channels.
        unsafe {
            let from = input.add(((y * c.pixels + first) * stride + x) * inputs);
            let pixels = (c.blocks() * TILE_VALUES).min(c.pixels - first);
            transpose(simd, from, [stride * inputs, pixels, inputs], into.add(plane * inputs * c.row()), c.row());
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
    prefetch: &Prefetch,
) {
    let outputs = c.geometry.outputs;
    let [height, width] = c.geometry.out();
    let (first, row) = (c.first() * outputs, c.pitch * outputs);
    // SAFETY: by the contract of `backward`, `run.back` has the image; all rows lie inside of the pixels.
    unsafe {
        clear(simd, into, 0..first, outputs);
        for y in 0..height {
            prefetch.during(c.row_cycles(1, outputs));
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

/// Computes the input gradient of some rows of every plane into `scratch.gradient`, from an image's output gradient and the
/// packed weights.
///
/// # Safety
/// `dy` is valid for reading an image's output gradient with its margins, and `weights` for all classes; `rows` are at most a
/// band, for which there is scratch.
#[inline(always)]
unsafe fn input_gradient<I: Simd, M: Tiles>(
    simd: I,
    tiles: &mut M,
    c: &Tiled,
    (dy, weights): (*const Bf16, *const Bf16),
    rows: &Range<usize>,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let mut weights = weights;
    for class in &c.classes {
        let [y, x] = class.first;
        let pixels = c.row_pixels(rows.len());
        // SAFETY: by the contract, the scratch has a band of every plane, and `weights` are those of all classes, one after
        // the other.
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
                        a: dy.add(pixel * outputs),
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
    rows: &Range<usize>,
    scratch: &Scratch,
    prefetch: &Prefetch,
) {
    let Geometry { inputs, stride, size: [height, width], .. } = c.geometry;
    let frame = Frame { height, width, channels: inputs, row: 0 };
    for row in rows.clone() {
        prefetch.during(c.row_cycles(stride * stride, inputs));
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
