//! A set that is already on disk, as a folder, a .tar.gz or a .zip, put where named sets are looked for.
//!
//! It is unpacked or copied into a folder beside its place, read there as training would read it, and only then renamed: what is
//! in place is whole. An archive may hold files and folders inside itself, and nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use crate::error::DataError;
use crate::known::{Known, Official};
use crate::set::DataSet;
use crate::source::{Archive, cannot_read, cannot_write, inside, is_archive, md5_of, open, up_to};
use crate::zip;

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// Where it is now.
    pub place: PathBuf,
    /// What it holds.
    pub set: DataSet,
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
    if place.symlink_metadata().is_ok() {
        return Err(DataError::InPlace { path: place });
    }
    for path in from {
        path.metadata().map_err(cannot_read(path))?;
    }
    let staging = Staging::new(root, known.name)?;
    for path in from {
        bring(known, path, &staging.0)?;
    }
    let set = known.load(&staging.0)?;
    fs::rename(&staging.0, &place).map_err(cannot_write(&place))?;
    Ok(Imported { set, place, checksum: None })
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

/// A folder that goes away again unless it was renamed.
struct Staging(PathBuf);

impl Staging {
    fn new(root: &Path, name: &str) -> Result<Self, DataError> {
        let path = root.join(format!(".importing-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(cannot_write(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies files and folders; links are not followed, and not copied.
fn copy(from: &Path, to: &Path) -> Result<(), DataError> {
    fs::create_dir_all(to).map_err(cannot_write(to))?;
    for entry in fs::read_dir(from).map_err(cannot_read(from))? {
        let entry = entry.map_err(cannot_read(from))?;
        let kind = entry.file_type().map_err(cannot_read(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(cannot_write(&target))?;
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
