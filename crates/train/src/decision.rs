//! What becomes of the adjusted logits of a trained network: probabilities, sets of classes, rejections.
//!
//! Sets and rejections do not depend on the target prior: what they promise holds class by class, or group by group.

mod tally;

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::log_softmax;
use equipoise_decide::rejection::{Answer, Rejection};
use equipoise_decide::sets::{PredictionSets, fewest_images};
use equipoise_record::Calibration;

pub use self::tally::{DecisionTally, GroupRejections, GroupSets, RejectionFigures, RowDecision, SetFigures};
use crate::checkpoint::CheckpointHeader;
use crate::error::TrainError;
use crate::evaluate::LogitAdjustment;
use crate::prior::{TargetPrior, assumed_prior};
use crate::settings::Settings;

/// Share of the images whose set may miss their class, in reports.
pub(crate) const REPORTED_ALPHA: f64 = 0.1;
/// Share of the right answers that may be rejected, in reports.
pub(crate) const REPORTED_RATE: f64 = 0.05;

/// How logits become decisions.
#[derive(Clone, Debug, Default)]
pub struct DecisionOptions {
    /// The calibration of the run, if it has one.
    pub calibration: Option<Calibration>,
    /// Shares of the classes where the network is used.
    pub prior: TargetPrior,
    /// Share of the images whose set may miss their class; `None` for no sets.
    pub sets: Option<f64>,
    /// Share of the right answers that may be rejected; `None` to reject nothing.
    pub reject: Option<f64>,
}

/// Decisions about rows of adjusted logits.
#[derive(Clone, Debug)]
pub struct Decision {
    temperature: f64,
    /// Offsets of the logits for the target prior; empty for none.
    offsets: Vec<f64>,
    /// Make the prior of the logits uniform.
    to_uniform: Vec<f64>,
    sets: Option<PredictionSets>,
    rejection: Option<Rejection>,
    /// Whether the prior that the logits assume follows from the criterion's equation.
    pub prior_is_exact: bool,
}

impl Decision {
    /// Prepares the decisions of a run with this adjustment and these groups of classes.
    ///
    /// # Errors
    /// If an option needs a calibration that is not there, or one with more images, or is out of range.
    pub fn new(
        header: &CheckpointHeader,
        adjustment: &LogitAdjustment,
        groups: &[ClassGroup],
        options: &DecisionOptions,
    ) -> Result<Self, TrainError> {
        Self::of_run((&header.settings, &header.counts), adjustment, groups, options)
    }

    /// The decisions that a report shows: sets and rejections at the usual shares, as far as there are enough calibration images; `None` without
    /// any.
    pub(crate) fn for_report(
        (settings, counts): (&Settings, &[u64]),
        adjustment: &LogitAdjustment,
        groups: &[ClassGroup],
        calibration: &Calibration,
    ) -> Option<Self> {
        let of = |sets: Option<f64>, reject: Option<f64>| {
            let calibration = Some(calibration.clone());
            let options = DecisionOptions { calibration, prior: TargetPrior::Assumed, sets, reject };
            Self::of_run((settings, counts), adjustment, groups, &options).ok()
        };
        let (sets, reject) = (Some(REPORTED_ALPHA), Some(REPORTED_RATE));
        of(sets, reject).or_else(|| of(sets, None)).or_else(|| of(None, reject))
    }

    fn of_run(
        (settings, counts): (&Settings, &[u64]),
        adjustment: &LogitAdjustment,
        groups: &[ClassGroup],
        options: &DecisionOptions,
    ) -> Result<Self, TrainError> {
        let assumed = assumed_prior(settings, counts, adjustment)?;
        let classes = counts.len();
        let sets = options.sets.map(|alpha| sets(options, classes, alpha)).transpose()?;
        let rejection = options.reject.map(|rate| rejection(options, groups, classes, rate)).transpose()?;
        Ok(Self {
            temperature: options.calibration.as_ref().map_or(1.0, |calibration| calibration.temperature),
            offsets: options.prior.offsets(&assumed, counts)?,
            to_uniform: assumed.log_shares.iter().map(|log| -log).collect(),
            sets,
            rejection,
            prior_is_exact: assumed.is_exact,
        })
    }

