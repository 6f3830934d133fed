//! Unpacks archives of datasets. An archive may hold files and folders inside itself, and nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

use crate::error::DataError;
use crate::read::source::{cannot_read, cannot_write};
use crate::read::tar::{TarArchive, stays_inside};
use crate::read::zip;

/// Unpacks a tar archive into a folder: at most `limit` bytes, and nothing outside of the folder.
///
/// # Errors
/// Names the entry that is hostile or too large.
pub fn unpack(path: &Path, reader: &mut dyn Read, into: &Path, limit: u64) -> Result<(), DataError> {
    let hostile =
        |entry: &Path, what| DataError::HostileArchive { path: path.to_owned(), entry: entry.to_owned(), what };
    let mut archive = TarArchive::new(reader);
    let mut target = Target { archive: path, into, limit, total: 0 };
    for entry in archive.entries(path)? {
        let mut entry = entry?;
        let name = entry.path().map_err(cannot_read(path))?.into_owned();
        if !stays_inside(&name) {
            return Err(hostile(&name, "it would be unpacked outside the folder"));
        }
        match entry.header().entry_type() {
            tar::EntryType::Directory => target.folder(&name)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => target.file(&name, &mut entry)?,
            // metadata that some archivers write
            tar::EntryType::XGlobalHeader | tar::EntryType::XHeader => {}
            _ => return Err(hostile(&name, "neither a file nor a folder")),
        }
    }
    Ok(())
}

/// Unpacks a zip archive into a folder: at most `limit` bytes, and nothing outside of the folder.
///
/// # Errors
/// Names the entry that is hostile or too large.
pub fn unpack_zip(path: &Path, reader: &mut (impl Read + Seek), into: &Path, limit: u64) -> Result<(), DataError> {
    let mut target = Target { archive: path, into, limit, total: 0 };
    zip::walk(path, reader, |name, file| match file {
        None => target.folder(name),
        Some(file) => target.file(name, file),
    })
}

/// The folder that an archive is unpacked into.
struct Target<'a> {
    archive: &'a Path,
    into: &'a Path,
    limit: u64,
    /// Bytes written so far.
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
        // never through an existing file or link
        let mut file = File::create_new(&target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let (path, entry) = (self.archive.to_owned(), name.to_owned());
                DataError::HostileArchive { path, entry, what: "there is another entry of this name" }
            }
            _ => cannot_write(&target)(error),
        })?;
        let allowed = self.limit.saturating_sub(self.total);
        let mut from = FailureReader { inner: from.take(allowed + 1), failed: false };
        let copied = io::copy(&mut from, &mut file);
        self.total += match copied {
            // a corrupt archive is not a failure of the disk
            Err(error) if from.failed => return Err(cannot_read(self.archive)(error)),
            copied => copied.map_err(cannot_write(&target))?,
        };
        if self.total > self.limit {
            let (path, got, limit) = (self.archive.to_owned(), self.total, self.limit);
            return Err(DataError::Limit { path, what: "bytes unpacked", got, limit });
        }
        Ok(())
    }
}

/// A reader that remembers whether it failed.
struct FailureReader<R> {
    inner: R,
    failed: bool,
}

impl<R: Read> Read for FailureReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer);
        self.failed = got.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        got
    }
}
