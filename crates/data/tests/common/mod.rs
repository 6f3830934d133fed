//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_random::Draws;

/// A new, empty folder, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn folder(name: &str) -> Folder {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).expect("a folder");
    Folder(path)
}

/// A file with some bytes changed, cut off, repeated or taken out.
pub fn damaged(file: &[u8], draws: Draws) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for k in 0..1 + draws.at(0) % 4 {
        let at = |salt: u64| (draws.at(10 * k + salt) % bytes.len().max(1) as u64) as usize;
        let (place, other) = (at(1), at(2));
        if bytes.is_empty() {
            break;
        }
        match draws.at(10 * k + 3) % 6 {
            0 | 1 => bytes[place] = draws.at(10 * k + 4) as u8,
            2 => bytes[place] ^= 1 << (draws.at(10 * k + 4) % 8),
            3 => bytes.truncate(place),
            4 => bytes[place] = [0, 0xff, 0x7f, 0x80][(draws.at(10 * k + 4) % 4) as usize],
            _ => {
                let (from, to) = (place.min(other), place.max(other).min(place.min(other) + 40));
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
