//! `focal`: lowers the weight of examples that are already classified well.
//!
//! # Equation
//! ```text
//! L = (1 - p_y)^gamma CE(z, y)
//! dL/dz_j = k (p_j - [j = y]),   k = (1 - p_y)^gamma + gamma (1 - p_y)^(gamma - 1) p_y CE
//! ```
//!
//! # Symbols
//! p = softmax(z), and CE = -ln p_y is the cross-entropy.
//!
//! # Paper
//! Lin et al. 2017: Lin, Goyal, Girshick, He, Dollar, "Focal Loss for Dense Object Detection", ICCV 2017,
//! <https://arxiv.org/abs/1708.02002>.
//!
//! # Differs
//! This is the softmax form that long-tail papers use. The paper's detector has a sigmoid per class. The factor
//! (1 - p_y)^gamma carries gradient. p_y comes from the logits alone: a class weight never enters it.
//!
//! # Reduces to
//! `softmax` for gamma 0.
//!
//! # Choosing
//! Long-tail tables use gamma 1, detection 2. It balances difficulty, not class sizes: expect little for rare classes.

use crate::counts::Counts;
use crate::kernel::rows::{BatchPass, LabelTerm, WeightedLoss};
use crate::margin::NoMargin;
use crate::method::Method;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `focal`.
    pub struct FocalConfig for Focal {
        /// Focusing exponent, 0 (cross-entropy) to 100.
        pub gamma: f64 = 1.0, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
    }
}

impl Parameters for FocalConfig {
    type Method = Focal;
    const CORRECTS_FOR_COUNTS: bool = false;
    fn build(&self, _counts: &Counts) -> Focal {
        Focal { gamma: self.gamma }
    }
}

/// Cross-entropy times (1 - p_y)^gamma.
#[derive(Clone, Debug)]
pub(crate) struct Focal {
    gamma: f64,
}

impl Method for Focal {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        let gamma = self.gamma;
        pass.fused(&NoMargin(|term: &LabelTerm| {
            let (ce, one_minus_p) = (term.sums.adjusted.cross_entropy(), term.sums.adjusted.one_minus_p());
            let weight = one_minus_p.powf(gamma);
            // (1-p)^(g-1) CE is (1-p)^g times CE / (1-p), and CE / (1-p) -> 1 for p -> 1: nothing is singular
            let ratio = if one_minus_p > 0.0 { ce / one_minus_p } else { 1.0 };
            let scale = weight + gamma * weight * ratio * (-ce).exp();
            WeightedLoss { loss: weight * ce, weight, scale, ..WeightedLoss::default() }
        }));
    }
}
