//! 3 x 3 convolutions with stride 1 by Winograd's F(4 x 4, 3 x 3): the plan and the passes. `winograd_pack.rs` packs the
//! weights, and `winograd_transform.rs` has the arithmetic of a tile.

use std::ops::Range;

use equipoise_simd::{Simd, dispatch};

use super::winograd_transform::{
    OUT, OutputTile, POSITIONS, Second, Tiles, filter_back, tile_in, tile_in_back, tile_out, tile_out_back,
};
use super::{Backward, Forward, Geometry, Pass, Scratch, ScratchSize, cycles, flush, groups, next_group, read_band};
use crate::kernel::CHANNELS;
use crate::kernel::fused_norm::{Band, Frame, Source, drain};
use crate::kernel::gemm::{Gemm, Outer, Segment, gemm, outer, panel};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::value::Activation;

/// Values of transformed weights that fit in the cache of a core beside everything else.
const CACHED_WEIGHTS: usize = 160 << 10;
/// Tiles of a block of the backward pass: with V, M and dU, a block and what is prefetched for the next ones fit in a
/// second-level cache of 1 MB.
const BACKWARD_BLOCK: usize = 16;
/// The same where dU does not fit in any case.
const STREAMED_BLOCK: usize = 64;
/// Packed weights that are more than this do not stay in any cache until they are used.
const STREAMED_WEIGHTS: usize = 2 << 20;
/// Input channels of a band of dU: few enough for the cache with many output channels, and enough for every read of V and M.
const BAND: usize = 64;
/// About how many cycles the transform of a tile takes, by vector of channels.
pub(super) const TRANSFORM: usize = 160;

/// Where a tile is, from the beginning of its group.
#[derive(Clone, Copy, Debug)]
struct Tile {
    /// Its first value in the frames of the input.
    input: usize,
    /// Its first value in the output.
    output: usize,
    /// Rows and columns that lie inside the output.
    inside: [usize; 2],
    /// Whether there is a tile above, and one to the left.
    overlaps: [bool; 2],
}

/// A planned Winograd convolution.
pub(super) struct Winograd {
    pub(super) geometry: Geometry,
    pub(super) forward: Pass,
    pub(super) backward: Pass,
    /// Compute the two gradients one after the other, because both would not fit in the cache.
    separate_gradients: bool,
    /// Input channels whose dU is kept at a time: all, unless a slice is one block, whose V and M serve one band after the other.
    band: usize,
    /// The tiles of the larger group, row by row.
    tiles: Vec<Tile>,
}

impl Winograd {
    /// Whether the algorithm can compute a convolution.
    pub(super) fn fits(geometry: &Geometry) -> bool {
        let &Geometry { inputs, kernel, stride, pad, .. } = geometry;
        kernel == 3 && stride == 1 && pad == 1 && inputs.is_multiple_of(CHANNELS)
    }

    /// Plans a convolution for at most `images`.
    pub(super) fn new(geometry: Geometry, images: usize) -> Self {
        let weights = POSITIONS * geometry.inputs * geometry.outputs;
        // enough tiles for the matrix kernels, few enough for the cache, unless the weights come from memory anyway
        let cached = weights <= CACHED_WEIGHTS;
        let forward = if !cached {
            32
        } else if weights > CACHED_WEIGHTS / 2 || geometry.inputs == CHANNELS {
            8
        } else {
            16
        };
        let forward = plan_pass(&geometry, forward, images);
        let backward = plan_backward(&geometry, images);
        let separate_gradients = cached && weights > CACHED_WEIGHTS / 2;
        let [down, across] = tiles(&geometry);
        let is_one_block = images <= backward.group && images * down * across <= backward.block;
        let band = if is_one_block { BAND.min(geometry.inputs) } else { geometry.inputs };
        let mut plan = Self { geometry, forward, backward, separate_gradients, band, tiles: Vec::new() };
        plan.plan_tiles();
        plan
    }

    /// Whether packed weights go past the caches: so many are not there any more when they are used.
    pub(super) fn streams_weights(&self) -> bool {
        self.packed() > STREAMED_WEIGHTS
    }

