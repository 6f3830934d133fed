//! `class-balanced`: weights every class by the inverse of its size, or of a power of it.
//!
//! # Equation
//! ```text
//! L = sum_i w_{y_i} CE(z_i, y_i) / sum_i w_{y_i},   w_c = n_c^-power, scaled to the sum C
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c, C the number of classes, CE the cross-entropy.
//!
//! # Paper
//! Folklore: the row "Class balanced" of the GHM-CWAP paper. The square root (power 0.5) is from Mahajan et al., "Exploring
//! the Limits of Weakly Supervised Pretraining", ECCV 2018, <https://arxiv.org/abs/1805.00932>.
//!
//! # Differs
//! `reduction: weights` divides by the weights of the batch's examples, so that the size of the gradient does not depend
//! on which classes a batch happens to hold. `reduction: batch` divides by the batch size, as published code does, which
//! on CIFAR-10-LT (imbalance 100) lowers the effective learning rate six-fold. A class without images has weight 0.
//!
//! # Reduces to
//! `softmax` for power 0 or equal counts.
//!
//! # Choosing
//! power 1, plain inverse frequency, often overshoots on steep tails, where one rare image counts as a hundred. The
//! default 0.5 is gentler.

use super::shared::weighted::{Reduction, Weighted};
use crate::config::Preset;
use crate::counts::Counts;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `class-balanced`.
    pub struct ClassBalancedConfig for ClassBalanced {
        /// Exponent k of n^-k, 0 to 10: 1 is inverse frequency, 0.5 its square root.
        pub power: f64 = 0.5, where |x| (0.0..=10.0).contains(&x) => "from 0 to 10";
        /// What the weighted sum is divided by: weights (of the batch's examples) or batch (their number).
        pub reduction: Reduction = Reduction::Weights;
    }
}

impl Parameters for ClassBalancedConfig {
    type Method = ClassBalanced;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { power: 1.0, reduction: Reduction::Batch },
            Preset::Reference | Preset::Printed => Self { power: 1.0, ..Self::default() },
            Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, counts: &Counts) -> ClassBalanced {
        Weighted { weights: counts.inverse_power(self.power), reduction: self.reduction }
    }
}

/// Cross-entropy weighted by n^-power.
pub(crate) type ClassBalanced = Weighted;
