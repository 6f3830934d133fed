//! Every function at every level against its definition, lane by lane.

use equipoise_simd::{Bf16, FUSED, Simd, SimdLevel, dispatch};

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

/// Functions of bf16, on bits: pairs, pairs of loaded numbers, sums of products, and numbers there and back.
#[inline(always)]
fn bf16_kernel<I: Simd>(simd: I, a: &Lanes, b: &Lanes, c: &Lanes) -> [[u32; 16]; 4] {
    let mut results = [[0u32; 16]; 4];
    for at in (0..16).step_by(I::WIDTH) {
        let mut stored = [[Bf16::default(); 16]; 2];
        // SAFETY: every array has 16 values, which `WIDTH` divides.
        unsafe {
            let [a, b, c] = [a, b, c].map(|lanes| simd.load(lanes.as_ptr().add(at)));
            let pairs = simd.pair_bf16(a, b);
            simd.store_bf16(stored[0].as_mut_ptr(), a);
            simd.store_bf16(stored[1].as_mut_ptr(), b);
            let loaded = simd.load_pairs(stored[0].as_ptr(), stored[1].as_ptr());
            let dot = simd.dot_bf16(pairs, simd.pair_bf16(b, c), c);
            for (result, v) in results.iter_mut().zip([pairs, loaded, dot, simd.load_bf16(stored[0].as_ptr())]) {
                simd.store(result.as_mut_ptr().add(at).cast(), v);
            }
        }
    }
    results
}
dispatch!(fn bf16(a: &Lanes, b: &Lanes, c: &Lanes) -> [[u32; 16]; 4] = bf16_kernel with bf16);

/// Numbers of every kind in f32, from their bits.
fn any_numbers(salt: u32) -> Lanes {
    std::array::from_fn(|i| {
        let bits = (i as u32 + 16 * salt).wrapping_mul(0x9e37_79b9) ^ salt.wrapping_mul(0x85eb_ca6b);
        match (i as u32 + salt) % 8 {
            // ties, and numbers beside them
            0 => f32::from_bits(bits & 0xffff_0000 | 0x8000),
            1 => f32::from_bits(bits & 0xffff_0000 | 0x8001),
            // near one
            2..=5 => f32::from_bits(bits & 0x807f_ffff | 0x3f80_0000),
            // tiny
            6 => f32::from_bits(bits & 0x81ff_ffff),
            _ => f32::from_bits(bits),
        }
    })
}

#[test]
fn bf16_at_every_level_is_what_its_definition_says() {
    let define = |x: f32| -> u32 {
        if x.is_nan() {
            return x.to_bits() >> 16 | 0x40;
        }
        if x.abs() < f32::MIN_POSITIVE {
            return x.to_bits() >> 16 & 0x8000;
        }
        // the nearer of the two neighbors, the even one of equally near ones
        let (down, up) = (x.to_bits() & 0xffff_0000, (x.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
        let far = x.to_bits() & 0xffff;
        if far > 0x8000 || far == 0x8000 && down & 0x1_0000 != 0 { up >> 16 } else { down >> 16 }
    };
    let number = |bits: u32| f32::from_bits(bits << 16);
    let flushed = |x: f32| if x.abs() < f32::MIN_POSITIVE { 0.0 * x } else { x };
    let any = (0..500).map(|salt| [3 * salt, 3 * salt + 1, 3 * salt + 2].map(any_numbers));
    // 2^127 * 2 alone would overflow, but not the sum with 2 * -2^126 - 2^126
    let overflowing = [[2f32.powi(127); 16], [2.0; 16], [-2f32.powi(126); 16]];
    for [a, b, c] in any.chain([overflowing]) {
        let c = c.map(flushed);
        for &level in SimdLevel::available() {
            let [pairs, loaded, dot, back] = bf16(level, &a, &b, &c);
            for i in 0..16 {
                let [x, y, z] = [a[i], b[i], c[i]].map(define);
                assert_eq!([pairs[i], loaded[i]], [x | y << 16; 2], "{level:?}: {} {}", a[i], b[i]);
                assert_eq!(back[i], x << 16, "{level:?}: {}", a[i]);
                let upper = flushed(number(y).mul_add(number(z), c[i]));
                let want = flushed(number(x).mul_add(number(y), upper));
                let got = f32::from_bits(dot[i]);
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{level:?}: {got:e} for {want:e}: {} {} {}", a[i], b[i], c[i]);
            }
        }
    }
}
