//! The lock of a folder: one process works in it at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// A held lock. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock(File);

/// Why a lock was not acquired.
#[derive(Debug)]
pub enum LockError {
    /// The lock is held, by another process or by this one.
    Held {
        /// The process that holds it, if the lock file names it.
        pid: Option<u32>,
    },
    /// The lock file cannot be written or locked.
    Io(io::Error),
}

impl FolderLock {
    /// Locks a file, which is created if necessary, and writes the process id into it.
    ///
    /// # Errors
    /// Returns an error if the lock is held, or if the file cannot be written or locked.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        // not truncated on opening: another process may hold it
        let mut file = File::options().create(true).truncate(false).write(true).open(path).map_err(LockError::Io)?;
        let owner = || fs::read_to_string(path).ok().and_then(|pid| pid.trim().parse().ok());
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { pid: owner() }),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        let this = std::process::id();
        file.set_len(0).and_then(|()| writeln!(file, "{this}")).map_err(LockError::Io)?;
        // the previous owner may have removed the file before we locked it, and a third process may have created it
        // again
        match fs::read_to_string(path) {
            Ok(pid) if pid.trim() != this.to_string() => Err(LockError::Held { pid: pid.trim().parse().ok() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(LockError::Held { pid: None }),
            // a system may forbid reading a locked file
            Ok(_) | Err(_) => Ok(Self(file)),
        }
    }
}

/// Whether a process holds the lock of this file.
#[must_use]
pub fn is_held(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // closing the file is not enough while a child process that is just starting still has a copy of the descriptor
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    #[test]
    fn one_owner_at_a_time_and_the_file_names_it() {
        let folder = TempFolder::new("lock");
        let path = folder.path().join("lock");
        let held = FolderLock::acquire(&path).expect("free");
        assert_eq!(fs::read_to_string(&path).expect("readable"), format!("{}\n", std::process::id()));
        let pid = Some(std::process::id());
        assert!(matches!(FolderLock::acquire(&path), Err(LockError::Held { pid: owner }) if owner == pid));
        assert!(is_held(&path));
        drop(held);
        assert!(!is_held(&path) && !is_held(&path.join("none")));
        // what a process that has ended left in the file does not matter
        fs::write(&path, "123456789\n").expect("writable");
        drop(FolderLock::acquire(&path).expect("free again"));
        assert!(matches!(FolderLock::acquire(&path.join("none")), Err(LockError::Io(_))));
    }
}
