//! One image of a batch: which one it is, and what its augmentation depends on.

use equipoise_random::Example;

/// An image of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageDraw {
    /// Index of the image in its split.
    pub index: u32,
    /// Random numbers of its augmentation.
    pub example: Example,
    /// Level of its class, for RandAugment by difficulty.
    pub level: u8,
}

impl ImageDraw {
    /// An image in its turn of an epoch, whose class has level 0.
    #[must_use]
    pub fn new(index: u32, seed: u64, epoch: u64) -> Self {
        Self { index, example: Example { seed, epoch, example: index.into() }, level: 0 }
    }

    /// The images at these indices in their turn of an epoch.
    pub(super) fn all(indices: &[u32], seed: u64, epoch: u64) -> Vec<Self> {
        indices.iter().map(|index| Self::new(*index, seed, epoch)).collect()
    }
}
