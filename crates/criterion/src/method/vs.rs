//! `vs`: scales and shifts the logits of each class in training (vector scaling).
//!
//! # Equation
//! ```text
//! L = CE(z / Delta + tau ln pi, y),   Delta_c = (n_max / n_c)^gamma
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c, n_max the largest of them, pi_c = n_c / n, CE the cross-entropy.
//!
//! # Paper
//! Kini et al. 2021: Kini, Paraskevas, Oymak, Thrampoulidis, "Label-Imbalanced and Group-Sensitive Classification under
//! Overparameterization", NeurIPS 2021, <https://arxiv.org/abs/2103.01550>.
//!
//! # Differs
//! Nothing. A class without images counts as having one.
//!
//! # Reduces to
//! `logit-adjusted` for gamma 0, `cdt` for tau 0, `softmax` for equal counts.
//!
//! # Choosing
//! The paper's tables use gamma 0.2 to 0.3 and tau 1 to 1.25.

use super::shared::biased::ScaledAndBiased;
use crate::counts::{Counts, table};
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `vs`.
    pub struct VsConfig for Vs {
        /// Exponent of the factor, 0 to 10.
        pub gamma: f64 = 0.3, where |x| (0.0..=10.0).contains(&x) => "from 0 to 10";
        /// Strength of the offset, 0 to 100.
        pub tau: f64 = 1.0, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
    }
}

impl Parameters for VsConfig {
    type Method = Vs;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn build(&self, counts: &Counts) -> Vs {
        ScaledAndBiased {
            slope: table(counts.relative_power(self.gamma), 1.0),
            bias: table(counts.log_prior().map(|l| self.tau * l), 0.0),
        }
    }
}

/// Cross-entropy of z / Delta + tau ln pi.
pub(crate) type Vs = ScaledAndBiased;
