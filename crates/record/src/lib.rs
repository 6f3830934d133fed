//! What a training run writes down: the types behind the files of its folder.
//!
//! The trainer writes them and the report reads them; neither has to know the other. What cannot be said is `None`, never 0.
//! Files of older versions lack some fields: those have defaults.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Every setting of a run, in TOML. A folder with it is that of a run.
pub const CONFIG: &str = "config.toml";
/// An [`Epoch`] per line, in JSON.
pub const METRICS: &str = "metrics.jsonl";
/// A [`Norms`] per line, in JSON.
pub const NORMS: &str = "norms.jsonl";
/// A [`Time`] per line, in JSON. The only one of these files that is not the same for every run with the same settings.
pub const TIMES: &str = "times.jsonl";
/// A [`Details`], in JSON.
pub const DETAILS: &str = "details.json";
/// An [`Outcome`], in JSON.
pub const RESULT: &str = "result.json";
/// The page made from all of them.
pub const REPORT: &str = "report.html";

/// What [`Outcome::best_is`] says of an epoch that the test set has chosen.
pub const BEST_ON_TEST: &str = "the best epoch on the test set: an optimistic figure";

/// What an evaluation found. Accuracies, F1 and calibration are in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of the images that were predicted right.
    pub top1: Option<f64>,
    /// Share of the images whose class is among the five largest logits; `None` below six classes, where it says
    /// nothing.
    pub top5: Option<f64>,
    /// Mean accuracy of the classes that have test images.
    pub balanced: Option<f64>,
    /// Mean F1 of the classes that have test images.
    pub macro_f1: Option<f64>,
    /// Expected calibration error: mean distance of accuracy and confidence over 15 equal bins of the confidence (a bin
    /// has its upper end), weighted by their images. Without unusable images.
    pub calibration: Option<f64>,
    /// Mean cross-entropy. Without unusable images; `None` also where the sum of the losses is 2^88 or more.
    pub loss: Option<f64>,
    /// Images with a logit that is NaN or infinite: misses without a prediction.
    #[serde(default)]
    pub unusable: u64,
    /// The groups' accuracies, in the order of the groups.
    pub groups: Vec<GroupMetric>,
    /// Each class's counts, in the order of the classes.
    pub per_class: Vec<ClassMetric>,
}

/// Accuracy of a group of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupMetric {
    /// The group's name.
    pub name: String,
    /// Number of its classes, with those that have no test images.
    pub classes: usize,
    /// Mean accuracy, in percent, of those of its classes that have test images, each counting the same; `None` if
    /// there are none.
    pub accuracy: Option<f64>,
}

/// Counts of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassMetric {
    /// The class's name.
    pub name: String,
    /// Its training images.
    pub train: u64,
    /// Its test images.
    pub test: u64,
    /// Those of them that were predicted right.
    pub hits: u64,
    /// Test images of any class that were predicted to be of this one.
    pub predicted: u64,
}

impl ClassMetric {
    /// Share of the class's images that were predicted right.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        (self.test > 0).then(|| self.hits as f64 / self.test as f64)
    }

    /// 2 TP / (2 TP + FP + FN), where TP + FP is what was predicted and TP + FN what was there.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        (self.test > 0).then(|| 2.0 * self.hits as f64 / (self.predicted as f64 + self.test as f64))
    }
}

/// What is noted of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// From 1.
    pub epoch: u64,
    /// Learning rate of its last step.
    pub learning_rate: f64,
    /// Mean loss of its steps.
    pub loss: f64,
    /// On the validation part, if there is one and it was looked at.
    pub val: Option<Metrics>,
    /// On the test set, if it was looked at.
    pub test: Option<Metrics>,
}

/// How long an epoch took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// From 1.
    pub epoch: u64,
    /// With its evaluation and its checkpoint, as far as this process did it.
    pub seconds: f64,
    /// In training alone.
    pub images_per_second: f64,
    /// When it ended, in seconds since 1970.
    pub at: f64,
}

/// The gradient norms g = 1 - p_y that the examples of an epoch had in training, and what the criterion made of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// From 1.
    pub epoch: u64,
    /// Of the largest class, a middle one, the smallest one, and all classes.
    pub views: Vec<View>,
    /// The criterion's margin on the logit of a view's class (second) for a label of another's (first), as the next epoch
    /// begins with it; empty where the criterion has no margins of this kind.
    pub margins: Vec<Vec<f64>>,
}

