//! A named set from where its makers publish it: download, check, import.
//!
//! Files gather in `.fetching-<name>` under the root, and stay there while something is missing: the same call goes on with them. One
//! process at a time works there. What is whole is then imported like a set that was on disk already.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::acquire::catalog::{Known, Official};
use crate::acquire::download::{Event, Patience, download};
use crate::acquire::import::import_all;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::source::cannot_write;

/// What is to be fetched, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'a> {
    /// The set.
    pub known: &'a Known,
    /// What it is made of.
    pub files: &'a [Official<'a>],
    /// Another place that has the same files: the address of a folder, or of one of them.
    pub from: Option<&'a str>,
    /// Where named sets are kept.
    pub root: &'a Path,
    /// Whether the files stay as they came, beside the set.
    pub keep: bool,
    /// When to give up.
    pub patience: Patience,
}

/// What was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// Where it is now.
    pub place: PathBuf,
    /// What it holds.
    pub set: Dataset,
    /// Where the files are as they came, if they were to be kept.
    pub kept: Option<PathBuf>,
}

impl<'a> Fetch<'a> {
    /// A set from its official place.
    #[must_use]
    pub fn new(known: &'a Known, root: &'a Path) -> Self {
        Self { known, files: known.files, from: None, root, keep: false, patience: Patience::default() }
    }

    /// Fetches it.
    ///
    /// # Errors
    /// If it is in place already, nobody may fetch it, another process is fetching it, and what [`download`] and
    /// [`import`](crate::acquire::import::import) refuse.
    pub fn run(&self, report: &mut dyn FnMut(Event<'_>)) -> Result<Fetched, DataError> {
        let name = self.known.name;
        if self.files.is_empty() {
            return Err(DataError::NotPublished { name });
        }
        let urls = self.files.iter().map(|file| self.address(file)).collect::<Result<Vec<_>, _>>()?;
        let in_place = || match self.root.join(name) {
            path if path.symlink_metadata().is_ok() => Err(DataError::InPlace { path }),
            _ => Ok(()),
        };
        in_place()?;
        let folder = self.root.join(format!(".fetching-{name}"));
        fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
        let lock = lock(&folder)?;
        // another process may have ended just now
        in_place()?;
        let mut files = Vec::new();
        for (file, url) in self.files.iter().zip(&urls) {
            // what is packed is no larger than what it may unpack to
            files.push(download(file, url, &folder, self.known.most_bytes(), self.patience, report)?);
        }
        report(Event::Unpacking);
        let imported = import_all(self.known, &files, self.root)?;
        // the set is there: what cannot be tidied away is no failure
        let _ = fs::remove_file(folder.join(LOCK));
        if !self.keep {
            let _ = fs::remove_dir_all(&folder);
        }
        drop(lock);
        Ok(Fetched { place: imported.place, set: imported.set, kept: self.keep.then_some(folder) })
    }

    /// Where a file comes from.
    fn address(&self, file: &Official<'_>) -> Result<String, DataError> {
        let Some(from) = self.from else { return Ok(file.url.to_owned()) };
        let wrong = |what: &str| DataError::Address { url: from.to_owned(), what: what.to_owned() };
        let host = from.strip_prefix("https://").or_else(|| from.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) {
            return Err(wrong("http:// or https:// and a server are needed"));
        }
        if from.contains(['?', '#']) {
            return Err(wrong("a folder of files has no `?` and no `#`"));
        }
        let (folder, last) = from.rsplit_once('/').unwrap_or((from, ""));
        let names_a_file = self.files.iter().any(|file| file.name() == last);
        let folder = if names_a_file { folder } else { from.trim_end_matches('/') };
        Ok(format!("{folder}/{}", file.name()))
    }
}

pub(crate) const LOCK: &str = "lock";

/// Takes a folder for this process. The system takes it back when the process ends, however that comes about.
pub(crate) fn lock(folder: &Path) -> Result<File, DataError> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    let mut file =
        options.create(true).truncate(false).read(true).write(true).open(&path).map_err(cannot_write(&path))?;
    let busy = || {
        let process = fs::read_to_string(&path).unwrap_or_default();
        DataError::Busy { folder: folder.to_owned(), process: process.trim().to_owned() }
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(cannot_write(&path)(error)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(cannot_write(&path))?;
    // whoever had it may have removed it before we took it, and a third one may have made it again
    let ours = fs::read_to_string(&path).is_ok_and(|process| process.trim() == std::process::id().to_string());
    if ours { Ok(file) } else { Err(busy()) }
}
