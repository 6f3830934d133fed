//! Rows of logits.

/// Logits with their labels, row after row.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    values: &'a [f32],
    labels: &'a [u32],
    classes: usize,
}

impl<'a> Logits<'a> {
    /// Rows of logits with a label each.
    ///
    /// # Panics
    /// If there is not a row of `classes` values for each label, or a label is not a class.
    #[must_use]
    pub fn new(values: &'a [f32], labels: &'a [u32], classes: usize) -> Self {
        assert_eq!(values.len(), labels.len() * classes, "one logit per label and class");
        assert!(labels.iter().all(|label| (*label as usize) < classes), "labels are classes");
        Self { values, labels, classes }
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of rows of each class.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.classes];
        self.labels.iter().for_each(|label| counts[*label as usize] += 1);
        counts
    }

    /// Every row with its label.
    pub fn rows(&self) -> impl Iterator<Item = (&'a [f32], usize)> + use<'a> {
        self.values.chunks_exact(self.classes.max(1)).zip(self.labels).map(|(row, label)| (row, *label as usize))
    }
}

/// Log-probabilities of the softmax of numbers that are finite.
#[must_use]
pub fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|z| (z - largest).exp()).sum();
    logits.iter().map(|z| z - largest - sum.ln()).collect()
}

/// The position of the largest number, the first of equal ones.
pub(crate) fn argmax(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (index, value) in values.enumerate() {
        if value > best.1 {
            best = (index, value);
        }
    }
    best.0
}
