//! `label-aware-smoothing`: softens the targets of larger classes, against overconfidence in the head.
//!
//! # Equation
//! ```text
//! L = (1 - e_y) CE(z, y) + e_y mean_j(-ln p_j)
//! e_c = tail + (head - tail) sin(pi/2 (n_c - n_min) / (n_max - n_min))
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c, n_min and n_max the smallest and largest of them, p = softmax(z), CE
//! the cross-entropy.
//!
//! # Paper
//! Zhong et al. 2021: Zhong, Cui, Liu, Jia, "Improving Calibration for Long-Tailed Recognition" (MiSLAS), CVPR 2021,
//! <https://arxiv.org/abs/2104.00466>.
//!
//! # Differs
//! Nothing differs from the published code, which spreads the smoothed mass over all C classes, including the label. The
//! paper's equation gives e / (C - 1) to each of the others. Only the concave form is implemented. With equal counts every
//! class gets `tail`.
//!
//! # Reduces to
//! `softmax` for head = tail = 0, and ordinary label smoothing for head = tail.
//!
//! # Choosing
//! The paper uses head 0.3 to 0.4 and tail 0 to 0.1, in a second stage that retrains the classifier.

use crate::counts::Counts;
use crate::kernel::rows::{BatchPass, LabelTerm, SoftmaxMethod, WeightedLoss};
use crate::kernel::shape::WithMean;
use crate::method::Method;
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `label-aware-smoothing`.
    pub struct LabelAwareSmoothingConfig for LabelAwareSmoothing {
        /// Smoothing of the largest class, 0 to 1.
        pub head: f64 = 0.4, where |x| (0.0..=1.0).contains(&x) => "from 0 to 1";
        /// Smoothing of the smallest class, 0 to 1.
        pub tail: f64 = 0.1, where |x| (0.0..=1.0).contains(&x) => "from 0 to 1";
    }
}

impl Parameters for LabelAwareSmoothingConfig {
    type Method = LabelAwareSmoothing;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn build(&self, counts: &Counts) -> LabelAwareSmoothing {
        let (least, most) = (counts.smallest(), counts.largest());
        let rank = |n: f64| if most > least { (n - least) / (most - least) } else { 0.0 };
        let smooth = |n: f64| self.tail + (self.head - self.tail) * (rank(n) * std::f64::consts::FRAC_PI_2).sin();
        LabelAwareSmoothing { smooth: counts.iter().map(smooth).collect(), classes: counts.classes() as f64 }
    }
}

/// Cross-entropy with targets softened by class.
#[derive(Clone, Debug)]
pub(crate) struct LabelAwareSmoothing {
    smooth: Vec<f64>,
    classes: f64,
}

impl LabelAwareSmoothing {
    /// The same smoothing for every class.
    pub(super) fn uniform(smooth: f64, classes: usize) -> Self {
        Self { smooth: vec![smooth; classes], classes: classes as f64 }
    }
}

impl SoftmaxMethod for LabelAwareSmoothing {
    type Shape<'a> = WithMean;
    fn shape<'a>(&'a self, _term: &LabelTerm, _row: &'a mut Vec<f32>) -> WithMean {
        WithMean::default()
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        let (smooth, denominator) = (self.smooth[term.label], &term.sums.adjusted);
        let ce = denominator.cross_entropy();
        // mean_j(-ln p_j) = lse - mean z = CE + z_y - mean z
        let uniform = ce + denominator.label_logit - term.sums.logits / self.classes;
        WeightedLoss { loss: (1.0 - smooth) * ce + smooth * uniform, weight: 1.0, scale: 1.0, smooth, region: 0 }
    }
}

impl Method for LabelAwareSmoothing {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        pass.fused(self);
    }
}
