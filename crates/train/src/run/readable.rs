//! Datasets with files that cannot be read: these are left out and named, if they are few.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use equipoise_data::Problem;
use equipoise_data::batch::loader::Progress;
use equipoise_data::describe::broken_files::allowed_broken;

use super::dataset::{LoadedDataset, load};
use super::{Feedback, RunContext};
use crate::error::{BrokenFile, TrainError, broken_count, first_broken};
use crate::prepare::{Prepared, number_of_images};
use crate::settings::DataSettings;

/// Problems of a dataset that are shown; the others are counted.
const SHOWN: usize = 3;

/// Reads a dataset and passes it to `prepare` until no file in it is broken. Splits and subsets are made of the other files.
pub(super) fn prepare_readable<T>(
    data: &DataSettings,
    context: &RunContext<'_>,
    mut prepare: impl FnMut(LoadedDataset, Progress<'_>) -> Result<Prepared<T>, TrainError>,
) -> Result<T, TrainError> {
    let mut broken: Vec<BrokenFile> = Vec::new();
    loop {
        let left_out: HashSet<PathBuf> = broken.iter().map(|file| file.path.clone()).collect();
        let loaded = load(data, context.data_root, &left_out, context.feedback)?;
        let images = number_of_images(&loaded.dataset) + broken.len();
        let problems = loaded.dataset.problems.clone();
        let progress = |done, total| context.feedback.reading(done, total);
        let prepared = prepare(loaded, &progress);
        context.feedback.reading_done();
        match prepared? {
            Prepared::Ready(ready) => {
                warn_of_broken_files(&broken, images, context.feedback);
                let is_new = |problem: &&Problem| !left_out.contains(Path::new(&problem.path));
                warn_of_problems(&problems.iter().filter(is_new).collect::<Vec<_>>(), context.feedback);
                return Ok(ready);
            }
            Prepared::Broken(more) => broken.extend(more),
        }
        let allowed = allowed_broken(data.max_broken, images);
        if broken.len() > allowed {
            return Err(TrainError::Broken { files: broken, images, allowed });
        }
    }
}

fn warn_of_broken_files(broken: &[BrokenFile], images: usize, feedback: &dyn Feedback) {
    if !broken.is_empty() {
        let verb = if broken.len() == 1 { "is" } else { "are" };
        feedback.warn(&format!("{} and {verb} left out: {}", broken_count(broken, images), first_broken(broken)));
    }
}

fn warn_of_problems(problems: &[&Problem], feedback: &dyn Feedback) {
    let kinds = by_kind(problems);
    for (what, paths) in kinds.iter().take(SHOWN) {
        match paths[..] {
            [path] => feedback.warn(&format!("{path}: {what}")),
            _ => feedback.warn(&format!("{} files or folders, such as {}: {what}", paths.len(), paths[0])),
        }
    }
    let more: usize = kinds.iter().skip(SHOWN).map(|(_, paths)| paths.len()).sum();
    if more > 0 {
        feedback.warn(&format!("{more} more about the dataset: `equipoise inspect` lists all"));
    }
}

/// Problems of one kind together, those that change the splits first.
fn by_kind<'a>(problems: &[&'a Problem]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
    for problem in problems {
        match kinds.iter_mut().find(|(what, _)| *what == problem.what) {
            Some((_, paths)) => paths.push(&problem.path),
            None => kinds.push((&problem.what, vec![&problem.path])),
        }
    }
    kinds.sort_by_key(|(what, _)| !Problem::is_about_splits(what));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_of_one_kind_are_one_line_and_splits_come_first() {
        let problem = |path: &str, what: &str| Problem { path: path.to_owned(), what: what.to_owned() };
        let split = "20 % of every class are for testing, because there is no test folder";
        let all = [problem("a.csv", "not an image"), problem("b.csv", "not an image"), problem("data", split)];
        let kinds = by_kind(&all.iter().collect::<Vec<_>>());
        assert_eq!(kinds, [(split, vec!["data"]), ("not an image", vec!["a.csv", "b.csv"])]);
    }
}
