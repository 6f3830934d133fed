//! Zip archives that the tests write byte by byte: valid, truncated and hostile.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::Component;

use equipoise_random::Draws;
use equipoise_testing::{TempFolder, damaged};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::{DataError, Path, walk};
use crate::acquire::catalog::KnownDataset;
use crate::acquire::import::import;
use crate::acquire::unpack::unpack_zip;
use crate::load::load;

/// An entry to be written.
struct Entry<'a> {
    name: &'a str,
    bytes: &'a [u8],
    deflated: bool,
    mode: u32,
    flags: u16,
}

fn file<'a>(name: &'a str, bytes: &'a [u8]) -> Entry<'a> {
    Entry { name, bytes, deflated: true, mode: 0o100_644, flags: 0 }
}

/// Where the number of entries is written.
#[derive(Clone, Copy, PartialEq)]
enum Count {
    /// In 16 bits, even if it overflows.
    Short,
    /// In the zip64 record.
    Long,
}

fn zip(entries: &[Entry<'_>], count: Count) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut crc = Crc::new();
        crc.update(entry.bytes);
        let packed = if entry.deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(entry.bytes).expect("writes");
            encoder.finish().expect("writes")
        } else {
            entry.bytes.to_vec()
        };
        let local = archive.len() as u32;
        let words = [20, entry.flags, if entry.deflated { 8 } else { 0 }, 0, 0].map(u16::to_le_bytes).concat();
        let sizes = [crc.sum(), packed.len() as u32, entry.bytes.len() as u32].map(u32::to_le_bytes).concat();
        let name = (entry.name.len() as u16).to_le_bytes();
        let head = [&words[..], &sizes, &name].concat();
        archive.extend([b"PK\x03\x04", &head[..], &[0, 0], entry.name.as_bytes(), &packed].concat());
        let mode = (entry.mode << 16).to_le_bytes();
        directory.extend([b"PK\x01\x02", &[30, 3][..], &head, &[0; 8], &mode, &local.to_le_bytes()].concat());
        directory.extend(entry.name.as_bytes());
    }
    let start = archive.len();
    archive.extend(&directory);
    let (number, size) = (entries.len() as u64, directory.len() as u64);
    let mut short = [number as u16; 2].map(u16::to_le_bytes).concat();
    if count == Count::Long {
        let at = archive.len() as u64;
        archive.extend(b"PK\x06\x06");
        archive.extend([&44u64.to_le_bytes()[..], &[30, 3, 45, 0], &[0; 8]].concat());
        archive.extend([number, number, size, start as u64].map(u64::to_le_bytes).concat());
        archive.extend([b"PK\x06\x07", &[0; 4][..], &at.to_le_bytes(), &1u32.to_le_bytes()].concat());
        short = vec![0xff; 4];
    }
    let place = [size as u32, start as u32].map(u32::to_le_bytes).concat();
    archive.extend([b"PK\x05\x06", &[0; 4][..], &short, &place, &[0, 0]].concat());
    archive
}

