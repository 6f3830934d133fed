//! Readers on small files that the tests make themselves, valid and invalid.

mod common;

use std::fs;
use std::io::Read;
use std::path::Path;

use common::{cifar10_files, gzip, idx_images, idx_labels, record, tar_gz, write_all};
use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::acquire::import::{Checksum, import};
use equipoise_data::acquire::unpack::unpack;
use equipoise_data::read::format::{cifar, idx, inat, tiny_imagenet};
use equipoise_data::subset::index;
use equipoise_data::{DataError, Dataset};
use equipoise_random::Draws;
use equipoise_testing::{TempFolder, damaged};

fn check_cifar10(set: &Dataset) {
    assert_eq!((set.name.as_str(), set.classes.len(), set.classes[3].as_str()), ("cifar10", 10, "cat"));
    assert_eq!(set.train.labels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(set.test.labels, [0, 1]);
    let (train, test) = (set.train.images.pixels().expect("in memory"), set.test.images.pixels().expect("in memory"));
    assert_eq!((train.len(), test.len()), (10, 2));
    // record 4, green, row 1, column 2
    assert_eq!(train.image(4)[1024 + 32 + 2], 7 * 4 + 50 + 2);
    assert_eq!(test.image(1)[0], 7 * 11);
}

#[test]
fn cifar_10_from_its_folder_the_folder_above_and_the_archive() {
    let here = TempFolder::new("readers");
    let inner = here.path().join("cifar-10-batches-bin");
    write_all(&inner, &cifar10_files());
    check_cifar10(&cifar::cifar10(&inner).expect("good"));
    check_cifar10(&cifar::cifar10(here.path()).expect("good"));
    let archive = here.path().join("cifar-10-binary.tar.gz");
    fs::write(&archive, tar_gz("cifar-10-batches-bin", &cifar10_files())).expect("writes");
    check_cifar10(&cifar::cifar10(&archive).expect("good"));
}

#[test]
fn cifar_100_has_fine_labels_and_names() {
    let here = TempFolder::new("readers");
    let names: String = (0..100).map(|c| format!("name{c}\n")).collect();
    let files = [
        ("train.bin".to_owned(), [record(&[3, 99], 0), record(&[19, 0], 1)].concat()),
        ("test.bin".to_owned(), record(&[0, 42], 2)),
        ("fine_label_names.txt".to_owned(), names.into_bytes()),
    ];
    write_all(here.path(), &files);
    let set = cifar::cifar100(here.path()).expect("good");
    assert_eq!((set.train.labels, set.test.labels), (vec![99, 0], vec![42]));
    assert_eq!(set.classes[42], "name42");
    fs::write(here.path().join("fine_label_names.txt"), "a\nb\n").expect("writes");
    let error = cifar::cifar100(here.path()).expect_err("too few names").to_string();
    assert!(error.contains("fine_label_names.txt: line 3: 2 names for 100 classes"), "{error}");
}

#[test]
fn bad_cifar() {
    let here = TempFolder::new("readers");
    let error = cifar::cifar10(&here.path().join("nowhere")).expect_err("nothing there");
    assert!(matches!(error, DataError::Read { .. }), "{error}");
    let mut files = cifar10_files();
    let missing = files.remove(2);
    write_all(here.path(), &files);
    let error = cifar::cifar10(here.path()).expect_err("a batch is missing").to_string();
    assert!(error.ends_with("there is no data_batch_3.bin"), "{error}");
    for cut in [0, 1, 3072, 3074, 6145] {
        fs::write(here.path().join(&missing.0), &missing.1[..cut]).expect("writes");
        let error = cifar::cifar10(here.path()).expect_err("torn");
        assert!(matches!(&error, DataError::Size { got, .. } if *got == cut as u64), "{error}");
        assert!(error.to_string().contains("data_batch_3.bin"), "{error}");
    }
    let mut spoilt = missing.1.clone();
    spoilt[3073] = 10;
    fs::write(here.path().join(&missing.0), spoilt).expect("writes");
    let error = cifar::cifar10(here.path()).expect_err("label").to_string();
    assert!(error.ends_with("data_batch_3.bin: record 1: label 10, but there are 10 classes"), "{error}");
    // the Python version
    fs::write(here.path().join("batches.meta"), b"").expect("writes");
    let error = cifar::cifar10(here.path()).expect_err("Python").to_string();
    assert!(
        error.ends_with("this is the Python version of CIFAR; the binary version is needed (cifar-10-binary.tar.gz)"),
        "{error}"
    );
    let foreign = here.path().join("foreign.tar.gz");
    fs::write(&foreign, tar_gz("x", &[("y".to_owned(), vec![1])])).expect("writes");
    let error = equipoise_data::load(foreign.to_str().expect("UTF-8"), Path::new("x"), &Default::default());
    assert!(matches!(error, Err(DataError::ForeignArchive { .. })), "{error:?}");
    // a file that is not an archive, and a truncated one
    let file = here.path().join("x.tar.gz");
    fs::write(&file, b"no archive at all").expect("writes");
    assert!(cifar::cifar10(&file).is_err());
    let whole = tar_gz("cifar-10-batches-bin", &cifar10_files());
    fs::write(&file, &whole[..whole.len() / 2]).expect("writes");
    assert!(cifar::cifar10(&file).is_err());
}

#[test]
fn idx_plain_and_gzip() {
    let plain = TempFolder::new("readers");
    let files = [
        ("train-images-idx3-ubyte".to_owned(), idx_images(3, 4, 5, 60)),
        ("train-labels-idx1-ubyte".to_owned(), idx_labels(&[0, 2, 1])),
        ("t10k-images-idx3-ubyte".to_owned(), idx_images(1, 4, 5, 20)),
        ("t10k-labels-idx1-ubyte".to_owned(), idx_labels(&[2])),
    ];
    write_all(plain.path(), &files);
    let zipped = TempFolder::new("readers");
    let gz: Vec<_> = files.iter().map(|(name, bytes)| (format!("{name}.gz"), gzip(bytes))).collect();
    write_all(zipped.path(), &gz);
    let set = idx::folder(plain.path(), "own", None).expect("good");
    assert_eq!(set, idx::folder(zipped.path(), "own", None).expect("good"));
    assert_eq!(
        (set.classes, set.train.labels, set.test.labels),
        (["0", "1", "2"].map(str::to_owned).to_vec(), vec![0, 2, 1], vec![2])
    );
    let pixels = set.train.images.pixels().expect("in memory");
    assert_eq!((pixels.channels, pixels.height, pixels.width, pixels.len()), (1, 4, 5, 3));
    assert_eq!(pixels.image(2)[0], 40);
    let error = idx::folder(plain.path(), "own", Some(&["a", "b"])).expect_err("label 2").to_string();
    assert!(error.contains("train-labels-idx1-ubyte: record 1: label 2, but there are 2 classes"), "{error}");
    fs::write(plain.path().join("t10k-images-idx3-ubyte"), idx_images(1, 5, 4, 20)).expect("writes");
    let error = idx::folder(plain.path(), "own", None).expect_err("another shape").to_string();
    assert!(error.contains("t10k-images-idx3-ubyte: images of 4 x 5, but 5 x 4 in "), "{error}");
    fs::write(zipped.path().join("train-images-idx3-ubyte"), idx_images(0, 4, 5, 0)).expect("writes");
    fs::write(zipped.path().join("train-labels-idx1-ubyte"), idx_labels(&[])).expect("writes");
    assert!(matches!(idx::folder(zipped.path(), "own", None), Err(DataError::NoImages { .. })));
    fs::write(plain.path().join("t10k-labels-idx1-ubyte"), idx_labels(&[2, 2])).expect("writes");
    let error = idx::folder(plain.path(), "own", None).expect_err("two labels, one image").to_string();
    assert!(error.contains("2 labels, but 1 images in"), "{error}");
    fs::remove_file(plain.path().join("t10k-labels-idx1-ubyte")).expect("removes");
    let error = idx::folder(plain.path(), "own", None).expect_err("missing").to_string();
    assert!(error.ends_with("there is no t10k-labels-idx1-ubyte[.gz]"), "{error}");
}

#[test]
fn bad_idx() {
    let images = |bytes: &[u8]| idx::images(Path::new("f"), &mut &bytes[..]);
    assert!(matches!(images(b""), Err(DataError::Magic { .. })));
    assert!(matches!(images(&idx_labels(&[1])), Err(DataError::Magic { .. })));
    assert!(matches!(images(&idx_images(3, 4, 5, 60)[..10]), Err(DataError::Size { .. })));
    assert!(matches!(images(&idx_images(3, 4, 5, 59)), Err(DataError::Size { got: 75, .. })));
    assert!(matches!(images(&idx_images(3, 4, 5, 61)), Err(DataError::Size { .. })));
    assert!(matches!(images(&idx_images(3, 0, 5, 0)), Err(DataError::Size { .. })));
    // refused by the header, before memory is allocated
    assert!(matches!(images(&idx_images(1, 5000, 5, 0)), Err(DataError::Limit { what: "rows", .. })));
    assert!(matches!(
        images(&idx_images(u32::MAX, 4096, 4096, 0)),
        Err(DataError::Limit { what: "bytes of images", .. })
    ));
    assert!(matches!(idx::labels(Path::new("f"), &mut &idx_labels(&[1, 2])[..9]), Err(DataError::Size { .. })));
}

/// 100,000 damaged files for each parser of bytes and text: an error or a result, never a panic.
#[test]
fn a_hundred_thousand_damaged_files() {
    let (images, labels) = (idx_images(3, 4, 5, 60), idx_labels(&[0, 2, 1]));
    const SET: index::Fingerprint = index::Fingerprint { images: 20, hash: 0 };
    let text = index::to_text(&[5, 0, 3, 17, 8], "own, imbalance 10", SET);
    let path = Path::new("f");
    let mut read = [0; 3];
    for round in 0..100_000 {
        let bytes = damaged(&images, Draws::new(1, 0, round));
        if let Ok(pixels) = idx::images(path, &mut &bytes[..]) {
            assert_eq!(pixels.bytes.len(), pixels.len() * pixels.stride());
            read[0] += 1;
        }
        let bytes = damaged(&labels, Draws::new(1, 1, round));
        read[1] += usize::from(idx::labels(path, &mut &bytes[..]).is_ok());
        let bytes = damaged(text.as_bytes(), Draws::new(1, 2, round));
        if let Ok(positions) = index::parse(path, &mut &bytes[..], SET) {
            assert!(positions.iter().all(|at| *at < 20));
            read[2] += 1;
        }
    }
    assert!(read.iter().all(|n| (1000..99_000).contains(n)), "{read:?} of 100,000 could be read");
}

/// Repairs the header checksums of a damaged archive, so that its headers are believed.
fn mended(mut archive: Vec<u8>) -> Vec<u8> {
    for block in archive.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    archive
}

/// An archive with a folder, a file, a file with a long name and one with attributes.
fn mixed_archive() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let header = |kind: tar::EntryType, size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header
    };
    builder.append_data(&mut header(tar::EntryType::Directory, 0), "a/", &b""[..]).expect("writes");
    builder.append_data(&mut header(tar::EntryType::Regular, 3), "a/b", &b"one"[..]).expect("writes");
    let long = format!("a/{}", "n".repeat(120));
    builder.append_data(&mut header(tar::EntryType::Regular, 3), long, &b"two"[..]).expect("writes");
    builder.append_pax_extensions([("path", &b"c/d"[..]), ("size", b"5")]).expect("writes");
    builder.append_data(&mut header(tar::EntryType::Regular, 5), "e", &b"three"[..]).expect("writes");
    builder.into_inner().expect("writes")
}

