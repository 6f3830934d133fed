//! Files of features: the same rows from every format, and thousands of damaged files, none of which may panic.

use std::fs;
use std::io::Write;
use std::path::Path;

use equipoise_data::features::read::dataset;
use equipoise_data::{Dataset, ReadOptions};
use equipoise_random::Draws;
use equipoise_testing::{TempFolder, damaged};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

const ROWS: usize = 12;
const WIDTH: usize = 3;

fn values() -> Vec<u8> {
    (0..ROWS * WIDTH).flat_map(|i| (i as f32 / 4.0 - 2.0).to_le_bytes()).collect()
}

fn labels() -> Vec<u8> {
    (0..ROWS as i64).flat_map(|i| (i % 2).to_le_bytes()).collect()
}

fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
}

/// An archive of two files, deflated or stored.
fn zip(files: &[(&str, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut packed = bytes.clone();
        if deflate {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).expect("writes");
            packed = encoder.finish().expect("writes");
        }
        let mut common = Vec::new();
        for field in [20u16, 0, if deflate { 8 } else { 0 }, 0, 0] {
            common.extend(field.to_le_bytes());
        }
        for field in [crc.sum(), packed.len() as u32, bytes.len() as u32] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        directory.extend([&b"PK\x01\x02\x14\x00"[..], &common, &[0; 10]].concat());
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &packed].concat());
    }
    let (start, number) = (out.len() as u32, files.len() as u16);
    out.extend(&directory);
    out.extend([b"PK\x05\x06\0\0\0\0", &number.to_le_bytes()[..], &number.to_le_bytes()].concat());
    out.extend([&(directory.len() as u32).to_le_bytes()[..], &start.to_le_bytes(), &[0; 2]].concat());
    out
}

fn safetensors() -> Vec<u8> {
    let (features, all) = (values().len(), values().len() + labels().len());
    let header = format!(
        "{{\"features\":{{\"dtype\":\"F32\",\"shape\":[{ROWS},{WIDTH}],\"data_offsets\":[0,{features}]}},\
         \"labels\":{{\"dtype\":\"I64\",\"shape\":[{ROWS}],\"data_offsets\":[{features},{all}]}}}}"
    );
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values(), &labels()].concat()
}

/// A file of every format with the same rows and labels.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let arrays = [
        ("features.npy", npy("<f4", &format!("({ROWS}, {WIDTH})"), &values())),
        ("labels.npy", npy("<i8", &format!("({ROWS},)"), &labels())),
    ];
    vec![
        ("stored.npz", zip(&arrays, false)),
        ("deflated.npz", zip(&arrays, true)),
        ("tensors.safetensors", safetensors()),
        ("alone.npy", arrays[0].1.clone()),
    ]
}

fn read(path: &Path) -> Result<Dataset, String> {
    dataset(path, &ReadOptions::default()).map_err(|error| error.to_string())
}

/// Reads all rows, so that nothing is left unlooked at.
fn rows(dataset: &Dataset) -> Vec<(u32, Vec<f32>)> {
    let mut found = Vec::new();
    for split in [&dataset.train, &dataset.test] {
        let features = split.images.features().expect("features");
        for (index, label) in split.labels.iter().enumerate() {
            let mut row = vec![0.0; features.width()];
            features.copy_row(index, &mut row);
            found.push((*label, row));
        }
    }
    found.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
    found
}

#[test]
fn every_format_has_the_same_rows() {
    let here = TempFolder::new("features");
    fs::write(here.path().join("alone.labels.npy"), npy("<i8", &format!("({ROWS},)"), &labels())).expect("writes");
    for (name, bytes) in files() {
        let path = here.path().join(name);
        fs::write(&path, bytes).expect("writes");
        let found = rows(&read(&path).unwrap_or_else(|error| panic!("{name}: {error}")));
        let want = (0..ROWS).map(|row| {
            let value = |column| (row * WIDTH + column) as f32 / 4.0 - 2.0;
            ((row % 2) as u32, (0..WIDTH).map(value).collect::<Vec<f32>>())
        });
        assert_eq!(found, want.collect::<Vec<_>>(), "{name}");
    }
}

/// What is damaged is refused in a sentence, or read as something else; it never panics, and never takes memory for what a header
/// claims.
#[test]
fn damaged_files_never_panic() {
    let here = TempFolder::new("features");
    fs::write(here.path().join("alone.labels.npy"), npy("<i8", &format!("({ROWS},)"), &labels())).expect("writes");
    let mut refused = 0;
    for (file, (name, bytes)) in files().into_iter().enumerate() {
        let path = here.path().join(name);
        for case in 0..2500 {
            fs::write(&path, damaged(&bytes, Draws::new(case, file as u64, 0))).expect("writes");
            match read(&path) {
                Ok(dataset) => drop(rows(&dataset)),
                Err(error) => {
                    refused += 1;
                    assert!(!error.is_empty() && error.lines().count() == 1, "{name}, case {case}: {error}");
                }
            }
        }
    }
    assert!(refused > 3000, "{refused}");
}

/// Headers that claim what no file holds, and archives that unpack to a lot.
#[test]
fn bombs_are_refused() {
    let here = TempFolder::new("features");
    let path = here.path().join("x.npz");
    let zeros = npy("<f4", "(8000000, 2)", &vec![0; 64_000_000]);
    fs::write(&path, zip(&[("features.npy", zeros)], true)).expect("writes");
    let error = read(&path).expect_err("a bomb");
    assert!(error.contains("a zip bomb"), "{error}");
    for shape in ["(18446744073709551615, 2)", "(4294967296, 4294967296)", "(9223372036854775807, 1)"] {
        let path = here.path().join("x.npy");
        fs::write(&path, npy("<f4", shape, &[0; 64])).expect("writes");
        let error = read(&path).expect_err("too large");
        assert!(error.contains("truncated") || error.contains("too"), "{shape}: {error}");
    }
    for header in [
        "{\"features\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,64]}}",
        "{\"features\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,18446744073709551615]}}",
        "{\"features\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[64,0]}}",
    ] {
        let path = here.path().join("x.safetensors");
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 64]].concat();
        fs::write(&path, bytes).expect("writes");
        let error = read(&path).expect_err("impossible");
        assert_eq!(error.lines().count(), 1, "{header}: {error}");
    }
    fs::write(here.path().join("y.safetensors"), u64::MAX.to_le_bytes()).expect("writes");
    read(&here.path().join("y.safetensors")).expect_err("a header that is larger than the file");
}
