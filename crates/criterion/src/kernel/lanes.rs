//! Sixteen f32 at a time.
//!
//! An [`Isa`] is a level of instructions with its sixteen-lane vector: one register with AVX-512, two with AVX2, four
//! with the 128-bit instructions that every x86-64 (SSE2) and every 64-bit ARM (NEON) has, which the compiler finds for
//! the portable level. The number of lanes, and with it the order of every sum, is the same everywhere, so that all levels
//! with fused multiply-add give the same bits. What lives here: element-wise arithmetic, exp, ln(1 + x), the choice of
//! the level. What does not: anything that knows about labels or criteria.

/// Elements handled at once.
pub(crate) const LANES: usize = 16;
/// Sixteen values in memory.
pub(crate) type Lanes = [f32; LANES];

pub(crate) use equipoise_simd::Simd;

/// A level of instructions that the kernels are compiled for.
///
/// Its functions are inlined into a kernel that [`dispatch!`] has compiled for the level, after `Simd::available` has
/// found it on this CPU; nothing else calls them.
pub(crate) trait Isa {
    /// Sixteen values in registers.
    type V: Copy;
    fn splat(x: f32) -> Self::V;
    fn load(from: &Lanes) -> Self::V;
    fn store(v: Self::V, into: &mut Lanes);
    fn add(a: Self::V, b: Self::V) -> Self::V;
    fn sub(a: Self::V, b: Self::V) -> Self::V;
    fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a b + c, rounded once where the level can.
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger ones, `b` where either is NaN.
    fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller ones, `b` where either is NaN.
    fn min(a: Self::V, b: Self::V) -> Self::V;
    /// The low bits of `n` as integers added to the exponents of `p` where `x` > `limit`, else 0.
    fn raise(p: Self::V, n: Self::V, x: Self::V, limit: f32) -> Self::V;
    /// A bit for every lane that is larger than `limit`, the first lane the lowest.
    fn above(v: Self::V, limit: f32) -> u16;

    /// Sixteen values of a table that is padded to whole lanes.
    #[inline(always)]
    fn at(table: &[f32], at: usize) -> Self::V {
        Self::load(table[at..].first_chunk().expect("a table is padded to whole lanes"))
    }
    #[inline(always)]
    fn array(v: Self::V) -> Lanes {
        let mut out = [0.0; LANES];
        Self::store(v, &mut out);
        out
    }
}

/// What every CPU of the target has: the compiler makes 128-bit vectors of this.
pub(crate) struct Portable;

/// Whether `mul_add` is an instruction of the target's baseline; otherwise it would be a slow library call.
const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Lanes {
    let mut out = [0.0; LANES];
    for (i, x) in out.iter_mut().enumerate() {
        *x = f(i);
    }
    out
}

