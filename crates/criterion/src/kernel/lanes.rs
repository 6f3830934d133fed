//! Sixteen f32 at a time.
//!
//! Plain arrays and plain loops: inside a function compiled for AVX-512 a [`Lanes`] is one register, for AVX2 two, for
//! NEON or SSE2 four. The number of lanes, and with it the order of every sum, is the same everywhere, so that all
//! levels with fused multiply-add give the same bits. What lives here: element-wise arithmetic, exp, ln(1 + x), the
//! choice of the level. What does not: anything that knows about labels or criteria.

/// Elements handled at once.
pub(crate) const LANES: usize = 16;
/// Sixteen values.
pub(crate) type Lanes = [f32; LANES];

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// What every CPU of the target has.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, DQ, BW and VL.
    Avx512,
}

impl Simd {
    /// The levels this CPU has, the best one last.
    #[must_use]
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") {
                if has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl") {
                    return &[Self::Portable, Self::Avx2, Self::Avx512];
                }
                return &[Self::Portable, Self::Avx2];
            }
        }
        &[Self::Portable]
    }

    /// The best level of this CPU.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }
}

/// What the generic kernels must know about the level they are compiled for.
pub(crate) trait Isa {
    /// Whether `mul_add` is one instruction; otherwise it would be a slow library call.
    const FMA: bool;
}

/// Compiled with fused multiply-add (AVX2, AVX-512; NEON has it always).
pub(crate) struct Fused;
impl Isa for Fused {
    const FMA: bool = true;
}

/// Compiled for the target's baseline.
pub(crate) struct Baseline;
impl Isa for Baseline {
    const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
}

/// Compiles a generic kernel once per level and calls the one asked for.
///
/// `dispatch!(simd, kernel::<S>(a, b))` calls `kernel::<Fused, S>(a, b)` inside a function that has the level's features.
macro_rules! dispatch {
    ($vis:vis fn $name:ident $(<$($generic:ident : $bound:path),*>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $out:ty)? = $kernel:ident) => {
        $vis fn $name $(<$($generic: $bound),*>)? (simd: $crate::kernel::lanes::Simd, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
                fn avx512 $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $out)? {
                    $kernel::<$crate::kernel::lanes::Fused $($(, $generic)*)?>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2 $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $out)? {
                    $kernel::<$crate::kernel::lanes::Fused $($(, $generic)*)?>($($arg),*)
                }
                debug_assert!($crate::kernel::lanes::Simd::available().contains(&simd));
                match simd {
                    // SAFETY: a `Work` only holds a level that `Simd::available` found on this CPU.
                    $crate::kernel::lanes::Simd::Avx512 => return unsafe { avx512 $(::<$($generic),*>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernel::lanes::Simd::Avx2 => return unsafe { avx2 $(::<$($generic),*>)? ($($arg),*) },
                    $crate::kernel::lanes::Simd::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = simd;
            $kernel::<$crate::kernel::lanes::Baseline $($(, $generic)*)?>($($arg),*)
        }
    };
}
pub(crate) use dispatch;

#[inline(always)]
pub(crate) fn splat(x: f32) -> Lanes {
    [x; LANES]
}

#[inline(always)]
pub(crate) fn load(from: &[f32]) -> Lanes {
    *from.first_chunk().expect("a table is padded to whole lanes")
}

#[inline(always)]
pub(crate) fn map(a: Lanes, f: impl Fn(f32) -> f32) -> Lanes {
    let mut out = a;
    for x in &mut out {
        *x = f(*x);
    }
    out
}

#[inline(always)]
pub(crate) fn zip(a: Lanes, b: Lanes, f: impl Fn(f32, f32) -> f32) -> Lanes {
    let mut out = a;
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
pub(crate) fn fma<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The larger one, `b` if either is NaN: one instruction, unlike `f32::max`.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The smaller one, `b` if either is NaN.
#[inline(always)]
pub(crate) fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline(always)]
pub(crate) fn add(a: Lanes, b: Lanes) -> Lanes {
    zip(a, b, |x, y| x + y)
}

/// The largest of the lanes.
#[inline(always)]
pub(crate) fn largest(a: Lanes) -> f32 {
    a.iter().fold(f32::NEG_INFINITY, |m, &x| larger(x, m))
}

/// The sum of the lanes, in f64 and in a fixed order.
#[inline(always)]
pub(crate) fn total(a: Lanes) -> f64 {
    let mut half = [0f64; LANES / 2];
    for i in 0..LANES / 2 {
        half[i] = f64::from(a[i]) + f64::from(a[i + LANES / 2]);
    }
    half.iter().sum()
}

/// Below this e^x is taken as 0: nothing that is added to a sum of at least e^-40 is lost in f32.
const FLUSH: f32 = -87.0;

/// e^x for x <= 88, relative error below 2e-7, exactly 1 at 0, exactly 0 below -87 (and for NaN).
///
/// x = n ln 2 + r with abs(r) <= ln 2 / 2, a polynomial for e^r, and n added to the exponent bits.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: Lanes) -> Lanes {
    // adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    map(x, |x| {
        let t = fma::<I>(x, std::f32::consts::LOG2_E, ROUND);
        let n = t - ROUND;
        let r = fma::<I>(n, -LN2_HIGH, x);
        let r = fma::<I>(n, -LN2_LOW, r);
        // Taylor's coefficients, the two last ones adjusted for the interval (Cephes expf)
        let p = fma::<I>(1.987_569_1e-4, r, 1.398_2e-3);
        let p = fma::<I>(p, r, 8.333_452e-3);
        let p = fma::<I>(p, r, 4.166_579_6e-2);
        let p = fma::<I>(p, r, 1.666_666_5e-1);
        let p = fma::<I>(p, r, 0.5);
        let p = fma::<I>(p, r * r, r) + 1.0;
        let scaled = f32::from_bits(p.to_bits().wrapping_add(t.to_bits() << 23));
        if x > FLUSH { scaled } else { 0.0 }
    })
}

