//! Runs on the same data, side by side: the accuracy of each criterion by group of classes, its difference from the
//! baseline, and the sentence that sums it up. A sentence never claims more than the seeds support.
//!
//! - `build`: from runs to comparisons.
//! - `captions`: the captions of all tables.
//! - `labels`: names for variants, by the settings in which they differ.
//! - `sampling`: how much of a difference is due to the choice of test images.
//! - `significance`: which differences can be told from noise.
//! - `styles`: colors and markers of variants.
//! - `verdict`: the sentences.

mod build;
pub(crate) mod captions;
mod labels;
mod sampling;
mod significance;
mod styles;
mod verdict;

use equipoise_decide::wilson;
use equipoise_record::{GroupMembers, SelectionSplit};
use equipoise_support::Examples;

use crate::run::setting_keys as keys;
use crate::run::{RecordedRun, ReportedEpoch};
use crate::statistics::{Difference, Spread, tenths};

pub use styles::STYLES;

/// Runs on the same data: the same classes, the same number of images per class, the same groups.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name of the dataset, with its imbalance factor.
    pub dataset: String,
    /// All runs that take part.
    pub runs: Vec<RecordedRun>,
    /// What is compared; the baseline comes first.
    pub variants: Vec<Variant>,
    /// Classifiers without training on the same data, if the comparison has any.
    pub baselines: Vec<Baseline>,
    /// Classes in the order of the dataset.
    pub classes: Vec<Class>,
    /// Groups of classes, the largest classes first.
    pub groups: Vec<GroupMembers>,
    /// Names of the table's columns: the groups, `overall` and, if classes differ in their number of test images,
    /// `balanced`.
    pub columns: Vec<String>,
    /// Epoch that the table reports.
    pub epoch: ReportedEpoch,
    /// Settings that all variants share, by key.
    pub shared: Vec<(String, String)>,
    /// Remarks that a reader needs before trusting the table.
    pub notes: Vec<String>,
    /// By column: the accuracy that one test image is worth, in percentage points. No difference is known more
    /// precisely.
    resolution: Vec<f64>,
}

/// A classifier without training.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// What it is.
    pub label: String,
    /// Accuracy by column.
    pub cells: Vec<Cell>,
}

/// A class of the dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name of the class.
    pub name: String,
    /// Number of training images.
    pub train: u64,
    /// Number of test images.
    pub test: u64,
}

/// Accuracy of a variant on one class over its runs, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassAccuracy {
    /// Arithmetic mean over seeds.
    pub mean: f64,
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
    /// The 95 % interval of the mean for other test images (Wilson), whatever the seed; `None` for several classes together.
    pub interval: Option<[f64; 2]>,
}

/// Runs that differ only in their seeds.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What distinguishes the variant from the others; usually the name of its criterion.
    pub label: String,
    /// Name of the criterion.
    pub criterion: String,
    /// The variant's runs, one per seed: indices into [`Comparison::runs`].
    pub runs: Vec<usize>,
    /// Color, dash and marker: those of the criterion, unless another variant has them; less than [`STYLES`].
    pub style: usize,
    /// Accuracy by column.
    pub cells: Vec<Cell>,
    /// Accuracy by column at the best epoch, where that was selected on the test set.
    pub optimistic: Option<Vec<Cell>>,
}

/// Accuracy of a variant in one column.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Seeds and accuracies, in percent.
    pub values: Vec<(u64, f64)>,
    /// Mean and standard deviation; `None` without values.
    pub spread: Option<Spread>,
    /// Whether it is the highest of its column and distinguishable from every other.
    pub bold: bool,
}

impl Cell {
    fn new(values: Vec<(u64, f64)>) -> Self {
        let spread = Spread::over_seeds(&values);
        Self { values, spread, bold: false }
    }

    /// The cell as text: `61.5 ± 0.8`, or `n/a`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.spread {
            None => "n/a".to_owned(),
            Some(Spread { mean, sd: None, .. }) => tenths(mean),
            Some(Spread { mean, sd: Some(sd), .. }) => format!("{} ± {}", tenths(mean), tenths(sd)),
        }
    }
}

impl Comparison {
    /// Compares runs: one comparison for each dataset among them, and for each network if criteria differ too, in the order of the
    /// runs. Runs that have not finished are left out beside others that have, and noted with their progress.
    #[must_use]
    pub fn all(runs: Vec<RecordedRun>) -> Vec<Self> {
        build::by_dataset(runs)
    }

    /// Makes the variant with this label the baseline.
    ///
    /// # Errors
    /// If no variant has this label; returns the labels of all variants.
    pub fn with_baseline(mut self, label: &str) -> Result<Self, Vec<String>> {
        let Some(index) = self.variants.iter().position(|variant| variant.label == label) else {
            return Err(self.variants.into_iter().map(|variant| variant.label).collect());
        };
        self.variants[..=index].rotate_right(1);
        Ok(self)
    }

