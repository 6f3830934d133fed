//! `balanced-softmax`: adds ln n to the logits in training, so that the network need not learn the class sizes.
//!
//! # Equation
//! ```text
//! L = CE(z + ln n, y)
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c, CE the cross-entropy.
//!
//! # Paper
//! Ren et al. 2020: Ren, Yu, Sheng, Ma, Zhao, Yi, Li, "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020,
//! <https://arxiv.org/abs/2007.10740>.
//!
//! # Differs
//! The paper's meta sampler is left out. The code uses shares n_c / n for the counts, which changes nothing. A class
//! without images counts as having one.
//!
//! # Reduces to
//! `softmax` for equal counts. It equals `logit-adjusted` with tau 1.
//!
//! # Choosing
//! It is the default: no parameters, and the best known here over 40 and 200 epochs (docs/results.md, "What to choose"). A
//! method that does not beat it needs another reason to exist.

use super::shared::biased::Biased;
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
