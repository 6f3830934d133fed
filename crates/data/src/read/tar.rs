//! Tar archives, packed with gzip or not.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::source::{LimitedReader, at_most, cannot_read, open};
use crate::error::DataError;

/// Limit on the bytes before an entry's contents: its header, long names, attributes.
const MAX_HEADER: u64 = 1 << 20;
/// Limit on the number of entries.
const MAX_ENTRIES: usize = 4_000_000;

type TarEntry<'a, 'r> = tar::Entry<'a, LimitedReader<&'r mut dyn Read>>;

/// A tar archive. Whatever its headers say, at most [`MAX_HEADER`] bytes of memory are allocated for them.
pub(crate) struct TarArchive<'r> {
    inner: tar::Archive<LimitedReader<&'r mut dyn Read>>,
    limit: Rc<Cell<u64>>,
}

impl<'r> TarArchive<'r> {
    pub(crate) fn new(reader: &'r mut dyn Read) -> Self {
        let reader = LimitedReader::new(reader, MAX_HEADER, "an entry's name and attributes are too long");
        let limit = reader.limit();
        Self { inner: tar::Archive::new(reader), limit }
    }

    /// The entries of the archive; `path` is for messages.
    pub(crate) fn entries<'a>(
        &'a mut self,
        path: &'a Path,
    ) -> Result<impl Iterator<Item = Result<TarEntry<'a, 'r>, DataError>>, DataError> {
        let limit = Rc::clone(&self.limit);
        let entries = self.inner.entries().map_err(cannot_read(path))?;
        Ok(entries.enumerate().map(move |(number, entry)| {
            let entry = entry.map_err(cannot_read(path))?;
            if number >= MAX_ENTRIES {
                let (got, limit) = (number as u64 + 1, MAX_ENTRIES as u64);
                return Err(DataError::Limit { path: path.to_owned(), what: "entries", got, limit });
            }
            // the size of a sparse file includes holes that are not in the archive
            let sparse = entry.header().entry_type().is_gnu_sparse();
            let size = if sparse { entry.header().entry_size().unwrap_or(0) } else { entry.size() };
            limit.set(entry.raw_file_position().saturating_add(size).saturating_add(MAX_HEADER));
            Ok(entry)
        }))
    }
}

/// Whether a name in an archive stays inside the folder it is unpacked to.
pub(crate) fn stays_inside(name: &Path) -> bool {
    name.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// Whether a file is a tar archive, packed or not.
pub(crate) fn is_tar(path: &Path) -> Result<bool, DataError> {
    let mut head = Vec::new();
    // what cannot be unpacked is no archive either
    let read = open(path)?.take(512).read_to_end(&mut head);
    Ok(read.is_ok() && head.get(257..262) == Some(b"ustar"))
}

/// A file that was read completely.
pub(crate) struct LoadedFile {
    /// Where it comes from.
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// The wanted files of a folder or tar archive, by name, each of at most `limit` bytes.
///
/// A folder is searched itself and in its subfolder `inner`; an archive is searched at any depth.
pub(crate) fn wanted_files(
    path: &Path,
    inner: &str,
    wanted: &[&str],
    limit: u64,
) -> Result<BTreeMap<String, LoadedFile>, DataError> {
    if !path.metadata().map_err(cannot_read(path))?.is_dir() {
        return wanted_entries(path, &mut *open(path)?, wanted, limit);
    }
    let mut found = BTreeMap::new();
    for folder in [path.to_owned(), path.join(inner)] {
        for name in wanted {
            let file = folder.join(name);
            if file.is_file() {
                let size = file.metadata().map_err(cannot_read(&file))?.len();
                let bytes = at_most(&mut *open(&file)?, size, limit, &file)?;
                found.insert((*name).to_owned(), LoadedFile { path: file, bytes });
            }
        }
    }
    Ok(found)
}

/// The wanted files of a tar archive; `path` is for messages.
pub(crate) fn wanted_entries(
    path: &Path,
    reader: &mut dyn Read,
    wanted: &[&str],
    limit: u64,
) -> Result<BTreeMap<String, LoadedFile>, DataError> {
    let mut found = BTreeMap::new();
    for entry in TarArchive::new(reader).entries(path)? {
        let mut entry = entry?;
        let inside = entry.path().map_err(cannot_read(path))?.into_owned();
        let name = inside.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.header().entry_type().is_file() && wanted.contains(&name) {
            let Entry::Vacant(vacant) = found.entry(name.to_owned()) else {
                let what = "there is another file of this name";
                return Err(DataError::HostileArchive { path: path.to_owned(), entry: inside, what });
            };
            let from = path.join(&inside);
            let size = entry.size();
            let bytes = at_most(&mut entry, size, limit, &from)?;
            if bytes.len() as u64 != size {
                return Err(DataError::Size { path: from, got: bytes.len() as u64, want: size.to_string() });
            }
            vacant.insert(LoadedFile { path: from, bytes });
        }
    }
    Ok(found)
}
