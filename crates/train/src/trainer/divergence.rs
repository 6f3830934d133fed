//! A run whose values are no longer finite ends with an error that says where, and on which images. One whose loss is merely absurd goes on
//! with a warning.

use equipoise_criterion::{Batch, BatchError, Output, Workspace};
use equipoise_nn::{Engine, TensorKind};
use equipoise_record::DIVERGED;

use super::Trainer;
use crate::error::TrainError;
use crate::settings::OptimizerKind;
use crate::workers::Workers;

/// Images of the batch that the error names.
const NAMED_IMAGES: usize = 8;
/// A loss of this many times that of equal logits is no longer that of a network that learns.
const TIMES_CHANCE: f64 = 10.0;
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

    /// A sentence about the first epoch whose loss is far above that of equal logits, if the last epoch is no better.
    pub(crate) fn divergence(&self) -> Option<String> {
        let uniform = (self.data.classes.len().max(2) as f64).ln();
        let last = self.history.last().map(|record| record.loss).filter(|loss| *loss > TIMES_CHANCE * uniform)?;
        // margins and weights of a criterion may make it larger; that takes a pass over all classes, which few runs need
        let chance = self.loss_of_equal_logits().max(uniform);
        if last <= TIMES_CHANCE * chance {
            return None;
        }
        let record = self.history.iter().find(|record| record.loss > TIMES_CHANCE * chance)?;
        let (epoch, loss, advice) = (record.epoch, short(record.loss), self.advice());
        let chance = short(chance);
        Some(format!("{DIVERGED}: the training loss of epoch {epoch} is {loss}, and guessing has {chance}; {advice}"))
    }

    /// Mean loss of the training images for a network whose logits are all zero.
    fn loss_of_equal_logits(&self) -> f64 {
        let (mut workspace, classes) = (Workspace::new(), self.data.classes.len());
        let (zeros, mut grad, mut weights) = (vec![0.0; classes], vec![0.0; classes], [0.0]);
        let (mut sum, mut images) = (0.0, 0.0);
        for (class, count) in self.data.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (label, out) = ([class as u32], Output::new(&mut grad, &mut weights));
            // a criterion that cannot say it is judged by the others
            let Ok(summary) = self.criterion.evaluate(&Batch::new(&zeros, &label), out, &mut workspace) else {
                continue;
            };
            sum += summary.loss * *count as f64;
            images += *count as f64;
        }
        if images > 0.0 { sum / images } else { 0.0 }
    }

    /// What to try instead of settings that make a run diverge.
    fn advice(&self) -> String {
        let optimizer = &self.settings.optimizer;
        let usual = match optimizer.name {
            OptimizerKind::Sgd | OptimizerKind::Lbfgs => self.settings.usual_learning_rate(),
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

/// A loss in few digits.
fn short(loss: f64) -> String {
    if loss < 1e4 { format!("{loss:.1}") } else { format!("{loss:.1e}") }
}
