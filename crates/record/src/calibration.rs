//! The calibration of a run: `calibration.json`.

use serde::{Deserialize, Serialize};

use crate::details::ReliabilityBin;

/// What images that were not trained on tell about a network's logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Epoch of the weights.
    pub epoch: u64,
    /// Optimizer steps of the weights, by which they are recognized.
    pub steps: u64,
    /// The images in words, such as `validation images`.
    pub source: String,
    /// Temperature of the probabilities; 1 if there are too few images to fit one.
    pub temperature: f64,
    /// What the temperature rests on.
    #[serde(default)]
    pub fit: TemperatureFit,
    /// Every image.
    pub images: CalibrationImages,
    /// What the temperature makes of the test images, if there are any.
    #[serde(default)]
    pub test: Option<BeforeAndAfter>,
    /// What prediction sets and rejections do on the test images, if there are enough calibration images for them.
    #[serde(default)]
    pub decisions: Decisions,
}

impl Calibration {
    /// Whether the temperature was fitted, so that probabilities differ from those of the network.
    #[must_use]
    pub fn is_fitted(&self) -> bool {
        self.fit != TemperatureFit::TooFewImages
    }
}

/// What the temperature of a calibration rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TemperatureFit {
    /// It was fitted.
    #[default]
    Fitted,
    /// It was fitted, and the best one lies beyond the range that is considered.
    AtBound,
    /// There are too few images: it is 1.
    TooFewImages,
}

/// The calibration images, a list entry for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationImages {
    /// Classes.
    pub labels: Vec<u32>,
    /// Predicted classes.
    pub predicted: Vec<u32>,
    /// Largest logits.
    pub scores: Vec<f32>,
    /// Probabilities of the classes in `labels`, for equally frequent classes and with the temperature.
    pub probabilities: Vec<f32>,
}

impl CalibrationImages {
    /// Number of images; `None` if the lists do not belong together or hold impossible values.
    #[must_use]
    pub fn number(&self) -> Option<usize> {
        let n = self.labels.len();
        let lengths = [self.predicted.len(), self.scores.len(), self.probabilities.len()];
        let valid =
            self.probabilities.iter().all(|p| (0.0..=1.0).contains(p)) && self.scores.iter().all(|z| z.is_finite());
        (valid && lengths == [n; 3]).then_some(n)
    }
}

/// Prediction sets and rejections of the test images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// Prediction sets.
    pub sets: Option<SetCounts>,
    /// Rejections.
    pub rejections: Option<RejectionCounts>,
}

/// Prediction sets, counted by class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetCounts {
    /// Share of the images whose set may miss their class.
    pub alpha: f64,
    /// Every class: images, images whose set holds their class, sum of the sizes of their sets.
    pub classes: Vec<[u64; 3]>,
}

/// Rejections, counted by class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RejectionCounts {
    /// Share of the right answers that may be rejected.
    pub rate: f64,
    /// Every class: right answers, rejected right answers, wrong answers, rejected wrong answers.
    pub classes: Vec<[u64; 4]>,
}

/// Probabilities without and with the temperature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeforeAndAfter {
    /// At temperature 1.
    pub before: ProbabilityFigures,
    /// At the temperature of the calibration.
    pub after: ProbabilityFigures,
}

/// How good the probabilities of some images are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbabilityFigures {
    /// Mean cross-entropy of the images.
    pub loss: Option<f64>,
    /// Mean over the classes of their mean cross-entropy.
    pub balanced_loss: Option<f64>,
    /// Expected calibration error, in percent.
    pub calibration: Option<f64>,
    /// Reliability of each group, as in [`EvaluationDetails`](crate::EvaluationDetails).
    pub reliability: Vec<Vec<ReliabilityBin>>,
    /// Every class.
    pub classes: Vec<ClassProbabilities>,
}

/// How good the probabilities of a class's images are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassProbabilities {
    /// Number of images.
    pub images: u64,
    /// Number of correct predictions.
    pub hits: u64,
    /// Mean confidence; 0 without images.
    pub confidence: f64,
    /// Mean cross-entropy; 0 without images.
    pub loss: f64,
}
