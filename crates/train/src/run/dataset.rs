//! The dataset of a run, with its long-tailed subset.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::dataset::class_counts;
use equipoise_data::subset::folds::{FoldRule, split_fold};
use equipoise_data::subset::grouping::GroupBy;
use equipoise_data::subset::index::{Fingerprint, read};
use equipoise_data::subset::long_tail::{LongTail, QuotaShortfall};
use equipoise_data::subset::split::{SplitRule, validation_beside};
use equipoise_data::{DataError, Dataset, ReadOptions, Split, is_list, load as load_dataset};

use super::Feedback;
use super::files::input_error;
use crate::error::TrainError;
use crate::settings::DataSettings;

/// A dataset as it is on disk, and the subset of its training split to use.
pub struct LoadedDataset {
    /// The dataset.
    pub dataset: Dataset,
    /// The subset, if the settings ask for one.
    pub subset: Option<Subset>,
    /// Files that are left out after the subset is taken.
    left_out: HashSet<PathBuf>,
    /// The fold that becomes the test split.
    fold: Option<FoldRule>,
}

/// A subset of a training split.
pub struct Subset {
    /// Indices in the training split.
    pub indices: Vec<u32>,
    /// Where the subset comes from, for people.
    pub description: String,
}

impl LoadedDataset {
    /// The dataset with the subset as its training split. With folds, one of them is the test split, and the others are trained on.
    #[must_use]
    pub fn into_dataset(self) -> Dataset {
        let mut dataset = self.dataset;
        if let Some(subset) = self.subset {
            dataset.train = dataset.train.subset(&subset.indices);
        }
        dataset.leave_out(&self.left_out);
        if let Some(rule) = self.fold {
            (dataset.train, dataset.test) = split_fold(&dataset.train, &dataset.groups, rule);
        }
        dataset
    }
}

/// Reads a dataset without the files that are left out, and draws or reads its subset.
///
/// # Errors
/// Returns an error if the dataset or the file of the subset cannot be read, or a setting is out of range.
pub fn load(
    data: &DataSettings,
    data_root: &Path,
    left_out: &HashSet<PathBuf>,
    feedback: &dyn Feedback,
) -> Result<LoadedDataset, TrainError> {
    check_columns(data)?;
    let mut options = read_options(data, left_out)?;
    // checked even if the dataset has a test split: a wrong option is never ignored
    options.split.check()?;
    let fold = data.fold.checked_sub(1).map(|fold| FoldRule { folds: data.folds, fold, seed: data.split_seed });
    if data.test_data.is_some() || fold.is_some() {
        options.split.test_fraction = 0.0;
    }
    // a file of indices counts all images
    let late = if data.subset_file.is_some() { std::mem::take(&mut options.left_out) } else { HashSet::new() };
    let mut dataset = load_dataset(&data.dataset, data_root, &options)?;
    if let Some(other) = &data.test_data {
        dataset.test = held_out(("--test-data", other), &mut dataset, data, (data_root, left_out, feedback))?;
    }
    if let Some(other) = &data.val_data {
        dataset.val = Some(held_out(("--val-data", other), &mut dataset, data, (data_root, left_out, feedback))?);
    }
    let subset = match (&data.subset_file, data.imbalance) {
        (Some(file), _) => {
            let indices = read(Path::new(file), Fingerprint::of(&dataset.train))?;
            Some(Subset { indices, description: format!("the indices in {file}") })
        }
        (None, Some(imbalance)) => {
            let mut subset = draw(data, imbalance, &dataset, feedback)?;
            hold_out_beside(data, &mut dataset, &mut subset, feedback)?;
            Some(subset)
        }
        (None, None) => None,
    };
    Ok(LoadedDataset { dataset, subset, left_out: late, fold })
}

/// Refuses the path of a run's dataset at which there is nothing; `command` names another place.
pub(super) fn check_place(dataset: &str, command: &str) -> Result<(), TrainError> {
    if KnownDataset::by_name(dataset).is_some() || Path::new(dataset).exists() {
        return Ok(());
    }
    let what = format!("the images of the run are no longer here; name where they are now: `{command}`");
    Err(input_error(Path::new(dataset), what))
}

