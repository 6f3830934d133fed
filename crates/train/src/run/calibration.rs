//! The calibration in a run folder: made from a dataset, and read.

use std::path::{Path, PathBuf};

use equipoise_decide::Logits;
use equipoise_record::names::CALIBRATION;
use equipoise_record::{Calibration, Decisions};
use equipoise_support::Examples;

use super::RunContext;
use super::dataset::SplitChoice;
use super::evaluation::{Evaluation, EvaluationOptions, evaluate_checkpoint};
use super::files::{input_error, read_text};
use crate::calibration::{before_and_after, calibrate};
use crate::checkpoint::{Checkpoint, CheckpointHeader};
use crate::decision::{Decision, DecisionTally};
use crate::error::TrainError;
use crate::evaluate::LogitAdjustment;
use crate::metrics::Outcome;
use crate::prior::assumed_prior;

/// The folder of a run that is named by its folder or by a checkpoint in it.
fn folder(run: &Path) -> PathBuf {
    match run.is_dir() {
        true => run.to_owned(),
        false => run.parent().map_or_else(PathBuf::new, Path::to_owned),
    }
}

/// The calibration of a run's weights; `None` if there is none, or it is that of other weights, about which the user is told.
///
/// # Errors
/// Returns an error if the file cannot be read or used.
pub fn read_calibration(
    run: &Path,
    header: &CheckpointHeader,
    context: &dyn super::Feedback,
) -> Result<Option<Calibration>, TrainError> {
    let path = folder(run).join(CALIBRATION);
    if !path.exists() {
        return Ok(None);
    }
    let again = "remove it, or make it again with `equipoise calibrate RUN`";
    let calibration: Calibration = serde_json::from_str(&read_text(&path)?)
        .map_err(|error| input_error(&path, format!("not a calibration: {error}; {again}")))?;
    let classes = header.classes.len();
    let images = &calibration.images;
    let are_classes = images.labels.iter().chain(&images.predicted).all(|class| (*class as usize) < classes);
    let is_temperature = calibration.temperature.is_finite() && calibration.temperature > 0.0;
    if images.number().is_none() || !are_classes || !is_temperature {
        return Err(input_error(&path, format!("it holds impossible values; {again}")));
    }
    let position = header.position;
    if (calibration.epoch, calibration.steps) != (position.epoch, position.total_steps) {
        context.warn(&format!(
            "{} is of the weights of epoch {}, and those of epoch {} are used: probabilities are not calibrated; {again}",
            path.display(),
            calibration.epoch,
            position.epoch
        ));
        return Ok(None);
    }
    Ok(Some(calibration))
}

/// Calibrates a checkpoint on the validation images of its run, or on what the options say of a split or of another dataset.
///
/// # Errors
/// Returns an error if there are no such images, or they were trained on.
pub fn calibrate_checkpoint(
    checkpoint: &Checkpoint,
    images: &EvaluationOptions,
    context: &RunContext<'_>,
) -> Result<Calibration, TrainError> {
    let header = &checkpoint.header;
    let dataset = images.dataset.as_deref();
    let split = images.split.or(if dataset.is_none() { Some(SplitChoice::Val) } else { None });
    if split == Some(SplitChoice::Train) || (dataset.is_none() && split == Some(SplitChoice::All)) {
        let what = "training images tell nothing about images that were not trained on; choose --split val or test, or name a dataset";
        return Err(TrainError::Unusable { what: what.to_owned() });
    }
    let options =
        |split: Option<SplitChoice>, images: EvaluationOptions| EvaluationOptions { split, logits: true, ..images };
    let settings = &header.settings.data;
    if dataset.is_none()
        && split == Some(SplitChoice::Val)
        && settings.val_fraction == 0.0
        && settings.val_per_class == 0
        && settings.val_data.is_none()
    {
        let what = format!(
            "the run on {} has no validation images of its own; train with --val-fraction 0.1, or name images that were not trained on: \
             `equipoise calibrate RUN DATA`",
            header.dataset
        );
        // the dataset may come with a validation split
        if !has_validation_split(checkpoint, context) {
            return Err(TrainError::Unusable { what });
        }
    }
    let evaluation = evaluate_checkpoint(checkpoint.clone(), &options(split, images.clone()), context)?;
    let examples = Examples::of_model(header.settings.architecture().name());
    let source = match (evaluation.own, evaluation.split) {
        (true, SplitChoice::Val) => format!("validation {}", examples.many()),
        (true, split) => format!("{split} {}", examples.many()),
        (false, _) => format!("{} of {}", examples.many(), evaluation.dataset),
    };
    if evaluation.own && evaluation.split == SplitChoice::Test {
        let text =
            "calibrated on the test images of the run, so that figures on them are no longer those of new images";
        context.feedback.warn(&examples.say(text));
    }
    let (classes, adjustment) = (header.classes.len(), adjustment(header));
    let assumed = assumed_prior(&header.settings, &header.counts, &adjustment)?;
    let logits = Logits::new(&evaluation.logits, &evaluation.data.labels, classes);
    let mut calibration = calibrate(&logits, &assumed, header.position, &source);
    let test = match evaluation.own && evaluation.split == SplitChoice::Test {
        true => Some(evaluation),
        false => evaluate_checkpoint(
            checkpoint.clone(),
            &options(Some(SplitChoice::Test), EvaluationOptions::default()),
            context,
        )
        .ok(),
    };
    if let Some(test) = test {
        calibration.test = figures(&test, &calibration, classes);
        calibration.decisions = decisions(&test, &calibration, header, &adjustment);
    }
    Ok(calibration)
}

fn has_validation_split(checkpoint: &Checkpoint, context: &RunContext<'_>) -> bool {
    checkpoint.header.best.is_some()
        || super::dataset::load(
            &checkpoint.header.settings.data,
            context.data_root,
            &Default::default(),
            context.feedback,
        )
        .is_ok_and(|loaded| loaded.dataset.val.is_some())
}

fn adjustment(header: &CheckpointHeader) -> LogitAdjustment {
    LogitAdjustment::new(&header.settings.criterion.method, &header.counts, header.settings.logit_adjustment)
}

/// What sets and rejections do on the test images.
fn decisions(
    test: &Evaluation,
    calibration: &Calibration,
    header: &CheckpointHeader,
    adjustment: &LogitAdjustment,
) -> Decisions {
    let run = (&header.settings, &header.counts[..]);
    let Some(decision) = Decision::for_report(run, adjustment, &test.groups, calibration) else {
        return Decisions::default();
    };
    let mut tally = DecisionTally::new(&decision, &test.groups, header.classes.len());
    for (row, label) in Logits::new(&test.logits, &test.data.labels, header.classes.len()).rows() {
        let mut probable = row.to_vec();
        decision.apply(&mut probable);
        tally.add(row, &probable, label);
    }
    tally.record()
}

fn figures(test: &Evaluation, calibration: &Calibration, classes: usize) -> Option<equipoise_record::BeforeAndAfter> {
    let rows = || Logits::new(&test.logits, &test.data.labels, classes);
    let outcomes = |temperature: f64| -> Vec<Outcome> {
        let scaled = |row: &[f32]| row.iter().map(|z| (f64::from(*z) / temperature) as f32).collect::<Vec<f32>>();
        rows().rows().map(|(row, label)| Outcome::new(&scaled(row), label)).collect()
    };
    let (before, after) = (outcomes(1.0), outcomes(calibration.temperature));
    before_and_after([&before, &after], &test.data.labels, &test.groups, classes)
}
