//! Lists of images: CSV lines `path,label` or JSON lines `{"path": .., "label": ..}`, paths relative to the list's folder.
//!
//! A CSV list may start with a header that names its columns (`path`, `label`, and `part`); a third column or a `part` says
//! `train`, `val` or `test`. Without parts the list is split within every class. Classes are taken in the order of their names;
//! labels that are all whole numbers in the order of the numbers.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::folder::{Split, Tree, case_twins, divide, gather};
use crate::error::DataError;
use crate::set::DataSet;
use crate::source::{MOST_LINE, Metered, lines, open};

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
pub fn list(file: &Path, split: Split) -> Result<DataSet, DataError> {
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
pub fn parse(file: &Path, text: &mut dyn Read, split: Split) -> Result<DataSet, DataError> {
    let entries = if is_csv(file) { csv_entries(file, text)? } else { json_entries(file, text)? };
    if entries.is_empty() {
        return Err(DataError::NoImages { path: file.to_owned() });
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut parts: BTreeMap<Option<&str>, Tree> = BTreeMap::new();
    for (line, entry) in &entries {
        let wrong = |what: String| DataError::Line { path: file.to_owned(), line: *line, what };
        let part = match entry.part.as_deref() {
            None | Some("") => None,
            Some(part @ ("train" | "val" | "test")) => Some(part),
            Some(other) => return Err(wrong(format!("part `{other}`: must be train, val or test"))),
        };
        if entry.label.is_empty() || entry.path.as_os_str().is_empty() {
            return Err(wrong("a path and a label are needed".to_owned()));
        }
        let tree = parts.entry(part).or_default();
        tree.entry(entry.label.clone()).or_default().push(folder.join(&entry.path));
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
    let problems = case_twins(&names, file);
    Ok(DataSet { name, classes: names, train, val, test, problems })
}

fn csv_entries(file: &Path, text: &mut dyn Read) -> Result<Vec<(usize, Entry)>, DataError> {
    let text = Metered::new(text, 0, "a line is too long, or the file");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text);
    let mut entries = Vec::new();
    let mut columns = [0, 1, 2];
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
        let named = |name: &str| record.iter().position(|field| field.eq_ignore_ascii_case(name));
        if number == 0
            && let (Some(path), Some(label)) = (named("path"), named("label"))
        {
            columns = [path, label, named("part").unwrap_or(usize::MAX)];
            continue;
        }
        if record.iter().all(str::is_empty) {
            continue;
        }
        let [Some(path), Some(label), part] = columns.map(|column| record.get(column)) else {
            let what = format!("{} fields: a path and a label are needed", record.len());
            return Err(DataError::Line { path: file.to_owned(), line, what });
        };
        let part = part.map(str::to_owned);
        entries.push((line, Entry { path: PathBuf::from(path), label: label.to_owned(), part }));
    }
    Ok(entries)
}

fn json_entries(file: &Path, text: &mut dyn Read) -> Result<Vec<(usize, Entry)>, DataError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label {
        Number(u64),
        Text(String),
    }
    #[derive(Deserialize)]
    struct Line {
        path: PathBuf,
        label: Label,
        part: Option<String>,
    }
    let mut entries = Vec::new();
    for line in lines(text, file, MOST) {
        let (number, line) = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let read: Line = serde_json::from_slice(&line).map_err(|error| DataError::Line {
            path: file.to_owned(),
            line: number,
            what: error.to_string(),
        })?;
        let label = match read.label {
            Label::Number(number) => number.to_string(),
            Label::Text(text) => text,
        };
        entries.push((number, Entry { path: read.path, label, part: read.part }));
    }
    Ok(entries)
}
