//! Why a run cannot start, or had to stop.

use equipoise_criterion::{BatchError, ConfigError, StateError};
use equipoise_data::DataError;
use equipoise_nn::NnError;
use equipoise_record::FolderError;
use thiserror::Error;

use crate::checkpoint::CheckpointError;

/// Why a run cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A configuration that is not TOML, or has a value of a wrong type.
    #[error("configuration: {what}")]
    Toml {
        /// What is wrong with it.
        what: String,
    },
    /// A setting that does not exist.
    #[error("setting `{field}`: there is none of that name{}", near.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// Its name.
        field: String,
        /// The nearest one that does.
        near: Option<String>,
    },
    /// A setting out of its range.
    #[error("setting `{field}`: {what}")]
    Setting {
        /// Its name.
        field: String,
        /// What is wrong with it.
        what: String,
    },
    /// A set that cannot be trained on.
    #[error("data set `{set}`: {what}")]
    Set {
        /// Its name.
        set: String,
        /// Why.
        what: String,
    },
    /// A checkpoint of something else.
    #[error("checkpoint: {what}")]
    Checkpoint {
        /// What does not fit.
        what: String,
    },
    /// The loss or a gradient is no longer a number.
    #[error("epoch {epoch}, step {step}: {what}; the largest weight is {largest}; images of this batch: {files}")]
    Diverged {
        /// From 1.
        epoch: u64,
        /// From 1, within the epoch.
        step: u64,
        /// What is not finite.
        what: String,
        /// The largest weight's size.
        largest: f32,
        /// The images of the batch.
        files: String,
    },
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The network.
    #[error(transparent)]
    Nn(#[from] NnError),
    /// The criterion's parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A batch that the criterion refuses.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The criterion's state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The run folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A checkpoint file.
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
