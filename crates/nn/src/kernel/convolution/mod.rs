//! A convolution, planned once: how its weights are packed, what scratch memory it needs, and its three passes.
//!
//! Work is done in groups of images, as many as keep the matrix kernels busy; a slice is a number of groups whose
//! weight gradients are summed in one place. Neither depends on the number of threads.

mod cut;
mod direct;
mod pointwise;
#[cfg(test)]
mod tests;
mod tiled;
mod winograd;
mod winograd_pack;
mod winograd_transform;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use equipoise_simd::{Simd, SimdLevel, dispatch};

use self::direct::Direct;
use self::pointwise::Pointwise;
use self::tiled::Tiled;
use self::winograd::Winograd;
use super::CHANNELS;
use super::fused_norm::{Band, Frame, OutputGradient, Sink, Source, fill};
use super::value::Activation;

/// How 3 x 3 convolutions with stride 1 are computed; all others are direct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConvolutionAlgorithm {
    /// The definition: a sum over the window.
    Direct,
    /// Winograd's F(4 x 4, 3 x 3), the fastest.
    #[default]
    Winograd,
    /// The definition, multiplied by tiles as AMX does it, for bf16: what [`Precision::Bf16Amx`](crate::Precision::Bf16Amx) has.
    /// Convolutions that tiles do not fit are computed as with Winograd.
    Tiles,
}

impl fmt::Display for ConvolutionAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Winograd => "winograd",
            Self::Tiles => "tiles",
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

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Input channels as they are stored: a multiple of 16, unless they are those of the caller's images.
    pub(crate) inputs: usize,
    /// Output channels as they are stored: a multiple of 16.
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

    /// The rows of the input that some rows of the output see; at the borders, all that there are.
    fn input_rows(&self, rows: &Range<usize>) -> Range<usize> {
        let ([height, _], out) = (self.size, self.out()[0]);
        let first = if rows.start == 0 { 0 } else { (rows.start * self.stride).saturating_sub(self.pad) };
        let window = (rows.end.max(1) - 1) * self.stride + self.kernel;
        let end = if rows.end == out { height } else { height.min(window.saturating_sub(self.pad)) };
        first..end.max(first)
    }

    /// The number of weights.
    pub(crate) fn weights(&self) -> usize {
        self.kernel * self.kernel * self.inputs * self.outputs
    }

    /// Values of an input image.
    pub(crate) fn input_len(&self) -> usize {
        self.size[0] * self.size[1] * self.inputs
    }

    /// Values of an output image.
    pub(crate) fn output_len(&self) -> usize {
        let [height, width] = self.out();
        height * width * self.outputs
    }
}

/// How many values of scratch memory a task needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchSize {
    /// Padded input images.
    pub(crate) input: usize,
    /// The transformed input, or words of the input.
    pub(crate) v: usize,
    /// The transformed output, or padded output gradients.
    pub(crate) m: usize,
    /// Gradients of padded input images.
    pub(crate) gradient: usize,
    /// Gradients of the transformed weights.
    pub(crate) du: usize,
    /// Sums by channel.
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

/// The scratch memory of a task, of at least its [`ScratchSize`].
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) input: *mut f32,
    pub(crate) v: *mut f32,
    pub(crate) m: *mut f32,
    pub(crate) gradient: *mut f32,
    pub(crate) du: *mut f32,
    pub(crate) sums: *mut f32,
}

/// Some rows and channels of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputPart {
    pub(crate) rows: Range<usize>,
    pub(crate) channels: Range<usize>,
}

