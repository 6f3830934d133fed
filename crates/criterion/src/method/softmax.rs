//! `softmax`: plain cross-entropy, the baseline every other criterion is measured against.
//!
//! # Equation
//! ```text
//! L = (1 - e) CE(z, y) + e mean_j(-ln p_j),  CE(z, y) = lse(z) - z_y
//! dL/dz_j = p_j - (1 - e) [j = y] - e / C
//! ```
//!
//! # Symbols
//! z are the logits, y is the label, lse the log-sum-exp, p = softmax(z), C the number of classes, e is `smoothing`. The
//! loss of a batch is the mean over its examples.
//!
//! # Paper
//! Folklore: the row "Softmax" of the GHM-CWAP paper. Label smoothing: Szegedy et al., "Rethinking the Inception
//! Architecture for Computer Vision", CVPR 2016, <https://arxiv.org/abs/1512.00567>.
//!
//! # Differs
//! Nothing.
//!
//! # Reduces to
//! ln C when all logits are equal.
//! `label-aware-smoothing` with head = tail is the same with a smoothing of `tail`.
//!
//! # Choosing
//! Use it to see what the imbalance costs. On balanced data it is all you need. A smoothing of 0.1 is usual in long runs;
//! it calibrates probabilities and does nothing for the balance.

use crate::counts::Counts;
use crate::kernel::rows::{BatchPass, WeightedLoss};
use crate::margin::NoMargin;
use crate::method::Method;
use crate::method::label_aware_smoothing::LabelAwareSmoothing;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `softmax`.
    pub struct SoftmaxConfig for Softmax {
        /// Label smoothing, 0 to 1, as in PyTorch's `CrossEntropyLoss`.
        pub smoothing: f64 = 0.0, where |x| (0.0..=1.0).contains(&x) => "from 0 to 1";
    }
}

impl Parameters for SoftmaxConfig {
    type Method = Softmax;
    const CORRECTS_FOR_COUNTS: bool = false;
    fn build(&self, counts: &Counts) -> Softmax {
        let smoothed = || LabelAwareSmoothing::uniform(self.smoothing, counts.classes());
        Softmax { smoothed: (self.smoothing > 0.0).then(smoothed) }
    }
}

/// Cross-entropy.
#[derive(Clone, Debug)]
pub(crate) struct Softmax {
    /// What computes the rows with label smoothing.
    smoothed: Option<LabelAwareSmoothing>,
}

impl Method for Softmax {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        match &self.smoothed {
            Some(smoothed) => smoothed.rows(pass),
            None => pass.fused(&NoMargin(|term: &_| WeightedLoss::cross_entropy(term))),
        }
    }
}