/// 100,000 damaged archives, packed and plain, some with repaired headers: an error or files, never a panic.
#[test]
fn a_hundred_thousand_damaged_archives() {
    let here = TempFolder::new("archives");
    let files = [("train.bin".to_owned(), record(&[3, 99], 0)), ("test.bin".to_owned(), record(&[0, 42], 2))];
    let packed = tar_gz("cifar-100-binary", &files);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).expect("unpacks");
    let mixed = mixed_archive();
    let path = Path::new("a.tar");
    let mut read = [0; 3];
    for round in 0..100_000 {
        let bytes = damaged(&plain, Draws::new(6, 0, round));
        let bytes = if round % 2 == 0 { mended(bytes) } else { bytes };
        read[0] += usize::from(cifar::CIFAR_100.archive(path, &mut &bytes[..]).is_ok());
        let bytes = damaged(&packed, Draws::new(6, 1, round));
        read[1] += usize::from(cifar::CIFAR_100.archive(path, &mut &bytes[..]).is_ok());
        let bytes = mended(damaged(&mixed, Draws::new(6, 2, round)));
        assert!(cifar::CIFAR_100.archive(path, &mut &bytes[..]).is_err(), "it holds no CIFAR");
        // the disk is slower than the parser
        if round % 10 == 0 {
            let target = here.path().join("target");
            read[2] += usize::from(unpack(path, &mut &bytes[..], &target, 1000).is_ok());
            let _ = fs::remove_dir_all(&target);
            assert_eq!(entries(here.path()), 0, "round {round}: something lies outside");
        }
    }
    assert!(read.iter().all(|n| (10..99_000).contains(n)), "{read:?} of 100,000 could be read");
}

