//! The image files that a user names to look at: files, folders, lists and patterns. There are no labels here.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::format::class_folders::walk::Walk;
use super::source::open;
use super::text::lines;
use crate::dataset::Problem;
use crate::error::DataError;

/// Size limit of a list.
const MAX_LIST: u64 = 1 << 30;
/// Names of the column or field with the path.
const PATH_COLUMNS: [&str; 5] = ["path", "file", "filename", "file_name", "image"];

/// Image files, in the order in which they are looked at.
#[derive(Debug, Default)]
pub struct ImagePaths {
    /// The files. A file that was named may turn out to be missing or not to be an image.
    pub files: Vec<PathBuf>,
    /// What was found in a folder and is not an image.
    pub problems: Vec<Problem>,
}

impl ImagePaths {
    /// Adds what a user named: a file; a folder, whose images are found however deep and sorted by name; a list, which is a text
    /// file with a path per line (`.txt`), a CSV file with a column `path` or the paths in its first column, or JSON lines with a
    /// field `path`; or a pattern with `*`, `?`, `[a-z]` or `**`, if there is no file of that name.
    ///
    /// Paths in a list are relative to its folder.
    ///
    /// # Errors
    /// If a folder or list cannot be read, or a pattern is malformed or matches nothing.
    pub fn add(&mut self, named: &Path) -> Result<(), DataError> {
        if named.is_dir() {
            return self.add_folder(named);
        }
        if named.is_file()
            && let Some(format) = ListFormat::of(named)
        {
            let folder = named.parent().unwrap_or(Path::new(""));
            return self.add_list(&mut *open(named)?, format, named, folder);
        }
        match named.to_str().filter(|text| text.contains(['*', '?', '['])) {
            Some(pattern) if !named.exists() => self.add_matches(pattern),
            _ => {
                self.files.push(named.to_owned());
                Ok(())
            }
        }
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), DataError> {
        let walk = Walk::below(folder)?;
        self.files.extend(walk.files);
        self.problems.extend(walk.problems);
        Ok(())
    }

    /// Adds the paths in a text, one per line.
    ///
    /// # Errors
    /// If the text cannot be read.
    pub fn add_lines(&mut self, text: &mut dyn Read) -> Result<(), DataError> {
        self.add_list(text, ListFormat::Lines, Path::new("standard input"), Path::new(""))
    }

    fn add_list(
        &mut self,
        text: &mut dyn Read,
        format: ListFormat,
        name: &Path,
        folder: &Path,
    ) -> Result<(), DataError> {
        let mut column = None;
        for line in lines(text, name, MAX_LIST) {
            let (number, line) = line?;
            let line = String::from_utf8_lossy(&line);
            let invalid = |what: &str| DataError::Line { path: name.to_owned(), line: number, what: what.to_owned() };
            let path = match format {
                _ if line.trim().is_empty() => continue,
                ListFormat::Lines => line.trim().to_owned(),
                ListFormat::Json => {
                    json_path(&line).ok_or_else(|| invalid("a JSON object with a field `path` is needed"))?
                }
                ListFormat::Csv => {
                    let (separator, column, is_header) = *column.get_or_insert_with(|| path_column(&line));
                    if is_header && number == 1 {
                        continue;
                    }
                    csv_field(&line, separator, column).ok_or_else(|| invalid("there is no field for the path"))?
                }
            };
            self.files.push(folder.join(path));
        }
        Ok(())
    }

    /// Adds the files that match a pattern, and the images in the folders that do.
    fn add_matches(&mut self, pattern: &str) -> Result<(), DataError> {
        let refuse = |what: String| DataError::Pattern { pattern: pattern.to_owned(), what };
        // hidden files are skipped, as in folders
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
        let found = glob::glob_with(pattern, options).map_err(|error| refuse(error.to_string()))?;
        let mut matched = false;
        for path in found {
            let path = path.map_err(|error| refuse(error.to_string()))?;
            matched = true;
            match path.is_dir() {
                // a folder below a folder that matches is found there
                true if pattern.contains("**") => {}
                true => self.add_folder(&path)?,
                false => self.files.push(path),
            }
        }
        if matched { Ok(()) } else { Err(refuse("nothing matches it".to_owned())) }
    }
}