impl Isa for Portable {
    type V = Lanes;
    #[inline(always)]
    fn splat(x: f32) -> Lanes {
        [x; LANES]
    }
    #[inline(always)]
    fn load(from: &Lanes) -> Lanes {
        *from
    }
    #[inline(always)]
    fn store(v: Lanes, into: &mut Lanes) {
        *into = v;
    }
    #[inline(always)]
    fn add(a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        each(|i| if FMA { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
    #[inline(always)]
    fn max(a: Lanes, b: Lanes) -> Lanes {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(a: Lanes, b: Lanes) -> Lanes {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn raise(p: Lanes, n: Lanes, x: Lanes, limit: f32) -> Lanes {
        each(|i| {
            let raised = p[i].to_bits().wrapping_add(n[i].to_bits() << 23);
            f32::from_bits(if x[i] > limit { raised } else { 0 })
        })
    }
    #[inline(always)]
    fn above(v: Lanes, limit: f32) -> u16 {
        v.iter().enumerate().fold(0, |mask, (i, x)| mask | (u16::from(*x > limit) << i))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Isa, LANES, Lanes};

    /// A function of [`Isa`] made of intrinsics.
    macro_rules! intrinsic {
        ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block)*) => {$(
            #[inline(always)]
            fn $name($($arg: $type),*) -> $out {
                // SAFETY: only inlined into kernels that `dispatch!` calls on CPUs with these instructions; loads and
                // stores are unaligned ones within arrays of sixteen.
                unsafe { $body }
            }
        )*};
    }

    /// AVX-512: one register.
    pub(crate) struct Avx512;

    impl Isa for Avx512 {
        type V = __m512;
        intrinsic! {
            fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
            fn load(from: &Lanes) -> __m512 { _mm512_loadu_ps(from.as_ptr()) }
            fn store(v: __m512, into: &mut Lanes) -> () { _mm512_storeu_ps(into.as_mut_ptr(), v) }
            fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
            fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
            fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
            fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
            fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
            fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
            fn raise(p: __m512, n: __m512, x: __m512, limit: f32) -> __m512 {
                let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_set1_ps(limit));
                let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
                _mm512_castsi512_ps(_mm512_maskz_add_epi32(above, _mm512_castps_si512(p), n))
            }
            fn above(v: __m512, limit: f32) -> u16 { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, _mm512_set1_ps(limit)) }
        }
    }

    /// AVX2 and FMA: two registers.
    pub(crate) struct Avx2;

    impl Isa for Avx2 {
        type V = [__m256; 2];
        intrinsic! {
            fn splat(x: f32) -> [__m256; 2] { [_mm256_set1_ps(x); 2] }
            fn load(from: &Lanes) -> [__m256; 2] {
                [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(LANES / 2))]
            }
            fn store(v: [__m256; 2], into: &mut Lanes) -> () {
                _mm256_storeu_ps(into.as_mut_ptr(), v[0]);
                _mm256_storeu_ps(into.as_mut_ptr().add(LANES / 2), v[1]);
            }
            fn add(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]
            }
            fn sub(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])]
            }
            fn mul(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
            }
            fn fma(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
                [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
            }
            fn max(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])]
            }
            fn min(a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])]
            }
            fn raise(p: [__m256; 2], n: [__m256; 2], x: [__m256; 2], limit: f32) -> [__m256; 2] {
                let mut out = p;
                for i in 0..2 {
                    let above = _mm256_cmp_ps::<_CMP_GT_OQ>(x[i], _mm256_set1_ps(limit));
                    let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(n[i]));
                    let raised = _mm256_add_epi32(_mm256_castps_si256(p[i]), n);
                    out[i] = _mm256_and_ps(_mm256_castsi256_ps(raised), above);
                }
                out
            }
            fn above(v: [__m256; 2], limit: f32) -> u16 {
                let limit = _mm256_set1_ps(limit);
                let [low, high] = v.map(|v| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(v, limit)));
                (low | high << 8) as u16
            }
        }
    }
}

/// Compiles a generic kernel once per level: `dispatch!(fn name<S: Shape>(arg: Type) -> Out = kernel)` makes a function
/// that takes the level first and calls `kernel::<Level, S>(arg)` inside a function that has the level's instructions.
macro_rules! dispatch {
    ($vis:vis fn $name:ident $(<$($generic:ident : $bound:path),*>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)? = $kernel:ident) => {
        $vis fn $name $(<$($generic: $bound),*>)? (simd: $crate::kernel::lanes::Simd, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
                fn avx512 $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $out)? {
                    $kernel::<$crate::kernel::lanes::Avx512 $($(, $generic)*)?>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2 $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $out)? {
                    $kernel::<$crate::kernel::lanes::Avx2 $($(, $generic)*)?>($($arg),*)
                }
                debug_assert!($crate::kernel::lanes::Simd::available().contains(&simd));
                match simd {
                    // SAFETY: a `Workspace` only holds a level that `Simd::available` found on this CPU.
                    $crate::kernel::lanes::Simd::Avx512 => return unsafe { avx512 $(::<$($generic),*>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernel::lanes::Simd::Avx2 => return unsafe { avx2 $(::<$($generic),*>)? ($($arg),*) },
                    $crate::kernel::lanes::Simd::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = simd;
            $kernel::<$crate::kernel::lanes::Portable $($(, $generic)*)?>($($arg),*)
        }
    };
}
pub(crate) use dispatch;

/// Joins the lanes two by two, so that few steps wait for each other.
#[inline(always)]
fn fold<T: Copy>(mut values: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            values[i] = f(values[i], values[i + half]);
        }
        half /= 2;
    }
    values[0]
}

/// The largest of the lanes.
#[inline(always)]
pub(crate) fn largest<I: Isa>(v: I::V) -> f32 {
    fold(I::array(v), |a, b| if a > b { a } else { b })
}

/// The sum of the lanes, in f64 and in a fixed order.
#[inline(always)]
pub(crate) fn total<I: Isa>(v: I::V) -> f64 {
    fold(I::array(v).map(f64::from), |a, b| a + b)
}

