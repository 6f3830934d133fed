//! A run, from its settings to its result: load the dataset, build network, engine and trainer, train, resume, write the result.
//!
//! - [`dataset`]: the dataset with its subset.
//! - [`input`]: network and image size, by the images. [`build`]: from settings to a trainer.
//! - [`baselines`]: classifiers that need no training, for features.
//! - [`inspection`]: a dataset before training.
//! - [`weights`]: weights to start from, and checkpoints to use.
//! - [`Run`]: a trainer with its folder. [`SharedRun`]: the same on any engine, with several workers. [`ExistingRun`]: what a folder already holds.
//! - [`processes`]: rank 0 and the processes that train with it on the CPU.
//! - [`calibration`]: the calibration in a run folder. [`cross_validation`]: runs whose folds cover a dataset.
//! - [`evaluation`], [`prediction`]: a trained run on a dataset and on image files. [`export`]: its weights for other programs.

pub mod baselines;
pub mod build;
pub mod calibration;
mod class_means;
pub mod cross_validation;
pub mod dataset;
pub mod evaluation;
mod existing;
pub mod export;
pub mod files;
pub mod input;
pub mod inspection;
pub mod memory;
mod name;
pub mod prediction;
pub mod processes;
mod readable;
mod repeated;
mod result;
mod session;
mod shared;
mod weight_decay;
pub mod weights;

use std::path::Path;

use equipoise_pool::Pool;

pub use self::existing::{ExistingRun, read_config};
pub use self::name::{comparison_name, run_name};
use self::processes::Processes;
pub use self::result::Measurements;
pub use self::session::{Completion, OutputFolder, Run, train, write_result};
pub use self::shared::{RunSource, SharedRun};

/// Warnings and progress while a run is built, for the user.
pub trait Feedback: Sync {
    /// Shows a warning.
    fn warn(&self, text: &str);
    /// Shows a line that is worth knowing and no warning.
    fn note(&self, text: &str);
    /// Called while images are read, with the number of images done and of all.
    fn reading(&self, done: u64, total: u64);
    /// Called when the images have been read.
    fn reading_done(&self);
}

/// Ignores warnings and progress.
pub struct NoFeedback;

impl Feedback for NoFeedback {
    fn warn(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn reading(&self, _: u64, _: u64) {}
    fn reading_done(&self) {}
}

/// Where and with what a run is executed. None of it has an influence on the result.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    /// Folder of the named datasets.
    pub data_root: &'a Path,
    /// Threads.
    pub pool: &'a Pool,
    /// Receiver of warnings and progress.
    pub feedback: &'a dyn Feedback,
    /// Other processes that train with this one, if this is rank 0 of several.
    pub processes: Option<&'a dyn Processes>,
}
