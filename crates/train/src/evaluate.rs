//! Evaluation of a network on a split.

use equipoise_criterion::MethodConfig;
use equipoise_nn::Engine;
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::metrics::EvaluationCounts;
use crate::prepare::SplitLoader;

/// What becomes of the logits of a trained network: the factor of a criterion for cosines, then the post-hoc logit adjustment
/// (Menon et al., ICLR 2021), an offset for each class.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitAdjustment {
    /// Factor of every logit.
    pub scale: f32,
    /// Offset of each class; empty for no adjustment.
    pub offsets: Vec<f32>,
}

impl LogitAdjustment {
    /// Offsets - tau ln(share of the training images), by class; none for tau = 0.
    #[must_use]
    pub fn new(criterion: &MethodConfig, counts: &[u64], tau: f64) -> Self {
        let scale = criterion.cosine_scale().unwrap_or(1.0) as f32;
        if tau == 0.0 {
            return Self { scale, offsets: Vec::new() };
        }
        let total: u64 = counts.iter().sum();
        // a class without images counts as one image: an infinite offset would take every prediction
        let log_share = |n: u64| (n.max(1) as f64 / total.max(1) as f64).ln();
        Self { scale, offsets: counts.iter().map(|n| (-tau * log_share(*n)) as f32).collect() }
    }

    /// Adjusts rows of logits in place.
    pub fn apply(&self, logits: &mut [f32]) {
        if self.scale != 1.0 {
            logits.iter_mut().for_each(|z| *z *= self.scale);
        }
        if !self.offsets.is_empty() {
            for row in logits.chunks_exact_mut(self.offsets.len()) {
                row.iter_mut().zip(&self.offsets).for_each(|(z, offset)| *z += offset);
            }
        }
    }
}

/// A batch of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvaluatedBatch<'a> {
    /// Index of the first image in the split.
    pub first: usize,
    /// Classes of the images.
    pub labels: &'a [u32],
    /// Logits of the images, row after row.
    pub logits: &'a [f32],
}

impl EvaluatedBatch<'_> {
    /// Number of images that have been evaluated, including this batch.
    #[must_use]
    pub fn done(&self) -> usize {
        self.first + self.labels.len()
    }
}

/// Evaluates a network on a split. `on_batch` sees every batch; if it returns false the evaluation stops and returns `None`.
///
/// # Errors
/// If an image can no longer be read.
pub fn evaluate(
    engine: &mut dyn Engine,
    split: &SplitLoader,
    batch_size: usize,
    pool: &Pool,
    adjustment: &LogitAdjustment,
    on_batch: &mut dyn FnMut(&EvaluatedBatch<'_>) -> bool,
) -> Result<Option<EvaluationCounts>, TrainError> {
    let mut counts = EvaluationCounts::new(engine.network().classes);
    let indices: Vec<u32> = (0..split.labels.len() as u32).collect();
    let batch_size = batch_size.max(1);
    let mut images = Vec::new();
    for (number, indices) in indices.chunks(batch_size).enumerate() {
        images.resize(indices.len() * split.image_len(), 0.0);
        split.loader.batch(indices, 0, 0, &mut images, pool)?;
        let mut logits = engine.forward(&images, false)?.to_vec();
        adjustment.apply(&mut logits);
        let first = number * batch_size;
        let batch = EvaluatedBatch { first, labels: &split.labels[first..first + indices.len()], logits: &logits };
        counts.add(batch.logits, batch.labels);
        if !on_batch(&batch) {
            return Ok(None);
        }
    }
    Ok(Some(counts))
}

#[cfg(test)]
mod tests {
    use equipoise_criterion::Id;

    use super::*;

    #[test]
    fn logits_are_adjusted_by_the_share_of_the_class() {
        let softmax = Id::Softmax.default_config();
        let adjustment = LogitAdjustment::new(&softmax, &[75, 25, 0], 2.0);
        let want = [0.75f64, 0.25, 0.01].map(|share| (-2.0 * share.ln()) as f32);
        assert_eq!(adjustment.offsets, want);
        let mut logits = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0];
        adjustment.apply(&mut logits);
        assert_eq!(logits, [1.0 + want[0], 2.0 + want[1], 3.0 + want[2], want[0], want[1], want[2]]);
        let mut logits = [1.0, 2.0, 3.0];
        LogitAdjustment::new(&softmax, &[75, 25, 0], 0.0).apply(&mut logits);
        assert_eq!(logits, [1.0, 2.0, 3.0]);
        // cosines become the logits that the criterion has trained
        LogitAdjustment::new(&Id::Ldam.default_config(), &[75, 25, 0], 0.0).apply(&mut logits);
        assert_eq!(logits, [30.0, 60.0, 90.0]);
    }
}
