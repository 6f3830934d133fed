//! A convolution, planned once: how its weights are packed, what it needs beside its input and output, and its three passes.
//!
//! Work is done in groups of images, as many as keep the matrix kernels busy; a slice is a number of groups whose weight
//! gradients are summed in one place. Neither depends on the number of threads.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::CHANNELS;
use super::fused_norm::{Frame, OutputGradient, Sink, Source, drain, fill};
use super::gemm::{Gemm, Outer, Segment};
use super::prefetch::Prefetch;
use super::winograd::{TileOut, filter_back, filter_in, tile_in, tile_in_back, tile_out, tile_out_back};
use crate::isa::{Isa, dispatch, panel};

/// How 3 x 3 convolutions with stride 1 are computed; all others are direct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConvolutionAlgorithm {
    /// The definition: a sum over the window.
    Direct,
    /// Winograd's F(4 x 4, 3 x 3), the fastest.
    #[default]
    Winograd,
}

impl fmt::Display for ConvolutionAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Winograd => "winograd",
        })
    }
}

impl FromStr for ConvolutionAlgorithm {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = [Self::Direct, Self::Winograd].into_iter().find(|algorithm| algorithm.to_string() == name);
        found.ok_or_else(|| format!("unknown convolution algorithm '{name}'; use 'direct' or 'winograd'"))
    }
}

/// What a convolution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Channels as they are stored: outputs a multiple of 16, inputs too unless they are the caller's images.
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) pad: usize,
    /// Height and width of the input.
    pub(crate) size: [usize; 2],
}

impl Geometry {
    /// Height and width of the output.
    pub(crate) fn out(&self) -> [usize; 2] {
        self.size.map(|side| (side + 2 * self.pad - self.kernel) / self.stride + 1)
    }

    /// Numbers of the weights.
    pub(crate) fn weights(&self) -> usize {
        self.kernel * self.kernel * self.inputs * self.outputs
    }
}

/// Those pixels of the input that see the same part of the window.
struct Class {
    /// The first of them.
    first: [usize; 2],
    /// How many rows and columns.
    size: [usize; 2],
    segments: Vec<Segment>,
    /// Rows and columns of the window, in the order of the segments.
    taps: Vec<[usize; 2]>,
}

/// Values that a task needs beside the layer's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchSize {
    pub(crate) input: usize,
    pub(crate) v: usize,
    pub(crate) m: usize,
    pub(crate) gradient: usize,
    /// Of the transformed weights.
    pub(crate) du: usize,
    pub(crate) sums: usize,
}

impl ScratchSize {
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            v: self.v.max(other.v),
            m: self.m.max(other.m),
            gradient: self.gradient.max(other.gradient),
            du: self.du.max(other.du),
            sums: self.sums.max(other.sums),
        }
    }
}

/// A task's own memory, of the sizes of a [`ScratchSize`].
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) input: *mut f32,
    pub(crate) v: *mut f32,
    pub(crate) m: *mut f32,
    pub(crate) gradient: *mut f32,
    pub(crate) du: *mut f32,
    pub(crate) sums: *mut f32,
}

/// What the forward pass of some images needs.
pub(crate) struct Forward {
    pub(crate) source: Source,
    pub(crate) images: Range<usize>,
    /// The first image of this thread's next task, as far as one can tell.
    pub(crate) after: Option<usize>,
    /// All of it is in the cache already.
    pub(crate) cached: bool,
    /// Packed for the forward pass.
    pub(crate) weights: *const f32,
    pub(crate) y: *mut f32,
    /// Shifts of the channels, and where the sums of the shifted values and of their squares are added.
    pub(crate) sums: Option<(*const f32, *mut f64)>,
}

/// What the backward pass of some images needs.
pub(crate) struct Backward {
    pub(crate) source: Source,
    pub(crate) back: OutputGradient,
    pub(crate) images: Range<usize>,
    /// As in [`Forward`].
    pub(crate) after: Option<usize>,
    /// Packed for the backward pass.
    pub(crate) weights: *const f32,
    /// Of this slice; overwritten.
    pub(crate) dw: *mut f32,
    pub(crate) sink: Sink,
    /// Three per input channel; added to.
    pub(crate) sums: *mut f64,
}

/// Where a tile is, from the beginning of its group.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// In the frames of the input.
    input: usize,
    /// In the output.
    output: usize,
    /// Rows and columns that lie inside the output.
    inside: [usize; 2],
    /// Whether there is a tile above, and one to the left.
    met: [bool; 2],
}

/// How the work of a pass is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Images that are worked on together.
    pub(crate) group: usize,
    /// Tiles that are transformed before they are multiplied.
    block: usize,
}

/// A convolution that is ready to run.
pub(crate) struct Convolution {
    pub(crate) geometry: Geometry,
    pub(crate) algorithm: ConvolutionAlgorithm,
    pub(crate) forward: Pass,
    pub(crate) backward: Pass,
    /// The two gradients one after the other, because both would not fit in the cache.
    apart: bool,
    /// The tiles of a group.
    places: Vec<Place>,
    /// A 1 x 1 convolution of all pixels, which need no rows.
    flat: bool,
    segments: Vec<Segment>,
    classes: Vec<Class>,
    /// Height, width, top and left of a frame with a padded output gradient.
    framed: [usize; 4],
}

/// Transformed weights that fit in a cache of a core beside everything else, in values.
const CACHED: usize = 160 << 10;
/// Pixels in a group of a direct convolution, where images are smaller.
const PIXELS: usize = 192;

