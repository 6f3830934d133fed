//! The lock of a folder: one process works in it at a time.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// A held lock. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock(File);

/// The process that holds a lock, as it has written it into the lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Its number on its machine.
    pub pid: u32,
    /// The machine, which may be another one if they share the file system. Empty if its name is not known.
    pub host: String,
}

impl LockOwner {
    /// This process.
    fn this() -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = name.or_else(|| ["HOSTNAME", "COMPUTERNAME"].iter().find_map(|key| std::env::var(key).ok()));
        let host = name.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned();
        Self { pid: std::process::id(), host }
    }

    /// The process that a lock file names, if there is one in it.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        Some(Self { pid, host: words.next().unwrap_or_default().to_owned() })
    }
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host } = self;
        write!(f, "process {pid}")?;
        if host.is_empty() { Ok(()) } else { write!(f, " on {host}") }
    }
}

/// Why a lock was not acquired.
#[derive(Debug)]
pub enum LockError {
    /// The lock is held, by another process or by this one.
    Held {
        /// The process that holds it, if the lock file names it.
        owner: Option<LockOwner>,
    },
    /// The lock file cannot be written or locked.
    Io(io::Error),
}

impl FolderLock {
    /// Locks a file, which is created if necessary, and writes process and machine into it.
    ///
    /// # Errors
    /// Returns an error if the lock is held, or if the file cannot be written or locked.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        // not truncated on opening: another process may hold it
        let mut file = File::options().create(true).truncate(false).write(true).open(path).map_err(LockError::Io)?;
        let owner = || fs::read_to_string(path).ok().and_then(|text| LockOwner::read(&text));
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::Held { owner: owner() }),
            Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
        }
        let this = LockOwner::this();
        file.set_len(0).and_then(|()| writeln!(file, "{} {}", this.pid, this.host)).map_err(LockError::Io)?;
        // the previous owner may have removed the file before we locked it, and a third process may have created it
        // again
        match fs::read_to_string(path) {
            Ok(text) if LockOwner::read(&text).as_ref() != Some(&this) => {
                Err(LockError::Held { owner: LockOwner::read(&text) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(LockError::Held { owner: None }),
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
        let this = LockOwner::this();
        assert_eq!(fs::read_to_string(&path).expect("readable"), format!("{} {}\n", this.pid, this.host));
        assert!(matches!(FolderLock::acquire(&path), Err(LockError::Held { owner: Some(owner) }) if owner == this));
        assert!(is_held(&path));
        drop(held);
        assert!(!is_held(&path) && !is_held(&path.join("none")));
        // what a process that has ended left in the file does not matter
        fs::write(&path, "123456789 elsewhere\n").expect("writable");
        drop(FolderLock::acquire(&path).expect("free again"));
        assert!(matches!(FolderLock::acquire(&path.join("none")), Err(LockError::Io(_))));
    }

    #[test]
    fn owners_are_named_with_their_machine() {
        let name = |text: &str| LockOwner::read(text).map(|owner| owner.to_string());
        assert_eq!(name("12 node3\n").as_deref(), Some("process 12 on node3"));
        // of a version before
        assert_eq!(name("12\n").as_deref(), Some("process 12"));
        assert_eq!((name(""), name("who knows")), (None, None));
        if cfg!(target_os = "linux") {
            assert!(!LockOwner::this().host.is_empty());
        }
    }
}
