//! Lists of images: CSV lines `path,label,split` or JSON lines `{"path": .., "label": .., "split": ..}`, with paths relative
//! to the list's folder.
//!
//! A CSV list may start with a header that names its columns: `path` (or `file`, `filename`, `image`), `label` (or `class`)
//! and `split` (or `part`, `set`, `subset`), in upper or lower case; other columns are reported as problems. JSON lines have
//! fields of the same names. The split is `train`, `val` or `test` (or `training`, `valid`, `validation`, `testing`). A list
//! without splits is split within every class. Classes are sorted by name; labels that are all whole numbers are sorted as
//! numbers. Missing files are reported with their line.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::class_folders::similar_names;
use crate::dataset::{Dataset, Problem, Split};
use crate::error::DataError;
use crate::read::source::{LimitedReader, cannot_read, open};
use crate::read::text::{MAX_LINE, lines, without_byte_order_mark};
use crate::subset::split::{ClassFiles, SplitRule, labeled, split_files};

/// Size limit of a list.
const MAX_BYTES: u64 = 1 << 30;

/// One line of a list.
struct Entry {
    /// Line number, from 1.
    line: usize,
    path: PathBuf,
    label: String,
    split: Option<String>,
}

/// Reads a list; its extension decides the format (`.csv`, or `.jsonl` and `.ndjson`).
///
/// # Errors
/// Names the line that is invalid.
pub fn list(file: &Path, rule: SplitRule) -> Result<Dataset, DataError> {
    parse(file, &mut *open(file)?, rule)
}

/// Whether a file is a list by its extension.
pub(crate) fn is_list(path: &Path) -> bool {
    path.is_file() && (is_csv(path) || has_extension(path, &["jsonl", "ndjson"]))
}

fn is_csv(path: &Path) -> bool {
    has_extension(path, &["csv"])
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension().is_some_and(|e| known.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// Reads a list from its text; `file` decides the format and the folder of the images.
///
/// # Errors
/// Names the line that is invalid.
pub fn parse(file: &Path, text: &mut dyn Read, rule: SplitRule) -> Result<Dataset, DataError> {
    let mut problems = Vec::new();
    let entries =
        if is_csv(file) { csv_entries(file, text, &mut problems)? } else { json_entries(file, text, &mut problems)? };
    let Some(first) = entries.first() else {
        return Err(DataError::NoImages { path: file.to_owned() });
    };
    let mut splits = files_by_split(file, &entries, &mut problems)?;
    check_classes(file, &splits)?;
    let classes = class_names(&splits);
    let mut take = |split: Option<&'static str>| splits.remove(&split);
    let missing = |name: &str| DataError::Missing { folder: file.to_owned(), name: name.to_owned() };
    let label = |files: &ClassFiles| labeled(files, &classes);
    let (train, val, test): (Split, Option<Split>, Split) =
        match (take(None), take(Some("train")), take(Some("val")), take(Some("test"))) {
            (Some(all), None, None, None) => {
                let (train, test) = split_files(folder_of(file), all, rule, &classes)?;
                (train, None, test)
            }
            (None, Some(train), val, Some(test)) => (label(&train), val.as_ref().map(label), label(&test)),
            (None, Some(train), Some(val), None) => (label(&train), None, label(&val)),
            (None, None, _, _) => return Err(missing("line with split train")),
            (None, Some(_), None, None) => return Err(missing("line with split test or val")),
            (Some(_), ..) => {
                let what = "some lines have a split and some have none".to_owned();
                return Err(DataError::Line { path: file.to_owned(), line: first.line, what });
            }
        };
    problems.extend(similar_names(&classes, file));
    let name = file.file_stem().map_or_else(|| "list".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Dataset { name, classes, train, val, test, problems })
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The files of every class, by split.
type FilesBySplit = BTreeMap<Option<&'static str>, ClassFiles>;

/// Sorts entries by split and class; missing files go to `problems`.
fn files_by_split(file: &Path, entries: &[Entry], problems: &mut Vec<Problem>) -> Result<FilesBySplit, DataError> {
    let mut splits = FilesBySplit::new();
    for Entry { line, path, label, split } in entries {
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line: *line, what };
        let split = match split.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("") => None,
            Some("train" | "training") => Some("train"),
            Some("val" | "valid" | "validation") => Some("val"),
            Some("test" | "testing") => Some("test"),
            Some(other) => return Err(invalid(format!("split `{other}`: must be train, val or test"))),
        };
        if label.is_empty() || path.as_os_str().is_empty() {
            return Err(invalid("a path and a label are needed".to_owned()));
        }
        let path = folder_of(file).join(path);
        if let Err(error) = path.metadata() {
            problems.push(Problem { path: path.display().to_string(), what: format!("line {line}: {error}") });
        }
        splits.entry(split).or_default().entry(label.clone()).or_default().push(path);
    }
    Ok(splits)
}

/// Checks that every class of the validation and test splits is trained on.
fn check_classes(file: &Path, splits: &FilesBySplit) -> Result<(), DataError> {
    let Some(train) = splits.get(&Some("train")) else { return Ok(()) };
    for split in ["val", "test"] {
        let mut classes = splits.get(&Some(split)).into_iter().flat_map(ClassFiles::keys);
        if let Some(class) = classes.find(|class| !train.contains_key(*class)) {
            return Err(DataError::ClassNotTrained { path: file.to_owned(), class: class.clone(), split });
        }
    }
    Ok(())
}

/// The class names in the order of their labels.
fn class_names(splits: &FilesBySplit) -> Vec<String> {
    let mut names: Vec<String> = splits.values().flat_map(ClassFiles::keys).cloned().collect();
    names.sort();
    names.dedup();
    if names.iter().all(|name| name.parse::<u64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<u64>().ok());
    }
    names
}

