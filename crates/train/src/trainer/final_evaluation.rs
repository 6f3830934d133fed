//! The last evaluation of a finished run: details beyond the metrics.

use std::sync::Arc;

use equipoise_decide::Logits;
use equipoise_nn::{Engine, TensorKind};
use equipoise_record::names::BEST;
use equipoise_record::{Calibration, EvaluationDetails, RunFolder};
use equipoise_support::Examples;

use super::{Directive, Observer, Position, Trainer};
use crate::calibration::{MAX_LOGITS, before_and_after, calibrate};
use crate::checkpoint::{Checkpoint, CheckpointError, RawCheckpoint, files};
use crate::decision::{Decision, DecisionTally, RowDecision};
use crate::details::DetailsCollector;
use crate::error::TrainError;
use crate::evaluate::EvaluatedBatch;
use crate::metrics::{EvaluationCounts, Outcome};
use crate::prepare::SplitLoader;
use crate::prior::{assumed_prior, train_log_shares};
use crate::settings::SelectBest;
use crate::sweep::SweepCounts;
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
            Some(_) => {
                let checkpoint = self.best_checkpoint(folder.into())?;
                let [parameters, statistics] = WEIGHTS.map(|kind| self.engine.tensors(kind));
                let trained = [parameters?, statistics?];
                set_weights(&mut self.engine, &[checkpoint.parameters, checkpoint.statistics])?;
                let details = self.evaluate_details(checkpoint.header.position, observer);
                set_weights(&mut self.engine, &trained)?;
                details
            }
            None if self.has_ema() => {
                self.engine.swap_ema()?;
                let details = self.evaluate_details(self.position, observer);
                self.engine.swap_ema()?;
                details
            }
            None => self.evaluate_details(self.position, observer),
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

    /// Details of the engine's current weights, which are those of a position.
    fn evaluate_details(
        &mut self,
        position: Position,
        observer: &mut dyn Observer,
    ) -> Result<Option<EvaluationDetails>, TrainError> {
        let data = Arc::clone(&self.data);
        let assumed = assumed_prior(&self.settings, &data.counts, &self.inference().adjustment)?;
        let total = data.test.labels.len() + data.val.as_ref().map_or(0, |val| val.labels.len());
        let mut calibration = None;
        if let Some(val) = data.val.as_ref().filter(|val| val.labels.len() * data.classes.len() <= MAX_LOGITS) {
            let Some(logits) = self.evaluate_logits(val, |done| observer.evaluating(done, total))? else {
                return Ok(None);
            };
            let logits = Logits::new(&logits, &val.labels, data.classes.len());
            let examples = Examples::of_features(val.loader.is_of_features());
            calibration = Some(calibrate(&logits, &assumed, position, &examples.say("validation images")));
        }
        let (labels, before) = (&data.test.labels, total - data.test.labels.len());
        let temperature = calibration.as_ref().map_or(1.0, |calibration| calibration.temperature);
        let decision = calibration.as_ref().and_then(|calibration| {
            let adjustment = self.inference().adjustment;
            Decision::for_report((&self.settings, &data.counts), &adjustment, &data.groups, calibration)
        });
        let mut tally =
            decision.as_ref().map(|decision| DecisionTally::new(decision, &data.groups, data.classes.len()));
        let mut sweep = SweepCounts::new(&assumed.log_shares, &train_log_shares(&data.counts));
        let write = |batch: &EvaluatedBatch<'_>, bytes: &mut Vec<u8>| {
            for (row, label) in batch.rows() {
                let calibrated: Vec<f32> = row.iter().map(|z| (f64::from(*z) / temperature) as f32).collect();
                bytes.extend(Outcome::new(row, label).to_bytes());
                bytes.extend(Outcome::new(&calibrated, label).to_bytes());
                bytes.extend(sweep.hits(row, label).to_le_bytes());
                let decided = decision.as_ref().map(|decision| RowDecision::new(decision, row, &calibrated, label));
                bytes.extend(decided.unwrap_or_default().to_bytes());
            }
        };
        const WIDTH: usize = 2 * Outcome::BYTES + 2 + RowDecision::BYTES;
        let bytes = self.evaluate_bytes(&data.test, WIDTH, write, |done| observer.evaluating(before + done, total))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let (mut outcomes, mut calibrated) = (Vec::new(), Vec::new());
        for (row, &label) in bytes.as_chunks::<WIDTH>().0.iter().zip(labels) {
            let (pair, rest) = row.split_at(2 * Outcome::BYTES);
            let (hits, decided) = rest.split_at(2);
            let [raw, scaled] = [0, 1].map(|k| pair.as_chunks().0.get(k).map(Outcome::from_bytes));
            outcomes.extend(raw);
            calibrated.extend(scaled);
            sweep.add_hits(u16::from_le_bytes([hits[0], hits[1]]), label as usize);
            if let (Some(tally), Some(decided)) = (&mut tally, decided.first_chunk()) {
                tally.add_decided(RowDecision::from_bytes(*decided), label as usize);
            }
        }
        if let Some(calibration) = &mut calibration {
            calibration.test = before_and_after([&outcomes, &calibrated], labels, &data.groups, data.classes.len());
            calibration.decisions = tally.map(|tally| tally.record()).unwrap_or_default();
        }
        self.calibration = calibration;
        let mut collector = DetailsCollector::new(&data.groups, data.classes.len());
        collector.add_outcomes(0, outcomes.iter().copied(), labels);
        let counts = EvaluationCounts::of(&outcomes, labels, data.classes.len());
        let mut details = collector.finish(position.epoch, &counts, &|index| data.test.describe(index));
        details.sweep = sweep.points(&data.groups);
        Ok(Some(details))
    }

    /// The logits of a split; `None` if an observer stopped the evaluation.
    fn evaluate_logits(
        &mut self,
        split: &SplitLoader,
        on_batch: impl FnMut(usize) -> Directive,
    ) -> Result<Option<Vec<f32>>, TrainError> {
        let write = |batch: &EvaluatedBatch<'_>, bytes: &mut Vec<u8>| {
            bytes.extend(batch.logits.iter().flat_map(|z| z.to_le_bytes()));
        };
        let bytes = self.evaluate_bytes(split, 4 * self.data.classes.len(), write, on_batch)?;
        Ok(bytes.map(|bytes| bytes.as_chunks().0.iter().map(|z| f32::from_le_bytes(*z)).collect()))
    }

    /// The calibration of the weights that [`details`](Self::details) evaluated; `None` without a validation split.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_ref()
    }
}