/// The format of a list.
#[derive(Clone, Copy)]
enum ListFormat {
    Lines,
    Csv,
    Json,
}

impl ListFormat {
    /// The format of a list by the extension of its file.
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "txt" => Some(Self::Lines),
            "csv" | "tsv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The separator of a CSV file, the column of the path, and whether the file begins with a header, by its first line.
fn path_column(line: &str) -> (u8, usize, bool) {
    let count = |separator: u8| line.bytes().filter(|byte| *byte == separator).count();
    let separator =
        [b',', b';', b'\t', b'|'].into_iter().rev().max_by_key(|separator| count(*separator)).unwrap_or(b',');
    let is_path = |field: &String| PATH_COLUMNS.iter().any(|name| field.eq_ignore_ascii_case(name));
    let column = fields(line, separator).iter().position(is_path);
    (separator, column.unwrap_or(0), column.is_some())
}

fn csv_field(line: &str, separator: u8, column: usize) -> Option<String> {
    fields(line, separator).into_iter().nth(column).filter(|field| !field.is_empty())
}

fn fields(line: &str, separator: u8) -> Vec<String> {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).delimiter(separator).trim(csv::Trim::All);
    let record = reader.from_reader(line.as_bytes()).into_records().next().and_then(Result::ok);
    record.map(|record| record.iter().map(str::to_owned).collect()).unwrap_or_default()
}

fn json_path(line: &str) -> Option<String> {
    let object: Value = serde_json::from_str(line).ok()?;
    PATH_COLUMNS.iter().find_map(|name| object.get(name)?.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    fn names(named: &[&Path], under: &Path) -> Vec<String> {
        let mut paths = ImagePaths::default();
        named.iter().for_each(|named| paths.add(named).expect("found"));
        let relative = |path: &PathBuf| path.strip_prefix(under).expect("below").display().to_string();
        paths.files.iter().map(relative).collect()
    }

    #[test]
    fn files_folders_lists_and_patterns() {
        let folder = TempFolder::new("paths");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/deep")).expect("a folder");
        for name in ["b.png", "a/2.png", "a/1.png", "a/deep/3.png", "odd [1].png", "a/._1.png"] {
            std::fs::write(at(name), b"").expect("written");
        }
        std::fs::write(at("a/notes.md"), b"text").expect("written");
        let found = |named: &str| names(&[&at(named)], folder.path());
        assert_eq!(found("b.png"), ["b.png"]);
        assert_eq!(found("a"), ["a/1.png", "a/2.png", "a/deep/3.png"]);
        assert_eq!(found("a/*.png"), ["a/1.png", "a/2.png"]);
        assert_eq!(found("**/[23].png"), ["a/2.png", "a/deep/3.png"]);
        // a file of that name is that file
        assert_eq!(found("odd [1].png"), ["odd [1].png"]);
        for (list, text) in [
            ("l.txt", "\u{feff}a/1.png\r\n\n b.png\n"),
            ("l.csv", "a/1.png,cat\nb.png,dog\n"),
            ("h.csv", "label;Filename\ncat;a/1.png\ndog;\"b.png\"\n"),
            ("l.jsonl", "{\"path\": \"a/1.png\"}\n{\"image\": \"b.png\", \"label\": 3}\n"),
        ] {
            std::fs::write(at(list), text).expect("written");
            assert_eq!(found(list), ["a/1.png", "b.png"], "{list}");
        }
        let refused = |named: &str| ImagePaths::default().add(&at(named)).expect_err("refused").to_string();
        assert!(refused("c*.png").ends_with("nothing matches it"), "{}", refused("c*.png"));
        std::fs::write(at("bad.jsonl"), "{}\n").expect("written");
        assert!(refused("bad.jsonl").contains("field `path`"));
    }
}
