//! Gradient norms of an epoch: a line of `norms.jsonl`.

use serde::{Deserialize, Serialize};

/// The gradient norms g = 1 - p_y of an epoch's training examples, and what the criterion made of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientNorms {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Gradient norms of the largest class, a middle one, the smallest one, and of all classes.
    pub views: Vec<NormView>,
    /// Margins of the criterion at the start of the next epoch: row = class of the label, column = class of the logit,
    /// for the classes of `views`. Empty if the criterion has no margins of this kind.
    pub margins: Vec<Vec<f64>>,
}

/// Gradient norms of one class, or of all classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormView {
    /// The class; `None` for all classes.
    pub class: Option<u32>,
    /// Histogram of the gradient norm, in bins of equal width over [0, 1]. Mixed examples are not counted.
    pub counts: Vec<u64>,
    /// Mean loss weight of the examples in each bin.
    pub weights: Vec<Option<f32>>,
    /// Regions of the class that `cwap` found in this epoch.
    pub regions: Option<NormRegions>,
}

/// The gradient-norm regions of a class, as `cwap` forms them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormRegions {
    /// Effective size S of the class.
    pub size: f64,
    /// Widths d of the regions.
    pub widths: Vec<f64>,
    /// Densities v of the regions.
    pub densities: Vec<f64>,
    /// Weights W of the regions in the next epoch.
    pub weights: Vec<f64>,
}
