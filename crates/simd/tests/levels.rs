//! Every function at every level against its definition, lane by lane.

use equipoise_simd::{FUSED, Simd, SimdLevel, dispatch};

type Lanes = [f32; 16];

/// Values with all signs, equal ones, a NaN and infinities at different lanes.
const A: Lanes =
    [0.0, -0.0, 1.5, -2.5, 3.0, f32::NAN, f32::INFINITY, -1.0, 7.0, 1e-3, -8.0, 2.0, 0.1, -0.7, 5.5, f32::NEG_INFINITY];
const B: Lanes = [1.0, 0.5, 1.5, 4.0, f32::NAN, 2.0, 1.0, -1.0, -7.0, 3.0, 0.3, -2.0, 0.1, 0.9, -5.5, 2.5];
const C: Lanes = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6];

#[inline(always)]
fn all_kernel<I: Simd>(simd: I, a: &Lanes, b: &Lanes, c: &Lanes) -> ([Lanes; 8], u16) {
    let (a, b, c) = (simd.load_array(a), simd.load_array(b), simd.load_array(c));
    let results = [
        simd.to_array(simd.add(a, b)),
        simd.to_array(simd.sub(a, b)),
        simd.to_array(simd.mul(a, b)),
        simd.to_array(simd.fma(a, b, c)),
        simd.to_array(simd.fnma(a, b, c)),
        simd.to_array(simd.max(a, b)),
        simd.to_array(simd.min(a, b)),
        simd.to_array(simd.where_positive(a, b)),
    ];
    (results, simd.above(a, 1.0))
}
dispatch!(fn all(a: &Lanes, b: &Lanes, c: &Lanes) -> ([Lanes; 8], u16) = all_kernel with Wide);

#[test]
fn every_function_at_every_level() {
    for &level in SimdLevel::available() {
        let fused = level != SimdLevel::Portable || FUSED;
        let (results, above) = all(level, &A, &B, &C);
        for i in 0..16 {
            let (a, b, c) = (A[i], B[i], C[i]);
            let want = [
                a + b,
                a - b,
                a * b,
                if fused { a.mul_add(b, c) } else { a * b + c },
                if fused { (-a).mul_add(b, c) } else { c - a * b },
                if a > b { a } else { b },
                if a < b { a } else { b },
                if a > 0.0 { b } else { 0.0 },
            ];
            for (k, (got, want)) in results.iter().map(|lanes| lanes[i]).zip(want).enumerate() {
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{level:?}, function {k}, lane {i}: {got} for {want}");
            }
            assert_eq!(above >> i & 1 == 1, a > 1.0, "{level:?}, lane {i}");
        }
    }
}

#[inline(always)]
fn ldexp_kernel<I: Simd>(simd: I, p: &Lanes, n: &Lanes, x: &Lanes) -> Lanes {
    simd.to_array(simd.ldexp_above(simd.load_array(p), simd.load_array(n), simd.load_array(x), 1.0))
}
dispatch!(fn ldexp(p: &Lanes, n: &Lanes, x: &Lanes) -> Lanes = ldexp_kernel with Wide);

#[test]
fn ldexp_multiplies_by_powers_of_two_above_the_limit() {
    let n = std::array::from_fn(|i| f32::from_bits((i as i32 - 8) as u32));
    for &level in SimdLevel::available() {
        for (i, got) in ldexp(level, &C, &n, &A).into_iter().enumerate() {
            let want = if A[i] > 1.0 { C[i] * 2f32.powi(i as i32 - 8) } else { 0.0 };
            assert_eq!(got, want, "{level:?}, lane {i}");
        }
    }
}

#[inline(always)]
fn width_kernel<I: Simd>(_simd: I) -> usize {
    I::WIDTH
}
dispatch!(fn native_width() -> usize = width_kernel);
dispatch!(fn wide_width() -> usize = width_kernel with Wide);

#[test]
fn wide_vectors_have_sixteen_lanes_at_every_level() {
    for &level in SimdLevel::available() {
        assert_eq!(wide_width(level), 16);
        assert!(16usize.is_multiple_of(native_width(level)), "{level:?}");
    }
}
