//! Random numbers as a function of where they are used.
//!
//! Every random decision of a run depends on (seed, epoch, example) and on a named [`Stream`], never on the state of a
//! generator. A resumed run therefore repeats its decisions, and the number of threads or workers does not matter.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014),
//! read at a position: the k-th draw of a key costs as much as the first.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What random numbers are used for. Streams with the same seed are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Initial weights of a network.
    NetworkInit,
    /// Which training images become the validation split.
    ValidationSplit,
    /// Which images become the test split.
    TestSplit,
    /// Which images become which fold of a cross-validation.
    Folds,
    /// The order of examples in an epoch.
    Sampler,
    /// Crop, flip and cutout of small images.
    CropAndFlip,
    /// Color jitter, RandAugment and the policies in its place.
    ColorAndShape,
    /// Crop and flip of photographs.
    PhotoCrop,
    /// Partners and shares of mixup.
    Mixup,
    /// Patches of CutMix and CMO, and the images they come from.
    CutMix,
}

impl Stream {
    /// Combined with the seed. A new stream needs a value of its own, and existing values never change.
    const fn salt(self) -> u64 {
        match self {
            Self::NetworkInit => 0x6e65_7477_6f72_6b00,
            Self::ValidationSplit => 0x7661_6c00_0000_0000,
            Self::TestSplit => 0x7370_6c69_7400_0000,
            Self::Folds => 0x666f_6c64_7300_0000,
            Self::Sampler => 0x7361_6d70_6c65_7200,
            Self::CropAndFlip => 0x6175_676d_656e_7400,
            Self::ColorAndShape => 0x6368_616e_6765_0000,
            Self::PhotoCrop => 0x7068_6f74_6f00_0000,
            Self::Mixup => 0x6d69_7800_0000_0000,
            Self::CutMix => 0x6375_746d_6978_0000,
        }
    }
}

/// One example in one epoch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// Seed of the run.
    pub seed: u64,
    /// Epoch, from 0; 0 for decisions that are made once in a run.
    pub epoch: u64,
    /// The example: usually its index in the dataset.
    pub example: u64,
}

impl Example {
    /// The random numbers of this example for one purpose.
    #[must_use]
    pub fn draws(self, stream: Stream) -> Draws {
        Draws::new(self.seed ^ stream.salt(), self.epoch, self.example)
    }
}

/// A sequence of random numbers that can be read at any position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The numbers of (seed, epoch, example), for a caller with a seed of its own. Everything that uses the seed of a
    /// run reads a [`Stream`].
    #[must_use]
    pub fn new(seed: u64, epoch: u64, example: u64) -> Self {
        let key = [seed, epoch, example].iter().fold(0u64, |key, x| mix(key.wrapping_add(GOLDEN) ^ mix(*x ^ GOLDEN)));
        Self(key)
    }

    /// 64 random bits at a position.
    #[inline(always)]
    #[must_use]
    pub fn at(self, position: u64) -> u64 {
        mix(self.0.wrapping_add(GOLDEN.wrapping_mul(position.wrapping_add(1))))
    }

    /// A uniform number in [0, 1), from the 53 upper bits at a position.
    #[must_use]
    pub fn unit(self, position: u64) -> f64 {
        (self.at(position) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box, Muller, 1958), from the bits at `position` and `position + 1`.
    #[must_use]
    pub fn normal(self, position: u64) -> f64 {
        // 1 - u is never 0, so the logarithm is finite
        let (u, v) = (1.0 - self.unit(position), self.unit(position + 1));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
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

    /// The salts are part of every published result: these values must never change.
    #[test]
    fn streams_keep_their_numbers() {
        let example = Example { seed: 1, epoch: 2, example: 3 };
        let streams = [
            (Stream::NetworkInit, 0x6e65_7477_6f72_6b00),
            (Stream::ValidationSplit, 0x7661_6c00_0000_0000),
            (Stream::TestSplit, 0x7370_6c69_7400_0000),
            (Stream::Folds, 0x666f_6c64_7300_0000),
            (Stream::Sampler, 0x7361_6d70_6c65_7200),
            (Stream::CropAndFlip, 0x6175_676d_656e_7400),
            (Stream::ColorAndShape, 0x6368_616e_6765_0000),
            (Stream::PhotoCrop, 0x7068_6f74_6f00_0000),
            (Stream::Mixup, 0x6d69_7800_0000_0000),
            (Stream::CutMix, 0x6375_746d_6978_0000),
        ];
        for (stream, salt) in streams {
            assert_eq!(example.draws(stream), Draws::new(1 ^ salt, 2, 3), "{stream:?}");
        }
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let draws = Draws::new(1, 2, 3);
        let numbers: Vec<f64> = (0..100_000).map(|i| draws.normal(2 * i)).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean}, {variance}");
        // half of the numbers lie within 0.6745 of the mean
        let inside = numbers.iter().filter(|x| x.abs() < 0.674_49).count();
        assert!((49_400..50_600).contains(&inside), "{inside}");
    }
}
