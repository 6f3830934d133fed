//! Imports a dataset that is already on disk, as a folder, a .tar.gz or a .zip, into the data folder.
//!
//! The dataset is unpacked or copied into a staging folder, read there as training reads it, and only then renamed. A dataset
//! in the data folder is therefore always complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use equipoise_support::{FolderLock, LockError};

use super::catalog::{KnownDataset, OfficialFile};
use super::unpack::{unpack, unpack_zip};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::source::{cannot_read, cannot_write, md5_of, open, up_to};
use crate::read::tar::is_tar;
use crate::read::zip;

/// A dataset that was imported.
#[derive(Debug)]
pub struct Imported {
    /// Where it is now.
    pub path: PathBuf,
    /// The dataset, read as training reads it.
    pub dataset: Dataset,
    /// Whether the source was the official archive, if there is a checksum to tell.
    pub checksum: Option<Checksum>,
}

/// How the checksum of an archive compares with the official one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is the official archive.
    Official,
    /// It is another archive.
    Differs {
        /// MD5 sum of the archive.
        got: String,
        /// Official MD5 sum.
        official: &'static str,
    },
}

/// Imports a known dataset into the data folder `root`.
///
/// # Errors
/// If the dataset is already in place, the archive is hostile or too large, the disk fails, or the dataset cannot be read.
/// Nothing is left behind then.
pub fn import(known: &KnownDataset, from: &Path, root: &Path) -> Result<Imported, DataError> {
    check_source(from, root)?;
    let checksum = match known.files {
        [OfficialFile { md5: Some(official), .. }] if from.is_file() => {
            let got = md5_of(from)?;
            Some(if got == *official { Checksum::Official } else { Checksum::Differs { got, official } })
        }
        _ => None,
    };
    Ok(Imported { checksum, ..import_all(known, &[from.to_owned()], root)? })
}

/// Imports a known dataset from several sources: folders, archives, and files that are read as they are.
pub(crate) fn import_all(known: &KnownDataset, from: &[PathBuf], root: &Path) -> Result<Imported, DataError> {
    let target = root.join(known.name);
    let check_not_in_place = || match target.symlink_metadata() {
        Ok(_) => Err(DataError::AlreadyInPlace { path: target.clone() }),
        Err(_) => Ok(()),
    };
    check_not_in_place()?;
    for path in from {
        check_source(path, root)?;
    }
    let staging = Staging::new(root, known.name)?;
    // another process may have finished just now
    check_not_in_place()?;
    for path in from {
        add(known, path, &staging.dataset)?;
    }
    // errors name files of the source, because the staging folder goes away
    let source = if let [path] = from { path } else { &target };
    let (folder, dataset) =
        read(known, &staging.dataset).map_err(|error| relocated(error, &staging.dataset, source))?;
    fs::rename(&folder, &target).map_err(cannot_write(&target))?;
    Ok(Imported { dataset, path: target, checksum: None })
}

/// Checks that a source exists and does not contain the data folder.
fn check_source(path: &Path, root: &Path) -> Result<(), DataError> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DataError::NoSource { path: path.to_owned() },
        _ => cannot_read(path)(error),
    })?;
    let root = std::path::absolute(root).map_err(cannot_read(root))?;
    // folders that do not exist yet are not links
    match root.ancestors().find_map(|folder| folder.canonicalize().ok()) {
        Some(existing) if existing.starts_with(&real) => {
            Err(DataError::ContainsDataRoot { path: path.to_owned(), root })
        }
        _ => Ok(()),
    }
}

/// Reads a dataset from its folder, or from the only folder inside.
fn read(known: &KnownDataset, folder: &Path) -> Result<(PathBuf, Dataset), DataError> {
    let error = match known.load(folder) {
        Ok(dataset) => return Ok((folder.to_owned(), dataset)),
        Err(error) => error,
    };
    let mut entries = fs::read_dir(folder).map_err(cannot_read(folder))?.flatten().map(|entry| entry.path());
    match (entries.next(), entries.next()) {
        (Some(inner), None) if inner.is_dir() && matches!(error, DataError::Missing { .. }) => {
            let dataset = known.load(&inner)?;
            Ok((inner, dataset))
        }
        _ => Err(error),
    }
}

