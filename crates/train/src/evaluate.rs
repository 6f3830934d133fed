//! Showing a part of a set to a network and counting what it says.

use equipoise_nn::Engine;
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::metrics::Tally;
use crate::prepare::Shown;

/// Changes of logits after training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjust {
    /// What is added to every class's logit; empty: nothing.
    pub shift: Vec<f32>,
}

impl Adjust {
    /// Post-hoc logit adjustment: - tau log(share of the training images), by class (Menon et al., ICLR 2021); nothing for tau 0.
    #[must_use]
    pub fn by_counts(counts: &[u64], tau: f64) -> Self {
        if tau == 0.0 {
            return Self::default();
        }
        let total: u64 = counts.iter().sum();
        // a class without images would get all of the others'
        let share = |n: u64| (n.max(1) as f64 / total.max(1) as f64).ln();
        Self { shift: counts.iter().map(|n| (-tau * share(*n)) as f32).collect() }
    }

    /// Changes rows of logits.
    pub fn apply(&self, logits: &mut [f32]) {
        if !self.shift.is_empty() {
            for row in logits.chunks_exact_mut(self.shift.len()) {
                row.iter_mut().zip(&self.shift).for_each(|(x, shift)| *x += shift);
            }
        }
    }
}

/// Some images of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Place of the first.
    pub first: usize,
    /// Their classes.
    pub labels: &'a [u32],
    /// What the network says of them.
    pub logits: &'a [f32],
}

impl Seen<'_> {
    /// Images that have been evaluated, with these.
    #[must_use]
    pub fn done(&self) -> usize {
        self.first + self.labels.len()
    }
}

/// Shows a part to a network and counts what it says; `None` if `go` has had enough.
///
/// # Errors
/// If a file can no longer be read.
pub fn evaluate(
    engine: &mut dyn Engine,
    part: &Shown,
    batch: usize,
    pool: &Pool,
    adjust: &Adjust,
    go: &mut dyn FnMut(&Seen<'_>) -> bool,
) -> Result<Option<Tally>, TrainError> {
    let classes = engine.network().classes;
    let mut tally = Tally::new(classes);
    let (channels, height, width) = part.loader.shape();
    let places: Vec<u32> = (0..part.labels.len() as u32).collect();
    let mut images = Vec::new();
    for (number, places) in places.chunks(batch.max(1)).enumerate() {
        images.resize(places.len() * channels * height * width, 0.0);
        part.loader.batch(places, 0, 0, &mut images, pool)?;
        let mut logits = engine.forward(&images, false)?.to_vec();
        adjust.apply(&mut logits);
        let first = number * batch.max(1);
        let seen = Seen { first, labels: &part.labels[first..first + places.len()], logits: &logits };
        tally.add(seen.logits, seen.labels);
        if !go(&seen) {
            return Ok(None);
        }
    }
    Ok(Some(tally))
}
