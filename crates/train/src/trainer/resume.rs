//! The state of a run in a checkpoint, and back.

use equipoise_nn::{Engine, TensorKind};
use serde::{Deserialize, Serialize};

use super::Trainer;
use crate::checkpoint::{Checkpoint, CheckpointHeader, RawCheckpoint};
use crate::error::TrainError;
use crate::workers::Workers;

/// Position within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Finished epochs.
    pub epoch: u64,
    /// Finished steps of the current epoch.
    pub step: u64,
    /// Finished steps of the run.
    pub total_steps: u64,
    /// Sum of the losses of the current epoch's images.
    pub(super) loss_sum: f64,
    /// Images that the current epoch has trained on.
    pub(super) images: u64,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// The state of the run, from which [`restore`](Self::restore) resumes it.
    ///
    /// # Errors
    /// If the engine cannot say its weights.
    ///
    /// # Panics
    /// Never: every header can be serialized.
    pub fn checkpoint(&self) -> Result<RawCheckpoint, TrainError> {
        let header = CheckpointHeader {
            settings: self.settings.clone(),
            network: self.engine.network().clone(),
            dataset: self.data.name.clone(),
            classes: self.data.classes.clone(),
            counts: self.data.counts.clone(),
            fingerprint: self.data.fingerprint.clone(),
            content: Some(self.data.content.clone()),
            files: self.data.files,
            normalize: self.data.normalize.clone(),
            position: self.position,
            criterion: self.criterion.state(),
            history: self.history.clone(),
            best: self.best,
            has_ema: self.has_ema(),
            norms: self.norms.histogram().clone(),
            last_norms: self.last_norms.clone(),
            difficulty: self.difficulty.clone(),
        };
        let header = serde_json::to_string(&header).expect("a header can be serialized");
        // in the order of `Checkpoint::new`
        let mut tensors = self.engine.tensors(TensorKind::Parameters)?;
        tensors.extend(self.engine.tensors(TensorKind::Momentum)?);
        tensors.extend(self.engine.tensors(TensorKind::Statistics)?);
        // empty without AdamW and without an EMA
        tensors.extend(self.engine.tensors(TensorKind::SecondMoment)?);
        tensors.extend(self.engine.tensors(TensorKind::EmaParameters)?);
        tensors.extend(self.engine.tensors(TensorKind::EmaStatistics)?);
        Ok(RawCheckpoint { header, tensors })
    }

    /// Resumes the run where a checkpoint was saved.
    ///
    /// # Errors
    /// If the checkpoint belongs to another run; the error says what differs.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let header = &checkpoint.header;
        self.check_same_run(header)?;
        self.criterion.restore(&header.criterion)?;
        self.engine.set_tensors(TensorKind::Parameters, &checkpoint.trained_parameters)?;
        self.engine.set_tensors(TensorKind::Momentum, &checkpoint.momentum)?;
        self.engine.set_tensors(TensorKind::Statistics, &checkpoint.trained_statistics)?;
        if let Some(second_moment) = &checkpoint.second_moment {
            self.engine.set_tensors(TensorKind::SecondMoment, second_moment)?;
        }
        if self.has_ema() {
            self.engine.set_tensors(TensorKind::EmaParameters, &checkpoint.parameters)?;
            self.engine.set_tensors(TensorKind::EmaStatistics, &checkpoint.statistics)?;
        }
        self.position = header.position;
        self.history.clone_from(&header.history);
        self.best = header.best;
        self.norms.restore(&header.norms);
        self.last_norms.clone_from(&header.last_norms);
        self.difficulty.clone_from(&header.difficulty);
        Ok(())
    }

    /// Checks that a checkpoint belongs to this run.
    fn check_same_run(&self, header: &CheckpointHeader) -> Result<(), TrainError> {
        let differs = |what: &str| Err(TrainError::Checkpoint { what: what.to_owned() });
        if header.network != *self.engine.network() {
            return differs("it belongs to another network");
        }
        if header.fingerprint != self.data.fingerprint || header.classes != self.data.classes {
            return differs("the dataset has changed: images were added, removed or renamed, or have another class");
        }
        if header.content.as_ref().is_some_and(|content| *content != self.data.content) {
            return differs("the pixels of the dataset have changed, although its files have the same names");
        }
        // the same dataset may have moved
        let mut settings = header.settings.clone();
        settings.data.dataset.clone_from(&self.settings.data.dataset);
        if settings.check_epochs_can_change().is_ok() {
            settings.epochs = self.settings.epochs;
        }
        // equal networks were compared above
        settings.choose_as(&self.settings);
        if let Some(field) = settings.difference(&self.settings) {
            return differs(&format!(
                "it belongs to a run with another `{field}`: undo what was changed in config.toml, or start a new run"
            ));
        }
        if header.has_ema != self.has_ema() {
            return differs("it has no EMA of the weights");
        }
        let classes = self.difficulty.as_ref().map(|_| self.data.classes.len());
        let fits = match (&header.difficulty, classes) {
            (Some(difficulty), Some(classes)) => difficulty.fits(classes),
            (saved, expected) => saved.is_none() && expected.is_none(),
        };
        if !fits {
            return differs("its levels of augmentation are not those of the classes");
        }
        Ok(())
    }
}
