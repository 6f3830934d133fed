//! The sum at the end of a block by itself: what [`fill`](super::fused_norm::fill) keeps while a convolution reads it, computed again
//! from the outputs of the block, to the same bits.

use std::ops::Range;

use equipoise_simd::{Simd, dispatch};

use super::fused_norm::{Normed, Shortcut};
use super::value::Activation;

/// A block's sum: relu(a y + b + shortcut).
#[derive(Clone, Copy)]
pub(crate) struct Join<T> {
    pub(crate) normed: Normed<T>,
    pub(crate) shortcut: Shortcut<T>,
    pub(crate) into: *mut T,
}

dispatch! {
    /// Computes some pixels of a sum, counted over all images.
    ///
    /// # Safety
    /// `channels` is a multiple of 16, the width of the widest vector. The outputs and the shortcut of `join` are valid for reading these pixels,
    /// `into` for writing them, and all a and b for a value per channel. What is written overlaps nothing else. The shortcut is not strided.
    pub(crate) unsafe fn join<T: Activation>(join: &Join<T>, pixels: Range<usize>, channels: usize) = join_kernel with bf16 if T::IS_BF16
}

/// # Safety
/// The contract of [`join`].
#[inline(always)]
unsafe fn join_kernel<I: Simd, T: Activation>(simd: I, join: &Join<T>, pixels: Range<usize>, channels: usize) {
    let &Join { normed, shortcut, into } = join;
    // SAFETY: k and the pixels lie in the channels and the images, for which the contract makes the pointers valid.
    unsafe {
        for at in pixels.map(|pixel| pixel * channels) {
            for k in (0..channels).step_by(I::WIDTH) {
                let mut value = normed_at(simd, &normed, at, k);
                match &shortcut {
                    Shortcut::Same(z) => value = simd.add(T::load(simd, z.add(at + k)), value),
                    Shortcut::Normed(other) => value = simd.add(normed_at(simd, other, at, k), value),
                    Shortcut::Nothing | Shortcut::Strided { .. } => {}
                }
                // in this order NaN stays NaN
                T::store(simd, into.add(at + k), simd.max(simd.splat(0.0), value));
            }
        }
    }
}

/// a y + b of the channels from `k` on, of the pixel that begins at `at`.
///
/// # Safety
/// `normed` is valid for reading a vector there.
#[inline(always)]
unsafe fn normed_at<I: Simd, T: Activation>(simd: I, normed: &Normed<T>, at: usize, k: usize) -> I::V {
    // SAFETY: by the contract, all three have a vector there.
    unsafe { simd.fma(simd.load(normed.a.add(k)), T::load(simd, normed.y.add(at + k)), simd.load(normed.b.add(k))) }
}
