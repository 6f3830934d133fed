//! A run with its folder: started or resumed, trained, and its result written.

use std::path::Path;

use equipoise_record::names::{CONFIG, DETAILS, RESULT};
use equipoise_record::{EvaluationDetails, RunFolder, RunResult};
use serde::Serialize;

use super::build::{RunTrainer, trainer};
use super::existing::{ExistingRun, read_settings};
use super::name::run_name;
use super::result::{Measurements, result};
use super::{Feedback, RunContext};
use crate::checkpoint::{Checkpoint, FoundCheckpoint, files};
use crate::error::TrainError;
use crate::settings::Settings;
use crate::trainer::{Observer, RunEnd};

/// Where a new run is written.
#[derive(Clone, Copy, Debug)]
pub enum OutputFolder<'a> {
    /// This folder, which must not exist or be empty.
    At(&'a Path),
    /// A new folder with a readable name in this one.
    In(&'a Path),
}

/// A run with its folder.
pub struct Run {
    /// The trainer.
    pub trainer: RunTrainer,
    /// The run folder, locked for this process.
    pub folder: RunFolder,
}

/// A run that was trained to its end.
pub struct Completion {
    end: RunEnd,
    details: EvaluationDetails,
}

impl Run {
    /// Starts a run. The folder is created last: settings that cannot be used leave nothing behind.
    ///
    /// # Errors
    /// Returns an error if the run cannot be built, or the folder cannot be created.
    pub fn start(settings: Settings, output: OutputFolder<'_>, context: &RunContext<'_>) -> Result<Self, TrainError> {
        let trainer = trainer(settings, None, context)?;
        let (text, name) = (trainer.settings().to_toml()?, run_name(trainer.settings()));
        let folder = match output {
            OutputFolder::At(path) => RunFolder::create(path),
            OutputFolder::In(parent) => RunFolder::create_unique(parent, &name),
        }?;
        folder.write(CONFIG, text.as_bytes())?;
        Ok(Self { trainer, folder })
    }

    /// Resumes the run in a folder from its newest checkpoint. `dataset` names the dataset if it has moved.
    ///
    /// # Errors
    /// Returns an error if the folder holds no run, or the run cannot be resumed.
    pub fn resume(path: &Path, dataset: Option<&str>, context: &RunContext<'_>) -> Result<Self, TrainError> {
        let folder = RunFolder::open(path)?;
        let mut settings = read_settings(path)?;
        if let Some(dataset) = dataset {
            dataset.clone_into(&mut settings.data.dataset);
        }
        Self::open(folder, settings, context)
    }

    /// Starts the run in a folder, or resumes it if the folder holds a part of it.
    ///
    /// # Errors
    /// Returns an error if the folder holds a run with other settings, or the run cannot be built.
    pub fn start_or_resume(settings: &Settings, path: &Path, context: &RunContext<'_>) -> Result<Self, TrainError> {
        match ExistingRun::find(path, settings)? {
            ExistingRun::Missing => Self::start(settings.clone(), OutputFolder::At(path), context),
            ExistingRun::Started { .. } | ExistingRun::Finished => {
                Self::open(RunFolder::open(path)?, read_settings(path)?, context)
            }
        }
    }

    fn open(folder: RunFolder, settings: Settings, context: &RunContext<'_>) -> Result<Self, TrainError> {
        let checkpoint = newest_checkpoint(&folder, context.feedback)?;
        let trainer = trainer(settings, checkpoint.as_ref(), context)?;
        Ok(Self { trainer, folder })
    }

    /// Whether the run has finished and its result is written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.trainer.finished() && self.folder.path().join(RESULT).exists()
    }

    /// Writes the result of a run that was trained to its end.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write_result(&self, completion: &Completion, measured: &Measurements) -> Result<RunResult, TrainError> {
        let result = result(&self.trainer, completion.end == RunEnd::StoppedEarly, measured);
        self.folder.write(DETAILS, json(&completion.details, serde_json::to_string)?.as_bytes())?;
        self.folder.write(RESULT, json(&result, serde_json::to_string_pretty)?.as_bytes())?;
        Ok(result)
    }
}

/// Trains a run to its end and evaluates the final weights; `None` if the observer stopped it.
///
/// # Errors
/// Returns an error if the run diverges, or a file cannot be read or written.
pub fn train(
    trainer: &mut RunTrainer,
    folder: &RunFolder,
    observer: &mut dyn Observer,
) -> Result<Option<Completion>, TrainError> {
    let end = trainer.run(folder, observer)?;
    if end == RunEnd::Interrupted {
        return Ok(None);
    }
    let details = trainer.details(folder, observer)?;
    Ok(details.map(|details| Completion { end, details }))
}

/// The newest checkpoint of a folder that can be used, if it has any.
fn newest_checkpoint(folder: &RunFolder, feedback: &dyn Feedback) -> Result<Option<Checkpoint>, TrainError> {
    let Some(FoundCheckpoint { checkpoint, warning }) = files::load(folder)? else { return Ok(None) };
    warning.iter().for_each(|warning| feedback.warn(warning));
    Checkpoint::new(checkpoint).map(Some)
}

/// A record as a line, or lines, of JSON.
fn json<T: Serialize>(record: &T, write: fn(&T) -> serde_json::Result<String>) -> Result<String, TrainError> {
    write(record)
        .map(|text| text + "\n")
        .map_err(|error| TrainError::Unusable { what: format!("cannot write JSON: {error}") })
}