    /// Finds where the tiles are.
    fn plan_tiles(&mut self) {
        let Geometry { inputs, outputs, size: [height, width], .. } = self.geometry;
        let (frame, [down, across]) = (self.input_frame(), tiles(&self.geometry));
        for n in 0..self.forward.group.max(self.backward.group) {
            for y in (0..down).map(|y| y * OUT) {
                for x in (0..across).map(|x| x * OUT) {
                    self.tiles.push(Tile {
                        input: (n * frame.height + y) * frame.row + x * inputs,
                        output: ((n * height + y) * width + x) * outputs,
                        inside: [(height - y).min(OUT), (width - x).min(OUT)],
                        overlaps: [y > 0, x > 0],
                    });
                }
            }
        }
    }

    /// The frame of a padded input image; its height counts the padding too.
    fn input_frame(&self) -> Frame {
        let inputs = self.geometry.inputs;
        let [height, width] = tiles(&self.geometry).map(|tiles| OUT * tiles + 2);
        Frame { height, width, channels: inputs, row: width * inputs }
    }

    /// Values of the transformed weights.
    pub(super) fn packed(&self) -> usize {
        POSITIONS * self.geometry.inputs * self.geometry.outputs
    }

    /// Distances from one position to the next in V and in M: not multiples of 4096 bytes, which would share cache
    /// lines.
    fn strides(&self, block: usize) -> [usize; 2] {
        [self.geometry.inputs, self.geometry.outputs].map(|channels| block * channels + 16)
    }

    pub(super) fn scratch_size(&self) -> ScratchSize {
        let Geometry { inputs, outputs, .. } = self.geometry;
        let frame = self.input_frame();
        let input = self.forward.group.max(self.backward.group) * frame.height * frame.row;
        let [v, m] = self.strides(self.forward.block.max(self.backward.block)).map(|stride| POSITIONS * stride);
        // the positions of V become those of its gradient
        ScratchSize { input, v, m, gradient: input, du: POSITIONS * self.band * outputs, sums: 3 * inputs.max(outputs) }
    }
}

/// Tiles down and across an image.
fn tiles(geometry: &Geometry) -> [usize; 2] {
    geometry.size.map(|size| size.div_ceil(OUT))
}

/// Cuts a pass over at most `images` into blocks of at most `block` tiles.
fn plan_pass(geometry: &Geometry, block: usize, images: usize) -> Pass {
    let [down, across] = tiles(geometry);
    // a power of two, which batches are made of too
    let group = block.div_ceil(down * across).next_power_of_two().min(images);
    // even blocks
    let all = group * down * across;
    Pass { group, block: all.div_ceil(all.div_ceil(block)) }
}

/// Cuts the backward pass over at most `images`. For every block dU is read and written, which takes longer than the products
/// where it is large: then blocks are too, as far as pairs of tiles stay together, which are the same sums.
fn plan_backward(geometry: &Geometry, images: usize) -> Pass {
    let [down, across] = tiles(geometry);
    let [small, large] = [BACKWARD_BLOCK, STREAMED_BLOCK].map(|block| plan_pass(geometry, block, images));
    let has_pairs = |pass: &Pass| pass.block.is_multiple_of(2) && (pass.group * down * across).is_multiple_of(2);
    let is_streamed = POSITIONS * geometry.inputs * geometry.outputs > STREAMED_WEIGHTS;
    if is_streamed && has_pairs(&small) && has_pairs(&large) { large } else { small }
}

