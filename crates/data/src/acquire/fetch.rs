//! Fetches a known dataset from where its authors publish it: download, check, import.
//!
//! Files are collected in `.fetching-<name>` in the data folder and stay there until all have arrived, so that the same call
//! resumes. One process at a time works there. Complete files are imported like a dataset that is already on disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::catalog::{KnownDataset, OfficialFile};
use super::download::{DownloadEvent, RetryPolicy, download};
use super::import::{LOCK_FILE, import_all, lock};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::source::cannot_write;

/// A dataset to fetch.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    /// The dataset.
    pub known: &'a KnownDataset,
    /// Its files.
    pub files: &'a [OfficialFile<'a>],
    /// A mirror of the files: the URL of a folder, or of one of the files.
    pub from: Option<&'a str>,
    /// The data folder.
    pub root: &'a Path,
    /// Whether the downloaded files are kept beside the dataset.
    pub keep: bool,
    /// When to retry and when to give up.
    pub retry: RetryPolicy,
}

/// A dataset that was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// Where it is now.
    pub path: PathBuf,
    /// The dataset, read as training reads it.
    pub dataset: Dataset,
    /// Folder of the downloaded files, if they are kept.
    pub kept: Option<PathBuf>,
}

impl<'a> Fetch<'a> {
    /// A dataset from its official source.
    #[must_use]
    pub fn new(known: &'a KnownDataset, root: &'a Path) -> Self {
        Self { known, files: known.files, from: None, root, keep: false, retry: RetryPolicy::default() }
    }

    /// Downloads and imports the dataset.
    ///
    /// # Errors
    /// If the dataset is already in place or not published, if another process is fetching it, and for everything that
    /// [`download`] and [`import`](super::import::import) refuse.
    pub fn run(&self, report: &mut dyn FnMut(DownloadEvent<'_>)) -> Result<Fetched, DataError> {
        let name = self.known.name;
        if self.files.is_empty() {
            return Err(DataError::NotPublished { name });
        }
        let urls = self.files.iter().map(|file| self.url(file)).collect::<Result<Vec<_>, _>>()?;
        let check_not_in_place = || match self.root.join(name) {
            path if path.symlink_metadata().is_ok() => Err(DataError::AlreadyInPlace { path }),
            _ => Ok(()),
        };
        check_not_in_place()?;
        let folder = self.root.join(format!(".fetching-{name}"));
        fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
        let lock = lock(&folder)?;
        // another process may have finished just now
        check_not_in_place()?;
        let mut files = Vec::new();
        for (file, url) in self.files.iter().zip(&urls) {
            // packed files are not larger than what they may unpack to
            files.push(download(file, url, &folder, self.known.max_unpacked_bytes(), self.retry, report)?);
        }
        report(DownloadEvent::Unpacking);
        let imported = import_all(self.known, &files, self.root)?;
        // the dataset is in place, so a failure to clean up does not matter
        let _ = fs::remove_file(folder.join(LOCK_FILE));
        if !self.keep {
            let _ = fs::remove_dir_all(&folder);
        }
        drop(lock);
        Ok(Fetched { path: imported.path, dataset: imported.dataset, kept: self.keep.then_some(folder) })
    }

    /// URL of a file, at its official source or at the mirror.
    fn url(&self, file: &OfficialFile<'_>) -> Result<String, DataError> {
        let Some(from) = self.from else { return Ok(file.url.to_owned()) };
        let invalid = |what: &str| DataError::Address { url: from.to_owned(), what: what.to_owned() };
        let host = from.strip_prefix("https://").or_else(|| from.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) {
            return Err(invalid("a mirror must start with http:// or https:// and name a server"));
        }
        if from.contains(['?', '#']) {
            return Err(invalid("the URL of a folder has no `?` and no `#`"));
        }
        let (folder, last) = from.rsplit_once('/').unwrap_or((from, ""));
        let names_a_file = self.files.iter().any(|file| file.name() == last);
        let folder = if names_a_file { folder } else { from.trim_end_matches('/') };
        Ok(format!("{folder}/{}", file.name()))
    }
}