/// 100,000 damaged files of every other text and record format.
#[test]
fn a_hundred_thousand_damaged_records_and_texts() {
    let path = Path::new("f");
    let ten = [record(&[3], 1), record(&[9], 2)].concat();
    let hundred = record(&[3, 99], 1);
    let names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";
    let json = br#"{"info": {"a": [1, null]}, "images": [{"id": 5, "file_name": "a/b.jpg"}, {"id": 6, "file_name": "\u00e9\n.jpg"}],
        "annotations": [{"image_id": 6, "category_id": 7}, {"image_id": 5, "category_id": 2, "x": -1.5e3}],
        "categories": [{"id": 7, "name": "Rana"}, {"id": 2, "name": "Hyla"}]}"#;
    let ids = b"n02\nn01\n\nn03\r\n";
    let annotations = b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n";
    let words = "n01\tgoldfish, Carassius auratus\nn02\tbullfrog\nn03\tbullfrog\n";
    let wnids = tiny_imagenet::wnids(path, &mut &ids[..]).expect("good");
    assert_eq!(wnids, ["n01", "n02", "n03"]);
    let mut read = [0; 7];
    for round in 0..100_000 {
        let draws = |kind| Draws::new(7, kind, round);
        for (i, (layout, file)) in [(cifar::CIFAR_10, &ten), (cifar::CIFAR_100, &hundred)].into_iter().enumerate() {
            let (mut pixels, mut labels) = (Vec::new(), Vec::new());
            if layout.records(path, &damaged(file, draws(i as u64)), &mut pixels, &mut labels).is_ok() {
                assert_eq!(pixels.len(), 3072 * labels.len());
                read[i] += 1;
            }
        }
        read[2] += usize::from(cifar::CIFAR_10.names(path, &damaged(names.as_bytes(), draws(2))).is_ok());
        let bytes = damaged(json, draws(3));
        read[3] += usize::from(inat::parse(path, path, &mut &bytes[..], &mut &json[..]).is_ok());
        let bytes = damaged(ids, draws(4));
        read[4] += usize::from(tiny_imagenet::wnids(path, &mut &bytes[..]).is_ok());
        let bytes = damaged(annotations, draws(5));
        read[5] += usize::from(tiny_imagenet::annotations(path, &mut &bytes[..], &wnids).is_ok());
        let bytes = damaged(words.as_bytes(), draws(6));
        read[6] += usize::from(tiny_imagenet::names(&wnids, path, &mut &bytes[..]).is_ok_and(|n| n.len() == 3));
    }
    assert!(read.iter().all(|n| (500..=100_000).contains(n)), "{read:?} of 100,000 could be read");
}