dispatch! {
    /// Runs the forward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::forward`](super::Convolution::forward).
    pub(super) unsafe fn forward<S: Activation, T: Activation>(c: &Winograd, run: &Forward<S, T>, scratch: &Scratch) = forward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

dispatch! {
    /// Runs the backward pass.
    ///
    /// # Safety
    /// The contract of [`Convolution::backward`](super::Convolution::backward).
    pub(super) unsafe fn backward<S: Activation, T: Activation>(c: &Winograd, run: &Backward<S, T>, scratch: &Scratch) = backward_kernel with bf16 if S::IS_BF16 || T::IS_BF16
}

/// # Safety
/// The contract of [`Convolution::forward`](super::Convolution::forward).
#[inline(always)]
unsafe fn forward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Forward<S, T>,
    scratch: &Scratch,
) {
    let Geometry { inputs, outputs, size: [_, width], .. } = c.geometry;
    let (frame, [down, across]) = (c.input_frame(), tiles(&c.geometry));
    let part = run.part(&c.geometry);
    let (channels, tile_rows) = (part.channels.len(), part.rows.start / OUT..part.rows.end.div_ceil(OUT));
    let [v_stride, mut m_stride] = c.strides(c.forward.block);
    // where a row of M is finished in one panel, it may overwrite its row of V, which is in the cache
    let mut m = scratch.m;
    if S::DEPTH == 1 && inputs == outputs && panel::<I>(outputs) == outputs {
        (m, m_stride) = (scratch.v, v_stride);
    }
    let segments = [Segment { offset: 0, length: inputs }];
    for images in groups(&run.images, c.forward.group) {
        // from the first image's first row of tiles to the last one's last row
        let begun = tile_rows.start * across;
        let end = ((images.len() - 1) * down + tile_rows.end) * across;
        let tiles = end - begun;
        let transform = [inputs, channels].map(|channels| channels / I::WIDTH * TRANSFORM);
        let work = tiles * (transform[0] + POSITIONS * cycles::<I, S>(inputs * channels) + transform[1]);
        let next = next_group(&images, &run.images, run.after, c.forward.group);
        let mut prefetch = Prefetch::new(work, &images, &next);
        if !run.cached {
            let ahead = prefetch_distances(c.forward.block, tiles);
            prefetch.add(run.y, c.geometry.output_len(), ahead[1]);
            run.source.prefetch(c.geometry.input_len(), ahead[0], &mut prefetch);
        }
        let begin = images.start * c.geometry.output_len() + part.channels.start;
        // SAFETY: by the contract of `forward`, the source has the images, `y` their output, and the scratch a group of
        // padded images and a block of V and M. `plan_tiles` put every tile inside its padded image and its output. The
        // weights of every position are whole panels, with which the part's channels begin and end.
        unsafe {
            for first in (begun..end).step_by(c.forward.block) {
                let number = c.forward.block.min(end - first);
                let block = &c.tiles[first..first + number];
                read_tiles(simd, c, &run.source, &images, (begun, first..first + number), scratch.input);
                for (q, tile) in block.iter().enumerate() {
                    prefetch.during(transform[0]);
                    let (from, v) = (scratch.input.add(tile.input), scratch.v.cast::<S>().add(q * inputs));
                    tile_in::<I, Tiles<S>>(simd, from, frame.row, inputs, v, v_stride);
                }
                let product = Gemm {
                    count: POSITIONS,
                    next: [v_stride, inputs * outputs, m_stride],
                    rows: number,
                    columns: channels,
                    a: scratch.v.cast::<S>(),
                    a_stride: inputs,
                    segments: &segments,
                    b: run.weights.add(part.channels.start * inputs),
                    c: m,
                    c_stride: outputs,
                    prefetch: &prefetch,
                };
                gemm(simd.level(), &product);
                for (q, tile) in block.iter().enumerate() {
                    prefetch.during(transform[1]);
                    let into = run.y.add(begin + tile.output);
                    let tile = OutputTile {
                        stride: m_stride,
                        channels,
                        pixel: outputs,
                        row: width * outputs,
                        inside: tile.inside,
                    };
                    let sums = run.sums.map(|(shift, _)| (shift, scratch.sums));
                    tile_out(simd, m.add(q * outputs), &tile, into, sums);
                }
                if let Some((_, sums)) = run.sums {
                    flush(scratch.sums, sums, 2 * outputs);
                }
            }
        }
    }
}

/// Which gradients a backward pass computes.
#[derive(Clone, Copy)]
struct Wanted {
    weights: bool,
    input: bool,
}

/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward).
#[inline(always)]
unsafe fn backward_kernel<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Backward<S, T>,
    scratch: &Scratch,
) {
    let input = run.wants_input_gradient();
    // SAFETY: the contract of `backward` holds for each call, and the input gradient is computed for a sink that wants
    // it.
    unsafe {
        if input && c.separate_gradients {
            backward_pass(simd, c, run, scratch, Wanted { weights: true, input: false });
            backward_pass(simd, c, run, scratch, Wanted { weights: false, input: true });
        } else {
            backward_pass(simd, c, run, scratch, Wanted { weights: true, input });
        }
    }
}

