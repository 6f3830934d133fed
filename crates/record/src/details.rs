//! Details of the final evaluation: `details.json`.

use serde::{Deserialize, Serialize};

/// Details of the evaluation that a run's reported metrics come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationDetails {
    /// Epoch of the evaluated weights.
    pub epoch: u64,
    /// The groups, in order.
    pub groups: Vec<GroupMembers>,
    /// Confusion of groups, in images: row = group of the true class, column = group of the predicted class.
    pub confusion: Vec<Vec<u64>>,
    /// The most frequent confusions of two classes, in descending order.
    pub confused: Vec<ConfusedPair>,
    /// Reliability of each group: equal bins of the confidence in (0, 1], each with its upper bound.
    pub reliability: Vec<Vec<ReliabilityBin>>,
    /// The hardest images of the smallest classes: wrong predictions with the highest loss, class by class.
    pub hardest: Vec<HardExample>,
}

/// The classes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMembers {
    /// Name of the group.
    pub name: String,
    /// Classes of the group, the largest first.
    pub classes: Vec<usize>,
}

/// How many images of one class were predicted as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusedPair {
    /// The true class.
    pub class: u32,
    /// The predicted class.
    pub predicted: u32,
    /// Number of images.
    pub images: u64,
}

/// Predictions of similar confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Number of predictions.
    pub images: u64,
    /// Number of correct predictions.
    pub hits: u64,
    /// Mean confidence; 0 without images.
    pub confidence: f64,
}

/// A test image with a confident wrong prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardExample {
    /// File name of the image, or its number.
    pub name: String,
    /// The true class.
    pub class: u32,
    /// The predicted class.
    pub predicted: u32,
    /// Probability of the predicted class.
    pub confidence: f64,
    /// Probability of the true class.
    pub true_probability: f64,
    /// Thumbnail: a PNG file in base 64.
    pub picture: Option<String>,
}
