//! The files below a folder.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::dataset::Problem;
use crate::error::DataError;
use crate::read::decode::may_be_image;
use crate::read::source::cannot_read;

/// Collects the images of a class: every image below its folder, sorted by folder. Links are followed, each folder at most
/// once; a link to a folder around it is an error, because it would never end.
#[derive(Default)]
pub(in crate::read) struct Walk {
    /// The images.
    pub(in crate::read) files: Vec<PathBuf>,
    /// What is neither an image nor a folder.
    pub(in crate::read) problems: Vec<Problem>,
    /// Number of hidden entries.
    pub(in crate::read) hidden: usize,
    /// The folders that links have led to.
    linked: HashSet<PathBuf>,
    /// Where links have led to on the way to the current folder.
    way: Vec<PathBuf>,
}

impl Walk {
    /// All images below a folder, which may be a link.
    pub(in crate::read) fn below(folder: &Path) -> Result<Self, DataError> {
        let mut walk = Self::default();
        walk.way.push(fs::canonicalize(folder).map_err(cannot_read(folder))?);
        walk.folder(folder)?;
        Ok(walk)
    }

    fn folder(&mut self, folder: &Path) -> Result<(), DataError> {
        for entry in entries(folder, &mut self.hidden)? {
            let kind = entry.file_type().map_err(cannot_read(folder))?;
            let path = entry.path();
            if kind.is_dir() {
                self.folder(&path)?;
            } else if kind.is_file() || path.is_file() {
                match may_be_image(&path) {
                    true => self.files.push(path),
                    false => self.problems.push(problem(&path, "not an image")),
                }
            } else if path.is_dir() {
                self.link(&path)?;
            } else {
                self.problems.push(problem(&path, "neither a file nor a folder"));
            }
        }
        Ok(())
    }

    /// Follows a link to a folder.
    fn link(&mut self, link: &Path) -> Result<(), DataError> {
        let target = fs::canonicalize(link).map_err(cannot_read(link))?;
        let here = fs::canonicalize(link.parent().unwrap_or(link)).map_err(cannot_read(link))?;
        if here.starts_with(&target) || self.way.iter().any(|way| way.starts_with(&target)) {
            return Err(DataError::LinkLoop { link: link.to_owned(), target });
        }
        if !self.linked.insert(target.clone()) {
            self.problems.push(problem(link, "another link leads to the same folder, which is read once"));
            return Ok(());
        }
        self.way.push(here);
        self.folder(link)?;
        self.way.pop();
        Ok(())
    }
}

/// Refuses a class folder that is a link to a folder around it.
pub(super) fn check_link(link: &Path) -> Result<(), DataError> {
    let target = fs::canonicalize(link).map_err(cannot_read(link))?;
    let here = fs::canonicalize(link.parent().unwrap_or(link)).map_err(cannot_read(link))?;
    if here.starts_with(&target) { Err(DataError::LinkLoop { link: link.to_owned(), target }) } else { Ok(()) }
}

pub(super) fn problem(path: &Path, what: &str) -> Problem {
    Problem { path: path.display().to_string(), what: what.to_owned() }
}

/// The folder that macOS adds to an archive, with hidden files only.
const MACOS_FOLDER: &[u8] = b"__MACOSX";

/// The entries of a folder that are not hidden, sorted; `hidden` counts the others.
pub(in crate::read) fn entries(path: &Path, hidden: &mut usize) -> Result<Vec<fs::DirEntry>, DataError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot_read(path))? {
        let entry = entry.map_err(cannot_read(path))?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || name.as_encoded_bytes() == MACOS_FOLDER {
            *hidden += 1;
        } else {
            entries.push(entry);
        }
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}
