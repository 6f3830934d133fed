//! Imports of folders with links, of folders that contain the data folder, and after a process was killed.

mod common;

use std::fs::{self, File};
use std::path::Path;

use common::{cifar10_files, idx_images, idx_labels, tar_gz, write_all};
use equipoise_data::DataError;
use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::acquire::import::{Imported, import};
use equipoise_testing::TempFolder;

fn cifar10(from: &Path, root: &Path) -> Result<Imported, DataError> {
    import(KnownDataset::by_name("cifar10").expect("known"), from, root)
}

#[cfg(unix)]
#[test]
fn links_to_files_are_followed_and_others_named() {
    use std::os::unix::fs::symlink;
    let here = TempFolder::new("links");
    let (real, source, root) = (here.path().join("real"), here.path().join("source"), here.path().join("root"));
    write_all(&real, &cifar10_files());
    fs::create_dir_all(&source).expect("a folder");
    for (name, _) in cifar10_files() {
        symlink(real.join(&name), source.join(&name)).expect("a link");
    }
    let Imported { path, .. } = cifar10(&source, &root).expect("good");
    assert!(path.join("data_batch_1.bin").symlink_metadata().expect("there").is_file());
    fs::remove_dir_all(path).expect("removes");
    for (target, what) in [(real, "a link to a folder"), (here.path().join("no"), "a link that leads to no file")] {
        symlink(target, source.join("link")).expect("a link");
        let error = cifar10(&source, &root).expect_err("a link").to_string();
        assert_eq!(error, format!("{}: {what}; it cannot be imported", source.join("link").display()));
        assert_eq!(root.read_dir().expect("reads").count(), 0, "something was left behind");
        fs::remove_file(source.join("link")).expect("removes");
    }
}

#[test]
fn a_folder_is_not_copied_into_itself() {
    let here = TempFolder::new("itself");
    write_all(here.path(), &cifar10_files());
    for root in [here.path().to_owned(), here.path().join("inner"), here.path().join("a/../deep/root")] {
        assert!(matches!(cifar10(here.path(), &root), Err(DataError::ContainsDataRoot { .. })), "{}", root.display());
    }
    assert_eq!(here.path().read_dir().expect("reads").count(), cifar10_files().len());
    // the data folder may contain the source
    let root = TempFolder::new("around");
    write_all(&root.path().join("source"), &cifar10_files());
    cifar10(&root.path().join("source"), root.path()).expect("good");
}

#[test]
fn leftovers_of_a_killed_process_are_removed_unless_in_use() {
    let here = TempFolder::new("killed");
    let (source, root) = (here.path().join("source"), here.path().join("root"));
    write_all(&source, &cifar10_files());
    let (staging, left) = (root.join(".importing-cifar10"), root.join(".importing-cifar10/dataset/left"));
    fs::create_dir_all(left.parent().expect("a folder")).expect("a folder");
    fs::write(&left, b"half").expect("writes");
    let other = File::create(staging.join("lock")).expect("a file");
    other.lock().expect("locks");
    let error = cifar10(&source, &root).expect_err("in use");
    assert!(matches!(error, DataError::Busy { .. }), "{error}");
    assert!(left.exists());
    drop(other);
    let Imported { path, .. } = cifar10(&source, &root).expect("good");
    assert!(!path.join("left").exists() && !staging.exists());
}

#[test]
fn errors_name_the_source_and_any_outer_folder_is_accepted() {
    let here = TempFolder::new("outer");
    let (archive, root) = (here.path().join("cf.tar.gz"), here.path().join("root"));
    fs::write(&archive, tar_gz("another-name", &cifar10_files())).expect("writes");
    let Imported { path, dataset, .. } = cifar10(&archive, &root).expect("good");
    let again = equipoise_data::load("cifar10", &root, &Default::default()).expect("in path");
    assert_eq!(again, dataset);
    fs::remove_dir_all(path).expect("removes");
    fs::write(&archive, tar_gz("another-name", &cifar10_files()[1..])).expect("writes");
    let error = cifar10(&archive, &root).expect_err("a file is missing").to_string();
    assert!(error.starts_with(&archive.display().to_string()) && !error.contains(".importing"), "{error}");
    let gone = here.path().join("gone");
    assert!(matches!(cifar10(&gone, &root), Err(DataError::NoSource { path }) if path == gone));
}

/// The number of labels is compared before they are read.
#[test]
fn labels_are_as_many_as_images() {
    let here = TempFolder::new("labels");
    let mut labels = idx_labels(&[0, 1]);
    labels[4..8].copy_from_slice(&600_000_000u32.to_be_bytes());
    write_all(
        here.path(),
        &[
            ("train-images-idx3-ubyte".to_owned(), idx_images(2, 1, 1, 2)),
            ("train-labels-idx1-ubyte".to_owned(), labels),
        ],
    );
    let error = equipoise_data::read::format::idx::folder(here.path(), "own", None).expect_err("too many");
    assert!(matches!(error, DataError::Mismatch { got: 600_000_000, want: 2, .. }), "{error}");
}
