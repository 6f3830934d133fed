//! Files that users name.

use std::fs;
use std::path::Path;

use equipoise_data::acquire::catalog::KnownDataset;

use crate::error::TrainError;
use crate::settings::{DataSettings, Settings};

/// An error about a file that a user named.
pub(crate) fn input_error(path: &Path, what: impl Into<String>) -> TrainError {
    TrainError::Input { path: path.to_owned(), what: what.into() }
}

/// Reads a text file. Pipes and devices are refused, because they need not end.
///
/// # Errors
/// Returns an error if the path is not a file, or the file cannot be read.
pub fn read_text(path: &Path) -> Result<String, TrainError> {
    require_file(path)?;
    fs::read_to_string(path).map_err(|error| input_error(path, error.to_string()))
}

/// Reads a file of bytes, with the restrictions of [`read_text`].
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, TrainError> {
    require_file(path)?;
    fs::read(path).map_err(|error| input_error(path, error.to_string()))
}

fn require_file(path: &Path) -> Result<(), TrainError> {
    match fs::metadata(path) {
        Err(error) => Err(input_error(path, error.to_string())),
        Ok(file) if !file.is_file() => Err(input_error(path, "not a file")),
        Ok(_) => Ok(()),
    }
}

/// Makes the paths in settings absolute, so that the run can be resumed from any folder.
pub fn make_paths_absolute(settings: &mut Settings) {
    let absolute = |path: &mut String| {
        let found = fs::canonicalize(&*path).ok().and_then(|found| found.into_os_string().into_string().ok());
        if let Some(found) = found {
            *path = found;
        }
    };
    let DataSettings { dataset, test_data, val_data, .. } = &mut settings.data;
    let datasets = [dataset].into_iter().chain(test_data).chain(val_data);
    datasets.filter(|name| KnownDataset::by_name(name).is_none()).for_each(absolute);
    let files =
        settings.data.subset_file.iter_mut().chain(&mut settings.data.labels).chain(&mut settings.model.weights);
    files.for_each(absolute);
}
