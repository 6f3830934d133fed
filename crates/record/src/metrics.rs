//! Metrics of an evaluation, and the records of an epoch: a line of `metrics.jsonl`, a line of `times.jsonl`.

use serde::{Deserialize, Serialize};

/// Metrics of one evaluation. Accuracies, F1 and calibration error are in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Top-1 accuracy.
    pub top1: Option<f64>,
    /// Top-5 accuracy; `None` with five classes or fewer, where it is always 100.
    pub top5: Option<f64>,
    /// Balanced accuracy: the mean recall of the classes that have images.
    pub balanced: Option<f64>,
    /// Mean F1 of the classes that have images.
    pub macro_f1: Option<f64>,
    /// Expected calibration error: the mean distance between accuracy and confidence over 15 equal bins of the
    /// confidence, weighted by images. A bin includes its upper bound. Unusable images are left out.
    pub calibration: Option<f64>,
    /// Mean cross-entropy. Unusable images are left out; `None` also if the sum of the losses is 2^88 or more.
    pub loss: Option<f64>,
    /// Images with a NaN or infinite logit. They count as errors without a prediction.
    #[serde(default)]
    pub unusable: u64,
    /// Accuracy of each group, in the order of the groups.
    pub groups: Vec<GroupAccuracy>,
    /// Counts of each class, in the order of the classes.
    pub per_class: Vec<ClassCounts>,
}

impl Metrics {
    /// The groups that tell more than all classes together: none if there is only one.
    #[must_use]
    pub fn several_groups(&self) -> &[GroupAccuracy] {
        if self.groups.len() > 1 { &self.groups } else { &[] }
    }
}

/// Accuracy of a group of classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupAccuracy {
    /// Name of the group.
    pub name: String,
    /// Number of classes in the group, including those without images.
    pub classes: usize,
    /// Mean recall, in percent, of the group's classes that have images; `None` if no class has any.
    pub accuracy: Option<f64>,
}

/// Image counts of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Name of the class.
    pub name: String,
    /// Training images of the class.
    pub train: u64,
    /// Evaluated images of the class.
    pub test: u64,
    /// Evaluated images of the class that were predicted correctly.
    pub hits: u64,
    /// Evaluated images of any class that were predicted as this class.
    pub predicted: u64,
}

impl ClassCounts {
    /// Share of the class's images that were predicted correctly.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        (self.test > 0).then(|| self.hits as f64 / self.test as f64)
    }

    /// F1 = 2 TP / (2 TP + FP + FN), where TP + FP is `predicted` and TP + FN is `test`.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        (self.test > 0).then(|| 2.0 * self.hits as f64 / (self.predicted as f64 + self.test as f64))
    }
}

/// The record of one epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Learning rate of the epoch's last step.
    pub learning_rate: f64,
    /// Mean training loss of the epoch.
    pub loss: f64,
    /// Metrics on the validation split, if there is one and the epoch was evaluated.
    pub val: Option<Metrics>,
    /// Metrics on the test split, if the epoch was evaluated.
    pub test: Option<Metrics>,
    /// Level of augmentation of each class, if it follows the difficulty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub augment_levels: Vec<u8>,
}

/// The duration of one epoch: a line of `times.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochTime {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Seconds with evaluation and checkpoint, as far as this process did them.
    pub seconds: f64,
    /// Images per second in training alone.
    pub images_per_second: f64,
    /// When the epoch ended, in seconds since 1970.
    pub ended_at: f64,
}
