//! From a file of features to a dataset.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::array::Array;
use super::bytes::FileBytes;
use super::error::FeatureError;
use super::labels::{LabelFile, Labels, label_file};
use super::{Features, npy, npz, safetensors};
use crate::dataset::{Dataset, Images, Split};
use crate::error::DataError;
use crate::read::format::list::doubtful_names;
use crate::read::options::ReadOptions;
use crate::read::source::cannot_read;
use crate::subset::grouping::FileGroups;
use crate::subset::split::split_rows;

/// Usual names of arrays, the most telling first.
const FEATURES: &[&str] = &["features", "embeddings", "x", "data", "arr_0"];
const LABELS: &[&str] = &["labels", "label", "y", "targets", "target", "arr_1"];
const CLASSES: &[&str] = &["classes", "class_names", "names"];
const SPLIT: &str = "split";

/// Arrays that a message names.
const MOST_NAMED: usize = 20;
/// Extensions of files of features.
const EXTENSIONS: [&str; 3] = ["safetensors", "npy", "npz"];

/// Whether a file holds features, by its extension.
#[must_use]
pub fn is_feature_file(path: &Path) -> bool {
    let known = |extension: &std::ffi::OsStr| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known));
    path.is_file() && path.extension().is_some_and(known)
}

/// The arrays of a file, and what it says about them.
struct Contents {
    arrays: Vec<(String, Array)>,
    metadata: BTreeMap<String, String>,
}

impl Contents {
    fn open(path: &Path) -> Result<Self, DataError> {
        let is = |known: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(known));
        if is("safetensors") {
            let safetensors::Tensors { arrays, metadata } = safetensors::tensors(path)?;
            return Ok(Self { arrays, metadata });
        }
        if is("npz") {
            return Ok(Self { arrays: npz::arrays(path)?, metadata: BTreeMap::new() });
        }
        let bytes = Arc::new(FileBytes::open(path).map_err(cannot_read(path))?);
        let end = bytes.len();
        let array = npy::array("its array", &bytes, 0..end);
        let array = array.map_err(|what| DataError::Features { path: path.to_owned(), what })?;
        Ok(Self { arrays: vec![("features".to_owned(), array)], metadata: BTreeMap::new() })
    }

    /// The first array that has one of these names.
    fn named(&self, names: &[&str]) -> Option<&Array> {
        let find = |name: &&str| self.arrays.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        names.iter().find_map(find).map(|(_, array)| array)
    }

    /// The features with their labels, and the split of each part that has one by its name (`x_train`, `y_test`).
    fn parts(&self) -> Result<Vec<Part<'_>>, FeatureError> {
        if let Some(features) = self.named(FEATURES) {
            return Ok(vec![Part { features, labels: self.named(LABELS), split: None }]);
        }
        let is_table = |array: &Array| array.header.shape.len() == 2 && array.header.value_type.is_float();
        let tables: Vec<&(String, Array)> = self.arrays.iter().filter(|(_, array)| is_table(array)).collect();
        let mut parts = Vec::new();
        for (number, word) in ["train", "val", "test"].into_iter().enumerate() {
            let of_split = |name: &str| name.to_ascii_lowercase().contains(word);
            let Some((_, features)) = tables.iter().find(|(name, _)| of_split(name)) else { continue };
            let is_list = |array: &Array| matches!(array.header.shape[..], [_] | [_, 1]);
            let labels = self.arrays.iter().find(|(name, array)| of_split(name) && is_list(array));
            parts.push(Part { features, labels: labels.map(|(_, array)| array), split: Some(number as u8) });
        }
        match (&parts[..], &tables[..]) {
            ([], [(_, features)]) => Ok(vec![Part { features, labels: self.named(LABELS), split: None }]),
            ([], _) => {
                let describe = |(name, array): &(String, Array)| format!("{name} {:?}", array.header.shape);
                let mut found: Vec<String> = self.arrays.iter().take(MOST_NAMED).map(describe).collect();
                if self.arrays.len() > MOST_NAMED {
                    found.push("..".to_owned());
                }
                Err(FeatureError::NoFeatures { found: found.join(", ") })
            }
            _ => Ok(parts),
        }
    }

    /// A list of texts in the metadata.
    fn texts(&self, key: &'static str) -> Result<Option<Vec<String>>, FeatureError> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let texts = serde_json::from_str(value);
        texts.map(Some).map_err(|error| FeatureError::Metadata { key, what: error.to_string() })
    }

    /// Class names in the order of the labels, if the file has them.
    fn classes(&self) -> Result<Option<Vec<String>>, FeatureError> {
        match self.named(CLASSES) {
            Some(array) if array.header.value_type.is_text() => match Labels::from_array(array)? {
                Labels::Names(names) => Ok(Some(names)),
                Labels::Numbers(_) => Ok(None),
            },
            _ => self.texts("classes"),
        }
    }
}

