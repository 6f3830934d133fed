//! The result of a run: `result.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::metrics::Metrics;

/// The split that the best epoch of a run was selected on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectionSplit {
    /// The validation split.
    Val,
    /// The test split, which makes the accuracy of the best epoch optimistic.
    Test,
}

impl SelectionSplit {
    /// The epoch that is selected on this split, in words.
    #[must_use]
    pub fn best_epoch(self) -> &'static str {
        match self {
            Self::Val => "best epoch on the validation split",
            Self::Test => "best epoch on the test set (optimistic)",
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Name of the dataset.
    pub dataset: String,
    /// Imbalance factor of the long-tailed subset, if one was drawn.
    pub imbalance: Option<f64>,
    /// Name of the criterion.
    pub criterion: String,
    /// Parameters of the criterion.
    pub params: Value,
    /// Deferred re-weighting, if it was used.
    pub drw: Option<Value>,
    /// Temperature tau of the logit adjustment after training; 0 means none.
    #[serde(default)]
    pub logit_adjustment: f64,
    /// Name of the network.
    pub model: String,
    /// Number format of activations and products; `None` in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Seed of everything random except the subset.
    pub seed: u64,
    /// Seed of the subset.
    pub subset_seed: u32,
    /// Planned number of epochs.
    pub epochs: u64,
    /// Schedule of the learning rate.
    pub schedule: Value,
    /// Training images per class.
    pub train_counts: Vec<u64>,
    /// Metrics after the last epoch.
    pub last: Option<EpochMetrics>,
    /// Metrics after the best epoch, if one was selected.
    pub best: Option<EpochMetrics>,
    /// The split that the best epoch was selected on; `None` if no epoch was selected.
    pub best_selected_on: Option<SelectionSplit>,
    /// Whether the run stopped early because nothing improved.
    pub stopped_early: bool,
    /// What users should know about the run, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Images per second in training alone.
    pub images_per_second: f64,
    /// Duration of the whole run.
    pub seconds: f64,
    /// Peak memory of the process in MiB, where the system reports it.
    pub peak_mb: Option<u64>,
    /// The processor, its instruction set and the number of threads; `None` in results of older versions.
    #[serde(default)]
    pub machine: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Commit that the program was built from.
    pub commit: String,
}

/// How the warning of a run begins that has diverged to values that are finite.
pub const DIVERGED: &str = "the run has diverged";

impl RunResult {
    /// The metrics to report: those of the epoch selected on a validation split, else of the last epoch. An epoch
    /// selected on the test split is never reported.
    #[must_use]
    pub fn reported(&self) -> Option<&EpochMetrics> {
        self.best.as_ref().filter(|_| !self.selected_on_test()).or(self.last.as_ref())
    }

    /// What the result warns of if training has diverged to values that are finite.
    #[must_use]
    pub fn divergence(&self) -> Option<&str> {
        self.warnings.iter().map(String::as_str).find(|warning| warning.starts_with(DIVERGED))
    }

    /// Whether the best epoch was selected on the test split.
    #[must_use]
    pub fn selected_on_test(&self) -> bool {
        self.best_selected_on == Some(SelectionSplit::Test)
    }
}

/// The test metrics of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Metrics on the test split.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Balanced accuracy on the validation split.
    pub val_balanced: Option<f64>,
}
