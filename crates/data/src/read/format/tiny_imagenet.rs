//! Tiny-ImageNet-200 as it is shipped: `train/<wnid>/images/*.JPEG`, and `val/images/` with `val/val_annotations.txt`.
//!
//! Classes are the ids of `wnids.txt`, sorted; `words.txt` has their names. The `test/` folder has no labels and is not read:
//! the test split is `val/`, as in published results.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::class_folders::{Walk, folders, hidden_problem};
use crate::dataset::{Dataset, Problem};
use crate::error::DataError;
use crate::read::source::open;
use crate::read::text::lines;
use crate::subset::grouping::FileGroups;
use crate::subset::split::{ClassFiles, labeled};

/// Size limit of a text file; the official ones have at most 3 MB.
const MAX_BYTES: u64 = 16 << 20;

/// Whether a folder holds the dataset.
pub(crate) fn is_tiny_imagenet(path: &Path) -> bool {
    let path = &root(path);
    path.join("wnids.txt").is_file() && path.join("val/val_annotations.txt").is_file()
}

/// The folder itself, or the one inside it that the official archive unpacks to.
fn root(path: &Path) -> PathBuf {
    let inner = path.join("tiny-imagenet-200");
    if inner.join("wnids.txt").is_file() { inner } else { path.to_owned() }
}

/// Reads the dataset.
///
/// # Errors
/// Names what is missing, and the line that is invalid.
pub fn tiny_imagenet(path: &Path) -> Result<Dataset, DataError> {
    let path = &root(path);
    let file = path.join("wnids.txt");
    let wnids = wnids(&file, &mut *open(&file)?)?;
    let (mut problems, mut hidden) = (Vec::new(), 0);
    let mut train = ClassFiles::new();
    for wnid in &wnids {
        let images = path.join("train").join(wnid).join("images");
        let walk = if images.is_dir() { Walk::below(&images)? } else { Walk::default() };
        hidden += walk.hidden;
        problems.extend(walk.problems);
        if walk.files.is_empty() {
            problems.push(Problem { path: images.display().to_string(), what: "a class without images".to_owned() });
        }
        train.insert(wnid.clone(), walk.files);
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
    let mut val = ClassFiles::new();
    for (image, wnid) in annotations(&file, &mut *open(&file)?, &wnids)? {
        val.entry(wnid).or_default().push(path.join("val/images").join(image));
    }
    let (train, test) = (labeled(&train, &wnids), labeled(&val, &wnids));
    let words = path.join("words.txt");
    let classes = match words.exists() {
        true => names(&wnids, &words, &mut *open(&words)?)?,
        false => wnids,
    };
    Ok(Dataset {
        name: "tiny-imagenet".to_owned(),
        classes,
        train,
        val: None,
        test,
        groups: FileGroups::default(),
        problems,
    })
}

/// Reads the class ids, sorted; `path` is for messages.
///
/// # Errors
/// Names the line that is not a folder name, or appears twice.
pub fn wnids(path: &Path, text: &mut dyn Read) -> Result<Vec<String>, DataError> {
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(text, path, MAX_BYTES) {
        let (number, line) = line?;
        let id = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        let invalid = |what| Err(DataError::Line { path: path.to_owned(), line: number, what });
        if !id.is_empty() && !is_name(&id) {
            return invalid(format!("`{id}` is not a folder name"));
        }
        if !id.is_empty()
            && let Some(other) = ids.insert(id, number)
        {
            return invalid(format!("the class is already in line {other}"));
        }
    }
    Ok(ids.into_keys().collect())
}

/// Whether this names an entry of a folder, and nothing outside of it.
fn is_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

/// Reads the class of every image in `val/images`; `wnids` is sorted, `path` is for messages.
///
/// # Errors
/// Names the line that is invalid.
pub fn annotations(path: &Path, text: &mut dyn Read, wnids: &[String]) -> Result<Vec<(String, String)>, DataError> {
    let mut found = Vec::new();
    for line in lines(text, path, MAX_BYTES) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let invalid = |what: String| DataError::Line { path: path.to_owned(), line: number, what };
        let mut fields = line.trim_end().split('\t');
        let (Some(file), Some(wnid)) = (fields.next(), fields.next()) else {
            return Err(invalid("a file and a class are needed".to_owned()));
        };
        if !is_name(file) {
            return Err(invalid(format!("`{file}` is not a file name")));
        }
        if wnids.binary_search_by(|id| id.as_str().cmp(wnid)).is_err() {
            return Err(invalid(format!("class `{wnid}` is not in wnids.txt")));
        }
        found.push((file.to_owned(), wnid.to_owned()));
    }
    Ok(found)
}

/// Reads the class names: the first word of each, with the id where two classes share it; `path` is for messages.
///
/// # Errors
/// If the text cannot be read, or a line is too long.
pub fn names(wnids: &[String], path: &Path, text: &mut dyn Read) -> Result<Vec<String>, DataError> {
    let mut words: HashMap<String, String> = HashMap::new();
    for line in lines(text, path, MAX_BYTES) {
        let (_, line) = line?;
        if let Some((id, names)) = String::from_utf8_lossy(&line).split_once('\t') {
            words.insert(id.to_owned(), names.split(',').next().unwrap_or_default().trim().to_owned());
        }
    }
    let name = |id: &String| words.get(id).cloned().unwrap_or_else(|| id.clone());
    Ok(unique_names(wnids.iter().map(|id| (id, name(id))).collect()))
}

/// Class names, with the id where two classes share a name.
pub(super) fn unique_names<I: fmt::Display>(named: Vec<(I, String)>) -> Vec<String> {
    let mut occurrences: HashMap<String, usize> = HashMap::new();
    named.iter().for_each(|(_, name)| *occurrences.entry(name.clone()).or_default() += 1);
    named.into_iter().map(|(id, name)| if occurrences[&name] > 1 { format!("{name} ({id})") } else { name }).collect()
}
