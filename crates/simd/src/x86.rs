//! AVX2 and AVX-512.

use std::arch::x86_64::*;

use crate::{Avx2, Avx512, Avx512Bf16, Bf16, Simd, SimdLevel};

/// Implements [`Simd`] for a token: its vector, the number of registers, its functions.
macro_rules! implement {
    (
        $token:ident, $v:ty, $registers:literal, $has_dot_bf16:literal;
        $($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $body:expr;)*
        $(@memory { $($unsafe_name:ident($($unsafe_arg:ident: $unsafe_type:ty),*) $(-> $unsafe_out:ty)? = $unsafe_body:expr;)* })?
    ) => {
        // SAFETY: a token is only made after its instructions were detected, and a vector is a register of f32.
        unsafe impl Simd for $token {
            type V = $v;
            const REGISTERS: usize = $registers;
            const HAS_DOT_BF16: bool = $has_dot_bf16;

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
            $($(
                #[inline(always)]
                unsafe fn $unsafe_name(self, $($unsafe_arg: $unsafe_type),*) $(-> $unsafe_out)? {
                    // SAFETY: `self` proves that the CPU has these instructions; the caller keeps the contract of the trait.
                    unsafe { $unsafe_body }
                }
            )*)?
        }
    };
}

type W = __m512;
/// Implements [`Simd`] for a token of AVX-512, with more functions.
macro_rules! implement_avx512 {
    ($token:ident, $has_dot_bf16:literal; $($more:tt)*) => {
        implement! {
            $token, W, 32, $has_dot_bf16;
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
            $($more)*
        }
    };
}
implement_avx512! {
    Avx512, false;
    pair_bf16(low: W, high: W) -> W = {
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32::<16>(round512(low)), round512(high)))
    };
    dot_bf16(a: W, b: W, c: W) -> W = {
        let [a, b] = [_mm512_castps_si512(a), _mm512_castps_si512(b)];
        let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let [a1, b1] = [_mm512_and_si512(a, upper), _mm512_and_si512(b, upper)];
        let [a0, b0] = [_mm512_slli_epi32::<16>(a), _mm512_slli_epi32::<16>(b)];
        let sum = flush512(_mm512_fmadd_ps(_mm512_castsi512_ps(a1), _mm512_castsi512_ps(b1), c));
        flush512(_mm512_fmadd_ps(_mm512_castsi512_ps(a0), _mm512_castsi512_ps(b0), sum))
    };
    @memory {
        stream(into: *mut f32, v: W) = _mm512_stream_ps(into, v);
        transpose(from: *const f32, stride: usize, into: *mut f32, into_stride: usize) = transpose512(from, stride, into, into_stride);
        load_bf16(from: *const Bf16) -> W = {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        };
        store_bf16(into: *mut Bf16, v: W) = {
            _mm256_storeu_si256(into.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(round512(v))));
        };
        load_pairs(low: *const Bf16, high: *const Bf16) -> W = {
            let low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(low.cast()));
            let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(high.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32::<16>(high)))
        };
    }
}
implement_avx512! {
    Avx512Bf16, true;
    pair_bf16(low: W, high: W) -> W = {
        // the lower numbers come first, and then the upper ones
        let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        _mm512_castsi512_ps(_mm512_permutexvar_epi16(interleaved(), both))
    };
    dot_bf16(a: W, b: W, c: W) -> W = _mm512_dpbf16_ps(c, std::mem::transmute::<W, __m512bh>(a), std::mem::transmute::<W, __m512bh>(b));
    @memory {
        stream(into: *mut f32, v: W) = _mm512_stream_ps(into, v);
        transpose(from: *const f32, stride: usize, into: *mut f32, into_stride: usize) = transpose512(from, stride, into, into_stride);
        load_bf16(from: *const Bf16) -> W = {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        };
        store_bf16(into: *mut Bf16, v: W) = {
            _mm256_storeu_si256(into.cast(), std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v)));
        };
        load_pairs(low: *const Bf16, high: *const Bf16) -> W = {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.cast()));
            let both = _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.cast()));
            _mm512_castsi512_ps(_mm512_permutexvar_epi16(interleaved(), both))
        };
    }
}

/// Writes sixteen rows of sixteen words with rows and columns exchanged.
///
/// # Safety
/// The CPU must have AVX-512 F; `from` must be valid for reading and `into` for writing sixteen words in each of sixteen rows.
#[inline(always)]
unsafe fn transpose512(from: *const f32, stride: usize, into: *mut f32, into_stride: usize) {
    // SAFETY: the contract.
    unsafe {
        let mut rows = [_mm512_setzero_ps(); 16];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = _mm512_loadu_ps(from.add(r * stride));
        }
        // words of two rows side by side, then of four, within every quarter of a vector
        let mut pairs = rows;
        for r in (0..16).step_by(2) {
            pairs[r] = _mm512_unpacklo_ps(rows[r], rows[r + 1]);
            pairs[r + 1] = _mm512_unpackhi_ps(rows[r], rows[r + 1]);
        }
        let mut fours = pairs;
        for r in (0..16).step_by(4) {
            for half in 0..2 {
                let [low, high] = [_mm512_castps_pd(pairs[r + half]), _mm512_castps_pd(pairs[r + 2 + half])];
                fours[r + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                fours[r + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
            }
        }
        // quarters of four vectors: column c of a quarter is in the vectors c, c + 4, c + 8 and c + 12
        for c in 0..4 {
            let [a, b, x, y] = [fours[c], fours[c + 4], fours[c + 8], fours[c + 12]];
            let [even, odd] =
                [_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b)];
            let [even2, odd2] =
                [_mm512_shuffle_f32x4::<0b10_00_10_00>(x, y), _mm512_shuffle_f32x4::<0b11_01_11_01>(x, y)];
            _mm512_storeu_ps(into.add(c * into_stride), _mm512_shuffle_f32x4::<0b10_00_10_00>(even, even2));
            _mm512_storeu_ps(into.add((c + 4) * into_stride), _mm512_shuffle_f32x4::<0b10_00_10_00>(odd, odd2));
            _mm512_storeu_ps(into.add((c + 8) * into_stride), _mm512_shuffle_f32x4::<0b11_01_11_01>(even, even2));
            _mm512_storeu_ps(into.add((c + 12) * into_stride), _mm512_shuffle_f32x4::<0b11_01_11_01>(odd, odd2));
        }
    }
}

