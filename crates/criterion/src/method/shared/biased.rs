//! Cross-entropy of a_j z_j + b_j: shared by `balanced-softmax`, `logit-adjusted`, `vs` and `cdt`.

use crate::kernel::rows::{BatchPass, LabelTerm, SoftmaxMethod, WeightedLoss};
use crate::kernel::shape::{Affine, Bias};
use crate::method::Method;

/// Cross-entropy of z + b.
#[derive(Clone, Debug)]
pub(crate) struct Biased {
    /// The offset b of every class, padded to whole lanes.
    pub(crate) bias: Vec<f32>,
}

impl SoftmaxMethod for Biased {
    type Shape<'a> = Bias<'a>;
    fn shape<'a>(&'a self, term: &LabelTerm, _row: &'a mut Vec<f32>) -> Bias<'a> {
        Bias::new(&self.bias, self.bias[term.label])
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        WeightedLoss::cross_entropy(term)
    }
}

impl Method for Biased {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(self);
    }
}

/// Cross-entropy of a z + b.
#[derive(Clone, Debug)]
pub(crate) struct ScaledAndBiased {
    /// The factor a of every class, padded to whole lanes.
    pub(crate) slope: Vec<f32>,
    /// The offset b of every class, padded to whole lanes.
    pub(crate) bias: Vec<f32>,
}

impl SoftmaxMethod for ScaledAndBiased {
    type Shape<'a> = Affine<'a>;
    fn shape<'a>(&'a self, term: &LabelTerm, _row: &'a mut Vec<f32>) -> Affine<'a> {
        Affine { slope: &self.slope, bias: &self.bias, label: term.label }
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        WeightedLoss::cross_entropy(term)
    }
}

impl Method for ScaledAndBiased {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(self);
    }
}
