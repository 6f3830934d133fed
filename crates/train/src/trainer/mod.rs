//! The training loop, over an engine, a criterion and a prepared dataset.
//!
//! A step is a function of the settings and of its position in the run. So a run can be stopped after any step, saved in a
//! checkpoint and resumed, with the same result bit for bit.
//!
//! - Here: the loop over epochs and steps. `batches` prepares the next batch meanwhile, `step` is one step.
//! - `epoch_end`: evaluation, the best epoch, records. `final_evaluation`: the details of a finished run.
//! - `full_batch`: an epoch of L-BFGS in place of steps.
//! - `range_test`: a short training that shows which learning rates work.
//! - `ema`: the average of the weights that is evaluated.
//! - `observer`: who follows a run. `resume`: checkpoints. `divergence`: the error of a run that diverges.

mod divergence;
mod ema;
mod epoch_end;
mod final_evaluation;
mod full_batch;
mod observer;
mod range_test;
mod resume;
pub mod same_run;
mod step;

use std::sync::Arc;

use equipoise_criterion::{Criterion, Workspace};
use equipoise_data::batch::augmentation::Mixing;
use equipoise_data::batch::sampler::{Sampler, Shard};
use equipoise_nn::{Engine, Network};
use equipoise_pool::Pool;
use equipoise_record::{Calibration, EpochRecord, GradientNorms, RunFolder};

pub(crate) use self::full_batch::CHUNK as FULL_BATCH_ROWS;
pub use self::observer::{Directive, NoObserver, Observer, StepProgress};
pub use self::range_test::{RangeOutcome, RangePoint, RateRange};
pub use self::resume::Position;
use self::step::CriterionOutput;
use crate::batches::{EpochBatches, Prefetch};
use crate::checkpoint::files;
use crate::difficulty::Difficulty;
use crate::error::TrainError;
use crate::evaluate::{Inference, LogitAdjustment};
use crate::norms::NormRecorder;
use crate::prepare::RunData;
use crate::settings::{OptimizerKind, SelectBest, Settings};
use crate::workers::{Workers, agree_by_rank};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All epochs are done.
    Finished,
    /// Nothing improved for as long as the settings allow.
    StoppedEarly,
    /// The observer stopped the run, which can be resumed.
    Interrupted,
}

/// A training run.
pub struct Trainer<E, W> {
    settings: Settings,
    /// Shared with the thread that prepares batches.
    data: Arc<RunData>,
    engine: E,
    workers: W,
    criterion: Criterion,
    sampler: Sampler,
    /// How training images are mixed with others, if they are.
    mixing: Option<Arc<Mixing>>,
    pool: Pool,
    /// Threads that prepare batches.
    preparing: Pool,
    workspace: Workspace,
    /// That of SAM's second pass; the criterion counts what the first one has seen.
    ascent_workspace: Workspace,
    output: CriterionOutput,
    /// Logits of all workers.
    gathered: Vec<f32>,
    position: Position,
    /// Records of the finished epochs.
    history: Vec<EpochRecord>,
    /// The best epoch so far, from 1.
    best: Option<u64>,
    /// Images of the last step.
    last_indices: Vec<u32>,
    /// Epochs that are in `metrics.jsonl`.
    recorded_epochs: usize,
    norms: NormRecorder,
    /// Levels of the classes, if RandAugment's magnitude follows the difficulty.
    difficulty: Option<Difficulty>,
    /// Gradient norms of the last finished epoch.
    last_norms: Option<GradientNorms>,
    /// The calibration of the final weights.
    calibration: Option<Calibration>,
    /// Whether the engine trains only the head.
    frozen: bool,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// A run before its first step. The engine has the initial weights, and memory for this worker's rows of a batch of the
    /// settings' size or of all training images, whichever is smaller.
    ///
    /// # Errors
    /// If a setting is out of range, or the network does not fit the data.
    pub fn new(settings: Settings, data: RunData, mut engine: E, workers: W, pool: Pool) -> Result<Self, TrainError> {
        settings.check()?;
        check_network(engine.network(), &data)?;
        check_selection(&settings, data.val.is_some())?;
        let frozen = settings.freezes_backbone(0);
        engine.freeze_backbone(frozen)?;
        engine.freeze_batch_norm(settings.model.freeze_batch_norm)?;
        if settings.optimizer.has_ema() {
            engine.start_ema()?;
        }
        if settings.optimizer.name == OptimizerKind::AdamW {
            engine.start_second_moment()?;
        }
        Ok(Self {
            criterion: settings.criterion.init(&data.counts)?,
            sampler: Sampler::new(
                settings.data.sampler,
                settings.epochs,
                &data.train.labels,
                data.classes.len(),
                settings.seed,
            )?,
            mixing: settings.augment.mixing(&data.train.labels, data.classes.len())?.map(Arc::new),
            workspace: Workspace::with_pool(pool.clone()),
            ascent_workspace: Workspace::with_pool(pool.clone()),
            output: CriterionOutput::default(),
            gathered: Vec::new(),
            position: Position::default(),
            history: Vec::new(),
            best: None,
            last_indices: Vec::new(),
            recorded_epochs: 0,
            norms: NormRecorder::new(&data.counts),
            difficulty: settings.augment.follows_difficulty().then(|| Difficulty::new(data.classes.len())),
            last_norms: None,
            calibration: None,
            frozen,
            settings,
            data: Arc::new(data),
            engine,
            workers,
            pool,
            preparing: Pool::single(),
        })
    }

