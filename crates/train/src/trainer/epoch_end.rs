//! The end of an epoch: evaluation, selection of the best epoch, checkpoint, records.

use std::sync::Arc;

use equipoise_nn::{Engine, TensorKind};
use equipoise_record::names::{BEST, METRICS, NORMS};
use equipoise_record::{EpochRecord, Metrics, RunFolder};
use equipoise_support::Examples;

use super::{Directive, Observer, Position, Trainer};
use crate::checkpoint::files;
use crate::error::TrainError;
use crate::evaluate::{EvaluatedBatch, evaluate_rows, gather_rows};
use crate::metrics::{EvaluationCounts, Outcome};
use crate::prepare::SplitLoader;
use crate::settings::SelectBest;
use crate::workers::{Workers, agree_by_rank};

/// Metrics on the splits that are not trained on.
#[derive(Default)]
struct SplitMetrics {
    val: Option<Metrics>,
    test: Option<Metrics>,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Ends an epoch; false if the observer stopped it.
    pub(super) fn finish_epoch(
        &mut self,
        folder: Option<&RunFolder>,
        observer: &mut dyn Observer,
    ) -> Result<bool, TrainError> {
        // first, so that all workers find what is not finite in one of them
        self.join_workers()?;
        self.check_finite()?;
        let Some(SplitMetrics { val, test }) = self.evaluate_if_due(observer)? else { return Ok(false) };
        // from here on nothing interrupts the end of the epoch
        self.criterion.end_epoch();
        let epoch = self.position.epoch + 1;
        let norms = self.norms.end_epoch(epoch, &self.criterion);
        self.last_norms = Some(norms.clone());
        let (learning_rate, loss) = (self.learning_rate(self.steps() - 1), self.epoch_loss());
        let augment_levels = self.end_difficulty();
        let had_diverged = self.divergence().is_some();
        let is_best = self.add_to_history(EpochRecord { epoch, learning_rate, loss, val, test, augment_levels });
        self.position = Position { epoch, total_steps: self.position.total_steps, ..Position::default() };
        let written = folder.map_or(Ok(()), |folder| self.write_epoch(folder, is_best));
        agree_by_rank(&mut self.workers, written)?;
        observer.epoch(&self.history[epoch as usize - 1], &norms);
        if let Some(warning) = self.divergence().filter(|_| !had_diverged) {
            observer.warn(&warning);
        }
        Ok(true)
    }

    /// Writes the checkpoint and the records of a finished epoch.
    fn write_epoch(&mut self, folder: &RunFolder, is_best: bool) -> Result<(), TrainError> {
        let checkpoint = self.checkpoint()?;
        if is_best {
            folder.write_from(BEST, &mut checkpoint.bytes())?;
        }
        files::save(folder, &checkpoint)?;
        self.append_metrics(folder)?;
        self.append_norms(folder)
    }

    /// Metrics of the epoch, empty if no evaluation is due; `None` if the observer stopped it.
    fn evaluate_if_due(&mut self, observer: &mut dyn Observer) -> Result<Option<SplitMetrics>, TrainError> {
        let epoch = self.position.epoch + 1;
        if epoch != self.settings.epochs && !epoch.is_multiple_of(self.settings.evaluate_every) {
            return Ok(Some(SplitMetrics::default()));
        }
        let Some(metrics) = self.evaluate_splits(observer)? else { return Ok(None) };
        let unusable: u64 = metrics.val.iter().chain(&metrics.test).map(|metrics| metrics.unusable).sum();
        if unusable > 0 {
            let examples = Examples::of_features(self.engine.network().is_on_features());
            let images = examples.counted(unusable, "");
            let have = if unusable == 1 { "has" } else { "have" };
            let what = format!("{images} of the evaluation {have} logits that are not finite");
            return Err(self.diverged_in_last_step(what));
        }
        Ok(Some(metrics))
    }

