//! CSV lines, with a comma, a semicolon, a tab or a bar between the fields.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::columns::{Columns, RowColumns, UnknownColumn, split_name};
use super::entries::{Entries, Entry, Fields, MAX_BYTES, ignored};
use crate::error::DataError;
use crate::read::decode::format_by_name;
use crate::read::options::ReadOptions;
use crate::read::source::{LimitedReader, cannot_read};
use crate::read::text::{MAX_LINE, without_byte_order_mark};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Reads the lines of a list whose first line may be a header.
pub(super) fn entries(
    file: &Path,
    text: &mut dyn Read,
    options: &ReadOptions,
    fields: Fields<'_>,
) -> Result<Entries, DataError> {
    let mut read = Entries::default();
    let mut columns = Columns::UNNAMED;
    let delimiter = |first: &[u8]| delimiter(file, first, options, fields);
    each_record(file, text, delimiter, |number, line, record| {
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line, what };
        if number == 0
            && let Some(header) = header(file, line, record, options, fields)?
        {
            columns = header;
            let others = record.iter().enumerate().filter(|(column, _)| !columns.contain(*column));
            // the index that pandas writes has no name
            let others: Vec<String> =
                others.map(|(_, field)| field.to_owned()).filter(|name| !name.is_empty()).collect();
            read.problems.extend(ignored(file, "columns", &others));
            read.columns = record.iter().map(str::to_owned).collect();
            return Ok(());
        }
        read.entries.extend(entry(&columns, line, record, fields).map_err(invalid)?);
        Ok(())
    })?;
    Ok(read)
}

/// Reads the lines of a file about rows of features, one line per row: where its columns are, and all lines but the header.
/// Lines of one field are labels.
pub(crate) fn row_records(
    file: &Path,
    text: &mut dyn Read,
    options: &ReadOptions,
) -> Result<(RowColumns, Vec<csv::StringRecord>), DataError> {
    let (mut records, mut columns) = (Vec::new(), RowColumns::LABELS);
    each_record(file, text, most_frequent, |number, line, record| {
        if number == 0 {
            let names: Vec<&str> = record.iter().collect();
            let header = RowColumns::find(&names, options).map_err(|unknown| unknown.error(file, line, &names))?;
            if let Some(header) = header {
                columns = header;
                return Ok(());
            }
        }
        records.push(record.clone());
        Ok(())
    })?;
    Ok((columns, records))
}

/// Calls `each` with the number of every record, its line and its fields; `delimiter` tells what is between them by the first line.
fn each_record(
    file: &Path,
    text: &mut dyn Read,
    delimiter: impl Fn(&[u8]) -> u8,
    mut each: impl FnMut(usize, usize, &csv::StringRecord) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut text = BufReader::new(without_byte_order_mark(text).map_err(cannot_read(file))?);
    let mut first = Vec::new();
    text.by_ref().take(MAX_LINE).read_until(b'\n', &mut first).map_err(cannot_read(file))?;
    let delimiter = delimiter(&first);
    // the last line ends as the others do
    let text = io::Cursor::new(first.clone()).chain(text).chain(&b"\n"[..]);
    let text = LimitedReader::new(text, 0, "a line is too long, or the file");
    let mut reader = lines_ending_as(&first, reader(delimiter)).from_reader(text);
    let mut record = csv::StringRecord::new();
    let mut number = 0;
    loop {
        // a quote that is never closed makes one line of all that follow
        reader.get_ref().allow(MAX_LINE, MAX_BYTES);
        let before = reader.position().line();
        let more = reader.read_record(&mut record).map_err(|error| {
            let line = error.position().map_or(before, csv::Position::line) as usize;
            let what = match error.kind() {
                csv::ErrorKind::Utf8 { .. } => "the text is not UTF-8: save the list as UTF-8".to_owned(),
                _ => error.to_string(),
            };
            DataError::Line { path: file.to_owned(), line, what }
        })?;
        if !more {
            break;
        }
        if record.iter().all(str::is_empty) && record.len() <= 1 {
            continue;
        }
        // where the record begins by the reader's account, there may still be empty lines
        let inner: usize = record.iter().map(|field| field.matches('\n').count()).sum();
        let line = (reader.position().line() as usize).saturating_sub(1 + inner).max(before as usize);
        each(number, line, &record)?;
        number += 1;
    }
    Ok(())
}

