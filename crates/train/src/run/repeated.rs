//! Images that occur where they should not: in training and in what is evaluated, or with two labels.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use equipoise_data::describe::broken_files::allowed_broken;
use equipoise_data::describe::same_files::same_files;
use equipoise_data::{Dataset, Images, Split};
use equipoise_pool::Pool;

use super::dataset::load;
use super::{NoFeedback, RunContext};
use crate::checkpoint::CheckpointHeader;
use crate::prepare::{content, find_broken, fingerprint, number_of_images, take_validation_split};
use crate::settings::DataSettings;

/// Files that are compared at most; for more, `inspect` does it.
const MAX_FILES: usize = 50_000;

/// A key for every file that occurs more than once.
type Keys = Vec<Option<(u64, u64)>>;

/// The keys of the files of two splits; `None` if the images are not files, or too many.
fn keys(one: &Split, other: &Split, pool: &Pool) -> Option<[Keys; 2]> {
    let (Images::Files(one), Images::Files(other)) = (&one.images, &other.images) else { return None };
    let files: Vec<&Path> = one.iter().chain(other).map(PathBuf::as_path).collect();
    if files.len() > MAX_FILES {
        return None;
    }
    let mut keys = same_files(&files, pool);
    let others = keys.split_off(one.len());
    Some([keys, others])
}

/// Warnings of image files that are in training and test, and of those with two labels.
pub(super) fn repeated_images(dataset: &Dataset, pool: &Pool) -> Vec<String> {
    let Some([train, test]) = keys(&dataset.train, &dataset.test, pool) else { return Vec::new() };
    let name = |split: &Split, index: usize| split.images.file(index).map(|file| file.display().to_string());
    let name = |split: &Split, index: usize| name(split, index).unwrap_or_default();
    let (mut first, mut trained) = (HashMap::new(), HashSet::new());
    let (mut contradictions, mut leaks) = (Vec::new(), Vec::new());
    for (split, keys) in [(&dataset.train, &train), (&dataset.test, &test)] {
        for (index, key) in keys.iter().enumerate().filter_map(|(index, key)| Some((index, (*key)?))) {
            if std::ptr::eq(split, &dataset.train) {
                trained.insert(key);
            } else if trained.contains(&key) {
                leaks.push(name(split, index));
            }
            let (label, other) = first.entry(key).or_insert_with(|| (split.labels[index], name(split, index)));
            if *label != split.labels[index] {
                contradictions.push(format!("{other} and {}", name(split, index)));
            }
        }
    }
    let mut warnings = Vec::new();
    if let Some(file) = leaks.first() {
        let are =
            if leaks.len() == 1 { "1 test image is".to_owned() } else { format!("{} test images are", leaks.len()) };
        warnings.push(format!(
            "{are} also in training, such as {file}: results will look better than they are; `equipoise inspect` lists all"
        ));
    }
    if let Some(files) = contradictions.first() {
        let have = match contradictions.len() {
            1 => "1 image has".to_owned(),
            number => format!("{number} images have"),
        };
        warnings.push(format!("{have} two labels, such as {files}; `equipoise inspect` lists all"));
    }
    warnings
}

/// How many of these images are among the training images of a run; `None` if that is not cheap to find out.
pub(super) fn trained_images(images: &Split, header: &CheckpointHeader, context: &RunContext<'_>) -> Option<usize> {
    if !header.files || images.labels.len() > MAX_FILES {
        return None;
    }
    let dataset = dataset_of_run(header, &header.settings.data, context)?;
    let [trained, evaluated] = keys(&dataset.train, images, context.pool)?;
    let trained: HashSet<(u64, u64)> = trained.into_iter().flatten().collect();
    Some(evaluated.into_iter().flatten().filter(|key| trained.contains(key)).count())
}

/// The dataset of a run, split as in the run, if it is what these settings name.
pub(super) fn dataset_of_run(
    header: &CheckpointHeader,
    data: &DataSettings,
    context: &RunContext<'_>,
) -> Option<Dataset> {
    let read = |left_out: &HashSet<PathBuf>| {
        let mut dataset = load(data, context.data_root, left_out, &NoFeedback).ok()?.into_dataset();
        take_validation_split(&mut dataset, &header.settings).ok()?;
        Some(dataset)
    };
    let is_it = |dataset: &Dataset| {
        dataset.classes == header.classes
            && fingerprint(dataset) == header.fingerprint
            && header.content.as_ref().is_none_or(|known| *known == content(dataset))
    };
    let dataset = read(&HashSet::new())?;
    if is_it(&dataset) {
        return Some(dataset);
    }
    // files that could not be read in training are in no split
    let counts = header.fingerprint.split(", ").map(|split| split.split(' ').next()?.parse::<usize>().ok());
    let (images, known) = (number_of_images(&dataset), counts.sum::<Option<usize>>()?);
    let more = images.checked_sub(known)?;
    if more == 0 || more > allowed_broken(data.max_broken, images) {
        return None;
    }
    let broken = find_broken(&dataset, context.pool, &|_, _| {});
    read(&broken.into_iter().map(|file| file.path).collect()).filter(is_it)
}