/// Replaces paths in the staging folder by paths in the source.
fn relocated(mut error: DataError, staging: &Path, source: &Path) -> DataError {
    let moved = |path: &mut PathBuf| match path.strip_prefix(staging) {
        Ok(inside) if inside.as_os_str().is_empty() => *path = source.to_owned(),
        Ok(inside) => *path = source.join(inside),
        Err(_) => {}
    };
    match &mut error {
        DataError::Read { path, .. }
        | DataError::Magic { path, .. }
        | DataError::Size { path, .. }
        | DataError::Limit { path, .. }
        | DataError::Label { path, .. }
        | DataError::Line { path, .. }
        | DataError::NoImages { path }
        | DataError::Unrecognized { path } => moved(path),
        DataError::Missing { folder, .. } | DataError::SameClass { folder } => moved(folder),
        DataError::ExtraClass { folder, train, .. } => [folder, train].into_iter().for_each(moved),
        DataError::Mismatch { path, other, .. } => [path, other].into_iter().for_each(moved),
        _ => {}
    }
    error
}

/// Copies or unpacks one source into a folder.
fn add(known: &KnownDataset, path: &Path, into: &Path) -> Result<(), DataError> {
    if path.is_dir() {
        return copy(path, into);
    }
    let mut file = File::open(path).map_err(cannot_read(path))?;
    if zip::is_zip(&up_to(&mut file, 4, path)?) {
        return unpack_zip(path, &mut file, into, known.max_unpacked_bytes());
    }
    match path.file_name() {
        Some(name) if known.has_plain_files() && !is_tar(path)? => {
            let target = into.join(name);
            fs::copy(path, &target).map_err(cannot_write(&target))?;
            Ok(())
        }
        _ => unpack(path, &mut *open(path)?, into, known.max_unpacked_bytes()),
    }
}

/// Name of the lock file.
pub(super) const LOCK_FILE: &str = "lock";

/// Locks a folder for this process.
pub(super) fn lock(folder: &Path) -> Result<FolderLock, DataError> {
    let path = folder.join(LOCK_FILE);
    FolderLock::acquire(&path).map_err(|error| match error {
        LockError::Held { owner } => DataError::Busy { folder: folder.to_owned(), owner },
        LockError::Io(error) => cannot_write(&path)(error),
    })
}

/// A folder in which only this process works, and which is removed at the end.
struct Staging {
    folder: PathBuf,
    /// Where the dataset is put together.
    dataset: PathBuf,
    _lock: FolderLock,
}

impl Staging {
    fn new(root: &Path, name: &str) -> Result<Self, DataError> {
        let folder = root.join(format!(".importing-{name}"));
        fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
        let lock = lock(&folder)?;
        let staging = Self { dataset: folder.join("dataset"), folder, _lock: lock };
        // left by a process that was killed
        if staging.dataset.symlink_metadata().is_ok() {
            fs::remove_dir_all(&staging.dataset).map_err(cannot_write(&staging.dataset))?;
        }
        fs::create_dir(&staging.dataset).map_err(cannot_write(&staging.dataset))?;
        Ok(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Copies files and folders; links to files are followed.
fn copy(from: &Path, to: &Path) -> Result<(), DataError> {
    fs::create_dir_all(to).map_err(cannot_write(to))?;
    for entry in fs::read_dir(from).map_err(cannot_read(from))? {
        let entry = entry.map_err(cannot_read(from))?;
        let kind = entry.file_type().map_err(cannot_read(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let refused = |what| Err(DataError::NotCopied { path: source.clone(), what });
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if source.is_file() {
            fs::copy(&source, &target).map_err(cannot_write(&target))?;
        } else if source.is_dir() {
            return refused("a link to a folder");
        } else if kind.is_symlink() {
            return refused("a link that leads to no file");
        } else {
            return refused("neither a file nor a folder");
        }
    }
    Ok(())
}
