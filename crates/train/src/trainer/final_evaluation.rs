//! The last evaluation of a finished run: details beyond the metrics.

use std::sync::Arc;

use equipoise_nn::{Engine, TensorKind};
use equipoise_record::names::BEST;
use equipoise_record::{EvaluationDetails, RunFolder};

use super::{Observer, Trainer};
use crate::checkpoint::{Checkpoint, CheckpointError, RawCheckpoint, files};
use crate::details::DetailsCollector;
use crate::error::TrainError;
use crate::metrics::EvaluationCounts;
use crate::settings::SelectBest;
use crate::workers::{Workers, agree};

/// The tensors that determine a network's output.
const WEIGHTS: [TensorKind; 2] = [TensorKind::Parameters, TensorKind::Statistics];

fn set_weights(engine: &mut impl Engine, weights: &[Vec<Vec<f32>>; 2]) -> Result<(), TrainError> {
    WEIGHTS.into_iter().zip(weights).try_for_each(|(kind, values)| Ok(engine.set_tensors(kind, values)?))
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Evaluates the reported weights of a finished run once more, for its details; `None` if an observer stopped it. The
    /// folder is that of [`run`](Self::run).
    ///
    /// # Errors
    /// If images or the checkpoint of the best epoch can no longer be read.
    pub fn details<'f>(
        &mut self,
        folder: impl Into<Option<&'f RunFolder>>,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationDetails>, TrainError> {
        let last = self.position.epoch;
        match self.best.filter(|best| self.selection() == SelectBest::Val && *best != last) {
            Some(best) => {
                let checkpoint = self.best_checkpoint(folder.into())?;
                let [parameters, statistics] = WEIGHTS.map(|kind| self.engine.tensors(kind));
                let trained = [parameters?, statistics?];
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

    /// The checkpoint of the best epoch, which rank 0 has.
    fn best_checkpoint(&mut self, folder: Option<&RunFolder>) -> Result<Checkpoint, TrainError> {
        let read = |folder: &RunFolder| Ok(files::read(&folder.path().join(BEST))?.to_bytes());
        let mut bytes = agree(&mut self.workers, folder.map_or(Ok(Vec::new()), read))?;
        self.workers.broadcast(&mut bytes)?;
        let raw = RawCheckpoint::from_bytes(&bytes)
            .map_err(|source| CheckpointError::Corrupt { path: BEST.into(), source })?;
        Checkpoint::new(raw)
    }

    /// Details of the engine's current weights, which are those of an epoch.
    fn evaluate_details(
        &mut self,
        epoch: u64,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationDetails>, TrainError> {
        let data = Arc::clone(&self.data);
        let (labels, total) = (&data.test.labels, data.test.labels.len());
        let outcomes = self.evaluate_split(&data.test, |done| observer.evaluating(done, total))?;
        Ok(outcomes.map(|outcomes| {
            let mut collector = DetailsCollector::new(&data.groups, data.classes.len());
            collector.add_outcomes(0, outcomes.iter().copied(), labels);
            let counts = EvaluationCounts::of(&outcomes, labels, data.classes.len());
            collector.finish(epoch, &counts, &|index| data.test.describe(index))
        }))
    }
}
