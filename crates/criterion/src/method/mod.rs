//! The criteria, one file each.
//!
//! A new criterion is a file in this folder and two lines here: `mod` and its entry in the list.

mod balanced_softmax;
mod cdt;
mod class_balanced;
mod cwap;
mod effective_number;
mod equalization;
mod focal;
mod ghm;
mod label_aware_smoothing;
mod ldam;
mod logit_adjusted;
mod seesaw;
mod softmax;
mod vs;

mod shared;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::config::Preset;
use crate::counts::Counts;
use crate::documentation::Documentation;
use crate::error::{ConfigError, StateError};
use crate::kernel::rows::{BatchPass, Workspace};
use crate::parameters::{Declared, Field, Parameters};
use crate::registry::methods;

pub use shared::weighted::Reduction;

methods! {
    Softmax "softmax" = softmax::SoftmaxConfig;
    ClassBalanced "class-balanced" = class_balanced::ClassBalancedConfig;
    EffectiveNumber "effective-number" = effective_number::EffectiveNumberConfig;
    Focal "focal" = focal::FocalConfig;
    Ghm "ghm" = ghm::GhmConfig, state GhmState;
    Equalization "equalization" = equalization::EqualizationConfig;
    Seesaw "seesaw" = seesaw::SeesawConfig, state SeesawState;
    Cwap "cwap" = cwap::CwapConfig, state CwapState;
    BalancedSoftmax "balanced-softmax" = balanced_softmax::BalancedSoftmaxConfig;
    LogitAdjusted "logit-adjusted" = logit_adjusted::LogitAdjustedConfig;
    Vs "vs" = vs::VsConfig;
    Cdt "cdt" = cdt::CdtConfig;
    Ldam "ldam" = ldam::LdamConfig;
    LabelAwareSmoothing "label-aware-smoothing" = label_aware_smoothing::LabelAwareSmoothingConfig;
}

/// A criterion that runs. Each method's file implements it; [`Criterion`](crate::Criterion) calls it.
pub(crate) trait Method {
    /// Class weights whose sum over the batch divides the loss, for methods that are weighted means.
    fn divisor(&self) -> Option<&[f64]> {
        None
    }
    /// Whether a class without training images has weight 0.
    fn ignores_empty_classes(&self) -> bool {
        false
    }
    /// Computes the loss and gradient of every row as if the batch had been counted. Counts nothing.
    fn rows(&self, pass: &mut BatchPass<'_>);
    /// Counts the batch of `epoch` that `rows` has just seen.
    fn observe(&mut self, _epoch: u64, _workspace: &Workspace) {}
    /// Turns what the epoch has counted into what the next one uses.
    fn end_epoch(&mut self) {}
    /// The number of non-empty regions of the histogram behind the weights.
    fn regions(&self, _workspace: &Workspace) -> Option<u64> {
        None
    }
    /// The margin on the logit of `class` for examples of `label`, if it follows from what was counted.
    fn margin(&self, _label: usize, _class: usize) -> Option<f64> {
        None
    }
    /// The histogram of a class's gradient norms and the weights that follow from it.
    fn class_histogram(&self, _class: usize) -> Option<ClassHistogram> {
        None
    }
    /// Everything that was counted.
    fn state(&self) -> State {
        State::Stateless
    }
    /// Puts a state back. An error leaves the method unchanged.
    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        match state {
            State::Stateless => Ok(()),
            other => Err(StateError::Method { got: other.name(), want: "stateless" }),
        }
    }
    /// The state as `equipoise loss` prints it: an object of what another implementation can compare.
    fn state_summary(&self) -> Value {
        json!({})
    }
}

/// The gradient norms of one class in the last epoch, as regions of [0, 1], and what the next epoch makes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassHistogram {
    /// Effective size S of the class.
    pub effective_size: f64,
    /// Widths d of the regions.
    pub widths: Vec<f64>,
    /// Densities v of the regions.
    pub densities: Vec<f64>,
    /// Weights W of examples in each region. With `normalize: batch-mean` each batch scales them further.
    pub weights: Vec<f64>,
}
