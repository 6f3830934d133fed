//! A run that several workers train, as one of them sees it. Rank 0 has the folder; it reads what is there and sends it to the
//! others, which need not see the same file system.

use std::path::{Path, PathBuf};

use equipoise_nn::{Engine, Network};
use equipoise_record::RunFolder;
use equipoise_record::names::{CONFIG, RESULT, SAMPLES};

use super::RunContext;
use super::build::trainer_with;
use super::existing::{ExistingRun, read_settings};
use super::files::input_error;
use super::name::run_name;
use super::session::{check_extension, newest_checkpoint, samples_json};
use crate::checkpoint::{Checkpoint, CheckpointError, RawCheckpoint};
use crate::error::TrainError;
use crate::settings::Settings;
use crate::trainer::Trainer;
use crate::workers::{Workers, agree};

/// Where a run comes from, and where it goes.
#[derive(Clone, Debug)]
pub enum RunSource {
    /// A run in this folder: a new one if there is nothing yet, else the rest of the one that is there, which must have these
    /// settings.
    At(Box<Settings>, PathBuf),
    /// A new run in a folder with a readable name in this one. After a restart, the newest unfinished one of that name with
    /// these settings is continued.
    In {
        /// Settings of the run.
        settings: Box<Settings>,
        /// The folder of runs.
        parent: PathBuf,
        /// Whether the same command was started before.
        is_restart: bool,
    },
    /// The rest of the run in this folder.
    Resume {
        /// The folder.
        path: PathBuf,
        /// The dataset, if it has moved.
        dataset: Option<String>,
        /// Another number of epochs.
        epochs: Option<u64>,
    },
}

/// A run as one of its workers sees it.
pub struct SharedRun<E, W> {
    /// The trainer.
    pub trainer: Trainer<E, W>,
    /// The run folder, locked for this process. Only rank 0 has it.
    pub folder: Option<RunFolder>,
}

/// What rank 0 finds, and tells the others.
struct Plan {
    /// The folder, if there is a run in it.
    existing: Option<RunFolder>,
    settings: Settings,
    /// The newest checkpoint; empty if there is none.
    checkpoint: Vec<u8>,
}

impl<E: Engine, W: Workers> SharedRun<E, W> {
    /// Starts or resumes a run. `make` makes the engine of the network, the batch size of all workers and the seed. The folder of a new run is created last:
    /// settings that cannot be used leave nothing behind.
    ///
    /// # Errors
    /// Returns an error if the run cannot be built or the folder cannot be used, by any worker.
    pub fn open(
        source: &RunSource,
        mut workers: W,
        make: impl FnOnce(Network, usize, u64) -> Result<E, TrainError>,
        context: &RunContext<'_>,
    ) -> Result<Self, TrainError> {
        let is_first = workers.shard().rank() == 0;
        let found = if is_first { find(source, context).map(Some) } else { Ok(None) };
        let found = agree(&mut workers, found)?;
        let (mut text, mut bytes) = match &found {
            Some(plan) => (plan.settings.to_toml()?.into_bytes(), plan.checkpoint.clone()),
            None => (Vec::new(), Vec::new()),
        };
        workers.broadcast(&mut text)?;
        workers.broadcast(&mut bytes)?;
        let settings = Settings::from_toml(&String::from_utf8_lossy(&text), &Settings::default())?;
        let checkpoint = read_checkpoint(&bytes);
        let checkpoint = agree(&mut workers, checkpoint)?;
        let mut trainer = trainer_with(settings, checkpoint.as_ref(), workers, (&|_, _| Ok(()), make), context)?;
        if let RunSource::Resume { path, epochs: Some(epochs), .. } = source
            && trainer.position().epoch > *epochs
        {
            let done = trainer.position().epoch;
            return Err(input_error(path, format!("--epochs {epochs}: {done} epochs are trained already")));
        }
        let folder = found.map(|plan| plan.open(source, &trainer, context)).transpose();
        let folder = agree(trainer.workers(), folder)?;
        Ok(Self { trainer, folder })
    }
}

