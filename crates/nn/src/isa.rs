//! Registers of f32 at the levels of instructions that the kernels are compiled for.
//!
//! A kernel is generic over an [`Isa`] and inlined into a function that has the level's instructions; [`dispatch!`] makes such
//! functions and chooses among them. Every output of a kernel is computed lane by lane in the same order at all levels, so that
//! all levels with fused multiply-add give the same bits.

use crate::kernel::gemm::{Gemm, Outer};

/// A level of instructions.
///
/// # Safety
/// Its functions may only run on a CPU that has them, which [`dispatch!`] sees to, and their pointers must be good for
/// `WIDTH` values. The constants must be true of the registers.
pub(crate) unsafe trait Isa {
    /// A register.
    type V: Copy;
    /// Values in a register; divides 16.
    const WIDTH: usize;
    /// Rows that a matrix product holds in registers, one or two registers across.
    const ROWS: [usize; 2];
    /// The same of a sum of outer products; at least as many.
    const OUTER_ROWS: [usize; 2];
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(into: *mut f32, v: Self::V);
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// c - a b
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger ones, `b` where either is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// `v` where `by` > 0, else 0.
    unsafe fn where_positive(by: Self::V, v: Self::V) -> Self::V;
    /// Runs a matrix product compiled for this level.
    unsafe fn gemm(gemm: &Gemm<'_>);
    /// Runs a sum of outer products compiled for this level.
    unsafe fn outer(outer: &Outer<'_>);
}

/// The same address, of which the compiler knows nothing any more.
///
/// A transform reads and writes dozens of places that are multiples of a few distances apart. Left alone, the compiler works out
/// all of these distances before the loop over tiles and keeps them on the stack, because registers are few, which takes longer
/// than the transform. From an address that it cannot see through it has to go on in small steps.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read or written"))]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
pub(crate) fn here<T>(mut at: *mut T) -> *mut T {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
    }
    at
}

/// The widest panel of a packed matrix with this many columns (a multiple of 16) at a level of instructions.
#[inline(always)]
pub(crate) fn panel<I: Isa>(columns: usize) -> usize {
    let two = 2 * I::WIDTH;
    if columns.is_multiple_of(two) { two } else { I::WIDTH }
}

/// What every CPU of the target has: the compiler makes 128-bit vectors of this.
pub(crate) struct Portable;

/// Whether `mul_add` is an instruction of the target's baseline; otherwise it would be a slow library call.
const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; 4] {
    [f(0), f(1), f(2), f(3)]
}

#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

