//! AVX2 and AVX-512.

use std::arch::x86_64::*;

use crate::{Avx2, Avx512, Simd, SimdLevel};

/// Implements [`Simd`] for a token: its vector, the number of registers, its functions.
macro_rules! implement {
    (
        $token:ident, $v:ty, $registers:literal;
        $($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $body:expr;)*
    ) => {
        // SAFETY: a token is only made after its instructions were detected, and a vector is a register of f32.
        unsafe impl Simd for $token {
            type V = $v;
            const REGISTERS: usize = $registers;

            #[inline(always)]
            fn level(self) -> SimdLevel {
                SimdLevel::$token(self)
            }
            $(
                #[inline(always)]
                fn $name(self, $($arg: $type),*) -> $out {
                    // SAFETY: `self` proves that the CPU has these instructions.
                    unsafe { $body }
                }
            )*
        }
    };
}

type W = __m512;
implement! {
    Avx512, W, 32;
    splat(x: f32) -> W = _mm512_set1_ps(x);
    add(a: W, b: W) -> W = _mm512_add_ps(a, b);
    sub(a: W, b: W) -> W = _mm512_sub_ps(a, b);
    mul(a: W, b: W) -> W = _mm512_mul_ps(a, b);
    fma(a: W, b: W, c: W) -> W = _mm512_fmadd_ps(a, b, c);
    fnma(a: W, b: W, c: W) -> W = _mm512_fnmadd_ps(a, b, c);
    max(a: W, b: W) -> W = _mm512_max_ps(a, b);
    min(a: W, b: W) -> W = _mm512_min_ps(a, b);
    where_positive(by: W, v: W) -> W = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(by, _mm512_setzero_ps()), v);
    ldexp_above(p: W, n: W, x: W, limit: f32) -> W = {
        let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_set1_ps(limit));
        let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
        _mm512_castsi512_ps(_mm512_maskz_add_epi32(above, _mm512_castps_si512(p), n))
    };
    above(v: W, limit: f32) -> u16 = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, _mm512_set1_ps(limit));
}

type H = __m256;
implement! {
    Avx2, H, 16;
    splat(x: f32) -> H = _mm256_set1_ps(x);
    add(a: H, b: H) -> H = _mm256_add_ps(a, b);
    sub(a: H, b: H) -> H = _mm256_sub_ps(a, b);
    mul(a: H, b: H) -> H = _mm256_mul_ps(a, b);
    fma(a: H, b: H, c: H) -> H = _mm256_fmadd_ps(a, b, c);
    fnma(a: H, b: H, c: H) -> H = _mm256_fnmadd_ps(a, b, c);
    max(a: H, b: H) -> H = _mm256_max_ps(a, b);
    min(a: H, b: H) -> H = _mm256_min_ps(a, b);
    where_positive(by: H, v: H) -> H = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(by, _mm256_setzero_ps()), v);
    ldexp_above(p: H, n: H, x: H, limit: f32) -> H = {
        let above = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(limit));
        let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
        _mm256_and_ps(_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), n)), above)
    };
    above(v: H, limit: f32) -> u16 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(v, _mm256_set1_ps(limit))) as u16;
}
