//! `balanced-softmax`: adds ln n to the logits while training, so that the network learns what is left.
//!
//! # Equation
//! ```text
//! L = CE(z + ln n, y)
//! ```
//!
//! # Symbols
//! n_c training images of class c, CE cross-entropy.
//!
//! # Paper
//! Ren et al. 2020: Ren, Yu, Sheng, Ma, Zhao, Yi, Li, "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020,
//! <https://arxiv.org/abs/2007.10740>.
//!
//! # Differs
//! Without the paper's meta sampler. Shares n_c / n are used for the counts, which changes nothing. A class without
//! images counts as one.
//!
//! # Reduces to
//! `softmax` for equal counts; `logit-adjusted` with tau 1 is the same.
//!
//! # Choosing
//! It has no parameters and is the strongest simple baseline: a method that does not beat it needs another reason.

use super::biased::Biased;
use crate::counts::{Counts, table};
use crate::parameters::{Parameters, parameters};

parameters! {
    /// `balanced-softmax` has no parameters.
    pub struct BalancedSoftmaxConfig for BalancedSoftmax {}
}

impl Parameters for BalancedSoftmaxConfig {
    type Method = BalancedSoftmax;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn build(&self, counts: &Counts) -> BalancedSoftmax {
        Biased { bias: table(counts.log_prior(), 0.0) }
    }
}

/// Cross-entropy of z + ln n.
pub(crate) type BalancedSoftmax = Biased;