/// The arguments of a forward pass over some images. The input is stored as S, which is also what is multiplied, and the
/// output as T.
pub(crate) struct Forward<S, T> {
    pub(crate) source: Source<S>,
    pub(crate) images: Range<usize>,
    /// The first image of this thread's next task, if one is expected.
    pub(crate) after: Option<usize>,
    /// The images are in the cache already, so that nothing is prefetched.
    pub(crate) cached: bool,
    /// What of the output is computed, if it is not all of it: a part that [`Convolution::cut`] made.
    pub(crate) part: Option<OutputPart>,
    /// Weights packed for the forward pass.
    pub(crate) weights: *const S,
    pub(crate) y: *mut T,
    /// Shifts of the channels, and where the sums of the shifted values and of their squares are added.
    pub(crate) sums: Option<(*const f32, *mut f64)>,
}

impl<S, T> Forward<S, T> {
    /// The rows and channels that are computed.
    fn part(&self, geometry: &Geometry) -> OutputPart {
        let all = || OutputPart { rows: 0..geometry.out()[0], channels: 0..geometry.outputs };
        self.part.clone().unwrap_or_else(all)
    }
}

/// The arguments of a backward pass over some images.
pub(crate) struct Backward<S, T> {
    pub(crate) source: Source<S>,
    pub(crate) back: OutputGradient<T>,
    pub(crate) images: Range<usize>,
    /// The first image of this thread's next task, if one is expected.
    pub(crate) after: Option<usize>,
    /// Weights packed for the backward pass.
    pub(crate) weights: *const S,
    /// Weight gradients of this slice; overwritten.
    pub(crate) dw: *mut f32,
    pub(crate) sink: Sink<S>,
    /// Three sums per input channel; added to.
    pub(crate) sums: *mut f64,
}

impl<S, T> Backward<S, T> {
    /// Whether the gradient of the input is wanted.
    fn wants_input_gradient(&self) -> bool {
        !matches!(self.sink, Sink::Nothing)
    }
}

/// How the work of a pass is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Images that are worked on together.
    pub(crate) group: usize,
    /// Tiles that are transformed before they are multiplied; 0 without tiles.
    block: usize,
}

/// A convolution that is ready to run.
pub(crate) struct Convolution {
    pub(crate) geometry: Geometry,
    pub(crate) forward: Pass,
    plan: Plan,
}

/// Whether a convolution reads one type and writes another, as the stem does. The other algorithms are not compiled for that.
const fn is_mixed<S: Activation, T: Activation>() -> bool {
    S::DEPTH != T::DEPTH
}

enum Plan {
    Direct(Direct),
    Pointwise(Pointwise),
    Tiled(Tiled),
    Winograd(Winograd),
}

impl Convolution {
    /// Plans a convolution of values of type S for at most `images`, whose outputs are of type T. `algorithm` is used where it fits.
    pub(crate) fn new<S: Activation, T: Activation>(
        geometry: Geometry,
        algorithm: ConvolutionAlgorithm,
        images: usize,
    ) -> Self {
        if is_mixed::<S, T>() {
            return Self::direct::<S>(geometry, images);
        }
        if algorithm == ConvolutionAlgorithm::Tiles && S::IS_BF16 {
            if Pointwise::fits_tiles(&geometry) {
                let plan = Pointwise::tiled(geometry, images);
                let pass = Pass { group: plan.group, block: 0 };
                return Self { geometry, forward: pass, plan: Plan::Pointwise(plan) };
            }
            if Tiled::fits(&geometry) {
                return Self {
                    geometry,
                    forward: Pass { group: 1, block: 0 },
                    plan: Plan::Tiled(Tiled::new(geometry, images)),
                };
            }
        }
        if algorithm != ConvolutionAlgorithm::Direct && Winograd::fits(&geometry) {
            let plan = Winograd::new(geometry, images);
            return Self { geometry, forward: plan.forward, plan: Plan::Winograd(plan) };
        }
        if Pointwise::fits(&geometry) {
            let plan = Pointwise::new::<S>(geometry, images);
            let pass = Pass { group: plan.group, block: 0 };
            return Self { geometry, forward: pass, plan: Plan::Pointwise(plan) };
        }
        Self::direct::<S>(geometry, images)
    }

