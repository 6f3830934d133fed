//! The last evaluation of a finished run: details beyond the metrics.

use equipoise_nn::Engine;
use equipoise_record::names::BEST;
use equipoise_record::{EvaluationDetails, RunFolder};

use super::average::{Weights, set_weights, weights};
use super::{Directive, Observer, Trainer};
use crate::checkpoint::{Checkpoint, files};
use crate::details::DetailsCollector;
use crate::error::TrainError;
use crate::evaluate::{EvaluatedBatch, evaluate};
use crate::settings::Choose;
use crate::workers::Workers;

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
        let trained = weights(&self.engine);
        let (epoch, reported) = self.reported_weights(folder)?;
        set_weights(&mut self.engine, reported.as_ref().or(self.ema.as_ref()).unwrap_or(&trained))?;
        let (batch_size, adjustment) = (self.engine_batch_size(), self.logit_adjustment());
        let total = self.data.test.labels.len();
        let mut collector = DetailsCollector::new(&self.data);
        let mut on_batch = |batch: &EvaluatedBatch<'_>| {
            collector.add(batch);
            observer.evaluating(batch.done(), total) != Directive::Stop
        };
        let counts = evaluate(&mut self.engine, &self.data.test, batch_size, &self.pool, &adjustment, &mut on_batch);
        set_weights(&mut self.engine, &trained)?;
        Ok(counts?.map(|counts| collector.finish(epoch, &counts, &self.data)))
    }

    /// The epoch whose weights are reported, and those weights if the epoch is not the last.
    fn reported_weights(&self, folder: &RunFolder) -> Result<(u64, Option<Weights>), TrainError> {
        let last = self.position.epoch;
        match self.best.filter(|best| self.selection() == Choose::Val && *best != last) {
            Some(best) => {
                let checkpoint = Checkpoint::new(files::read(&folder.path().join(BEST))?)?;
                Ok((best, Some([checkpoint.parameters, checkpoint.statistics])))
            }
            None => Ok((last, None)),
        }
    }
}
