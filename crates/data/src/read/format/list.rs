//! Lists of images: CSV lines `path,label` or JSON lines `{"path": .., "label": ..}`, paths relative to the list's folder.
//!
//! A CSV list may start with a header that names its columns: `path` (or `file`, `filename`, `image`), `label` (or `class`) and
//! `part` (or `split`, `set`, `subset`), in any case; other columns are named as problems. A third column or a part says `train`,
//! `val` or `test` (or `training`, `valid`, `validation`, `testing`). Lines of JSON have fields of the same names. Without parts
//! the list is split within every class. Classes are taken in the order of their names; labels that are all whole numbers in
//! the order of the numbers. Files that are not there are named with their line.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::class_folders::{SplitRule, Tree, divide, gather, twins};
use crate::dataset::{Dataset, Problem};
use crate::error::DataError;
use crate::read::source::{MOST_LINE, Metered, cannot_read, lines, open, unmarked};

/// The largest list accepted.
const MOST: u64 = 1 << 30;

/// One line.
struct Entry {
    path: PathBuf,
    label: String,
    part: Option<String>,
}

/// Reads a list; its name decides the format (`.csv`, or `.jsonl` and `.ndjson`).
///
/// # Errors
/// Names the line that makes no sense.
pub fn list(file: &Path, split: SplitRule) -> Result<Dataset, DataError> {
    parse(file, &mut *open(file)?, split)
}

/// Whether a file is a list by its name.
#[must_use]
pub fn is_list(path: &Path) -> bool {
    path.is_file() && (is_csv(path) || extension(path, &["jsonl", "ndjson"]))
}

fn is_csv(path: &Path) -> bool {
    extension(path, &["csv"])
}