    /// Metrics on the validation split and on the test split; `None` if the observer stopped it.
    fn evaluate_splits(&mut self, observer: &mut dyn Observer) -> Result<Option<SplitMetrics>, TrainError> {
        self.enter_ema()?;
        let data = Arc::clone(&self.data);
        let splits: Vec<_> = data.val.iter().chain([&data.test]).collect();
        let total: usize = splits.iter().map(|split| split.labels.len()).sum();
        let (mut metrics, mut before) = (Vec::new(), 0);
        for split in &splits {
            let outcomes = self.evaluate_split(split, |done| observer.evaluating(before + done, total))?;
            let Some(outcomes) = outcomes else { break };
            let counts = EvaluationCounts::of(&outcomes, &split.labels, data.classes.len());
            metrics.push(counts.metrics(&data.counts, &data.groups, &data.classes));
            before += split.labels.len();
        }
        self.leave_ema()?;
        if metrics.len() < splits.len() {
            return Ok(None);
        }
        let test = metrics.pop();
        Ok(Some(SplitMetrics { val: metrics.pop(), test }))
    }

    /// What the network makes of the images of a split, to which every worker contributes; `None` if one of them stopped it.
    pub(super) fn evaluate_split(
        &mut self,
        split: &SplitLoader,
        on_batch: impl FnMut(usize) -> Directive,
    ) -> Result<Option<Vec<Outcome>>, TrainError> {
        let write = |batch: &EvaluatedBatch<'_>, bytes: &mut Vec<u8>| {
            batch.outcomes().for_each(|outcome| bytes.extend(outcome.to_bytes()));
        };
        let bytes = self.evaluate_bytes(split, Outcome::BYTES, write, on_batch)?;
        Ok(bytes.map(|bytes| bytes.as_chunks().0.iter().map(Outcome::from_bytes).collect()))
    }

    /// What `write` writes about the images of a split, `width` bytes each, to which every worker contributes; `None` if one of them
    /// stopped it.
    pub(super) fn evaluate_bytes(
        &mut self,
        split: &SplitLoader,
        width: usize,
        write: impl Fn(&EvaluatedBatch<'_>, &mut Vec<u8>),
        mut on_batch: impl FnMut(usize) -> Directive,
    ) -> Result<Option<Vec<u8>>, TrainError> {
        let (inference, batch_size) = (self.inference(), self.evaluation_batch_size());
        let mut own = Vec::new();
        let mut add = |batch: &EvaluatedBatch<'_>| {
            write(batch, &mut own);
            on_batch(batch.done)
        };
        let (engine, workers) = (&mut self.engine, &mut self.workers);
        let is_done = evaluate_rows(engine, workers, split, batch_size, &self.pool, &inference, &mut add)?;
        match is_done {
            true => gather_rows(workers, own, width, split.labels.len(), batch_size).map(Some),
            false => Ok(None),
        }
    }

    /// Moves the levels of the classes. Returns those of the epoch that ends, or none if augmentation does not follow the
    /// difficulty.
    fn end_difficulty(&mut self) -> Vec<u8> {
        let Some(difficulty) = &mut self.difficulty else { return Vec::new() };
        let levels = difficulty.levels().to_vec();
        difficulty.end_epoch();
        levels
    }

    /// Gives every worker the same network: what others have updated, and as running statistics the mean over all workers, unless
    /// the engine has those of the whole batch. Doing this twice changes nothing but the rounding.
    pub(super) fn join_workers(&mut self) -> Result<(), TrainError> {
        self.engine.gather_state()?;
        let size = self.workers.shard().size();
        if size == 1 || self.engine.slices().is_some() {
            return Ok(());
        }
        let ema = self.has_ema().then_some(TensorKind::EmaStatistics);
        for kind in [TensorKind::Statistics].into_iter().chain(ema) {
            let mut statistics = self.engine.tensors(kind)?;
            let mut flat: Vec<f32> = statistics.iter().flatten().copied().collect();
            self.workers.sum(&mut flat)?;
            statistics.iter_mut().flatten().zip(flat).for_each(|(to, sum)| *to = sum / size as f32);
            self.engine.set_tensors(kind, &statistics)?;
        }
        Ok(())
    }

    /// Mean loss of the epoch.
    fn epoch_loss(&self) -> f64 {
        let Position { loss_sum, images, .. } = self.position;
        loss_sum / images.max(1) as f64
    }

    /// Adds an epoch to the history; true if it is the best so far.
    fn add_to_history(&mut self, record: EpochRecord) -> bool {
        let is_best = self.is_better(&record);
        if is_best {
            self.best = Some(record.epoch);
        }
        // the classes of older epochs are in metrics.jsonl; here they would make every checkpoint larger than the last
        let best = self.best;
        for old in self.history.iter_mut().filter(|old| Some(old.epoch) != best) {
            old.augment_levels.clear();
            for metrics in old.val.iter_mut().chain(&mut old.test) {
                metrics.per_class.clear();
            }
        }
        self.history.push(record);
        is_best
    }

    /// The accuracy by which epochs are selected.
    fn score(&self, record: &EpochRecord) -> Option<f64> {
        match self.selection() {
            SelectBest::Val => record.val.as_ref().and_then(|metrics| metrics.balanced),
            SelectBest::Test => record.test.as_ref().and_then(|metrics| metrics.top1),
            SelectBest::Auto | SelectBest::Last => None,
        }
    }

    /// Whether an epoch is better than the best so far. Of epochs that are equally accurate on the validation split, the one with the
    /// lower loss there is better, else the later one. On the test split it is the first one, as in the code of the papers that select there.
    fn is_better(&self, record: &EpochRecord) -> bool {
        let Some(new) = self.score(record) else { return false };
        let Some(best) = self.best() else { return true };
        match self.score(best) {
            Some(old) if new == old && self.selection() == SelectBest::Val => {
                let loss = |record: &EpochRecord| record.val.as_ref().and_then(|metrics| metrics.loss);
                match (loss(record), loss(best)) {
                    (Some(new), Some(old)) => new <= old,
                    (new, old) => new.is_some() || old.is_none(),
                }
            }
            Some(old) => new > old,
            None => true,
        }
    }

    /// The first epoch that is as accurate as the best one, from 1; 0 if none is selected. A lower loss alone is no improvement to be
    /// patient for: it may fall forever.
    pub(super) fn last_improvement(&self) -> u64 {
        let highest = self.best().and_then(|best| self.score(best));
        let first = self.history.iter().find(|record| highest.is_some() && self.score(record) == highest);
        first.map_or(0, |record| record.epoch)
    }

    /// Brings `metrics.jsonl` and `norms.jsonl` into line with the history: drops lines of epochs that a killed process did
    /// not finish, and appends lines that it did not write.
    pub(super) fn repair_records(&mut self, folder: &RunFolder) -> Result<(), TrainError> {
        self.recorded_epochs = folder.truncate_lines(METRICS, self.history.len())?;
        self.append_metrics(folder)?;
        if folder.truncate_lines(NORMS, self.history.len())? < self.history.len() {
            self.append_norms(folder)?;
        }
        Ok(())
    }

    /// Appends the epochs that are missing in `metrics.jsonl`.
    fn append_metrics(&mut self, folder: &RunFolder) -> Result<(), TrainError> {
        folder.append_json_lines(METRICS, &self.history[self.recorded_epochs..])?;
        self.recorded_epochs = self.history.len();
        Ok(())
    }

    /// Appends the gradient norms of the last epoch to `norms.jsonl`.
    fn append_norms(&self, folder: &RunFolder) -> Result<(), TrainError> {
        match &self.last_norms {
            Some(norms) => Ok(folder.append_json_lines(NORMS, std::slice::from_ref(norms))?),
            None => Ok(()),
        }
    }
}
