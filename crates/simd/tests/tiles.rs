//! Products of tiles against their definition, on vectors of every level and by AMX where there is.

use equipoise_simd::{Amx, Bf16, FUSED, Simd, SimdLevel, TILE, TILE_BYTES, Tiles, VectorTiles, dispatch};

type Words = [f32; TILE * TILE];

/// Zero for numbers that are too small to be normal.
fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

/// The definition: even and odd places apart, then both, then C.
fn expected(c: &Words, a: &Words, b: &Words) -> Words {
    let half = |word: f32, place: usize| Bf16((word.to_bits() >> (16 * place)) as u16).to_f32();
    let mut out = *c;
    for row in 0..TILE {
        for column in 0..TILE {
            let sum = |place: usize| {
                (0..TILE).fold(0.0, |sum: f32, k| {
                    flush(half(a[row * TILE + k], place).mul_add(half(b[k * TILE + column], place), sum))
                })
            };
            let c = &mut out[row * TILE + column];
            *c = flush(*c + flush(sum(0) + sum(1)));
        }
    }
    out
}

#[inline(always)]
fn multiply<T: Tiles>(tiles: &mut T, c: &Words, a: &Words, b: &Words) -> Words {
    let mut out = [f32::NAN; TILE * TILE];
    // SAFETY: every array has sixteen rows of 64 bytes.
    unsafe {
        tiles.load::<3>(c.as_ptr().cast(), TILE_BYTES);
        tiles.load::<0>(a.as_ptr().cast(), TILE_BYTES);
        tiles.load::<7>(b.as_ptr().cast(), TILE_BYTES);
        tiles.dot::<3, 0, 7>();
        tiles.store::<3>(out.as_mut_ptr().cast(), TILE_BYTES);
    }
    out
}

#[inline(always)]
fn on_vectors_kernel<I: Simd>(simd: I, c: &Words, a: &Words, b: &Words) -> Words {
    multiply(&mut VectorTiles::new(simd), c, a, b)
}
dispatch!(fn on_vectors(c: &Words, a: &Words, b: &Words) -> Words = on_vectors_kernel with bf16);

/// Numbers of both signs between 2^-`range` and 2^`range`, and some zeros.
fn numbers(seed: u64, range: i32) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = (state >> 32) as u32;
        let exponent = (bits >> 24) as i32 % (2 * range) - range;
        let x = (1.0 + (bits & 0x7f_ffff) as f32 / 8_388_608.0) * 2f32.powi(exponent);
        Some(if bits & 0x7000_0000 == 0 {
            0.0
        } else if state & 1 << 20 == 0 {
            x
        } else {
            -x
        })
    })
}

fn words(seed: u64, range: i32) -> Words {
    let mut numbers = numbers(seed, range).map(|x| u32::from(Bf16::from_f32(x).0));
    [0; TILE * TILE].map(|_: u8| {
        let [low, high] = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
        f32::from_bits(high << 16 | low)
    })
}

fn same(a: &Words, b: &Words) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

/// The numbers are of usual size, or so small that products and sums become zero.
#[test]
fn products_have_the_bits_of_the_definition() {
    for (seed, range) in (0..200).flat_map(|seed| [(seed, 6), (seed, 40), (seed, 64)]) {
        let mut c = [0.0; TILE * TILE];
        c.iter_mut().zip(numbers(3 * seed, range)).for_each(|(c, x)| *c = x);
        let (a, b) = (words(3 * seed + 1, range), words(3 * seed + 2, range));
        let want = expected(&c, &a, &b);
        for &level in SimdLevel::available() {
            if level != SimdLevel::Portable || FUSED {
                assert!(same(&on_vectors(level, &c, &a, &b), &want), "{level:?}, {seed}, {range}");
            }
        }
        if let Some(amx) = Amx::request() {
            assert!(same(&multiply(&mut amx.tiles(), &c, &a, &b), &want), "AMX, {seed}, {range}");
        }
    }
}

/// What is not finite spreads to the same places.
#[test]
fn products_of_what_is_not_finite() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 1, 31, 100, 255] {
            let (c, mut a, b) = ([1.0; TILE * TILE], words(1, 6), words(2, 6));
            a[place] = f32::from_bits(u32::from(Bf16::from_f32(bad).0) << 16 | a[place].to_bits() & 0xffff);
            let want = expected(&c, &a, &b);
            assert!(want.iter().any(|x| !x.is_finite()));
            for &level in SimdLevel::available() {
                if level != SimdLevel::Portable || FUSED {
                    assert!(same(&on_vectors(level, &c, &a, &b), &want), "{level:?}, {bad}, {place}");
                }
            }
            if let Some(amx) = Amx::request() {
                assert!(same(&multiply(&mut amx.tiles(), &c, &a, &b), &want), "AMX, {bad}, {place}");
            }
        }
    }
}

#[inline(always)]
fn transpose_kernel<I: Simd>(simd: I, from: &[f32], into: &mut [f32]) {
    assert!(from.len() >= 15 * 20 + 16 && into.len() >= 15 * 24 + 16);
    // SAFETY: both have sixteen rows of sixteen values.
    unsafe { simd.transpose(from.as_ptr(), 20, into.as_mut_ptr(), 24) }
}
dispatch!(fn transpose(from: &[f32], into: &mut [f32]) = transpose_kernel with bf16);

#[test]
fn rows_and_columns_are_exchanged() {
    // any bits, among them those of NaN
    let from: Vec<f32> = (0..16 * 20_u32).map(|i| f32::from_bits(0x7f80_0000 + i)).collect();
    for &level in SimdLevel::available() {
        let mut into = vec![0.0; 16 * 24];
        transpose(level, &from, &mut into);
        for (row, column) in (0..256).map(|at| (at / 16, at % 16)) {
            assert_eq!(into[column * 24 + row].to_bits(), from[row * 20 + column].to_bits(), "{level:?}");
        }
    }
}
