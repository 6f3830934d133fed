//! The result of a run: `result.json`.

use equipoise_criterion::SimdLevel;
use equipoise_nn::Engine;
use equipoise_record::{EpochMetrics, EpochRecord, RunResult, SelectionSplit};
use serde_json::{Value, json};

use super::memory::peak_mb;
use crate::settings::SelectBest;
use crate::trainer::Trainer;
use crate::workers::Workers;

/// Validation images below which the best epoch is chance: with 20, the accuracy is known to about 22 points.
pub(super) const FEWEST_VALIDATION_IMAGES: usize = 20;

/// What only the program that executes a run can know: the library never reads the clock.
#[derive(Clone, Debug)]
pub struct Measurements {
    /// Images per second in training.
    pub images_per_second: f64,
    /// Duration of the whole run in seconds.
    pub seconds: f64,
    /// Version of the program.
    pub version: String,
    /// Commit that the program was built from.
    pub commit: String,
}

/// The result of a run that was trained to its end.
pub(super) fn result<E: Engine, W: Workers>(
    trainer: &Trainer<E, W>,
    stopped_early: bool,
    measured: &Measurements,
) -> RunResult {
    let settings = trainer.settings();
    let mut criterion = json!(settings.criterion);
    let tenths = |x: f64| (x * 10.0).round() / 10.0;
    RunResult {
        dataset: trainer.data().name.clone(),
        imbalance: settings.data.imbalance,
        criterion: settings.criterion.method.id().name().to_owned(),
        params: criterion["params"].take(),
        drw: criterion.get_mut("drw").map(Value::take),
        logit_adjustment: settings.logit_adjustment,
        model: settings.architecture().to_string(),
        precision: Some(settings.precision.to_string()),
        seed: settings.seed,
        subset_seed: settings.data.subset_seed,
        epochs: settings.epochs,
        schedule: json!(settings.schedule()),
        train_counts: trainer.data().counts.clone(),
        last: trainer.history().last().and_then(metrics),
        best: trainer.best().and_then(metrics),
        best_selected_on: best_selected_on(trainer),
        stopped_early,
        warnings: trainer.divergence().into_iter().chain(few_validation_images(trainer)).collect(),
        images_per_second: tenths(measured.images_per_second),
        seconds: tenths(measured.seconds),
        peak_mb: peak_mb(),
        machine: Some(machine(trainer.threads())),
        version: measured.version.clone(),
        commit: measured.commit.clone(),
    }
}

/// The test metrics of an epoch, if it was evaluated.
fn metrics(epoch: &EpochRecord) -> Option<EpochMetrics> {
    let val_balanced = epoch.val.as_ref().and_then(|metrics| metrics.balanced);
    Some(EpochMetrics { epoch: epoch.epoch, metrics: epoch.test.clone()?, val_balanced })
}

/// The split that the best epoch was selected on.
fn best_selected_on<E: Engine, W: Workers>(trainer: &Trainer<E, W>) -> Option<SelectionSplit> {
    match trainer.settings().select_best {
        SelectBest::Test => Some(SelectionSplit::Test),
        SelectBest::Auto | SelectBest::Val if trainer.data().val.is_some() => Some(SelectionSplit::Val),
        SelectBest::Last | SelectBest::Auto | SelectBest::Val => None,
    }
}

/// A sentence about a best epoch that was selected on very few images.
fn few_validation_images<E: Engine, W: Workers>(trainer: &Trainer<E, W>) -> Option<String> {
    let images = trainer.data().val.as_ref().map_or(0, |val| val.labels.len());
    let is_selected = best_selected_on(trainer) == Some(SelectionSplit::Val);
    (is_selected && images < FEWEST_VALIDATION_IMAGES).then(|| few_images(images))
}

/// What a best epoch is worth that was selected on this many validation images.
pub(super) fn few_images(images: usize) -> String {
    let are = if images == 1 { "image is" } else { "images are" };
    format!("{images} validation {are} too few to tell which epoch is the best")
}

/// The processor, its instructions and the number of threads.
fn machine(threads: usize) -> String {
    let instructions = match SimdLevel::best() {
        SimdLevel::Portable => "",
        SimdLevel::Avx2(_) => " with AVX2",
        SimdLevel::Avx512(_) | SimdLevel::Avx512Bf16(_) => " with AVX-512",
    };
    let threads = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
    format!("{}{instructions}, {threads}", std::env::consts::ARCH)
}
