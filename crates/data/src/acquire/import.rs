//! A set that is already on disk, as a folder, a .tar.gz or a .zip, put where named sets are looked for.
//!
//! It is unpacked or copied into a folder beside its place, read there as training would read it, and only then renamed: what is
//! in place is whole. An archive may hold files and folders inside itself, and nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use crate::acquire::catalog::{Known, Official};
use crate::acquire::fetch::lock;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::source::{Archive, cannot_read, cannot_write, inside, is_archive, md5_of, open, up_to};
use crate::read::zip;

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// Where it is now.
    pub place: PathBuf,
    /// What it holds.
    pub set: Dataset,
    /// Whether it came as the official archive, where that can be told.
    pub checksum: Option<Checksum>,
}

/// An archive beside the official one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// They are the same.
    Official,
    /// They are not.
    Differs {
        /// The archive's MD5 sum.
        got: String,
        /// The official one.
        official: &'static str,
    },
}

/// Imports a named set.
///
/// # Errors
/// If there is one in place already, the archive is hostile or too large, the disk fails us, or what arrived cannot be read.
/// Nothing is left behind then.
pub fn import(known: &Known, from: &Path, root: &Path) -> Result<Imported, DataError> {
    outside(from, root)?;
    let checksum = match known.files {
        [Official { md5: Some(official), .. }] if from.is_file() => {
            let got = md5_of(from)?;
            Some(if got == *official { Checksum::Official } else { Checksum::Differs { got, official } })
        }
        _ => None,
    };
    Ok(Imported { checksum, ..import_all(known, &[from.to_owned()], root)? })
}

/// Imports a named set from all of its parts: folders, archives, and files that are read as they are.
pub(crate) fn import_all(known: &Known, from: &[PathBuf], root: &Path) -> Result<Imported, DataError> {
    let place = root.join(known.name);
    let in_place = || match place.symlink_metadata() {
        Ok(_) => Err(DataError::InPlace { path: place.clone() }),
        Err(_) => Ok(()),
    };
    in_place()?;
    for path in from {
        outside(path, root)?;
    }
    let staging = Staging::new(root, known.name)?;
    // another process may have ended just now
    in_place()?;
    for path in from {
        bring(known, path, &staging.set)?;
    }
    // what is wrong is in the source, as far as anybody can see
    let source = if let [path] = from { path } else { &place };
    let (folder, set) = read(known, &staging.set).map_err(|error| seen_from(error, &staging.set, source))?;
    fs::rename(&folder, &place).map_err(cannot_write(&place))?;
    Ok(Imported { set, place, checksum: None })
}

/// Checks that a source is there, and not around the place that it is copied to.
fn outside(path: &Path, root: &Path) -> Result<(), DataError> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DataError::NoSource { path: path.to_owned() },
        _ => cannot_read(path)(error),
    })?;
    let whole = std::path::absolute(root).map_err(cannot_read(root))?;
    // what is not there yet has no links
    match whole.ancestors().find_map(|folder| folder.canonicalize().ok()) {
        Some(root) if root.starts_with(&real) => Err(DataError::Around { path: path.to_owned(), root: whole }),
        _ => Ok(()),
    }
}

/// Reads what was brought, from its folder or the only one inside, whatever that is called.
fn read(known: &Known, folder: &Path) -> Result<(PathBuf, Dataset), DataError> {
    let error = match known.load(folder) {
        Ok(set) => return Ok((folder.to_owned(), set)),
        Err(error) => error,
    };
    let mut entries = fs::read_dir(folder).map_err(cannot_read(folder))?.flatten().map(|entry| entry.path());
    match (entries.next(), entries.next()) {
        (Some(inner), None) if inner.is_dir() && matches!(error, DataError::Missing { .. }) => {
            let set = known.load(&inner)?;
            Ok((inner, set))
        }
        _ => Err(error),
    }
}

/// An error whose files are named where they came from.
fn seen_from(mut error: DataError, staging: &Path, source: &Path) -> DataError {
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
        | DataError::Unrecognised { path } => moved(path),
        DataError::Missing { folder, .. } | DataError::SameClass { folder } => moved(folder),
        DataError::ExtraClass { folder, train } => [folder, train].into_iter().for_each(moved),
        DataError::Mismatch { path, other, .. } => [path, other].into_iter().for_each(moved),
        _ => {}
    }
    error
}