    fn direct<S: Activation>(geometry: Geometry, images: usize) -> Self {
        let plan = Direct::new::<S>(geometry, images);
        let pass = Pass { group: plan.group, block: 0 };
        Self { geometry, forward: pass, plan: Plan::Direct(plan) }
    }

    /// Values of the weights packed for the forward pass, and as many for the backward pass.
    pub(crate) fn packed(&self) -> usize {
        match &self.plan {
            Plan::Direct(plan) => plan.packed(),
            Plan::Pointwise(plan) => plan.direct.packed(),
            Plan::Tiled(plan) => plan.direct.packed(),
            Plan::Winograd(plan) => plan.packed(),
        }
    }

    /// Whether values of type S are multiplied as a source computes them, which is before they are rounded.
    pub(crate) fn reads_before_rounding<S: Activation>(&self) -> bool {
        S::IS_BF16 && matches!(self.plan, Plan::Winograd(_))
    }

    /// Whether packing leaves out some of the values, which must be zero.
    pub(crate) fn has_padding(&self) -> bool {
        match &self.plan {
            Plan::Direct(plan) => plan.has_padding(),
            Plan::Pointwise(plan) => plan.direct.has_padding(),
            Plan::Tiled(plan) => plan.direct.has_padding(),
            Plan::Winograd(_) => false,
        }
    }

    /// The scratch memory that a task needs.
    pub(crate) fn scratch_size(&self) -> ScratchSize {
        match &self.plan {
            Plan::Direct(plan) => plan.scratch_size(),
            Plan::Pointwise(plan) => plan.scratch_size(),
            Plan::Tiled(plan) => plan.scratch_size(),
            Plan::Winograd(plan) => plan.scratch_size(),
        }
    }

    /// Packs the weights of some input channels; `w` is kernel x kernel x inputs x outputs.
    ///
    /// # Safety
    /// `w` is valid for reading all weights. `forward` and `back` are valid for writing [`packed`](Self::packed) values unless they are
    /// null; both are aligned to 64 bytes. `inputs` are a multiple of 16 from a multiple of 16 on, or all of them if `back` is
    /// null. What other threads write meanwhile belongs to other input channels.
    pub(crate) unsafe fn pack<S: Activation>(
        &self,
        level: SimdLevel,
        w: *const f32,
        inputs: Range<usize>,
        forward: *mut S,
        back: *mut S,
    ) {
        // SAFETY: the contracts of these functions are the contract of this one.
        unsafe {
            match &self.plan {
                Plan::Direct(plan) => direct::pack(level, plan, w, inputs, forward, back),
                Plan::Pointwise(plan) => direct::pack(level, &plan.direct, w, inputs, forward, back),
                Plan::Tiled(plan) => direct::pack(level, &plan.direct, w, inputs, forward, back),
                Plan::Winograd(plan) => winograd_pack::pack(level, plan, w, inputs, forward, back),
            }
        }
    }

    /// Runs the forward pass. `scratch.sums` must be zeros.
    ///
    /// # Safety
    /// - `run.source` is valid for every one of `run.images`, of the input's size and channels.
    /// - `run.weights` is valid for reading [`packed`](Self::packed) values.
    /// - `run.y` is valid for writing every one of `run.images`, of the output's size and channels.
    /// - `run.sums` are valid for reading a shift per output channel, and for reading and writing two sums.
    /// - If `run.part` is given, there are no `run.sums`, the source keeps nothing that another thread uses, and only the part
    ///   of the output is written, of one image if it does not have all rows.
    /// - Every pointer of `scratch` is valid for reading and writing as many values as
    ///   [`scratch_size`](Self::scratch_size) says.
    /// - What is written overlaps nothing else, and no other thread uses it meanwhile.
    pub(crate) unsafe fn forward<S: Activation, T: Activation>(
        &self,
        level: SimdLevel,
        run: &Forward<S, T>,
        scratch: &Scratch,
    ) {
        // SAFETY: the contracts of these functions are the contract of this one.
        unsafe {
            match &self.plan {
                Plan::Direct(plan) => direct::forward(level, plan, run, scratch),
                _ if const { is_mixed::<S, T>() } => unreachable!("values of two types have a direct convolution"),
                Plan::Pointwise(plan) => pointwise::forward(level, plan, run, scratch),
                Plan::Tiled(plan) => tiled::forward(level, plan, run, scratch),
                Plan::Winograd(plan) => winograd::forward(level, plan, run, scratch),
            }
        }
    }