impl Convolution {
    /// Plans a convolution. `algorithm` is used where it fits; the group is at most `images`.
    pub(crate) fn new(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) -> Self {
        let Geometry { inputs, kernel, stride, pad, .. } = geometry;
        let [height, width] = geometry.out();
        let winograd = kernel == 3 && stride == 1 && pad == 1 && inputs.is_multiple_of(16);
        let algorithm = if winograd { algorithm } else { ConvolutionAlgorithm::Direct };
        let flat = kernel == 1 && stride == 1 && pad == 0;
        let mut new = Self {
            geometry,
            algorithm,
            forward: Pass { group: 1, block: 0 },
            backward: Pass { group: 1, block: 0 },
            apart: false,
            places: Vec::new(),
            flat,
            segments: Vec::new(),
            classes: Vec::new(),
            framed: [height, width, 0, 0],
        };
        match algorithm {
            ConvolutionAlgorithm::Direct => {
                let group = PIXELS.div_ceil(height * width).next_power_of_two().min(images);
                (new.forward.group, new.backward.group) = (group, group);
                let row = new.input_frame().row as isize;
                let segment = |y: usize| Segment { offset: y as isize * row, length: kernel * inputs };
                new.segments = (0..kernel).map(segment).collect();
                new.plan_classes();
            }
            _ => {
                // enough for the matrix kernels, few enough for the cache, unless weights are many and have to come from afar
                let (size, near) = (new.packed(), new.packed() <= CACHED);
                let forward = if !near {
                    32
                } else if size > CACHED / 2 || inputs == CHANNELS {
                    8
                } else {
                    16
                };
                new.apart = near && size > CACHED / 2;
                let backward = 32;
                new.forward = new.pass(forward, images);
                new.backward = new.pass(backward, images);
                new.plan_places();
            }
        }
        new
    }

    /// Cuts a pass of this many images at most into blocks of this many tiles at most.
    fn pass(&self, block: usize, images: usize) -> Pass {
        let [down, across] = self.tiles();
        // a power of two, which batches are made of too
        let group = block.div_ceil(down * across).next_power_of_two().min(images);
        // even blocks
        let all = group * down * across;
        Pass { group, block: all.div_ceil(all.div_ceil(block)) }
    }

    /// Finds the places of the tiles.
    fn plan_places(&mut self) {
        let Geometry { inputs, outputs, size: [height, width], .. } = self.geometry;
        let (frame, [down, across]) = (self.input_frame(), self.tiles());
        let side = self.tile();
        for n in 0..self.forward.group.max(self.backward.group) {
            for y in (0..down).map(|y| y * side) {
                for x in (0..across).map(|x| x * side) {
                    self.places.push(Place {
                        input: (n * frame.height + y) * frame.row + x * inputs,
                        output: ((n * height + y) * width + x) * outputs,
                        inside: [(height - y).min(side), (width - x).min(side)],
                        met: [y > 0, x > 0],
                    });
                }
            }
        }
    }

    /// Sorts the input's pixels by the part of the window that sees them.
    fn plan_classes(&mut self) {
        let Geometry { outputs, kernel, stride, pad, size, .. } = self.geometry;
        let out = self.geometry.out();
        // along one side: for every remainder the taps with their offsets in the output, and the number of pixels
        let along = |side: usize| -> Vec<(Vec<(usize, isize)>, usize)> {
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
        for (frame, (side, out)) in frame.iter_mut().zip(sides.iter().zip(out)) {
            let offsets = side.iter().flat_map(|(taps, n)| taps.iter().map(|tap| (tap.1, tap.1 + *n as isize)));
            let (first, last) = offsets.fold((0, out as isize), |(a, b), (from, to)| (a.min(from), b.max(to)));
            *frame = [-first, last - first];
        }
        let [[top, height], [left, width]] = frame;
        self.framed = [height as usize, width as usize, top as usize, left as usize];
        let row = width * outputs as isize;
        for (ry, (down, rows)) in sides[0].iter().enumerate() {
            for (rx, (across, columns)) in sides[1].iter().enumerate() {
                let (mut segments, mut taps) = (Vec::new(), Vec::new());
                for (y, oy) in down {
                    for (x, ox) in across {
                        segments.push(Segment { offset: oy * row + ox * outputs as isize, length: outputs });
                        taps.push([*y, *x]);
                    }
                }
                self.classes.push(Class { first: [ry, rx], size: [*rows, *columns], segments, taps });
            }
        }
    }

    /// Rows and columns of the output that a tile gives.
    fn tile(&self) -> usize {
        4
    }

    /// Tiles down and across.
    fn tiles(&self) -> [usize; 2] {
        self.geometry.size.map(|size| size.div_ceil(self.tile()))
    }

    /// T x T.
    fn positions(&self) -> usize {
        match self.algorithm {
            ConvolutionAlgorithm::Direct => 0,
            ConvolutionAlgorithm::Winograd => 36,
        }
    }

    /// The frame of a padded input image; its height counts the padding too.
    fn input_frame(&self) -> Frame {
        let Geometry { inputs, pad, size, .. } = self.geometry;
        let [height, width] = match self.algorithm {
            ConvolutionAlgorithm::Direct => size.map(|side| side + 2 * pad),
            ConvolutionAlgorithm::Winograd => self.tiles().map(|tiles| 4 * tiles + 2),
        };
        Frame { height, width, channels: inputs, row: width * inputs }
    }

    /// Values of the weights packed for the forward pass, and as many for the backward pass.
    pub(crate) fn packed(&self) -> usize {
        match self.algorithm {
            ConvolutionAlgorithm::Direct => self.geometry.weights(),
            _ => self.positions() * self.geometry.inputs * self.geometry.outputs,
        }
    }

    /// From one position to the next in V and in M: not a multiple of 4096 bytes, which would share cache lines.
    fn strides(&self, pass: Pass) -> [usize; 2] {
        [self.geometry.inputs, self.geometry.outputs].map(|channels| pass.block * channels + 16)
    }

    /// What a task needs.
    pub(crate) fn scratch_size(&self) -> ScratchSize {
        let Geometry { inputs, outputs, size, .. } = self.geometry;
        let frame = self.input_frame();
        let group = self.forward.group.max(self.backward.group);
        let input = group * frame.height * frame.row;
        let sums = 3 * inputs.max(outputs);
        match self.algorithm {
            ConvolutionAlgorithm::Direct => {
                let [height, width, ..] = self.framed;
                let gradient = group * size[0] * size[1] * inputs;
                ScratchSize { input, v: 0, m: group * height * width * outputs, gradient, du: 0, sums }
            }
            _ => {
                let block = self.forward.block.max(self.backward.block);
                let [v, m] = self.strides(Pass { group, block }).map(|stride| self.positions() * stride);
                // the positions of V become those of its gradient
                ScratchSize { input, v, m, gradient: input, du: self.packed(), sums }
            }
        }
    }

    /// Packs the weights of some input channels; `w` is kernel x kernel x inputs x outputs.
    ///
    /// # Safety
    /// `w` must be good for all weights, the others for [`packed`](Self::packed) values. Rows other than those of `inputs` are
    /// not touched, so that several threads can share the work. `back` may be null if it is not needed.
    pub(crate) unsafe fn pack(
        &self,
        simd: equipoise_simd::SimdLevel,
        w: *const f32,
        inputs: Range<usize>,
        forward: *mut f32,
        back: *mut f32,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match self.algorithm {
                ConvolutionAlgorithm::Direct => pack_direct_at(simd, self, w, inputs, forward, back),
                ConvolutionAlgorithm::Winograd => pack_winograd_at(simd, self, w, inputs, forward, back),
            }
        }
    }

