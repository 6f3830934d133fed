//! The dataset of a run, with its long-tailed subset.

use std::path::Path;

use equipoise_data::subset::index::{Fingerprint, read};
use equipoise_data::subset::long_tail::{LongTail, QuotaShortfall};
use equipoise_data::subset::split::SplitRule;
use equipoise_data::{Dataset, load as load_dataset};

use super::Feedback;
use crate::error::TrainError;
use crate::settings::DataSettings;

/// A dataset as it is on disk, and the subset of its training split to use.
pub struct LoadedDataset {
    /// The dataset.
    pub dataset: Dataset,
    /// The subset, if the settings ask for one.
    pub subset: Option<Subset>,
}

/// A subset of a training split.
pub struct Subset {
    /// Indices in the training split.
    pub indices: Vec<u32>,
    /// Where the subset comes from, for people.
    pub description: String,
}

impl LoadedDataset {
    /// The dataset with the subset as its training split.
    #[must_use]
    pub fn into_dataset(self) -> Dataset {
        let mut dataset = self.dataset;
        if let Some(subset) = self.subset {
            dataset.train = dataset.train.subset(&subset.indices);
        }
        dataset
    }
}

/// Reads a dataset and draws or reads its subset.
///
/// # Errors
/// Returns an error if the dataset or the file of the subset cannot be read, or a setting is out of range.
pub fn load(data: &DataSettings, data_root: &Path, feedback: &dyn Feedback) -> Result<LoadedDataset, TrainError> {
    // checked even if the dataset has a test split: a wrong option is never ignored
    let rule = SplitRule { test_fraction: data.test_fraction, seed: data.split_seed };
    rule.check()?;
    let dataset = load_dataset(&data.dataset, data_root, rule)?;
    let subset = match (&data.subset_file, data.imbalance) {
        (Some(file), _) => {
            let indices = read(Path::new(file), Fingerprint::of(&dataset.train))?;
            Some(Subset { indices, description: format!("the indices in {file}") })
        }
        (None, Some(imbalance)) => Some(draw(data, imbalance, &dataset, feedback)?),
        (None, None) => None,
    };
    Ok(LoadedDataset { dataset, subset })
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

/// Warns of classes that have fewer images than the subset asks for.
fn warn_of_small_classes(long_tail: &LongTail, dataset: &Dataset, feedback: &dyn Feedback) -> Result<(), TrainError> {
    let classes = &dataset.classes;
    let short = long_tail.shortfalls(&dataset.train.labels, classes.len())?;
    let short = short
        .iter()
        .map(|QuotaShortfall { class, quota, images }| format!("{} has {images} of {quota}", classes[*class]));
    warn_of(
        &short.collect::<Vec<_>>(),
        "have fewer images than the subset asks for, so all of them are used",
        feedback,
    );
    let quotas = long_tail.quotas(dataset.train.labels.len() as u64, classes.len())?;
    let empty = quotas.iter().zip(classes).filter(|(quota, _)| **quota == 0).map(|(_, name)| name.clone());
    warn_of(&empty.collect::<Vec<_>>(), "are left without images", feedback);
    Ok(())
}

/// A warning that names the first classes and counts the others.
fn warn_of(classes: &[String], what: &str, feedback: &dyn Feedback) {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = classes.iter().take(SHOWN).map(String::as_str).collect();
    let more = if classes.len() > SHOWN { format!(" and {} more", classes.len() - SHOWN) } else { String::new() };
    if !classes.is_empty() {
        feedback.warn(&format!("{} classes {what}: {}{more}", classes.len(), shown.join(", ")));
    }
}
