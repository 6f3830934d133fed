//! iNaturalist 2017: COCO-style JSON (`train2017.json`, `val2017.json`) and the image folder beside it.
//!
//! Classes are the categories in the order of their ids; images in the order of the annotations. The set is tested on its
//! validation part, as everybody does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::tiny_imagenet::told_apart;
use crate::dataset::{Dataset, Images, Problem, Split};
use crate::error::DataError;
use crate::read::source::{MOST_LINE, Metered, cannot_read, open};

/// The largest annotation file accepted: the official one has 200 MB.
const MOST: u64 = 2 << 30;

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

/// Whether a folder holds the set.
#[must_use]
pub fn is_inat(path: &Path) -> bool {
    let notes = annotations(path);
    notes.join(TRAIN).is_file() && notes.join(VAL).is_file()
}

/// Where the JSON files are: in the folder itself, or in one named after the archive that they come in.
fn annotations(path: &Path) -> PathBuf {
    let inner = path.join("train_val2017");
    if inner.join(TRAIN).is_file() { inner } else { path.to_owned() }
}

/// Reads the set.
///
/// # Errors
/// Names the file and what does not fit in it.
pub fn inat2017(path: &Path) -> Result<Dataset, DataError> {
    let notes = annotations(path);
    let [train, val] = [TRAIN, VAL].map(|name| open(&notes.join(name)));
    parse(path, &notes, &mut *train?, &mut *val?)
}

/// Reads the set from its two annotation files; `path` is where its images lie, `notes` where the files come from.
///
/// # Errors
/// Names the file and what does not fit in it.
pub fn parse(path: &Path, notes: &Path, train: &mut dyn Read, val: &mut dyn Read) -> Result<Dataset, DataError> {
    let (train_path, val_path) = (notes.join(TRAIN), notes.join(VAL));
    let (train, val) = (read(&train_path, train)?, read(&val_path, val)?);
    let names: BTreeMap<u64, String> = train.categories.iter().map(|c| (c.id, c.name.clone())).collect();
    if names.len() < train.categories.len() {
        return Err(wrong(&train_path, 1, "categories: two have the same id".to_owned()));
    }
    let labels: HashMap<u64, u32> = names.keys().zip(0..).map(|(id, label)| (*id, label)).collect();
    let problems = [(&train_path, &train), (&val_path, &val)].into_iter().filter_map(|(path, file)| {
        let annotated: HashSet<u64> = file.annotations.iter().map(|annotation| annotation.image_id).collect();
        let number = file.images.iter().filter(|image| !annotated.contains(&image.id)).count();
        let what = format!("{number} images without an annotation are not read");
        (number > 0).then(|| Problem { path: path.display().to_string(), what })
    });
    let problems = problems.collect();
    let (train, test) = (part(path, &train_path, &train, &labels)?, part(path, &val_path, &val, &labels)?);
    let classes = told_apart(names.into_iter().collect());
    Ok(Dataset { name: "inat2017".to_owned(), classes, train, val: None, test, problems })
}

fn read(path: &Path, reader: &mut dyn Read) -> Result<File, DataError> {
    let reader =
        Tokens { inner: Metered::new(reader, MOST, "the file is too long"), inside: false, escaped: false, length: 0 };
    serde_json::from_reader(BufReader::with_capacity(1 << 16, reader)).map_err(|error| match error.is_io() {
        true => cannot_read(path)(error.into()),
        false => wrong(path, error.line(), error.to_string()),
    })
}

/// JSON whose strings and numbers are no longer than a line may be: its parser would hold any of them.
struct Tokens<R> {
    inner: R,
    /// Whether this is inside a string.
    inside: bool,
    /// Whether the last byte was a backslash that counts.
    escaped: bool,
    length: u64,
}

impl<R: Read> Read for Tokens<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        for byte in &into[..read] {
            self.length += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.inside => self.escaped = true,
                b'"' => (self.inside, self.length) = (!self.inside, 0),
                b'{' | b'}' | b'[' | b']' | b':' | b',' | b' ' | b'\n' if !self.inside => self.length = 0,
                _ if self.length > MOST_LINE => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a string or number is too long"));
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

fn wrong(path: &Path, line: usize, what: String) -> DataError {
    DataError::Line { path: path.to_owned(), line, what }
}

fn part(root: &Path, path: &Path, file: &File, labels: &HashMap<u64, u32>) -> Result<Split, DataError> {
    let images: HashMap<u64, &str> = file.images.iter().map(|image| (image.id, image.file_name.as_str())).collect();
    if images.len() < file.images.len() {
        return Err(wrong(path, 1, "images: two have the same id".to_owned()));
    }
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
    Ok(Split { images: Images::Files(files), labels: found })
}