    /// Runs the forward pass.
    ///
    /// # Safety
    /// The pointers must be good for what they stand for; `space` has at least [`room`](Self::room), and is the task's own.
    pub(crate) unsafe fn forward(&self, simd: equipoise_simd::SimdLevel, run: &Forward, space: &Scratch) {
        // SAFETY: the caller's.
        unsafe {
            match self.algorithm {
                ConvolutionAlgorithm::Direct => forward_direct_at(simd, self, run, space),
                ConvolutionAlgorithm::Winograd => forward_winograd_at(simd, self, run, space),
            }
        }
    }

    /// Runs the backward pass.
    ///
    /// # Safety
    /// As [`forward`](Self::forward).
    pub(crate) unsafe fn backward(&self, simd: equipoise_simd::SimdLevel, run: &Backward, space: &Scratch) {
        // SAFETY: the caller's.
        unsafe {
            match self.algorithm {
                ConvolutionAlgorithm::Direct => backward_direct_at(simd, self, run, space),
                ConvolutionAlgorithm::Winograd => backward_winograd_at(simd, self, run, space),
            }
        }
    }

    /// Sums the slices' weight gradients of some input channels into `dw`, laid out as the weights.
    ///
    /// # Safety
    /// `from` must be good for the slices, `dw` for all weights; other rows than those of `inputs` are not touched.
    pub(crate) unsafe fn collect(
        &self,
        simd: equipoise_simd::SimdLevel,
        from: *const f32,
        slices: usize,
        inputs: Range<usize>,
        dw: *mut f32,
    ) {
        // SAFETY: the caller's.
        unsafe { collect_at(simd, self, from, slices, inputs, dw) }
    }
}

dispatch!(unsafe fn pack_direct_at(c: &Convolution, w: *const f32, inputs: Range<usize>, forward: *mut f32, back: *mut f32) = pack_direct);
dispatch!(unsafe fn pack_winograd_at(c: &Convolution, w: *const f32, inputs: Range<usize>, forward: *mut f32, back: *mut f32) = pack_winograd::<6>);
dispatch!(unsafe fn forward_direct_at(c: &Convolution, run: &Forward, space: &Scratch) = forward_direct);
dispatch!(unsafe fn forward_winograd_at(c: &Convolution, run: &Forward, space: &Scratch) = forward_winograd::<6>);
dispatch!(unsafe fn backward_direct_at(c: &Convolution, run: &Backward, space: &Scratch) = backward_direct);
dispatch!(unsafe fn backward_winograd_at(c: &Convolution, run: &Backward, space: &Scratch) = backward_winograd::<6>);
dispatch!(unsafe fn collect_at(c: &Convolution, from: *const f32, slices: usize, inputs: Range<usize>, dw: *mut f32) = collect);

/// Values that are summed in f32 before they go to a sum in f64, about.
pub(crate) const SUMMED: usize = 128;

/// Cycles of a tile's transform, by register, about.
const TRANSFORM: usize = 160;

/// Cycles of so many products and sums, about.
#[inline(always)]
fn products<I: Isa>(number: usize) -> usize {
    number / (2 * I::WIDTH)
}

/// Adds f32 sums to f64 ones and clears them.
#[inline(always)]
pub(crate) unsafe fn flush(sums: *mut f32, into: *mut f64, n: usize) {
    // SAFETY: the caller's pointers are good for `n` values.
    unsafe {
        for i in 0..n {
            *into.add(i) += f64::from(*sums.add(i));
            *sums.add(i) = 0.0;
        }
    }
}

/// The groups of some images.
#[inline(always)]
fn groups(images: &Range<usize>, group: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = *images;
    (start..end).step_by(group).map(move |first| first..end.min(first + group))
}

