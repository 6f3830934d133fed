//! Trees with a folder per class: `train/`, `val/` and `test/` folders of classes, or one tree that is split.
//!
//! Classes and files are sorted by name. Folders inside a class's folder belong to the class, however deep; a path that is
//! longer than the system allows is an error. Links to files count as files. Links to folders are not followed, so that there
//! are no loops. These links, broken links, devices and pipes are reported as problems, and so are files beside the class
//! folders, and files that are not images by name and content. Hidden entries are counted. Upper and lower case do not matter
//! in the names of the splits.
//!
//! A class is named as its folder, byte for byte: `\u{e9}` and `e\u{301}` are two classes, though they look alike. Bytes that
//! are not UTF-8 become U+FFFD and are reported as a problem; two names that become the same text are an error. Names that
//! differ only in case, or only in leading zeros, are reported too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Problem, Split};
use crate::error::DataError;
use crate::read::decode::may_be_image;
use crate::read::source::cannot_read;
use crate::subset::split::{ClassFiles, SplitRule, labeled, split_files};

/// Whether a folder looks like a tree of classes.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn is_tree(path: &Path) -> Result<bool, DataError> {
    Ok(path.is_dir() && !folders(path)?.is_empty())
}

/// Name of a dataset in a folder: that of the folder.
pub(crate) fn name_of(path: &Path) -> String {
    // `.` has no name of its own
    let absolute = if path.file_name().is_none() { path.canonicalize().ok() } else { None };
    let name = absolute.as_deref().unwrap_or(path).file_name();
    name.map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned())
}

const TRAIN: &[&str] = &["train"];
const VAL: &[&str] = &["val", "valid", "validation"];
const TEST: &[&str] = &["test"];

/// The first of these folders that exists, in upper or lower case.
fn split_folder(folders: &[PathBuf], names: &[&str]) -> Result<Option<PathBuf>, DataError> {
    for name in names {
        let mut found = folders.iter().filter(|folder| has_name(folder, name));
        match (found.next(), found.next()) {
            (Some(folder), Some(other)) => {
                return Err(DataError::TwoSplitFolders { folder: folder.clone(), other: other.clone() });
            }
            (Some(folder), None) => return Ok(Some(folder.clone())),
            _ => {}
        }
    }
    Ok(None)
}

