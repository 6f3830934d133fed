//! A run with its folder: started or resumed, trained, and its result written.

use std::path::Path;

use equipoise_nn::Engine;
use equipoise_record::names::{CALIBRATION, CONFIG, DETAILS, METRICS, NORMS, RESULT, SAMPLES, TIMES};
use equipoise_record::{EpochRecord, EpochTime, EvaluationDetails, GradientNorms, RunFolder, RunResult};
use serde::Serialize;

use super::build::{RunTrainer, trainer};
use super::dataset::check_place;
use super::existing::{ExistingRun, read_settings};
use super::files::input_error;
use super::name::run_name;
use super::result::{Measurements, result};
use super::{Feedback, RunContext};
use crate::checkpoint::{FoundCheckpoint, RawCheckpoint, files};
use crate::error::TrainError;
use crate::preview::samples;
use crate::settings::Settings;
use crate::trainer::{Observer, RunEnd, Trainer};
use crate::workers::Workers;

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
        let settings = trainer.settings();
        let (text, name) = (settings.to_toml()?, run_name(settings));
        let samples = samples_json(&trainer, context)?;
        let folder = match output {
            OutputFolder::At(path) => RunFolder::create(path),
            OutputFolder::In(parent) => RunFolder::create_unique(parent, &name),
        }?;
        // first, because a folder with settings is a run that is resumed
        folder.write(SAMPLES, samples.as_bytes())?;
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
        move_dataset(&mut settings, dataset)?;
        Self::open(folder, settings, context)
    }

    /// Resumes the run in a folder with another number of epochs. The result is that of a run that had this number from its start.
    ///
    /// # Errors
    /// Returns an error if the folder holds no run, the run has more epochs already, or its epochs would have been others.
    pub fn extend(
        path: &Path,
        epochs: u64,
        dataset: Option<&str>,
        context: &RunContext<'_>,
    ) -> Result<Self, TrainError> {
        let folder = RunFolder::open(path)?;
        let mut settings = read_settings(path)?;
        check_extension(path, &settings, epochs)?;
        let text = Settings { epochs, ..settings.clone() }.to_toml()?;
        settings.epochs = epochs;
        move_dataset(&mut settings, dataset)?;
        let run = Self::open(folder, settings, context)?;
        let done = run.trainer.position().epoch;
        if done > epochs {
            return Err(input_error(path, format!("--epochs {epochs}: {} trained already", epochs_are(done))));
        }
        // without a result the run counts as unfinished, whatever its settings say
        run.folder.remove(RESULT)?;
        run.folder.write(CONFIG, text.as_bytes())?;
        Ok(run)
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
        let trainer = trainer(settings, checkpoint, context)?;
        Ok(Self { trainer, folder })
    }
}

/// Writes the result of a run that was trained to its end.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write_result<E: Engine, W: Workers>(
    trainer: &Trainer<E, W>,
    folder: &RunFolder,
    completion: &Completion,
    measured: &Measurements,
) -> Result<RunResult, TrainError> {
    let result = result(trainer, completion.end == RunEnd::StoppedEarly, measured);
    folder.write(DETAILS, json(&completion.details, serde_json::to_string)?.as_bytes())?;
    if let Some(calibration) = trainer.calibration() {
        folder.write(CALIBRATION, json(calibration, serde_json::to_string)?.as_bytes())?;
    }
    folder.write(RESULT, json(&result, serde_json::to_string_pretty)?.as_bytes())?;
    Ok(result)
}

/// The training images that a report shows, as JSON.
pub(super) fn samples_json<E: Engine, W: Workers>(
    trainer: &Trainer<E, W>,
    context: &RunContext<'_>,
) -> Result<String, TrainError> {
    json(&samples(trainer.data(), trainer.settings(), context.pool)?, serde_json::to_string)
}

/// Trains a run to its end and evaluates the final weights; `None` if an observer stopped it. Of several workers, rank 0 has
/// the folder.
///
/// # Errors
/// Returns an error if the run diverges, a worker fails, or a file cannot be read or written.
pub fn train<'f, E: Engine, W: Workers>(
    trainer: &mut Trainer<E, W>,
    folder: impl Into<Option<&'f RunFolder>>,
    observer: &mut dyn Observer,
) -> Result<Option<Completion>, TrainError> {
    let folder = folder.into();
    trainer.workers().start_training()?;
    let end = trainer.run(folder, observer)?;
    if end == RunEnd::Interrupted {
        return Ok(None);
    }
    let details = trainer.details(folder, observer)?;
    Ok(details.map(|details| Completion { end, details }))
}

/// A number of epochs with its verb.
fn epochs_are(number: u64) -> String {
    if number == 1 { "1 epoch is".to_owned() } else { format!("{number} epochs are") }
}

/// Checks that a run can get another number of epochs.
pub(super) fn check_extension(path: &Path, settings: &Settings, epochs: u64) -> Result<(), TrainError> {
    let Err(what) = settings.check_epochs_can_change() else { return Ok(()) };
    let planned = match settings.epochs {
        1 => "1 epoch".to_owned(),
        epochs => format!("{epochs} epochs"),
    };
    let what = format!(
        "--epochs {epochs}: {what} is laid out for {planned}, so that the epochs of a run with {epochs} would have been \
         others; train on from its weights with `equipoise train --weights {0} --epochs N`, or repeat it with `equipoise train \
         --config {0}/{CONFIG} --epochs {epochs}`",
        path.display()
    );
    Err(input_error(path, what))
}

/// Takes the dataset from where it is now.
fn move_dataset(settings: &mut Settings, dataset: Option<&str>) -> Result<(), TrainError> {
    match dataset {
        Some(dataset) => dataset.clone_into(&mut settings.data.dataset),
        None => check_place(&settings.data.dataset, "equipoise train DATA --resume RUN")?,
    }
    Ok(())
}

/// Checks that the records of finished epochs can be read, before anything is trained. Returns the number of recorded epochs.
fn check_records(folder: &RunFolder) -> Result<usize, TrainError> {
    folder.check_json_lines::<GradientNorms>(NORMS)?;
    folder.check_json_lines::<EpochTime>(TIMES)?;
    Ok(folder.check_json_lines::<EpochRecord>(METRICS)?)
}

/// The newest checkpoint of a folder that can be used, if the run has trained at all.
pub(super) fn newest_checkpoint(
    folder: &RunFolder,
    feedback: &dyn Feedback,
) -> Result<Option<RawCheckpoint>, TrainError> {
    let epochs = check_records(folder)?;
    match files::load(folder)? {
        Some(FoundCheckpoint { checkpoint, warning }) => {
            warning.iter().for_each(|warning| feedback.warn(warning));
            Ok(Some(checkpoint))
        }
        None if epochs == 0 => Ok(None),
        None => {
            let what = format!(
                "no checkpoint is left, although {} recorded, so the run cannot continue; to train it again, \
                 remove this folder or choose another one",
                epochs_are(epochs as u64)
            );
            Err(input_error(folder.path(), what))
        }
    }
}

/// A record as a line, or lines, of JSON.
fn json<T: Serialize>(record: &T, write: fn(&T) -> serde_json::Result<String>) -> Result<String, TrainError> {
    write(record)
        .map(|text| text + "\n")
        .map_err(|error| TrainError::Unusable { what: format!("cannot write JSON: {error}") })
}
