//! What a kernel can do with a vector of f32.

use crate::{Bf16, SimdLevel};

/// The instructions of a level, and the proof that this CPU has them.
///
/// # Safety
/// A value of the implementor can only exist on a CPU that has its instructions. [`V`](Self::V) is plain data: f32
/// lanes one after the other, without padding, valid for any bits.
pub unsafe trait Simd: Copy {
    /// A vector.
    type V: Copy;
    /// Lanes of a vector; divides 16.
    const WIDTH: usize = size_of::<Self::V>() / size_of::<f32>();
    /// Vectors that fit in registers.
    const REGISTERS: usize;
    /// Whether [`dot_bf16`](Self::dot_bf16) is an instruction.
    const HAS_DOT_BF16: bool = false;

    /// The level of instructions.
    fn level(self) -> SimdLevel;
    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// a + b
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// a - b
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// a b + c, rounded once where the level can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c - a b, rounded once where the level can.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of the two, `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of the two, `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `v` where `by` > 0, else 0.
    fn where_positive(self, by: Self::V, v: Self::V) -> Self::V;
    /// p 2^n where `x` > `limit`, else 0; n is the integer in the low bits of `n`.
    fn ldexp_above(self, p: Self::V, n: Self::V, x: Self::V, limit: f32) -> Self::V;
    /// A bit for every lane that is larger than `limit`, the first lane in the lowest.
    fn above(self, v: Self::V, limit: f32) -> u16;

    /// Reads a vector from any address.
    ///
    /// # Safety
    /// `from` must be valid for reading [`WIDTH`](Self::WIDTH) values.
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: by the contract, `from` is valid for `WIDTH` values, of which a vector consists.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }

    /// Writes a vector to any address.
    ///
    /// # Safety
    /// `into` must be valid for writing [`WIDTH`](Self::WIDTH) values.
    #[inline(always)]
    unsafe fn store(self, into: *mut f32, v: Self::V) {
        // SAFETY: by the contract, `into` is valid for `WIDTH` values, of which a vector consists.
        unsafe { into.cast::<Self::V>().write_unaligned(v) }
    }

    /// Writes a vector to memory and not to the caches, where the level can. Other threads see it after
    /// [`finish_streaming`](crate::finish_streaming).
    ///
    /// # Safety
    /// `into` must be valid for writing [`WIDTH`](Self::WIDTH) values, and a multiple of a vector's size.
    #[inline(always)]
    unsafe fn stream(self, into: *mut f32, v: Self::V) {
        // SAFETY: the contract is stricter than that of `store`.
        unsafe { self.store(into, v) }
    }

    /// Reads a vector of bf16 numbers.
    ///
    /// # Safety
    /// `from` must be valid for reading [`WIDTH`](Self::WIDTH) values.
    unsafe fn load_bf16(self, from: *const Bf16) -> Self::V;

    /// Rounds a vector to bf16 and writes it.
    ///
    /// # Safety
    /// `into` must be valid for writing [`WIDTH`](Self::WIDTH) values.
    unsafe fn store_bf16(self, into: *mut Bf16, v: Self::V);

    /// Pairs of bf16 numbers from two places: those at `low` in the lower halves, those at `high` in the upper halves.
    ///
    /// # Safety
    /// Both must be valid for reading [`WIDTH`](Self::WIDTH) values.
    unsafe fn load_pairs(self, low: *const Bf16, high: *const Bf16) -> Self::V;

    /// Pairs of bf16 numbers, one in every lane: `low` rounded in its lower half, `high` in its upper half.
    fn pair_bf16(self, low: Self::V, high: Self::V) -> Self::V;

    /// c plus the products of the pairs of a and b: first those of the upper halves, then those of the lower halves, each
    /// sum rounded to f32 and zero if it is too small to be normal. Neither a nor b has numbers of that kind.
    fn dot_bf16(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// Writes sixteen words from each of sixteen rows with rows and columns exchanged. Rows are `stride` words apart.
    ///
    /// # Safety
    /// `from` must be valid for reading and `into` for writing sixteen words in each of sixteen rows.
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, stride: usize, into: *mut f32, into_stride: usize) {
        let (from, into) = (from.cast::<u32>(), into.cast::<u32>());
        for row in 0..16 {
            for column in 0..16 {
                // SAFETY: by the contract, there are sixteen words in each of sixteen rows of both.
                unsafe { into.add(column * into_stride + row).write(*from.add(row * stride + column)) };
            }
        }
    }

    /// Reads a vector from an array of its width; any other width does not compile.
    #[inline(always)]
    fn load_array<const N: usize>(self, from: &[f32; N]) -> Self::V {
        const { assert!(N == Self::WIDTH) };
        // SAFETY: the array has `WIDTH` values.
        unsafe { self.load(from.as_ptr()) }
    }

    /// The lanes of a vector as an array of its width; any other width does not compile.
    #[inline(always)]
    fn to_array<const N: usize>(self, v: Self::V) -> [f32; N] {
        const { assert!(N == Self::WIDTH) };
        let mut out = [0.0; N];
        // SAFETY: the array has `WIDTH` values.
        unsafe { self.store(out.as_mut_ptr(), v) };
        out
    }
}