    /// The dataset and, if all runs share them, the model, its precision if that is not f32, and the number of epochs.
    #[must_use]
    pub fn title(&self) -> String {
        let shared = |key: &str| self.shared.iter().find(|(known, _)| known == key).map(|(_, value)| value);
        let word = |key: &str| shared(key).map(|value| value.trim_matches('"').to_owned());
        let precision = word(keys::PRECISION).filter(|precision| precision != "f32");
        let model = match (word(keys::MODEL), precision) {
            (Some(model), Some(precision)) => Some(format!("{model} in {precision}")),
            (model, _) => model,
        };
        let epochs =
            shared(keys::EPOCHS).map(|epochs| format!("{epochs} {}", if epochs == "1" { "epoch" } else { "epochs" }));
        [Some(self.dataset.clone()), model, epochs].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The columns of the table that are shown: a single group of all classes says nothing beside the columns about all of them.
    pub fn shown_columns(&self) -> std::ops::Range<usize> {
        usize::from(self.groups.len() == 1)..self.columns.len()
    }

    /// What the runs are trained and tested on.
    #[must_use]
    pub fn examples(&self) -> Examples {
        Examples::of_model(self.runs.first().and_then(|run| run.setting(keys::MODEL)).unwrap_or_default())
    }

    /// The number of folds, if the figures are those of cross-validations.
    #[must_use]
    pub fn folds(&self) -> Option<u32> {
        let folds = self.runs.first()?.setting(keys::FOLDS)?.parse().ok()?;
        (folds > 0).then_some(folds)
    }

    /// What runs of a variant differ in: their seeds, or the repetitions of a cross-validation.
    #[must_use]
    pub(crate) fn seeds_word(&self) -> &'static str {
        if self.folds().is_some() { "repetitions" } else { "seeds" }
    }

    /// The reported epoch in words.
    #[must_use]
    pub fn epoch_text(&self) -> &'static str {
        match (self.epoch, self.runs.iter().all(|run| run.result.is_some())) {
            (ReportedEpoch::Best, _) => SelectionSplit::Val.best_epoch(),
            (ReportedEpoch::Last, true) => "last epoch",
            (ReportedEpoch::Last, false) => "latest evaluation",
        }
    }

    /// Accuracy of a variant by class.
    #[must_use]
    pub fn class_accuracies(&self, variant: usize) -> Vec<Option<ClassAccuracy>> {
        let runs = self.variants.get(variant).map_or(&[][..], |variant| &variant.runs);
        let evaluations: Vec<_> = runs.iter().filter_map(|run| self.runs[*run].evaluation(self.epoch)).collect();
        let accuracy = |class: usize| {
            let values = evaluations.iter().filter_map(|evaluation| evaluation.metrics.per_class.get(class)?.recall());
            let values: Vec<f64> = values.map(|recall| 100.0 * recall).collect();
            let mean = Spread::of(&values)?.mean;
            let (min, max) = values.iter().fold((mean, mean), |(min, max), x| (min.min(*x), max.max(*x)));
            // all seeds see the same test images, so more seeds are not more images
            let rate = (mean / 100.0).clamp(0.0, 1.0);
            let interval = wilson::interval_of_mean(rate, self.classes[class].test);
            let interval = interval.map(|interval| interval.map(|bound| 100.0 * bound));
            Some(ClassAccuracy { mean, min, max, interval })
        };
        (0..self.classes.len()).map(accuracy).collect()
    }

    /// Every class with its group: group by group, the largest classes first.
    #[must_use]
    pub fn by_size(&self) -> Vec<(usize, Option<usize>)> {
        let mut group_of = vec![None; self.classes.len()];
        for (index, group) in self.groups.iter().enumerate().rev() {
            for class in &group.classes {
                if let Some(group_of) = group_of.get_mut(*class) {
                    *group_of = Some(index);
                }
            }
        }
        let mut order: Vec<(usize, Option<usize>)> = group_of.into_iter().enumerate().collect();
        order.sort_by_key(|(class, group)| {
            (group.unwrap_or(usize::MAX), std::cmp::Reverse(self.classes[*class].train), *class)
        });
        order
    }

    /// Difference of a variant from the baseline in a column; `None` for the baseline itself, and where values are
    /// missing.
    #[must_use]
    pub fn difference(&self, variant: usize, column: usize) -> Option<Difference> {
        let baseline = self.variants.first().filter(|_| variant > 0)?;
        significance::difference(self, self.variants.get(variant)?, baseline, column, significance::ERROR)
    }

    /// Style of a variant, less than [`STYLES`].
    #[must_use]
    pub fn style(&self, variant: usize) -> usize {
        self.variants.get(variant).map_or(0, |variant| variant.style)
    }

    /// The verdict: the sentence about the variant furthest ahead of the baseline on the smallest classes, and the
    /// sentences about the others.
    #[must_use]
    pub fn verdict(&self) -> (String, Vec<String>) {
        verdict::verdict(self)
    }

    /// The sentence that compares a variant with the baseline.
    #[must_use]
    pub fn sentence(&self, variant: usize) -> String {
        verdict::sentence(self, variant)
    }
}
