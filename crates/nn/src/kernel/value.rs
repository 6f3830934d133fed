//! How activations are stored, and what the matrix products multiply: f32, or bf16.

use equipoise_simd::{Bf16, Simd};

/// A type of stored activations. Whatever it is, kernels compute with f32 in registers, and sums are f32.
///
/// Products of bf16 are taken in pairs: a *word* is what one lane of a multiply-add takes, an f32 or a pair of bf16, and
/// has `DEPTH` values. Packed weights are made of such words.
pub(crate) trait Activation: Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// Values of a word.
    const DEPTH: usize;
    /// Whether instructions for bf16 make a difference.
    const IS_BF16: bool = Self::DEPTH == 2;

    /// Rounds a number.
    fn from_f32(x: f32) -> Self;
    /// The number.
    fn to_f32(self) -> f32;

    /// Reads a vector.
    ///
    /// # Safety
    /// `from` must be valid for reading a vector's number of values.
    unsafe fn load<I: Simd>(simd: I, from: *const Self) -> I::V;
    /// Rounds and writes a vector.
    ///
    /// # Safety
    /// `into` must be valid for writing a vector's number of values.
    unsafe fn store<I: Simd>(simd: I, into: *mut Self, v: I::V);
    /// The word of the first `DEPTH` values, in every lane.
    ///
    /// # Safety
    /// `from` must be valid for reading `DEPTH` values.
    unsafe fn splat_word<I: Simd>(simd: I, from: *const Self) -> I::V;
    /// Words from a vector of values and the one that is `next` values further on, which f32 does not need.
    ///
    /// # Safety
    /// `from` must be valid for reading a vector's number of values, there and, with pairs, `next` further on.
    unsafe fn load_words<I: Simd>(simd: I, from: *const Self, next: usize) -> I::V;
    /// Words whose first value is at `from`, and whose second one is 0.
    ///
    /// # Safety
    /// `from` must be valid for reading a vector's number of values.
    unsafe fn load_last_words<I: Simd>(simd: I, from: *const Self) -> I::V;
    /// c plus the products of the values of the words a and b.
    fn multiply_add<I: Simd>(simd: I, a: I::V, b: I::V, c: I::V) -> I::V;
}

impl Activation for f32 {
    const DEPTH: usize = 1;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    unsafe fn load<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: the same contract.
        unsafe { simd.load(from) }
    }
    #[inline(always)]
    unsafe fn store<I: Simd>(simd: I, into: *mut Self, v: I::V) {
        // SAFETY: the same contract.
        unsafe { simd.store(into, v) }
    }
    #[inline(always)]
    unsafe fn splat_word<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: by the contract, there is a value.
        simd.splat(unsafe { *from })
    }
    #[inline(always)]
    unsafe fn load_words<I: Simd>(simd: I, from: *const Self, _next: usize) -> I::V {
        // SAFETY: by the contract, there is a vector.
        unsafe { simd.load(from) }
    }
    #[inline(always)]
    unsafe fn load_last_words<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: by the contract, there is a vector.
        unsafe { simd.load(from) }
    }
    #[inline(always)]
    fn multiply_add<I: Simd>(simd: I, a: I::V, b: I::V, c: I::V) -> I::V {
        simd.fma(a, b, c)
    }
}

impl Activation for Bf16 {
    const DEPTH: usize = 2;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        Self::from_f32(x)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    unsafe fn load<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: the same contract.
        unsafe { simd.load_bf16(from) }
    }
    #[inline(always)]
    unsafe fn store<I: Simd>(simd: I, into: *mut Self, v: I::V) {
        // SAFETY: the same contract.
        unsafe { simd.store_bf16(into, v) }
    }
    #[inline(always)]
    unsafe fn splat_word<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: by the contract, there are two values, which make up a word of four bytes.
        simd.splat(unsafe { from.cast::<f32>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_words<I: Simd>(simd: I, from: *const Self, next: usize) -> I::V {
        // SAFETY: by the contract, there is a vector at both places.
        unsafe { simd.load_pairs(from, from.add(next)) }
    }
    #[inline(always)]
    unsafe fn load_last_words<I: Simd>(simd: I, from: *const Self) -> I::V {
        // SAFETY: by the contract, there is a vector.
        simd.pair_bf16(unsafe { simd.load_bf16(from) }, simd.splat(0.0))
    }
    #[inline(always)]
    fn multiply_add<I: Simd>(simd: I, a: I::V, b: I::V, c: I::V) -> I::V {
        simd.dot_bf16(a, b, c)
    }
}
