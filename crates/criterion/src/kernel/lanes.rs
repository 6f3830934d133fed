//! Sixteen f32 at a time: reductions, exp and ln(1 + x).
//!
//! Every kernel of this crate uses vectors of sixteen lanes at all levels of instructions (`dispatch!(.. with Wide)`),
//! so that every sum has the same order everywhere. What lives here knows nothing about labels or criteria.

use equipoise_simd::Simd;

/// Elements handled at once.
pub(crate) const LANES: usize = 16;
/// Sixteen values in memory.
pub(crate) type Lanes = [f32; LANES];

/// Sixteen values of a table that is padded to whole lanes, from `start` on.
#[inline(always)]
pub(crate) fn lanes_at<I: Simd>(simd: I, table: &[f32], start: usize) -> I::V {
    simd.load_array::<LANES>(table[start..].first_chunk().expect("a table is padded to whole lanes"))
}

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
pub(crate) fn largest<I: Simd>(simd: I, v: I::V) -> f32 {
    fold(simd.to_array::<LANES>(v), |a, b| if a > b { a } else { b })
}

/// The sum of the lanes, in f64 and in a fixed order.
#[inline(always)]
pub(crate) fn total<I: Simd>(simd: I, v: I::V) -> f64 {
    fold(simd.to_array::<LANES>(v).map(f64::from), |a, b| a + b)
}

/// Below this e^x is taken as 0. A sum of at least e^-40 loses nothing that f32 could hold, and what is kept can be
/// multiplied by any sensible step without becoming a subnormal, which CPUs handle a hundred times slower.
const FLUSH: f32 = -64.0;

/// e^x for x <= 88: relative error below 2e-7 + 2e-8 abs(x), exactly 1 at 0, exactly 0 below -64 (and for NaN).
///
/// x log2(e) = n + f with abs(f) <= 1/2, a polynomial for 2^f, and n added to the exponent bits.
#[inline(always)]
pub(crate) fn exp<I: Simd>(simd: I, x: I::V) -> I::V {
    let log2_e = simd.splat(std::f32::consts::LOG2_E);
    // adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits
    let round = simd.splat(12_582_912.0);
    let t = simd.fma(x, log2_e, round);
    let minus_n = simd.sub(round, t);
    let f = simd.fma(x, log2_e, minus_n);
    // minimax for the relative error of 2^f on [-1/2, 1/2] with p(0) = 1: 9.1e-8 (Lawson's iteration)
    let p = simd.fma(simd.splat(1.326_472_7e-3), f, simd.splat(9.671_513e-3));
    let p = simd.fma(p, f, simd.splat(5.550_733_6e-2));
    let p = simd.fma(p, f, simd.splat(2.402_224_2e-1));
    #[expect(clippy::approx_constant, reason = "near ln 2, but fitted with the others")]
    let p = simd.fma(p, f, simd.splat(6.931_47e-1));
    let p = simd.fma(p, f, simd.splat(1.0));
    simd.ldexp_above(p, t, x, FLUSH)
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
    use equipoise_simd::{FUSED, SimdLevel, dispatch};

    use super::*;

    #[inline(always)]
    fn exp_kernel<I: Simd>(simd: I, x: Lanes) -> Lanes {
        simd.to_array(exp(simd, simd.load_array(&x)))
    }
    dispatch!(fn exp_at(x: Lanes) -> Lanes = exp_kernel with Wide);

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
        for &simd in SimdLevel::available() {
            // without fused multiply-add the product x log2(e) is rounded, which shows for large x only
            let loose = if simd == SimdLevel::Portable && !FUSED { 5.0 } else { 1.0 };
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

    /// Every level with fused multiply-add gives the bits that were recorded once, so that a machine with a single such
    /// level checks it too.
    #[test]
    fn levels_with_fused_multiply_add_agree_to_the_bit() {
        const RECORDED: u64 = 3_829_462_542_466_931_370;
        for &simd in SimdLevel::available().iter().filter(|level| FUSED || **level != SimdLevel::Portable) {
            let inputs = (0..10_000).map(|i| std::array::from_fn(|k| -0.009 * i as f32 - 0.01 * k as f32));
            let values = inputs.flat_map(|x| exp_at(simd, x));
            let hash = values.fold(0, |hash: u64, e| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(e.to_bits()));
            assert_eq!(hash, RECORDED, "{simd:?}");
        }
    }

    #[test]
    fn ln_1p_is_accurate() {
        let error = worst(1e-30, 1.0, ln_1p, f64::ln_1p);
        assert!(error < 3e-7, "relative error {error}");
    }
}
