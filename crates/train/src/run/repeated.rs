//! Images that occur where they should not: in training and in what is evaluated, or with two labels.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use equipoise_data::dataset::class_counts;
use equipoise_data::describe::broken_files::allowed_broken;
use equipoise_data::describe::same_files::same_files;
use equipoise_data::features::Features;
use equipoise_data::{Dataset, Images, Split};
use equipoise_pool::Pool;

use super::dataset::load;
use super::weights::load_checkpoint;
use super::{NoFeedback, RunContext};
use crate::checkpoint::CheckpointHeader;
use crate::prepare::{content, find_broken, fingerprint, number_of_images, take_validation_split};
use crate::settings::{DataSettings, Settings};

/// Images that are compared at most; for more, `inspect` does it.
const MAX_FILES: usize = 50_000;

/// A key for every image that may occur more than once.
type Keys = Vec<Option<(u64, u64)>>;

/// The keys of the files, or of the rows of features, of some splits; `None` if the images are in memory, or too many.
fn keys(splits: &[&Split], pool: &Pool) -> Option<Vec<Keys>> {
    if splits.iter().map(|split| split.labels.len()).sum::<usize>() > MAX_FILES {
        return None;
    }
    let mut all = match splits.iter().map(|split| split.images.features()).collect::<Option<Vec<_>>>() {
        Some(features) => features.iter().flat_map(|features| row_keys(features)).collect(),
        None => {
            let files: Vec<Vec<&Path>> = splits.iter().map(|split| files_of(split)).collect::<Option<_>>()?;
            same_files(&files.concat(), pool)
        }
    };
    let sizes = splits.iter().map(|split| split.labels.len());
    Some(sizes.map(|size| all.drain(..size).collect()).collect())
}

fn files_of(split: &Split) -> Option<Vec<&Path>> {
    match &split.images {
        Images::Files(files) => Some(files.iter().map(PathBuf::as_path).collect()),
        Images::Memory(_) | Images::Features(_) => None,
    }
}

/// A key for every row.
fn row_keys(features: &Features) -> Keys {
    let mut row = vec![0.0; features.width()];
    let mut key = |index: usize| {
        features.copy_row(index, &mut row);
        let mut hasher = DefaultHasher::new();
        row.iter().for_each(|x| hasher.write_u32(x.to_bits()));
        Some((row.len() as u64, hasher.finish()))
    };
    (0..features.len()).map(&mut key).collect()
}

/// Warnings of images that are in two splits, and of those with two labels.
pub(super) fn repeated_images(dataset: &Dataset, pool: &Pool) -> Vec<String> {
    let splits =
        [("training", Some(&dataset.train)), ("validation", dataset.val.as_ref()), ("test", Some(&dataset.test))];
    let splits: Vec<(&str, &Split)> = splits.into_iter().filter_map(|(name, split)| Some((name, split?))).collect();
    let Some(keys) = keys(&splits.iter().map(|(_, split)| *split).collect::<Vec<_>>(), pool) else { return Vec::new() };
    let thing = if dataset.train.images.features().is_some() { "row" } else { "image" };
    let mut warnings = Vec::new();
    let mut seen: Vec<(&str, HashSet<(u64, u64)>)> = Vec::new();
    for ((name, split), keys) in splits.iter().zip(&keys) {
        for (other, trained) in &seen {
            let is_leak = |key: &Option<(u64, u64)>| key.is_some_and(|key| trained.contains(&key));
            let leaks: Vec<usize> = (0..keys.len()).filter(|index| is_leak(&keys[*index])).collect();
            warnings.extend(leak_warning(&leaks, (name, other, thing), split));
        }
        seen.push((name, keys.iter().flatten().copied().collect()));
    }
    warnings.extend(contradiction_warning(&splits, &keys, thing));
    warnings
}

fn leak_warning(leaks: &[usize], (name, other, thing): (&str, &str, &str), split: &Split) -> Option<String> {
    let first = example_name(split, *leaks.first()?);
    let are = match leaks.len() {
        1 => format!("1 {name} {thing} is"),
        number => format!("{number} {name} {thing}s are"),
    };
    let effect = match (name, other) {
        ("test", "validation") => "the test split chooses the best epoch",
        _ => "results will look better than they are",
    };
    Some(format!("{are} also in {other}, such as {first}: {effect}; `equipoise inspect` lists all"))
}

fn contradiction_warning(splits: &[(&str, &Split)], keys: &[Keys], thing: &str) -> Option<String> {
    let mut first = HashMap::new();
    let mut contradictions = Vec::new();
    for ((_, split), keys) in splits.iter().zip(keys) {
        for (index, key) in keys.iter().enumerate().filter_map(|(index, key)| Some((index, (*key)?))) {
            let (label, other) = first.entry(key).or_insert_with(|| (split.labels[index], example_name(split, index)));
            if *label != split.labels[index] {
                let own = example_name(split, index);
                contradictions.push(if own == *other {
                    format!("{own}, which is listed twice")
                } else {
                    format!("{other} and {own}")
                });
            }
        }
    }
    let examples = contradictions.first()?;
    let have = match contradictions.len() {
        1 => format!("1 {thing} has"),
        number => format!("{number} {thing}s have"),
    };
    Some(format!("{have} two labels, such as {examples}; `equipoise inspect` lists all"))
}

/// The file of an image, or the name or place of a row.
fn example_name(split: &Split, index: usize) -> String {
    split.images.name(index).unwrap_or_default()
}

/// A warning of classes that are trained on and never tested.
pub(super) fn untested_classes(dataset: &Dataset) -> Option<String> {
    let classes = dataset.classes.len();
    let (train, test) = (dataset.counts().ok()?, class_counts(&dataset.test.labels, classes).ok()?);
    let untested: Vec<&str> = (0..classes)
        .filter(|class| train[*class] > 0 && test[*class] == 0)
        .map(|class| dataset.classes[class].as_str())
        .collect();
    if untested.is_empty() || dataset.test.labels.is_empty() {
        return None;
    }
    let names = untested[..untested.len().min(5)].join(", ");
    Some(match untested.len() {
        1 => format!("class {names} has no test image, so that its accuracy will not be known"),
        number => format!(
            "{number} classes have no test image, so that their accuracy will not be known: {names}{}",
            if number > 5 { ", ..." } else { "" }
        ),
    })
}

/// A warning of test images that the weights to start from were trained on.
pub(super) fn known_to_weights(dataset: &Dataset, settings: &Settings, context: &RunContext<'_>) -> Option<String> {
    let weights = settings.model.weights.as_deref().filter(|path| !path.ends_with(".safetensors"))?;
    let header = load_checkpoint(Path::new(weights), &NoFeedback).ok()?.header;
    let images = dataset.test.labels.len();
    let known = trained_images(&dataset.test, &header, context).filter(|known| *known > 0)?;
    Some(format!(
        "{known} of the {images} test images were trained on by {weights}, whose weights are used: results will look better than they are"
    ))
}

/// How many of these images are among the training images of a run; `None` if that is not cheap to find out.
pub(super) fn trained_images(images: &Split, header: &CheckpointHeader, context: &RunContext<'_>) -> Option<usize> {
    if !header.files || images.labels.len() > MAX_FILES {
        return None;
    }
    let dataset = dataset_of_run(header, &header.settings.data, context)?;
    let mut keys = keys(&[&dataset.train, images], context.pool)?;
    let (evaluated, trained) = (keys.pop()?, keys.pop()?);
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
