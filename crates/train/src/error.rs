//! Why a run cannot start, or had to stop.

use std::path::PathBuf;

use equipoise_criterion::{BatchError, ConfigError, StateError};
use equipoise_data::DataError;
use equipoise_nn::NnError;
use equipoise_record::FolderError;
use thiserror::Error;

use crate::checkpoint::CheckpointError;

/// Why a run cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A configuration that is not TOML, or not a table of settings.
    #[error("the configuration is not valid TOML: {what}")]
    Toml {
        /// Message of the parser.
        what: String,
    },
    /// A setting that does not exist.
    #[error("unknown setting '{field}'{}", near.as_ref().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default())]
    Unknown {
        /// Name of the setting.
        field: String,
        /// The closest name of a setting that exists.
        near: Option<String>,
    },
    /// A setting whose value has a wrong type, or contradicts another one.
    #[error("setting '{field}': {what}")]
    Setting {
        /// Name of the setting.
        field: String,
        /// What is wrong with its value.
        what: String,
    },
    /// A setting whose value is out of range.
    #[error("setting '{field}' is {value}; it must be {must}")]
    OutOfRange {
        /// Name of the setting.
        field: String,
        /// Its value.
        value: String,
        /// What the value must be.
        must: String,
    },
    /// A dataset that cannot be trained on.
    #[error("dataset '{dataset}': {what}")]
    Dataset {
        /// Name of the dataset.
        dataset: String,
        /// Why it cannot be trained on.
        what: String,
    },
    /// A file that a user named and that cannot be used.
    #[error("{}: {what}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A recipe that could not be run.
    #[error("{recipe}: {what}")]
    Recipe {
        /// Name of the recipe.
        recipe: String,
        /// What is wrong with it.
        what: String,
    },
    /// Something else that a user asked for and that cannot be done.
    #[error("{what}")]
    Unusable {
        /// What cannot be done, and why.
        what: String,
    },
    /// A checkpoint that does not belong to the run.
    #[error("checkpoint: {what}")]
    Checkpoint {
        /// What does not fit.
        what: String,
    },
    /// A loss or gradient that is not finite.
    #[error(
        "the run diverged in epoch {epoch}, step {step}: {what}; {advice}. The largest weight is {largest}; images of this batch: {files}"
    )]
    Diverged {
        /// The epoch, counted from 1.
        epoch: u64,
        /// The step of the epoch, counted from 1.
        step: u64,
        /// What is not finite.
        what: String,
        /// What to try instead.
        advice: String,
        /// Magnitude of the largest weight.
        largest: f32,
        /// Images of the batch.
        files: String,
    },
    /// An error of the dataset.
    #[error(transparent)]
    Data(#[from] DataError),
    /// An error of the network or the engine.
    #[error(transparent)]
    Nn(#[from] NnError),
    /// A parameter of the criterion that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A batch that the criterion refuses.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A criterion state that does not fit.
    #[error(transparent)]
    State(#[from] StateError),
    /// An error of the run folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A checkpoint file that cannot be used.
    #[error(transparent)]
    CheckpointFile(CheckpointError),
}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Folder(error) => Self::Folder(error),
            error => Self::CheckpointFile(error),
        }
    }
}
