//! iNaturalist 2017: COCO-style JSON (`train2017.json`, `val2017.json`) and the image folder beside it.
//!
//! Classes are the categories, sorted by id; images are in the order of the annotations. The test split is the published
//! validation split, as in published results.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::tiny_imagenet::unique_names;
use crate::dataset::{Dataset, Images, Problem, Split};
use crate::error::DataError;
use crate::read::source::{LimitedReader, cannot_read, open};
use crate::read::text::MAX_LINE;
use crate::subset::grouping::FileGroups;

/// Size limit of an annotation file; the official one has 200 MB.
const MAX_BYTES: u64 = 2 << 30;

const TRAIN: &str = "train2017.json";
const VAL: &str = "val2017.json";

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

/// Whether a folder holds the dataset.
pub(crate) fn is_inat(path: &Path) -> bool {
    let folder = annotation_folder(path);
    folder.join(TRAIN).is_file() && folder.join(VAL).is_file()
}

/// The folder with the JSON files: the folder itself, or the one inside it that is named after their archive.
fn annotation_folder(path: &Path) -> PathBuf {
    let inner = path.join("train_val2017");
    if inner.join(TRAIN).is_file() { inner } else { path.to_owned() }
}

/// Reads the dataset.
///
/// # Errors
/// Names the file and what is invalid in it.
pub fn inat2017(path: &Path) -> Result<Dataset, DataError> {
    let folder = annotation_folder(path);
    let [train, val] = [TRAIN, VAL].map(|name| open(&folder.join(name)));
    parse(path, &folder, &mut *train?, &mut *val?)
}

/// Reads the dataset from its two annotation files. Its images are in `path`; `annotations` is the folder of the files, for
/// messages.
///
/// # Errors
/// Names the file and what is invalid in it.
pub fn parse(path: &Path, annotations: &Path, train: &mut dyn Read, val: &mut dyn Read) -> Result<Dataset, DataError> {
    let (train_path, val_path) = (annotations.join(TRAIN), annotations.join(VAL));
    let (train, val) = (read(&train_path, train)?, read(&val_path, val)?);
    let names: BTreeMap<u64, String> = train.categories.iter().map(|c| (c.id, c.name.clone())).collect();
    if names.len() < train.categories.len() {
        return Err(invalid(&train_path, 1, "categories: two have the same id".to_owned()));
    }
    let labels: HashMap<u64, u32> = names.keys().zip(0..).map(|(id, label)| (*id, label)).collect();
    let problems = [(&train_path, &train), (&val_path, &val)].into_iter().filter_map(|(path, file)| {
        let annotated: HashSet<u64> = file.annotations.iter().map(|annotation| annotation.image_id).collect();
        let number = file.images.iter().filter(|image| !annotated.contains(&image.id)).count();
        let what = format!("{number} images without an annotation are not read");
        (number > 0).then(|| Problem { path: path.display().to_string(), what })
    });
    let problems = problems.collect();
    let (train, test) = (split(path, &train_path, &train, &labels)?, split(path, &val_path, &val, &labels)?);
    let classes = unique_names(names.into_iter().collect());
    Ok(Dataset {
        name: "inat2017".to_owned(),
        classes,
        train,
        val: None,
        test,
        groups: FileGroups::default(),
        problems,
    })
}

fn read(path: &Path, reader: &mut dyn Read) -> Result<File, DataError> {
    let reader = TokenLimiter {
        inner: LimitedReader::new(reader, MAX_BYTES, "the file is too long"),
        in_string: false,
        escaped: false,
        length: 0,
    };
    serde_json::from_reader(BufReader::with_capacity(1 << 16, reader)).map_err(|error| match error.is_io() {
        true => cannot_read(path)(error.into()),
        false => invalid(path, error.line(), error.to_string()),
    })
}

/// A reader of JSON that limits the length of strings and numbers, because the parser holds each of them in memory.
struct TokenLimiter<R> {
    inner: R,
    in_string: bool,
    /// Whether the last byte was a backslash that escapes the next one.
    escaped: bool,
    /// Length of the current token.
    length: u64,
}

impl<R: Read> Read for TokenLimiter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        for byte in &buffer[..read] {
            self.length += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => (self.in_string, self.length) = (!self.in_string, 0),
                b'{' | b'}' | b'[' | b']' | b':' | b',' | b' ' | b'\n' if !self.in_string => self.length = 0,
                _ if self.length > MAX_LINE => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a string or number is too long"));
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

fn invalid(path: &Path, line: usize, what: String) -> DataError {
    DataError::Line { path: path.to_owned(), line, what }
}

fn split(root: &Path, path: &Path, file: &File, labels: &HashMap<u64, u32>) -> Result<Split, DataError> {
    let images: HashMap<u64, &str> = file.images.iter().map(|image| (image.id, image.file_name.as_str())).collect();
    if images.len() < file.images.len() {
        return Err(invalid(path, 1, "images: two have the same id".to_owned()));
    }
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for (number, annotation) in file.annotations.iter().enumerate() {
        // a JSON file may be one line
        let invalid = |what: String| invalid(path, 1, format!("annotations[{number}]: {what}"));
        let name = images.get(&annotation.image_id);
        let name = name.ok_or_else(|| invalid(format!("there is no image with id {}", annotation.image_id)))?;
        let label = labels.get(&annotation.category_id);
        let label = label.ok_or_else(|| invalid(format!("there is no category with id {}", annotation.category_id)))?;
        let inside = PathBuf::from(name);
        if !inside.components().all(|component| matches!(component, Component::Normal(_))) {
            return Err(invalid(format!("file `{name}` lies outside the dataset")));
        }
        files.push(root.join(inside));
        found.push(*label);
    }
    if files.is_empty() {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    Ok(Split { images: Images::Files(files), labels: found })
}