/// The bits of f32 rounded to bf16, by the rule of `bf16::round`.
///
/// # Safety
/// The CPU must have AVX-512 F.
#[inline(always)]
unsafe fn round512(v: W) -> __m512i {
    // SAFETY: the contract.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fff_ffff));
        let is_nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f80_0000));
        let is_tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x0080_0000));
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x0040_0000));
        let rounded = _mm512_and_si512(rounded, _mm512_set1_epi32(0xffff_0000_u32 as i32));
        _mm512_mask_and_epi32(rounded, is_tiny, rounded, _mm512_set1_epi32(i32::MIN))
    }
}

/// Numbers too small to be normal become zeros of the same sign.
///
/// # Safety
/// The CPU must have AVX-512 F.
#[inline(always)]
unsafe fn flush512(v: W) -> W {
    // SAFETY: the contract.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fff_ffff));
        let is_tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x0080_0000));
        _mm512_castsi512_ps(_mm512_mask_and_epi32(bits, is_tiny, bits, _mm512_set1_epi32(i32::MIN)))
    }
}

/// The places of the numbers of two halves of a vector, taken in turn.
#[inline(always)]
fn interleaved() -> __m512i {
    const PLACES: [u16; 32] = {
        let mut places = [0; 32];
        let mut i = 0;
        while i < 16 {
            places[2 * i] = i as u16;
            places[2 * i + 1] = 16 + i as u16;
            i += 1;
        }
        places
    };
    // SAFETY: both have 64 bytes, of any bits.
    unsafe { std::mem::transmute(PLACES) }
}

type H = __m256;
implement! {
    Avx2, H, 16, false;
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
    pair_bf16(low: H, high: H) -> H = {
        _mm256_castsi256_ps(_mm256_or_si256(_mm256_srli_epi32::<16>(round256(low)), round256(high)))
    };
    dot_bf16(a: H, b: H, c: H) -> H = {
        let [a, b] = [_mm256_castps_si256(a), _mm256_castps_si256(b)];
        let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        let [a1, b1] = [_mm256_and_si256(a, upper), _mm256_and_si256(b, upper)];
        let [a0, b0] = [_mm256_slli_epi32::<16>(a), _mm256_slli_epi32::<16>(b)];
        let sum = flush256(_mm256_fmadd_ps(_mm256_castsi256_ps(a1), _mm256_castsi256_ps(b1), c));
        flush256(_mm256_fmadd_ps(_mm256_castsi256_ps(a0), _mm256_castsi256_ps(b0), sum))
    };
    @memory {
        stream(into: *mut f32, v: H) = _mm256_stream_ps(into, v);
        load_bf16(from: *const Bf16) -> H = {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        };
        store_bf16(into: *mut Bf16, v: H) = {
            let upper = _mm256_srli_epi32::<16>(round256(v));
            // both halves of the vector, packed into the lower quarters of each
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(upper, upper));
            _mm_storeu_si128(into.cast(), _mm256_castsi256_si128(packed));
        };
        load_pairs(low: *const Bf16, high: *const Bf16) -> H = {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(low.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(high.cast()));
            _mm256_castsi256_ps(_mm256_or_si256(low, _mm256_slli_epi32::<16>(high)))
        };
    }
}

/// The bits of f32 rounded to bf16, by the rule of `bf16::round`.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn round256(v: H) -> __m256i {
    // SAFETY: the contract.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff));
        let is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f80_0000));
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let rounded = _mm256_blendv_epi8(rounded, quiet, is_nan);
        let rounded = _mm256_and_si256(rounded, _mm256_set1_epi32(0xffff_0000_u32 as i32));
        flushed256(rounded, magnitude)
    }
}

/// Numbers too small to be normal become zeros of the same sign.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn flush256(v: H) -> H {
    // SAFETY: the contract.
    unsafe {
        let bits = _mm256_castps_si256(v);
        _mm256_castsi256_ps(flushed256(bits, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff))))
    }
}

/// `bits`, or the sign alone where this magnitude is too small to be normal.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn flushed256(bits: __m256i, magnitude: __m256i) -> __m256i {
    // SAFETY: the contract.
    unsafe {
        let is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x0080_0000), magnitude);
        _mm256_blendv_epi8(bits, _mm256_and_si256(bits, _mm256_set1_epi32(i32::MIN)), is_tiny)
    }
}