// SAFETY: needs no instructions beyond the target's own.
unsafe impl Isa for Portable {
    type V = [f32; 4];
    const WIDTH: usize = 4;
    const ROWS: [usize; 2] = [6, 6];
    const OUTER_ROWS: [usize; 2] = [6, 6];
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's pointer is good for four values.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(into: *mut f32, v: [f32; 4]) {
        // SAFETY: as above.
        unsafe { into.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        each(|i| fused(a[i], b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn fnma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        each(|i| fused(-a[i], b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn where_positive(by: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        each(|i| if by[i] > 0.0 { v[i] } else { 0.0 })
    }
    unsafe fn gemm(gemm: &Gemm<'_>) {
        // SAFETY: the caller's.
        unsafe { crate::kernel::gemm::gemm::<Self>(gemm) }
    }
    unsafe fn outer(outer: &Outer<'_>) {
        // SAFETY: the caller's.
        unsafe { crate::kernel::gemm::outer::<Self>(outer) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Gemm, Isa, Outer};

    /// A level of instructions from its intrinsics.
    macro_rules! level {
        (
            $(#[$doc:meta])* $name:ident, $features:literal, $v:ty, $width:literal, $rows:expr, $outer:expr,
            $load:ident $store:ident $splat:ident $add:ident $sub:ident $mul:ident $fma:ident $fnma:ident $max:ident,
            |$by:ident, $value:ident| $keep:expr
        ) => {
            $(#[$doc])*
            pub(crate) struct $name;

            // SAFETY: the intrinsics are those of the level; loads and stores are unaligned ones.
            #[allow(unused_unsafe, reason = "some intrinsics are safe where the features are")]
            unsafe impl Isa for $name {
                type V = $v;
                const WIDTH: usize = $width;
                const ROWS: [usize; 2] = $rows;
                const OUTER_ROWS: [usize; 2] = $outer;
                #[inline(always)]
                unsafe fn load(from: *const f32) -> $v {
                    // SAFETY: the caller's; so below.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(into: *mut f32, v: $v) {
                    // SAFETY: as above.
                    unsafe { $store(into, v) }
                }
                #[inline(always)]
                unsafe fn splat(x: f32) -> $v {
                    // SAFETY: as above.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn add(a: $v, b: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $add(a, b) }
                }
                #[inline(always)]
                unsafe fn sub(a: $v, b: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $sub(a, b) }
                }
                #[inline(always)]
                unsafe fn mul(a: $v, b: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $mul(a, b) }
                }
                #[inline(always)]
                unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $fma(a, b, c) }
                }
                #[inline(always)]
                unsafe fn fnma(a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $fnma(a, b, c) }
                }
                #[inline(always)]
                unsafe fn max(a: $v, b: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $max(a, b) }
                }
                #[inline(always)]
                unsafe fn where_positive($by: $v, $value: $v) -> $v {
                    // SAFETY: as above.
                    unsafe { $keep }
                }
                unsafe fn gemm(gemm: &Gemm<'_>) {
                    #[target_feature(enable = $features)]
                    unsafe fn go(gemm: &Gemm<'_>) {
                        // SAFETY: the caller's.
                        unsafe { crate::kernel::gemm::gemm::<$name>(gemm) }
                    }
                    // SAFETY: the caller's.
                    unsafe { go(gemm) }
                }
                unsafe fn outer(outer: &Outer<'_>) {
                    #[target_feature(enable = $features)]
                    unsafe fn go(outer: &Outer<'_>) {
                        // SAFETY: the caller's.
                        unsafe { crate::kernel::gemm::outer::<$name>(outer) }
                    }
                    // SAFETY: the caller's.
                    unsafe { go(outer) }
                }
            }
        };
    }

    level! {
        /// AVX-512.
        Avx512, "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma", __m512, 16, [12, 12], [16, 12],
        _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_fmadd_ps
        _mm512_fnmadd_ps _mm512_max_ps,
        |by, v| _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(by, _mm512_setzero_ps()), v)
    }
    level! {
        /// AVX2 and FMA.
        Avx2, "avx2,fma", __m256, 8, [6, 6], [6, 6],
        _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_fmadd_ps
        _mm256_fnmadd_ps _mm256_max_ps,
        |by, v| _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(by, _mm256_setzero_ps()), v)
    }
}

/// Compiles a generic kernel once per level: `dispatch!(fn name(arg: Type) -> Out = kernel)` makes a function that takes the
/// level first and calls `kernel::<Level>(arg)` inside a function that has the level's instructions.
macro_rules! dispatch {
    ($vis:vis unsafe fn $name:ident ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)? = $kernel:ident $(::<$($constant:literal),*>)?) => {
        $vis unsafe fn $name(simd: equipoise_simd::SimdLevel, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
                unsafe fn avx512($($arg: $type),*) $(-> $out)? {
                    // SAFETY: the caller's.
                    unsafe { $kernel::<$crate::isa::Avx512 $($(, $constant)*)?>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2($($arg: $type),*) $(-> $out)? {
                    // SAFETY: the caller's.
                    unsafe { $kernel::<$crate::isa::Avx2 $($(, $constant)*)?>($($arg),*) }
                }
                debug_assert!(equipoise_simd::SimdLevel::available().contains(&simd));
                match simd {
                    // SAFETY: an engine only holds a level that `SimdLevel::available` found on this CPU; the rest is the caller's.
                    equipoise_simd::SimdLevel::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    equipoise_simd::SimdLevel::Avx2 => return unsafe { avx2($($arg),*) },
                    equipoise_simd::SimdLevel::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = simd;
            // SAFETY: the caller's.
            unsafe { $kernel::<$crate::isa::Portable $($(, $constant)*)?>($($arg),*) }
        }
    };
}
pub(crate) use dispatch;