    /// Temperature of the probabilities.
    #[must_use]
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Offsets of the target prior, added after the temperature; empty for none.
    #[must_use]
    pub fn offsets(&self) -> &[f64] {
        &self.offsets
    }

    /// Whether logits stay as they are.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.temperature == 1.0 && self.offsets.is_empty()
    }

    /// Logits whose softmax has the probabilities.
    pub fn apply(&self, logits: &mut [f32]) {
        if !self.is_neutral() {
            LogitAdjustment { scale: 1.0, offsets: Vec::new() }.then(self.temperature, &self.offsets).apply(logits);
        }
    }

    /// The sets, if there are any.
    #[must_use]
    pub fn sets(&self) -> Option<&PredictionSets> {
        self.sets.as_ref()
    }

    /// The thresholds of rejection, if there are any.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    /// The classes that may well be that of an image with these adjusted logits, the most probable first.
    #[must_use]
    pub fn set(&self, logits: &[f32]) -> Option<Vec<usize>> {
        let sets = self.sets.as_ref()?;
        let sums: Vec<f64> =
            logits.iter().zip(&self.to_uniform).map(|(z, o)| f64::from(*z) / self.temperature + o).collect();
        Some(sets.set(&log_softmax(&sums).iter().map(|log| log.exp()).collect::<Vec<_>>()))
    }

    /// Whether an image with these adjusted logits is probably none of the classes.
    #[must_use]
    pub fn rejects(&self, logits: &[f32]) -> bool {
        self.rejection.as_ref().is_some_and(|rejection| {
            let (class, score) = largest(logits);
            rejection.rejects(class, f64::from(score))
        })
    }
}

/// The largest logit, the first of equal ones.
fn largest(logits: &[f32]) -> (usize, f32) {
    let logits = logits.iter().copied().enumerate();
    logits.fold((0, f32::NEG_INFINITY), |best, (class, z)| if z > best.1 { (class, z) } else { best })
}

/// The calibration that an option needs.
fn needed<'a>(options: &'a DecisionOptions, name: &str) -> Result<&'a Calibration, TrainError> {
    let what = format!(
        "{name} needs a calibration of these weights, and the run has none; `equipoise calibrate RUN` makes one from validation images, or \
         `equipoise calibrate RUN DATA` from others that were not trained on"
    );
    options.calibration.as_ref().ok_or(TrainError::Unusable { what })
}

fn check_share(name: &str, share: f64) -> Result<(), TrainError> {
    match (0.0..=0.5).contains(&share) && share > 0.0 {
        true => Ok(()),
        false => Err(TrainError::Unusable { what: format!("{name} {share}: must be more than 0 and at most 0.5") }),
    }
}

fn too_few(name: &str, share: f64, images: &str) -> TrainError {
    let least = fewest_images(share);
    let what = format!("{name} {share}: the calibration needs at least {least} {images}; a larger share needs fewer");
    TrainError::Unusable { what }
}

fn sets(options: &DecisionOptions, classes: usize, alpha: f64) -> Result<PredictionSets, TrainError> {
    check_share("--sets", alpha)?;
    let images = &needed(options, "--sets")?.images;
    let labeled = images.labels.iter().zip(&images.probabilities);
    let labeled: Vec<(u32, f64)> = labeled.map(|(label, p)| (*label, f64::from(*p))).collect();
    PredictionSets::new(&labeled, classes, alpha).ok_or_else(|| too_few("--sets", alpha, "images"))
}

fn rejection(
    options: &DecisionOptions,
    groups: &[ClassGroup],
    classes: usize,
    rate: f64,
) -> Result<Rejection, TrainError> {
    check_share("--reject", rate)?;
    let images = &needed(options, "--reject")?.images;
    let rows = images.labels.iter().zip(&images.predicted).zip(&images.scores);
    let answer = |((label, predicted), score): ((&u32, &u32), &f32)| Answer {
        label: *label,
        predicted: *predicted,
        score: f64::from(*score),
    };
    let answers: Vec<Answer> = rows.map(answer).collect();
    let groups: Vec<Vec<usize>> = groups.iter().map(|group| group.classes.clone()).collect();
    Rejection::new(&answers, &groups, classes, rate)
        .ok_or_else(|| too_few("--reject", rate, "images that are classified correctly"))
}
