//! Cross-entropy with a weight per class: shared by `class-balanced` and `effective-number`.

use serde::{Deserialize, Serialize};

use crate::kernel::rows::{BatchPass, LabelTerm, WeightedLoss};
use crate::margin::NoMargin;
use crate::method::Method;

/// What a weighted sum of losses is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// The sum of the weights of the batch's examples: a weighted mean.
    #[default]
    Weights,
    /// The number of examples.
    Batch,
}

/// Cross-entropy times the class's weight.
#[derive(Clone, Debug)]
pub(crate) struct Weighted {
    pub(crate) weights: Vec<f64>,
    pub(crate) reduction: Reduction,
}

impl Method for Weighted {
    fn divisor(&self) -> Option<&[f64]> {
        (self.reduction == Reduction::Weights).then_some(&self.weights)
    }

    fn ignores_empty_classes(&self) -> bool {
        true
    }

    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(&NoMargin(|term: &LabelTerm| {
            WeightedLoss::constant(self.weights[term.label], term.sums.adjusted.cross_entropy())
        }));
    }
}
