//! `drw`: deferred re-weighting, a schedule on top of any criterion.
//!
//! # Equation
//! ```text
//! epoch <  start:  L
//! epoch >= start:  sum_i e_{y_i} L_i / sum_i e_{y_i},   e_c = (1 - beta) / (1 - beta^n_c), scaled to the sum C
//! ```
//!
//! # Symbols
//! L_i loss of an example under the criterion below, n_c training images of class c.
//!
//! # Paper
//! Cao et al. 2019: Cao, Wei, Gaidon, Arechiga, Ma, "Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss", NeurIPS
//! 2019, <https://arxiv.org/abs/1906.07413>.
//!
//! # Differs
//! Nothing with `reduction: weights`, as the published code; `batch` divides by the number of examples instead.
//! A criterion that has class weights of its own keeps them: the two multiply, also in the denominator.
//!
//! # Reduces to
//! The criterion below before `start`, and always for `beta: 0` or equal counts.
//!
//! # Choosing
//! `start` at 80 % of the epochs (160 of 200), where the learning rate drops.

use crate::config::Field;
use crate::counts::Counts;
use crate::error::ConfigError;
use crate::method::weighted::Reduction;
use crate::page::Page;
use serde::{Deserialize, Serialize};

/// Parameters of deferred re-weighting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrwConfig {
    /// First epoch (from 0) with weights.
    pub start: u64,
    /// Of the effective number of images, at least 0 and less than 1.
    #[serde(default = "default_beta")]
    pub beta: f64,
    /// What the weighted sum is divided by.
    #[serde(default)]
    pub reduction: Reduction,
}

impl From<u64> for DrwConfig {
    /// From this epoch on, with the usual weights.
    fn from(start: u64) -> Self {
        Self { start, beta: default_beta(), reduction: Reduction::default() }
    }
}

fn default_beta() -> f64 {
    0.9999
}

impl DrwConfig {
    /// Parameters, as shown to a person.
    pub const FIELDS: &'static [Field] = &[
        Field { name: "start", doc: "First epoch (from 0) with weights." },
        Field { name: "beta", doc: "Of the effective number of images, at least 0 and less than 1." },
        Field { name: "reduction", doc: "What the weighted sum is divided by: weights or batch." },
    ];

    /// What this file says about it.
    #[must_use]
    pub fn page() -> Page {
        Page::of(include_str!("drw.rs"))
    }

    /// Weights from `start` on, with the usual beta.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self { start, beta: default_beta(), reduction: Reduction::Weights }
    }
}

/// The schedule with its class weights.
#[derive(Clone, Debug)]
pub(crate) struct Drw {
    pub(crate) start: u64,
    pub(crate) weights: Vec<f64>,
    pub(crate) reduction: Reduction,
}

impl Drw {
    pub(crate) fn new(config: &DrwConfig, method: crate::Id, counts: &Counts) -> Result<Self, ConfigError> {
        if !(0.0..1.0).contains(&config.beta) {
            let want = "at least 0 and less than 1";
            return Err(ConfigError::Range { method, field: "drw.beta", value: config.beta, want });
        }
        Ok(Self { start: config.start, weights: counts.effective_number(config.beta), reduction: config.reduction })
    }
}
