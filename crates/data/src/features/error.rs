//! What can be wrong with a file of features.

use thiserror::Error;

/// Why a file of features or labels cannot be used. The path is part of the [`DataError`](crate::DataError) around it.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// The first bytes are not those of the format.
    #[error("it is no {format} file: its first bytes are not those of one")]
    Magic {
        /// The format that its name promises.
        format: &'static str,
    },
    /// A version of the format that is not known.
    #[error("it has version {version} of the .npy format; versions 1 to 3 are read")]
    NpyVersion {
        /// The version.
        version: u8,
    },
    /// The header cannot be read.
    #[error("its header cannot be read: {what}")]
    Header {
        /// What is wrong with it.
        what: String,
    },
    /// The file has fewer bytes than its header announces.
    #[error("it is truncated: {array} needs {need} bytes, and {got} are there")]
    Truncated {
        /// The array.
        array: String,
        /// Bytes that the header announces.
        need: u64,
        /// Bytes that the file has for it.
        got: u64,
    },
    /// An array of Python objects, which only Python can read.
    #[error(
        "{array} holds Python objects, which only Python can read; save numbers instead: numpy.save(path, array.astype('float32'))"
    )]
    Objects {
        /// The array.
        array: String,
    },
    /// An array has values of a type that cannot be used.
    #[error("{array} has values of type {found}, but {want}")]
    Type {
        /// The array.
        array: String,
        /// The type of its values, in the words of the file.
        found: String,
        /// The types that can be used.
        want: &'static str,
    },
    /// An array has the wrong number of dimensions.
    #[error("{array} has shape {shape:?}, but {want}")]
    Shape {
        /// The array.
        array: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The shape that is needed.
        want: &'static str,
    },
    /// A feature is NaN or infinite.
    #[error("row {row} of {array} has {value} in column {column}; features must be finite")]
    NotFinite {
        /// The array.
        array: String,
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The value.
        value: f64,
    },
    /// No array can be the features.
    #[error("none of its arrays ({found}) is a table of features; name it `features`, with a row per example")]
    NoFeatures {
        /// The names of the arrays.
        found: String,
    },
    /// Features without labels.
    #[error("it has no labels: name their file with --labels (a .npy array, or a CSV file with a line per row)")]
    NoLabels,
    /// Labels of another number of rows.
    #[error("{labels} labels for {rows} rows of features; there must be one for each")]
    LabelCount {
        /// Number of labels.
        labels: usize,
        /// Number of rows.
        rows: usize,
    },
    /// A label that names no class.
    #[error("the label of row {row} is {label}, but there are {classes} class names, so labels are 0 to {}", classes.saturating_sub(1))]
    Label {
        /// The row, from 0.
        row: usize,
        /// The label.
        label: i64,
        /// Number of class names.
        classes: usize,
    },
    /// A label that is not a whole number.
    #[error("the label of row {row} is {label}; labels are whole numbers or names")]
    LabelValue {
        /// The row, from 0.
        row: usize,
        /// The label.
        label: f64,
    },
    /// A label that is none of the class names.
    #[error("the label of row {row}, `{label}`, is none of the class names")]
    UnknownLabel {
        /// The row, from 0.
        row: usize,
        /// The label.
        label: String,
    },
    /// A value that names no split.
    #[error("the split of row {row} is {split}; it must be 0 (train), 1 (val) or 2 (test), or one of these words")]
    Split {
        /// The row, from 0.
        row: usize,
        /// The value.
        split: String,
    },
    /// Class names or paths that are not a list of texts.
    #[error("its metadata `{key}` cannot be used: {what}")]
    Metadata {
        /// The entry of the metadata.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A table without rows or columns.
    #[error("{array} is empty: its shape is {shape:?}")]
    Empty {
        /// The array.
        array: String,
        /// Its shape.
        shape: Vec<usize>,
    },
}