    /// Lets these threads prepare batches while the engine computes. One thread does unless this is called, which is enough
    /// for images in memory. The batches do not depend on it.
    #[must_use]
    pub fn with_preparing_threads(mut self, pool: Pool) -> Self {
        self.preparing = pool;
        self
    }

    /// Trains to the end, or until an observer of any worker stops the run. Records and checkpoints go to the folder, which
    /// is `None` for all workers but rank 0.
    ///
    /// # Errors
    /// If the folder cannot be written to, an image can no longer be read, the run diverges, or a worker fails.
    pub fn run<'f>(
        &mut self,
        folder: impl Into<Option<&'f RunFolder>>,
        observer: &mut dyn Observer,
    ) -> Result<RunEnd, TrainError> {
        let folder = folder.into();
        let start = self.start_records(folder);
        agree_by_rank(&mut self.workers, start)?;
        while self.position.epoch < self.settings.epochs {
            if self.out_of_patience() {
                return Ok(RunEnd::StoppedEarly);
            }
            if !self.train_epoch(folder, observer)? || !self.finish_epoch(folder, observer)? {
                self.save(folder)?;
                return Ok(RunEnd::Interrupted);
            }
        }
        Ok(RunEnd::Finished)
    }

    /// Brings the records of a folder into line with the position.
    fn start_records(&mut self, folder: Option<&RunFolder>) -> Result<(), TrainError> {
        let Some(folder) = folder else { return Ok(()) };
        self.repair_records(folder)?;
        if self.position == Position::default() {
            files::save(folder, &self.checkpoint()?)?;
        }
        Ok(())
    }

    /// The remaining steps of an epoch; false if the observer stopped them.
    fn train_epoch(&mut self, folder: Option<&RunFolder>, observer: &mut dyn Observer) -> Result<bool, TrainError> {
        loop {
            match self.train_until_directed(observer)? {
                Directive::Continue => return Ok(true),
                Directive::Save => self.save(folder)?,
                Directive::Stop => return Ok(false),
            }
        }
    }

    /// Steps until the epoch ends, or until the observer asks for anything but to continue.
    fn train_until_directed(&mut self, observer: &mut dyn Observer) -> Result<Directive, TrainError> {
        self.freeze_or_unfreeze()?;
        if self.settings.optimizer.name == OptimizerKind::Lbfgs {
            return self.minimize(observer);
        }
        let data = Arc::clone(&self.data);
        let (batches, steps) = (self.epoch_batches(&data), self.steps());
        std::thread::scope(|scope| {
            let prefetch = Prefetch::start(scope, &batches, self.position.step as usize);
            while self.position.step < steps {
                let Some(batch) = prefetch.next() else { break };
                // before the forward pass, in which engines may wait for each other
                let batch = agree_by_rank(&mut self.workers, batch)?;
                self.step(&batch, self.learning_rate(self.position.step))?;
                let progress = self.progress(batch.len(), steps);
                prefetch.recycle(batch);
                // after `Save`, batches that are prepared already are prepared again
                match Directive::of_all(observer.step(&progress), &mut self.workers)? {
                    Directive::Continue => {}
                    directive => return Ok(directive),
                }
            }
            Ok(Directive::Continue)
        })
    }

    /// Freezes the backbone in the epochs that train only the head.
    fn freeze_or_unfreeze(&mut self) -> Result<(), TrainError> {
        let frozen = self.settings.freezes_backbone(self.position.epoch);
        if frozen != self.frozen {
            self.engine.freeze_backbone(frozen)?;
            self.frozen = frozen;
        }
        Ok(())
    }

    /// The batches of the current epoch.
    fn epoch_batches<'a>(&self, data: &'a RunData) -> EpochBatches<'a> {
        self.batches_of_epoch(data, self.position.epoch)
    }

    fn batches_of_epoch<'a>(&self, data: &'a RunData, epoch: u64) -> EpochBatches<'a> {
        let mixing = self.mixing.clone().filter(|mixing| mixing.is_active(epoch, self.settings.epochs));
        let partners = mixing.is_some().then(|| self.sampler.epoch(epoch, Shard::WHOLE));
        EpochBatches {
            train: &data.train,
            mixing,
            order: self.sampler.epoch(epoch, Shard::WHOLE),
            partners: partners.unwrap_or_default(),
            levels: self.difficulty.as_ref().map_or_else(Vec::new, |difficulty| difficulty.levels().to_vec()),
            batch_size: self.settings.batch_size,
            shard: self.workers.shard(),
            slices: self.engine.slices(),
            pool: self.preparing.clone(),
            seed: self.settings.seed,
            epoch,
        }
    }

    /// Progress after a step with this many images.
    fn progress(&self, images: usize, steps: u64) -> StepProgress {
        let Position { epoch, step, loss_sum, images: trained, .. } = self.position;
        StepProgress { epoch: epoch + 1, step, steps, images: images as u64, loss: loss_sum / trained as f64 }
    }

    /// Saves a checkpoint, if this worker writes.
    fn save(&mut self, folder: Option<&RunFolder>) -> Result<(), TrainError> {
        self.join_workers()?;
        let saved = self.check_finite().and_then(|()| match folder {
            Some(folder) => Ok(files::save(folder, &self.checkpoint()?)?),
            None => Ok(()),
        });
        agree_by_rank(&mut self.workers, saved)
    }

    /// Whether nothing has improved for as long as the settings allow.
    fn out_of_patience(&self) -> bool {
        let best = self.last_improvement();
        // only after an evaluation: an epoch without one does not show whether it is better
        let evaluated = self.history.last().is_some_and(|epoch| epoch.val.is_some());
        let patience = self.settings.patience;
        patience > 0 && evaluated && self.position.step == 0 && self.position.epoch.saturating_sub(best) >= patience
    }

    /// Whether there is nothing left to train.
    pub fn finished(&self) -> bool {
        self.position.epoch >= self.settings.epochs || self.out_of_patience()
    }

    /// The processes that train the network together.
    pub fn workers(&mut self) -> &mut W {
        &mut self.workers
    }

    /// Settings of the run.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Data of the run.
    pub fn data(&self) -> &RunData {
        &self.data
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Warnings of the criterion.
    pub fn warnings(&self) -> Vec<String> {
        self.criterion.warnings(|class| format!("'{}'", self.data.classes[class]))
    }

    /// Position within the run.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Records of the finished epochs.
    pub fn history(&self) -> &[EpochRecord] {
        &self.history
    }

    /// The record of the best epoch, if the settings select one.
    pub fn best(&self) -> Option<&EpochRecord> {
        self.history.iter().find(|record| Some(record.epoch) == self.best)
    }

    /// Steps per epoch.
    pub fn steps(&self) -> u64 {
        self.sampler.len().div_ceil(self.settings.batch_size.max(1)) as u64
    }

    /// Images of an evaluation's batch, of all workers.
    fn evaluation_batch_size(&self) -> usize {
        if self.settings.optimizer.name == OptimizerKind::Lbfgs {
            return full_batch::CHUNK.min(self.data.train.labels.len());
        }
        self.settings.batch_size.min(self.data.train.labels.len())
    }

    /// Learning rate of a step of the current epoch.
    fn learning_rate(&self, step: u64) -> f64 {
        let Settings { epochs, .. } = self.settings;
        let rate = self.settings.learning_rate();
        self.settings.schedule().learning_rate(rate, epochs, self.position.epoch, step, self.steps())
    }

    /// How the best epoch is selected, with `Auto` resolved.
    fn selection(&self) -> SelectBest {
        match self.settings.select_best {
            SelectBest::Auto if self.data.val.is_some() => SelectBest::Val,
            SelectBest::Auto => SelectBest::Last,
            choose => choose,
        }
    }

    fn inference(&self) -> Inference {
        let Settings { criterion, logit_adjustment, .. } = &self.settings;
        LogitAdjustment::new(&criterion.method, &self.data.counts, *logit_adjustment).into()
    }
}

