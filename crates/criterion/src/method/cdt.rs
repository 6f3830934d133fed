//! `cdt`: class-dependent temperatures, which make the network push harder for small classes.
//!
//! # Equation
//! ```text
//! L = CE(z / Delta, y),   Delta_c = (n_max / n_c)^gamma
//! ```
//!
//! # Symbols
//! n_c is the number of training images of class c, n_max the largest of them, CE the cross-entropy. Evaluation uses the
//! raw logits.
//!
//! # Paper
//! Ye et al. 2020: Ye, Chen, Zhan, Chao, "Identifying and Compensating for Feature Deviation in Imbalanced Deep Learning", 2020,
//! <https://arxiv.org/abs/2001.01385>.
//!
//! # Differs
//! Nothing. A class without images counts as having one.
//!
//! # Reduces to
//! `softmax` for gamma 0 or equal counts. It equals `vs` with tau 0.
//!
//! # Choosing
//! The paper's tables use gamma 0.1 to 0.4, smaller for steeper tails.

use super::shared::biased::ScaledAndBiased;
use crate::counts::{Counts, table};
use crate::parameters::{Parameters, parameters};

parameters! {
    /// Parameters of `cdt`.
    pub struct CdtConfig for Cdt {
        /// Exponent of the temperature, 0 to 10.
        pub gamma: f64 = 0.3, where |x| (0.0..=10.0).contains(&x) => "from 0 to 10";
    }
}

impl Parameters for CdtConfig {
    type Method = Cdt;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn build(&self, counts: &Counts) -> Cdt {
        ScaledAndBiased {
            slope: table(counts.relative_power(self.gamma), 1.0),
            bias: table(counts.iter().map(|_| 0.0), 0.0),
        }
    }
}

/// Cross-entropy of z / Delta.
pub(crate) type Cdt = ScaledAndBiased;
