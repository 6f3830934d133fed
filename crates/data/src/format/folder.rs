//! Trees with a folder per class: `train/`, `val/`, `test/` of them, or one tree that is split.
//!
//! Classes and files are taken in the order of their names, whatever order the disk has. Folders inside a class's folder belong
//! to the class, however deep; a path that is longer than the system takes is an error. Links to files count as files. Links to
//! folders are not followed, so that there are no loops; they, links to nowhere, devices and pipes are named as problems, and so
//! are entries beside the classes' folders. Hidden entries are left out.
//!
//! A class's name is its folder's, byte for byte: `\u{e9}` and `e\u{301}` are two classes, though they look alike. What is not
//! UTF-8 becomes U+FFFD and is named as a problem, and so are names that differ in case only; two that cannot be told apart
//! any more are an error.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use equipoise_random::Draws;

use crate::error::DataError;
use crate::set::{DataSet, Images, Part, Problem};
use crate::source::cannot_read;

/// Keeps these draws apart from those of other parts of a run with the same seed.
const SALT: u64 = 0x7370_6c69_7400_0000;

/// How a tree without `train/` is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// Share of every class that becomes the test part, in 0..1.
    pub test: f64,
    /// Seed of the choice.
    pub seed: u64,
}

impl Default for Split {
    /// A fifth.
    fn default() -> Self {
        Self { test: 0.2, seed: 0 }
    }
}

impl Split {
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
#[must_use]
pub fn is_tree(path: &Path) -> bool {
    let folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    path.join("train").is_dir() || entries(path).is_ok_and(|entries| entries.iter().any(folder))
}

/// Reads a tree.
///
/// # Errors
/// For a folder that cannot be read, a tree without classes or images, a share out of range, or a class of `test/` or `val/`
/// that `train/` does not have.
pub fn tree(path: &Path, split: Split) -> Result<DataSet, DataError> {
    let name = path.file_name().map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut problems = Vec::new();
    let whole = path.join("train");
    if !whole.is_dir() {
        let all = classes(path, &mut problems)?;
        let names: Vec<String> = all.keys().cloned().collect();
        let (train, test) = divide(path, all, split, &names)?;
        return Ok(DataSet { name, classes: names, train, val: None, test, problems });
    }
    let train = classes(&whole, &mut problems)?;
    let names: Vec<String> = train.keys().cloned().collect();
    let mut read = vec!["train"];
    let mut part = |folders: &[&'static str], problems: &mut Vec<Problem>| {
        let Some(name) = folders.iter().find(|name| path.join(name).is_dir()) else {
            return Ok(None);
        };
        read.push(name);
        let folder = path.join(name);
        let tree = classes(&folder, problems)?;
        if let Some(extra) = tree.keys().find(|class| names.binary_search(class).is_err()) {
            return Err(DataError::ExtraClass { folder: folder.join(extra), train: whole.clone() });
        }
        Ok(Some(gather(&tree, &names)))
    };
    let val = part(&["val", "valid", "validation"], &mut problems)?;
    let test = part(&["test"], &mut problems)?;
    for entry in entries(path)? {
        if !read.iter().any(|name| entry.file_name() == *name) {
            let what = format!("not read: the set is in {}", read.join(", "));
            problems.push(Problem { path: entry.path().display().to_string(), what });
        }
    }
    // a set with `val/` only is tested on it, as ImageNet is
    let (val, test) = match (val, test) {
        (val, Some(test)) => (val, test),
        (Some(val), None) => (None, val),
        (None, None) => {
            return Err(DataError::Missing { folder: path.to_owned(), name: "test or val folder".to_owned() });
        }
    };
    Ok(DataSet { name, train: gather(&train, &names), classes: names, val, test, problems })
}

/// A part from a tree, with labels by the classes' names.
pub(super) fn gather(tree: &Tree, names: &[String]) -> Part {
    let (mut files, mut labels) = (Vec::new(), Vec::new());
    for (label, name) in names.iter().enumerate() {
        for file in tree.get(name).into_iter().flatten() {
            files.push(file.clone());
            labels.push(label as u32);
        }
    }
    Part { images: Images::Files(files), labels }
}

/// Splits every class by a random key of each file, which depends on its place in the tree and on nothing else.
pub(super) fn divide(root: &Path, tree: Tree, split: Split, names: &[String]) -> Result<(Part, Part), DataError> {
    split.check()?;
    let (mut train, mut test) = (Tree::new(), Tree::new());
    for (name, files) in tree {
        let share = (files.len() as f64 * split.test).round() as usize;
        // a class of two or more is in both parts
        let tested = share.clamp(usize::from(files.len() > 1), files.len().saturating_sub(1));
        let key = |file: &PathBuf| {
            let inside = file.strip_prefix(root).unwrap_or(file).as_os_str().as_encoded_bytes();
            let word =
                inside.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
            Draws::new(split.seed ^ SALT, 0, word).at(0)
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
    let mut beside = 0;
    for entry in entries(path)? {
        let folder = entry.path();
        if !entry.file_type().map_err(cannot_read(path))?.is_dir() {
            if folder.is_dir() {
                problems.push(odd(&folder, LINK));
            } else {
                beside += 1;
            }
            continue;
        }
        let raw = entry.file_name();
        let name = raw.to_string_lossy().into_owned();
        let mut files = Vec::new();
        collect(&folder, &mut files, problems)?;
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
    if beside > 0 {
        problems.push(odd(path, &format!("{beside} files beside the classes' folders are not read")));
    }
    if tree.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    let names: Vec<String> = tree.keys().cloned().collect();
    problems.extend(case_twins(&names, path));
    Ok(tree)
}

const LINK: &str = "a link to a folder: not followed";

fn odd(path: &Path, what: &str) -> Problem {
    Problem { path: path.display().to_string(), what: what.to_owned() }
}

/// Classes of the list or folder `path` that differ in case only.
pub(super) fn case_twins(names: &[String], path: &Path) -> Vec<Problem> {
    let mut lower: BTreeMap<String, &String> = BTreeMap::new();
    let mut problems = Vec::new();
    for name in names {
        if let Some(other) = lower.insert(name.to_lowercase(), name) {
            let what = format!("class `{name}` differs from `{other}` in upper and lower case only");
            problems.push(odd(path, &what));
        }
    }
    problems
}

/// The entries of a folder that are not hidden, by name.
fn entries(path: &Path) -> Result<Vec<fs::DirEntry>, DataError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(cannot_read(path))? {
        let entry = entry.map_err(cannot_read(path))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry);
        }
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

/// Every file below a folder, by name; what is neither a file nor a folder goes to `problems`.
pub(super) fn collect(path: &Path, files: &mut Vec<PathBuf>, problems: &mut Vec<Problem>) -> Result<(), DataError> {
    for entry in entries(path)? {
        let kind = entry.file_type().map_err(cannot_read(path))?;
        let path = entry.path();
        if kind.is_dir() {
            collect(&path, files, problems)?;
        } else if kind.is_file() || path.is_file() {
            files.push(path);
        } else if path.is_dir() {
            problems.push(odd(&path, LINK));
        } else {
            problems.push(odd(&path, "neither a file nor a folder"));
        }
    }
    Ok(())
}
