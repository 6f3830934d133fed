//! Lists of images: CSV lines `path,label,split` or JSON lines `{"path": .., "label": .., "split": ..}`, with paths relative
//! to the list's folder.
//!
//! The fields of a CSV line are separated by commas, semicolons, tabs or bars. A header names the columns in the words of many
//! programs (`columns.rs` lists them), or as [`ReadOptions`] say; other columns are reported as problems. JSON lines have
//! fields of the same names. The split is `train`, `val` or `test` (or `training`, `valid`, `validation`, `testing`). A list
//! without splits is split within every class. Classes are sorted by name; labels that are all whole numbers are sorted as
//! numbers. A file may be named without its extension, and may be in a folder beside the list. Missing files are reported
//! with their line.

mod beside_images;
pub(crate) mod columns;
pub(crate) mod delimited;
mod entries;
mod files;
mod json;
mod split_folders;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

pub(crate) use self::beside_images::list_in;
use self::columns::split_name;
use self::entries::{Entries, Entry, Fields};
use self::files::FileFinder;
pub(crate) use self::split_folders::{held_out, lists_of_splits};
use super::class_folders::similar_names;
use crate::dataset::{Dataset, Problem, Split};
use crate::error::DataError;
use crate::read::options::ReadOptions;
use crate::read::source::open;
use crate::subset::grouping::FileGroups;
use crate::subset::split::{ClassFiles, labeled, split_files};

/// What programs write where a label is missing.
const MISSING: [&str; 5] = ["nan", "null", "none", "n/a", "na"];

/// Reads a list; its extension decides the format (`.csv` and `.tsv`, or `.jsonl` and `.ndjson`).
///
/// # Errors
/// Names the line that is invalid.
pub fn list(file: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    parse(file, &mut *open(file)?, options)
}

/// Whether a file is a list by its extension.
pub(crate) fn is_list(path: &Path) -> bool {
    path.is_file() && (is_csv(path) || has_extension(path, &["jsonl", "ndjson"]))
}

fn is_csv(path: &Path) -> bool {
    has_extension(path, &["csv", "tsv"])
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    path.extension().is_some_and(|e| known.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// Reads a list from its text; `file` decides the format and the folder of the images.
///
/// # Errors
/// Names the line that is invalid.
pub fn parse(file: &Path, text: &mut dyn Read, options: &ReadOptions) -> Result<Dataset, DataError> {
    let Entries { entries, columns, mut problems } = Entries::read(file, text, options, Fields::PathAndLabel)?;
    let Some(first) = entries.first() else {
        return Err(DataError::NoImages { path: file.to_owned() });
    };
    let groups = FileGroups::by_column(options.group_by.as_ref());
    let (mut splits, mut groups) = files_by_split(file, &entries, groups, &mut problems)?;
    match groups.is_empty() {
        true => {
            let files = splits.values().flat_map(BTreeMap::values).flatten().map(|path| (folder_of(file), path));
            groups = FileGroups::by_path(files, options.group_by.as_ref(), &columns)?;
        }
        false => groups.check_column()?,
    }
    check_classes(file, &splits)?;
    let classes = class_names(&splits);
    let mut take = |split: Option<&'static str>| splits.remove(&split);
    let missing = |name: &str| DataError::Missing { folder: file.to_owned(), name: name.to_owned() };
    let label = |files: &ClassFiles| labeled(files, &classes);
    let (train, val, test): (Split, Option<Split>, Split) =
        match (take(None), take(Some("train")), take(Some("val")), take(Some("test"))) {
            (Some(all), None, None, None) => {
                let (train, test) = split_files(folder_of(file), all, options, (&classes, &groups))?;
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
    problems.extend(doubtful_names(&classes, file));
    let name = file.file_stem().map_or_else(|| "list".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Dataset { name, classes, train, val, test, groups, problems })
}

/// The files that a list names, in its order; it need not have labels. `usual` is the column of their paths that the list may have.
///
/// # Errors
/// Names the line that is invalid.
pub(in crate::read) fn image_files(
    file: &Path,
    options: &ReadOptions,
    usual: Option<&str>,
) -> Result<(Vec<PathBuf>, Option<Problem>), DataError> {
    let Entries { entries, .. } = Entries::read(file, &mut *open(file)?, options, Fields::Path { usual })?;
    let names: Vec<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
    let (mut finder, problem) = FileFinder::new(folder_of(file), &names);
    Ok((names.into_iter().map(|name| finder.find(name)).collect(), problem))
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The files of every class, by split.
type FilesBySplit = BTreeMap<Option<&'static str>, ClassFiles>;

/// Sorts entries by split and class, and collects the groups that they name; missing files go to `problems`.
fn files_by_split(
    file: &Path,
    entries: &[Entry],
    mut groups: FileGroups,
    problems: &mut Vec<Problem>,
) -> Result<(FilesBySplit, FileGroups), DataError> {
    let mut splits = FilesBySplit::new();
    let is_grouped = entries.iter().any(|entry| entry.group.is_some());
    let names: Vec<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
    let (mut finder, problem) = FileFinder::new(folder_of(file), &names);
    problems.extend(problem);
    for Entry { line, path, label, split, group } in entries {
        let invalid = |what: String| DataError::Line { path: file.to_owned(), line: *line, what };
        let split = match split.as_deref() {
            None | Some("") => None,
            Some(word) => match split_name(word) {
                None => return Err(invalid(format!("split `{word}`: must be train, val or test"))),
                known => known,
            },
        };
        if label.is_empty() || path.as_os_str().is_empty() {
            let missing = if label.is_empty() { "label" } else { "path" };
            return Err(invalid(format!("the {missing} is missing")));
        }
        let path = finder.find(path);
        if let Err(error) = path.metadata() {
            let what = match error.kind() {
                ErrorKind::NotFound => "there is no such file".to_owned(),
                _ => error.to_string(),
            };
            problems.push(Problem { path: path.display().to_string(), what: format!("line {line}: {what}") });
        }
        if is_grouped {
            groups.insert(
                path.clone(),
                group.as_deref(),
                &path.strip_prefix(folder_of(file)).unwrap_or(&path).to_string_lossy(),
            );
        }
        splits.entry(split).or_default().entry(label.clone()).or_default().push(path);
    }
    Ok((splits, groups))
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

/// Class names that are probably no classes: labels that are missing, and several labels at once.
pub(crate) fn doubtful_names(classes: &[String], file: &Path) -> Vec<Problem> {
    let is_missing = |class: &String| MISSING.iter().any(|word| class.eq_ignore_ascii_case(word));
    let is_several = |class: &String| {
        let mut parts = class.split([';', '|', ',']).map(str::trim);
        class.contains([';', '|', ',']) && parts.any(|part| classes.iter().any(|other| other == part))
    };
    // among numbers, -1 usually stands for no label, unless there is only 1 beside it
    let is_no_label =
        |class: &String| class == "-1" && classes.len() > 2 && classes.iter().all(|other| other.parse::<i64>().is_ok());
    let doubt = |class: &String| match () {
        () if is_no_label(class) => Some("class `-1`: these labels are probably missing".to_owned()),
        () if is_missing(class) => Some(format!("class `{class}`: these labels are probably missing")),
        () if is_several(class) => {
            Some(format!("class `{class}`: probably several labels of one image, which count as a class of their own"))
        }
        () => None,
    };
    let problem = |what: String| Problem { path: file.display().to_string(), what };
    classes.iter().filter_map(doubt).map(problem).collect()
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
