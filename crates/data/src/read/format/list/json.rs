//! JSON lines: an object per line, with fields of the same names as the columns of a CSV file.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::columns::Columns;
use super::entries::{Entries, Entry, Fields, MAX_BYTES, ignored};
use crate::error::DataError;
use crate::read::options::ReadOptions;
use crate::read::text::lines;

/// Limit on the ignored fields that are named.
const MAX_IGNORED: usize = 20;

/// Reads the lines of a list, an object each.
pub(super) fn entries(
    file: &Path,
    text: &mut dyn Read,
    options: &ReadOptions,
    fields: Fields<'_>,
) -> Result<Entries, DataError> {
    let mut unread: Vec<String> = Vec::new();
    let mut read = Entries::default();
    for line in lines(text, file, MAX_BYTES) {
        let (number, line) = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line: number, what };
        let mut object: Map<String, Value> =
            serde_json::from_slice(&line).map_err(|error| invalid(error.to_string()))?;
        let names: Vec<String> = object.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let columns = Columns::find(&names, options, fields).map_err(|unknown| unknown.error(file, number, &names))?;
        let mut take = |column: usize| object.remove(names[column]).unwrap_or_default();
        let Value::String(path) = take(columns.path) else {
            return Err(invalid(format!("`{}` must be text", names[columns.path])));
        };
        let label = match columns.label.map(&mut take) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) if number.is_u64() => number.to_string(),
            Some(_) if fields != Fields::PathAndLabel => String::new(),
            Some(_) => return Err(invalid("the label must be text or a whole number".to_owned())),
        };
        let split = match columns.split.map(&mut take) {
            Some(Value::String(split)) => Some(split),
            None | Some(Value::Null) => None,
            Some(_) => return Err(invalid("the split must be text".to_owned())),
        };
        let group = match columns.group.map(&mut take) {
            None | Some(Value::Null) => None,
            Some(Value::String(group)) => Some(group),
            Some(group) => Some(group.to_string()),
        };
        for field in object.into_iter().map(|(name, _)| name) {
            if unread.len() < MAX_IGNORED && !unread.contains(&field) {
                unread.push(field);
            }
        }
        if read.columns.is_empty() {
            read.columns = names.iter().map(|name| (*name).to_owned()).collect();
        }
        read.entries.push(Entry { line: number, path: PathBuf::from(path), label, split, group });
    }
    read.problems.extend(ignored(file, "fields", &unread));
    Ok(read)
}