/// What there is of a run.
fn find(source: &RunSource, context: &RunContext<'_>) -> Result<Plan, TrainError> {
    let new = |settings: &Settings| Plan { existing: None, settings: settings.clone(), checkpoint: Vec::new() };
    match source {
        RunSource::At(settings, path) => match ExistingRun::find(path, settings)? {
            ExistingRun::Missing => Ok(new(settings)),
            ExistingRun::Started { .. } | ExistingRun::Finished => Plan::existing(path, None, None, context),
        },
        RunSource::In { settings, parent, is_restart } => {
            match is_restart.then(|| newest_unfinished(settings, parent)).flatten() {
                Some(path) => Plan::existing(&path, None, None, context),
                None => Ok(new(settings)),
            }
        }
        RunSource::Resume { path, dataset, epochs } => Plan::existing(path, dataset.as_deref(), *epochs, context),
    }
}

/// The newest folder with an unfinished run of these settings.
fn newest_unfinished(settings: &Settings, parent: &Path) -> Option<PathBuf> {
    let name = run_name(settings);
    let folders = parent.read_dir().ok()?.flatten().map(|entry| entry.path());
    let of_name = |path: &PathBuf| {
        let is_named = path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
        is_named && matches!(ExistingRun::find(path, settings), Ok(ExistingRun::Started { .. }))
    };
    let time = |path: &PathBuf| path.join(CONFIG).metadata().and_then(|file| file.modified()).ok();
    folders.filter(of_name).max_by_key(time)
}

impl Plan {
    /// A run in a folder, with its newest checkpoint.
    fn existing(
        path: &Path,
        dataset: Option<&str>,
        epochs: Option<u64>,
        context: &RunContext<'_>,
    ) -> Result<Self, TrainError> {
        let folder = RunFolder::open(path)?;
        let mut settings = read_settings(path)?;
        if let Some(epochs) = epochs.filter(|epochs| *epochs != settings.epochs) {
            check_extension(path, &settings, epochs)?;
            settings.epochs = epochs;
        }
        if let Some(dataset) = dataset {
            dataset.clone_into(&mut settings.data.dataset);
        }
        let checkpoint = newest_checkpoint(&folder, context.feedback)?;
        let checkpoint = checkpoint.map_or_else(Vec::new, |checkpoint| checkpoint.to_bytes());
        Ok(Self { existing: Some(folder), settings, checkpoint })
    }

    /// The folder of the run, whose trainer has been built.
    fn open<E: Engine, W: Workers>(
        self,
        source: &RunSource,
        trainer: &Trainer<E, W>,
        context: &RunContext<'_>,
    ) -> Result<RunFolder, TrainError> {
        match (self.existing, source) {
            (Some(folder), RunSource::Resume { path, epochs: Some(epochs), .. }) => {
                return extend(folder, path, *epochs);
            }
            (Some(folder), _) => return Ok(folder),
            (None, _) => {}
        }
        let settings = trainer.settings();
        let (text, samples) = (settings.to_toml()?, samples_json(trainer, context)?);
        let folder = match source {
            RunSource::At(_, path) | RunSource::Resume { path, .. } => RunFolder::create(path),
            RunSource::In { parent, .. } => RunFolder::create_unique(parent, &run_name(settings)),
        }?;
        // first, because a folder with settings is a run that is resumed
        folder.write(SAMPLES, samples.as_bytes())?;
        folder.write(CONFIG, text.as_bytes())?;
        Ok(folder)
    }
}

/// Gives the run in a folder another number of epochs.
fn extend(folder: RunFolder, path: &Path, epochs: u64) -> Result<RunFolder, TrainError> {
    let settings = read_settings(path)?;
    if settings.epochs != epochs {
        let text = Settings { epochs, ..settings }.to_toml()?;
        // without a result the run counts as unfinished, whatever its settings say
        folder.remove(RESULT)?;
        folder.write(CONFIG, text.as_bytes())?;
    }
    Ok(folder)
}

/// The checkpoint in a message of rank 0; `None` if there is none.
pub(super) fn read_checkpoint(bytes: &[u8]) -> Result<Option<Checkpoint>, TrainError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let raw = RawCheckpoint::from_bytes(bytes)
        .map_err(|source| CheckpointError::Corrupt { path: "checkpoint".into(), source })?;
    Checkpoint::new(raw).map(Some)
}