/// Computes the wanted gradients.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward), with a sink that wants the input gradient
/// if it is `wanted`.
#[inline(always)]
unsafe fn backward_pass<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Backward<S, T>,
    scratch: &Scratch,
    wanted: Wanted,
) {
    let pass = if wanted.weights { c.backward } else { c.forward };
    let Geometry { inputs, outputs, .. } = c.geometry;
    let [down, across] = tiles(&c.geometry);
    let mut fresh = true;
    for images in groups(&run.images, pass.group) {
        let tiles = images.len() * down * across;
        let (prefetch, transform) = plan_prefetch::<I, S, T>(c, run, &images, pass, wanted);
        let begin = images.start * c.geometry.output_len();
        // SAFETY: by the contract of `backward`, source and output gradient have the images, and the scratch a group of
        // padded images, their gradients, a block of V and M, and dU; the sink has the images if the input gradient is
        // wanted.
        unsafe {
            for first in (0..tiles).step_by(pass.block) {
                let range = first..tiles.min(first + pass.block);
                if wanted.weights {
                    read_tiles(simd, c, &run.source, &images, (0, range.clone()), scratch.input);
                }
                let block = &c.tiles[range.clone()];
                let block = Block { tiles: block, begin, pass, fresh, transform, prefetch: &prefetch };
                transform_block(simd, c, run, scratch, wanted, &block);
                multiply_block(simd, c, run, scratch, wanted, &block);
                fresh = false;
                if wanted.input {
                    write_tiles(simd, c, run, &images, range, scratch);
                }
            }
        }
    }
    if wanted.weights && c.band == inputs {
        // SAFETY: the scratch has dU, which the blocks have written, and `dw` all weights, by the contract of
        // `backward`.
        unsafe { filter_back(simd, scratch.du, inputs * outputs, run.dw, inputs * outputs) };
    }
}

/// Reads the rows of the input that the tiles of a block need and those before, from tile `begun` on, did not.
///
/// # Safety
/// `source` is valid for every one of `images`, which are at most a group, and `into` for writing a group of padded
/// images. `block` are tiles of the group; those before have been read, from the beginning of a row of tiles on.
#[inline(always)]
unsafe fn read_tiles<I: Simd, S: Activation>(
    simd: I,
    c: &Winograd,
    source: &Source<S>,
    images: &Range<usize>,
    (begun, block): (usize, Range<usize>),
    into: *mut f32,
) {
    let (frame, [down, across], height) = (c.input_frame(), tiles(&c.geometry), c.geometry.size[0]);
    // a tile sees the pixels under it, and one more on every side
    let rows = |tiles: usize| if tiles == 0 { 0 } else { height.min(tiles.div_ceil(across) * OUT + 1) };
    let is_first = block.start == begun;
    for (i, tiles) in tiles_by_image(block, down * across) {
        // the first row of tiles also sees the row above it
        let first = if is_first && i == 0 { (tiles.start / across * OUT).saturating_sub(1) } else { rows(tiles.start) };
        // SAFETY: by the contract, `into` has room for image i, and the source has it.
        unsafe {
            let into = into.add(i * frame.height * frame.row);
            let rows = first..rows(tiles.end);
            if !rows.is_empty() {
                read_band(simd, &c.geometry, &frame, source, &Band { image: images.start + i, rows }, into);
            }
        }
    }
}