fn known(name: &str) -> &'static KnownDataset {
    KnownDataset::by_name(name).expect("known")
}

fn entries(path: &Path) -> usize {
    path.read_dir().map_or(0, Iterator::count)
}

#[test]
fn datasets_are_imported_from_folders_and_archives() {
    for archived in [false, true] {
        let here = TempFolder::new("import");
        let (source, root) = (here.path().join("source"), here.path().join("root"));
        write_all(&source.join("cifar-10-batches-bin"), &cifar10_files());
        let from = if archived { here.path().join("a.tar.gz") } else { source };
        if archived {
            fs::write(&from, tar_gz("cifar-10-batches-bin", &cifar10_files())).expect("writes");
        }
        let imported = import(known("cifar10"), &from, &root).expect("good");
        assert_eq!(imported.path, root.join("cifar10"));
        check_cifar10(&imported.dataset);
        // this is not the official archive, and a folder has no checksum
        assert_eq!(matches!(imported.checksum, Some(Checksum::Differs { .. })), archived);
        assert_eq!(imported.checksum.is_none(), !archived);
        let again = equipoise_data::load("cifar10", &root, &Default::default()).expect("in place");
        check_cifar10(&again);
        assert!(matches!(import(known("cifar10"), &from, &root), Err(DataError::AlreadyInPlace { .. })));
        assert_eq!(entries(&root), 1, "something was left behind");
    }
}

