//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of this")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_random::Draws;
use flate2::Compression;
use flate2::write::GzEncoder;

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

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("writes")
}

/// A CIFAR record: the labels, then 3072 bytes that depend on the record's number.
pub fn record(labels: &[u8], number: usize) -> Vec<u8> {
    let image = (0..3072).map(|i| (7 * number + i / 1024 * 50 + i % 1024 % 32) as u8);
    labels.iter().copied().chain(image).collect()
}

/// The files of a small CIFAR-10: two images a batch, labels 0 1, 2 3, ...
pub fn cifar10_files() -> Vec<(String, Vec<u8>)> {
    let names = (1..=5).map(|i| format!("data_batch_{i}.bin")).chain(["test_batch.bin".to_owned()]);
    let file = |i: usize| [record(&[2 * i as u8 % 10], 2 * i), record(&[(2 * i + 1) as u8 % 10], 2 * i + 1)].concat();
    names.enumerate().map(|(i, name)| (name, file(i))).collect()
}

pub fn write_all(folder: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(folder).expect("a folder");
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("writes");
    }
}

pub fn tar_gz(inside: &str, files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, format!("{inside}/{name}"), bytes.as_slice()).expect("writes");
    }
    gzip(&builder.into_inner().expect("writes"))
}

pub fn idx_images(number: u32, height: u32, width: u32, bytes: usize) -> Vec<u8> {
    let head = [0x0803, number, height, width].map(u32::to_be_bytes).concat();
    [head, (0..bytes).map(|i| i as u8).collect()].concat()
}

pub fn idx_labels(labels: &[u8]) -> Vec<u8> {
    [[0x0801, labels.len() as u32].map(u32::to_be_bytes).concat(), labels.to_vec()].concat()
}