/// Moves the rows of the input gradient that are finished after a block, and were not before, to the sink.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward) with a sink that wants the gradient. `images`
/// are at most a group; `scratch.gradient` has the gradient of their tiles up to the end of the `block`.
#[inline(always)]
unsafe fn write_tiles<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Backward<S, T>,
    images: &Range<usize>,
    block: Range<usize>,
    scratch: &Scratch,
) {
    let Geometry { inputs, pad, size: [height, width], .. } = c.geometry;
    let (frame, [down, across]) = (c.input_frame(), tiles(&c.geometry));
    let inner = Frame { height, width, channels: inputs, row: frame.row };
    // the next row of tiles adds to the last pixels under a tile and to those around it
    let rows = |tiles: usize| if tiles == down * across { height } else { (tiles / across * OUT).saturating_sub(pad) };
    for (i, tiles) in tiles_by_image(block, down * across) {
        // SAFETY: by the contract, `scratch.gradient` has the padded image i, inside of which the image lies.
        unsafe {
            let from = scratch.gradient.add((i * frame.height + pad) * frame.row + pad * inputs);
            let band = Band { image: images.start + i, rows: rows(tiles.start)..rows(tiles.end) };
            drain(simd, &run.sink, &band, &inner, from, scratch.sums, run.sums);
        }
    }
}

/// Cuts a range of a group's tiles by image: the number of the image, and the range in its own tiles.
#[inline(always)]
fn tiles_by_image(tiles: Range<usize>, per_image: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let Range { start, end } = tiles;
    (start / per_image..end.div_ceil(per_image)).map(move |image| {
        let first = image * per_image;
        (image, start.max(first) - first..end.min(first + per_image) - first)
    })
}

/// How far ahead a block's inputs and outputs are prefetched, as shares of the group's work.
#[inline(always)]
fn prefetch_distances(block: usize, tiles: usize) -> [f32; 2] {
    // inputs are read at the beginning of a block, outputs are written at its end
    [2 * block, block].map(|ahead| ahead as f32 / tiles as f32)
}

/// The prefetch schedule of a group, and about how many cycles a tile's transforms take before and after the products.
#[inline(always)]
fn plan_prefetch<I: Simd, S: Activation, T: Activation>(
    c: &Winograd,
    run: &Backward<S, T>,
    images: &Range<usize>,
    pass: Pass,
    wanted: Wanted,
) -> (Prefetch, [usize; 2]) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let [down, across] = tiles(&c.geometry);
    let vectors = [inputs, outputs].map(|channels| channels / I::WIDTH);
    let (weights, input) = (usize::from(wanted.weights), usize::from(wanted.input));
    let transform = [weights * vectors[0] + vectors[1], input * vectors[0]].map(|vectors| vectors * TRANSFORM);
    let product = (weights + input) * POSITIONS * cycles::<I, S>(inputs * outputs);
    let tiles = images.len() * down * across;
    let next = next_group(images, &run.images, run.after, pass.group);
    let mut prefetch = Prefetch::new(tiles * (transform[0] + product + transform[1]), images, &next);
    let ahead = prefetch_distances(pass.block, tiles);
    prefetch.add(run.back.g, c.geometry.output_len(), ahead[0]);
    prefetch.add(run.back.y, c.geometry.output_len(), ahead[0]);
    if wanted.weights {
        run.source.prefetch(c.geometry.input_len(), ahead[0], &mut prefetch);
    }
    if wanted.input {
        run.sink.prefetch(c.geometry.input_len(), ahead[1], &mut prefetch);
    }
    (prefetch, transform)
}

/// The tiles of a backward pass that are transformed and multiplied together.
struct Block<'a> {
    tiles: &'a [Tile],
    /// Where the group's output begins.
    begin: usize,
    pass: Pass,
    /// This is the first block of the slice, so that dU is overwritten.
    fresh: bool,
    /// About how many cycles a tile's transforms take before and after the products.
    transform: [usize; 2],
    prefetch: &'a Prefetch,
}

