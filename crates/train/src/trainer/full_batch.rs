//! An epoch of L-BFGS: the minimum of the loss of all training rows, with weight decay.

use std::sync::Arc;

use equipoise_criterion::{Batch, Output};
use equipoise_nn::{Engine, TensorKind};

use super::{Directive, Observer, Trainer};
use crate::error::TrainError;
use crate::lbfgs::{StoppingRule, minimize};
use crate::workers::Workers;

/// Rows of a pass: enough for the kernels, and little memory.
pub(crate) const CHUNK: usize = 2048;

/// Memory of the passes over all rows.
#[derive(Default)]
struct Passes {
    rows: Vec<f32>,
    gradient: Vec<f32>,
    weights: Vec<f32>,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Minimizes the loss; `Stop` if the observer stopped it. An epoch that was stopped starts again.
    pub(super) fn minimize(&mut self, observer: &mut dyn Observer) -> Result<Directive, TrainError> {
        let rule = StoppingRule {
            iterations: self.settings.optimizer.iterations,
            tolerance: self.settings.optimizer.tolerance,
        };
        let start = self.engine.tensors(TensorKind::Parameters)?;
        let lengths: Vec<usize> = start.iter().map(Vec::len).collect();
        let mut x: Vec<f64> = start.iter().flatten().map(|w| f64::from(*w)).collect();
        let (mut passes, total) = (Passes::default(), self.data.train.labels.len());
        let (steps, mut loss, mut directive) = (self.steps(), 0.0, Directive::Continue);
        let (position, epoch) = (self.position, self.position.epoch);
        // the objective borrows the trainer, and so the observer only sees the position before it
        let progress = |iteration: u32, loss: f64| super::StepProgress {
            epoch: epoch + 1,
            step: u64::from(iteration).min(steps),
            steps: steps.max(u64::from(rule.iterations)),
            images: total as u64,
            loss,
        };
        let trainer = &mut *self;
        minimize(
            &mut x,
            rule,
            |x| trainer.objective(x, &lengths, &mut passes),
            |iteration, value, _| {
                loss = value;
                directive = observer.step(&progress(iteration, value));
                directive != Directive::Stop
            },
        )?;
        self.position = position;
        if directive == Directive::Stop {
            self.engine.set_tensors(TensorKind::Parameters, &start)?;
            return Ok(Directive::Stop);
        }
        let parameters = unflatten(&x, &lengths);
        self.engine.set_tensors(TensorKind::Parameters, &parameters)?;
        self.position.step = steps;
        self.position.total_steps += steps;
        self.position.images += total as u64;
        self.position.loss_sum += loss * total as f64;
        Ok(Directive::Continue)
    }

    /// Loss of all rows with weight decay, and its gradient.
    fn objective(&mut self, x: &[f64], lengths: &[usize], passes: &mut Passes) -> Result<(f64, Vec<f64>), TrainError> {
        self.engine.set_tensors(TensorKind::Parameters, &unflatten(x, lengths))?;
        let total = self.data.train.labels.len();
        let (mut value, mut divisor, mut sum) = (0.0, 0.0, vec![0.0f64; x.len()]);
        for first in (0..total).step_by(CHUNK) {
            // every chunk is divided by its own rows or weights; together they are divided by all
            let (loss, denominator) = self.chunk(first, passes)?;
            let gradients = self.engine.tensors(TensorKind::Gradients)?;
            sum.iter_mut().zip(gradients.iter().flatten()).for_each(|(sum, g)| *sum += denominator * f64::from(*g));
            (value, divisor) = (value + denominator * loss, divisor + denominator);
        }
        value /= divisor;
        sum.iter_mut().for_each(|g| *g /= divisor);
        let decay = self.settings.optimizer.weight_decay;
        value += 0.5 * decay * x.iter().map(|x| x * x).sum::<f64>();
        sum.iter_mut().zip(x).for_each(|(g, x)| *g += decay * x);
        Ok((value, sum))
    }

    /// Loss of a chunk of rows and what it was divided by; leaves the gradients in the engine. Nothing is counted.
    fn chunk(&mut self, first: usize, passes: &mut Passes) -> Result<(f64, f64), TrainError> {
        let data = Arc::clone(&self.data);
        let rows = CHUNK.min(data.train.labels.len() - first);
        let indices: Vec<u32> = (first as u32..).take(rows).collect();
        let examples: Vec<u64> = (first as u64..).take(rows).collect();
        passes.rows.resize(rows * data.train.image_len(), 0.0);
        data.train.loader.batch(&indices, self.settings.seed, 0, &mut passes.rows, &self.pool)?;
        let logits = self.engine.forward(&passes.rows, true)?;
        passes.gradient.resize(logits.len(), 0.0);
        passes.weights.resize(rows, 0.0);
        let labels = &data.train.labels[first..first + rows];
        let batch = Batch { epoch: self.position.epoch, examples: &examples, ..Batch::new(logits, labels) };
        let output = Output::new(&mut passes.gradient, &mut passes.weights);
        let summary = self.criterion.evaluate(&batch, output, &mut self.workspace)?;
        self.engine.backward(&passes.gradient)?;
        Ok((summary.loss, summary.denominator))
    }
}

/// A flat list of values as tensors of these lengths.
fn unflatten(x: &[f64], lengths: &[usize]) -> Vec<Vec<f32>> {
    let mut rest = x;
    let take = |length: &usize| {
        let (tensor, more) = rest.split_at(*length);
        rest = more;
        tensor.iter().map(|w| *w as f32).collect()
    };
    lengths.iter().map(take).collect()
}
