//! A run folder as the report reads it. Nothing in it is trusted: missing or incomplete records are left out,
//! impossible values are errors.

mod check;
mod discover;
mod error;
mod files;
pub(crate) mod setting_keys;

use std::path::{Path, PathBuf};

use equipoise_record::names::{
    BASELINES, CALIBRATION, CONFIG, CRITERIA, DETAILS, METRICS, NORMS, POOLED, RESULT, SAMPLES, TIMES,
};
use equipoise_record::{
    BaselineResult, Calibration, EpochMetrics, EpochRecord, EpochTime, EvaluationDetails, GradientNorms, RunResult,
    TrainingSamples,
};

pub use error::ReportError;
use files::{read_epochs, read_json, read_text};
use setting_keys as keys;

/// A run as its folder records it.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    /// The run folder.
    pub path: PathBuf,
    /// Text of `config.toml`.
    pub config: String,
    /// Settings by key (`data.imbalance`), as TOML values. Settings without a value are left out.
    pub settings: Vec<(String, String)>,
    /// The criterion as tables name it, with its preset and the parameters that differ from it. Without it, labels name
    /// the parameters in which runs differ.
    pub criterion_label: Option<String>,
    /// Final result; `None` until the run has finished.
    pub result: Option<RunResult>,
    /// Metrics by epoch, in order.
    pub epochs: Vec<EpochRecord>,
    /// Gradient norms by epoch, in order; epochs may be missing.
    pub norms: Vec<GradientNorms>,
    /// Duration and speed by epoch, in order; epochs may be missing.
    pub times: Vec<EpochTime>,
    /// Confusion, calibration and hardest images of the final evaluation.
    pub details: Option<EvaluationDetails>,
    /// Calibration of the probabilities.
    pub calibration: Option<Calibration>,
    /// Training images as the network sees them.
    pub samples: Option<TrainingSamples>,
    /// The criteria of the comparison that the run belongs to, in the order in which its user named them; empty if that is not known.
    pub criteria: Vec<String>,
    /// Classifiers without training, from the folder of the comparison that the run belongs to.
    pub baselines: Vec<BaselineResult>,
}

/// The epoch whose weights a table reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedEpoch {
    /// The last epoch.
    Last,
    /// The best epoch, as the run selected it.
    Best,
}

