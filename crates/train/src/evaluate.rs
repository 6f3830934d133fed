//! Evaluation of a network on a split.

use std::ops::Range;

use equipoise_criterion::MethodConfig;
use equipoise_nn::{Engine, Network};
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::metrics::{EvaluationCounts, Outcome};
use crate::prepare::SplitLoader;
use crate::trainer::Directive;
use crate::workers::{Workers, WorkersError, agree, largest, lengths, rows_of};

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

    /// The adjustment followed by a temperature and by offsets of a target prior, which may be empty.
    #[must_use]
    pub fn then(&self, temperature: f64, offsets: &[f64]) -> Self {
        let classes = self.offsets.len().max(offsets.len());
        let own = |class: usize| f64::from(self.offsets.get(class).copied().unwrap_or(0.0));
        let offset = |class: usize| own(class) / temperature + offsets.get(class).copied().unwrap_or(0.0);
        Self {
            scale: (f64::from(self.scale) / temperature) as f32,
            offsets: (0..classes).map(|class| offset(class) as f32).collect(),
        }
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

/// Images that a trained network sees in place of one (test-time augmentation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestTimeAugmentation {
    /// The image itself.
    #[default]
    None,
    /// The image and its mirror image. Their logits are averaged.
    Flip,
}

/// How a trained network is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// What becomes of the logits.
    pub adjustment: LogitAdjustment,
    /// What the network sees of an image.
    pub tta: TestTimeAugmentation,
}

impl TestTimeAugmentation {
    /// Checks that a network's input has a mirror image if one is asked for.
    ///
    /// # Errors
    /// Refuses mirror images of features.
    pub fn check(self, network: &Network) -> Result<(), TrainError> {
        match self == Self::Flip && network.is_on_features() {
            true => Err(TrainError::Unusable {
                what: "--tta flip is for images: the run was trained on features, which have no mirror image"
                    .to_owned(),
            }),
            false => Ok(()),
        }
    }
}

impl Inference {
    /// Computes the logits of images, row after row. The images may be mirrored afterwards.
    ///
    /// # Errors
    /// If the images do not fit the network.
    pub fn logits(&self, engine: &mut dyn Engine, images: &mut [f32]) -> Result<Vec<f32>, TrainError> {
        let mut logits = engine.forward(images, false)?.to_vec();
        if self.tta == TestTimeAugmentation::Flip {
            images.chunks_exact_mut(engine.network().size[1]).for_each(<[f32]>::reverse);
            let mirrored = engine.forward(images, false)?;
            logits.iter_mut().zip(mirrored).for_each(|(z, mirrored)| *z = 0.5 * (*z + mirrored));
        }
        self.adjustment.apply(&mut logits);
        Ok(logits)
    }
}

impl From<LogitAdjustment> for Inference {
    fn from(adjustment: LogitAdjustment) -> Self {
        Self { adjustment, tta: TestTimeAugmentation::None }
    }
}

/// Rows of a batch of an evaluation: those of this worker, or all.
#[derive(Clone, Copy, Debug)]
pub struct EvaluatedBatch<'a> {
    /// Index of the first image in the split.
    pub first: usize,
    /// Classes of the images.
    pub labels: &'a [u32],
    /// Logits of the images, row after row.
    pub logits: &'a [f32],
    /// Number of images of the split that all workers have evaluated, including this batch.
    pub done: usize,
}

impl EvaluatedBatch<'_> {
    /// What the network makes of each image.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = Outcome> {
        self.rows().map(|(logits, label)| Outcome::new(logits, label))
    }

    /// Logits and label of each image.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[f32], usize)> {
        let classes = self.logits.len() / self.labels.len().max(1);
        let rows = self.logits.chunks_exact(classes.max(1)).zip(self.labels);
        rows.map(|(logits, label)| (logits, *label as usize))
    }
}