/// Lines end with a line feed; a carriage return before it is trimmed, because lines that end with both are counted wrongly. If the first
/// line has a carriage return inside, carriage returns alone end lines too.
fn lines_ending_as(first: &[u8], mut reader: csv::ReaderBuilder) -> csv::ReaderBuilder {
    let inner = first.strip_suffix(b"\r\n").unwrap_or(first);
    if !inner.contains(&b'\r') {
        reader.terminator(csv::Terminator::Any(b'\n'));
    }
    reader
}

fn reader(delimiter: u8) -> csv::ReaderBuilder {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true).trim(csv::Trim::All).delimiter(delimiter);
    reader
}

/// What is between the fields, by the first line: what makes a known header of it, else what leaves the name of a file, else
/// what occurs most often.
fn delimiter(file: &Path, first: &[u8], options: &ReadOptions, content: Fields<'_>) -> u8 {
    let fields = |delimiter: u8| fields(first, delimiter);
    let has_header =
        |record: &csv::StringRecord| Columns::find(&record.iter().collect::<Vec<_>>(), options, content).is_ok();
    let has_file = |record: &csv::StringRecord| record.len() > 1 && record.iter().any(|field| is_file(file, field));
    let with = |has: &dyn Fn(&csv::StringRecord) -> bool| {
        DELIMITERS.into_iter().find(|delimiter| fields(*delimiter).is_some_and(|record| has(&record)))
    };
    with(&has_header).or_else(|| with(&has_file)).unwrap_or_else(|| most_frequent(first))
}

/// What occurs most often in the first line; of several that occur equally often, the first.
fn most_frequent(first: &[u8]) -> u8 {
    let occurrences = |delimiter: &u8| fields(first, *delimiter).map_or(0, |record| record.len());
    DELIMITERS.into_iter().rev().max_by_key(occurrences).unwrap_or(b',')
}

/// The fields of the first line, if this is between them.
fn fields(first: &[u8], delimiter: u8) -> Option<csv::StringRecord> {
    if !first.contains(&delimiter) {
        return None;
    }
    let mut record = csv::StringRecord::new();
    let read = reader(delimiter).from_reader(first).read_record(&mut record);
    read.ok().filter(|read| *read).map(|_| record)
}

fn is_file(list: &Path, field: &str) -> bool {
    !field.is_empty() && super::folder_of(list).join(field).is_file()
}

/// The columns of the first line, if it is a header.
fn header(
    file: &Path,
    line: usize,
    record: &csv::StringRecord,
    options: &ReadOptions,
    fields: Fields<'_>,
) -> Result<Option<Columns>, DataError> {
    let names: Vec<&str> = record.iter().collect();
    match Columns::find(&names, options, fields) {
        Ok(columns) => Ok(Some(columns)),
        Err(UnknownColumn::Unnamed { .. }) if is_data(file, &names) => Ok(None),
        Err(unknown) => Err(unknown.error(file, line, &names)),
    }
}

/// Whether the fields of the first line cannot be names of columns: one is empty or a number, names an image or a split.
fn is_data(file: &Path, fields: &[&str]) -> bool {
    let is_number = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit());
    let is_path = |field: &str| field.contains(['/', '\\']) || format_by_name(Path::new(field)).is_some();
    fields.get(2).is_some_and(|field| split_name(field).is_some())
        || fields.iter().any(|field| is_number(field) || is_path(field) || is_file(file, field))
}

/// The fields of a line; `None` if it is empty.
fn entry(
    columns: &Columns,
    line: usize,
    record: &csv::StringRecord,
    fields: Fields<'_>,
) -> Result<Option<Entry>, String> {
    if record.iter().all(str::is_empty) {
        return Ok(None);
    }
    let get = |column: Option<usize>| column.and_then(|column| record.get(column)).map(str::to_owned);
    let (path, label, split, group) =
        (get(Some(columns.path)), get(columns.label), get(columns.split), get(columns.group));
    let entry = |path: String, label| Some(Entry { line, path: PathBuf::from(path), label, split, group });
    match (path, label, fields) {
        (None, _, Fields::Path { .. }) => Err("there is no field for the path".to_owned()),
        (Some(path), _, Fields::Path { .. }) if path.is_empty() => Err("the path is missing".to_owned()),
        (Some(path), label, Fields::Path { .. }) => Ok(entry(path, label.unwrap_or_default())),
        (Some(path), Some(label), Fields::PathAndLabel) => {
            match record.iter().skip(columns.width).any(|f| !f.is_empty()) {
                true => Err(format!("{} fields: at most {} are expected", record.len(), columns.width)),
                false => Ok(entry(path, label)),
            }
        }
        (_, _, Fields::PathAndLabel) => Err(format!("{} fields: a path and a label are needed", record.len())),
    }
}
