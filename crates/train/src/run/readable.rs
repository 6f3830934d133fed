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
    for problem in problems.iter().take(SHOWN) {
        feedback.warn(&format!("{}: {}", problem.path, problem.what));
    }
    if problems.len() > SHOWN {
        feedback.warn(&format!("{} more about the dataset: `equipoise inspect` lists all", problems.len() - SHOWN));
    }
}
