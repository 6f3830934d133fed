//! Cross-validation: every image is predicted by a network that was not trained on it.

use std::collections::HashSet;
use std::path::Path;

use equipoise_data::Images;
use equipoise_data::dataset::class_counts;
use equipoise_data::subset::folds::{FoldRule, folds as divide};
use equipoise_decide::Logits;
use equipoise_decide::label_errors::{Suspect, rank};
use equipoise_record::{EpochMetrics, EvaluationDetails, Metrics, RunResult};

use super::RunContext;
use super::dataset::{SplitChoice, load};
use super::evaluation::{Evaluation, EvaluationOptions, evaluate_checkpoint};
use super::weights::load_checkpoint;
use crate::details::DetailsCollector;
use crate::error::TrainError;
use crate::evaluate::EvaluatedBatch;
use crate::metrics::EvaluationCounts;
use crate::prior::train_log_shares;
use crate::settings::{DataSettings, Settings};
use crate::sweep::SweepCounts;

/// The settings of every run of a repeated cross-validation, with a name each: `r1-f1` is the first fold of the first repetition.
#[must_use]
pub fn fold_settings(settings: &Settings, folds: u32, repeats: u32) -> Vec<(String, Settings)> {
    let run = |repeat: u32, fold: u32| {
        let mut settings = settings.clone();
        (settings.data.folds, settings.data.fold) = (folds, fold + 1);
        settings.data.split_seed = settings.data.split_seed.wrapping_add(u64::from(repeat));
        (format!("r{}-f{}", repeat + 1, fold + 1), settings)
    };
    (0..repeats).flat_map(|repeat| (0..folds).map(move |fold| run(repeat, fold))).collect()
}

/// Evaluates a finished run on the fold that it was not trained on.
///
/// # Errors
/// Returns an error if the run or its dataset can no longer be read.
pub fn evaluate_fold(run: &Path, context: &RunContext<'_>) -> Result<Evaluation, TrainError> {
    let checkpoint = load_checkpoint(run, context.feedback)?;
    let options = EvaluationOptions { split: Some(SplitChoice::Test), logits: true, ..EvaluationOptions::default() };
    evaluate_checkpoint(checkpoint, &options, context)
}

/// The numbers of the images of each fold among the images that are divided, repetition after repetition, for images in memory; none for
/// files and rows of features, which have names.
///
/// # Errors
/// Returns an error if the dataset cannot be read.
pub fn fold_numbers(
    settings: &Settings,
    folds: u32,
    repeats: u32,
    context: &RunContext<'_>,
) -> Result<Vec<Vec<u32>>, TrainError> {
    let data = DataSettings { test_fraction: 0.0, ..settings.data.clone() };
    let dataset = load(&data, context.data_root, &HashSet::new(), context.feedback)?.into_dataset();
    if !matches!(dataset.train.images, Images::Memory(_)) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for (_, fold) in fold_settings(settings, folds, repeats).iter().filter(|(_, fold)| fold.data.fold == 1) {
        let rule = FoldRule { folds, fold: 0, seed: fold.data.split_seed };
        let mut numbers = vec![Vec::new(); folds as usize];
        for (number, fold) in divide(&dataset.train, &dataset.groups, rule).into_iter().enumerate() {
            numbers[fold as usize].push(number as u32);
        }
        all.extend(numbers);
    }
    Ok(all)
}

/// The folds of one or several repetitions, all evaluated.
pub struct OutOfFold {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Images of each class.
    pub counts: Vec<u64>,
    /// Repetitions, each with its folds.
    pub repeats: Vec<Vec<Evaluation>>,
    /// Numbers of the images of each fold, as [`fold_numbers`] gives them.
    numbers: Vec<Vec<u32>>,
    settings: Settings,
}

/// Figures of a cross-validation.
pub struct PooledFigures {
    /// Metrics over all repetitions. Counts of classes are means over repetitions, so that every image counts once.
    pub metrics: Metrics,
    /// Metrics of each repetition.
    pub repeats: Vec<Metrics>,
    /// Details of each repetition.
    pub details: Vec<EvaluationDetails>,
}

impl OutOfFold {
    /// Puts evaluated folds together, in the order of [`fold_settings`].
    ///
    /// # Errors
    /// Returns an error if a label is not a class.
    pub fn new(
        settings: &Settings,
        folds: u32,
        evaluations: Vec<Evaluation>,
        numbers: Vec<Vec<u32>>,
    ) -> Result<Self, TrainError> {
        let mut repeats: Vec<Vec<Evaluation>> = Vec::new();
        for (number, evaluation) in evaluations.into_iter().enumerate() {
            if number.is_multiple_of(folds.max(1) as usize) {
                repeats.push(Vec::new());
            }
            if let Some(last) = repeats.last_mut() {
                last.push(evaluation);
            }
        }
        let first = repeats.first().map_or(&[][..], Vec::as_slice);
        let classes: Vec<String> = first.first().map_or_else(Vec::new, |evaluation| {
            evaluation.metrics.per_class.iter().map(|class| class.name.clone()).collect()
        });
        let labels: Vec<u32> = first.iter().flat_map(|evaluation| evaluation.data.labels.iter().copied()).collect();
        let counts = class_counts(&labels, classes.len())?;
        Ok(Self { classes, counts, repeats, numbers, settings: settings.clone() })
    }

