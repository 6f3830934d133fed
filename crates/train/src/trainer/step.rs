//! One training step: forward, criterion, backward, optimizer.

use equipoise_criterion::{Batch, BatchError, Output, Summary};
use equipoise_nn::{Engine, Optimizer, UpdateRule};

use super::Trainer;
use crate::batches::TrainBatch;
use crate::error::TrainError;
use crate::settings::{OptimizerKind, OptimizerSettings};
use crate::workers::{Workers, agree, lengths};

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

/// A pass over a batch: the only one, or the first of SAM, or that at the weights to which SAM has ascended. Both see the criterion
/// as the batch has found it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    AfterAscent,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Trains on one batch.
    pub(super) fn step(&mut self, batch: &TrainBatch, learning_rate: f64) -> Result<(), TrainError> {
        let summary = self.forward_and_criterion(batch, Pass::First)?;
        self.backward(batch)?;
        if let Some(rho) = self.settings.sam_rho(self.position.epoch) {
            self.ascend(batch, rho)?;
            self.forward_and_criterion(batch, Pass::AfterAscent)?;
            self.backward(batch)?;
        }
        self.criterion.observe(&mut self.workspace)?;
        self.update_weights(batch, learning_rate)?;
        self.update_ema()?;
        self.last_indices.clone_from(&batch.indices);
        self.position.step += 1;
        self.position.total_steps += 1;
        self.position.images += batch.len() as u64;
        self.position.loss_sum += summary.loss * batch.len() as f64;
        Ok(())
    }

    /// Loss of a batch. Leaves the gradient of the logits in the output buffers, and in the first pass what the criterion counts in
    /// its workspace.
    fn forward_and_criterion(&mut self, batch: &TrainBatch, pass: Pass) -> Result<Summary, TrainError> {
        self.output.resize(batch.len(), self.data.classes.len());
        let logits = whole_logits(&mut self.engine, &mut self.workers, batch, &mut self.gathered)?;
        let (epoch, mixed) = (self.position.epoch, batch.mixed());
        // norms are recorded by class; a blended image belongs to two classes, and mixup blends all images
        let has_norms = !batch.is_blended && pass == Pass::First;
        let has_difficulty = self.difficulty.is_some() && pass == Pass::First;
        let input = Batch { mixed, epoch, examples: &batch.examples, ..Batch::new(logits, &batch.labels) };
        let CriterionOutput { gradient, weights, norms, adjusted_norms } = &mut self.output;
        adjusted_norms.resize(if has_difficulty { batch.len() } else { 0 }, 0.0);
        let output = Output {
            gradient_norms: has_norms.then_some(&mut norms[..]),
            adjusted_norms: has_difficulty.then_some(&mut adjusted_norms[..]),
            ..Output::new(gradient, weights)
        };
        let workspace = match pass {
            Pass::First => &mut self.workspace,
            Pass::AfterAscent => &mut self.ascent_workspace,
        };
        match self.criterion.evaluate(&input, output, workspace) {
            Ok(summary) => {
                if has_norms {
                    self.norms.add(norms, &batch.labels, weights, mixed);
                }
                if let Some(difficulty) = self.difficulty.as_mut().filter(|_| has_difficulty) {
                    difficulty.add(adjusted_norms, &batch.labels, mixed);
                }
                Ok(summary)
            }
            Err(error @ (BatchError::NotFinite { .. } | BatchError::Overflow { .. })) => {
                let what = self.describe(&error, &batch.indices);
                Err(self.diverged(&batch.indices, self.position.step, what))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gradients of all parameters, for the whole batch: every worker goes back with its own rows, and the gradients are
    /// summed.
    fn backward(&mut self, batch: &TrainBatch) -> Result<(), TrainError> {
        let classes = self.data.classes.len();
        match batch.rows.is_empty() {
            true => self.engine.backward_without_images()?,
            false => {
                let rows = batch.rows.start * classes..batch.rows.end * classes;
                self.engine.backward(&self.output.gradient[rows])?;
            }
        }
        if self.workers.shard().size() > 1
            && let Some(gradients) = self.engine.gradients()
        {
            self.workers.sum(gradients)?;
        }
        Ok(())
    }

    /// Moves the weights uphill, where SAM takes its gradient.
    fn ascend(&mut self, batch: &TrainBatch, rho: f64) -> Result<(), TrainError> {
        let norm = self.engine.ascend(rho as f32)?;
        self.check_norm(batch, norm)
    }

    /// Lets the optimizer change the weights.
    fn update_weights(&mut self, batch: &TrainBatch, learning_rate: f64) -> Result<(), TrainError> {
        let norm = self.engine.step(&self.optimizer(learning_rate))?;
        self.check_norm(batch, norm)
    }

    /// Returns an error, which ends the run, if the norm of the gradient is not finite.
    fn check_norm(&self, batch: &TrainBatch, norm: f64) -> Result<(), TrainError> {
        if norm.is_finite() {
            return Ok(());
        }
        Err(self.diverged(&batch.indices, self.position.step, format!("the gradient's norm is {norm}")))
    }

    /// The settings of the next optimizer step.
    fn optimizer(&self, learning_rate: f64) -> Optimizer {
        let OptimizerSettings { name, momentum, nesterov, betas, epsilon, weight_decay, clip_grad_norm, .. } =
            self.settings.optimizer;
        let step = self.position.total_steps + 1;
        Optimizer {
            rule: match name {
                // L-BFGS takes no such steps
                OptimizerKind::Sgd | OptimizerKind::Lbfgs => UpdateRule::Sgd { momentum: momentum as f32, nesterov },
                OptimizerKind::AdamW => UpdateRule::AdamW { betas, epsilon, step },
            },
            learning_rate: learning_rate as f32,
            backbone_factor: self.settings.optimizer.backbone_factor as f32,
            layer_decay: self.settings.optimizer.layer_decay as f32,
            weight_decay: weight_decay as f32,
            clip_grad_norm: (clip_grad_norm > 0.0).then_some(clip_grad_norm as f32),
        }
    }
}

/// The logits of the whole batch, of which every worker computes its own rows.
fn whole_logits<'a>(
    engine: &'a mut impl Engine,
    workers: &mut impl Workers,
    batch: &TrainBatch,
    gathered: &'a mut Vec<f32>,
) -> Result<&'a [f32], TrainError> {
    let (size, classes, slices) = (workers.shard().size(), engine.network().classes, engine.slices());
    if size == 1 {
        return Ok(engine.forward(&batch.images, true)?);
    }
    let own = match batch.rows.is_empty() {
        true => engine.forward_without_images().map(|()| &[][..]),
        false => engine.forward(&batch.images, true),
    };
    let own = agree(workers, own.map_err(TrainError::from))?;
    workers.gather(own, &lengths(batch.len(), classes, size, slices), gathered)?;
    Ok(gathered)
}