/// Features with their labels.
struct Part<'a> {
    features: &'a Array,
    labels: Option<&'a Array>,
    /// 0 for training, 1 for validation, 2 for testing.
    split: Option<u8>,
}

impl Part<'_> {
    /// Where its rows are, if the file has so many parts.
    fn place(&self, path: &Path, parts: usize) -> String {
        let file = path.file_name().unwrap_or_default().display();
        match parts {
            1 => file.to_string(),
            _ => format!("{file}:{}", self.features.header.name),
        }
    }
}

/// The features of a file alone, whether it has labels or not.
///
/// # Errors
/// If the file cannot be read, or its features cannot be used.
pub fn features(path: &Path) -> Result<Features, DataError> {
    let contents = Contents::open(path)?;
    let unusable = |what| DataError::Features { path: path.to_owned(), what };
    let mut all: Option<Features> = None;
    let parts = contents.parts().map_err(unusable)?;
    for part in &parts {
        let names = row_names(&contents, part.features).map_err(unusable)?;
        let rows = Features::new(part.features.clone(), part.place(path, parts.len()), names).map_err(unusable)?;
        match &mut all {
            None => all = Some(rows),
            Some(all) => append(all, &rows, part.features).map_err(unusable)?,
        }
    }
    all.ok_or_else(|| unusable(FeatureError::NoFeatures { found: String::new() }))
}

/// What a file says about itself: the metadata of a safetensors file; nothing for others.
///
/// # Errors
/// If the file cannot be read.
pub fn metadata(path: &Path) -> Result<BTreeMap<String, String>, DataError> {
    Ok(Contents::open(path)?.metadata)
}

fn append(all: &mut Features, more: &Features, array: &Array) -> Result<(), FeatureError> {
    if all.append(more) {
        return Ok(());
    }
    let (array, shape) = (array.header.name.clone(), array.header.shape.clone());
    Err(FeatureError::Shape { array, shape, want: "all tables must have as many columns" })
}

/// The names of the rows, if the metadata has them.
fn row_names(contents: &Contents, features: &Array) -> Result<Vec<PathBuf>, FeatureError> {
    let names = contents.texts("paths")?.unwrap_or_default();
    if !names.is_empty() && names.len() != features.rows() {
        let what = format!("{} paths for {} rows", names.len(), features.rows());
        return Err(FeatureError::Metadata { key: "paths", what });
    }
    Ok(names.into_iter().map(PathBuf::from).collect())
}

/// Rows with all that is known about them.
struct Rows {
    features: Features,
    labels: Labels,
    /// The split of every row; empty if there are none.
    splits: Vec<u8>,
    /// Groups by name; empty if there are none.
    groups: Vec<String>,
}

