//! Finding runs below the folders that a user names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use equipoise_record::names::{POOLED, is_comparison, is_run};

use super::{RecordedRun, ReportError, setting_keys as keys};

/// How many levels of subfolders are searched for runs.
const MAX_DEPTH: usize = 4;

impl RecordedRun {
    /// Reads runs from folders, each either a run folder or a folder with runs below it. Also returns why others were skipped:
    /// none of their epochs has been evaluated, they are no runs, they are folds of a cross-validation that has not finished, or they are
    /// damaged.
    ///
    /// # Errors
    /// If a folder does not exist, no run can be read, or a run is given more than once.
    pub fn all(paths: &[PathBuf]) -> Result<(Vec<Self>, Vec<ReportError>), ReportError> {
        let (mut runs, mut skipped) = (Vec::new(), Vec::new());
        for path in paths {
            if !path.exists() {
                return Err(ReportError::NoFolder { path: path.clone() });
            }
            let folders = if is_run(path) { Ok(vec![path.clone()]) } else { runs_below(path) };
            let mut found = Vec::new();
            match folders {
                Ok(folders) => {
                    for folder in folders {
                        match Self::read(&folder) {
                            Ok(run) => found.push(run),
                            Err(error) => skipped.push(error),
                        }
                    }
                }
                Err(error) => skipped.push(error),
            }
            let folds = found.extract_if(.., |run| run.path != *path && run.is_fold());
            skipped.extend(unfinished_folds(&folds.collect::<Vec<_>>()));
            runs.extend(found);
        }
        if runs.is_empty() && !skipped.is_empty() {
            return Err(skipped.swap_remove(0));
        }
        let mut seen = BTreeSet::new();
        for run in &runs {
            let absolute = fs::canonicalize(&run.path).unwrap_or_else(|_| run.path.clone());
            if !seen.insert(absolute) {
                return Err(ReportError::Duplicate { path: run.path.clone() });
            }
        }
        Ok((runs, skipped))
    }

    /// Whether this is a run of a cross-validation, on one of its folds.
    fn is_fold(&self) -> bool {
        let fold = self.setting(keys::FOLD).and_then(|fold| fold.parse::<u32>().ok());
        fold.is_some_and(|fold| fold > 0) && self.path.parent().is_some_and(is_comparison)
    }
}

/// The cross-validations that these runs belong to.
fn unfinished_folds(runs: &[RecordedRun]) -> Vec<ReportError> {
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for run in runs {
        let folder = run.path.parent().unwrap_or(&run.path);
        *folders.entry(folder).or_default() += usize::from(run.result.is_some());
    }
    let error = |(path, finished): (&Path, usize)| ReportError::UnfinishedFolds { path: path.to_owned(), finished };
    folders.into_iter().map(error).collect()
}

/// The runs below a folder that is not itself a run.
fn runs_below(path: &Path) -> Result<Vec<PathBuf>, ReportError> {
    fs::read_dir(path).map_err(|source| ReportError::Read { path: path.to_owned(), source })?;
    let mut folders = Vec::new();
    find_runs(path, MAX_DEPTH, &mut folders);
    match folders.is_empty() {
        true => Err(ReportError::NotARun { path: path.to_owned() }),
        false => Ok(folders),
    }
}

/// Collects the run folders below a folder, sorted by name. Of a cross-validation that has finished these are its figures over all images.
fn find_runs(path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let pooled = path.join(POOLED);
    if pooled.is_dir() && depth > 1 {
        return find_runs(&pooled, depth - 1, found);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    // links are not followed, because they may form a cycle
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()));
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        if is_run(&folder) {
            found.push(folder);
        } else if depth > 1 {
            find_runs(&folder, depth - 1, found);
        }
    }
}
