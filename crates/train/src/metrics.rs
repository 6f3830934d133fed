//! Metrics of an evaluation: counted first, divided last. A value that is not known is `None`, never 0.

pub(crate) mod reliability;
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

/// All that an evaluation keeps of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The prediction; `None` if a logit is not finite.
    pub(crate) prediction: Option<Prediction>,
    /// Whether the true class is among the five largest logits.
    pub(crate) in_top5: bool,
}

impl Outcome {
    /// The outcome for an image with these logits and this label.
    pub(crate) fn new(logits: &[f32], label: usize) -> Self {
        let prediction = Prediction::new(logits, label);
        let own = logits[label];
        let is_ahead = |(j, z): &(usize, &f32)| **z > own || (**z == own && *j < label);
        let in_top5 = prediction.is_some() && logits.iter().enumerate().filter(is_ahead).count() < 5;
        Self { prediction, in_top5 }
    }

    /// Length of an outcome as bytes.
    pub(crate) const BYTES: usize = 24;

    /// The outcome as bytes, for other workers.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Prediction { class, confidence, loss } =
            self.prediction.unwrap_or(Prediction { class: 0, confidence: f64::NAN, loss: 0.0 });
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&(2 * class as u64 + u64::from(self.in_top5)).to_le_bytes());
        bytes[8..16].copy_from_slice(&confidence.to_le_bytes());
        bytes[16..].copy_from_slice(&loss.to_le_bytes());
        bytes
    }

    /// What another worker wrote.
    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[at..].first_chunk().copied().unwrap_or_default();
        let class = u64::from_le_bytes(word(0));
        let (confidence, loss) = (f64::from_le_bytes(word(8)), f64::from_le_bytes(word(16)));
        let prediction = Prediction { class: (class / 2) as usize, confidence, loss };
        Self { prediction: Some(prediction).filter(|_| !confidence.is_nan()), in_top5: class % 2 == 1 }
    }
}

/// The group of each class.
///
/// # Panics
/// If a group has a class that does not exist.
pub(crate) fn group_of_classes(groups: &[ClassGroup], classes: usize) -> Vec<usize> {
    let mut group = vec![0; classes];
    for (number, members) in groups.iter().enumerate() {
        members.classes.iter().for_each(|class| group[*class] = number);
    }
    group
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

/// The integers from which all metrics derive: sums over images, so that workers add them up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationSums {
    /// Images of each class, including unusable ones.
    images: Vec<u64>,
    /// Images of each class that were predicted correctly.
    hits: Vec<u64>,
    /// Images that were predicted as each class.
    predicted: Vec<u64>,
    /// Images whose class is among the five largest logits.
    top5: u64,
    /// Images with a logit that is not finite.
    unusable: u64,
    /// Sum of the losses, in fixed point. It saturates, which for terms that are never negative is as independent of the
    /// order as the sum itself.
    loss: u128,
    bins: [CalibrationBin; CALIBRATION_BINS],
}

/// Integers of a number of 128 bits: 32 bits each, so that sums over workers fit 64 bits.
const LIMBS: usize = 4;
/// Integers that do not depend on the number of classes.
const FIXED_INTEGERS: usize = 2 + LIMBS + CALIBRATION_BINS * (2 + LIMBS);

impl EvaluationSums {
    /// Sums over no images.
    ///
    /// # Panics
    /// If the number of classes does not fit 32 bits.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        assert!(u32::try_from(classes).is_ok(), "{classes} classes do not fit labels of 32 bits");
        Self {
            images: vec![0; classes],
            hits: vec![0; classes],
            predicted: vec![0; classes],
            top5: 0,
            unusable: 0,
            loss: 0,
            bins: [CalibrationBin::default(); CALIBRATION_BINS],
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
        self.add_rows(logits, labels, |_, _| {});
    }