/// Evaluates a network on a split. Every worker computes its share of the images; `on_batch` sees all of them, batch by batch, in
/// every worker.
pub(crate) fn evaluate(
    engine: &mut dyn Engine,
    workers: &mut impl Workers,
    split: &SplitLoader,
    batch_size: usize,
    pool: &Pool,
    inference: &Inference,
    on_batch: &mut dyn FnMut(&EvaluatedBatch<'_>),
) -> Result<EvaluationCounts, TrainError> {
    let (total, classes, shard) = (split.labels.len(), engine.network().classes, workers.shard());
    let batch_size = batch_size.max(1);
    let mut counts = EvaluationCounts::new(classes);
    let (mut images, mut all) = (Vec::new(), Vec::new());
    // a batch for every worker at a time
    for start in (0..total).step_by(batch_size * shard.size()) {
        let number = (total - start).min(batch_size * shard.size());
        let rows = rows_of(number, shard.rank(), shard.size(), None);
        let own = logits_of(engine, split, start + rows.start..start + rows.end, pool, inference, &mut images);
        let own = agree(workers, own)?;
        workers.gather(&own, &lengths(number, classes, shard.size(), None), &mut all)?;
        // batches are those of a single process
        for (batch, logits) in all.chunks(batch_size * classes).enumerate() {
            let first = start + batch * batch_size;
            let done = first + logits.len() / classes;
            let labels = &split.labels[first..done];
            counts.add(logits, labels);
            on_batch(&EvaluatedBatch { first, labels, logits, done });
        }
    }
    Ok(counts)
}

/// The logits of some images of a split.
fn logits_of(
    engine: &mut dyn Engine,
    split: &SplitLoader,
    rows: Range<usize>,
    pool: &Pool,
    inference: &Inference,
    images: &mut Vec<f32>,
) -> Result<Vec<f32>, TrainError> {
    let indices: Vec<u32> = rows.map(|index| index as u32).collect();
    images.resize(indices.len() * split.image_len(), 0.0);
    split.loader.batch(&indices, 0, 0, images, pool)?;
    if indices.is_empty() { Ok(Vec::new()) } else { inference.logits(engine, images) }
}

/// Evaluates a network on this worker's rows of every batch of a split. `on_batch` sees them; false if that of any worker
/// stopped the evaluation.
pub(crate) fn evaluate_rows(
    engine: &mut dyn Engine,
    workers: &mut impl Workers,
    split: &SplitLoader,
    batch_size: usize,
    pool: &Pool,
    inference: &Inference,
    on_batch: &mut dyn FnMut(&EvaluatedBatch<'_>) -> Directive,
) -> Result<bool, TrainError> {
    let (total, batch_size, shard) = (split.labels.len(), batch_size.max(1), workers.shard());
    let mut images = Vec::new();
    for start in (0..total).step_by(batch_size) {
        let end = total.min(start + batch_size);
        let rows = rows_of(end - start, shard.rank(), shard.size(), None);
        let rows = start + rows.start..start + rows.end;
        let logits = logits_of(engine, split, rows.clone(), pool, inference, &mut images);
        // every worker comes by here, whether it has rows or not
        let own = logits.map(|logits| {
            let labels = &split.labels[rows.clone()];
            on_batch(&EvaluatedBatch { first: rows.start, labels, logits: &logits, done: end })
        });
        if largest(workers, own, |own| *own as u64)?.1 == Directive::Stop as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What all workers have written about the rows of a split, `width` bytes each, in the order of the rows. Each row was evaluated by
/// one worker.
pub(crate) fn gather_rows(
    workers: &mut impl Workers,
    own: Vec<u8>,
    width: usize,
    total: usize,
    batch_size: usize,
) -> Result<Vec<u8>, TrainError> {
    let size = workers.shard().size();
    if size == 1 {
        return Ok(own);
    }
    let messages = workers.exchange(&own)?;
    let mut parts: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let mut all = Vec::with_capacity(total * width);
    for start in (0..total).step_by(batch_size) {
        let lengths = lengths(batch_size.min(total - start), width, size, None);
        for (part, length) in parts.iter_mut().zip(lengths) {
            let (rows, rest) = part.split_at(length.min(part.len()));
            all.extend_from_slice(rows);
            *part = rest;
        }
    }
    if all.len() != total * width {
        let what = format!("{} of {total} evaluated images arrived", all.len() / width.max(1));
        return Err(WorkersError { what }.into());
    }
    Ok(all)
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
