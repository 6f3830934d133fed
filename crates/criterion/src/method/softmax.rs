//! `softmax`: plain cross-entropy, the baseline every other criterion is measured against.
//!
//! # Equation
//! ```text
//! L = CE(z, y) = lse(z) - z_y
//! dL/dz_j = p_j - [j = y]
//! ```
//!
//! # Symbols
//! z are the logits, y is the label, lse the log-sum-exp, p = softmax(z). The loss of a batch is the mean over its examples.
//!
//! # Paper
//! Folklore: the row "Softmax" of the GHM-CWAP paper.
//!
//! # Differs
//! Nothing.
//!
//! # Reduces to
//! ln C when all logits are equal.
//!
//! # Choosing
//! It has no parameters. Use it to see what the imbalance costs. On balanced data it is all you need.

use crate::counts::Counts;
use crate::kernel::rows::{BatchPass, WeightedLoss};
use crate::margin::NoMargin;
use crate::method::Method;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// `softmax` has no parameters.
    pub struct SoftmaxConfig for Softmax {}
}

impl Parameters for SoftmaxConfig {
    type Method = Softmax;
    const CORRECTS_FOR_COUNTS: bool = false;
    fn build(&self, _counts: &Counts) -> Softmax {
        Softmax
    }
}

/// Plain cross-entropy.
#[derive(Clone, Debug)]
pub(crate) struct Softmax;

impl Method for Softmax {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(&NoMargin(|term: &_| WeightedLoss::cross_entropy(term)));
    }
}