/// The group after one: of the same task, or the one that begins with `after`.
#[inline(always)]
fn soon(images: &Range<usize>, all: &Range<usize>, after: Option<usize>, group: usize) -> Range<usize> {
    match after {
        Some(first) if images.end == all.end => first..first + group,
        _ => images.end..all.end.min(images.end + group),
    }
}

/// Reads a group of images into padded frames; what is not image is zero.
#[inline(always)]
unsafe fn read<I: Isa>(c: &Convolution, source: &Source, images: &Range<usize>, into: *mut f32) {
    let Geometry { inputs, pad, size: [height, width], .. } = c.geometry;
    let outer = c.input_frame();
    let frame = Frame { height, width, channels: inputs, row: outer.row };
    // SAFETY: `into` is good for a group's frames, the source for its images.
    unsafe {
        for (i, n) in images.clone().enumerate() {
            let into = into.add(i * outer.height * outer.row);
            let zero = |from: usize, to: usize| {
                // a call for every border of a row would take longer than its work
                for k in (from..to).step_by(I::WIDTH).filter(|_| inputs.is_multiple_of(CHANNELS)) {
                    I::store(into.add(k), I::splat(0.0));
                }
                for k in (from..to).filter(|_| !inputs.is_multiple_of(CHANNELS)) {
                    *into.add(k) = 0.0;
                }
            };
            zero(0, pad * outer.row);
            zero((pad + height) * outer.row, outer.height * outer.row);
            for y in pad..pad + height {
                zero(y * outer.row, y * outer.row + pad * inputs);
                zero(y * outer.row + (pad + width) * inputs, (y + 1) * outer.row);
            }
            fill::<I>(source, n, &frame, into.add(pad * outer.row + pad * inputs));
        }
    }
}

