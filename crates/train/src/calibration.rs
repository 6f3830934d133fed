//! Fits the calibration of a run, and tells what it changes.

use equipoise_criterion::AssumedPrior;
use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::temperature::{self, Fit};
use equipoise_decide::{Logits, log_softmax};
use equipoise_record::{
    BeforeAndAfter, Calibration, CalibrationImages, ClassProbabilities, Decisions, ProbabilityFigures, ReliabilityBin,
    TemperatureFit,
};

use crate::metrics::{EvaluationSums, Outcome, group_of_classes, reliability};
use crate::trainer::Position;

/// Logits of calibration images that are kept in memory at most, 256 MiB. A trainer with more leaves the calibration to the user.
pub(crate) const MAX_LOGITS: usize = 1 << 26;

/// Fits the temperature of a network's logits, unless they are too few, and keeps what decisions need of every image. `source` says which images they are.
#[must_use]
pub fn calibrate(logits: &Logits<'_>, assumed: &AssumedPrior, position: Position, source: &str) -> Calibration {
    let to_uniform: Vec<f64> = assumed.log_shares.iter().map(|log| -log).collect();
    let found = temperature::fit(logits, &to_uniform);
    let temperature = found.temperature();
    let fit = match found {
        Fit::Fitted(_) => TemperatureFit::Fitted,
        Fit::AtBound(_) => TemperatureFit::AtBound,
        Fit::TooFewImages => TemperatureFit::TooFewImages,
    };
    let mut images = CalibrationImages::default();
    for (row, label) in logits.rows() {
        let Some(prediction) = Outcome::new(row, label).prediction else { continue };
        let sums: Vec<f64> = row.iter().zip(&to_uniform).map(|(z, o)| f64::from(*z) / temperature + o).collect();
        images.labels.push(label as u32);
        images.predicted.push(prediction.class as u32);
        images.scores.push(row[prediction.class]);
        images.probabilities.push(log_softmax(&sums)[label].exp() as f32);
    }
    let (epoch, steps) = (position.epoch, position.total_steps);
    Calibration {
        epoch,
        steps,
        source: source.to_owned(),
        temperature,
        fit,
        images,
        test: None,
        decisions: Decisions::default(),
    }
}

/// What a temperature makes of images: their outcomes without and with it.
pub(crate) fn before_and_after(
    outcomes: [&[Outcome]; 2],
    labels: &[u32],
    groups: &[ClassGroup],
    classes: usize,
) -> Option<BeforeAndAfter> {
    let [before, after] = outcomes.map(|outcomes| figures(outcomes, labels, groups, classes));
    (!labels.is_empty()).then_some(BeforeAndAfter { before, after })
}

fn figures(outcomes: &[Outcome], labels: &[u32], groups: &[ClassGroup], classes: usize) -> ProbabilityFigures {
    let group = group_of_classes(groups, classes);
    let mut sums = EvaluationSums::new(classes);
    let mut by_class = vec![ClassProbabilities::default(); classes];
    let mut bins = vec![reliability::empty_bins(); groups.len()];
    for (outcome, &label) in outcomes.iter().zip(labels) {
        sums.add_outcome(outcome, label as usize);
        let Some(prediction) = outcome.prediction else { continue };
        let class = &mut by_class[label as usize];
        class.images += 1;
        class.hits += u64::from(prediction.class == label as usize);
        class.confidence += prediction.confidence;
        class.loss += prediction.loss;
        reliability::add(&mut bins[group[label as usize]], &prediction, label);
    }
    for class in by_class.iter_mut().filter(|class| class.images > 0) {
        class.confidence /= class.images as f64;
        class.loss /= class.images as f64;
    }
    let losses: Vec<f64> = by_class.iter().filter(|class| class.images > 0).map(|class| class.loss).collect();
    let names = vec![String::new(); classes];
    let metrics = sums.metrics(&vec![0; classes], &[], &names);
    ProbabilityFigures {
        loss: metrics.loss,
        balanced_loss: (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64),
        calibration: metrics.calibration,
        reliability: bins.iter().map(|bins: &Vec<ReliabilityBin>| reliability::means(bins)).collect(),
        classes: by_class,
    }
}
