//! Trees with a folder per class: `train/`, `val/`, `test/` of them, or one tree that is split.
//!
//! Classes and files are taken in the order of their names, whatever order the disk has. Folders inside a class's folder belong
//! to the class, however deep; a path that is longer than the system takes is an error. Links to files count as files. Links to
//! folders are not followed, so that there are no loops; they, links to nowhere, devices and pipes are named as problems, and so
//! are entries beside the classes' folders, and files that are no images by name and content. Hidden entries are counted.
//! The case of the parts' names does not matter.
//!
//! A class's name is its folder's, byte for byte: `\u{e9}` and `e\u{301}` are two classes, though they look alike. What is not
//! UTF-8 becomes U+FFFD and is named as a problem, and so are names that differ in case only; two that cannot be told apart
//! any more are an error. Numbers that differ in leading zeros only are named too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use equipoise_random::{Example, Stream};

use crate::dataset::{Dataset, Images, Problem, Split};
use crate::error::DataError;
use crate::read::decode::may_be_image;
use crate::read::source::{cannot_read, fnv1a};

/// How a tree without `train/` is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitRule {
    /// Share of every class that becomes the test part, in 0..1.
    pub test: f64,
    /// Seed of the choice.
    pub seed: u64,
}

impl Default for SplitRule {
    /// A fifth.
    fn default() -> Self {
        Self { test: 0.2, seed: 0 }
    }
}

impl SplitRule {
    /// Whether the share leaves something for both parts.
    ///
    /// # Errors
    /// If it is not in 0..1.
    pub fn check(&self) -> Result<(), DataError> {
        if self.test > 0.0 && self.test < 1.0 { Ok(()) } else { Err(DataError::Share { share: self.test }) }
    }
}

/// Files by class name.
pub(super) type Tree = BTreeMap<String, Vec<PathBuf>>;

/// Whether a folder looks like a tree of classes.
///
/// # Errors
/// If it cannot be read.
pub fn is_tree(path: &Path) -> Result<bool, DataError> {
    Ok(path.is_dir() && !folders(path)?.is_empty())
}

/// What a set in a folder is called: as the folder.
pub(crate) fn name_of(path: &Path) -> String {
    // `.` has no name of its own
    let whole = if path.file_name().is_none() { path.canonicalize().ok() } else { None };
    let name = whole.as_deref().unwrap_or(path).file_name();
    name.map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned())
}

const TRAIN: &[&str] = &["train"];
const VAL: &[&str] = &["val", "valid", "validation"];
const TEST: &[&str] = &["test"];

/// The first of these folders that is there, whatever the case of its letters.
fn part_folder(folders: &[PathBuf], names: &[&str]) -> Result<Option<PathBuf>, DataError> {
    for name in names {
        let mut found = folders.iter().filter(|folder| is_called(folder, name));
        match (found.next(), found.next()) {
            (Some(folder), Some(other)) => {
                return Err(DataError::TwoParts { folder: folder.clone(), other: other.clone() });
            }
            (Some(folder), None) => return Ok(Some(folder.clone())),
            _ => {}
        }
    }
    Ok(None)
}

