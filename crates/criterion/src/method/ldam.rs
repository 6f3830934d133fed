//! `ldam`: subtracts a margin from the label's logit, larger for smaller classes.
//!
//! # Equation
//! ```text
//! L = CE(s (z - m_y [j = y]), y),   m_c = max_margin n_c^(-1/4) / max_k n_k^(-1/4)
//! ```
//!
//! # Symbols
//! z are cosines from a normalized head, s is the scale, n_c the number of training images of class c, CE the
//! cross-entropy.
//!
//! # Paper
//! Cao et al. 2019: Cao, Wei, Gaidon, Arechiga, Ma, "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", NeurIPS
//! 2019, <https://arxiv.org/abs/1906.07413>.
//!
//! # Differs
//! Nothing. A class without images counts as having one. The loss does not normalize: `train` gives
//! the network a cosine head without a scale of its own.
//!
//! # Reduces to
//! `softmax` of s z for max_margin 0. With equal counts every class has the same margin.
//!
//! # Choosing
//! The paper uses scale 30 and max_margin 0.5 throughout, together with `drw`.

use crate::counts::Counts;
use crate::kernel::rows::{BatchPass, LabelTerm, SoftmaxMethod, WeightedLoss};
use crate::kernel::shape::Scaled;
use crate::method::Method;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `ldam`.
    pub struct LdamConfig for Ldam {
        /// Factor on the cosines, more than 0 and at most 1000.
        pub scale: f64 = 30.0, where |x| x > 0.0 && x <= 1000.0 => "more than 0 and at most 1000";
        /// Margin of the smallest class, 0 to 100.
        pub max_margin: f64 = 0.5, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
    }
}

impl Parameters for LdamConfig {
    type Method = Ldam;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn cosine_scale(&self) -> Option<f64> {
        Some(self.scale)
    }
    fn build(&self, counts: &Counts) -> Ldam {
        // n^(-1/4) / max_k n_k^(-1/4) = (n_min / n)^(1/4)
        let least = counts.smallest().max(1.0);
        let margins = counts.iter().map(|n| (self.max_margin * (least / n.max(1.0)).powf(0.25)) as f32).collect();
        Ldam { scale: self.scale as f32, margins }
    }
}

/// Cross-entropy of s (z - m_y).
#[derive(Clone, Debug)]
pub(crate) struct Ldam {
    scale: f32,
    margins: Vec<f32>,
}

impl SoftmaxMethod for Ldam {
    type Shape<'a> = Scaled;
    fn shape<'a>(&'a self, term: &LabelTerm, _row: &'a mut Vec<f32>) -> Scaled {
        Scaled::new(self.scale, self.margins[term.label])
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        WeightedLoss::cross_entropy(term)
    }
}

impl Method for Ldam {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(self);
    }
}