/// Reads a dataset of features. Labels are in the file, in the file that the options name, or in one beside it: `x.labels.npy` or
/// `x.labels.csv` for `x.npy`. Rows without splits are split as images are.
///
/// # Errors
/// Says in one sentence what is wrong with the file or its labels.
pub fn dataset(path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let contents = Contents::open(path)?;
    let unusable = |what| DataError::Features { path: path.to_owned(), what };
    let label_path = options.labels.clone().or_else(|| beside(path));
    let rows = match &label_path {
        Some(labels) => with_label_file(path, &contents, labels, options)?,
        None => with_own_labels(path, &contents).map_err(unusable)?,
    };
    let Rows { features, labels, splits, groups } = rows;
    if labels.len() != features.len() {
        let (labels, rows) = (labels.len(), features.len());
        let path = label_path.unwrap_or_else(|| path.to_owned());
        return Err(DataError::Features { path, what: FeatureError::LabelCount { labels, rows } });
    }
    let (classes, labels) = labels.classes(contents.classes().map_err(unusable)?).map_err(unusable)?;
    let groups = row_groups(&features, &groups, options)?;
    let problems = doubtful_names(&classes, path);
    let all = Split { images: Images::Features(features), labels };
    let of = |split: u8| -> Option<Split> {
        let indices: Vec<u32> = (0..all.labels.len() as u32).filter(|row| splits[*row as usize] == split).collect();
        (!indices.is_empty()).then(|| all.subset(&indices))
    };
    let empty = || all.subset(&[]);
    let (train, val, test) = match splits.iter().any(|split| *split > 0) {
        false => {
            let (train, test) = split_rows(&all, options, (classes.len(), &groups))?;
            (train, None, test)
        }
        true => match (of(1), of(2)) {
            (val, Some(test)) => (of(0), val, test),
            (Some(val), None) => (of(0), None, val),
            (None, None) => (of(0), None, empty()),
        }
        .map_train(empty),
    };
    let name = path.file_stem().map_or_else(|| "features".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Dataset { name, classes, train, val, test, groups, problems })
}

/// Fills in a missing training split.
trait MapTrain {
    fn map_train(self, empty: impl FnOnce() -> Split) -> (Split, Option<Split>, Split);
}

impl MapTrain for (Option<Split>, Option<Split>, Split) {
    fn map_train(self, empty: impl FnOnce() -> Split) -> (Split, Option<Split>, Split) {
        (self.0.unwrap_or_else(empty), self.1, self.2)
    }
}

/// A file of labels beside a file of features.
fn beside(path: &Path) -> Option<PathBuf> {
    let candidate = |extension: &str| path.with_extension(format!("labels.{extension}"));
    ["npy", "csv", "txt"].into_iter().map(candidate).find(|path| path.is_file())
}

/// The rows of a file that has its labels.
fn with_own_labels(path: &Path, contents: &Contents) -> Result<Rows, FeatureError> {
    let parts = contents.parts()?;
    let (mut features, mut labels, mut splits): (Option<Features>, Option<Labels>, Vec<u8>) = (None, None, Vec::new());
    for part in &parts {
        let names = row_names(contents, part.features)?;
        let rows = Features::new(part.features.clone(), part.place(path, parts.len()), names)?;
        let own = Labels::from_array(part.labels.ok_or(FeatureError::NoLabels)?)?;
        if own.len() != rows.len() {
            return Err(FeatureError::LabelCount { labels: own.len(), rows: rows.len() });
        }
        splits.extend(part.split.iter().flat_map(|split| vec![*split; rows.len()]));
        match &mut features {
            None => features = Some(rows),
            Some(features) => append(features, &rows, part.features)?,
        }
        labels = Some(match (labels, own) {
            (None, own) => own,
            (Some(Labels::Numbers(mut all)), Labels::Numbers(own)) => {
                all.extend(own);
                Labels::Numbers(all)
            }
            (Some(Labels::Names(mut all)), Labels::Names(own)) => {
                all.extend(own);
                Labels::Names(all)
            }
            (Some(_), _) => {
                let what = "labels are numbers in one array and texts in another".to_owned();
                return Err(FeatureError::Header { what });
            }
        });
    }
    let (features, labels) = features.zip(labels).ok_or(FeatureError::NoLabels)?;
    if let Some(array) = contents.named(&[SPLIT]).filter(|_| splits.is_empty()) {
        splits = array_splits(array, features.len())?;
    }
    Ok(Rows { features, labels, splits, groups: Vec::new() })
}

