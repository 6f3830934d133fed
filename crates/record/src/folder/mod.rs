//! The owner of a run folder: one process writes to it at a time, every file in it is complete, and the last two
//! checkpoints are kept.

mod atomic;
mod error;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use equipoise_support::{FolderLock, without_position};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::atomic::{create_file, is_part, link_or_copy, part_path, publish, remove_if_exists, sync_folder};
pub use self::error::FolderError;
use self::error::{lock_error, read_error, write_error};
use crate::names::{CHECKPOINT, COMPARISON, CONFIG, LOCK, PART, PREVIOUS, is_comparison};

/// The folder of a run, or of a comparison of runs, locked for writing until it is dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: FolderLock,
}

impl RunFolder {
    /// Creates a folder and its parents. The folder may exist if it is empty.
    ///
    /// # Errors
    /// If the folder is not empty, is in use, or cannot be created.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        fs::create_dir_all(path).map_err(write_error(path))?;
        // checked before locking as well: the lock file would be a new file in a foreign folder
        require_empty(path)?;
        Self::claim(path)
    }

    /// Creates a folder in `parent` with a readable name that is still free: `stem`, else `stem-2`, `stem-3` and so on.
    /// Two processes never get the same folder.
    ///
    /// # Errors
    /// If `stem` is not a valid name, or the folder cannot be created.
    pub fn create_unique(parent: &Path, stem: &str) -> Result<Self, FolderError> {
        check_name(stem)?;
        fs::create_dir_all(parent).map_err(write_error(parent))?;
        let mut number = 1u64;
        loop {
            let path = parent.join(if number == 1 { stem.to_owned() } else { format!("{stem}-{number}") });
            match fs::create_dir(&path) {
                Ok(()) => match Self::claim(&path) {
                    // another process has taken the new folder by its name
                    Err(FolderError::Locked { .. } | FolderError::NotEmpty { .. }) => {}
                    other => return other,
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(write_error(&path)(error)),
            }
            number += 1;
        }
    }

    /// Opens the folder of a run and removes temporary files that a killed process left.
    ///
    /// # Errors
    /// If the folder is not a run ([`FolderError::NotARun`], [`FolderError::IsComparison`]), is in use, or cannot be
    /// written to.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if is_comparison(path) {
            return Err(FolderError::IsComparison { path: path.to_owned() });
        }
        Self::open_marked(path, CONFIG, |path| FolderError::NotARun { path })
    }

    /// Opens the folder of a comparison, as [`open`](Self::open) does that of a run.
    ///
    /// # Errors
    /// If the folder is not a comparison, is in use, or cannot be written to.
    pub fn open_comparison(path: &Path) -> Result<Self, FolderError> {
        Self::open_marked(path, COMPARISON, |path| FolderError::NotAComparison { path })
    }

    /// Opens a folder that has a file of this name.
    fn open_marked(path: &Path, marker: &str, missing: fn(PathBuf) -> FolderError) -> Result<Self, FolderError> {
        let file = path.join(marker);
        match fs::metadata(&file) {
            Ok(file) if file.is_file() => {}
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(read_error(&file)(error));
            }
            _ => return Err(missing(path.to_owned())),
        }
        let folder =
            Self { path: path.to_owned(), _lock: FolderLock::acquire(&path.join(LOCK)).map_err(lock_error(path))? };
        folder.remove_parts()?;
        Ok(folder)
    }

    /// Takes possession of an empty folder.
    fn claim(path: &Path) -> Result<Self, FolderError> {
        let folder =
            Self { path: path.to_owned(), _lock: FolderLock::acquire(&path.join(LOCK)).map_err(lock_error(path))? };
        // another process may have used it until just now
        require_empty(path)?;
        folder.remove_parts()?;
        if let Some(parent) = path.parent() {
            sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
        }
        Ok(folder)
    }

    /// Removes temporary files that a killed process left.
    fn remove_parts(&self) -> Result<(), FolderError> {
        for entry in fs::read_dir(&self.path).map_err(read_error(&self.path))? {
            let entry = entry.map_err(read_error(&self.path))?;
            if is_part(&entry) {
                remove_if_exists(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file atomically. An existing file of this name is replaced.
    ///
    /// # Errors
    /// If the name is not valid or writing fails. The old file is then still there.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        self.write_from(name, &mut &bytes[..])
    }

    /// Writes a file as [`write`](Self::write) does, with the bytes of a reader.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_from(&self, name: &str, content: &mut dyn Read) -> Result<(), FolderError> {
        let path = self.file(name)?;
        create_file(&part_path(&path), content)?;
        publish(&path)
    }

    /// Appends to a file, which is created if it does not exist.
    ///
    /// # Errors
    /// If the name is not valid or writing fails.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let path = self.file(name)?;
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(write_error(&path))
    }

    /// Appends values to a file, each as one line of JSON.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_json_lines<T: Serialize>(&self, name: &str, values: &[T]) -> Result<(), FolderError> {
        let mut lines = Vec::new();
        for value in values {
            serde_json::to_writer(&mut lines, value)
                .map_err(|error| write_error(&self.path.join(name))(error.into()))?;
            lines.push(b'\n');
        }
        self.append(name, &lines)
    }

    /// Checks that every complete line of a file is such a value in JSON. Returns the number of lines, 0 without a
    /// file.
    ///
    /// # Errors
    /// If the file cannot be read; [`FolderError::Line`] names the first line that is damaged.
    pub fn check_json_lines<T: DeserializeOwned>(&self, name: &str) -> Result<usize, FolderError> {
        self.check_lines(name, |_: &T, _| Ok(()))
    }

    /// Checks a file as [`check_json_lines`](Self::check_json_lines) does, and that its lines are the epochs from 1 on.
    ///
    /// # Errors
    /// As [`check_json_lines`](Self::check_json_lines), and for the first line that is of another epoch.
    pub fn check_epochs<T: DeserializeOwned>(
        &self,
        name: &str,
        epoch: impl Fn(&T) -> u64,
    ) -> Result<usize, FolderError> {
        self.check_lines(name, |value, line| match epoch(value) {
            epoch if epoch == line as u64 => Ok(()),
            epoch => Err(format!("it is of epoch {epoch}, but epoch {line} comes next")),
        })
    }

    fn check_lines<T: DeserializeOwned>(
        &self,
        name: &str,
        check: impl Fn(&T, usize) -> Result<(), String>,
    ) -> Result<usize, FolderError> {
        let path = self.file(name)?;
        let text = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(read_error(&path)(error)),
        };
        // a killed process may not have finished its last line
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &text[..end]);
        let mut lines = 0;
        for line in complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            lines += 1;
            let value = serde_json::from_slice::<T>(line).map_err(|error| without_position(&error.to_string()));
            let checked = value.and_then(|value| check(&value, lines));
            checked.map_err(|what| FolderError::Line { path: path.clone(), line: lines, what })?;
        }
        Ok(lines)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// If the name is not valid or the file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        remove_if_exists(&self.file(name)?)?;
        sync_folder(&self.path)
    }

    /// Truncates a file after its first `max_lines` complete lines and returns how many lines are left. A file that
    /// does not exist has none.
    ///
    /// # Errors
    /// If the file cannot be read or truncated.
    pub fn truncate_lines(&self, name: &str, max_lines: usize) -> Result<usize, FolderError> {
        let path = self.file(name)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(read_error(&path)(error)),
        };
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
        let (lines, length) = ends.take(max_lines).fold((0, 0), |(lines, _), end| (lines + 1, end));
        if length < bytes.len() {
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(length as u64)).map_err(write_error(&path))?;
        }
        Ok(lines)
    }

    /// Makes these bytes the newest checkpoint. The checkpoint that was the newest becomes the previous one if `is_intact`
    /// says so: a corrupt file must not replace what may be the only good one. Whenever this is interrupted, a good
    /// checkpoint is left if there was one before.
    ///
    /// # Errors
    /// If writing fails. Every checkpoint that was usable is then still usable.
    pub fn rotate_checkpoint(
        &self,
        content: &mut dyn Read,
        is_intact: impl FnOnce(&Path) -> bool,
    ) -> Result<(), FolderError> {
        let (newest, previous) = (self.path.join(CHECKPOINT), self.path.join(PREVIOUS));
        create_file(&part_path(&newest), content)?;
        if is_intact(&newest) {
            link_or_copy(&newest, &part_path(&previous)).and_then(|()| publish(&previous)).inspect_err(|_| {
                let _ = fs::remove_file(part_path(&newest));
            })?;
        }
        publish(&newest)
    }

    /// The path of a file in the folder.
    fn file(&self, name: &str) -> Result<PathBuf, FolderError> {
        check_name(name)?;
        Ok(self.path.join(name))
    }
}

/// Checks that a name is a plain file name and not a path to somewhere else.
fn check_name(name: &str) -> Result<(), FolderError> {
    // on other systems, where the folder may be copied to, a backslash or a colon points elsewhere
    let plain = name.chars().all(|c| !c.is_control() && !matches!(c, '/' | '\\' | ':'));
    let reserved = matches!(name, "" | "." | ".." | LOCK) || name.ends_with(PART);
    if plain && !reserved { Ok(()) } else { Err(FolderError::Name { name: name.to_owned() }) }
}

/// Checks that a folder is empty. The leftovers of a process that was killed right after it started do not count: a
/// lock file and a half-written configuration.
fn require_empty(folder: &Path) -> Result<(), FolderError> {
    let parts = [CONFIG, COMPARISON].map(|name| part_path(Path::new(name)));
    for entry in fs::read_dir(folder).map_err(read_error(folder))? {
        let entry = entry.map_err(read_error(folder))?;
        let started = parts.iter().any(|part| entry.file_name() == part.as_os_str()) && is_part(&entry);
        if entry.file_name() != LOCK && !started {
            return Err(FolderError::NotEmpty { path: folder.to_owned() });
        }
    }
    Ok(())
}