/// Copies or unpacks one part of a set.
fn bring(known: &Known, path: &Path, into: &Path) -> Result<(), DataError> {
    if path.is_dir() {
        return copy(path, into);
    }
    let mut file = File::open(path).map_err(cannot_read(path))?;
    if zip::is_zip(&up_to(&mut file, 4, path)?) {
        return unpack_zip(path, &mut file, into, known.most_bytes());
    }
    match path.file_name() {
        Some(name) if known.has_plain_files() && !is_archive(path)? => {
            let target = into.join(name);
            fs::copy(path, &target).map_err(cannot_write(&target))?;
            Ok(())
        }
        _ => unpack(path, &mut *open(path)?, into, known.most_bytes()),
    }
}

/// Where a set is put together: a folder that this process alone works in, and that goes away again.
struct Staging {
    folder: PathBuf,
    set: PathBuf,
    _lock: File,
}

impl Staging {
    fn new(root: &Path, name: &str) -> Result<Self, DataError> {
        let folder = root.join(format!(".importing-{name}"));
        fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
        let lock = lock(&folder)?;
        let staging = Self { set: folder.join("set"), folder, _lock: lock };
        // of a process that was killed
        if staging.set.symlink_metadata().is_ok() {
            fs::remove_dir_all(&staging.set).map_err(cannot_write(&staging.set))?;
        }
        fs::create_dir(&staging.set).map_err(cannot_write(&staging.set))?;
        Ok(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Copies files, folders, and what links to files point at.
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

/// Unpacks a tar archive into a folder: at most `most` bytes, and nothing outside of it.
///
/// # Errors
/// Names the entry that is hostile or too much.
pub fn unpack(path: &Path, reader: &mut dyn Read, into: &Path, most: u64) -> Result<(), DataError> {
    let hostile = |entry: &Path, what| DataError::Hostile { path: path.to_owned(), entry: entry.to_owned(), what };
    let mut archive = Archive::new(reader);
    let mut target = Target { archive: path, into, most, total: 0 };
    for entry in archive.entries(path)? {
        let mut entry = entry?;
        let name = entry.path().map_err(cannot_read(path))?.into_owned();
        if !inside(&name) {
            return Err(hostile(&name, "it would lie outside the archive's folder"));
        }
        match entry.header().entry_type() {
            tar::EntryType::Directory => target.folder(&name)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => target.file(&name, &mut entry)?,
            // what some archivers note beside the files
            tar::EntryType::XGlobalHeader | tar::EntryType::XHeader => {}
            _ => return Err(hostile(&name, "neither a file nor a folder")),
        }
    }
    Ok(())
}

/// Unpacks a zip archive into a folder: at most `most` bytes, and nothing outside of it.
///
/// # Errors
/// Names the entry that is hostile or too much.
pub fn unpack_zip(path: &Path, reader: &mut (impl Read + Seek), into: &Path, most: u64) -> Result<(), DataError> {
    let mut target = Target { archive: path, into, most, total: 0 };
    zip::walk(path, reader, |name, file| match file {
        None => target.folder(name),
        Some(file) => target.file(name, file),
    })
}

/// Where an archive is unpacked to.
struct Target<'a> {
    archive: &'a Path,
    into: &'a Path,
    most: u64,
    /// Bytes so far.
    total: u64,
}

impl Target<'_> {
    fn folder(&self, name: &Path) -> Result<(), DataError> {
        let folder = self.into.join(name);
        fs::create_dir_all(&folder).map_err(cannot_write(&folder))
    }

    fn file(&mut self, name: &Path, from: &mut dyn Read) -> Result<(), DataError> {
        self.folder(name.parent().unwrap_or(Path::new("")))?;
        let target = self.into.join(name);
        // never through something that is there already
        let mut file = File::create_new(&target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let (path, entry) = (self.archive.to_owned(), name.to_owned());
                DataError::Hostile { path, entry, what: "there is another entry of this name" }
            }
            _ => cannot_write(&target)(error),
        })?;
        let room = self.most.saturating_sub(self.total);
        let mut from = Told { inner: from.take(room + 1), failed: false };
        let copied = io::copy(&mut from, &mut file);
        self.total += match copied {
            // a torn archive is not the disk's fault
            Err(error) if from.failed => return Err(cannot_read(self.archive)(error)),
            copied => copied.map_err(cannot_write(&target))?,
        };
        if self.total > self.most {
            let (path, got, most) = (self.archive.to_owned(), self.total, self.most);
            return Err(DataError::Limit { path, what: "bytes unpacked", got, most });
        }
        Ok(())
    }
}

/// A reader that remembers whether it failed.
struct Told<R> {
    inner: R,
    failed: bool,
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer);
        self.failed = got.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        got
    }
}
