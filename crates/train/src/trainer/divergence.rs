//! A run that diverges ends with an error that says where, and on which images.

use equipoise_criterion::BatchError;
use equipoise_nn::{Engine, TensorKind};

use super::Trainer;
use crate::error::TrainError;
use crate::settings::{LEARNING_RATE, OptimizerKind};
use crate::workers::Workers;

/// Images of the batch that the error names.
const NAMED_IMAGES: usize = 8;
/// The usual learning rate of AdamW.
const ADAMW_LEARNING_RATE: f64 = 0.001;

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Checks that all weights are finite: nothing else is worth saving.
    pub(super) fn check_finite(&self) -> Result<(), TrainError> {
        for kind in [TensorKind::Parameters, TensorKind::Statistics] {
            if !self.engine.tensors(kind)?.iter().flatten().all(|w| w.is_finite()) {
                return Err(self.diverged_in_last_step("it left weights that are not finite".to_owned()));
            }
        }
        Ok(())
    }

    /// The error for what the last finished step has done.
    pub(super) fn diverged_in_last_step(&self, what: String) -> TrainError {
        self.diverged(&self.last_indices, self.position.step.saturating_sub(1), what)
    }

    /// The error for a step, from 0, on these images.
    pub(super) fn diverged(&self, indices: &[u32], step: u64, what: String) -> TrainError {
        // an engine that cannot even say its weights has other errors to report
        let weights = self.engine.tensors(TensorKind::Parameters).unwrap_or_default();
        // NaN counts as the largest
        let size = |w: &f32| if w.is_nan() { f32::INFINITY } else { w.abs() };
        let largest = weights.iter().flatten().map(size).fold(0.0, f32::max);
        let mut files: Vec<String> =
            indices.iter().take(NAMED_IMAGES).map(|index| self.data.train.name(*index)).collect();
        if indices.len() > NAMED_IMAGES {
            files.push(format!("and {} more", indices.len() - NAMED_IMAGES));
        }
        let files = files.join(", ");
        let (epoch, advice) = (self.position.epoch + 1, self.advice());
        TrainError::Diverged { epoch, step: step + 1, what, advice, largest, files }
    }

    /// What to try instead of settings that make a run diverge.
    fn advice(&self) -> String {
        let optimizer = &self.settings.optimizer;
        let usual = match optimizer.name {
            OptimizerKind::Sgd | OptimizerKind::Lbfgs => LEARNING_RATE,
            OptimizerKind::AdamW => ADAMW_LEARNING_RATE,
        };
        let lower = (self.settings.learning_rate() / 10.0).min(usual);
        match optimizer.clip_grad_norm > 0.0 {
            true => format!("try a lower learning rate, --lr {lower}"),
            false => {
                format!("try a lower learning rate, --lr {lower}, or clip gradients, --set optimizer.clip_grad_norm=2")
            }
        }
    }

    /// What a criterion says about a batch, with the names of classes and images.
    pub(super) fn describe(&self, error: &BatchError, indices: &[u32]) -> String {
        let image = |row: usize| indices.get(row).map_or_else(String::new, |index| self.data.train.name(*index));
        match error {
            BatchError::NotFinite { row, class, value } => {
                let class = &self.data.classes[*class];
                format!("the logit of class '{class}' for image {} is {value}", image(*row))
            }
            BatchError::Overflow { row, weight } => format!("the weight of image {} is {weight}", image(*row)),
            other => other.to_string(),
        }
    }
}