fn is_called(folder: &Path, name: &str) -> bool {
    folder.file_name().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// Reads a tree.
///
/// # Errors
/// For a folder that cannot be read, a tree without classes or images, a share out of range, or a class of `test/` or `val/`
/// that `train/` does not have.
pub fn tree(path: &Path, split: SplitRule) -> Result<Dataset, DataError> {
    let name = name_of(path);
    let mut problems = Vec::new();
    let folders = folders(path)?;
    let Some(whole) = part_folder(&folders, TRAIN)? else {
        let is_part = |folder: &PathBuf| {
            [VAL, TEST, &["training", "testing"]].concat().iter().any(|name| is_called(folder, name))
        };
        if !folders.is_empty() && folders.iter().all(is_part) {
            return Err(DataError::Missing {
                folder: path.to_owned(),
                name: "train folder beside the others".to_owned(),
            });
        }
        let all = classes(path, &mut problems)?;
        let names: Vec<String> = all.keys().cloned().collect();
        let (train, test) = divide(path, all, split, &names)?;
        return Ok(Dataset { name, classes: names, train, val: None, test, problems });
    };
    let train = classes(&whole, &mut problems)?;
    let names: Vec<String> = train.keys().cloned().collect();
    let mut read = vec![whole.clone()];
    let mut part = |wanted: &[&str], problems: &mut Vec<Problem>| {
        let Some(folder) = part_folder(&folders, wanted)? else {
            return Ok(None);
        };
        read.push(folder.clone());
        let tree = classes(&folder, problems)?;
        if let Some(extra) = tree.keys().find(|class| names.binary_search(class).is_err()) {
            return Err(DataError::ExtraClass { folder: folder.join(extra), train: whole.clone() });
        }
        Ok(Some(gather(&tree, &names)))
    };
    let val = part(VAL, &mut problems)?;
    let test = part(TEST, &mut problems)?;
    let mut hidden = 0;
    for entry in entries(path, &mut hidden)? {
        if !read.contains(&entry.path()) {
            let read: Vec<_> = read.iter().filter_map(|part| part.file_name()).map(|n| n.to_string_lossy()).collect();
            problems.push(odd(&entry.path(), &format!("not read: the set is in {}", read.join(", "))));
        }
    }
    problems.extend(hidden_problem(path, hidden));
    // a set with `val/` only is tested on it, as ImageNet is
    let (val, test) = match (val, test) {
        (val, Some(test)) => (val, test),
        (Some(val), None) => (None, val),
        (None, None) => {
            return Err(DataError::Missing { folder: path.to_owned(), name: "test or val folder".to_owned() });
        }
    };
    Ok(Dataset { name, train: gather(&train, &names), classes: names, val, test, problems })
}

/// A part from a tree, with labels by the classes' names.
pub(super) fn gather(tree: &Tree, names: &[String]) -> Split {
    let (mut files, mut labels) = (Vec::new(), Vec::new());
    for (label, name) in names.iter().enumerate() {
        for file in tree.get(name).into_iter().flatten() {
            files.push(file.clone());
            labels.push(label as u32);
        }
    }
    Split { images: Images::Files(files), labels }
}

/// Splits every class by a random key of each file, which depends on its place in the tree and on nothing else.
pub(super) fn divide(root: &Path, tree: Tree, split: SplitRule, names: &[String]) -> Result<(Split, Split), DataError> {
    split.check()?;
    let (mut train, mut test) = (Tree::new(), Tree::new());
    for (name, files) in tree {
        let share = (files.len() as f64 * split.test).round() as usize;
        // a class of two or more is in both parts
        let tested = share.clamp(usize::from(files.len() > 1), files.len().saturating_sub(1));
        let key = |file: &PathBuf| {
            let inside = file.strip_prefix(root).unwrap_or(file).as_os_str().as_encoded_bytes();
            Example { seed: split.seed, epoch: 0, example: fnv1a(inside) }.draws(Stream::TestSplit).at(0)
        };
        let mut keyed: Vec<(u64, PathBuf)> = files.into_iter().map(|file| (key(&file), file)).collect();
        keyed.sort();
        let mut chosen: Vec<PathBuf> = keyed.drain(..tested).map(|(_, file)| file).collect();
        let mut rest: Vec<PathBuf> = keyed.into_iter().map(|(_, file)| file).collect();
        chosen.sort();
        rest.sort();
        test.insert(name.clone(), chosen);
        train.insert(name, rest);
    }
    Ok((gather(&train, names), gather(&test, names)))
}

/// The classes of a folder with their files; what is odd about them goes to `problems`.
fn classes(path: &Path, problems: &mut Vec<Problem>) -> Result<Tree, DataError> {
    let mut tree = Tree::new();
    let (mut beside, mut hidden) = (Vec::new(), 0);
    for entry in entries(path, &mut hidden)? {
        let folder = entry.path();
        if !entry.file_type().map_err(cannot_read(path))?.is_dir() {
            if folder.is_dir() {
                problems.push(odd(&folder, LINK));
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
            problems.push(odd(&folder, "the class's name is not UTF-8"));
        }
        if files.is_empty() {
            problems.push(odd(&folder, "a class without images"));
        }
        if tree.contains_key(&name) {
            return Err(DataError::SameClass { folder });
        }
        tree.insert(name, files);
    }
    if tree.is_empty() && !beside.is_empty() {
        return Err(DataError::NoClasses { folder: path.to_owned(), files: beside.len() });
    }
    if !beside.is_empty() {
        let (number, more) = (beside.len(), if beside.len() > 3 { ", ..." } else { "" });
        beside.truncate(3);
        let what = format!("{number} files beside the classes' folders are not read: {}{more}", beside.join(", "));
        problems.push(odd(path, &what));
    }
    problems.extend(hidden_problem(path, hidden));
    if tree.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    let names: Vec<String> = tree.keys().cloned().collect();
    problems.extend(twins(&names, path));
    Ok(tree)
}

const LINK: &str = "a link to a folder: not followed";

fn odd(path: &Path, what: &str) -> Problem {
    Problem { path: path.display().to_string(), what: what.to_owned() }
}

/// What to say of hidden entries below a folder.
pub(super) fn hidden_problem(path: &Path, hidden: usize) -> Option<Problem> {
    (hidden > 0).then(|| odd(path, &format!("{hidden} hidden entries are not read")))
}

/// Classes of the list or folder `path` that differ in case or, as numbers, in leading zeros only.
pub(super) fn twins(names: &[String], path: &Path) -> Vec<Problem> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    let mut problems = Vec::new();
    for name in names {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let key = if number { format!("{:0>1}", name.trim_start_matches('0')) } else { name.to_lowercase() };
        if let Some(other) = seen.insert(key, name) {
            let how = if number { "leading zeros" } else { "upper and lower case" };
            let what = format!("class `{name}` differs from `{other}` in {how} only");
            problems.push(odd(path, &what));
        }
    }
    problems
}

/// The folders in a folder that are not hidden, by name; links to folders too, because a part may be one.
pub(super) fn folders(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = entries(path, &mut 0)?.into_iter();
    Ok(entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

/// The entries of a folder that are not hidden, by name; counts those that are.
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

/// Every image below a folder, by name; what is neither an image nor a folder goes to `problems`, and `hidden` counts.
pub(super) fn collect(
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
                problems.push(odd(&path, "not an image"));
            }
        } else if path.is_dir() {
            problems.push(odd(&path, LINK));
        } else {
            problems.push(odd(&path, "neither a file nor a folder"));
        }
    }
    Ok(())
}
