//! iNaturalist 2017: COCO-style JSON (`train2017.json`, `val2017.json`) and the image folder beside it.
//!
//! Classes are the categories in the order of their ids; images in the order of the annotations. The set is tested on its
//! validation part, as everybody does.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::error::DataError;
use crate::set::{DataSet, Images, Part};
use crate::source::{open, up_to};

/// The largest annotation file accepted: the official one has 200 MB.
const MOST: u64 = 2 << 30;

#[derive(Deserialize)]
struct File {
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image {
    id: u64,
    file_name: String,
}

#[derive(Deserialize)]
struct Annotation {
    image_id: u64,
    category_id: u64,
}

#[derive(Deserialize)]
struct Category {
    id: u64,
    name: String,
}

/// Whether a folder holds the set.
#[must_use]
pub fn is_inat(path: &Path) -> bool {
    let notes = annotations(path);
    notes.join("train2017.json").is_file() && notes.join("val2017.json").is_file()
}

/// Where the JSON files are: in the folder itself, or in one named after the archive that they come in.
fn annotations(path: &Path) -> PathBuf {
    let inner = path.join("train_val2017");
    if inner.join("train2017.json").is_file() { inner } else { path.to_owned() }
}

/// Reads the set.
///
/// # Errors
/// Names the file and what does not fit in it.
pub fn inat2017(path: &Path) -> Result<DataSet, DataError> {
    let (train_path, val_path) = (annotations(path).join("train2017.json"), annotations(path).join("val2017.json"));
    let (train, val) = (read(&train_path)?, read(&val_path)?);
    let names: BTreeMap<u64, String> = train.categories.iter().map(|c| (c.id, c.name.clone())).collect();
    let labels: HashMap<u64, u32> = names.keys().zip(0..).map(|(id, label)| (*id, label)).collect();
    let (train, test) = (part(path, &train_path, &train, &labels)?, part(path, &val_path, &val, &labels)?);
    let classes = names.into_values().collect();
    Ok(DataSet { name: "inat2017".to_owned(), classes, train, val: None, test, problems: Vec::new() })
}

fn read(path: &Path) -> Result<File, DataError> {
    let bytes = up_to(&mut *open(path)?, MOST + 1, path)?;
    if bytes.len() as u64 > MOST {
        return Err(DataError::Limit { path: path.to_owned(), what: "bytes", got: bytes.len() as u64, most: MOST });
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(path, error.line(), error.to_string()))
}

fn wrong(path: &Path, line: usize, what: String) -> DataError {
    DataError::Line { path: path.to_owned(), line, what }
}

fn part(root: &Path, path: &Path, file: &File, labels: &HashMap<u64, u32>) -> Result<Part, DataError> {
    let images: HashMap<u64, &str> = file.images.iter().map(|image| (image.id, image.file_name.as_str())).collect();
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for (number, annotation) in file.annotations.iter().enumerate() {
        // JSON has no lines to speak of
        let wrong = |what: String| wrong(path, 1, format!("annotations[{number}]: {what}"));
        let name = images.get(&annotation.image_id);
        let name = name.ok_or_else(|| wrong(format!("there is no image with id {}", annotation.image_id)))?;
        let label = labels.get(&annotation.category_id);
        let label = label.ok_or_else(|| wrong(format!("there is no category with id {}", annotation.category_id)))?;
        let inside = PathBuf::from(name);
        if !inside.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(wrong(format!("file `{name}` lies outside the set")));
        }
        files.push(root.join(inside));
        found.push(*label);
    }
    if files.is_empty() {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    Ok(Part { images: Images::Files(files), labels: found })
}