/// The rows of a file whose labels are in another file.
fn with_label_file(
    path: &Path,
    contents: &Contents,
    label_path: &Path,
    options: &ReadOptions,
) -> Result<Rows, DataError> {
    let unusable = |what| DataError::Features { path: path.to_owned(), what };
    let parts = contents.parts().map_err(unusable)?;
    let [Part { features: array, .. }] = &parts[..] else {
        let what = "it has several tables with names of splits, so that --labels cannot tell which it is for";
        return Err(unusable(FeatureError::Header { what: what.to_owned() }));
    };
    let LabelFile { labels, splits, names, groups } = label_file(label_path, options)?;
    let rows = array.rows();
    if labels.len() != rows {
        let what = FeatureError::LabelCount { labels: labels.len(), rows };
        return Err(DataError::Features { path: label_path.to_owned(), what });
    }
    let names = match names.is_empty() {
        false => names,
        // groups are known by the names of their rows
        true if !groups.is_empty() => {
            (0..rows).map(|row| PathBuf::from(format!("{}[{row}]", parts[0].place(path, 1)))).collect()
        }
        true => row_names(contents, array).map_err(unusable)?,
    };
    let features = Features::new((*array).clone(), parts[0].place(path, 1), names).map_err(unusable)?;
    let of_word = |(row, word): (usize, &String)| match crate::read::format::list::columns::split_name(word) {
        Some("train") => Ok(0),
        Some("val") => Ok(1),
        Some(_) => Ok(2),
        None => Err(DataError::Features {
            path: label_path.to_owned(),
            what: FeatureError::Split { row, split: format!("`{word}`") },
        }),
    };
    let splits = match splits.is_empty() || splits.iter().all(String::is_empty) {
        true => match contents.named(&[SPLIT]) {
            Some(array) => array_splits(array, rows).map_err(unusable)?,
            None => Vec::new(),
        },
        false => splits.iter().enumerate().map(of_word).collect::<Result<_, _>>()?,
    };
    Ok(Rows { features, labels, splits, groups })
}

/// The splits in an array: 0, 1 and 2, or their names.
fn array_splits(array: &Array, rows: usize) -> Result<Vec<u8>, FeatureError> {
    let values = Labels::from_array(array)?;
    if values.len() != rows {
        let (array, shape) = (array.header.name.clone(), array.header.shape.clone());
        return Err(FeatureError::Shape { array, shape, want: "a split must have one value per row" });
    }
    let words = ["train", "val", "test"];
    match values {
        Labels::Numbers(numbers) => {
            let split = |(row, number): (usize, &i64)| match number {
                0..=2 => Ok(*number as u8),
                _ => Err(FeatureError::Split { row, split: number.to_string() }),
            };
            numbers.iter().enumerate().map(split).collect()
        }
        Labels::Names(names) => {
            let split = |(row, name): (usize, &String)| {
                let word = crate::read::format::list::columns::split_name(name);
                let number = word.and_then(|word| words.iter().position(|known| *known == word));
                number.map(|number| number as u8).ok_or_else(|| FeatureError::Split { row, split: format!("`{name}`") })
            };
            names.iter().enumerate().map(split).collect()
        }
    }
}

/// Which rows belong together: as the options say, or rows of one name, such as augmented copies of an image.
fn row_groups(features: &Features, groups: &[String], options: &ReadOptions) -> Result<FileGroups, DataError> {
    let names: Vec<PathBuf> = (0..features.len()).filter_map(|row| features.name(row)).map(Path::to_owned).collect();
    if !groups.is_empty() {
        let mut all = FileGroups::by_column(options.group_by.as_ref());
        for (name, group) in names.into_iter().zip(groups) {
            let path = name.to_string_lossy().into_owned();
            all.insert(name, Some(group), &path);
        }
        all.check_column()?;
        return Ok(all);
    }
    if options.group_by.is_some() && !names.is_empty() {
        let files = names.iter().map(|name| (Path::new(""), name));
        return FileGroups::by_path(files, options.group_by.as_ref(), &[]);
    }
    let distinct: HashSet<&PathBuf> = names.iter().collect();
    let mut all = FileGroups::default();
    if distinct.len() < names.len() {
        names.iter().for_each(|name| all.insert(name.clone(), None, &name.to_string_lossy()));
    }
    Ok(all)
}
