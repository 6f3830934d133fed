//! Metrics of an evaluation: counted first, divided last. A value that is not known is `None`, never 0.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use equipoise_data::describe::groups::ClassGroup;
use equipoise_record::{ClassCounts, GroupAccuracy, Metrics};

/// Bins of the expected calibration error.
pub(crate) const CALIBRATION_BINS: usize = 15;

/// Fractional bits of a sum of confidences or losses.
///
/// Sums are integers, so that neither the number of workers nor the order of merging changes a bit of a result.
const FRACTION_BITS: u32 = 40;

/// The number one in fixed point.
const ONE: f64 = (1u64 << FRACTION_BITS) as f64;

/// A network's prediction for one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The class with the largest logit, the first of equal ones.
    pub(crate) class: usize,
    /// Probability of that class.
    pub(crate) confidence: f64,
    /// Cross-entropy: -ln of the probability of the true class.
    pub(crate) loss: f64,
}

impl Prediction {
    /// The prediction that logits make for an image with this label; `None` if a logit is not finite.
    pub(crate) fn new(logits: &[f32], label: usize) -> Option<Self> {
        if !logits.iter().all(|z| z.is_finite()) {
            return None;
        }
        let mut class = 0;
        for (j, z) in logits.iter().enumerate() {
            if *z > logits[class] {
                class = j;
            }
        }
        let largest = f64::from(logits[class]);
        // without the largest itself, whose e^0 is the 1 below
        let others = logits.iter().enumerate().filter(|(j, _)| *j != class);
        let others: f64 = others.map(|(_, z)| (f64::from(*z) - largest).exp()).sum();
        let loss = largest - f64::from(logits[label]) + others.ln_1p();
        Some(Self { class, confidence: 1.0 / (1.0 + others), loss })
    }
}

/// The calibration bin of a confidence. A bin includes its upper bound.
pub(crate) fn calibration_bin(confidence: f64) -> usize {
    ((confidence * CALIBRATION_BINS as f64).ceil() as usize).clamp(1, CALIBRATION_BINS) - 1
}

/// Predictions of similar confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CalibrationBin {
    images: u64,
    hits: u64,
    /// Sum of the confidences, in fixed point; it holds 2^64 images.
    confidence: u128,
}

/// Counts of an evaluation, from which all metrics derive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationCounts {
    /// Images of each class, including unusable ones.
    images: Vec<u64>,
    /// Images whose class is among the five largest logits.
    top5: u64,
    /// Images with a logit that is not finite.
    unusable: u64,
    /// Sum of the losses, in fixed point. It saturates, which for terms that are never negative is as independent of the
    /// order as the sum itself.
    loss: u128,
    bins: [CalibrationBin; CALIBRATION_BINS],
    confusion: BTreeMap<(u32, u32), u64>,
}

