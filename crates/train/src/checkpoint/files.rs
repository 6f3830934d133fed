//! Checkpoint files in a run folder: read one, save the newest, find the newest that is intact.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use equipoise_record::names::{CHECKPOINT, PREVIOUS};
use equipoise_record::{FolderError, RunFolder};
use equipoise_support::with_causes;
use thiserror::Error;

use super::format::{self, Corruption, RawCheckpoint, START};

/// A checkpoint file cannot be used.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file is not a checkpoint, or not as it was written.
    #[error("cannot use {}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Corruption,
    },
    /// Neither the newest checkpoint nor the previous one can be used.
    #[error("no checkpoint is left: {}; {}", with_causes(newest), with_causes(previous))]
    NoneLeft {
        /// What is wrong with the newest.
        newest: Box<CheckpointError>,
        /// What is wrong with the previous one.
        previous: Box<CheckpointError>,
    },
}

/// A checkpoint that was found in a run folder.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundCheckpoint {
    /// Its content.
    pub checkpoint: RawCheckpoint,
    /// Why it is not the newest, if it is not: a warning for the user.
    pub warning: Option<String>,
}

/// Reads a checkpoint file. This needs no lock: another process may be writing to the folder.
///
/// # Errors
/// If the file cannot be read or is corrupt.
pub fn read(path: &Path) -> Result<RawCheckpoint, CheckpointError> {
    let bytes = read_bytes(path)?;
    RawCheckpoint::from_bytes(&bytes).map_err(|source| CheckpointError::Corrupt { path: path.to_owned(), source })
}

/// Saves a checkpoint as the newest of a run. The one that was the newest becomes the previous one, unless it is corrupt.
/// Whenever this is interrupted, an intact checkpoint is left if there was one before.
///
/// # Errors
/// If writing fails. Every checkpoint that was usable is then still usable.
pub fn save(folder: &RunFolder, checkpoint: &RawCheckpoint) -> Result<(), FolderError> {
    folder.rotate_checkpoint(&mut checkpoint.bytes(), |path| is_intact(path).unwrap_or(false))
}

/// The newest intact checkpoint of a run, if the run has one.
///
/// # Errors
/// If the run has checkpoints but none of them can be used.
pub fn load(folder: &RunFolder) -> Result<Option<FoundCheckpoint>, CheckpointError> {
    let newest_path = folder.path().join(CHECKPOINT);
    let newest_error = match read_if_exists(&newest_path) {
        Ok(Some(checkpoint)) => return Ok(Some(FoundCheckpoint { checkpoint, warning: None })),
        Ok(None) => None,
        Err(error) => Some(error),
    };
    match (newest_error, read_if_exists(&folder.path().join(PREVIOUS))) {
        (None, Ok(None)) => Ok(None),
        (Some(error), Ok(None)) | (None, Err(error)) => Err(error),
        (Some(newest), Err(previous)) => {
            Err(CheckpointError::NoneLeft { newest: Box::new(newest), previous: Box::new(previous) })
        }
        (newest_error, Ok(Some(checkpoint))) => {
            let missing = || format!("{} is missing", newest_path.display());
            let reason = newest_error.map_or_else(missing, |error| with_causes(&error));
            let warning = Some(format!("{reason}; continuing from {PREVIOUS}, the checkpoint before it"));
            Ok(Some(FoundCheckpoint { checkpoint, warning }))
        }
    }
}

/// Whether a file is a checkpoint as it was written.
fn is_intact(path: &Path) -> io::Result<bool> {
    // checked before opening, because opening a pipe blocks until somebody writes to it
    if !fs::metadata(path)?.is_file() {
        return Ok(false);
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok(format::check(&mut file, length)?.is_ok())
}

fn read_if_exists(path: &Path) -> Result<Option<RawCheckpoint>, CheckpointError> {
    match read(path) {
        Err(CheckpointError::Folder(FolderError::Read { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The bytes of a checkpoint file. Of a file whose start does not fit its length, only the start is read.
fn read_bytes(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let failed = |source: io::Error| FolderError::Read { path: path.to_owned(), source };
    // checked before opening, because opening a pipe blocks until somebody writes to it
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(io::Error::other("not a file")).into());
    }
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    (&mut file).take(START as u64).read_to_end(&mut bytes).map_err(failed)?;
    format::check_start(&bytes, length).map_err(|source| CheckpointError::Corrupt { path: path.to_owned(), source })?;
    let rest = length - bytes.len() as u64;
    usize::try_from(rest)
        .map_err(|_| io::ErrorKind::OutOfMemory.into())
        .and_then(|rest| bytes.try_reserve_exact(rest).map_err(io::Error::from))
        .and_then(|()| file.take(rest).read_to_end(&mut bytes))
        .map_err(failed)?;
    Ok(bytes)
}