/// Checks that a network fits the images and classes.
fn check_network(network: &Network, data: &RunData) -> Result<(), TrainError> {
    let (channels, height, width) = data.train.loader.shape();
    let classes = data.classes.len();
    if (channels, [height, width], classes) == (network.channels, network.size, network.classes) {
        return Ok(());
    }
    let what = format!(
        "it has {classes} classes and images of {channels} x {height} x {width}, but the network takes {} classes and \
         images of {} x {} x {}",
        network.classes, network.channels, network.size[0], network.size[1]
    );
    Err(TrainError::Dataset { dataset: data.name.clone(), what })
}

/// Checks that there is a validation split if the settings need one.
pub(crate) fn check_selection(settings: &Settings, has_val: bool) -> Result<(), TrainError> {
    if has_val {
        return Ok(());
    }
    let refuse = |field: &str, what: &str| Err(TrainError::Setting { field: field.to_owned(), what: what.to_owned() });
    if settings.select_best == SelectBest::Val {
        return refuse(
            "select_best",
            "val: there is no validation split ('data.val_fraction' takes one out of the training images, and 'data.val_per_class' images beside \
             a subset)",
        );
    }
    if settings.patience > 0 {
        return refuse("patience", "there is no validation split to tell what is better");
    }
    Ok(())
}
