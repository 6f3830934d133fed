//! The lock of a run folder: one process writes to it at a time.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;

use super::error::{FolderError, write_error};
use crate::names::LOCK;

/// A held lock. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct FolderLock(File);

impl FolderLock {
    /// Locks a folder and writes the process id into the lock file.
    pub(super) fn acquire(folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join(LOCK);
        // not truncated on opening: another process may hold it
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(write_error(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).ok().and_then(|pid| pid.trim().parse().ok());
                return Err(FolderError::Locked { path: folder.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(write_error(&path)(error)),
        }
        file.set_len(0).and_then(|()| writeln!(&file, "{}", std::process::id())).map_err(write_error(&path))?;
        Ok(Self(file))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // closing the file is not enough while a child process that is just starting still has a copy of the descriptor
        let _ = self.0.unlock();
    }
}
