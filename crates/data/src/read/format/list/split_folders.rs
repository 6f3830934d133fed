//! Folders `train/`, `val/` and `test/` that each hold a list and its images, as Hugging Face's `imagefolder` lays them out.

use std::path::{Path, PathBuf};

use super::{list, list_in};
use crate::dataset::{Dataset, Problem, Split};
use crate::error::DataError;
use crate::read::format::class_folders::{folders, name_of, names_split};
use crate::read::options::ReadOptions;
use crate::subset::split::SplitRule;

/// Reads a folder whose `train/` folder holds a list; `None` if it has no such folder. If there is no `test/`, `val/` is the test
/// split; if there is neither, the images are split as the options say.
pub(crate) fn lists_of_splits(path: &Path, options: &ReadOptions) -> Result<Option<Dataset>, DataError> {
    let inner = folders(path)?;
    let list_of = |split: &str| -> Result<Option<PathBuf>, DataError> {
        match inner.iter().find(|folder| names_split(folder, split)) {
            Some(folder) => list_in(folder),
            None => Ok(None),
        }
    };
    let Some(train) = list_of("train")? else { return Ok(None) };
    let (val, test) = match (list_of("val")?, list_of("test")?) {
        (val, None) => (None, val),
        both => both,
    };
    let Some(test) = test else {
        return list(&train, options).map(|dataset| Some(Dataset { name: name_of(path), ..dataset }));
    };
    let mut dataset = list(&train, &ReadOptions { split: everything(), ..options.clone() })?;
    let mut problems = std::mem::take(&mut dataset.problems);
    let val = val.map(|val| held_out(&val, &dataset.classes, &mut problems)).transpose()?;
    let test = held_out(&test, &dataset.classes, &mut problems)?;
    Ok(Some(Dataset { name: name_of(path), val, test, problems, ..dataset }))
}

/// The images of a list with the labels of these classes: all of them, whatever their split.
pub(crate) fn held_out(file: &Path, classes: &[String], problems: &mut Vec<Problem>) -> Result<Split, DataError> {
    let listed = list(file, &everything().into())?;
    problems.extend(listed.problems);
    let splits = [Some(listed.train), listed.val, Some(listed.test)].into_iter().flatten().collect();
    let all = Split::joined(splits).ok_or_else(|| DataError::NoImages { path: file.to_owned() })?;
    let unknown = |class| DataError::ClassNotTrained { path: file.to_owned(), class, split: "test" };
    all.relabeled(&listed.classes, classes).map_err(unknown)
}

/// Keeps all images for training.
fn everything() -> SplitRule {
    SplitRule { test_fraction: 0.0, ..SplitRule::default() }
}
