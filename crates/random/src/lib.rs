//! Random draws as a function of where they are used: the one generator of the project.
//!
//! Everything random in a run is a function of (seed, epoch, example), so that a resumed run repeats it and nothing depends
//! on which thread or worker came first.
//!
//! SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) read at a position:
//! the k-th draw of a key costs the same as the first, so nothing has to be saved to repeat it.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The draws of one example in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The draws that belong to (seed, epoch, example).
    #[must_use]
    pub fn new(seed: u64, epoch: u64, example: u64) -> Self {
        let key = [seed, epoch, example].iter().fold(0u64, |key, x| mix(key.wrapping_add(GOLDEN) ^ mix(*x ^ GOLDEN)));
        Self(key)
    }

    /// Sixty-four random bits at a position.
    #[inline(always)]
    #[must_use]
    pub fn at(self, position: u64) -> u64 {
        mix(self.0.wrapping_add(GOLDEN.wrapping_mul(position.wrapping_add(1))))
    }

    /// A number in [0, 1) at a position, from 53 random bits.
    #[must_use]
    pub fn unit(self, position: u64) -> f64 {
        (self.at(position) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector of SplitMix64: seed 1234567.
    #[test]
    fn draws_are_splitmix64() {
        let draws = Draws(1_234_567);
        let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([draws.at(0), draws.at(1), draws.at(2)], want);
    }

    #[test]
    fn every_coordinate_matters_and_nothing_else() {
        let base = Draws::new(1, 2, 3);
        assert_eq!(base, Draws::new(1, 2, 3));
        for other in
            [Draws::new(0, 2, 3), Draws::new(1, 3, 3), Draws::new(1, 2, 4), Draws::new(2, 1, 3), Draws::new(3, 2, 1)]
        {
            assert_ne!(base, other);
        }
        let mean = (0..10_000).map(|i| Draws::new(7, i % 10, i / 10).unit(i)).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