/// ln(1 + x) for 0 <= x <= 1, relative error below 3e-7.
///
/// 2 artanh(w) with w = x / (2 + x) <= 1/3, whose series needs eight terms.
#[inline(always)]
pub(crate) fn ln_1p<I: Isa>(x: Lanes) -> Lanes {
    map(x, |x| {
        let w = x / (2.0 + x);
        let s = w * w;
        let p = fma::<I>(s, 1.0 / 15.0, 1.0 / 13.0);
        let p = fma::<I>(p, s, 1.0 / 11.0);
        let p = fma::<I>(p, s, 1.0 / 9.0);
        let p = fma::<I>(p, s, 1.0 / 7.0);
        let p = fma::<I>(p, s, 1.0 / 5.0);
        let p = fma::<I>(p, s, 1.0 / 3.0);
        let p = fma::<I>(p, s, 1.0);
        2.0 * w * p
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    dispatch!(fn exp_at(x: Lanes) -> Lanes = exp);
    dispatch!(fn ln_1p_at(x: Lanes) -> Lanes = ln_1p);

    /// Relative error of `f` against `truth` over `from..to` in 100,000 steps, on every level of this CPU.
    fn worst(from: f32, to: f32, f: fn(Simd, Lanes) -> Lanes, truth: fn(f64) -> f64) -> f64 {
        let mut worst = 0f64;
        for &simd in Simd::available() {
            for i in 0..=100_000u32 {
                let x = from + (to - from) * (i as f32 / 100_000.0);
                let want = truth(f64::from(x));
                let got = f64::from(f(simd, splat(x))[3]);
                worst = worst.max(((got - want) / want).abs());
            }
        }
        worst
    }

    #[test]
    fn exp_is_accurate_and_has_its_limits() {
        let error = worst(-86.9, 0.0, exp_at, f64::exp);
        assert!(error < 2e-7, "relative error {error}");
        for &simd in Simd::available() {
            assert_eq!(exp_at(simd, splat(0.0)), splat(1.0));
            for x in [-87.1, -1e4, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
                assert_eq!(exp_at(simd, splat(x)), splat(0.0), "{x}");
            }
        }
    }

    #[test]
    fn ln_1p_is_accurate() {
        let error = worst(1e-30, 1.0, ln_1p_at, f64::ln_1p);
        assert!(error < 3e-7, "relative error {error}");
    }
}
