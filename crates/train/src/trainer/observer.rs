//! The observer of a run: it follows the progress and decides when to save and when to stop.

use equipoise_record::{EpochRecord, GradientNorms};

use crate::error::TrainError;
use crate::workers::{Workers, largest};

/// Progress after a training step.
#[derive(Clone, Copy, Debug)]
pub struct StepProgress {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Finished steps of the epoch.
    pub step: u64,
    /// Steps per epoch.
    pub steps: u64,
    /// Images of this step.
    pub images: u64,
    /// Mean loss of the epoch so far.
    pub loss: f64,
}

/// What the run does next. Of several workers' directives, the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Directive {
    /// Continue.
    Continue,
    /// Save a checkpoint and continue.
    Save,
    /// Save a checkpoint and stop.
    Stop,
}

impl Directive {
    /// What all workers do next.
    pub(crate) fn of_all(own: Self, workers: &mut impl Workers) -> Result<Self, TrainError> {
        let (_, number) = largest(workers, Ok(own), |own| *own as u64)?;
        Ok(match number {
            0 => Self::Continue,
            1 => Self::Save,
            _ => Self::Stop,
        })
    }
}

/// Follows a run and directs it. The library never reads the clock: the observer decides when to save.
pub trait Observer {
    /// Called after every step.
    fn step(&mut self, progress: &StepProgress) -> Directive;
    /// Called during an evaluation with the number of evaluated images and of all images. `Save` means `Continue` here.
    fn evaluating(&mut self, done: usize, total: usize) -> Directive;
    /// Called after every epoch, when its checkpoint is saved.
    fn epoch(&mut self, record: &EpochRecord, norms: &GradientNorms);
    /// Called with what users should know about a run that goes on.
    fn warn(&mut self, _text: &str) {}
}

/// An observer that lets the run finish.
pub struct NoObserver;

impl Observer for NoObserver {
    fn step(&mut self, _: &StepProgress) -> Directive {
        Directive::Continue
    }
    fn evaluating(&mut self, _: usize, _: usize) -> Directive {
        Directive::Continue
    }
    fn epoch(&mut self, _: &EpochRecord, _: &GradientNorms) {}
}
