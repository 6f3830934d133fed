//! Why a run folder, or a file in it, cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use equipoise_support::{LockError, LockOwner};
use thiserror::Error;

use crate::names::{COMPARISON, CONFIG, LOCK, is_run};

/// A run folder, or a file in it, cannot be used.
#[derive(Debug, Error)]
pub enum FolderError {
    /// Reading failed.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A record of finished epochs is damaged.
    #[error("{}: line {line} is damaged: {what}; restore the file, or remove it: it is then written again from the checkpoint, as far as that knows", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The folder is already open for writing, in another process or in this one.
    #[error("run folder {} is in use by {}", path.display(), owner.as_ref().map_or("another process".to_owned(), LockOwner::to_string))]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process that holds the lock, if the lock file names it.
        owner: Option<LockOwner>,
    },
    /// The folder for a new run is not empty.
    #[error("{} already exists and is not empty{}", path.display(), how_to_resume(path))]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not a run.
    #[error("{} is not a run folder: it has no {CONFIG}", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds the runs of a comparison and is not a run itself.
    #[error("{} is the folder of a comparison, not of a run: name one of the run folders in it, or repeat `equipoise compare` with this output folder", path.display())]
    IsComparison {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not a comparison.
    #[error("{} is not the folder of a comparison: it has no {COMPARISON}", path.display())]
    NotAComparison {
        /// The folder.
        path: PathBuf,
    },
    /// A file name that points elsewhere, or that the folder reserves.
    #[error("'{}' cannot be the name of a file or folder of a run", name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
}

/// How to continue the run in a folder, if it is one.
fn how_to_resume(path: &Path) -> String {
    match is_run(path) {
        true => format!("; to continue this run: `equipoise train --resume {}`", path.display()),
        false => String::new(),
    }
}

pub(super) fn read_error(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError::Read { path: path.to_owned(), source }
}

pub(super) fn write_error(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError::Write { path: path.to_owned(), source }
}

pub(super) fn lock_error(folder: &Path) -> impl FnOnce(LockError) -> FolderError {
    move |error| match error {
        LockError::Held { owner } => FolderError::Locked { path: folder.to_owned(), owner },
        LockError::Io(source) => FolderError::Write { path: folder.join(LOCK), source },
    }
}
