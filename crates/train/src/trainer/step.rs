//! One training step: forward, criterion, backward, optimizer.

use equipoise_criterion::{Batch, BatchError, Output, Summary};
use equipoise_nn::{Engine, Sgd};

use super::Trainer;
use super::batches::TrainBatch;
use crate::error::TrainError;
use crate::workers::Workers;

/// What the criterion writes in a step; kept to reuse the memory.
#[derive(Default)]
pub(super) struct CriterionOutput {
    /// Gradient of the logits.
    gradient: Vec<f32>,
    /// Weight of each example in the loss.
    weights: Vec<f32>,
    /// Gradient norm of each example.
    norms: Vec<f32>,
    /// Gradient norm of each example by the adjusted logits; empty unless they set the augmentation.
    adjusted_norms: Vec<f32>,
}

impl CriterionOutput {
    fn resize(&mut self, images: usize, classes: usize) {
        self.gradient.resize(images * classes, 0.0);
        self.weights.resize(images, 0.0);
        self.norms.resize(images, 0.0);
    }
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Trains on one batch.
    pub(super) fn step(&mut self, batch: &TrainBatch, learning_rate: f64) -> Result<(), TrainError> {
        let summary = self.forward_and_criterion(batch)?;
        self.engine.backward(&self.output.gradient)?;
        self.average_gradients();
        self.update_weights(batch, learning_rate)?;
        self.update_ema()?;
        self.last_indices.clone_from(&batch.indices);
        self.position.step += 1;
        self.position.total_steps += 1;
        self.position.images += batch.len() as u64;
        self.position.loss_sum += summary.loss * batch.len() as f64;
        Ok(())
    }

    /// Loss of a batch. Leaves the gradient of the logits in the output buffers and counts the gradient norms.
    fn forward_and_criterion(&mut self, batch: &TrainBatch) -> Result<Summary, TrainError> {
        self.output.resize(batch.len(), self.data.classes.len());
        let logits = self.engine.forward(&batch.images, true)?;
        let (epoch, mixed) = (self.position.epoch, batch.mixed());
        // a mixture has no gradient norm of its own, and mixup leaves no other images
        let has_norms = !batch.is_blended;
        let input = Batch { mixed, epoch, examples: &batch.examples, ..Batch::new(logits, &batch.labels) };
        let CriterionOutput { gradient, weights, norms, adjusted_norms } = &mut self.output;
        adjusted_norms.resize(if self.difficulty.is_some() { batch.len() } else { 0 }, 0.0);
        let output = Output {
            gradient_norms: has_norms.then_some(&mut norms[..]),
            adjusted_norms: self.difficulty.is_some().then_some(&mut adjusted_norms[..]),
            ..Output::new(gradient, weights)
        };
        match self.criterion.train(&input, output, &mut self.workspace) {
            Ok(summary) => {
                if has_norms {
                    self.norms.add(norms, &batch.labels, weights, mixed);
                }
                if let Some(difficulty) = &mut self.difficulty {
                    difficulty.add(adjusted_norms, &batch.labels, mixed);
                }
                Ok(summary)
            }
            Err(error @ (BatchError::NotFinite { .. } | BatchError::Overflow { .. })) => {
                Err(self.diverged(&batch.indices, self.position.step, error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the gradients the mean over all workers.
    fn average_gradients(&mut self) {
        let size = self.workers.shard().size();
        if size > 1 {
            self.workers.sum_gradients(self.engine.gradients());
            self.engine.gradients().iter_mut().for_each(|g| *g /= size as f32);
        }
    }

    /// Moves the EMA of the weights, if the run has one.
    fn update_ema(&mut self) -> Result<(), TrainError> {
        if self.has_ema() {
            // a shorter horizon at first: otherwise the initial weights would stay for long
            let steps = self.position.total_steps as f64;
            let decay = self.settings.optimizer.ema_decay.min((1.0 + steps) / (10.0 + steps)) as f32;
            self.engine.update_ema(decay)?;
        }
        Ok(())
    }

    /// Lets the optimizer change the weights.
    fn update_weights(&mut self, batch: &TrainBatch, learning_rate: f64) -> Result<(), TrainError> {
        let optimizer = &self.settings.optimizer;
        let norm = self.engine.step(&Sgd {
            learning_rate: learning_rate as f32,
            momentum: optimizer.momentum as f32,
            weight_decay: optimizer.weight_decay as f32,
            clip_grad_norm: (optimizer.clip_grad_norm > 0.0).then_some(optimizer.clip_grad_norm as f32),
        });
        if norm.is_finite() {
            return Ok(());
        }
        Err(self.diverged(&batch.indices, self.position.step, format!("the gradient's norm is {norm}")))
    }
}
