//! A run that diverges ends with an error that says where, and on which images.

use equipoise_nn::{Engine, TensorKind};

use super::Trainer;
use crate::error::TrainError;
use crate::workers::Workers;

/// Images of the batch that the error names.
const NAMED_IMAGES: usize = 8;

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Checks that all weights are finite: nothing else is worth saving.
    pub(super) fn check_finite(&self) -> Result<(), TrainError> {
        let tensors = [TensorKind::Parameters, TensorKind::Statistics].map(|kind| self.engine.tensors(kind));
        if tensors.iter().flatten().flatten().all(|w| w.is_finite()) {
            return Ok(());
        }
        Err(self.diverged_in_last_step("it left weights that are not finite".to_owned()))
    }

    /// The error for what the last finished step has done.
    pub(super) fn diverged_in_last_step(&self, what: String) -> TrainError {
        self.diverged(&self.last_indices, self.position.step.saturating_sub(1), what)
    }

    /// The error for a step, from 0, on these images.
    pub(super) fn diverged(&self, indices: &[u32], step: u64, what: String) -> TrainError {
        let weights = self.engine.tensors(TensorKind::Parameters);
        // NaN counts as the largest
        let size = |w: &f32| if w.is_nan() { f32::INFINITY } else { w.abs() };
        let largest = weights.iter().flatten().map(size).fold(0.0, f32::max);
        let mut files: Vec<String> =
            indices.iter().take(NAMED_IMAGES).map(|index| self.data.train.name(*index)).collect();
        if indices.len() > NAMED_IMAGES {
            files.push(format!("and {} more", indices.len() - NAMED_IMAGES));
        }
        let files = files.join(", ");
        TrainError::Diverged { epoch: self.position.epoch + 1, step: step + 1, what, largest, files }
    }
}
