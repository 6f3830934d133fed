//! What the tests of several crates share: temporary folders, and damaged files. A dev-dependency only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_random::Draws;

/// A new, empty folder, which is removed when this value is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder of its own for a test; `name` tells a person which one.
    ///
    /// # Panics
    /// If the folder cannot be created.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("equipoise-{name}-{}-{number}", std::process::id()));
        // left by a process with the same id
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be created");
        Self(path)
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of a file or folder in the folder, which need not exist.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file with some bytes changed, truncated, repeated or removed.
#[must_use]
pub fn damaged(file: &[u8], draws: Draws) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for k in 0..1 + draws.at(0) % 4 {
        let offset = |salt: u64| (draws.at(10 * k + salt) % bytes.len().max(1) as u64) as usize;
        let (one, other) = (offset(1), offset(2));
        if bytes.is_empty() {
            break;
        }
        match draws.at(10 * k + 3) % 6 {
            0 | 1 => bytes[one] = draws.at(10 * k + 4) as u8,
            2 => bytes[one] ^= 1 << (draws.at(10 * k + 4) % 8),
            3 => bytes.truncate(one),
            4 => bytes[one] = [0, 0xff, 0x7f, 0x80][(draws.at(10 * k + 4) % 4) as usize],
            _ => {
                let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 40));
                let piece = bytes[from..to].to_vec();
                if draws.at(10 * k + 5) & 1 == 0 {
                    bytes.splice(from..from, piece);
                } else {
                    bytes.drain(from..to);
                }
            }
        }
    }
    bytes
}
