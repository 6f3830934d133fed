//! `effective-number`: weights every class by the inverse of its effective number of images.
//!
//! # Equation
//! ```text
//! L = sum_i w_{y_i} CE(z_i, y_i) / sum_i w_{y_i},   w_c = (1 - beta) / (1 - beta^n_c), scaled to the sum C
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c (in the whole dataset, never in the batch), C the number of classes,
//! CE the cross-entropy.
//!
//! # Paper
//! Cui et al. 2019: Cui, Jia, Lin, Song, Belongie, "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019,
//! <https://arxiv.org/abs/1901.05555>.
//!
//! # Differs
//! The published code divides by the batch size (`reduction: batch`). The default divides by the weights of the batch's
//! examples. 1 - beta^n is computed as -expm1(n ln beta), which is exact for beta near 1. A class without images has
//! weight 0.
//!
//! # Reduces to
//! `softmax` for beta 0 or equal counts; `class-balanced` (power 1) for beta -> 1.
//!
//! # Choosing
//! beta 0.9999 for datasets of the size of CIFAR, 0.999 for ImageNet and iNaturalist. A larger beta is closer to inverse
//! frequency.

use super::shared::weighted::{Reduction, Weighted};
use crate::config::Preset;
use crate::counts::Counts;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `effective-number`.
    pub struct EffectiveNumberConfig for EffectiveNumber {
        /// Base of the effective number, at least 0 and less than 1: each further image adds beta times what the one before did.
        pub beta: f64 = 0.9999, where |x| (0.0..1.0).contains(&x) => "at least 0 and less than 1";
        /// What the weighted sum is divided by: weights (of the batch's examples) or batch (their number).
        pub reduction: Reduction = Reduction::Weights;
    }
}

impl Parameters for EffectiveNumberConfig {
    type Method = EffectiveNumber;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { reduction: Reduction::Batch, ..Self::default() },
            Preset::Reference | Preset::Printed | Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, counts: &Counts) -> EffectiveNumber {
        Weighted { weights: counts.effective_number(self.beta), reduction: self.reduction }
    }
}

/// Cross-entropy weighted by the effective number of images.
pub(crate) type EffectiveNumber = Weighted;