fn has_name(folder: &Path, name: &str) -> bool {
    folder.file_name().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// Reads a tree.
///
/// # Errors
/// For a folder that cannot be read, a tree without classes or images, a test fraction out of range, or a class of `test/`
/// or `val/` that `train/` does not have.
pub fn tree(path: &Path, rule: SplitRule) -> Result<Dataset, DataError> {
    let folders = folders(path)?;
    match split_folder(&folders, TRAIN)? {
        Some(train) => tree_of_splits(path, &folders, &train),
        None => unsplit_tree(path, &folders, rule),
    }
}

/// Reads a tree without a `train/` folder, and splits it.
fn unsplit_tree(path: &Path, folders: &[PathBuf], rule: SplitRule) -> Result<Dataset, DataError> {
    let split_names = [VAL, TEST, &["training", "testing"]].concat();
    let is_split = |folder: &PathBuf| split_names.iter().any(|name| has_name(folder, name));
    if !folders.is_empty() && folders.iter().all(is_split) {
        let name = "train folder beside the others".to_owned();
        return Err(DataError::Missing { folder: path.to_owned(), name });
    }
    let mut problems = Vec::new();
    let files = class_files(path, &mut problems)?;
    let classes: Vec<String> = files.keys().cloned().collect();
    let (train, test) = split_files(path, files, rule, &classes)?;
    Ok(Dataset { name: name_of(path), classes, train, val: None, test, problems })
}

/// Reads a tree with a `train/` folder and a `val/` or `test/` folder, or both.
fn tree_of_splits(path: &Path, folders: &[PathBuf], train: &Path) -> Result<Dataset, DataError> {
    let mut problems = Vec::new();
    let files = class_files(train, &mut problems)?;
    let classes: Vec<String> = files.keys().cloned().collect();
    let mut read = vec![train.to_owned()];
    let mut split = |names: &[&str]| -> Result<Option<Split>, DataError> {
        let Some(folder) = split_folder(folders, names)? else {
            return Ok(None);
        };
        read.push(folder.clone());
        let files = class_files(&folder, &mut problems)?;
        if let Some(extra) = files.keys().find(|class| classes.binary_search(class).is_err()) {
            return Err(DataError::ExtraClass { folder: folder.join(extra), train: train.to_owned() });
        }
        Ok(Some(labeled(&files, &classes)))
    };
    let (val, test) = (split(VAL)?, split(TEST)?);
    let mut hidden = 0;
    for entry in entries(path, &mut hidden)? {
        if !read.contains(&entry.path()) {
            let read: Vec<_> = read.iter().filter_map(|split| split.file_name()).map(|n| n.to_string_lossy()).collect();
            problems.push(problem(&entry.path(), &format!("ignored: the dataset is in {}", read.join(", "))));
        }
    }
    problems.extend(hidden_problem(path, hidden));
    // as for ImageNet, `val/` is the test split if there is no other
    let (val, test) = match (val, test) {
        (val, Some(test)) => (val, test),
        (Some(val), None) => (None, val),
        (None, None) => {
            return Err(DataError::Missing { folder: path.to_owned(), name: "test or val folder".to_owned() });
        }
    };
    Ok(Dataset { name: name_of(path), train: labeled(&files, &classes), classes, val, test, problems })
}

/// The classes of a folder with their files; anything odd goes to `problems`.
fn class_files(path: &Path, problems: &mut Vec<Problem>) -> Result<ClassFiles, DataError> {
    let mut classes = ClassFiles::new();
    let (mut beside, mut hidden) = (Vec::new(), 0);
    for entry in entries(path, &mut hidden)? {
        let folder = entry.path();
        if !entry.file_type().map_err(cannot_read(path))?.is_dir() {
            if folder.is_dir() {
                problems.push(problem(&folder, LINK));
            } else {
                beside.push(entry.file_name().to_string_lossy().into_owned());
            }
            continue;
        }
        let raw = entry.file_name();
        let name = raw.to_string_lossy().into_owned();
        let mut files = Vec::new();
        collect(&folder, &mut files, problems, &mut hidden)?;
        if raw.to_str().is_none() {
            problems.push(problem(&folder, "the class name is not UTF-8"));
        }
        if files.is_empty() {
            problems.push(problem(&folder, "a class without images"));
        }
        if classes.contains_key(&name) {
            return Err(DataError::SameClass { folder });
        }
        classes.insert(name, files);
    }
    if classes.is_empty() && !beside.is_empty() {
        return Err(DataError::NoClasses { folder: path.to_owned(), files: beside.len() });
    }
    if !beside.is_empty() {
        let (number, more) = (beside.len(), if beside.len() > 3 { ", ..." } else { "" });
        beside.truncate(3);
        let what = format!("ignored {number} files beside the class folders: {}{more}", beside.join(", "));
        problems.push(problem(path, &what));
    }
    problems.extend(hidden_problem(path, hidden));
    if classes.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    let names: Vec<String> = classes.keys().cloned().collect();
    problems.extend(similar_names(&names, path));
    Ok(classes)
}

const LINK: &str = "a link to a folder is not followed";

fn problem(path: &Path, what: &str) -> Problem {
    Problem { path: path.display().to_string(), what: what.to_owned() }
}

/// The problem that a folder has hidden entries.
pub(super) fn hidden_problem(path: &Path, hidden: usize) -> Option<Problem> {
    (hidden > 0).then(|| problem(path, &format!("ignored {hidden} hidden entries")))
}

/// Classes of the list or folder `path` that differ only in case or, as numbers, in leading zeros.
pub(super) fn similar_names(names: &[String], path: &Path) -> Vec<Problem> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    let mut problems = Vec::new();
    for name in names {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let key = if number { format!("{:0>1}", name.trim_start_matches('0')) } else { name.to_lowercase() };
        if let Some(other) = seen.insert(key, name) {
            let how = if number { "leading zeros" } else { "upper and lower case" };
            let what = format!("class `{name}` differs from `{other}` only in {how}");
            problems.push(problem(path, &what));
        }
    }
    problems
}

/// The folders in a folder that are not hidden, sorted. Links to folders count, because a split may be one.
pub(super) fn folders(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = entries(path, &mut 0)?.into_iter();
    Ok(entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

/// The entries of a folder that are not hidden, sorted; `hidden` counts the others.
fn entries(path: &Path, hidden: &mut usize) -> Result<Vec<fs::DirEntry>, DataError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot_read(path))? {
        let entry = entry.map_err(cannot_read(path))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            *hidden += 1;
        } else {
            entries.push(entry);
        }
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

/// Adds every image below a folder to `files`, sorted; what is neither an image nor a folder goes to `problems`.
pub(crate) fn collect(
    path: &Path,
    files: &mut Vec<PathBuf>,
    problems: &mut Vec<Problem>,
    hidden: &mut usize,
) -> Result<(), DataError> {
    for entry in entries(path, hidden)? {
        let kind = entry.file_type().map_err(cannot_read(path))?;
        let path = entry.path();
        if kind.is_dir() {
            collect(&path, files, problems, hidden)?;
        } else if kind.is_file() || path.is_file() {
            if may_be_image(&path) {
                files.push(path);
            } else {
                problems.push(problem(&path, "not an image"));
            }
        } else if path.is_dir() {
            problems.push(problem(&path, LINK));
        } else {
            problems.push(problem(&path, "neither a file nor a folder"));
        }
    }
    Ok(())
}