#[test]
fn unreadable_datasets_are_not_imported() {
    let here = TempFolder::new("import");
    let (source, root) = (here.path().join("source"), here.path().join("root"));
    let mut files = cifar10_files();
    files[1].1.truncate(100);
    write_all(&source, &files);
    assert!(matches!(import(known("cifar10"), &source, &root), Err(DataError::Size { .. })));
    let torn = here.path().join("torn.tar.gz");
    let whole = tar_gz("x", &cifar10_files());
    fs::write(&torn, &whole[..whole.len() - 50]).expect("writes");
    assert!(import(known("cifar10"), &torn, &root).is_err());
    assert!(import(known("cifar10"), &here.path().join("nowhere"), &root).is_err());
    assert_eq!(entries(&root), 0, "something was left behind");
}

/// An archive with one entry of this kind; its name is written unchecked.
fn one(name: &str, kind: tar::EntryType, link: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_gnu_mut().expect("gnu").linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, bytes).expect("writes");
    builder.into_inner().expect("writes")
}

/// Nothing is touched outside the target folder.
#[test]
fn hostile_archives_are_refused() {
    let here = TempFolder::new("hostile");
    let victim = here.path().join("victim");
    fs::write(&victim, b"mine").expect("writes");
    let victim_name = victim.to_str().expect("UTF-8");
    let regular = tar::EntryType::Regular;
    let archives = [
        one("../victim", regular, "", b"theirs"),
        one("a/../../victim", regular, "", b"theirs"),
        one("/victim", regular, "", b"theirs"),
        one("link", tar::EntryType::Symlink, victim_name, b""),
        one("link", tar::EntryType::Link, "../victim", b""),
        one("device", tar::EntryType::Char, "", b""),
        one("device", tar::EntryType::Block, "", b""),
        one("pipe", tar::EntryType::Fifo, "", b""),
    ];
    for (number, archive) in archives.iter().enumerate() {
        let target = here.path().join("target");
        fs::create_dir_all(&target).expect("a folder");
        let error = unpack(Path::new("a.tar"), &mut &archive[..], &target, 1000).expect_err("hostile");
        assert!(matches!(error, DataError::HostileArchive { .. }), "{number}: {error}");
        assert_eq!((entries(&target), entries(here.path())), (0, 2), "{number}: something was written");
        assert_eq!(fs::read(&victim).expect("reads"), b"mine");
    }
    // names that occur twice, and names that no file can have
    let twice = |first: Vec<u8>, second: Vec<u8>| [&first[..first.len() - 1024], &second].concat();
    let folder_kind = tar::EntryType::Directory;
    let named = |name: &[u8], pax: bool| {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(6);
        header.set_entry_type(regular);
        header.as_gnu_mut().expect("gnu").name[..5].copy_from_slice(b"short");
        header.set_cksum();
        if pax {
            builder.append_pax_extensions([("path", name)]).expect("writes");
        } else {
            let mut long = tar::Header::new_gnu();
            long.set_size(name.len() as u64);
            long.set_entry_type(tar::EntryType::GNULongName);
            long.set_cksum();
            builder.append(&long, name).expect("writes");
        }
        builder.append(&header, &b"theirs"[..]).expect("writes");
        builder.into_inner().expect("writes")
    };
    let mut archives = vec![
        ("a file twice", twice(one("a", regular, "", b"1"), one("a", regular, "", b"2"))),
        ("a file twice, by another way", twice(one("a", regular, "", b"1"), one("./a", regular, "", b"2"))),
        ("a file, then a folder", twice(one("a", regular, "", b"1"), one("a", folder_kind, "", b""))),
        ("a file, then one below it", twice(one("a", regular, "", b"1"), one("a/b", regular, "", b"2"))),
        ("a folder, then a file", twice(one("a", folder_kind, "", b""), one("a", regular, "", b"2"))),
        ("the folder itself", one(".", regular, "", b"1")),
    ];
    for pax in [false, true] {
        archives.push(("a name of 10,000 bytes", named(&[b'n'; 10_000], pax)));
        archives.push(("a way of 10,000 bytes", named(&b"nn/".repeat(3334), pax)));
        archives.push(("a NUL", named(b"a\0b", pax)));
        archives.push(("outside", named(b"../victim", pax)));
        archives.push(("outside, absolute", named(victim_name.as_bytes(), pax)));
    }
    for (number, (name, archive)) in archives.iter().enumerate() {
        let target = here.path().join(format!("target-{number}"));
        fs::create_dir_all(&target).expect("a folder");
        let error = unpack(Path::new("a.tar"), &mut &archive[..], &target, 1000).expect_err(name);
        let wanted = matches!(error, DataError::HostileArchive { .. } | DataError::Write { .. });
        assert!(wanted, "{name}: {error}");
        fs::remove_dir_all(&target).expect("removes");
        assert_eq!(entries(here.path()), 2, "{name}: something was written");
        assert_eq!(fs::read(&victim).expect("reads"), b"mine");
    }
    // names that differ only in case are two files, or refused on a disk that ignores case
    let cases = twice(one("Name", regular, "", b"1"), one("name", regular, "", b"2"));
    let target = here.path().join("cases");
    let unpacked = unpack(Path::new("a.tar"), &mut &cases[..], &target, 1000);
    assert!(unpacked.is_ok() == (entries(&target) == 2), "{unpacked:?}");
    // a wanted file that occurs twice is refused
    let files = twice(one("a/test_batch.bin", regular, "", b"1"), one("b/test_batch.bin", regular, "", b"2"));
    let error = cifar::CIFAR_10.archive(Path::new("a.tar"), &mut &files[..]).expect_err("twice").to_string();
    assert_eq!(error, "a.tar: b/test_batch.bin: there is another file of this name");
    // a bomb stops at its limit
    let bomb = one("big", regular, "", &[0; 5000]);
    let target = here.path().join("target");
    let error = unpack(Path::new("a.tar"), &mut &bomb[..], &target, 1000).expect_err("too large");
    assert!(matches!(error, DataError::Limit { what: "bytes unpacked", got: 1001, .. }), "{error}");
}