    /// Counts a batch; `each` sees the label and the predicted class of every usable row.
    fn add_rows(&mut self, logits: &[f32], labels: &[u32], mut each: impl FnMut(u32, u32)) {
        let classes = self.images.len();
        let (got, rows) = (logits.len(), labels.len());
        assert!(rows.checked_mul(classes) == Some(got), "{got} logits are not {rows} x {classes}");
        if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
            panic!("label {label} is not one of {classes} classes");
        }
        for (row, &label) in labels.iter().enumerate() {
            let outcome = Outcome::new(&logits[row * classes..][..classes], label as usize);
            if let Some(class) = self.add_outcome(&outcome, label as usize) {
                each(label, class as u32);
            }
        }
    }

    /// Counts an image and returns its predicted class.
    pub(crate) fn add_outcome(&mut self, outcome: &Outcome, class: usize) -> Option<usize> {
        self.images[class] += 1;
        let Some(prediction) = outcome.prediction else {
            self.unusable += 1;
            return None;
        };
        let hit = u64::from(prediction.class == class);
        self.hits[class] += hit;
        self.predicted[prediction.class] += 1;
        self.top5 += u64::from(outcome.in_top5);
        self.loss = self.loss.saturating_add(to_fixed(prediction.loss));
        let bin = &mut self.bins[calibration_bin(prediction.confidence)];
        bin.images += 1;
        bin.hits += hit;
        bin.confidence += to_fixed(prediction.confidence);
        Some(prediction.class)
    }

    /// Adds the sums of another worker. The order of merging does not matter, to the last bit.
    ///
    /// # Panics
    /// If the other sums have another number of classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.images.len(), other.images.len(), "counts of different classes");
        let add = |here: &mut [u64], there: &[u64]| here.iter_mut().zip(there).for_each(|(here, there)| *here += there);
        add(&mut self.images, &other.images);
        add(&mut self.hits, &other.hits);
        add(&mut self.predicted, &other.predicted);
        self.top5 += other.top5;
        self.unusable += other.unusable;
        self.loss = self.loss.saturating_add(other.loss);
        for (here, there) in self.bins.iter_mut().zip(&other.bins) {
            here.images += there.images;
            here.hits += there.hits;
            here.confidence += there.confidence;
        }
    }

    /// All sums as plain integers, none of them negative. Those of several workers are merged by adding them.
    #[must_use]
    pub fn to_integers(&self) -> Vec<i64> {
        let mut integers = Vec::with_capacity(3 * self.images.len() + FIXED_INTEGERS);
        integers.extend([&self.images, &self.hits, &self.predicted].into_iter().flatten().map(|n| *n as i64));
        integers.extend([self.top5 as i64, self.unusable as i64]);
        integers.extend(limbs(self.loss));
        for bin in &self.bins {
            integers.extend([bin.images as i64, bin.hits as i64]);
            integers.extend(limbs(bin.confidence));
        }
        integers
    }

    /// Number of integers that [`to_integers`](Self::to_integers) gives for this many classes.
    #[must_use]
    pub fn integers(classes: usize) -> usize {
        3 * classes + FIXED_INTEGERS
    }

    /// The sums of [`to_integers`](Self::to_integers), or of several of them that were added up; `None` if the integers
    /// are too many or too few, negative, or contradict each other.
    #[must_use]
    pub fn from_integers(classes: usize, integers: &[i64]) -> Option<Self> {
        if integers.len() != Self::integers(classes) {
            return None;
        }
        let integers: Vec<u64> = integers.iter().map(|n| u64::try_from(*n).ok()).collect::<Option<_>>()?;
        let (per_class, fixed) = integers.split_at(3 * classes);
        let of = |part: usize| per_class[part * classes..][..classes].to_vec();
        let mut sums = Self { images: of(0), hits: of(1), predicted: of(2), ..Self::new(classes) };
        (sums.top5, sums.unusable, sums.loss) = (fixed[0], fixed[1], from_limbs(&fixed[2..2 + LIMBS]));
        for (bin, integers) in sums.bins.iter_mut().zip(fixed[2 + LIMBS..].chunks_exact(2 + LIMBS)) {
            *bin = CalibrationBin { images: integers[0], hits: integers[1], confidence: from_limbs(&integers[2..]) };
        }
        sums.is_consistent().then_some(sums)
    }

    fn is_consistent(&self) -> bool {
        let total = |numbers: &[u64]| numbers.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        let (Some(images), Some(predicted)) = (total(&self.images), total(&self.predicted)) else { return false };
        let hits_fit =
            self.hits.iter().zip(&self.images).zip(&self.predicted).all(|((hits, n), p)| hits <= n && hits <= p);
        let bins = self.bins.iter().try_fold(0u64, |sum, bin| sum.checked_add(bin.images));
        hits_fit
            && self.unusable.checked_add(predicted) == Some(images)
            && bins == Some(predicted)
            && self.top5 <= predicted
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
        let hits = self.hits.iter().sum();
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
        let class = |c: usize| ClassCounts {
            name: names[c].clone(),
            train: train_counts[c],
            test: self.images[c],
            hits: self.hits[c],
            predicted: self.predicted[c],
        };
        (0..classes).map(class).collect()
    }

    /// Sum over the bins of |hits - sum of confidences|, in images.
    fn calibration_gap(&self) -> f64 {
        // bin by bin as integers, so that a perfect calibration is exactly 0
        let gaps = self.bins.iter().map(|bin| (u128::from(bin.hits) << FRACTION_BITS).abs_diff(bin.confidence));
        gaps.sum::<u128>() as f64 / ONE
    }
}

