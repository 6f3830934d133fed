//! What an evaluation found: counted first, divided last. What cannot be said is `None`, never 0.

use std::collections::BTreeMap;

use equipoise_data::describe::groups::ClassGroup;
pub use equipoise_record::{ClassMetric, GroupMetric, Metrics};

/// Bins of the expected calibration error.
pub(crate) const BINS: usize = 15;

/// Binary places of a sum of confidences or losses.
///
/// Sums are integers, so that neither the number of workers nor the order of merging changes a bit of a result.
const PLACES: u32 = 40;

/// One in fixed point.
const ONE: f64 = (1u64 << PLACES) as f64;

/// Predictions of about the same confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bin {
    images: u64,
    hits: u64,
    /// Sum of the confidences, in fixed point; 2^64 images fit.
    confidence: u128,
}

/// Counts of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Test images of each class, with the unusable ones.
    test: Vec<u64>,
    /// Images whose class is among the five largest logits.
    top5: u64,
    /// Images with a logit that is not finite.
    unusable: u64,
    /// Sum of the losses, in fixed point. It stops at the largest number: for sums of what is never negative that is as
    /// independent of the order as the sum itself.
    loss: u128,
    bins: [Bin; BINS],
    confusion: BTreeMap<(u32, u32), u64>,
}

/// What a network says of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Said {
    /// The class with the largest logit, the first of equal ones.
    pub(crate) prediction: usize,
    /// Its probability.
    pub(crate) confidence: f64,
    /// Cross-entropy: - ln of the probability of the image's own class.
    pub(crate) loss: f64,
}

/// What logits say of an image of a class; `None` if one is not finite.
pub(crate) fn said(logits: &[f32], class: usize) -> Option<Said> {
    if !logits.iter().all(|z| z.is_finite()) {
        return None;
    }
    let mut prediction = 0;
    for (j, z) in logits.iter().enumerate() {
        if *z > logits[prediction] {
            prediction = j;
        }
    }
    let largest = f64::from(logits[prediction]);
    // without the largest itself, whose e^0 is the 1 below
    let others = logits.iter().enumerate().filter(|(j, _)| *j != prediction);
    let others: f64 = others.map(|(_, z)| (f64::from(*z) - largest).exp()).sum();
    let loss = largest - f64::from(logits[class]) + others.ln_1p();
    Some(Said { prediction, confidence: 1.0 / (1.0 + others), loss })
}