/// Gradient norms of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The class; `None`: all of them.
    pub class: Option<u32>,
    /// Examples by gradient norm, in bins of the same width over [0, 1]. Mixed ones are in none.
    pub counts: Vec<u64>,
    /// Mean weight that the examples of each bin had in this epoch.
    pub weights: Vec<Option<f32>>,
    /// What `cwap` has found in this epoch.
    pub regions: Option<Regions>,
}

/// The regions of a class of `cwap`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regions {
    /// Effective size S.
    pub size: f64,
    /// Widths d of the regions.
    pub widths: Vec<f64>,
    /// Densities v.
    pub values: Vec<f64>,
    /// Weights W of the next epoch.
    pub weights: Vec<f64>,
}

/// More about the evaluation that a run's figures are from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Whose weights were evaluated.
    pub epoch: u64,
    /// The groups, in order.
    pub groups: Vec<Members>,
    /// Images by the group of their class (first) and the group of the class that they were predicted to be (second).
    pub confusion: Vec<Vec<u64>>,
    /// The largest confusions between classes, the largest first.
    pub confused: Vec<Confused>,
    /// By group, predictions of about the same confidence: equal bins of (0, 1], each with its upper end.
    pub reliability: Vec<Vec<Bin>>,
    /// Images of the smallest classes that were predicted wrongly and worst, class by class.
    pub hardest: Vec<Hard>,
}

/// A group's classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Its name.
    pub name: String,
    /// Its classes, the largest first.
    pub classes: Vec<usize>,
}

/// Images of one class that were predicted to be of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confused {
    /// Their class.
    pub class: u32,
    /// The class that they were predicted to be.
    pub said: u32,
    /// How many.
    pub images: u64,
}

/// Predictions of about the same confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// How many.
    pub images: u64,
    /// Those that were right.
    pub hits: u64,
    /// Mean confidence; 0 without images.
    pub confidence: f64,
}

/// A test image that was predicted badly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hard {
    /// Its file, or its number.
    pub name: String,
    /// Its class.
    pub class: u32,
    /// What it was predicted to be.
    pub said: u32,
    /// Probability of that.
    pub confidence: f64,
    /// Probability of its own class.
    pub own: f64,
    /// A small picture: a PNG file in base 64.
    pub picture: Option<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The set's name.
    pub dataset: String,
    /// Imbalance factor of the subset, if it was one.
    pub imbalance: Option<f64>,
    /// The criterion's name.
    pub criterion: String,
    /// Its parameters.
    pub params: Value,
    /// Deferred re-weighting.
    pub drw: Option<Value>,
    /// Tau of the logit adjustment after training; 0: none.
    #[serde(default)]
    pub logit_adjust: f64,
    /// The network's name.
    pub model: String,
    /// Of everything random, except for the choice of a subset.
    pub seed: u64,
    /// Of that choice.
    pub subset_seed: u32,
    /// Epochs that were planned.
    pub epochs: u64,
    /// How the learning rate changed.
    pub schedule: Value,
    /// Training images per class.
    pub train_counts: Vec<u64>,
    /// After the last epoch.
    pub last: Option<Figures>,
    /// After the best one, if one was chosen.
    pub best: Option<Figures>,
    /// Which one that is.
    pub best_is: String,
    /// Whether nothing got better for so long that it was stopped.
    pub ended_early: bool,
    /// In training alone.
    pub images_per_second: f64,
    /// All of it.
    pub seconds: f64,
    /// Most memory that the process had, where the system tells.
    pub peak_mb: Option<u64>,
    /// Of the processor, and how much of it was used; `None` in results of older versions.
    #[serde(default)]
    pub machine: Option<String>,
    /// Of the program.
    pub version: String,
    /// It was built from.
    pub commit: String,
}

impl Outcome {
    /// The figures to report: those of the epoch that a validation part has chosen, else of the last. Never what the test set
    /// has chosen.
    #[must_use]
    pub fn reported(&self) -> Option<&Figures> {
        self.best.as_ref().filter(|_| !self.chosen_on_test()).or(self.last.as_ref())
    }

    /// Whether the best epoch was chosen on the test set.
    #[must_use]
    pub fn chosen_on_test(&self) -> bool {
        self.best_is == BEST_ON_TEST
    }
}

/// What an evaluation after some epoch found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From 1.
    pub epoch: u64,
    /// On the test set.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Balanced accuracy on the validation part.
    pub val_balanced: Option<f64>,
}
