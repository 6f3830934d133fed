//! Reads a dataset by its name, or from a path in any supported format.

use std::path::Path;

use crate::acquire::catalog::KnownDataset;
use crate::dataset::{Dataset, Images};
use crate::error::DataError;
use crate::features;
use crate::features::read::is_feature_file;
use crate::read::format::{cifar, class_folders, idx, inat, list, tiny_imagenet};
use crate::read::options::ReadOptions;
use crate::read::source::cannot_read;
use crate::read::tar::is_tar;

/// Reads a known dataset by its name (from the data folder `root`), or from a path: a CIFAR folder or archive, a folder of
/// IDX files, Tiny-ImageNet, iNaturalist, a list, a folder with a list and its images, or with such folders named after splits, a file of
/// features, or a tree with a folder per class. A list or tree without splits is split as the options say. Files that they leave out are in no split.
///
/// # Errors
/// Says what is missing or wrong, and where.
pub fn load(name_or_path: &str, root: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let mut dataset = read(name_or_path, root, options)?;
    dataset.leave_out(&options.left_out);
    if let (Some(labels), false) = (&options.labels, matches!(dataset.train.images, Images::Features(_))) {
        return Err(DataError::LabelsOfImages { labels: labels.clone() });
    }
    match &options.group_by {
        Some(by) if dataset.groups.is_empty() => {
            let what = "only images in class folders or in a list, and features with paths or a list of labels, can be grouped".to_owned();
            return Err(DataError::GroupBy { text: by.text().to_owned(), what });
        }
        _ => {}
    }
    Ok(dataset)
}

fn read(name_or_path: &str, root: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    if let Some(known) = KnownDataset::by_name(name_or_path) {
        let path = root.join(known.name);
        if !known.is_embedded() && is_missing(&path)? {
            return Err(DataError::NotInstalled { name: known.name, path });
        }
        return known.load(&path);
    }
    let path = Path::new(name_or_path);
    if is_missing(path)? {
        return Err(DataError::Unknown { name: name_or_path.to_owned() });
    }
    if list::is_list(path) {
        list::list(path, options)
    } else if is_feature_file(path) {
        features::read::dataset(path, options)
    } else if path.is_file() {
        load_archive(path)
    } else {
        load_folder(path, options)
    }
}

/// Reads CIFAR from an archive; which one is decided by the files in it.
fn load_archive(path: &Path) -> Result<Dataset, DataError> {
    if !is_tar(path)? {
        let is_archive =
            path.extension().is_some_and(|e| ["zip", "7z", "rar"].iter().any(|known| e.eq_ignore_ascii_case(known)));
        let path = path.to_owned();
        return Err(if is_archive { DataError::ForeignArchive { path } } else { DataError::Unrecognized { path } });
    }
    match cifar::cifar10(path) {
        Err(DataError::Missing { .. }) => {}
        result => return result,
    }
    match cifar::cifar100(path) {
        Err(DataError::Missing { .. }) => Err(DataError::ForeignArchive { path: path.to_owned() }),
        result => result,
    }
}

/// Reads a folder in the first format whose files it holds.
fn load_folder(path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let holds = |names: &[&str]| names.iter().any(|name| path.join(name).exists());
    if holds(&["data_batch_1.bin", "cifar-10-batches-bin", "data_batch_1", "cifar-10-batches-py"]) {
        cifar::cifar10(path)
    } else if holds(&["train.bin", "cifar-100-binary", "cifar-100-python"]) {
        cifar::cifar100(path)
    } else if holds(&["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"]) {
        idx::folder(path, &class_folders::name_of(path), None)
    } else if tiny_imagenet::is_tiny_imagenet(path) {
        tiny_imagenet::tiny_imagenet(path)
    } else if inat::is_inat(path) {
        inat::inat2017(path)
    } else if let Some(list) = list::list_in(path)? {
        let dataset = list::list(&list, options)?;
        Ok(Dataset { name: class_folders::name_of(path), ..dataset })
    } else if let Some(dataset) = list::lists_of_splits(path, options)? {
        Ok(dataset)
    } else if class_folders::is_tree(path)? {
        class_folders::tree(path, options)
    } else {
        Err(DataError::Unrecognized { path: path.to_owned() })
    }
}

/// Whether a dataset is read from a list, so that its columns can be named.
#[must_use]
pub fn is_list(name_or_path: &str) -> bool {
    let path = Path::new(name_or_path);
    let is_known = KnownDataset::by_name(name_or_path).is_some();
    let has_list =
        || [list::list_in(path), list::list_in(&path.join("train"))].iter().any(|list| matches!(list, Ok(Some(_))));
    !is_known && (list::is_list(path) || path.is_dir() && has_list())
}

/// Whether nothing is there. If the system does not allow a look, that is an error.
fn is_missing(path: &Path) -> Result<bool, DataError> {
    path.try_exists().map(|exists| !exists).map_err(cannot_read(path))
}
