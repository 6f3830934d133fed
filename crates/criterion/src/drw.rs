//! `drw`: deferred re-weighting, a schedule on top of any criterion.
//!
//! # Equation
//! ```text
//! epoch <  start_epoch:  L
//! epoch >= start_epoch:  sum_i e_{y_i} L_i / sum_i e_{y_i},   e_c = (1 - beta) / (1 - beta^n_c), scaled to the sum C
//! ```
//!
//! # Symbols
//! L_i is the loss of an example under the criterion below, n_c the number of training images of class c.
//!
//! # Paper
//! Cao et al. 2019: Cao, Wei, Gaidon, Arechiga, Ma, "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", NeurIPS
//! 2019, <https://arxiv.org/abs/1906.07413>.
//!
//! # Differs
//! With `reduction: weights` nothing differs from the published code; `batch` divides by the number of examples instead.
//! A criterion with class weights of its own keeps them: the two multiply, in the denominator too.
//!
//! # Reduces to
//! The criterion below before `start_epoch`, and always for `beta: 0` or equal counts.
//!
//! # Choosing
//! `start_epoch` at 80 % of the epochs (160 of 200), where the learning rate drops.

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::documentation::Documentation;
use crate::error::ConfigError;
use crate::method::{Id, Reduction};
use crate::parameters::Field;

/// Parameters of deferred re-weighting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrwConfig {
    /// First epoch (from 0) with class weights.
    pub start_epoch: u64,
    /// Base of the effective number of images, at least 0 and less than 1.
    #[serde(default = "default_beta")]
    pub beta: f64,
    /// What the weighted sum is divided by.
    #[serde(default)]
    pub reduction: Reduction,
}

fn default_beta() -> f64 {
    0.9999
}

impl DrwConfig {
    /// Descriptions of the parameters.
    pub const FIELDS: &'static [Field] = &[
        Field { name: "start_epoch", doc: "First epoch (from 0) with class weights." },
        Field { name: "beta", doc: "Base of the effective number of images, at least 0 and less than 1." },
        Field { name: "reduction", doc: "What the weighted sum is divided by: weights or batch." },
    ];

    /// The documentation at the top of this source file.
    #[must_use]
    pub fn documentation() -> Documentation {
        Documentation::parse(include_str!("drw.rs"))
    }

    /// Class weights from `start_epoch` on, with the default beta and reduction.
    #[must_use]
    pub fn new(start_epoch: u64) -> Self {
        Self { start_epoch, beta: default_beta(), reduction: Reduction::default() }
    }
}

/// The schedule with its class weights.
#[derive(Clone, Debug)]
pub(crate) struct Drw {
    pub(crate) start_epoch: u64,
    pub(crate) weights: Vec<f64>,
    pub(crate) reduction: Reduction,
}

impl Drw {
    pub(crate) fn new(config: &DrwConfig, method: Id, counts: &Counts) -> Result<Self, ConfigError> {
        let &DrwConfig { start_epoch, beta, reduction } = config;
        if !(0.0..1.0).contains(&beta) {
            let want = "at least 0 and less than 1";
            return Err(ConfigError::Range { method, field: "drw.beta", value: beta, want });
        }
        Ok(Self { start_epoch, weights: counts.effective_number(beta), reduction })
    }
}
