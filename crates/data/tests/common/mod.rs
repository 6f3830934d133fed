//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of this")]

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

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