/// Names and contents of an archive in memory; a name that leaves the folder is a failure of the test.
fn read(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, DataError> {
    let mut found = Vec::new();
    walk(Path::new("a.zip"), &mut Cursor::new(archive), |name, file| {
        assert!(name.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)), "{name:?}");
        let mut bytes = Vec::new();
        if let Some(file) = file {
            let read = file.take(1 << 20).read_to_end(&mut bytes);
            read.map_err(|source| DataError::Read { path: name.to_owned(), source })?;
        }
        found.push((name.to_str().expect("UTF-8").to_owned(), bytes));
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn stored_and_deflated_entries_and_folders() {
    let text = b"what is long enough is packed, what is long enough is packed".as_slice();
    let folder = Entry { mode: 0o040_755, deflated: false, ..file("a/", b"") };
    let entries = [folder, file("a/b", text), Entry { deflated: false, ..file("c", text) }, file("empty", b"")];
    let whole = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let expected = [whole("a/", b""), whole("a/b", text), whole("c", text), whole("empty", b"")];
    for count in [Count::Short, Count::Long] {
        let archive = zip(&entries, count);
        assert_eq!(read(&archive).expect("good"), expected);
        // every shorter archive is incomplete
        for cut in 0..archive.len() {
            assert!(read(&archive[..cut]).is_err(), "{cut} of {} bytes", archive.len());
        }
    }
}

/// Tiny-ImageNet has 120,000 files; archivers disagree on how to count them.
#[test]
fn more_entries_than_sixteen_bits_count() {
    let names: Vec<String> = (0..70_000).map(|i| format!("{i}")).collect();
    let entries: Vec<_> = names.iter().map(|name| Entry { deflated: false, ..file(name, b"") }).collect();
    for count in [Count::Short, Count::Long] {
        assert_eq!(read(&zip(&entries, count)).expect("good").len(), 70_000);
    }
}

#[test]
fn tiny_imagenet_is_imported_as_shipped() {
    let here = TempFolder::new("zip");
    let (archive, root) = (here.path().join("tiny-imagenet-200.zip"), here.path().join("root"));
    let image = b"an image is decoded when it is needed";
    let entries = [
        file("tiny-imagenet-200/wnids.txt", b"n01\n"),
        file("tiny-imagenet-200/words.txt", b"n01\tgoldfish\n"),
        file("tiny-imagenet-200/train/n01/images/n01_0.JPEG", image),
        file("tiny-imagenet-200/val/images/val_0.JPEG", image),
        file("tiny-imagenet-200/val/val_annotations.txt", b"val_0.JPEG\tn01\t0\t0\t9\t9\n"),
    ];
    fs::write(&archive, zip(&entries, Count::Short)).expect("writes");
    let known = KnownDataset::by_name("tiny-imagenet").expect("known");
    let imported = import(known, &archive, &root).expect("good");
    assert_eq!((imported.dataset.classes, imported.dataset.train.labels), (vec!["goldfish".to_owned()], vec![0]));
    let checksum = imported.checksum.map(|checksum| format!("{checksum:?}")).expect("there is an official one");
    assert!(checksum.contains("Differs") && checksum.contains("90528d7ca1a48142e341f4ef8d21d0de"), "{checksum}");
    let again = load("tiny-imagenet", &root, &Default::default()).expect("in place");
    assert_eq!(again.test.labels, [0]);
}

/// Nothing is touched outside the target folder.
#[test]
fn hostile_zips_are_refused() {
    let here = TempFolder::new("zip");
    let victim = here.path().join("victim");
    fs::write(&victim, b"mine").expect("writes");
    let target = here.path().join("target");
    fs::create_dir_all(&target).expect("a folder");
    let entries = [
        file("../victim", b"theirs"),
        file("a/../../victim", b"theirs"),
        file("/victim", b"theirs"),
        file("", b"theirs"),
        file("../folder/", b""),
        Entry { mode: 0o120_777, ..file("link", b"../victim") },
        Entry { mode: 0o020_666, ..file("device", b"") },
        Entry { mode: 0o010_666, ..file("pipe", b"") },
        Entry { flags: 1, ..file("secret", b"theirs") },
    ];
    for entry in entries {
        let name = entry.name;
        let archive = zip(&[entry], Count::Short);
        let error = unpack_zip(Path::new("a.zip"), &mut Cursor::new(archive), &target, 1000).expect_err("hostile");
        assert!(matches!(error, DataError::HostileArchive { .. }), "{name}: {error}");
        let counts = [&target, here.path()].map(|path| path.read_dir().expect("reads").count());
        assert_eq!(counts, [0, 2], "{name}: something was written");
        assert_eq!(fs::read(&victim).expect("reads"), b"mine");
    }
    // unpacking stops at the limit, for one large entry and for several
    let zeros = vec![0; 600];
    for entries in [vec![file("big", &[0; 5000])], vec![file("a", &zeros), file("b", &zeros)]] {
        let target = here.path().join(entries[0].name);
        let archive = zip(&entries, Count::Short);
        let error = unpack_zip(Path::new("a.zip"), &mut Cursor::new(archive), &target, 1000).expect_err("too large");
        assert!(matches!(error, DataError::Limit { what: "bytes unpacked", got: 1001, .. }), "{error}");
    }
    // the second of two entries with one name does not replace the first
    let twice = zip(&[file("same", b"first"), file("same", b"second")], Count::Short);
    let error = unpack_zip(Path::new("a.zip"), &mut Cursor::new(twice), &target, 1000).expect_err("twice");
    assert!(matches!(error, DataError::HostileArchive { .. }), "{error}");
    assert_eq!(fs::read(target.join("same")).expect("reads"), b"first");
}

/// A bomb is refused before it is unpacked, whether it is one entry or many.
#[test]
fn a_bomb_is_recognized_by_its_sizes() {
    let zeros = vec![0; 10 << 20];
    for entries in [vec![file("a", &vec![0; 30 << 20])], vec![file("a", &zeros), file("b", &zeros), file("c", &zeros)]]
    {
        let error = read(&zip(&entries, Count::Short)).map(drop).expect_err("a bomb").to_string();
        assert!(error.ends_with("a zip bomb: more than 100 times what is packed"), "{error}");
    }
}

#[test]
fn sizes_and_checksums_must_be_right() {
    let good = zip(&[Entry { deflated: false, ..file("a", b"abcdef") }], Count::Short);
    let spoilt_in = |good: &[u8], at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        read(&bytes).map_err(|error| std::error::Error::source(&error).expect("a source").to_string())
    };
    let spoilt = |at: usize, byte: u8| spoilt_in(&good, at, byte);
    let directory = 30 + 1 + 6;
    let deflated = zip(&[file("a", b"abcdef")], Count::Short);
    let size = 24 + deflated.windows(4).position(|bytes| bytes == b"PK\x01\x02").expect("a directory");
    assert_eq!(spoilt_in(&deflated, size, 5).expect_err("size"), "an entry is larger than it says");
    assert_eq!(spoilt_in(&deflated, size, 7).expect_err("size"), "an entry is smaller than it says");
    assert_eq!(spoilt(31, b'x').expect_err("contents"), "an entry's checksum is wrong");
    assert_eq!(spoilt(directory + 24, 5).expect_err("size"), "a stored entry has two sizes");
    assert_eq!(spoilt(directory + 24, 7).expect_err("size"), "a stored entry has two sizes");
    assert_eq!(spoilt(directory + 20, 7).expect_err("packed size"), "an entry runs past the end of the archive");
    assert_eq!(spoilt(directory + 42, 1).expect_err("place"), "an entry is not where the directory says");
    assert_eq!(spoilt(directory + 46, 0xff).expect_err("name"), "an entry's name is not UTF-8");
    assert_eq!(spoilt(directory, b'x').expect_err("directory"), "its directory is corrupt");
}

/// 100,000 damaged archives: an error or a result, never a panic, and no name that leads outside.
#[test]
fn a_hundred_thousand_damaged_zips() {
    let text = b"what is long enough is packed, what is long enough is packed".as_slice();
    let entries = [file("a/b", text), Entry { deflated: false, ..file("c", text) }];
    let archives = [Count::Short, Count::Long].map(|count| zip(&entries, count));
    let mut good = 0;
    for round in 0..100_000 {
        let bytes = damaged(&archives[round as usize % 2], Draws::new(1, 3, round));
        good += usize::from(read(&bytes).is_ok());
    }
    assert!((1000..99_000).contains(&good), "{good} of 100,000 could be read");
}
