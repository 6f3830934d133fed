//! Atomic file replacement.
//!
//! A file is written under a temporary name (`*.part`), flushed to the disk, and only then renamed. A killed process, a
//! full disk or a power cut leaves the old file or the new one, never a torn one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::{FolderError, read_error, write_error};
use crate::names::PART;

/// The temporary path of a file.
pub(super) fn part_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// Whether a directory entry is a temporary file.
pub(super) fn is_part(entry: &fs::DirEntry) -> bool {
    let named = entry.file_name().as_encoded_bytes().ends_with(PART.as_bytes());
    named && entry.file_type().is_ok_and(|kind| !kind.is_dir())
}

/// Removes a file if it exists.
pub(super) fn remove_if_exists(path: &Path) -> Result<(), FolderError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write_error(path)(error)),
        _ => Ok(()),
    }
}

/// Flushes the entries of a folder to the disk.
pub(super) fn sync_folder(folder: &Path) -> Result<(), FolderError> {
    // other systems cannot open folders
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // some network file systems do not support this for folders
        Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Err(write_error(folder)(error))
        }
        _ => Ok(()),
    }
}

/// Copies a reader into a file and flushes it to the disk.
pub(super) fn fill(mut file: &File, path: &Path, from: &mut dyn Read) -> Result<(), FolderError> {
    io::copy(from, &mut file).and_then(|_| file.sync_all()).map_err(write_error(path))
}

/// Creates a file that is complete and on the disk, or does not exist if this fails.
pub(super) fn create_file(path: &Path, from: &mut dyn Read) -> Result<(), FolderError> {
    // never written in place: a leftover of a killed process may be a second link to a checkpoint
    remove_if_exists(path)?;
    let file = File::options().write(true).create_new(true).open(path).map_err(write_error(path))?;
    fill(&file, path, from).inspect_err(|_| {
        // frees the space; the error is reported either way
        let _ = fs::remove_file(path);
    })
}

/// Gives a file a second name, or copies it where the file system has no hard links.
pub(super) fn link_or_copy(path: &Path, to: &Path) -> Result<(), FolderError> {
    remove_if_exists(to)?;
    match fs::hard_link(path, to) {
        Ok(()) => Ok(()),
        Err(_) => create_file(to, &mut File::open(path).map_err(read_error(path))?),
    }
}

/// Renames the temporary file of `path` to `path` and flushes the folder.
pub(super) fn publish(path: &Path) -> Result<(), FolderError> {
    let part = part_path(path);
    fs::rename(&part, path).map_err(write_error(path)).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })?;
    // a rename of one link onto another link of the same file leaves both
    remove_if_exists(&part)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}
