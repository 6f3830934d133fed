//! Tiny-ImageNet-200 as it is shipped: `train/<wnid>/images/*.JPEG`, and `val/images/` with `val/val_annotations.txt`.
//!
//! Classes are the lines of `wnids.txt` in the order of their names; `words.txt` says what they are called. The unlabelled
//! `test/` is not read: the set is tested on `val/`, as everybody does.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::folder::{Tree, entries, gather};
use crate::error::DataError;
use crate::set::{DataSet, Problem};
use crate::source::text;

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
pub fn tiny_imagenet(path: &Path) -> Result<DataSet, DataError> {
    let path = &root(path);
    let ids = text(&path.join("wnids.txt"))?;
    let mut wnids: Vec<String> = ids.lines().map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
    wnids.sort();
    wnids.dedup();
    let mut problems = Vec::new();
    let mut train = Tree::new();
    for wnid in &wnids {
        let images = path.join("train").join(wnid).join("images");
        let files: Vec<_> = match images.is_dir() {
            true => entries(&images)?.into_iter().map(|entry| entry.path()).collect(),
            false => Vec::new(),
        };
        if files.is_empty() {
            problems.push(Problem { path: images.display().to_string(), what: "a class without images".to_owned() });
        }
        train.insert(wnid.clone(), files);
    }
    if train.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.join("train") });
    }
    let annotations = path.join("val/val_annotations.txt");
    let mut val = Tree::new();
    for (number, line) in text(&annotations)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: String| DataError::Line { path: annotations.clone(), line: number + 1, what };
        let mut fields = line.split('\t');
        let (Some(file), Some(wnid)) = (fields.next(), fields.next()) else {
            return Err(wrong("a file and a class are needed".to_owned()));
        };
        if wnids.binary_search_by(|id| id.as_str().cmp(wnid)).is_err() {
            return Err(wrong(format!("class `{wnid}` is not in wnids.txt")));
        }
        val.entry(wnid.to_owned()).or_default().push(path.join("val/images").join(file));
    }
    let (train, test) = (gather(&train, &wnids), gather(&val, &wnids));
    let classes = names(&wnids, &text(&path.join("words.txt")).unwrap_or_default());
    Ok(DataSet { name: "tiny-imagenet".to_owned(), classes, train, val: None, test, problems })
}

/// What the classes are called: their first word, with the id where two share it.
fn names(wnids: &[String], words: &str) -> Vec<String> {
    let words: HashMap<&str, &str> = words.lines().filter_map(|line| line.split_once('\t')).collect();
    let name = |id: &String| {
        let known = words.get(id.as_str()).and_then(|names| names.split(',').next());
        known.map_or_else(|| id.clone(), |name| name.trim().to_owned())
    };
    let mut often: BTreeMap<String, usize> = BTreeMap::new();
    wnids.iter().for_each(|id| *often.entry(name(id)).or_default() += 1);
    wnids.iter().map(|id| if often[&name(id)] > 1 { format!("{} ({id})", name(id)) } else { name(id) }).collect()
}