/// Refuses names of columns if there is no list that could have them.
fn check_columns(data: &DataSettings) -> Result<(), TrainError> {
    let columns = [("data.path_column", &data.path_column), ("data.label_column", &data.label_column)];
    let Some((field, name)) = columns.into_iter().find_map(|(field, name)| Some((field, name.as_ref()?))) else {
        return Ok(());
    };
    // labels of features may be a list too
    let datasets = [Some(&data.dataset), data.test_data.as_ref(), data.val_data.as_ref(), data.labels.as_ref()];
    // what is missing is reported where it is read
    let is_missing = |dataset: &str| KnownDataset::by_name(dataset).is_none() && !Path::new(dataset).exists();
    if datasets.into_iter().flatten().any(|dataset| is_list(dataset) || is_missing(dataset)) {
        return Ok(());
    }
    let what = format!("'{name}': {} is not read from a list, so there are no columns; leave this out", data.dataset);
    Err(TrainError::Setting { field: field.to_owned(), what })
}

/// How the files of a dataset are read.
fn read_options(data: &DataSettings, left_out: &HashSet<PathBuf>) -> Result<ReadOptions, TrainError> {
    Ok(ReadOptions {
        split: SplitRule { test_fraction: data.test_fraction, seed: data.split_seed },
        path_column: data.path_column.clone(),
        label_column: data.label_column.clone(),
        labels: data.labels.as_ref().map(PathBuf::from),
        group_by: data.group_by.as_deref().map(GroupBy::new).transpose()?,
        left_out: left_out.clone(),
    })
}

/// The images of another dataset, for testing or validation, as an option names it. Their groups become known to the dataset.
fn held_out(
    (option, other): (&str, &str),
    dataset: &mut Dataset,
    data: &DataSettings,
    (data_root, left_out, feedback): (&Path, &HashSet<PathBuf>, &dyn Feedback),
) -> Result<Split, TrainError> {
    let mut options = read_options(data, left_out)?;
    (options.split.test_fraction, options.labels) = (0.0, None);
    let mut held = match load_dataset(other, data_root, &options) {
        Err(error @ DataError::GroupBy { .. }) => {
            let what = "whether its images belong to those for training is not known";
            feedback.warn(&format!("{option} {other}: {error}; {what}"));
            options.group_by = None;
            load_dataset(other, data_root, &options)?
        }
        held => held?,
    };
    dataset.groups.extend(std::mem::take(&mut held.groups));
    let choice = SplitChoice::usual(&held);
    labeled_as(held, &dataset.classes, choice)
}

/// Which images of a dataset are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChoice {
    /// The training split.
    Train,
    /// The validation split.
    Val,
    /// The test split.
    Test,
    /// All images.
    All,
}

impl fmt::Display for SplitChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
            Self::All => "all",
        })
    }
}

impl FromStr for SplitChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Train, Self::Val, Self::Test, Self::All];
        all.into_iter().find(|split| split.to_string() == name).ok_or("must be train, val, test or all".to_owned())
    }
}

impl SplitChoice {
    /// The split of a dataset that is evaluated unless another one is chosen: the test split if it has images, else the
    /// validation split, else all.
    #[must_use]
    pub fn usual(dataset: &Dataset) -> Self {
        let has_val = dataset.val.as_ref().is_some_and(|val| !val.labels.is_empty());
        match (dataset.test.labels.is_empty(), has_val) {
            (false, _) => Self::Test,
            (true, true) => Self::Val,
            (true, false) => Self::All,
        }
    }
}

/// Images of a dataset with the labels of other classes, which are told by their names. A class may have no images.
pub(super) fn labeled_as(dataset: Dataset, classes: &[String], choice: SplitChoice) -> Result<Split, TrainError> {
    let Dataset { name, classes: own, train, val, test, .. } = dataset;
    let refuse = |what: String| TrainError::Dataset { dataset: name.clone(), what };
    let split = match choice {
        SplitChoice::Train => Some(train),
        SplitChoice::Val => val,
        SplitChoice::Test => Some(test),
        SplitChoice::All => Split::joined([Some(train), val, Some(test)].into_iter().flatten().collect()),
    };
    let split = split.filter(|split| !split.labels.is_empty());
    let split = split.ok_or_else(|| refuse(format!("it has no images for --split {choice}")))?;
    let unknown = |class: String| {
        let known: Vec<&str> = classes.iter().take(5).map(String::as_str).collect();
        let more = if classes.len() > known.len() { ", ..." } else { "" };
        let similar = classes.iter().find(|known| known.to_lowercase() == class.to_lowercase());
        let similar = similar.map(|known| format!(", though '{known}' is")).unwrap_or_default();
        refuse(format!(
            "class '{class}' is not one of the {} trained classes ({}{more}){similar}; leave its images out, or give it the name that was trained",
            classes.len(),
            known.join(", ")
        ))
    };
    split.relabeled(&own, classes).map_err(unknown)
}