    /// Runs the backward pass. `scratch.sums` must be zeros.
    ///
    /// # Safety
    /// - `run.source` is valid for every one of `run.images`, of the input's size and channels.
    /// - `run.back.g` and `run.back.y` are valid for reading every one of `run.images`, of the output's size and channels, and
    ///   `run.back.k` for reading three values per output channel.
    /// - `run.dw` is valid for writing all weights.
    /// - If `run.sink` wants the gradient, it is valid for every one of `run.images`, of the input's size and channels;
    ///   `run.weights` is valid for reading [`packed`](Self::packed) values, and `run.sums` for reading and writing three
    ///   values per input channel.
    /// - Every pointer of `scratch` is valid for reading and writing as many values as
    ///   [`scratch_size`](Self::scratch_size) says.
    /// - What is written overlaps nothing else, and no other thread uses it meanwhile.
    pub(crate) unsafe fn backward<S: Activation, T: Activation>(
        &self,
        level: SimdLevel,
        run: &Backward<S, T>,
        scratch: &Scratch,
    ) {
        // SAFETY: the contracts of these functions are the contract of this one.
        unsafe {
            match &self.plan {
                Plan::Direct(plan) => direct::backward(level, plan, run, scratch),
                _ if const { is_mixed::<S, T>() } => unreachable!("values of two types have a direct convolution"),
                Plan::Pointwise(plan) => pointwise::backward(level, plan, run, scratch),
                Plan::Tiled(plan) => tiled::backward(level, plan, run, scratch),
                Plan::Winograd(plan) => winograd::backward(level, plan, run, scratch),
            }
        }
    }

    /// Sums the slices' weight gradients of some input channels along the tree, into the first. There are at most eight slices.
    ///
    /// # Safety
    /// `gradients` are valid for reading `slices` slices, and the first for writing all weights; what other threads write meanwhile
    /// belongs to other input channels.
    pub(crate) unsafe fn collect(
        &self,
        level: SimdLevel,
        gradients: &SliceGradients,
        slices: usize,
        inputs: Range<usize>,
    ) {
        // SAFETY: the contract of `sum_slices` is the contract of this function.
        unsafe { sum_slices(level, &self.geometry, gradients, slices, inputs) }
    }
}

/// Where the weight gradients of the slices of a batch are, laid out as the weights.
#[derive(Clone, Copy)]
pub(crate) struct SliceGradients {
    /// Those of the first slice, where their sum will be.
    pub(crate) first: *mut f32,
    /// Those of all others, one after the other.
    pub(crate) others: *mut f32,
    /// The number of weights.
    pub(crate) weights: usize,
}

impl SliceGradients {
    /// The weight gradients of a slice.
    #[inline(always)]
    pub(crate) fn of(&self, slice: usize) -> *mut f32 {
        match slice.checked_sub(1) {
            None => self.first,
            Some(other) => self.others.wrapping_add(other * self.weights),
        }
    }
}

dispatch! {
    /// Sums weight gradients.
    ///
    /// # Safety
    /// The contract of [`Convolution::collect`].
    unsafe fn sum_slices(geometry: &Geometry, gradients: &SliceGradients, slices: usize, inputs: Range<usize>) = sum_slices_kernel
}