impl RecordedRun {
    /// Reads a run folder.
    ///
    /// # Errors
    /// If the settings are missing, a file is malformed or holds impossible values, or no epoch has been evaluated yet.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let run = Self::open(path)?;
        run.check()?;
        match run.evaluation(ReportedEpoch::Last).is_some() {
            true => Ok(run),
            false => Err(ReportError::Empty { path: path.to_owned() }),
        }
    }

    /// Reads whatever a run folder holds so far; only the settings are required.
    ///
    /// # Errors
    /// If the settings are missing or a file is malformed.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let config = read_text(&path.join(CONFIG))?.ok_or_else(|| ReportError::NotARun { path: path.to_owned() })?;
        let settings = flatten_settings(&config)
            .map_err(|error| ReportError::Format { path: path.join(CONFIG), what: error.message().to_owned() })?;
        Ok(Self {
            path: path.to_owned(),
            config,
            settings,
            criterion_label: None,
            result: read_json(&path.join(RESULT))?,
            epochs: read_epochs(&path.join(METRICS), |epoch: &EpochRecord| epoch.epoch)?,
            norms: read_epochs(&path.join(NORMS), |norms: &GradientNorms| norms.epoch)?,
            times: read_epochs(&path.join(TIMES), |time: &EpochTime| time.epoch)?,
            details: read_json(&path.join(DETAILS))?,
            calibration: read_json(&path.join(CALIBRATION))?,
            samples: read_json(&path.join(SAMPLES))?,
            criteria: read_beside(path, CRITERIA)?,
            baselines: read_beside(path, BASELINES)?,
        })
    }

    /// Replaces the settings by those of a resolved configuration: the file of an older version lacks newer settings.
    ///
    /// # Errors
    /// If the text is not TOML.
    pub fn resolve_settings(&mut self, config: &str) -> Result<(), toml::de::Error> {
        self.settings = flatten_settings(config)?;
        Ok(())
    }

    /// Value of a setting; a string without its quotes.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        let value = self.toml_value(key)?;
        Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
    }

    /// Value of a setting as TOML writes it.
    pub(crate) fn toml_value(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Random seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.setting(keys::SEED).and_then(|seed| seed.parse().ok()).unwrap_or(0)
    }

    /// Name of the criterion.
    #[must_use]
    pub fn criterion(&self) -> &str {
        self.setting(keys::METHOD).unwrap_or("unknown")
    }

    /// Name of the dataset.
    pub(crate) fn dataset(&self) -> &str {
        match &self.result {
            Some(result) => &result.dataset,
            None => {
                let dataset = self.setting(keys::DATASET).unwrap_or("unknown dataset");
                dataset.rsplit(['/', '\\']).next().unwrap_or(dataset)
            }
        }
    }

    /// Name of the run folder, without its parents.
    pub(crate) fn folder_name(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| self.path.display().to_string())
    }

    /// Evaluation of an epoch. A run that has not finished has only its newest evaluation, as the last epoch's.
    #[must_use]
    pub fn evaluation(&self, epoch: ReportedEpoch) -> Option<EpochMetrics> {
        if let Some(result) = &self.result {
            return match epoch {
                ReportedEpoch::Last => result.last.clone(),
                ReportedEpoch::Best => result.best.clone(),
            };
        }
        let newest = self.epochs.iter().rev().find(|epoch| epoch.test.is_some())?;
        let val_balanced = newest.val.as_ref().and_then(|metrics| metrics.balanced);
        let metrics = newest.test.clone()?;
        (epoch == ReportedEpoch::Last).then_some(EpochMetrics { epoch: newest.epoch, metrics, val_balanced })
    }

    /// Whether the run has a best epoch, selected on the test set (`true`) or on validation images (`false`).
    pub(crate) fn has_best_epoch(&self, selected_on_test: bool) -> bool {
        self.result
            .as_ref()
            .is_some_and(|result| result.best.is_some() && result.selected_on_test() == selected_on_test)
    }

    /// Number of epochs that the settings ask for.
    #[must_use]
    pub fn planned_epochs(&self) -> u64 {
        self.setting(keys::EPOCHS).and_then(|epochs| epochs.parse().ok()).unwrap_or(0)
    }

    /// Last epoch that has been recorded; 0 if there is none.
    pub(crate) fn finished_epochs(&self) -> u64 {
        self.epochs.last().map_or(0, |epoch| epoch.epoch)
    }
}

/// A list in the folder of the comparison that a run, or a cross-validation, belongs to.
fn read_beside<T: serde::de::DeserializeOwned>(run: &Path, name: &str) -> Result<Vec<T>, ReportError> {
    let parent = run.parent();
    let pooled = parent.filter(|folder| folder.ends_with(POOLED));
    let folder = pooled.map_or(parent, |pooled| pooled.parent().and_then(Path::parent));
    let list = folder.map_or(Ok(None), |folder| read_json(&folder.join(name)))?;
    Ok(list.unwrap_or_default())
}

/// Keys of all settings of some runs, sorted, each once.
pub(crate) fn setting_keys_of(runs: &[RecordedRun]) -> Vec<&str> {
    let mut keys: Vec<&str> = runs.iter().flat_map(|run| run.settings.iter().map(|(key, _)| key.as_str())).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Settings of a TOML document by their dotted keys.
fn flatten_settings(config: &str) -> Result<Vec<(String, String)>, toml::de::Error> {
    fn flatten(table: &toml::Table, prefix: &str, settings: &mut Vec<(String, String)>) {
        for (name, value) in table {
            match value {
                toml::Value::Table(table) => flatten(table, &format!("{prefix}{name}."), settings),
                value => settings.push((format!("{prefix}{name}"), value.to_string())),
            }
        }
    }
    let mut settings = Vec::new();
    flatten(&config.parse()?, "", &mut settings);
    Ok(settings)
}
