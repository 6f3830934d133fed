//! The input and output of a call: plain slices, row after row.

use crate::error::BatchError;

/// A batch of logits with labels.
///
/// # Shapes
/// For B = `labels.len()` rows and the C classes of the criterion, `logits` is B x C, row after row.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The network's outputs, B x C.
    pub logits: &'a [f32],
    /// The class of each row.
    pub labels: &'a [u32],
    /// Second labels, if rows are mixtures of two images.
    pub mixed: Option<Mixed<'a>>,
    /// The epoch, counted from 0. Random draws and deferred re-weighting depend on it.
    pub epoch: u64,
    /// The index in the dataset of each row's example, for random draws. If empty, the row number takes its place.
    pub examples: &'a [u64],
}

/// The second labels of a mixed batch (mixup, CutMix). The loss of a row is share L(label) + (1 - share) L(second).
///
/// A row with a share of exactly 1 or 0 is an ordinary row.
#[derive(Clone, Copy, Debug)]
pub struct Mixed<'a> {
    /// The second label of each row.
    pub labels: &'a [u32],
    /// The share of each row's first label, in 0..=1.
    pub share: &'a [f32],
}

impl Mixed<'_> {
    /// Whether a row is anything but an ordinary row of its first label.
    #[must_use]
    pub fn is_mixture(&self, row: usize) -> bool {
        self.share[row] < 1.0
    }
}

impl<'a> Batch<'a> {
    /// A batch of epoch 0 without mixed labels.
    #[must_use]
    pub fn new(logits: &'a [f32], labels: &'a [u32]) -> Self {
        Self { logits, labels, mixed: None, epoch: 0, examples: &[] }
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether the batch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The labels of a row with their shares: one, or two that add up to 1.
    pub(crate) fn label_shares(&self, row: usize) -> ([(usize, f64); 2], usize) {
        let first = self.labels[row] as usize;
        let Some(mixed) = self.mixed else { return ([(first, 1.0), (0, 0.0)], 1) };
        let (second, share) = (mixed.labels[row] as usize, f64::from(mixed.share[row]));
        match share {
            1.0 => ([(first, 1.0), (0, 0.0)], 1),
            0.0 => ([(second, 1.0), (0, 0.0)], 1),
            _ => ([(first, share), (second, 1.0 - share)], 2),
        }
    }

    /// The example index of a row.
    pub(crate) fn example(&self, row: usize) -> u64 {
        self.examples.get(row).copied().unwrap_or(row as u64)
    }

    pub(crate) fn check(&self, classes: usize) -> Result<(), BatchError> {
        let rows = self.len();
        if rows == 0 {
            return Err(BatchError::Empty);
        }
        if rows.checked_mul(classes) != Some(self.logits.len()) {
            let want = rows.saturating_mul(classes);
            return Err(BatchError::Logits { got: self.logits.len(), want, rows, classes });
        }
        if !self.examples.is_empty() {
            length("examples", self.examples.len(), rows)?;
        }
        labels("labels", self.labels, classes)?;
        if let Some(mixed) = self.mixed {
            length("mixed.labels", mixed.labels.len(), rows)?;
            length("mixed.share", mixed.share.len(), rows)?;
            labels("mixed.labels", mixed.labels, classes)?;
            if let Some((row, &share)) = mixed.share.iter().enumerate().find(|(_, s)| !(0.0..=1.0).contains(*s)) {
                return Err(BatchError::Share { row, share });
            }
        }
        Ok(())
    }
}

pub(crate) fn length(field: &'static str, got: usize, want: usize) -> Result<(), BatchError> {
    if got == want { Ok(()) } else { Err(BatchError::Length { field, got, want }) }
}

fn labels(field: &'static str, labels: &[u32], classes: usize) -> Result<(), BatchError> {
    match labels.iter().enumerate().find(|(_, l)| **l as usize >= classes) {
        Some((row, &label)) => Err(BatchError::Label { field, row, label, classes }),
        None => Ok(()),
    }
}

/// The caller's buffers that a call writes into.
///
/// # Shapes
/// `grad` is B x C like the logits; the others hold B numbers. After an error their contents are unspecified.
#[derive(Debug)]
pub struct Output<'a> {
    /// The gradient dL/dz.
    pub grad: &'a mut [f32],
    /// The weight of each example in the loss.
    pub weights: &'a mut [f32],
    /// The loss of each example, if the caller asks for it, scaled so that their mean is the loss of the batch.
    pub losses: Option<&'a mut [f32]>,
    /// The gradient norm g = 1 - p_y of each example, if the caller asks for it.
    ///
    /// p is the softmax of the raw logits for every criterion: margins, offsets and scales do not enter it, and the
    /// sigmoid forms of `ghm` and `equalization` report it too. A mixed row reports the mean over its two labels,
    /// weighted by their shares.
    pub gradient_norms: Option<&'a mut [f32]>,
    /// The same for the probabilities that the loss is made of, if the caller asks for it: p is the softmax of the
    /// logits with the criterion's margins, offsets and scales. The sigmoid forms have no such probabilities and report
    /// the raw ones.
    pub adjusted_norms: Option<&'a mut [f32]>,
}

impl<'a> Output<'a> {
    /// Buffers for gradient and weights alone.
    #[must_use]
    pub fn new(grad: &'a mut [f32], weights: &'a mut [f32]) -> Self {
        Self { grad, weights, losses: None, gradient_norms: None, adjusted_norms: None }
    }
}

/// The loss of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Loss of the batch.
    pub loss: f64,
    /// What the sum over examples was divided by: their number, or the sum of their class weights.
    pub denominator: f64,
    /// Number of non-empty regions, over all classes, of the histogram behind the weights. `None` for criteria without
    /// a histogram.
    pub regions: Option<u64>,
}
