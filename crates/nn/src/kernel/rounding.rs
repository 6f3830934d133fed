//! From f32 to what matrix products multiply.

use equipoise_simd::{Simd, dispatch};

use super::value::Activation;

dispatch! {
    /// Rounds values. Returns whether all are finite.
    ///
    /// # Panics
    /// If the slices are not of one length.
    pub(crate) fn round<S: Activation>(from: &[f32], to: &mut [S]) -> bool = round_kernel with bf16 if S::IS_BF16
}

dispatch! {
    /// Makes words of pairs of rows: the values of an even row in the lower halves, those of the odd row that follows in the
    /// upper halves, which are 0 if there is none.
    ///
    /// # Panics
    /// If `words` has too few rows, the last row is not a whole one, or the number of columns is no multiple of 16.
    pub(crate) fn pair_rows(rows: &[f32], columns: usize, words: &mut [f32]) = pair_rows_kernel with bf16
}

#[inline(always)]
fn round_kernel<I: Simd, S: Activation>(simd: I, from: &[f32], to: &mut [S]) -> bool {
    assert_eq!(from.len(), to.len());
    let whole = from.len() / I::WIDTH * I::WIDTH;
    // 0, or NaN after a value that is not finite
    let mut residue = simd.splat(0.0);
    for at in (0..whole).step_by(I::WIDTH) {
        // SAFETY: both slices have a vector from `at` on.
        unsafe {
            let v = simd.load(from.as_ptr().add(at));
            S::store(simd, to.as_mut_ptr().add(at), v);
            residue = simd.add(residue, simd.sub(v, v));
        }
    }
    let mut is_finite = simd.above(simd.sub(simd.splat(1.0), residue), 0.5).count_ones() as usize == I::WIDTH;
    for (x, to) in from[whole..].iter().zip(&mut to[whole..]) {
        *to = S::from_f32(*x);
        is_finite &= x.is_finite();
    }
    is_finite
}

#[inline(always)]
fn pair_rows_kernel<I: Simd>(simd: I, rows: &[f32], columns: usize, words: &mut [f32]) {
    assert!(columns.is_multiple_of(super::CHANNELS) && rows.len().is_multiple_of(columns));
    assert!(2 * words.len() >= rows.len());
    for (pair, words) in rows.chunks(2 * columns).zip(words.chunks_exact_mut(columns)) {
        let (first, second) = pair.split_at(columns);
        for at in (0..columns).step_by(I::WIDTH) {
            // SAFETY: a row has a multiple of the widest vector's values, and `at` is a multiple of the width. The second
            // row is a whole one unless it is empty.
            unsafe {
                let low = simd.load(first.as_ptr().add(at));
                let high = if second.is_empty() { simd.splat(0.0) } else { simd.load(second.as_ptr().add(at)) };
                simd.store(words.as_mut_ptr().add(at), simd.pair_bf16(low, high));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_simd::{Bf16, SimdLevel};

    use super::*;

    fn values(number: usize) -> Vec<f32> {
        (0..number).map(|n| (n as f32 - 40.0) * 1.001_953).collect()
    }

    #[test]
    fn values_are_rounded_at_every_level_and_length() {
        for &level in SimdLevel::available() {
            for length in [0, 1, 15, 16, 17, 47, 64] {
                let from = values(length);
                let mut to = vec![Bf16::default(); length];
                assert!(round(level, &from, &mut to), "{length}");
                assert_eq!(to, from.iter().map(|x| Bf16::from_f32(*x)).collect::<Vec<_>>(), "{length}");
                let mut to = vec![0.0; length];
                assert!(round(level, &from, &mut to));
                assert_eq!(to, from);
            }
        }
    }

    #[test]
    fn values_that_are_not_finite_are_seen_wherever_they_are() {
        for &level in SimdLevel::available() {
            for at in [0, 7, 15, 16, 31, 32, 36] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut from = values(37);
                    from[at] = bad;
                    assert!(!round(level, &from, &mut [Bf16::default(); 37]), "{at} {bad}");
                    assert!(!round(level, &from, &mut [0.0; 37]), "{at} {bad}");
                }
            }
        }
    }

    #[test]
    fn words_hold_two_rows() {
        for &level in SimdLevel::available() {
            for rows in [1, 2, 3, 6] {
                let from = values(32 * rows);
                let mut words = vec![f32::NAN; 32 * rows.div_ceil(2)];
                pair_rows(level, &from, 32, &mut words);
                for (at, word) in words.iter().enumerate() {
                    let [low, high] = [word.to_bits() as u16, (word.to_bits() >> 16) as u16].map(Bf16);
                    let first = at / 32 * 64 + at % 32;
                    assert_eq!(low, Bf16::from_f32(from[first]));
                    assert_eq!(high, Bf16::from_f32(from.get(first + 32).copied().unwrap_or(0.0)));
                }
            }
        }
    }
}