/// Draws a long-tailed subset.
fn draw(data: &DataSettings, imbalance: f64, dataset: &Dataset, feedback: &dyn Feedback) -> Result<Subset, TrainError> {
    let long_tail = LongTail { imbalance, profile: data.profile, seed: data.subset_seed };
    let indices = long_tail.draw(&dataset.train.labels, dataset.classes.len())?;
    warn_of_small_classes(&long_tail, dataset, feedback)?;
    let (profile, seed) = (data.profile, data.subset_seed);
    let description = format!("imbalance {imbalance}, profile {profile}, subset seed {seed}");
    Ok(Subset { indices, description })
}

/// Gives a dataset the validation split of `data.val_per_class`.
fn hold_out_beside(
    data: &DataSettings,
    dataset: &mut Dataset,
    subset: &mut Subset,
    feedback: &dyn Feedback,
) -> Result<(), TrainError> {
    if data.val_per_class == 0 {
        return Ok(());
    }
    if dataset.val.is_some() {
        let what = "it has a validation split: leave out 'data.val_per_class'".to_owned();
        return Err(TrainError::Dataset { dataset: dataset.name.clone(), what });
    }
    let rule = (data.val_per_class, data.split_seed);
    let (labels, classes) = (&dataset.train.labels, &dataset.classes);
    let counts = |indices: &[u32]| {
        class_counts(&indices.iter().map(|index| labels[*index as usize]).collect::<Vec<_>>(), classes.len())
    };
    let before = counts(&subset.indices)?;
    let held = validation_beside(labels, classes.len(), &mut subset.indices, rule)?;
    if held.is_empty() {
        let what = format!("no class is large enough for 'data.val_per_class' = {}", data.val_per_class);
        return Err(TrainError::Dataset { dataset: dataset.name.clone(), what });
    }
    let (after, val) = (counts(&subset.indices)?, counts(&held)?);
    let given = classes.iter().zip(before.into_iter().zip(after)).filter(|(_, (before, after))| before > after);
    let given = given.map(|(name, (before, after))| format!("{name} {} of {before}", before - after));
    let few = classes.iter().zip(val).filter(|(_, images)| *images < u64::from(data.val_per_class));
    let few = few.map(|(name, images)| format!("{name} has {images}"));
    warn_of_hold_out(&given.collect::<Vec<_>>(), &few.collect::<Vec<_>>(), feedback);
    dataset.val = Some(dataset.train.subset(&held));
    Ok(())
}

/// Warns of classes that give training images to the validation split of `data.val_per_class`, and of those that have too few for it.
fn warn_of_hold_out(given: &[String], few: &[String], feedback: &dyn Feedback) {
    let gives = [
        "gives training images to the validation split of 'data.val_per_class'",
        "give training images to the validation split of 'data.val_per_class'",
    ];
    let has_fewer = [
        "has fewer validation images than 'data.val_per_class'",
        "have fewer validation images than 'data.val_per_class'",
    ];
    warn_of(given, gives, feedback);
    warn_of(few, has_fewer, feedback);
}

/// Warns of classes that have fewer images than the subset asks for.
fn warn_of_small_classes(long_tail: &LongTail, dataset: &Dataset, feedback: &dyn Feedback) -> Result<(), TrainError> {
    let classes = &dataset.classes;
    let short = long_tail.shortfalls(&dataset.train.labels, classes.len())?;
    let short = short
        .iter()
        .map(|QuotaShortfall { class, quota, images }| format!("{} has {images} of {quota}", classes[*class]));
    warn_of(
        &short.collect::<Vec<_>>(),
        [
            "has fewer images than the subset asks for, so all of them are used",
            "have fewer images than the subset asks for, so all of them are used",
        ],
        feedback,
    );
    let quotas = long_tail.quotas(dataset.train.labels.len() as u64, classes.len())?;
    let empty = quotas.iter().zip(classes).filter(|(quota, _)| **quota == 0).map(|(_, name)| name.clone());
    warn_of(&empty.collect::<Vec<_>>(), ["is left without images", "are left without images"], feedback);
    Ok(())
}

/// A warning that names the first classes and counts the others.
fn warn_of(classes: &[String], [one, several]: [&str; 2], feedback: &dyn Feedback) {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = classes.iter().take(SHOWN).map(String::as_str).collect();
    let more = if classes.len() > SHOWN { format!(" and {} more", classes.len() - SHOWN) } else { String::new() };
    let named = format!("{}{more}", shown.join(", "));
    match classes.len() {
        0 => {}
        1 => feedback.warn(&format!("1 class {one}: {named}")),
        number => feedback.warn(&format!("{number} classes {several}: {named}")),
    }
}