/// Below this e^x is taken as 0. A sum of at least e^-40 loses nothing that f32 could hold, and what is kept can be
/// multiplied by any sensible step without becoming a subnormal, which CPUs handle a hundred times slower.
const FLUSH: f32 = -64.0;

/// e^x for x <= 88: relative error below 2e-7 + 2e-8 abs(x), exactly 1 at 0, exactly 0 below -64 (and for NaN).
///
/// x log2(e) = n + f with abs(f) <= 1/2, a polynomial for 2^f, and n added to the exponent bits.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: I::V) -> I::V {
    let log2_e = I::splat(std::f32::consts::LOG2_E);
    // adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits
    let round = I::splat(12_582_912.0);
    let t = I::fma(x, log2_e, round);
    let minus_n = I::sub(round, t);
    let f = I::fma(x, log2_e, minus_n);
    // minimax for the relative error of 2^f on [-1/2, 1/2] with p(0) = 1: 9.1e-8 (Lawson's iteration)
    let p = I::fma(I::splat(1.326_472_7e-3), f, I::splat(9.671_513e-3));
    let p = I::fma(p, f, I::splat(5.550_733_6e-2));
    let p = I::fma(p, f, I::splat(2.402_224_2e-1));
    #[expect(clippy::approx_constant, reason = "near ln 2, but fitted with the others")]
    let p = I::fma(p, f, I::splat(6.931_47e-1));
    let p = I::fma(p, f, I::splat(1.0));
    I::raise(p, t, x, FLUSH)
}

/// ln(1 + x) for 0 <= x <= 1, relative error below 3e-7.
///
/// 2 artanh(w) with w = x / (2 + x) <= 1/3, whose series needs eight terms.
pub(crate) fn ln_1p(x: f32) -> f32 {
    let w = x / (2.0 + x);
    let s = w * w;
    let terms = [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0];
    2.0 * w * terms.iter().fold(0.0, |p, k| p * s + 1.0 / k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(always)]
    fn exp_kernel<I: Isa>(x: Lanes) -> Lanes {
        I::array(exp::<I>(I::load(&x)))
    }
    dispatch!(fn exp_at(x: Lanes) -> Lanes = exp_kernel);

    /// Relative error of `f` against `truth` over `from..to` in 100,000 steps.
    fn worst(from: f32, to: f32, f: impl Fn(f32) -> f32, truth: fn(f64) -> f64) -> f64 {
        (0..=100_000u32).fold(0.0, |worst, i| {
            let x = from + (to - from) * (i as f32 / 100_000.0);
            let want = truth(f64::from(x));
            f64::max(worst, ((f64::from(f(x)) - want) / want).abs())
        })
    }

    #[test]
    fn exp_is_accurate_and_has_its_limits() {
        for &simd in Simd::available() {
            // without fused multiply-add the product x log2(e) is rounded, which shows for large x only
            let loose = if simd == Simd::Portable && !FMA { 5.0 } else { 1.0 };
            for (from, to, bound) in [(-1.0, 0.0, 2.2e-7), (-10.0, 0.0, 4e-7), (-63.9, 0.0, 1.5e-6)] {
                let error = worst(from, to, |x| exp_at(simd, [x; LANES])[3], f64::exp);
                assert!(error < bound * loose, "{simd:?}: relative error {error} on {from}..{to}");
            }
            assert_eq!(exp_at(simd, [0.0; LANES]), [1.0; LANES]);
            for x in [-64.1, -1e4, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
                assert_eq!(exp_at(simd, [x; LANES]), [0.0; LANES], "{x}");
            }
        }
    }

    #[test]
    fn levels_with_fused_multiply_add_agree_to_the_bit() {
        let fused: Vec<Simd> = Simd::available().iter().copied().filter(|s| *s != Simd::Portable).collect();
        for i in 0..10_000 {
            let x = each(|k| -0.009 * i as f32 - 0.01 * k as f32);
            assert!(fused.windows(2).all(|pair| exp_at(pair[0], x) == exp_at(pair[1], x)), "{x:?}");
        }
    }

    #[test]
    fn ln_1p_is_accurate() {
        let error = worst(1e-30, 1.0, ln_1p, f64::ln_1p);
        assert!(error < 3e-7, "relative error {error}");
    }
}