fn extension(path: &Path, known: &[&str]) -> bool {
    path.extension().is_some_and(|e| known.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// Reads a list from its text; `file` says where it lies and which format it has.
///
/// # Errors
/// Names the line that makes no sense.
pub fn parse(file: &Path, text: &mut dyn Read, split: SplitRule) -> Result<Dataset, DataError> {
    let mut problems = Vec::new();
    let entries =
        if is_csv(file) { csv_entries(file, text, &mut problems)? } else { json_entries(file, text, &mut problems)? };
    if entries.is_empty() {
        return Err(DataError::NoImages { path: file.to_owned() });
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut parts: BTreeMap<Option<&'static str>, Tree> = BTreeMap::new();
    for (line, entry) in &entries {
        let wrong = |what: String| DataError::Line { path: file.to_owned(), line: *line, what };
        let part = match entry.part.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("") => None,
            Some("train" | "training") => Some("train"),
            Some("val" | "valid" | "validation") => Some("val"),
            Some("test" | "testing") => Some("test"),
            Some(other) => return Err(wrong(format!("part `{other}`: must be train, val or test"))),
        };
        if entry.label.is_empty() || entry.path.as_os_str().is_empty() {
            return Err(wrong("a path and a label are needed".to_owned()));
        }
        let tree = parts.entry(part).or_default();
        let path = folder.join(&entry.path);
        if let Err(error) = path.metadata() {
            problems.push(Problem { path: path.display().to_string(), what: format!("line {line}: {error}") });
        }
        tree.entry(entry.label.clone()).or_default().push(path);
    }
    if let Some(train) = parts.get(&Some("train")) {
        for part in ["val", "test"] {
            let mut classes = parts.get(&Some(part)).into_iter().flat_map(Tree::keys);
            if let Some(class) = classes.find(|class| !train.contains_key(*class)) {
                return Err(DataError::Untrained { path: file.to_owned(), class: class.clone(), part });
            }
        }
    }
    let mut names: Vec<String> = parts.values().flat_map(Tree::keys).cloned().collect();
    names.sort();
    names.dedup();
    if names.iter().all(|name| name.parse::<u64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<u64>().ok());
    }
    let name = file.file_stem().map_or_else(|| "list".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut take = |part: Option<&'static str>| parts.remove(&part);
    let (train, val, test) = match (take(None), take(Some("train")), take(Some("val")), take(Some("test"))) {
        (Some(all), None, None, None) => {
            let (train, test) = divide(folder, all, split, &names)?;
            (train, None, test)
        }
        (None, Some(train), val, Some(test)) => {
            let val = val.map(|val| gather(&val, &names));
            (gather(&train, &names), val, gather(&test, &names))
        }
        (None, Some(train), Some(val), None) => (gather(&train, &names), None, gather(&val, &names)),
        (None, None, _, _) => {
            return Err(DataError::Missing { folder: file.to_owned(), name: "line of part train".to_owned() });
        }
        (None, Some(_), None, None) => {
            return Err(DataError::Missing { folder: file.to_owned(), name: "line of part test or val".to_owned() });
        }
        (Some(_), ..) => {
            let what = "some lines have a part and some have none".to_owned();
            return Err(DataError::Line { path: file.to_owned(), line: entries[0].0, what });
        }
    };
    problems.extend(twins(&names, file));
    Ok(Dataset { name, classes: names, train, val, test, problems })
}

/// What columns and fields may be called: path, label, part.
const NAMES: [&[&str]; 3] =
    [&["path", "file", "filename", "image"], &["label", "class"], &["part", "split", "set", "subset"]];

/// Says which columns or fields are not read.
fn not_read(file: &Path, what: &str, names: &[String]) -> Option<Problem> {
    let what = format!("{what} that are not read: {}", names.join(", "));
    (!names.is_empty()).then(|| Problem { path: file.display().to_string(), what })
}

fn csv_entries(
    file: &Path,
    text: &mut dyn Read,
    problems: &mut Vec<Problem>,
) -> Result<Vec<(usize, Entry)>, DataError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let text = unmarked(text).map_err(cannot_read(file))?;
    let text = Metered::new(text, 0, "a line is too long, or the file");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text);
    let mut entries = Vec::new();
    let (mut columns, mut width) = ([0, 1, 2], 3);
    let mut record = csv::StringRecord::new();
    for number in 0.. {
        // a quote that is never closed makes one line of all that follow
        reader.get_ref().allow(MOST_LINE, MOST);
        let before = reader.position().line();
        let more = reader.read_record(&mut record).map_err(|error| {
            let line = error.position().map_or(before, csv::Position::line) as usize;
            DataError::Line { path: file.to_owned(), line, what: error.to_string() }
        })?;
        if !more {
            break;
        }
        let line = record.position().map_or(before, csv::Position::line) as usize;
        let wrong = |what: String| DataError::Line { path: file.to_owned(), line, what };
        if number == 0 {
            let is_one_of = |field: &str, names: &[&str]| names.iter().any(|name| field.eq_ignore_ascii_case(name));
            let found = NAMES.map(|names| record.iter().position(|field| is_one_of(field, names)));
            if let [Some(path), Some(label), part] = found {
                (columns, width) = ([path, label, part.unwrap_or(usize::MAX)], record.len());
                let others = record.iter().enumerate().filter(|(at, _)| !columns.contains(at));
                let others: Vec<String> = others.map(|(_, field)| field.to_owned()).collect();
                problems.extend(not_read(file, "columns", &others));
                continue;
            }
            if found.iter().any(Option::is_some) && !record.iter().any(|field| folder.join(field).is_file()) {
                let [paths, labels, _] = NAMES.map(|names| names.join(", "));
                return Err(wrong(format!(
                    "a header needs a column for the path ({paths}) and one for the label ({labels})"
                )));
            }
        }
        if record.iter().all(str::is_empty) {
            continue;
        }
        let [Some(path), Some(label), part] = columns.map(|column| record.get(column)) else {
            return Err(wrong(format!("{} fields: a path and a label are needed", record.len())));
        };
        if record.iter().skip(width).any(|field| !field.is_empty()) {
            return Err(wrong(format!("{} fields: at most {width} are read", record.len())));
        }
        let part = part.map(str::to_owned);
        entries.push((line, Entry { path: PathBuf::from(path), label: label.to_owned(), part }));
    }
    Ok(entries)
}

/// Fields that are not read and named, before the others are passed over.
const MOST_UNREAD: usize = 20;

fn json_entries(
    file: &Path,
    text: &mut dyn Read,
    problems: &mut Vec<Problem>,
) -> Result<Vec<(usize, Entry)>, DataError> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(alias = "file", alias = "filename", alias = "image")]
        path: PathBuf,
        #[serde(alias = "class")]
        label: Value,
        #[serde(alias = "split", alias = "set", alias = "subset")]
        part: Option<String>,
        #[serde(flatten)]
        others: BTreeMap<String, IgnoredAny>,
    }
    let mut unread: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for line in lines(text, file, MOST) {
        let (number, line) = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let wrong = |what: String| DataError::Line { path: file.to_owned(), line: number, what };
        let read: Line = serde_json::from_slice(&line).map_err(|error| wrong(error.to_string()))?;
        let label = match read.label {
            Value::String(text) => text,
            Value::Number(number) if number.is_u64() => number.to_string(),
            _ => return Err(wrong("label: text or a whole number is needed".to_owned())),
        };
        for field in read.others.into_keys() {
            if unread.len() < MOST_UNREAD && !unread.contains(&field) {
                unread.push(field);
            }
        }
        entries.push((number, Entry { path: read.path, label, part: read.part }));
    }
    problems.extend(not_read(file, "fields", &unread));
    Ok(entries)
}
