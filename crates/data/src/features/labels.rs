//! Labels of rows: from an array, or from a text file with a line per row.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::array::Array;
use super::bytes::FileBytes;
use super::error::FeatureError;
use super::npy;
use crate::error::DataError;
use crate::read::format::list::columns::RowColumns;
use crate::read::format::list::delimited::row_records;
use crate::read::options::ReadOptions;
use crate::read::source::{cannot_read, open};

/// Labels as they are written, before they are classes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Labels {
    /// Whole numbers.
    Numbers(Vec<i64>),
    /// Names.
    Names(Vec<String>),
}

/// What a file of labels says about every row.
pub(super) struct LabelFile {
    pub(super) labels: Labels,
    /// Words for the splits; empty if there are none.
    pub(super) splits: Vec<String>,
    /// Where rows come from; empty if nothing is said.
    pub(super) names: Vec<PathBuf>,
    /// Groups of rows that belong together; empty if there are none.
    pub(super) groups: Vec<String>,
}

impl Labels {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Numbers(labels) => labels.len(),
            Self::Names(labels) => labels.len(),
        }
    }

    /// The labels in an array with one value per row.
    pub(super) fn from_array(array: &Array) -> Result<Self, FeatureError> {
        let header = &array.header;
        if !matches!(header.shape[..], [_] | [_, 1]) {
            let want = "labels are a list with one value per row";
            return Err(FeatureError::Shape { array: header.name.clone(), shape: header.shape.clone(), want });
        }
        if header.value_type.is_text() {
            return Ok(Self::Names((0..array.rows()).map(|row| array.text_at(row)).collect()));
        }
        let whole = |row: usize| {
            let label = array.number_at(row);
            // larger numbers are not exact
            let is_whole = label.fract() == 0.0 && label.abs() < 9e15;
            if is_whole { Ok(label as i64) } else { Err(FeatureError::LabelValue { row, label }) }
        };
        (0..array.rows()).map(whole).collect::<Result<_, _>>().map(Self::Numbers)
    }

    /// Class names, sorted, and the class of every row. With given names, numbers are positions in them.
    pub(super) fn classes(self, given: Option<Vec<String>>) -> Result<(Vec<String>, Vec<u32>), FeatureError> {
        let names = match (self, given) {
            (Self::Numbers(labels), Some(classes)) => {
                let known = |(row, label): (usize, &i64)| match usize::try_from(*label) {
                    Ok(class) if class < classes.len() => Ok(class as u32),
                    _ => Err(FeatureError::Label { row, label: *label, classes: classes.len() }),
                };
                let labels = labels.iter().enumerate().map(known).collect::<Result<_, _>>()?;
                return Ok((classes, labels));
            }
            (Self::Numbers(labels), None) => {
                let values: Vec<i64> = labels.iter().copied().collect::<BTreeSet<i64>>().into_iter().collect();
                let class = |label: &i64| values.binary_search(label).unwrap_or(0) as u32;
                let classes = values.iter().map(i64::to_string).collect();
                return Ok((classes, labels.iter().map(class).collect()));
            }
            (Self::Names(names), Some(classes)) => {
                let class = |(row, name): (usize, &String)| match classes.iter().position(|class| class == name) {
                    Some(class) => Ok(class as u32),
                    None => Err(FeatureError::UnknownLabel { row, label: name.clone() }),
                };
                let labels = names.iter().enumerate().map(class).collect::<Result<_, _>>()?;
                return Ok((classes, labels));
            }
            (Self::Names(names), None) => names,
        };
        let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
        if let Some(numbers) = numbers {
            return Self::Numbers(numbers).classes(None);
        }
        let classes: Vec<String> = names.iter().cloned().collect::<BTreeSet<String>>().into_iter().collect();
        let labels = names.iter().map(|name| classes.binary_search(name).unwrap_or(0) as u32).collect();
        Ok((classes, labels))
    }
}

/// Reads a file of labels: a `.npy` array, or text with a line per row.
pub(super) fn label_file(path: &Path, options: &ReadOptions) -> Result<LabelFile, DataError> {
    let unusable = |what| DataError::Features { path: path.to_owned(), what };
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy")) {
        let bytes = std::sync::Arc::new(FileBytes::open(path).map_err(cannot_read(path))?);
        let end = bytes.len();
        let array = npy::array("its array", &bytes, 0..end).map_err(unusable)?;
        let labels = Labels::from_array(&array).map_err(unusable)?;
        return Ok(LabelFile { labels, splits: Vec::new(), names: Vec::new(), groups: Vec::new() });
    }
    let (columns, records) = row_records(path, &mut *open(path)?, options)?;
    let RowColumns { path: name, label, split, group } = columns;
    let column = |column: Option<usize>| -> Vec<String> {
        let Some(column) = column else { return Vec::new() };
        records.iter().map(|record| record.get(column).unwrap_or_default().to_owned()).collect()
    };
    let labels = column(Some(label));
    if let Some(row) = labels.iter().position(String::is_empty) {
        return Err(unusable(FeatureError::UnknownLabel { row, label: String::new() }));
    }
    Ok(LabelFile {
        labels: Labels::Names(labels),
        splits: column(split),
        names: column(name).into_iter().map(PathBuf::from).collect(),
        groups: column(group),
    })
}
