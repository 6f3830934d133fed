//! Reading the files of a run folder. A missing file is no error; a malformed one is.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use equipoise_support::without_position;
use serde::de::DeserializeOwned;

use super::ReportError;

/// Size limit of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Reads a text file; `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        // checked before opening, because opening a pipe blocks until somebody writes to it
        Ok(file) if !file.is_file() => return Err(failed(io::Error::other("not a regular file"))),
        Ok(file) if file.len() > MAX_FILE_BYTES => return Err(failed(io::Error::other("larger than 1 GiB"))),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)).map_err(failed)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(ReportError::Format { path: path.to_owned(), what: "not UTF-8 text".to_owned() }),
    }
}

/// Reads a JSON Lines file in order of epochs. If an epoch occurs more than once, its last line counts.
///
/// A last line without a newline is ignored: a killed process did not finish it.
pub(super) fn read_epochs<T: DeserializeOwned>(path: &Path, epoch: impl Fn(&T) -> u64) -> Result<Vec<T>, ReportError> {
    let text = read_text(path)?.unwrap_or_default();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| ReportError::Format {
            path: path.to_owned(),
            what: format!("line {} is damaged: {}", number + 1, without_position(&error.to_string())),
        })
    };
    let lines = complete.lines().enumerate().filter(|(_, line)| !line.is_empty());
    let mut values: Vec<T> = lines.map(parse).collect::<Result<_, _>>()?;
    values.reverse();
    values.sort_by_key(&epoch);
    values.dedup_by_key(|value| epoch(value));
    Ok(values)
}

/// Reads a JSON file; `None` if it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReportError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| ReportError::Format { path: path.to_owned(), what: error.to_string() })
}