/// # Safety
/// The contract of [`Convolution::collect`].
#[inline(always)]
unsafe fn sum_slices_kernel<I: Simd>(
    simd: I,
    geometry: &Geometry,
    gradients: &SliceGradients,
    slices: usize,
    rows: Range<usize>,
) {
    let &Geometry { inputs, outputs, kernel, .. } = geometry;
    for tap in 0..kernel * kernel {
        let (first, last) = ((tap * inputs + rows.start) * outputs, (tap * inputs + rows.end) * outputs);
        for k in (first..last).step_by(I::WIDTH) {
            // SAFETY: `k` is a vector of the weights, because `outputs` is a multiple of 16; every slice has all weights, by the
            // contract of `collect`.
            unsafe {
                let mut sum = sum_of_four(simd, gradients, k, 0, slices);
                if slices > 4 {
                    sum = simd.add(sum, sum_of_four(simd, gradients, k, 4, slices));
                }
                // a sum of nothing, and one of negative zeros, is zero
                simd.store(gradients.first.add(k), simd.add(sum, simd.splat(0.0)));
            }
        }
    }
}

/// The sum of the vectors at `k` of four slices from `first` on, neighbors first; slices that there are not count as zero.
///
/// # Safety
/// The slices below `slices` are valid for reading a vector at `k`.
#[inline(always)]
unsafe fn sum_of_four<I: Simd>(simd: I, gradients: &SliceGradients, k: usize, first: usize, slices: usize) -> I::V {
    // SAFETY: the contract of `sum_of_two` is the contract of this function.
    unsafe {
        let sum = sum_of_two(simd, gradients, k, first, slices);
        if first + 2 >= slices {
            return sum;
        }
        simd.add(sum, sum_of_two(simd, gradients, k, first + 2, slices))
    }
}

/// The sum of the vectors at `k` of two slices from `first` on.
///
/// # Safety
/// The contract of [`sum_of_four`].
#[inline(always)]
unsafe fn sum_of_two<I: Simd>(simd: I, gradients: &SliceGradients, k: usize, first: usize, slices: usize) -> I::V {
    if first >= slices {
        return simd.splat(0.0);
    }
    // SAFETY: both slices are below `slices`, for which the contract makes the pointers valid.
    unsafe {
        let sum = simd.load(gradients.of(first).add(k));
        if first + 1 == slices {
            return sum;
        }
        simd.add(sum, simd.load(gradients.of(first + 1).add(k)))
    }
}

/// About how many values are summed in f32 before they are added to a sum in f64.
pub(crate) const F32_SUMS: usize = 128;

/// About how many cycles some multiply-adds take.
#[inline(always)]
fn cycles<I: Simd, S: Activation>(multiply_adds: usize) -> usize {
    multiply_adds / (2 * I::WIDTH * S::DEPTH)
}

/// Words for [`Outer`](super::gemm::Outer) from two rows of values: each of `low` with the one at the same place in `high`,
/// or with 0 if there is no second row.
///
/// # Safety
/// Both are valid for reading `number` values, a multiple of 16, and `into` for writing as many words.
#[inline(always)]
unsafe fn pair_rows<I: Simd, S: Activation>(
    simd: I,
    low: *const S,
    high: Option<*const S>,
    number: usize,
    into: *mut f32,
) {
    for k in (0..number).step_by(I::WIDTH) {
        // SAFETY: `k` is a vector of the row, because `number` is a multiple of 16.
        unsafe {
            let words = match high {
                Some(high) => S::load_words(simd, low.add(k), high.offset_from(low) as usize),
                None => S::load_last_words(simd, low.add(k)),
            };
            simd.store(into.add(k), words);
        }
    }
}

/// Adds f32 sums to f64 ones and clears them.
///
/// # Safety
/// `sums` and `into` are valid for reading and writing `n` values.
#[inline(always)]
pub(crate) unsafe fn flush(sums: *mut f32, into: *mut f64, n: usize) {
    for i in 0..n {
        // SAFETY: i < n, for which the contract makes both valid.
        unsafe {
            *into.add(i) += f64::from(*sums.add(i));
            *sums.add(i) = 0.0;
        }
    }
}

