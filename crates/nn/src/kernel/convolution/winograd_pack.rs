//! The transformed weights of Winograd convolutions, packed as the matrix products of both passes read them.

use std::ops::Range;

use equipoise_simd::{Simd, dispatch, finish_streaming};

use super::Geometry;
use super::winograd::Winograd;
use super::winograd_transform::filter_in;
use crate::kernel::CHANNELS;
use crate::kernel::gemm::panel;
use crate::kernel::value::Activation;

dispatch! {
    /// Transforms and packs the weights of the input channels `rows`.
    ///
    /// # Safety
    /// The contract of [`Convolution::pack`](super::Convolution::pack).
    pub(super) unsafe fn pack<S: Activation>(c: &Winograd, w: *const f32, rows: Range<usize>, forward: *mut S, back: *mut S) = pack_kernel with bf16 if S::IS_BF16
}

/// # Safety
/// The contract of [`Convolution::pack`](super::Convolution::pack).
#[inline(always)]
unsafe fn pack_kernel<I: Simd, S: Activation>(
    simd: I,
    c: &Winograd,
    w: *const f32,
    rows: Range<usize>,
    forward: *mut S,
    back: *mut S,
) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let width = panel::<I>(outputs);
    // SAFETY: by the contract of `pack`, `w` has all weights, and `forward` and `back` have all positions of them unless they
    // are null; `outputs` and `rows` are whole vectors, and packed weights are aligned to them.
    unsafe {
        let packed_rows = if forward.is_null() { 0..0 } else { rows.clone() };
        for i in packed_rows.step_by(S::DEPTH) {
            for o in (0..outputs).step_by(I::WIDTH) {
                let packed = (o / width * inputs + i) * width + o % width * S::DEPTH;
                let first = load_taps(simd, w.add(i * outputs + o), inputs * outputs);
                let last = load_taps(simd, w.add((i + S::DEPTH - 1) * outputs + o), inputs * outputs);
                put_filters::<I, S>(simd, c, first, last, forward.add(packed));
            }
        }
        if !back.is_null() {
            pack_back(simd, c, w, rows, back);
        }
    }
    if c.streams_weights() {
        finish_streaming();
    }
}

/// Reads the 3 x 3 values of a vector of filters, which are `stride` apart.
///
/// # Safety
/// `from` is valid for reading a vector at each of the nine.
#[inline(always)]
unsafe fn load_taps<I: Simd>(simd: I, from: *const f32, stride: usize) -> [[I::V; 3]; 3] {
    let mut taps = [[simd.splat(0.0); 3]; 3];
    for (tap, value) in taps.as_flattened_mut().iter_mut().enumerate() {
        // SAFETY: `tap` is below nine, for which the contract makes `from` valid.
        *value = unsafe { simd.load(from.add(tap * stride)) };
    }
    taps
}

/// Writes the transformed filters of a row of words: of one input, or of the `first` and the `last` one of a pair.
///
/// # Safety
/// `into` is valid for writing a vector of words at each of the 36 positions, and aligned to vectors.
#[inline(always)]
unsafe fn put_filters<I: Simd, S: Activation>(
    simd: I,
    c: &Winograd,
    first: [[I::V; 3]; 3],
    last: [[I::V; 3]; 3],
    into: *mut S,
) {
    let mut words = filter_in(simd, first);
    if S::DEPTH == 2 {
        let last = filter_in(simd, last);
        for (word, high) in words.as_flattened_mut().iter_mut().zip(last.as_flattened()) {
            *word = simd.pair_bf16(*word, *high);
        }
    }
    let (stride, streams) = (c.geometry.inputs * c.geometry.outputs, c.streams_weights());
    let mut into = into;
    for word in words.as_flattened() {
        // SAFETY: by the contract, there is room for a vector of words at every position.
        unsafe {
            match streams {
                true => simd.stream(into.cast(), *word),
                false => simd.store(into.cast(), *word),
            }
        }
        into = into.wrapping_add(stride);
    }
}

/// Packs for the backward pass: the same with inputs as lanes.
///
/// # Safety
/// The contract of [`Convolution::pack`](super::Convolution::pack), with `back` not null.
#[inline(always)]
unsafe fn pack_back<I: Simd, S: Activation>(simd: I, c: &Winograd, w: *const f32, rows: Range<usize>, back: *mut S) {
    let Geometry { inputs, outputs, .. } = c.geometry;
    let width = panel::<I>(inputs);
    let mut transposed = [[[0f32; CHANNELS]; 9]; CHANNELS];
    // SAFETY: by the contract of `pack`, `w` has all weights and `back` all positions of them; `outputs` and `rows` are
    // multiples of `CHANNELS`.
    unsafe {
        for first in rows.step_by(CHANNELS) {
            for o in (0..outputs).step_by(CHANNELS) {
                for tap in 0..9 {
                    for i in 0..CHANNELS {
                        let from = w.add((tap * inputs + first + i) * outputs + o);
                        for (k, transposed) in transposed.iter_mut().enumerate() {
                            transposed[tap][i] = *from.add(k);
                        }
                    }
                }
                for k in (0..CHANNELS).step_by(S::DEPTH) {
                    for i in (0..CHANNELS).step_by(I::WIDTH) {
                        let lane = first + i;
                        let packed = (lane / width * outputs + o + k) * width + lane % width * S::DEPTH;
                        let low = load_taps(simd, transposed[k].as_ptr().cast::<f32>().add(i), CHANNELS);
                        let high =
                            load_taps(simd, transposed[k + S::DEPTH - 1].as_ptr().cast::<f32>().add(i), CHANNELS);
                        put_filters::<I, S>(simd, c, low, high, back.add(packed));
                    }
                }
            }
        }
    }
}
