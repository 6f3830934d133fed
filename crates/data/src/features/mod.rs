//! Rows of numbers in place of images: the features of a backbone, or embeddings of text or sound.
//!
//! - [`read`] makes a dataset of a safetensors, `.npy` or `.npz` file; `labels` finds the labels of its rows.
//! - `safetensors`, `npy` and `npz` find the arrays of a file, `array` reads their values, and `bytes` maps the file.
//! - [`scaling`]: what becomes of features before a head sees them.
//!
//! Files are mapped into memory and never copied as a whole, so that they may be larger than memory.

mod array;
mod bytes;
pub mod error;
mod labels;
mod npy;
mod npz;
pub mod read;
mod safetensors;
pub mod scaling;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::array::Array;
use self::error::FeatureError;

/// A table of features in a file: a row for every example.
struct FeatureTable {
    array: Array,
    /// The file, and the array if there are several with rows.
    place: String,
    /// Where each row comes from, such as the path of an image; empty if nothing is known.
    names: Vec<PathBuf>,
}

/// Where a row of features is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPlace {
    table: u32,
    row: u32,
}

/// Rows of features, all of one width. A selection of rows costs no memory for their values.
#[derive(Clone)]
pub struct Features {
    tables: Vec<Arc<FeatureTable>>,
    rows: Vec<RowPlace>,
}

impl Features {
    /// All rows of an array, which are checked: two dimensions, finite numbers.
    fn new(array: Array, place: String, names: Vec<PathBuf>) -> Result<Self, FeatureError> {
        let (name, shape) = (array.header.name.clone(), array.header.shape.clone());
        if !array.header.value_type.is_float() {
            let want =
                "features are numbers of 16, 32 or 64 bits with a fraction (float16, bfloat16, float32, float64)";
            return Err(FeatureError::Type { array: name, found: array.header.type_name, want });
        }
        if shape.len() != 2 {
            let want = "features are a table with a row per example and a column per feature";
            return Err(FeatureError::Shape { array: name, shape, want });
        }
        if shape.contains(&0) {
            return Err(FeatureError::Empty { array: name, shape });
        }
        check_finite(&array)?;
        let rows = (0..array.rows() as u32).map(|row| RowPlace { table: 0, row }).collect();
        Ok(Self { tables: vec![Arc::new(FeatureTable { array, place, names })], rows })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of features in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.tables.first().map_or(0, |table| table.array.columns())
    }

    /// Copies a row.
    ///
    /// # Panics
    /// If the index is out of range, or `to` has another length than a row.
    pub fn copy_row(&self, index: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.width(), "the output must hold a row");
        let RowPlace { table, row } = self.rows[index];
        self.tables[table as usize].array.copy_row(row as usize, to);
    }

    /// Copies a row as [`copy_row`](Self::copy_row) does, and requests another one from memory, which will be copied soon.
    ///
    /// # Panics
    /// If an index is out of range, or `to` has another length than a row.
    pub(crate) fn copy_row_and_prefetch(&self, index: usize, to: &mut [f32], soon: Option<usize>) {
        assert_eq!(to.len(), self.width(), "the output must hold a row");
        let place = |index: usize| (&self.tables[self.rows[index].table as usize].array, self.rows[index].row as usize);
        let next = soon.map(place).map_or(&[][..], |(array, row)| array.row_bytes(row));
        let (array, row) = place(index);
        array.copy_row_and_prefetch(row, to, next);
    }

    /// Where a row comes from, if the file says so.
    #[must_use]
    pub fn name(&self, index: usize) -> Option<&Path> {
        let RowPlace { table, row } = *self.rows.get(index)?;
        self.tables[table as usize].names.get(row as usize).map(PathBuf::as_path)
    }

    /// What a row is of, if the file says so, or else its file and its number there: `features.npy[3]`.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn row_name(&self, index: usize) -> String {
        let RowPlace { table, row } = self.rows[index];
        match self.name(index) {
            Some(name) => name.display().to_string(),
            None => format!("{}[{row}]", self.tables[table as usize].place),
        }
    }

    /// The rows at these indices, in this order.
    pub(crate) fn subset(&self, indices: &[u32]) -> Self {
        let rows = indices.iter().map(|index| self.rows[*index as usize]).collect();
        Self { tables: self.tables.clone(), rows }
    }

    /// Adds rows of the same width; false if they have another one.
    pub(crate) fn append(&mut self, more: &Self) -> bool {
        if self.width() != more.width() {
            return false;
        }
        let first = self.tables.len() as u32;
        self.tables.extend(more.tables.iter().cloned());
        self.rows.extend(more.rows.iter().map(|place| RowPlace { table: first + place.table, ..*place }));
        true
    }
}

impl PartialEq for Features {
    /// Whether these are the same rows of the same tables.
    fn eq(&self, other: &Self) -> bool {
        let tables = self.tables.iter().zip(&other.tables);
        self.rows == other.rows
            && self.tables.len() == other.tables.len()
            && tables.into_iter().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Eq for Features {}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {} features", self.len(), self.width())
    }
}

/// Checks that all values are finite.
fn check_finite(array: &Array) -> Result<(), FeatureError> {
    let mut values = vec![0.0; array.columns()];
    for row in 0..array.rows() {
        array.copy_row(row, &mut values);
        // a sum of products with 0 is finite only if all values are, and the compiler makes vectors of it
        if values.iter().fold(0.0, |sum: f32, x| sum + x * 0.0) == 0.0 {
            continue;
        }
        if let Some(column) = values.iter().position(|x| !x.is_finite()) {
            let value = f64::from(values[column]);
            return Err(FeatureError::NotFinite { array: array.header.name.clone(), row, column, value });
        }
    }
    Ok(())
}
