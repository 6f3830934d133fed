//! Errors of the crates as Python exceptions: `TypeError` for wrong types and unknown arguments, `ValueError` for values
//! that cannot be used, `OSError` and its kinds for files, `RuntimeError` for what is wrong with the machine.

use std::error::Error;
use std::io;
use std::path::Path;

use equipoise_criterion::{BatchError, ConfigError, Id, State, StateError};
use equipoise_data::DataError;
use equipoise_record::FolderError;
use equipoise_report::run::ReportError;
use equipoise_support::with_causes;
use equipoise_train::TrainError;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyBlockingIOError, PyFileExistsError, PyFileNotFoundError, PyOSError, PyPermissionError, PyRuntimeError,
    PyTypeError, PyValueError,
};

/// A parameter, the class counts or the name of a criterion cannot be used.
pub(crate) fn config(error: &ConfigError) -> PyErr {
    match error {
        ConfigError::Params { path, what } => {
            let name = path.trim_start_matches('.');
            let message = if name.is_empty() { what.clone() } else { format!("{name}: {what}") };
            let wrong_type = what.starts_with("unknown parameter") || what.starts_with("invalid type");
            if wrong_type { PyTypeError::new_err(message) } else { PyValueError::new_err(message) }
        }
        ConfigError::UnknownMethod(_) => {
            let text = error.to_string().replace("`equipoise criteria` lists", "`equipoise.criteria()` lists");
            PyValueError::new_err(format!("method: {text}"))
        }
        other => PyValueError::new_err(other.to_string()),
    }
}

/// The words that a caller uses for the parts of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) labels: &'static str,
    pub(crate) second: &'static str,
    pub(crate) share: &'static str,
}

/// The arguments of the NumPy form.
pub(crate) const ARRAYS: Names = Names { labels: "labels", second: "mixed[0]", share: "mixed[1]" };
/// The arguments of the modules for PyTorch.
pub(crate) const TENSORS: Names = Names { labels: "target", second: "target[1]", share: "target[2]" };

impl Names {
    fn of(self, field: &str) -> &str {
        match field {
            "labels" => self.labels,
            "mixed.labels" => self.second,
            "mixed.share" => self.share,
            other => other,
        }
    }
}

/// A batch cannot be used.
pub(crate) fn batch(error: &BatchError, names: Names) -> PyErr {
    let message = match error {
        BatchError::Empty => format!("{}: the batch is empty", names.labels),
        BatchError::Length { field, got, want } => {
            format!("{}: the length is {got}; it must be {want}", names.of(field))
        }
        BatchError::Label { field, row, label, classes } => {
            label_range(names.of(field), *row, (*label).into(), *classes)
        }
        BatchError::Share { row, share } => format!("{}[{row}] is {share}; it must be from 0 to 1", names.share),
        BatchError::Overflow { row, weight } => format!(
            "{}[{row}]: the weight {weight} or the loss overflows float32; choose less extreme parameters of the criterion",
            names.labels
        ),
        BatchError::NotEvaluated => {
            return PyRuntimeError::new_err("there is no batch to count: evaluate it first, and count it once");
        }
        BatchError::Logits { .. } | BatchError::NotFinite { .. } => error.to_string(),
    };
    PyValueError::new_err(message)
}

/// The message for a label that is not the index of a class.
pub(crate) fn label_range(name: &str, row: usize, label: i64, classes: usize) -> String {
    format!("{name}[{row}] is {label}; there are {classes} classes, numbered from 0")
}

/// A state does not fit.
pub(crate) fn state(error: &StateError, own: Id) -> PyErr {
    let message = match error {
        StateError::Method { got, .. } if *got == State::Stateless.name() => {
            format!(
                "state: it belongs to a criterion that counts nothing, such as 'softmax', but the criterion is '{own}'"
            )
        }
        StateError::Method { got, .. } => format!("state: it belongs to '{got}', but the criterion is '{own}'"),
        other => other.to_string(),
    };
    PyValueError::new_err(message)
}

/// A file cannot be read or written: the kind of `OSError` that the system's error stands for.
fn os(error: &dyn Error, source: &io::Error) -> PyErr {
    let message = with_causes(error);
    match source.kind() {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        _ => PyOSError::new_err(message),
    }
}

/// A folder does not hold what it should: it may not be there at all.
fn folder(error: &dyn Error, path: &Path) -> PyErr {
    match path.exists() {
        true => PyValueError::new_err(error.to_string()),
        false => PyFileNotFoundError::new_err(error.to_string()),
    }
}

/// A dataset, or an option of how to use it, cannot be used.
pub(crate) fn data(error: &DataError) -> PyErr {
    match error {
        DataError::Read { source, .. } | DataError::Write { source, .. } => os(error, source),
        DataError::NotInstalled { .. } | DataError::Unknown { .. } | DataError::NoSource { .. } => {
            PyFileNotFoundError::new_err(with_causes(error))
        }
        // a list may lack a line, a folder a file
        DataError::Missing { folder, .. } if folder.is_dir() => PyFileNotFoundError::new_err(error.to_string()),
        DataError::Unreadable { .. } => PyOSError::new_err(with_causes(error)),
        other => PyValueError::new_err(with_causes(other)),
    }
}

/// Settings or a dataset cannot be used.
pub(crate) fn train(error: &TrainError) -> PyErr {
    match error {
        TrainError::Data(error) => data(error),
        TrainError::Folder(error) => run_folder(error),
        TrainError::Config(error) => config(error),
        TrainError::Broken { .. } => {
            PyOSError::new_err(format!("{error}. In Python: settings={{\"data\": {{\"max_broken\": FRACTION}}}}"))
        }
        TrainError::Input { path, .. } => folder(error, path),
        other => PyValueError::new_err(with_causes(other)),
    }
}

/// A run folder cannot be used.
pub(crate) fn run_folder(error: &FolderError) -> PyErr {
    match error {
        FolderError::Read { source, .. } | FolderError::Write { source, .. } => os(error, source),
        FolderError::Locked { .. } => PyBlockingIOError::new_err(error.to_string()),
        FolderError::NotEmpty { .. } => PyFileExistsError::new_err(error.to_string()),
        FolderError::NotARun { path } | FolderError::NotAComparison { path } => folder(error, path),
        FolderError::Line { .. } | FolderError::IsComparison { .. } | FolderError::Name { .. } => {
            PyValueError::new_err(error.to_string())
        }
    }
}

/// A run cannot be reported.
pub(crate) fn report(error: &ReportError) -> PyErr {
    match error {
        ReportError::Read { source, .. } => os(error, source),
        ReportError::NoFolder { path } | ReportError::NotARun { path } => folder(error, path),
        ReportError::Format { .. }
        | ReportError::Empty { .. }
        | ReportError::Duplicate { .. }
        | ReportError::UnfinishedFolds { .. } => PyValueError::new_err(with_causes(error)),
    }
}