/// Accepted names of columns and fields: path, label, split.
const COLUMNS: [&[&str]; 3] =
    [&["path", "file", "filename", "image"], &["label", "class"], &["split", "part", "set", "subset"]];

/// The problem that these columns or fields are ignored.
fn ignored(file: &Path, what: &str, names: &[String]) -> Option<Problem> {
    let what = format!("ignored {what}: {}", names.join(", "));
    (!names.is_empty()).then(|| Problem { path: file.display().to_string(), what })
}

/// Where the fields of a CSV line are.
struct CsvColumns {
    path: usize,
    label: usize,
    split: Option<usize>,
    /// Number of columns.
    width: usize,
}

impl CsvColumns {
    /// Without a header.
    const DEFAULT: Self = Self { path: 0, label: 1, split: Some(2), width: 3 };

    /// Reads a header; `None` if the first line is not one.
    fn from_header(file: &Path, record: &csv::StringRecord) -> Result<Option<Self>, String> {
        let is_one_of = |field: &str, names: &[&str]| names.iter().any(|name| field.eq_ignore_ascii_case(name));
        let found = COLUMNS.map(|names| record.iter().position(|field| is_one_of(field, names)));
        if let [Some(path), Some(label), split] = found {
            return Ok(Some(Self { path, label, split, width: record.len() }));
        }
        let names_a_file = record.iter().any(|field| folder_of(file).join(field).is_file());
        if found.iter().any(Option::is_some) && !names_a_file {
            let [paths, labels, _] = COLUMNS.map(|names| names.join(", "));
            return Err(format!("a header needs a column for the path ({paths}) and one for the label ({labels})"));
        }
        Ok(None)
    }

    fn contain(&self, column: usize) -> bool {
        [Some(self.path), Some(self.label), self.split].contains(&Some(column))
    }

    /// The fields of a line; `None` if it is empty.
    fn entry(&self, line: usize, record: &csv::StringRecord) -> Result<Option<Entry>, String> {
        if record.iter().all(str::is_empty) {
            return Ok(None);
        }
        let (Some(path), Some(label)) = (record.get(self.path), record.get(self.label)) else {
            return Err(format!("{} fields: a path and a label are needed", record.len()));
        };
        if record.iter().skip(self.width).any(|field| !field.is_empty()) {
            return Err(format!("{} fields: at most {} are expected", record.len(), self.width));
        }
        let split = self.split.and_then(|column| record.get(column)).map(str::to_owned);
        Ok(Some(Entry { line, path: PathBuf::from(path), label: label.to_owned(), split }))
    }
}

fn csv_entries(file: &Path, text: &mut dyn Read, problems: &mut Vec<Problem>) -> Result<Vec<Entry>, DataError> {
    let text = without_byte_order_mark(text).map_err(cannot_read(file))?;
    let text = LimitedReader::new(text, 0, "a line is too long, or the file");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text);
    let mut entries = Vec::new();
    let mut columns = CsvColumns::DEFAULT;
    let mut record = csv::StringRecord::new();
    for number in 0.. {
        // a quote that is never closed makes one line of all that follow
        reader.get_ref().allow(MAX_LINE, MAX_BYTES);
        let before = reader.position().line();
        let more = reader.read_record(&mut record).map_err(|error| {
            let line = error.position().map_or(before, csv::Position::line) as usize;
            DataError::Line { path: file.to_owned(), line, what: error.to_string() }
        })?;
        if !more {
            break;
        }
        let line = record.position().map_or(before, csv::Position::line) as usize;
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line, what };
        if number == 0
            && let Some(header) = CsvColumns::from_header(file, &record).map_err(invalid)?
        {
            columns = header;
            let others = record.iter().enumerate().filter(|(column, _)| !columns.contain(*column));
            let others: Vec<String> = others.map(|(_, field)| field.to_owned()).collect();
            problems.extend(ignored(file, "columns", &others));
            continue;
        }
        entries.extend(columns.entry(line, &record).map_err(invalid)?);
    }
    Ok(entries)
}

/// Limit on the ignored fields that are named.
const MAX_IGNORED: usize = 20;

#[derive(Deserialize)]
struct JsonLine {
    #[serde(alias = "file", alias = "filename", alias = "image")]
    path: PathBuf,
    #[serde(alias = "class")]
    label: Value,
    #[serde(alias = "part", alias = "set", alias = "subset")]
    split: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

fn json_entries(file: &Path, text: &mut dyn Read, problems: &mut Vec<Problem>) -> Result<Vec<Entry>, DataError> {
    let mut unread: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for line in lines(text, file, MAX_BYTES) {
        let (number, line) = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line: number, what };
        let read: JsonLine = serde_json::from_slice(&line).map_err(|error| invalid(error.to_string()))?;
        let label = match read.label {
            Value::String(text) => text,
            Value::Number(number) if number.is_u64() => number.to_string(),
            _ => return Err(invalid("the label must be text or a whole number".to_owned())),
        };
        for field in read.others.into_keys() {
            if unread.len() < MAX_IGNORED && !unread.contains(&field) {
                unread.push(field);
            }
        }
        entries.push(Entry { line: number, path: read.path, label, split: read.split });
    }
    problems.extend(ignored(file, "fields", &unread));
    Ok(entries)
}
