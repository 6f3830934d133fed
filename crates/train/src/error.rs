//! Why a run cannot start, or had to stop.

use std::collections::BTreeMap;
use std::path::PathBuf;

use equipoise_criterion::{BatchError, ConfigError, StateError};
use equipoise_data::DataError;
use equipoise_data::describe::broken_files::{MAX_BROKEN, allowed_broken, option_to_allow};
use equipoise_nn::NnError;
use equipoise_record::FolderError;
use equipoise_support::short_number;
use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::workers::WorkersError;

/// An image file of a dataset that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenFile {
    /// The file.
    pub path: PathBuf,
    /// Its class.
    pub class: String,
    /// What is wrong with it.
    pub what: String,
}

/// How many files cannot be read, in all and by class.
pub(crate) fn broken_count(files: &[BrokenFile], images: usize) -> String {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    files.iter().for_each(|file| *classes.entry(&file.class).or_default() += 1);
    let mut classes: Vec<(&str, usize)> = classes.into_iter().collect();
    classes.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    const SHOWN: usize = 5;
    let named: Vec<String> = classes.iter().take(SHOWN).map(|(class, number)| format!("{class} {number}")).collect();
    let more = if classes.len() > SHOWN { ", ..." } else { "" };
    format!("{} of {images} image files cannot be read ({}{more})", files.len(), named.join(", "))
}

/// The option with which so many broken files are left out.
fn how_to_allow(broken: usize, images: usize, allowed: usize) -> String {
    if allowed == 0 {
        let without = allowed_broken(MAX_BROKEN, images);
        return match broken <= without {
            true => " (--strict and data.max_broken = 0 allow none)".to_owned(),
            false => option_to_allow(broken, images)
                .map_or_else(String::new, |option| format!(" (`{option}` in place of --strict leaves them out)")),
        };
    }
    option_to_allow(broken, images).map_or_else(String::new, |option| format!(" (`{option}` leaves them out)"))
}

/// The first few files, and how many more there are.
pub(crate) fn first_broken(files: &[BrokenFile]) -> String {
    const SHOWN: usize = 3;
    let named = files.iter().take(SHOWN).map(|file| format!("{}: {}", file.path.display(), file.what));
    let named: Vec<String> = named.collect();
    let more = if files.len() > SHOWN { format!("; and {} more", files.len() - SHOWN) } else { String::new() };
    format!("{}{more}", named.join("; "))
}

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
    #[error("setting '{field}' is {}; it must be {must}", short_number(value))]
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
    /// More image files than may be left out cannot be read.
    #[error("{}, and at most {allowed} may be left out{}: {}", broken_count(files, *images), how_to_allow(files.len(), *images, *allowed), first_broken(files))]
    Broken {
        /// The files.
        files: Vec<BrokenFile>,
        /// Number of all images.
        images: usize,
        /// Number of files that may be left out.
        allowed: usize,
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
    /// Another worker could not go on.
    #[error("rank {rank}: {what}")]
    Worker {
        /// Rank of the worker.
        rank: usize,
        /// Its error.
        what: String,
    },
    /// Other workers cannot be reached.
    #[error(transparent)]
    Workers(#[from] WorkersError),
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
