//! The last evaluation of a finished run: details beyond the metrics.

use equipoise_nn::{Engine, TensorKind};
use equipoise_record::names::BEST;
use equipoise_record::{EvaluationDetails, RunFolder};

use super::{Directive, Observer, Trainer};
use crate::checkpoint::{Checkpoint, files};
use crate::details::DetailsCollector;
use crate::error::TrainError;
use crate::evaluate::{EvaluatedBatch, evaluate};
use crate::settings::SelectBest;
use crate::workers::Workers;

/// The tensors that determine a network's output.
const WEIGHTS: [TensorKind; 2] = [TensorKind::Parameters, TensorKind::Statistics];

fn set_weights(engine: &mut impl Engine, weights: &[Vec<Vec<f32>>; 2]) -> Result<(), TrainError> {
    WEIGHTS.into_iter().zip(weights).try_for_each(|(kind, values)| Ok(engine.set_tensors(kind, values)?))
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Evaluates the reported weights of a finished run once more, for its details; `None` if the observer stopped it.
    ///
    /// # Errors
    /// If images or the checkpoint of the best epoch can no longer be read.
    pub fn details(
        &mut self,
        folder: &RunFolder,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationDetails>, TrainError> {
        let last = self.position.epoch;
        match self.best.filter(|best| self.selection() == SelectBest::Val && *best != last) {
            Some(best) => {
                let checkpoint = Checkpoint::new(files::read(&folder.path().join(BEST))?)?;
                let trained = WEIGHTS.map(|kind| self.engine.tensors(kind));
                set_weights(&mut self.engine, &[checkpoint.parameters, checkpoint.statistics])?;
                let details = self.evaluate_details(best, observer);
                set_weights(&mut self.engine, &trained)?;
                details
            }
            None if self.has_ema() => {
                self.engine.swap_ema()?;
                let details = self.evaluate_details(last, observer);
                self.engine.swap_ema()?;
                details
            }
            None => self.evaluate_details(last, observer),
        }
    }

    /// Details of the engine's current weights, which are those of an epoch.
    fn evaluate_details(
        &mut self,
        epoch: u64,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationDetails>, TrainError> {
        let (batch_size, adjustment) = (self.engine_batch_size(), self.logit_adjustment());
        let total = self.data.test.labels.len();
        let mut collector = DetailsCollector::new(&self.data);
        let mut on_batch = |batch: &EvaluatedBatch<'_>| {
            collector.add(batch);
            observer.evaluating(batch.done(), total) != Directive::Stop
        };
        let counts = evaluate(&mut self.engine, &self.data.test, batch_size, &self.pool, &adjustment, &mut on_batch)?;
        Ok(counts.map(|counts| collector.finish(epoch, &counts, &self.data)))
    }
}
