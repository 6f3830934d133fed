//! `effective-number`: weights every class by the inverse of its effective number of images.
//!
//! # Equation
//! ```text
//! L = sum_i w_{y_i} CE(z_i, y_i) / sum_i w_{y_i},   w_c = (1 - beta) / (1 - beta^n_c), scaled to the sum C
//! ```
//!
//! # Symbols
//! n_c training images of class c (of the whole set, never of the batch), C classes, CE cross-entropy.
//!
//! # Paper
//! Cui et al. 2019: Cui, Jia, Lin, Song, Belongie, "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019,
//! <https://arxiv.org/abs/1901.05555>.
//!
//! # Differs
//! The published code divides by the batch (`reduction: batch`); the default divides by the weights that were drawn.
//! 1 - beta^n is computed as -expm1(n ln beta), exact for beta near 1. A class without images has weight 0.
//!
//! # Reduces to
//! `softmax` for beta 0 or equal counts; `class-balanced` (power 1) for beta -> 1.
//!
//! # Choosing
//! beta 0.9999 for CIFAR-sized sets, 0.999 for ImageNet and iNaturalist: the larger, the closer to inverse frequency.

use super::weighted::{Reduction, Weighted};
use crate::config::Preset;
use crate::counts::Counts;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `effective-number`.
    pub struct EffectiveNumberConfig for EffectiveNumber {
        /// How much an additional image still adds, at least 0 and less than 1.
        pub beta: f64 = 0.9999, where |x| (0.0..1.0).contains(&x) => "at least 0 and less than 1";
        /// What the weighted sum is divided by: weights (drawn in this batch) or batch (examples).
        pub reduction: Reduction = Reduction::Weights;
    }
}

impl Parameters for EffectiveNumberConfig {
    type Method = EffectiveNumber;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { reduction: Reduction::Batch, ..Self::default() },
            Preset::Reference | Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, counts: &Counts) -> EffectiveNumber {
        Weighted { weights: counts.effective_number(self.beta), reduction: self.reduction }
    }
}

/// Cross-entropy weighted by the effective number of images.
pub(crate) type EffectiveNumber = Weighted;