/// Cuts some images into groups.
#[inline(always)]
fn groups(images: &Range<usize>, group: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = *images;
    (start..end).step_by(group).map(move |first| first..end.min(first + group))
}

/// The group after `images`: of the same task, or the one that begins with `after`.
#[inline(always)]
fn next_group(images: &Range<usize>, all: &Range<usize>, after: Option<usize>, group: usize) -> Range<usize> {
    match after {
        Some(first) if images.end == all.end => first..first + group,
        _ => images.end..all.end.min(images.end + group),
    }
}

/// Reads a group of images into padded frames of `outer`'s size; what is not image becomes zero.
///
/// # Safety
/// `source` is valid for every one of `images`, of the geometry's input size and channels, and `into` for writing as
/// many frames, each of which has room for the padded image. They do not overlap.
#[inline(always)]
unsafe fn read_group<I: Simd, S: Activation, F: Activation>(
    simd: I,
    geometry: &Geometry,
    outer: &Frame,
    source: &Source<S>,
    images: &Range<usize>,
    into: *mut F,
) {
    for (i, n) in images.clone().enumerate() {
        // SAFETY: by the contract, `into` has room for frame i, and the source has image n.
        unsafe {
            let into = into.add(i * outer.height * outer.row);
            let band = Band { image: n, rows: 0..geometry.size[0] };
            read_band(simd, geometry, outer, source, &band, into);
        }
    }
}

/// Reads a band into a padded frame of `outer`'s size, and clears the borders beside them; the first row
/// also clears what is above, the last one what is below.
///
/// # Safety
/// `source` is valid for the band's image, of the geometry's input size and channels, and `into` for writing a frame,
/// which has room for the padded image. They do not overlap. The rows are rows of the image.
#[inline(always)]
unsafe fn read_band<I: Simd, S: Activation, F: Activation>(
    simd: I,
    geometry: &Geometry,
    outer: &Frame,
    source: &Source<S>,
    band: &Band,
    into: *mut F,
) {
    let (&Geometry { inputs, pad, size: [height, width], .. }, rows) = (geometry, &band.rows);
    let frame = Frame { height, width, channels: inputs, row: outer.row };
    // SAFETY: by the contract, `into` has room for the frame, inside of which the borders and the image lie.
    unsafe {
        if rows.start == 0 {
            clear(simd, into, 0..pad * outer.row, inputs);
        }
        if rows.end == height {
            clear(simd, into, (pad + height) * outer.row..outer.height * outer.row, inputs);
        }
        for y in pad + rows.start..pad + rows.end {
            clear(simd, into, y * outer.row..y * outer.row + pad * inputs, inputs);
            clear(simd, into, y * outer.row + (pad + width) * inputs..(y + 1) * outer.row, inputs);
        }
        fill(simd, source, band, &frame, into.add(pad * outer.row + pad * inputs));
    }
}

/// Writes zeros to whole pixels of `channels`; a call of `memset` for every border would take longer than its work.
///
/// # Safety
/// `into` is valid for writing the values of `range`, which has a multiple of `channels` values.
#[inline(always)]
unsafe fn clear<I: Simd, F: Activation>(simd: I, into: *mut F, range: Range<usize>, channels: usize) {
    if channels.is_multiple_of(CHANNELS) {
        for k in range.step_by(I::WIDTH) {
            // SAFETY: `range` has a multiple of 16 values, so that a vector at `k` lies inside it.
            unsafe { F::store(simd, into.add(k), simd.splat(0.0)) };
        }
    } else {
        for k in range {
            // SAFETY: `k` lies in the range, for which the contract makes `into` valid.
            unsafe { *into.add(k) = F::default() };
        }
    }
}
