//! The EMA of the weights, which is evaluated in place of the weights.

use std::sync::Arc;

use equipoise_data::batch::sampler::Shard;
use equipoise_nn::{Engine, TensorKind};

use super::Trainer;
use crate::batches::Prefetch;
use crate::error::TrainError;
use crate::workers::{Workers, agree};

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Whether the run is evaluated with an EMA of the weights, which the engine keeps.
    pub(super) fn has_ema(&self) -> bool {
        self.settings.optimizer.has_ema()
    }

    /// Moves the EMA of the weights, if the run has one.
    pub(super) fn update_ema(&mut self) -> Result<(), TrainError> {
        if self.has_ema() {
            // over a ninth of the steps so far at first: otherwise the initial weights would stay for long
            let steps = self.position.total_steps as f64;
            let decay = self.settings.optimizer.ema_decay_per_step(self.steps());
            self.engine.update_ema(decay.min((1.0 + steps) / (10.0 + steps)) as f32)?;
        }
        Ok(())
    }

    /// Lets the engine compute with the EMA, if the run has one, until [`leave_ema`](Self::leave_ema). If the settings ask
    /// for it, the batch-norm statistics of the EMA are estimated anew, and stay with the EMA.
    pub(super) fn enter_ema(&mut self) -> Result<(), TrainError> {
        if !self.has_ema() {
            return Ok(());
        }
        // the sums are taken around the means before: those of the training state make the bits a function of the position
        let is_estimated = self.settings.optimizer.ema_bn_images > 0;
        let statistics = is_estimated.then(|| self.engine.tensors(TensorKind::Statistics)).transpose()?;
        self.engine.swap_ema()?;
        match statistics {
            Some(statistics) => self.estimate_ema_statistics(&statistics),
            None => Ok(()),
        }
    }

    /// Ends what [`enter_ema`](Self::enter_ema) began.
    pub(super) fn leave_ema(&mut self) -> Result<(), TrainError> {
        if self.has_ema() {
            self.engine.swap_ema()?;
        }
        Ok(())
    }

    /// Estimates the batch-norm statistics of the engine's weights from the first images of the epoch, in the order and
    /// with the augmentation of training.
    fn estimate_ema_statistics(&mut self, before: &[Vec<f32>]) -> Result<(), TrainError> {
        self.engine.set_tensors(TensorKind::Statistics, before)?;
        let data = Arc::clone(&self.data);
        let mut batches = self.epoch_batches(&data);
        batches.order.truncate(self.settings.optimizer.ema_bn_images as usize);
        if batches.slices.is_none() {
            // every worker sees all of these images, as many at a time as its engine has memory for
            batches.batch_size = batches.batch_size.div_ceil(batches.shard.size());
            batches.shard = Shard::WHOLE;
        }
        std::thread::scope(|scope| {
            let prefetch = Prefetch::start(scope, &batches, 0);
            let mut images = 0;
            while let Some(batch) = prefetch.next() {
                let batch = agree(&mut self.workers, batch)?;
                images += batch.len();
                self.engine.estimate_statistics(&batch.images, (batch.len() as f64 / images as f64) as f32)?;
                prefetch.recycle(batch);
            }
            Ok(())
        })
    }
}