/// The bin of a confidence: it has its upper end.
pub(crate) fn bin(confidence: f64) -> usize {
    ((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1
}

impl Tally {
    /// A tally of nothing yet.
    ///
    /// # Panics
    /// If the classes cannot be numbered in 32 bits.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        assert!(u32::try_from(classes).is_ok(), "{classes} classes do not fit labels of 32 bits");
        let (test, confusion) = (vec![0; classes], BTreeMap::new());
        Self { test, top5: 0, unusable: 0, loss: 0, bins: [Bin::default(); BINS], confusion }
    }

    /// Counts a batch: the prediction is the class with the largest logit, the first of equal ones.
    ///
    /// A row with a logit that is NaN or infinite is a miss, predicts nothing and has neither loss nor confidence.
    ///
    /// # Shapes
    /// `logits` is n x classes, row after row, for n = `labels.len()`.
    ///
    /// # Panics
    /// If the logits are not n x classes or a label is not a class. Then nothing has been counted.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        let classes = self.test.len();
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
        self.test[class] += 1;
        let Some(said) = said(logits, class) else {
            self.unusable += 1;
            return;
        };
        let own = logits[class];
        let ahead = logits.iter().enumerate().filter(|(j, z)| **z > own || (**z == own && *j < class)).count();
        self.top5 += u64::from(ahead < 5);
        self.loss = self.loss.saturating_add(fixed(said.loss));
        let bin = &mut self.bins[bin(said.confidence)];
        bin.images += 1;
        bin.hits += u64::from(said.prediction == class);
        bin.confidence += fixed(said.confidence);
        *self.confusion.entry((label, said.prediction as u32)).or_default() += 1;
    }

    /// Adds what another worker counted. The order does not matter, to the last bit.
    ///
    /// # Panics
    /// If the other has another number of classes.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.test.len(), other.test.len(), "tallies of different classes");
        for (here, there) in self.test.iter_mut().zip(&other.test) {
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

    /// What the counts say, given each class's training images and name, and groups of classes.
    ///
    /// # Panics
    /// If there is not one count and one name per class, or a group has a class that does not exist.
    #[must_use]
    pub fn metrics(&self, counts: &[u64], groups: &[ClassGroup], names: &[String]) -> Metrics {
        let classes = self.test.len();
        assert_eq!(counts.len(), classes, "one count per class");
        assert_eq!(names.len(), classes, "one name per class");

        let class = |((name, &train), &test): ((&String, &u64), &u64)| {
            let name = name.clone();
            ClassMetric { name, train, test, hits: 0, predicted: 0 }
        };
        let mut per_class: Vec<ClassMetric> = names.iter().zip(counts).zip(&self.test).map(class).collect();
        for (&(label, prediction), number) in &self.confusion {
            let predicted = &mut per_class[prediction as usize];
            predicted.predicted += number;
            if label == prediction {
                predicted.hits += number;
            }
        }

        let images: u64 = self.test.iter().sum();
        let usable = images - self.unusable;
        let hits = per_class.iter().map(|class| class.hits).sum();
        // bin by bin as integers, so that a perfect calibration is exactly 0
        let gaps = self.bins.iter().map(|bin| (u128::from(bin.hits) << PLACES).abs_diff(bin.confidence));
        let gaps = gaps.sum::<u128>() as f64 / ONE;
        let group = |group: &ClassGroup| GroupMetric {
            name: group.name.clone(),
            classes: group.classes.len(),
            accuracy: mean(group.classes.iter().map(|class| per_class[*class].recall())).map(percent),
        };
        Metrics {
            top1: ratio(hits, images).map(percent),
            top5: ratio(self.top5, images).filter(|_| classes > 5).map(percent),
            balanced: mean(per_class.iter().map(ClassMetric::recall)).map(percent),
            macro_f1: mean(per_class.iter().map(ClassMetric::f1)).map(percent),
            calibration: (usable > 0).then(|| percent(gaps / usable as f64)),
            loss: (usable > 0 && self.loss < u128::MAX).then(|| self.loss as f64 / ONE / usable as f64),
            unusable: self.unusable,
            groups: groups.iter().map(group).collect(),
            per_class,
        }
    }

    /// How many images of a class (first) were predicted to be of a class (second): only pairs that occur, as a table
    /// of thousands of classes is mostly zeros. Unusable images are in none.
    #[must_use]
    pub fn confusion(&self) -> &BTreeMap<(u32, u32), u64> {
        &self.confusion
    }
}

/// A number that is not negative, in fixed point; the largest number where it does not fit.
fn fixed(x: f64) -> u128 {
    (x * ONE).round() as u128
}

fn percent(share: f64) -> f64 {
    100.0 * share
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Mean of the numbers that are there.
fn mean(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, n) = numbers.flatten().fold((0.0, 0u64), |(sum, n), x| (sum + x, n + 1));
    (n > 0).then(|| sum / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, classes: &[usize]) -> ClassGroup {
        ClassGroup { name: name.to_owned(), classes: classes.to_vec() }
    }

    /// Metrics without groups, for classes named by number and of training size 1.
    fn plain(tally: &Tally) -> Metrics {
        let classes = tally.test.len();
        tally.metrics(&vec![1; classes], &[], &(0..classes).map(|c| c.to_string()).collect::<Vec<_>>())
    }

    fn tally(classes: usize, logits: &[f32], labels: &[u32]) -> Tally {
        let mut tally = Tally::new(classes);
        tally.add(logits, labels);
        tally
    }

    /// One row per prediction, with a logit of 1 there.
    fn predicted(classes: usize, predictions: &[usize], labels: &[u32]) -> Tally {
        let row = |p: &usize| (0..classes).map(|c| f32::from(u8::from(c == *p))).collect::<Vec<_>>();
        tally(classes, &predictions.iter().flat_map(row).collect::<Vec<_>>(), labels)
    }

    #[track_caller]
    fn near(got: Option<f64>, want: f64, within: f64) {
        let got = got.expect("a number");
        assert!((got - want).abs() <= within, "{got}, not {want}");
    }

    #[test]
    fn by_hand_with_a_class_that_has_no_test_images() {
        let tally = predicted(3, &[0, 0, 1, 1, 2], &[0, 0, 0, 1, 1]);
        let groups = [group("Many", &[0]), group("Medium", &[1, 2]), group("Few", &[2]), group("Rare", &[])];
        let names = ["cat", "dog", "eel"].map(str::to_owned);
        let metrics = tally.metrics(&[50, 20, 5], &groups, &names);

        assert_eq!(metrics.top1, Some(60.0));
        assert_eq!(metrics.top5, None);
        // (2/3 + 1/2) / 2
        near(metrics.balanced, 700.0 / 12.0, 1e-12);
        // (4/5 + 2/4) / 2: eels are not there to be found
        near(metrics.macro_f1, 65.0, 1e-12);
        assert_eq!(metrics.unusable, 0);

        assert_eq!(
            metrics.groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(),
            ["Many", "Medium", "Few", "Rare"]
        );
        assert_eq!(metrics.groups.iter().map(|g| g.classes).collect::<Vec<_>>(), [1, 2, 1, 0]);
        near(metrics.groups[0].accuracy, 200.0 / 3.0, 1e-12);
        assert_eq!(metrics.groups[1].accuracy, Some(50.0));
        assert_eq!(metrics.groups[2].accuracy, None);
        assert_eq!(metrics.groups[3].accuracy, None);

        let counts = metrics.per_class.iter().map(|c| (c.name.as_str(), c.train, c.test, c.hits, c.predicted));
        assert_eq!(counts.collect::<Vec<_>>(), [("cat", 50, 3, 2, 2), ("dog", 20, 2, 1, 2), ("eel", 5, 0, 0, 1)]);
        let want = [((0, 0), 2), ((0, 1), 1), ((1, 1), 1), ((1, 2), 1)];
        assert_eq!(tally.confusion(), &BTreeMap::from(want));
    }

    #[test]
    fn a_class_never_hit_and_never_predicted_has_an_f1_of_0() {
        assert_eq!(plain(&predicted(2, &[0, 0], &[0, 1])).macro_f1, Some(100.0 * (2.0 / 3.0) / 2.0));
        assert_eq!(plain(&predicted(2, &[0, 0], &[1, 1])).macro_f1, Some(0.0));
    }

    #[test]
    fn the_first_of_equal_logits_is_the_prediction() {
        let tally = tally(3, &[0.0, 2.0, 2.0, -0.0, 0.0, 0.0], &[2, 0]);
        assert_eq!(tally.confusion(), &BTreeMap::from([((2, 1), 1), ((0, 0), 1)]));
    }

    #[test]
    fn top5_by_rank_and_ties_by_number() {
        let falling = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        for (label, want) in [(0, 100.0), (4, 100.0), (5, 0.0), (6, 0.0)] {
            assert_eq!(plain(&tally(7, &falling, &[label])).top5, Some(want), "{label}");
            assert_eq!(plain(&tally(7, &[1.5; 7], &[label])).top5, Some(want), "{label}");
        }
        assert_eq!(plain(&tally(6, &[0.0; 12], &[0, 5])).top5, Some(50.0));
        assert_eq!(plain(&tally(5, &[0.0; 5], &[0])).top5, None);
    }

    #[test]
    fn calibration_by_hand() {
        // 0.9 lies in the 14th bin, 0.65 in the 10th: |1 - 1.8| and |2 - 1.3|, over four images
        let row = |p: f64| [p.ln() as f32, (1.0 - p).ln() as f32];
        let rows = [row(0.9), row(0.9), row(0.65), row(0.65)].concat();
        near(plain(&tally(2, &rows, &[0, 1, 0, 0])).calibration, 37.5, 1e-5);

        // a confidence of exactly 1/2
        assert_eq!(plain(&tally(2, &[0.0; 4], &[0, 1])).calibration, Some(0.0));
        assert_eq!(plain(&tally(2, &[0.0; 4], &[0, 0])).calibration, Some(50.0));
        assert_eq!(plain(&tally(2, &[0.0; 4], &[1, 1])).calibration, Some(50.0));
    }

    #[test]
    fn a_bin_has_its_upper_end() {
        let bin = |classes: usize| {
            let tally = tally(classes, &vec![0.0; classes], &[0]);
            tally.bins.iter().position(|bin| bin.images == 1).expect("counted")
        };
        // confidences of 1, 1/2, 1/3, 1/5, 1/15 and 1/1000
        assert_eq!([1, 2, 3, 5, 15, 1000].map(bin), [14, 7, 4, 2, 0, 0]);
    }

    #[test]
    fn loss_by_hand() {
        near(plain(&tally(4, &[7.0; 8], &[0, 3])).loss, 4f64.ln(), 1e-12);
        // ln(1 + e^-2) and ln(1 + e^-2) + 2
        near(plain(&tally(2, &[1.0, -1.0, 1.0, -1.0], &[0, 1])).loss, (-2f64).exp().ln_1p() + 1.0, 1e-12);
        // e^1000 would not be a number
        assert_eq!(plain(&tally(2, &[1000.0, 0.0], &[1])).loss, Some(1000.0));
        // a sure prediction keeps its small loss
        near(plain(&tally(2, &[25.0, 0.0], &[0])).loss, (-25f64).exp(), 1e-12);
    }

    #[test]
    fn a_loss_beyond_all_sums_is_not_a_number_that_is_too_small() {
        let huge = tally(2, &[3e38, -3e38], &[1]);
        let metrics = plain(&huge);
        assert_eq!((metrics.loss, metrics.top1, metrics.calibration), (None, Some(0.0), Some(100.0)));
        let usual = tally(2, &[1.0, 0.0], &[1]);
        let (mut one, mut other) = (huge.clone(), usual.clone());
        one.merge(&usual);
        other.merge(&huge);
        assert_eq!(one, other);
        assert_eq!(plain(&one).loss, None);
    }

    #[test]
    fn unusable_rows_are_misses_that_predict_nothing() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let tally = tally(6, &[[bad, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 6]].concat(), &[0, 0]);
            let metrics = plain(&tally);
            assert_eq!(metrics.unusable, 1);
            assert_eq!((metrics.top1, metrics.top5, metrics.balanced), (Some(50.0), Some(50.0), Some(50.0)));
            // 2 / (2 + 0 + 1)
            assert_eq!(metrics.macro_f1, Some(100.0 * (2.0 / 3.0)));
            near(metrics.loss, 6f64.ln(), 1e-12);
            near(metrics.calibration, 100.0 * (1.0 - 1.0 / 6.0), 1e-9);
            assert_eq!(tally.confusion(), &BTreeMap::from([((0, 0), 1)]));
            assert_eq!((metrics.per_class[0].test, metrics.per_class[0].predicted), (2, 1));
        }
        let metrics = plain(&tally(2, &[f32::NAN; 2], &[1]));
        assert_eq!((metrics.top1, metrics.balanced, metrics.macro_f1), (Some(0.0), Some(0.0), Some(0.0)));
        assert_eq!((metrics.loss, metrics.calibration, metrics.unusable), (None, None, 1));
    }

    #[test]
    fn nothing_counted_says_nothing() {
        for classes in [0, 1, 10] {
            let mut tally = Tally::new(classes);
            tally.add(&[], &[]);
            let metrics = plain(&tally);
            let all =
                [metrics.top1, metrics.top5, metrics.balanced, metrics.macro_f1, metrics.calibration, metrics.loss];
            assert_eq!(all, [None; 6]);
            assert_eq!((metrics.unusable, metrics.groups.len(), metrics.per_class.len()), (0, 0, classes));
        }
    }

    /// `n` rows of 7 classes that look random, some unusable.
    fn rows(n: u32) -> (Vec<f32>, Vec<u32>) {
        let logit = |i: u32| match i.wrapping_mul(2_654_435_761) >> 16 {
            bits if bits % 97 == 0 => f32::NAN,
            bits => (bits % 1000) as f32 / 150.0 - 3.0,
        };
        ((0..7 * n).map(logit).collect(), (0..n).map(|i| (i * i + i / 3) % 6).collect())
    }

    #[test]
    fn merging_in_any_order_equals_counting_at_once() {
        let (logits, labels) = rows(300);
        let whole = tally(7, &logits, &labels);
        assert!(whole.unusable > 0 && whole.top5 > 0 && whole.confusion.len() > 20);
        let cut = [0, 40, 41, 300];
        let parts: Vec<Tally> =
            cut.windows(2).map(|w| tally(7, &logits[7 * w[0]..7 * w[1]], &labels[w[0]..w[1]])).collect();
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut merged = Tally::new(7);
            for part in order {
                merged.merge(&parts[part]);
            }
            assert_eq!(merged, whole);
            assert_eq!(plain(&merged), plain(&whole));
            // a pair first
            let mut pair = parts[order[1]].clone();
            pair.merge(&parts[order[2]]);
            let mut first = parts[order[0]].clone();
            first.merge(&pair);
            assert_eq!(first, whole);
        }
    }

    #[test]
    fn json_comes_back_bit_for_bit() {
        let (logits, labels) = rows(101);
        let groups = [group("Many", &[0, 1, 2]), group("Few", &[6])];
        let names: Vec<String> = (0..7).map(|c| format!("\"{c}\" \u{e9}")).collect();
        let metrics = tally(7, &logits, &labels).metrics(&[9, 8, 7, 6, 5, 4, u64::MAX], &groups, &names);
        let json = serde_json::to_string(&metrics).expect("written");
        let back: Metrics = serde_json::from_str(&json).expect("read");
        assert_eq!(back, metrics);
        let bits = |m: &Metrics| {
            [m.top1, m.top5, m.balanced, m.macro_f1, m.calibration, m.loss, m.groups[0].accuracy]
                .map(|x| x.expect("a number").to_bits())
        };
        assert_eq!(bits(&back), bits(&metrics));
        assert_eq!(back.groups[1].accuracy, None);

        let none = plain(&Tally::new(3));
        let json = serde_json::to_string(&none).expect("written");
        assert_eq!(serde_json::from_str::<Metrics>(&json).expect("read"), none);
    }

    #[test]
    fn a_wrong_batch_counts_nothing() {
        let mut tally = Tally::new(2);
        let bad: [(&[f32], &[u32], &str); 3] = [
            (&[0.0; 3], &[0, 1], "3 logits are not 2 x 2"),
            (&[0.0; 2], &[], "2 logits are not 0 x 2"),
            (&[0.0; 4], &[0, 2], "label 2 is not one of 2 classes"),
        ];
        for (logits, labels, want) in bad {
            let add = std::panic::AssertUnwindSafe(|| tally.add(logits, labels));
            let said = std::panic::catch_unwind(add).expect_err("a panic");
            assert_eq!(said.downcast_ref::<String>().map(String::as_str), Some(want));
            assert_eq!(tally, Tally::new(2));
        }
    }

    #[test]
    #[should_panic(expected = "tallies of different classes")]
    fn tallies_of_different_classes_do_not_merge() {
        Tally::new(2).merge(&Tally::new(3));
    }
}
