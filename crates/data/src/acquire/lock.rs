//! One process at a time works in a folder.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;

use crate::error::DataError;
use crate::read::source::cannot_write;

/// Name of the lock file.
pub(super) const LOCK_FILE: &str = "lock";

/// Locks a folder for this process. The system releases the lock when the process ends, however it ends.
pub(super) fn lock(folder: &Path) -> Result<File, DataError> {
    let path = folder.join(LOCK_FILE);
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
    // the previous owner may have removed the file before we locked it, and a third process may have created it again
    let ours = fs::read_to_string(&path).is_ok_and(|process| process.trim() == std::process::id().to_string());
    if ours { Ok(file) } else { Err(busy()) }
}