/// Transforms the input of a block to V, if the weight gradient is wanted, and its output gradient to M.
///
/// # Safety
/// The contract of [`Convolution::backward`](super::Convolution::backward); the tiles belong to one group of the run,
/// whose padded images are in `scratch.input` if the weight gradient is wanted.
#[inline(always)]
unsafe fn transform_block<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Backward<S, T>,
    scratch: &Scratch,
    wanted: Wanted,
    block: &Block<'_>,
) {
    let Geometry { inputs, outputs, size: [_, width], .. } = c.geometry;
    let [v_stride, m_stride] = c.strides(block.pass.block);
    let row = c.input_frame().row;
    for (q, tile) in block.tiles.iter().enumerate() {
        block.prefetch.during(block.transform[0]);
        // SAFETY: by the contract of `backward`, `scratch.input`, V and M have room for a group and a block, and
        // `run.back` the run's images; `plan_tiles` put the tile inside its padded image and its output.
        unsafe {
            if wanted.weights {
                let (from, v) = (scratch.input.add(tile.input), scratch.v.add(q / S::DEPTH * inputs));
                if q % S::DEPTH == 0 {
                    tile_in::<I, Tiles<f32>>(simd, from, row, inputs, v, v_stride);
                } else {
                    tile_in::<I, Second>(simd, from, row, inputs, v, v_stride);
                }
            }
            let (at, inside) = (block.begin + tile.output, tile.inside);
            let tile = OutputTile { stride: m_stride, channels: outputs, pixel: outputs, row: width * outputs, inside };
            tile_out_back(simd, scratch.m.cast::<S>().add(q * outputs), &tile, &run.back, at);
        }
    }
    let number = block.tiles.len();
    if wanted.weights && !number.is_multiple_of(S::DEPTH) {
        // a pair without a second tile
        for position in 0..POSITIONS {
            for k in (0..inputs).step_by(I::WIDTH) {
                // SAFETY: V has a vector at `k` of every position of the tile.
                unsafe {
                    let v = scratch.v.add(position * v_stride + number / S::DEPTH * inputs + k);
                    simd.store(v, simd.pair_bf16(simd.load(v), simd.splat(0.0)));
                }
            }
        }
    }
}

/// Adds the products of a transformed block to dU, and its input gradient to `scratch.gradient`. Bands of dU become weight gradients at once.
///
/// # Safety
/// The contract of [`transform_block`], which has run for the block.
#[inline(always)]
unsafe fn multiply_block<I: Simd, S: Activation, T: Activation>(
    simd: I,
    c: &Winograd,
    run: &Backward<S, T>,
    scratch: &Scratch,
    wanted: Wanted,
    block: &Block<'_>,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let [v_stride, m_stride] = c.strides(block.pass.block);
    let (number, row) = (block.tiles.len(), c.input_frame().row);
    let segments = [Segment { offset: 0, length: outputs }];
    // SAFETY: by the contract of `backward`, V and M have room for a block, dU for all positions of a band, `dw` has all weights, and
    // `run.weights` has them if the input gradient is wanted; `plan_tiles` put every tile inside its padded image, of
    // which `scratch.gradient` has a group.
    unsafe {
        let bands = if wanted.weights { inputs.div_ceil(c.band) } else { 0 };
        for first in (0..bands).map(|band| band * c.band) {
            let rows = c.band.min(inputs - first);
            let sum = Outer {
                count: POSITIONS,
                next: [v_stride, m_stride, rows * outputs],
                fresh: block.fresh,
                rows,
                columns: outputs,
                size: [1, number],
                a: scratch.v.add(first),
                a_strides: [0, inputs],
                d: scratch.m.cast::<S>(),
                d_strides: [0, outputs],
                w: scratch.du,
                w_stride: outputs,
                prefetch: block.prefetch,
            };
            outer(simd.level(), &sum);
            if rows < inputs {
                filter_back(simd, scratch.du, rows * outputs, run.dw.add(first * outputs), inputs * outputs);
            }
        }
        if !wanted.input {
            return;
        }
        // V is not needed any more, and makes room for its gradient
        let product = Gemm {
            count: POSITIONS,
            next: [m_stride, inputs * outputs, v_stride],
            rows: number,
            columns: inputs,
            a: scratch.m.cast::<S>(),
            a_stride: outputs,
            segments: &segments,
            b: run.weights,
            c: scratch.v,
            c_stride: inputs,
            prefetch: block.prefetch,
        };
        gemm(simd.level(), &product);
        for (q, tile) in block.tiles.iter().enumerate() {
            block.prefetch.during(block.transform[1]);
            let (v, into) = (scratch.v.add(q * inputs), scratch.gradient.add(tile.input));
            // a constant for most tiles, so that they need no branches
            if tile.overlaps == [true; 2] {
                tile_in_back(simd, v, v_stride, inputs, into, row, [true; 2]);
            } else {
                tile_in_back(simd, v, v_stride, inputs, into, row, tile.overlaps);
            }
        }
    }
}