/// A number of 128 bits in integers of 32 bits, the lowest first.
fn limbs(number: u128) -> [i64; LIMBS] {
    std::array::from_fn(|k| i64::from((number >> (32 * k)) as u32))
}

/// The number of [`limbs`], which may have been summed; saturated.
fn from_limbs(limbs: &[u64]) -> u128 {
    let shifted = |(k, limb): (usize, &u64)| u128::from(*limb).saturating_mul(1 << (32 * k));
    limbs.iter().enumerate().map(shifted).fold(0, u128::saturating_add)
}

/// Counts of an evaluation: the sums, and which classes are taken for which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationCounts {
    sums: EvaluationSums,
    confusion: BTreeMap<(u32, u32), u64>,
}

impl EvaluationCounts {
    /// Counts of no images.
    ///
    /// # Panics
    /// If the number of classes does not fit 32 bits.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { sums: EvaluationSums::new(classes), confusion: BTreeMap::new() }
    }

    /// Counts a batch, as [`EvaluationSums::add`] does.
    ///
    /// # Panics
    /// If the logits are not n x classes or a label is not a class. Nothing is counted then.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        let Self { sums, confusion } = self;
        sums.add_rows(logits, labels, |label, predicted| *confusion.entry((label, predicted)).or_default() += 1);
    }

    /// Counts of the images with these outcomes and labels.
    pub(crate) fn of(outcomes: &[Outcome], labels: &[u32], classes: usize) -> Self {
        let mut counts = Self::new(classes);
        for (outcome, &label) in outcomes.iter().zip(labels) {
            if let Some(predicted) = counts.sums.add_outcome(outcome, label as usize) {
                *counts.confusion.entry((label, predicted as u32)).or_default() += 1;
            }
        }
        counts
    }

    /// Adds the counts of another worker. The order of merging does not matter, to the last bit.
    ///
    /// # Panics
    /// If the other counts have another number of classes.
    pub fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        for (pair, number) in &other.confusion {
            *self.confusion.entry(*pair).or_default() += number;
        }
    }

    /// The sums from which all metrics derive.
    #[must_use]
    pub fn sums(&self) -> &EvaluationSums {
        &self.sums
    }

    /// The metrics, given the training images and the name of each class, and the groups of classes.
    ///
    /// # Panics
    /// If there is not one count and one name per class, or a group has a class that does not exist.
    #[must_use]
    pub fn metrics(&self, train_counts: &[u64], groups: &[ClassGroup], names: &[String]) -> Metrics {
        self.sums.metrics(train_counts, groups, names)
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