impl EvaluationCounts {
    /// Counts of no images.
    ///
    /// # Panics
    /// If the number of classes does not fit 32 bits.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        assert!(u32::try_from(classes).is_ok(), "{classes} classes do not fit labels of 32 bits");
        Self {
            images: vec![0; classes],
            top5: 0,
            unusable: 0,
            loss: 0,
            bins: [CalibrationBin::default(); CALIBRATION_BINS],
            confusion: BTreeMap::new(),
        }
    }

    /// Counts a batch: the prediction is the class with the largest logit, the first of equal ones.
    ///
    /// A row with a NaN or infinite logit counts as an error and has no prediction, loss or confidence.
    ///
    /// # Shapes
    /// `logits` is n x classes, row after row, for n = `labels.len()`.
    ///
    /// # Panics
    /// If the logits are not n x classes or a label is not a class. Nothing is counted then.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        let classes = self.images.len();
        let (got, rows) = (logits.len(), labels.len());
        assert!(rows.checked_mul(classes) == Some(got), "{got} logits are not {rows} x {classes}");
        if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
            panic!("label {label} is not one of {classes} classes");
        }
        for (row, &label) in labels.iter().enumerate() {
            self.add_row(&logits[row * classes..][..classes], label);
        }
    }

    fn add_row(&mut self, logits: &[f32], label: u32) {
        let class = label as usize;
        self.images[class] += 1;
        let Some(prediction) = Prediction::new(logits, class) else {
            self.unusable += 1;
            return;
        };
        let own = logits[class];
        let rank = logits.iter().enumerate().filter(|(j, z)| **z > own || (**z == own && *j < class)).count();
        self.top5 += u64::from(rank < 5);
        self.loss = self.loss.saturating_add(to_fixed(prediction.loss));
        let bin = &mut self.bins[calibration_bin(prediction.confidence)];
        bin.images += 1;
        bin.hits += u64::from(prediction.class == class);
        bin.confidence += to_fixed(prediction.confidence);
        *self.confusion.entry((label, prediction.class as u32)).or_default() += 1;
    }

    /// Adds the counts of another worker. The order of merging does not matter, to the last bit.
    ///
    /// # Panics
    /// If the other counts have another number of classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.images.len(), other.images.len(), "counts of different classes");
        for (here, there) in self.images.iter_mut().zip(&other.images) {
            *here += there;
        }
        self.top5 += other.top5;
        self.unusable += other.unusable;
        self.loss = self.loss.saturating_add(other.loss);
        for (here, there) in self.bins.iter_mut().zip(&other.bins) {
            here.images += there.images;
            here.hits += there.hits;
            here.confidence += there.confidence;
        }
        for (pair, number) in &other.confusion {
            *self.confusion.entry(*pair).or_default() += number;
        }
    }

    /// The metrics, given the training images and the name of each class, and the groups of classes.
    ///
    /// # Panics
    /// If there is not one count and one name per class, or a group has a class that does not exist.
    #[must_use]
    pub fn metrics(&self, train_counts: &[u64], groups: &[ClassGroup], names: &[String]) -> Metrics {
        let per_class = self.per_class(train_counts, names);
        let images: u64 = self.images.iter().sum();
        let usable = images - self.unusable;
        let hits = per_class.iter().map(|class| class.hits).sum();
        let group = |group: &ClassGroup| GroupAccuracy {
            name: group.name.clone(),
            classes: group.classes.len(),
            accuracy: mean(group.classes.iter().map(|class| per_class[*class].recall())).map(percent),
        };
        Metrics {
            top1: ratio(hits, images).map(percent),
            top5: ratio(self.top5, images).filter(|_| self.images.len() > 5).map(percent),
            balanced: mean(per_class.iter().map(ClassCounts::recall)).map(percent),
            macro_f1: mean(per_class.iter().map(ClassCounts::f1)).map(percent),
            calibration: (usable > 0).then(|| percent(self.calibration_gap() / usable as f64)),
            loss: (usable > 0 && self.loss < u128::MAX).then(|| self.loss as f64 / ONE / usable as f64),
            unusable: self.unusable,
            groups: groups.iter().map(group).collect(),
            per_class,
        }
    }

    fn per_class(&self, train_counts: &[u64], names: &[String]) -> Vec<ClassCounts> {
        let classes = self.images.len();
        assert_eq!(train_counts.len(), classes, "one count per class");
        assert_eq!(names.len(), classes, "one name per class");
        let class = |((name, &train), &test): ((&String, &u64), &u64)| {
            let name = name.clone();
            ClassCounts { name, train, test, hits: 0, predicted: 0 }
        };
        let mut per_class: Vec<ClassCounts> = names.iter().zip(train_counts).zip(&self.images).map(class).collect();
        for (&(label, prediction), number) in &self.confusion {
            let predicted = &mut per_class[prediction as usize];
            predicted.predicted += number;
            if label == prediction {
                predicted.hits += number;
            }
        }
        per_class
    }

    /// Sum over the bins of |hits - sum of confidences|, in images.
    fn calibration_gap(&self) -> f64 {
        // bin by bin as integers, so that a perfect calibration is exactly 0
        let gaps = self.bins.iter().map(|bin| (u128::from(bin.hits) << FRACTION_BITS).abs_diff(bin.confidence));
        gaps.sum::<u128>() as f64 / ONE
    }

    /// Number of images by true class (first) and predicted class (second). Only pairs that occur are listed: a table of
    /// thousands of classes is mostly zeros. Unusable images are left out.
    #[must_use]
    pub fn confusion(&self) -> &BTreeMap<(u32, u32), u64> {
        &self.confusion
    }
}

/// A number that is not negative in fixed point, saturated.
fn to_fixed(x: f64) -> u128 {
    (x * ONE).round() as u128
}

fn percent(share: f64) -> f64 {
    100.0 * share
}

fn ratio(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

/// Mean of the numbers that are known.
fn mean(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, n) = numbers.flatten().fold((0.0, 0u64), |(sum, n), x| (sum + x, n + 1));
    (n > 0).then(|| sum / n as f64)
}