    /// Figures over all images.
    #[must_use]
    pub fn figures(&self) -> PooledFigures {
        let groups = self.settings.groups.groups(&self.counts);
        let classes = self.classes.len();
        let count = |folds: &Vec<Evaluation>| {
            let mut counts = EvaluationCounts::new(classes);
            folds.iter().for_each(|fold| counts.add(&fold.logits, &fold.data.labels));
            counts
        };
        let all: Vec<EvaluationCounts> = self.repeats.iter().map(count).collect();
        let metrics = |counts: &EvaluationCounts| counts.metrics(&self.counts, &groups, &self.classes);
        let mut pooled = EvaluationCounts::new(classes);
        all.iter().for_each(|counts| pooled.merge(counts));
        let mut total = metrics(&pooled);
        let over = |n: u64| (n as f64 / all.len().max(1) as f64).round() as u64;
        for class in &mut total.per_class {
            (class.test, class.hits, class.predicted) = (over(class.test), over(class.hits), over(class.predicted));
        }
        total.unusable = over(total.unusable);
        let details = all.iter().enumerate().map(|(repeat, counts)| self.details(repeat, counts)).collect();
        PooledFigures { metrics: total, repeats: all.iter().map(metrics).collect(), details }
    }

    /// Details of a repetition, in which every image is there once.
    fn details(&self, repeat: usize, counts: &EvaluationCounts) -> EvaluationDetails {
        let groups = self.settings.groups.groups(&self.counts);
        let mut collector = DetailsCollector::new(&groups, self.classes.len());
        let folds = self.repeats.get(repeat).map_or(&[][..], Vec::as_slice);
        let train = train_log_shares(&self.counts);
        let mut sweeps: Option<SweepCounts> = None;
        let mut first = 0;
        for fold in folds {
            let (labels, logits) = (&fold.data.labels, &fold.logits);
            let batch = EvaluatedBatch { first, labels, logits, done: first + labels.len() };
            collector.add(&batch);
            // folds assume almost the same prior
            let sweep = sweeps.get_or_insert_with(|| SweepCounts::new(&fold.assumed, &train));
            batch.rows().for_each(|(row, label)| sweep.add(row, label));
            first += labels.len();
        }
        let describe = |index: u32| (self.name_in(repeat, index as usize), self.thumbnail_in(repeat, index as usize));
        let mut details = collector.finish(self.settings.epochs, counts, &describe);
        details.sweep = sweeps.map_or_else(Vec::new, |sweep| sweep.points(&groups));
        details
    }

    /// The fold of a repetition that holds an image, and its index there.
    fn find(&self, repeat: usize, mut index: usize) -> Option<(usize, u32)> {
        for (number, fold) in self.repeats.get(repeat)?.iter().enumerate() {
            if index < fold.data.labels.len() {
                return Some((number, index as u32));
            }
            index -= fold.data.labels.len();
        }
        None
    }

    /// All images of the first repetition with their labels, the most suspicious first.
    #[must_use]
    pub fn suspects(&self) -> Vec<Suspect> {
        let (mut logits, mut labels) = (Vec::new(), Vec::new());
        for fold in self.repeats.first().map_or(&[][..], Vec::as_slice) {
            // every network assumes a prior of its own
            for row in fold.logits.chunks_exact(self.classes.len().max(1)) {
                logits.extend(row.iter().zip(&fold.assumed).map(|(z, assumed)| (f64::from(*z) - assumed) as f32));
            }
            labels.extend_from_slice(&fold.data.labels);
        }
        rank(&Logits::new(&logits, &labels, self.classes.len()), &train_log_shares(&self.counts))
    }

    /// The name of an image of the first repetition: its file, or its number among all images.
    #[must_use]
    pub fn name(&self, row: usize) -> String {
        self.name_in(0, row)
    }

    fn name_in(&self, repeat: usize, row: usize) -> String {
        let Some((fold, index)) = self.find(repeat, row) else { return String::new() };
        let numbers = self.numbers.get(repeat * self.repeats[repeat].len() + fold);
        match numbers.and_then(|numbers| numbers.get(index as usize)) {
            Some(number) => format!("number {number}"),
            None => self.repeats[repeat][fold].data.name(index),
        }
    }

    /// The thumbnail of an image of the first repetition.
    #[must_use]
    pub fn thumbnail(&self, row: usize) -> Option<String> {
        self.thumbnail_in(0, row)
    }

    fn thumbnail_in(&self, repeat: usize, row: usize) -> Option<String> {
        self.find(repeat, row).and_then(|(fold, index)| self.repeats[repeat][fold].data.describe(index).1)
    }

    /// The result of a repetition as that of one run, for the report. `all` are the results of all runs.
    #[must_use]
    pub fn result(&self, figures: &PooledFigures, repeat: usize, all: &[RunResult]) -> Option<RunResult> {
        // of the first run, so that all repetitions are on the same data
        let first = all.first()?;
        let folds = self.repeats.get(repeat)?.len();
        let runs = all.get(repeat * folds..(repeat + 1) * folds)?;
        let metrics = figures.repeats.get(repeat)?.clone();
        let epoch = first.reported().map_or(first.epochs, |epoch| epoch.epoch);
        Some(RunResult {
            train_counts: self.counts.clone(),
            last: Some(EpochMetrics { epoch, metrics, val_balanced: None }),
            best: None,
            best_selected_on: None,
            seconds: runs.iter().map(|run| run.seconds).sum(),
            ..first.clone()
        })
    }
}
