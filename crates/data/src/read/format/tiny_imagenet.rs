//! Tiny-ImageNet-200 as it is shipped: `train/<wnid>/images/*.JPEG`, and `val/images/` with `val/val_annotations.txt`.
//!
//! Classes are the lines of `wnids.txt` in the order of their names; `words.txt` says what they are called. The unlabelled
//! `test/` is not read: the set is tested on `val/`, as everybody does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::class_folders::{Tree, collect, folders, gather, hidden_problem};
use crate::dataset::{Dataset, Problem};
use crate::error::DataError;
use crate::read::source::{lines, open};

/// The largest text file accepted: the official ones have at most 3 MB.
const MOST: u64 = 16 << 20;

/// Whether a folder holds the set.
#[must_use]
pub fn is_tiny_imagenet(path: &Path) -> bool {
    let path = &root(path);
    path.join("wnids.txt").is_file() && path.join("val/val_annotations.txt").is_file()
}

/// The folder itself, or the one that the official archive unpacks to.
fn root(path: &Path) -> PathBuf {
    let inner = path.join("tiny-imagenet-200");
    if inner.join("wnids.txt").is_file() { inner } else { path.to_owned() }
}

/// Reads the set.
///
/// # Errors
/// Names what is missing, and the line that makes no sense.
pub fn tiny_imagenet(path: &Path) -> Result<Dataset, DataError> {
    let path = &root(path);
    let file = path.join("wnids.txt");
    let wnids = wnids(&file, &mut *open(&file)?)?;
    let (mut problems, mut hidden) = (Vec::new(), 0);
    let mut train = Tree::new();
    for wnid in &wnids {
        let images = path.join("train").join(wnid).join("images");
        let mut files = Vec::new();
        if images.is_dir() {
            collect(&images, &mut files, &mut problems, &mut hidden)?;
        }
        if files.is_empty() {
            problems.push(Problem { path: images.display().to_string(), what: "a class without images".to_owned() });
        }
        train.insert(wnid.clone(), files);
    }
    for folder in folders(&path.join("train"))? {
        if !wnids.iter().any(|wnid| folder.ends_with(wnid)) {
            problems
                .push(Problem { path: folder.display().to_string(), what: "not read: not in wnids.txt".to_owned() });
        }
    }
    if train.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.join("train") });
    }
    problems.extend(hidden_problem(&path.join("train"), hidden));
    let file = path.join("val/val_annotations.txt");
    let mut val = Tree::new();
    for (image, wnid) in annotations(&file, &mut *open(&file)?, &wnids)? {
        val.entry(wnid).or_default().push(path.join("val/images").join(image));
    }
    let (train, test) = (gather(&train, &wnids), gather(&val, &wnids));
    let words = path.join("words.txt");
    let classes = match words.exists() {
        true => names(&wnids, &words, &mut *open(&words)?)?,
        false => wnids,
    };
    Ok(Dataset { name: "tiny-imagenet".to_owned(), classes, train, val: None, test, problems })
}

/// Reads the classes' ids, in the order of their names; `path` is for messages.
///
/// # Errors
/// Names the line that is no folder's name, or there twice.
pub fn wnids(path: &Path, text: &mut dyn Read) -> Result<Vec<String>, DataError> {
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(text, path, MOST) {
        let (number, line) = line?;
        let id = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        let wrong = |what| Err(DataError::Line { path: path.to_owned(), line: number, what });
        if !id.is_empty() && !is_name(&id) {
            return wrong(format!("`{id}` is not a folder's name"));
        }
        if !id.is_empty()
            && let Some(other) = ids.insert(id, number)
        {
            return wrong(format!("the same class as in line {other}"));
        }
    }
    Ok(ids.into_keys().collect())
}

/// Whether this is the name of something in a folder, and no way out of it.
fn is_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

/// Reads which image of `val/images` is of which of the classes `wnids`, which are in order; `path` is for messages.
///
/// # Errors
/// Names the line that makes no sense.
pub fn annotations(path: &Path, text: &mut dyn Read, wnids: &[String]) -> Result<Vec<(String, String)>, DataError> {
    let mut found = Vec::new();
    for line in lines(text, path, MOST) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |what: String| DataError::Line { path: path.to_owned(), line: number, what };
        let mut fields = line.trim_end().split('\t');
        let (Some(file), Some(wnid)) = (fields.next(), fields.next()) else {
            return Err(wrong("a file and a class are needed".to_owned()));
        };
        if !is_name(file) {
            return Err(wrong(format!("`{file}` is not a file's name")));
        }
        if wnids.binary_search_by(|id| id.as_str().cmp(wnid)).is_err() {
            return Err(wrong(format!("class `{wnid}` is not in wnids.txt")));
        }
        found.push((file.to_owned(), wnid.to_owned()));
    }
    Ok(found)
}

/// Reads what the classes are called: their first word, with the id where two share it; `path` is for messages.
///
/// # Errors
/// If the text cannot be read, or has a line that is too long.
pub fn names(wnids: &[String], path: &Path, text: &mut dyn Read) -> Result<Vec<String>, DataError> {
    let mut words: HashMap<String, String> = HashMap::new();
    for line in lines(text, path, MOST) {
        let (_, line) = line?;
        if let Some((id, names)) = String::from_utf8_lossy(&line).split_once('\t') {
            words.insert(id.to_owned(), names.split(',').next().unwrap_or_default().trim().to_owned());
        }
    }
    let name = |id: &String| words.get(id).cloned().unwrap_or_else(|| id.clone());
    Ok(told_apart(wnids.iter().map(|id| (id, name(id))).collect()))
}

/// Names of classes, with the id where two share one.
pub(super) fn told_apart<I: fmt::Display>(named: Vec<(I, String)>) -> Vec<String> {
    let mut often: HashMap<String, usize> = HashMap::new();
    named.iter().for_each(|(_, name)| *often.entry(name.clone()).or_default() += 1);
    named.into_iter().map(|(id, name)| if often[&name] > 1 { format!("{name} ({id})") } else { name }).collect()
}
