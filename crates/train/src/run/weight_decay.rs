//! The weight decay of a head on features, chosen by stratified cross-validation on the training rows.

use equipoise_data::dataset::class_counts;
use equipoise_data::{Dataset, Split};
use equipoise_pool::Pool;
use equipoise_random::{Example, Stream};
use equipoise_record::RunFolder;

use super::RunContext;
use super::build::{engine, network};
use super::class_means::start_at_class_means;
use crate::error::TrainError;
use crate::prepare::{RunData, take_validation_split};
use crate::settings::{OptimizerKind, SelectBest, Settings};
use crate::trainer::{FULL_BATCH_ROWS, NoObserver, RunEnd, Trainer};
use crate::workers::SingleProcess;

/// The values that are tried, the strongest first: of equally good ones the simplest model is chosen.
const CANDIDATES: [f64; 7] = [1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5];

/// The weight decay with the highest balanced accuracy over all folds. Every class is spread over the folds as evenly as it can be;
/// the test split and a validation split take no part.
///
/// # Errors
/// Returns an error if a run of a fold fails.
pub(super) fn choose_weight_decay(
    dataset: &Dataset,
    settings: &Settings,
    context: &RunContext<'_>,
) -> Result<f64, TrainError> {
    let mut dataset = dataset.clone();
    take_validation_split(&mut dataset, settings)?;
    let folds = settings.optimizer.cross_validation;
    let fold_of = stratified_folds(&dataset.train.labels, dataset.classes.len(), folds, settings.data.split_seed)?;
    let (mut best, mut highest) = (settings.optimizer.weight_decay, f64::NEG_INFINITY);
    for (number, decay) in CANDIDATES.into_iter().enumerate() {
        let (mut correct, mut examples) = (vec![0u64; dataset.classes.len()], vec![0u64; dataset.classes.len()]);
        for fold in 0..folds {
            context.feedback.reading(
                u64::from(fold) + number as u64 * u64::from(folds),
                CANDIDATES.len() as u64 * u64::from(folds),
            );
            for (class, [hits, all]) in
                evaluate_fold(&dataset, &fold_of, fold, decay, settings, context.pool)?.into_iter().enumerate()
            {
                correct[class] += hits;
                examples[class] += all;
            }
        }
        let accuracies: Vec<f64> = correct
            .iter()
            .zip(&examples)
            .filter(|(_, all)| **all > 0)
            .map(|(hits, all)| *hits as f64 / *all as f64)
            .collect();
        let balanced = accuracies.iter().sum::<f64>() / accuracies.len().max(1) as f64;
        if balanced > highest {
            (best, highest) = (decay, balanced);
        }
    }
    context.feedback.reading_done();
    let tried = CANDIDATES.map(|decay| decay.to_string()).join(", ");
    let percent = 100.0 * highest;
    context.feedback.note(&format!(
        "weight decay {best}, chosen by cross-validation among {tried}: {percent:.1} % balanced accuracy over {folds} folds of the training rows"
    ));
    Ok(best)
}

/// The fold of every row: the rows of a class in a random order, one fold after the other.
fn stratified_folds(labels: &[u32], classes: usize, folds: u32, seed: u64) -> Result<Vec<u32>, TrainError> {
    class_counts(labels, classes)?;
    let mut of = vec![0; labels.len()];
    for class in 0..classes as u32 {
        let mut rows: Vec<u32> = (0..labels.len() as u32).filter(|row| labels[*row as usize] == class).collect();
        rows.sort_by_key(|row| {
            Example { seed, epoch: 1, example: u64::from(*row) }.draws(Stream::ValidationSplit).at(0)
        });
        // small classes do not all begin with the same fold
        rows.iter().zip(class..).for_each(|(row, turn)| of[*row as usize] = turn % folds);
    }
    Ok(of)
}

/// Correct predictions and examples of every class in a fold, after training on the others.
fn evaluate_fold(
    dataset: &Dataset,
    fold_of: &[u32],
    fold: u32,
    decay: f64,
    settings: &Settings,
    pool: &Pool,
) -> Result<Vec<[u64; 2]>, TrainError> {
    let rows = |is_held_out: bool| -> Split {
        let indices: Vec<u32> =
            (0..fold_of.len() as u32).filter(|row| (fold_of[*row as usize] == fold) == is_held_out).collect();
        dataset.train.subset(&indices)
    };
    let own = Dataset { train: rows(false), val: None, test: rows(true), ..dataset.clone() };
    let mut settings = settings.clone();
    (settings.optimizer.weight_decay, settings.optimizer.cross_validation) = (decay, 0);
    settings.data.hold_nothing_out();
    settings.patience = 0;
    (settings.select_best, settings.evaluate_every) = (SelectBest::Last, settings.epochs);
    let data = RunData::new(own, &settings, None, pool, &|_, _| {})?;
    let images = data.train.labels.len();
    let rows = if settings.optimizer.name == OptimizerKind::Lbfgs { FULL_BATCH_ROWS } else { settings.batch_size };
    let mut engine = engine(network(&settings, &data)?, rows.min(images), settings.seed, settings.precision, pool)?;
    if settings.model.class_means {
        start_at_class_means(&mut engine, &data, pool)?;
    }
    let mut trainer = Trainer::new(settings, data, engine, SingleProcess, pool.clone())?;
    if trainer.run(None::<&RunFolder>, &mut NoObserver)? != RunEnd::Finished {
        return Err(TrainError::Unusable { what: "a run of the cross-validation was interrupted".to_owned() });
    }
    let last = trainer.history().last().and_then(|epoch| epoch.test.as_ref());
    let counts = last.map(|metrics| metrics.per_class.iter().map(|class| [class.hits, class.test]).collect());
    Ok(counts.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_spread_over_the_folds() {
        let labels: Vec<u32> = [vec![0; 10], vec![1; 5], vec![2; 3]].concat();
        let folds = stratified_folds(&labels, 3, 5, 0).expect("good labels");
        let of = |class: u32, fold: u32| labels.iter().zip(&folds).filter(|(l, f)| (**l, **f) == (class, fold)).count();
        for fold in 0..5 {
            assert_eq!((of(0, fold), of(1, fold)), (2, 1));
            assert!(of(2, fold) <= 1);
        }
        assert_ne!(folds, stratified_folds(&labels, 3, 5, 1).expect("good labels"));
    }
}
