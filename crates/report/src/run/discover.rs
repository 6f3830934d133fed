//! Finding runs below the folders that a user names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use equipoise_record::names::{POOLED, is_run};

use super::{RecordedRun, ReportError};

/// How many levels of subfolders are searched for runs.
const MAX_DEPTH: usize = 4;

impl RecordedRun {
    /// Reads runs from folders, each either a run folder or a folder with runs below it. Also returns why others were skipped:
    /// none of their epochs has been evaluated, they are no runs, or they are damaged.
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
            match folders {
                Ok(folders) => {
                    for folder in folders {
                        match Self::read(&folder) {
                            Ok(run) => runs.push(run),
                            Err(error) => skipped.push(error),
                        }
                    }
                }
                Err(error) => skipped.push(error),
            }
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

/// Collects the run folders below a folder, sorted by name. The folds of a cross-validation are not compared: its figures over all images are.
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
