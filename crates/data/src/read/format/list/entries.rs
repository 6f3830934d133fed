//! The lines of a list, whatever its format.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{delimited, is_csv, json};
use crate::dataset::Problem;
use crate::error::DataError;
use crate::read::options::ReadOptions;

/// Size limit of a list.
pub(super) const MAX_BYTES: u64 = 1 << 30;

/// What a list must have in every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) enum Fields<'a> {
    /// A path and a label: the list is a dataset.
    PathAndLabel,
    /// A path: the list names files to look at. The column `usual` holds them if there is such a column.
    Path { usual: Option<&'a str> },
}

/// One line of a list.
pub(super) struct Entry {
    /// Line number, from 1.
    pub(super) line: usize,
    pub(super) path: PathBuf,
    /// The class; empty if the list need not have labels.
    pub(super) label: String,
    pub(super) split: Option<String>,
    /// Images of the same group belong together.
    pub(super) group: Option<String>,
}

/// The lines of a list.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) entries: Vec<Entry>,
    /// Names of the columns, if the list has names for them.
    pub(super) columns: Vec<String>,
    pub(super) problems: Vec<Problem>,
}

impl Entries {
    /// Reads a list from its text; the extension of `file` decides the format.
    pub(super) fn read(
        file: &Path,
        text: &mut dyn Read,
        options: &ReadOptions,
        fields: Fields<'_>,
    ) -> Result<Self, DataError> {
        match is_csv(file) {
            true => delimited::entries(file, text, options, fields),
            false => json::entries(file, text, options, fields),
        }
    }
}

/// The problem that these columns or fields are ignored.
pub(super) fn ignored(file: &Path, what: &str, names: &[String]) -> Option<Problem> {
    let what = format!("ignored {what}: {}", names.join(", "));
    (!names.is_empty()).then(|| Problem { path: file.display().to_string(), what })
}
