//! A set that is already on disk, as a folder or a .tar.gz, put where named sets are looked for.
//!
//! It is unpacked or copied into a folder beside its place, read there as training would read it, and only then renamed: what is
//! in place is whole. An archive may hold files and folders inside itself, and nothing else.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::error::DataError;
use crate::known::Known;
use crate::set::DataSet;
use crate::source::{Archive, cannot_read, open};

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// Where it is now.
    pub place: PathBuf,
    /// What it holds.
    pub set: DataSet,
}

/// Imports a named set.
///
/// # Errors
/// If there is one in place already, the archive is hostile or too large, the disk fails us, or what arrived cannot be read.
/// Nothing is left behind then.
pub fn import(known: &Known, from: &Path, root: &Path) -> Result<Imported, DataError> {
    let place = root.join(known.name);
    if place.symlink_metadata().is_ok() {
        return Err(DataError::InPlace { path: place });
    }
    let meta = from.metadata().map_err(cannot_read(from))?;
    let staging = Staging::new(root, known.name)?;
    if meta.is_dir() {
        copy(from, &staging.0)?;
    } else {
        unpack(from, &mut *open(from)?, &staging.0, known.most_bytes())?;
    }
    let set = known.load(&staging.0)?;
    fs::rename(&staging.0, &place).map_err(cannot_write(&place))?;
    Ok(Imported { set, place })
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Write { path, source }
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

/// Unpacks an archive into a folder: at most `most` bytes, and nothing outside of it.
///
/// # Errors
/// Names the entry that is hostile or too much.
pub fn unpack(path: &Path, reader: &mut dyn Read, into: &Path, most: u64) -> Result<(), DataError> {
    let hostile = |entry: &Path, what| DataError::Hostile { path: path.to_owned(), entry: entry.to_owned(), what };
    let mut archive = Archive::new(reader);
    let mut total = 0u64;
    for entry in archive.entries(path)? {
        let mut entry = entry?;
        let inside = entry.path().map_err(cannot_read(path))?.into_owned();
        let normal = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !inside.components().all(normal) {
            return Err(hostile(&inside, "it would lie outside the archive's folder"));
        }
        let target = into.join(&inside);
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&target).map_err(cannot_write(&target))?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let folder = target.parent().unwrap_or(into);
                fs::create_dir_all(folder).map_err(cannot_write(folder))?;
                // never through something that is there already
                let mut file = fs::File::create_new(&target).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => hostile(&inside, "there is another entry of this name"),
                    _ => cannot_write(&target)(error),
                })?;
                let room = most.saturating_sub(total);
                total += io::copy(&mut (&mut entry).take(room + 1), &mut file).map_err(cannot_write(&target))?;
                if total > most {
                    return Err(DataError::Limit { path: path.to_owned(), what: "bytes unpacked", got: total, most });
                }
            }
            // what some archivers note beside the files
            tar::EntryType::XGlobalHeader | tar::EntryType::XHeader => {}
            _ => return Err(hostile(&inside, "neither a file nor a folder")),
        }
    }
    Ok(())
}