#[inline(always)]
unsafe fn pack_winograd<I: Isa, const T: usize>(
    c: &Convolution,
    w: *const f32,
    rows: Range<usize>,
    forward: *mut f32,
    back: *mut f32,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let size = inputs * outputs;
    let at = |tap: usize, i: usize, o: usize| (tap * inputs + i) * outputs + o;
    let (width, back_width) = (panel::<I>(outputs), panel::<I>(inputs));
    // SAFETY: the caller's promises about the pointers; `rows` are whole registers.
    unsafe {
        for i in rows.clone() {
            for o in (0..outputs).step_by(I::WIDTH) {
                let mut taps = [[I::splat(0.0); 3]; 3];
                for (tap, value) in taps.as_flattened_mut().iter_mut().enumerate() {
                    *value = I::load(w.add(at(tap, i, o)));
                }
                let packed = (o / width * inputs + i) * width + o % width;
                filter_in::<I, T>(taps, forward.add(packed), size);
            }
        }
        if back.is_null() {
            return;
        }
        // the same with inputs as lanes
        const SIDE: usize = 16;
        let mut turned = [[[0f32; SIDE]; 9]; SIDE];
        for first in rows.step_by(SIDE) {
            for o in (0..outputs).step_by(SIDE) {
                for tap in 0..9 {
                    for i in 0..SIDE {
                        let from = w.add(at(tap, first + i, o));
                        for (k, turned) in turned.iter_mut().enumerate() {
                            turned[tap][i] = *from.add(k);
                        }
                    }
                }
                for (k, turned) in turned.iter().enumerate() {
                    for i in (0..SIDE).step_by(I::WIDTH) {
                        let mut taps = [[I::splat(0.0); 3]; 3];
                        for (tap, value) in taps.as_flattened_mut().iter_mut().enumerate() {
                            *value = I::load(turned[tap].as_ptr().add(i));
                        }
                        let lane = first + i;
                        let packed = (lane / back_width * outputs + o + k) * back_width + lane % back_width;
                        filter_in::<I, T>(taps, back.add(packed), size);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn pack_direct<I: Isa>(c: &Convolution, w: *const f32, rows: Range<usize>, forward: *mut f32, back: *mut f32) {
    let Geometry { inputs, outputs, kernel, .. } = c.geometry;
    let width = panel::<I>(outputs);
    let depth = kernel * kernel * inputs;
    // SAFETY: the caller's promises about the pointers.
    unsafe {
        for tap in 0..kernel * kernel {
            for i in rows.clone() {
                let k = tap * inputs + i;
                for o in (0..outputs).step_by(width) {
                    std::ptr::copy_nonoverlapping(w.add(k * outputs + o), forward.add(o * depth + k * width), width);
                }
            }
        }
        if back.is_null() {
            return;
        }
        let width = panel::<I>(inputs);
        let mut back = back;
        for class in &c.classes {
            let depth = class.taps.len() * outputs;
            for (t, [y, x]) in class.taps.iter().enumerate() {
                for i in rows.clone() {
                    let from = w.add(((y * kernel + x) * inputs + i) * outputs);
                    let to = back.add(i / width * width * depth + t * outputs * width + i % width);
                    for o in 0..outputs {
                        *to.add(o * width) = *from.add(o);
                    }
                }
            }
            back = back.add(depth * inputs);
        }
    }
}

#[inline(always)]
unsafe fn forward_winograd<I: Isa, const T: usize>(c: &Convolution, run: &Forward, space: &Scratch) {
    let Geometry { inputs, outputs, size: [height, width], .. } = c.geometry;
    let (frame, [down, across]) = (c.input_frame(), c.tiles());
    let [v_stride, mut m_stride] = c.strides(c.forward);
    // a row of M that is finished at once may take its row of V's place, which is near
    let mut m = space.m;
    if inputs == outputs && panel::<I>(outputs) == outputs {
        (m, m_stride) = (space.v, v_stride);
    }
    let segments = [Segment { offset: 0, length: inputs }];
    // SAFETY: the caller's promises; tiles lie inside their frames, blocks inside V and M.
    unsafe {
        for images in groups(&run.images, c.forward.group) {
            read::<I>(c, &run.source, &images, space.input);
            let tiles = images.len() * down * across;
            let transform = [inputs, outputs].map(|channels| channels / I::WIDTH * TRANSFORM);
            let product = T * T * products::<I>(inputs * outputs);
            let mut prefetch = Prefetch::new(tiles * (transform[0] + product + transform[1]));
            let soon = soon(&images, &run.images, run.after, c.forward.group);
            if !run.cached {
                prefetch.add(run.y, &soon, height * width * outputs);
                run.source.prefetch(&soon, height * width * inputs, &mut prefetch);
            }
            let begin = images.start * height * width * outputs;
            for first in (0..tiles).step_by(c.forward.block) {
                let number = c.forward.block.min(tiles - first);
                let places = &c.places[first..first + number];
                for (q, place) in places.iter().enumerate() {
                    prefetch.during(transform[0]);
                    let from = space.input.add(place.input);
                    tile_in::<I, T>(from, frame.row, inputs, space.v.add(q * inputs), v_stride);
                }
                I::gemm(&Gemm {
                    count: T * T,
                    next: [v_stride, inputs * outputs, m_stride],
                    rows: number,
                    columns: outputs,
                    a: space.v,
                    a_stride: inputs,
                    segments: &segments,
                    b: run.weights,
                    c: m,
                    c_stride: outputs,
                    prefetch: &prefetch,
                });
                for (q, place) in places.iter().enumerate() {
                    prefetch.during(transform[1]);
                    let into = run.y.add(begin + place.output);
                    let inside = place.inside;
                    let tile = TileOut { stride: m_stride, channels: outputs, row: width * outputs, inside };
                    let sums = run.sums.map(|(shift, _)| (shift, space.sums));
                    tile_out::<I, T>(m.add(q * outputs), &tile, into, sums);
                }
                if let Some((_, sums)) = run.sums {
                    flush(space.sums, sums, 2 * outputs);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn backward_winograd<I: Isa, const T: usize>(c: &Convolution, run: &Backward, space: &Scratch) {
    let wanted = !matches!(run.sink, Sink::Nothing);
    // SAFETY: the caller's.
    unsafe {
        if wanted && c.apart {
            backward_winograd_of::<I, T>(c, run, space, [true, false]);
            backward_winograd_of::<I, T>(c, run, space, [false, true]);
        } else {
            backward_winograd_of::<I, T>(c, run, space, [true, wanted]);
        }
    }
}

/// The weights' gradient, the input's, or both.
#[inline(always)]
unsafe fn backward_winograd_of<I: Isa, const T: usize>(
    c: &Convolution,
    run: &Backward,
    space: &Scratch,
    [weights, wanted]: [bool; 2],
) {
    let pass = if weights { c.backward } else { c.forward };
    let Geometry { inputs, outputs, pad, size: [height, width], .. } = c.geometry;
    let (frame, [down, across]) = (c.input_frame(), c.tiles());
    let [v_stride, m_stride] = c.strides(pass);
    let segments = [Segment { offset: 0, length: outputs }];
    // SAFETY: as in the forward pass.
    unsafe {
        let mut fresh = true;
        for images in groups(&run.images, pass.group) {
            if weights {
                read::<I>(c, &run.source, &images, space.input);
            }
            let tiles = images.len() * down * across;
            let registers = [inputs, outputs].map(|channels| channels / I::WIDTH);
            let transform = [usize::from(weights) * registers[0] + registers[1], usize::from(wanted) * registers[0]];
            let transform = transform.map(|registers| registers * TRANSFORM);
            let number = usize::from(weights) + usize::from(wanted);
            let product = number * T * T * products::<I>(inputs * outputs);
            let mut prefetch = Prefetch::new(tiles * (transform[0] + product + transform[1]));
            let soon = soon(&images, &run.images, run.after, pass.group);
            prefetch.add(run.back.g, &soon, height * width * outputs);
            prefetch.add(run.back.y, &soon, height * width * outputs);
            if weights {
                run.source.prefetch(&soon, height * width * inputs, &mut prefetch);
            }
            if wanted {
                run.sink.prefetch(&soon, height * width * inputs, &mut prefetch);
            }
            let begin = images.start * height * width * outputs;
            for first in (0..tiles).step_by(pass.block) {
                let number = pass.block.min(tiles - first);
                let places = &c.places[first..first + number];
                for (q, place) in places.iter().enumerate() {
                    prefetch.during(transform[0]);
                    if weights {
                        let from = space.input.add(place.input);
                        tile_in::<I, T>(from, frame.row, inputs, space.v.add(q * inputs), v_stride);
                    }
                    let (at, inside) = (begin + place.output, place.inside);
                    let tile = TileOut { stride: m_stride, channels: outputs, row: width * outputs, inside };
                    tile_out_back::<I, T>(space.m.add(q * outputs), &tile, &run.back, at);
                }
                if weights {
                    I::outer(&Outer {
                        count: T * T,
                        next: [v_stride, m_stride, inputs * outputs],
                        fresh,
                        rows: inputs,
                        columns: outputs,
                        size: [1, number],
                        a: space.v,
                        a_strides: [0, inputs],
                        d: space.m,
                        d_strides: [0, outputs],
                        w: space.du,
                        w_stride: outputs,
                        prefetch: &prefetch,
                    });
                }
                fresh = false;
                if wanted {
                    // V is not needed any more, and its place takes its gradient
                    I::gemm(&Gemm {
                        count: T * T,
                        next: [m_stride, inputs * outputs, v_stride],
                        rows: number,
                        columns: inputs,
                        a: space.m,
                        a_stride: outputs,
                        segments: &segments,
                        b: run.weights,
                        c: space.v,
                        c_stride: inputs,
                        prefetch: &prefetch,
                    });
                    for (q, place) in places.iter().enumerate() {
                        prefetch.during(transform[1]);
                        let (v, into) = (space.v.add(q * inputs), space.gradient.add(place.input));
                        if place.met == [true; 2] {
                            tile_in_back::<I, T>(v, v_stride, inputs, into, frame.row, [true; 2]);
                        } else {
                            tile_in_back::<I, T>(v, v_stride, inputs, into, frame.row, place.met);
                        }
                    }
                }
            }
            for (i, n) in images.clone().enumerate().filter(|_| wanted) {
                let from = space.gradient.add((i * frame.height + pad) * frame.row + pad * inputs);
                let inner = Frame { height, width, channels: inputs, row: frame.row };
                drain::<I>(&run.sink, n, &inner, from, space.sums, run.sums);
            }
        }
        if weights {
            filter_back::<I, T>(space.du, inputs, outputs, run.dw);
        }
    }
}

#[inline(always)]
unsafe fn forward_direct<I: Isa>(c: &Convolution, run: &Forward, space: &Scratch) {
    let Geometry { inputs, outputs, stride, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let frame = c.input_frame();
    // SAFETY: the caller's promises; windows lie inside their frames.
    unsafe {
        for images in groups(&run.images, c.forward.group) {
            read::<I>(c, &run.source, &images, space.input);
            let [count, outside] = [height * width, c.geometry.size[0] * c.geometry.size[1]];
            let mut prefetch = Prefetch::new(images.len() * count * products::<I>(c.geometry.weights()));
            let soon = soon(&images, &run.images, run.after, c.forward.group);
            if !run.cached {
                prefetch.add(run.y, &soon, count * outputs);
                run.source.prefetch(&soon, outside * inputs, &mut prefetch);
            }
            // rows of output pixels: all of them at once where there is no window
            let (rows, pixels) =
                if c.flat { (1, images.len() * height * width) } else { (images.len() * height, width) };
            for row in 0..rows {
                let (n, y) = (row / height, row % height);
                let a = space.input.add((n * frame.height + y * stride) * frame.row);
                let y = run.y.add((images.start * height + row) * width * outputs);
                I::gemm(&Gemm {
                    count: 1,
                    next: [0; 3],
                    rows: pixels,
                    columns: outputs,
                    a,
                    a_stride: stride * inputs,
                    segments: &c.segments,
                    b: run.weights,
                    c: y,
                    c_stride: outputs,
                    prefetch: &prefetch,
                });
                if let Some((shift, sums)) = run.sums {
                    for first in (0..pixels).step_by(SUMMED) {
                        let last = pixels.min(first + SUMMED);
                        for k in (0..outputs).step_by(I::WIDTH) {
                            let shift = I::load(shift.add(k));
                            let (mut sum, mut squares) = (I::splat(0.0), I::splat(0.0));
                            for x in first..last {
                                let value = I::sub(I::load(y.add(x * outputs + k)), shift);
                                sum = I::add(sum, value);
                                squares = I::fma(value, value, squares);
                            }
                            I::store(space.sums.add(k), sum);
                            I::store(space.sums.add(outputs + k), squares);
                        }
                        flush(space.sums, sums, 2 * outputs);
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn backward_direct<I: Isa>(c: &Convolution, run: &Backward, space: &Scratch) {
    let Geometry { inputs, outputs, kernel, stride, size, .. } = c.geometry;
    let [height, width] = c.geometry.out();
    let frame = c.input_frame();
    let [framed_height, framed_width, top, left] = c.framed;
    let framed_row = framed_width * outputs;
    let wanted = !matches!(run.sink, Sink::Nothing);
    // SAFETY: the caller's promises; windows and their adjoints lie inside their frames.
    unsafe {
        let mut fresh = true;
        for images in groups(&run.images, c.backward.group) {
            read::<I>(c, &run.source, &images, space.input);
            let (count, outside) = (height * width, size[0] * size[1]);
            let passes = if wanted { 2 } else { 1 };
            let mut prefetch = Prefetch::new(images.len() * count * passes * products::<I>(c.geometry.weights()));
            let soon = soon(&images, &run.images, run.after, c.backward.group);
            run.source.prefetch(&soon, outside * inputs, &mut prefetch);
            prefetch.add(run.back.g, &soon, count * outputs);
            prefetch.add(run.back.y, &soon, count * outputs);
            run.sink.prefetch(&soon, outside * inputs, &mut prefetch);
            std::ptr::write_bytes(space.m, 0, images.len() * framed_height * framed_row);
            for (i, n) in images.clone().enumerate() {
                for y in 0..height {
                    let to = space.m.add((i * framed_height + top + y) * framed_row + left * outputs);
                    let at = (n * height + y) * width * outputs;
                    for k in (0..outputs).step_by(I::WIDTH) {
                        let factors = run.back.factors::<I>(outputs, k);
                        for x in 0..width {
                            let g = run.back.at::<I>(at + x * outputs + k, factors);
                            I::store(to.add(x * outputs + k), g);
                        }
                    }
                }
            }
            let inside = space.m.add(top * framed_row + left * outputs);
            let (number, rows, pixels) =
                if c.flat { (1, 1, images.len() * height * width) } else { (images.len(), height, width) };
            for n in 0..number {
                I::outer(&Outer {
                    count: kernel,
                    next: [frame.row, 0, kernel * inputs * outputs],
                    fresh,
                    rows: kernel * inputs,
                    columns: outputs,
                    size: [rows, pixels],
                    a: space.input.add(n * frame.height * frame.row),
                    a_strides: [stride * frame.row, stride * inputs],
                    d: inside.add(n * framed_height * framed_row),
                    d_strides: [framed_row, outputs],
                    w: run.dw,
                    w_stride: outputs,
                    prefetch: &prefetch,
                });
                fresh = false;
            }
            if !wanted {
                continue;
            }
            let mut weights = run.weights;
            for class in &c.classes {
                let [y, x] = class.first;
                let (number, rows, pixels) = if c.flat {
                    (1, 1, images.len() * size[0] * size[1])
                } else {
                    (images.len(), class.size[0], class.size[1])
                };
                for n in 0..number {
                    for row in 0..rows {
                        let pixel = (n * size[0] + y + stride * row) * size[1] + x;
                        let c = space.gradient.add(pixel * inputs);
                        if class.segments.is_empty() {
                            // no window ends here
                            for p in 0..pixels {
                                std::ptr::write_bytes(c.add(p * stride * inputs), 0, inputs);
                            }
                            continue;
                        }
                        I::gemm(&Gemm {
                            count: 1,
                            next: [0; 3],
                            rows: pixels,
                            columns: inputs,
                            a: inside.add((n * framed_height + row) * framed_row),
                            a_stride: outputs,
                            segments: &class.segments,
                            b: weights,
                            c,
                            c_stride: stride * inputs,
                            prefetch: &prefetch,
                        });
                    }
                }
                weights = weights.add(class.taps.len() * outputs * inputs);
            }
            let inner = Frame { height: size[0], width: size[1], channels: inputs, row: size[1] * inputs };
            for (i, n) in images.clone().enumerate() {
                let from = space.gradient.add(i * size[0] * inner.row);
                drain::<I>(&run.sink, n, &inner, from, space.sums, run.sums);
            }
        }
    }
}

#[inline(always)]
unsafe fn collect<I: Isa>(c: &Convolution, from: *const f32, slices: usize, rows: Range<usize>, dw: *mut f32) {
    let Geometry { inputs, outputs, kernel, .. } = c.geometry;
    // SAFETY: the caller's promises.
    unsafe {
        for tap in 0..kernel * kernel {
            let (first, last) = ((tap * inputs + rows.start) * outputs, (tap * inputs + rows.end) * outputs);
            for k in (first..last).step_by(I::WIDTH) {
                let mut sum = I::load(from.add(k));
                for slice in 1..slices {
                    sum = I::add(sum, I::load(from.add(slice * c.geometry.weights() + k)));
                }
                I::store(dw.add(k), sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_random::Draws;
    use equipoise_simd::SimdLevel;

    use super::*;
    use crate::buffer::Buffer;
    use crate::kernel::fused_norm::ShortcutBack;

    /// Values between -1 and 1.
    fn random(length: usize, salt: u64) -> Buffer {
        let mut values = Buffer::new(length);
        let draws = Draws::new(7, salt, length as u64);
        values.iter_mut().enumerate().for_each(|(i, x)| *x = 2.0 * draws.unit(i as u64) as f32 - 1.0);
        values
    }

    /// The definition: output, gradient of the input, gradient of the weights.
    fn plain(g: &Geometry, images: usize, x: &[f32], w: &[f32], dy: &[f32]) -> [Vec<f64>; 3] {
        let ([height, width], [rows, columns]) = (g.size, g.out());
        let mut y = vec![0.0; images * rows * columns * g.outputs];
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        for n in 0..images {
            for row in 0..rows {
                for column in 0..columns {
                    for ky in 0..g.kernel {
                        for kx in 0..g.kernel {
                            let place = |at: usize, k: usize, most: usize| {
                                (at * g.stride + k).checked_sub(g.pad).filter(|place| *place < most)
                            };
                            let (Some(iy), Some(ix)) = (place(row, ky, height), place(column, kx, width)) else {
                                continue;
                            };
                            let at_x = ((n * height + iy) * width + ix) * g.inputs;
                            let at_y = ((n * rows + row) * columns + column) * g.outputs;
                            for i in 0..g.inputs {
                                let at_w = ((ky * g.kernel + kx) * g.inputs + i) * g.outputs;
                                for o in 0..g.outputs {
                                    let (x, w, dy) =
                                        (f64::from(x[at_x + i]), f64::from(w[at_w + o]), f64::from(dy[at_y + o]));
                                    y[at_y + o] += x * w;
                                    dx[at_x + i] += w * dy;
                                    dw[at_w + o] += x * dy;
                                }
                            }
                        }
                    }
                }
            }
        }
        [y, dx, dw]
    }

    fn space(c: &Convolution) -> [Buffer; 6] {
        let room = c.scratch_size();
        // what is left from other layers must not matter, and does not vanish
        let mut all = [room.input, room.v, room.m, room.gradient, room.du, room.sums].map(Buffer::new);
        all.iter_mut().take(5).for_each(|buffer| buffer.fill(f32::NAN));
        all
    }

    /// The same by the kernels.
    fn kernels(c: &Convolution, simd: SimdLevel, images: usize, x: &Buffer, w: &Buffer, dy: &Buffer) -> [Vec<f32>; 3] {
        let g = c.geometry;
        let [rows, columns] = g.out();
        let (mut forward, mut back) = (Buffer::new(c.packed()), Buffer::new(c.packed()));
        let back_at = if g.inputs.is_multiple_of(16) { back.as_mut_ptr() } else { std::ptr::null_mut() };
        let mut own = space(c);
        let [input, v, m, gradient, du, sums] = &mut own;
        let space = Scratch {
            input: input.as_mut_ptr(),
            v: v.as_mut_ptr(),
            m: m.as_mut_ptr(),
            gradient: gradient.as_mut_ptr(),
            du: du.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
        };
        let mut y = Buffer::new(images * rows * columns * g.outputs);
        let mut dx = Buffer::new(x.len());
        let (mut dw, mut slices) = (Buffer::new(g.weights()), Buffer::new(2 * g.weights()));
        let mut k = Buffer::new(3 * g.outputs);
        k[..g.outputs].fill(1.0);
        let zeros = Buffer::new(dy.len());
        let mut sums = vec![0.0; 3 * g.inputs.max(g.outputs)];
        let shift = random(g.outputs, 9);
        // SAFETY: every buffer has the size that the convolution asks for.
        unsafe {
            c.pack(simd, w.as_ptr(), 0..g.inputs, forward.as_mut_ptr(), back_at);
            let source = Source::Plain(x.as_ptr());
            let (run_sums, weights) = (Some((shift.as_ptr(), sums.as_mut_ptr())), forward.as_ptr());
            c.forward(
                simd,
                &Forward {
                    source,
                    images: 0..images,
                    after: None,
                    cached: false,
                    weights,
                    y: y.as_mut_ptr(),
                    sums: run_sums,
                },
                &space,
            );
            for o in 0..g.outputs {
                let values = y.iter().skip(o).step_by(g.outputs).map(|y| f64::from(y - shift[o]));
                let (sum, squares) = values.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
                let near = |a: f64, b: f64| (a - b).abs() < 1e-4 * (1.0 + squares);
                assert!(near(sums[o], sum) && near(sums[g.outputs + o], squares), "{g:?}: {} {sum}", sums[o]);
            }
            // two slices, as a batch would have
            let middle = images / 2;
            let out = dx.as_mut_ptr();
            let sink = match g.inputs.is_multiple_of(16) {
                true => Sink::Plain { shortcut: ShortcutBack::Nothing, out },
                false => Sink::Nothing,
            };
            for (slice, images) in [0..middle, middle..images].into_iter().enumerate() {
                let back = OutputGradient { g: dy.as_ptr(), y: zeros.as_ptr(), k: k.as_ptr() };
                let (weights, dw) = (back_at.cast_const(), slices.as_mut_ptr().add(slice * g.weights()));
                let run = Backward { source, back, images, after: None, weights, dw, sink, sums: sums.as_mut_ptr() };
                c.backward(simd, &run, &space);
            }
            c.collect(simd, slices.as_ptr(), 2, 0..g.inputs, dw.as_mut_ptr());
        }
        [y.to_vec(), dx.to_vec(), dw.to_vec()]
    }

    fn check(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) {
        let [rows, columns] = geometry.out();
        let x = random(images * geometry.size[0] * geometry.size[1] * geometry.inputs, 1);
        let w = random(geometry.weights(), 2);
        let dy = random(images * rows * columns * geometry.outputs, 3);
        let want = plain(&geometry, images, &x, &w, &dy);
        let c = Convolution::new(geometry, algorithm, images);
        let mut fused: Option<[Vec<f32>; 3]> = None;
        for &simd in SimdLevel::available() {
            let got = kernels(&c, simd, images, &x, &w, &dy);
            for (what, (got, want)) in ["y", "dx", "dw"].iter().zip(got.iter().zip(&want)) {
                if *what == "dx" && !geometry.inputs.is_multiple_of(16) {
                    continue;
                }
                let scale = want.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                let worst = got.iter().zip(want).fold(0.0, |a: f64, (g, w)| a.max((f64::from(*g) - w).abs()));
                let bound = if algorithm == ConvolutionAlgorithm::Winograd { 2e-5 } else { 4e-6 };
                assert!(worst <= bound * scale, "{what} {simd:?} {algorithm:?} {geometry:?}: {worst} of {scale}");
            }
            if simd != SimdLevel::Portable {
                let fused = fused.get_or_insert_with(|| got.clone());
                assert_eq!(*fused, got, "{simd:?} {algorithm:?} {geometry:?}");
            }
        }
    }

    #[test]
    fn three_by_three_by_every_method() {
        for algorithm in [ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd] {
            for size in [[8, 8], [7, 7], [1, 1], [2, 5], [13, 6], [16, 16]] {
                for (inputs, outputs) in [(16, 16), (16, 48), (32, 16), (64, 32)] {
                    let geometry = Geometry { inputs, outputs, kernel: 3, stride: 1, pad: 1, size };
                    check(geometry, algorithm, 3);
                }
            }
            let geometry = Geometry { inputs: 16, outputs: 16, kernel: 3, stride: 1, pad: 1, size: [32, 32] };
            check(geometry, algorithm, 2);
        }
    }

    /// Any window, stride, padding and size; the inputs are the caller's images, or inner ones.
    #[test]
    fn any_window() {
        for (kernel, stride, pad) in [
            (1, 1, 0),
            (1, 2, 0),
            (3, 2, 1),
            (7, 2, 3),
            (5, 1, 2),
            (5, 3, 0),
            (2, 2, 0),
            (3, 1, 0),
            (4, 3, 2),
            (3, 5, 1),
        ] {
            for size in [[8, 8], [7, 9], [15, 4], [5, 5]] {
                if size.iter().any(|side| side + 2 * pad < kernel) {
                    continue;
                }
                for (inputs, outputs) in [(3, 16), (1, 32), (16, 32), (48, 16), (5, 64)] {
                    check(Geometry { inputs, outputs, kernel, stride, pad, size }, ConvolutionAlgorithm::Winograd, 3);
                }
            }
        }
    }
}
