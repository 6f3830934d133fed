//! `logit-adjusted`: adds tau times the log-prior to the logits in training.
//!
//! # Equation
//! ```text
//! L = CE(z + tau ln pi, y)
//! ```
//!
//! # Symbols
//! pi_c = n_c / n is the share of class c in the training images, CE the cross-entropy.
//!
//! # Paper
//! Menon et al. 2021: Menon, Jayasumana, Rawat, Jain, Veit, Kumar, "Long-tail learning via logit adjustment", ICLR 2021,
//! <https://arxiv.org/abs/2007.07314>.
//!
//! # Differs
//! Nothing. A class without images counts as having one. The paper's post-hoc form (argmax of z - tau ln pi for a network
//! trained with `softmax`) belongs to evaluation: the setting `logit_adjustment`.
//!
//! # Reduces to
//! `softmax` for tau 0 or equal counts, and `balanced-softmax` for tau 1.
//!
//! # Choosing
//! tau 1 aims at balanced accuracy. A larger tau favors the tail at the cost of the head.

use super::shared::biased::Biased;
use crate::counts::{Counts, table};
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `logit-adjusted`.
    pub struct LogitAdjustedConfig for LogitAdjusted {
        /// Strength of the adjustment, 0 to 100.
        pub tau: f64 = 1.0, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
    }
}

impl Parameters for LogitAdjustedConfig {
    type Method = LogitAdjusted;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn build(&self, counts: &Counts) -> LogitAdjusted {
        Biased { bias: table(counts.log_prior().map(|l| self.tau * l), 0.0) }
    }
}

/// Cross-entropy of z + tau ln pi.
pub(crate) type LogitAdjusted = Biased;
