//! Errors of reading a run.

use std::path::PathBuf;

use equipoise_record::names::CONFIG;
use thiserror::Error;

/// A run that cannot be reported.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A file or folder could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// There is nothing at the path.
    #[error("{}: there is no such folder", path.display())]
    NoFolder {
        /// The path that was given.
        path: PathBuf,
    },
    /// The path is neither a run folder nor a folder that contains runs.
    #[error("{} is not a run: it has no {CONFIG}, and none of its subfolders is a run", path.display())]
    NotARun {
        /// The path that was given.
        path: PathBuf,
    },
    /// The content of a file is not what a run writes.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No epoch of the run has been evaluated yet.
    #[error("{} has nothing to report yet: no epoch has been evaluated", path.display())]
    Empty {
        /// The run folder.
        path: PathBuf,
    },
    /// A cross-validation whose figures over all images are not there yet.
    #[error(
        "{}: this cross-validation has not finished ({finished} of its folds {}), and single folds are not compared; the same command with \
         --output {0} continues it",
        path.display(),
        if *finished == 1 { "has" } else { "have" }
    )]
    UnfinishedFolds {
        /// The folder of the cross-validation.
        path: PathBuf,
        /// Folds that have finished.
        finished: usize,
    },
    /// The same run was given more than once.
    #[error("{} was given more than once", path.display())]
    Duplicate {
        /// The run folder.
        path: PathBuf,
    },
}
