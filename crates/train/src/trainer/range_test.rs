//! The learning-rate range test: the loss while the learning rate grows from step to step.

use std::sync::Arc;

use equipoise_nn::Engine;

use super::{Position, Trainer};
use crate::batches::Prefetch;
use crate::error::TrainError;
use crate::workers::{Workers, agree};

/// Weight of the past in the smoothed loss.
const SMOOTHING: f64 = 0.9;
/// As many steps as the smoothed loss remembers.
const FEWEST_STEPS: usize = 10;
/// The test ends when the smoothed loss exceeds its smallest value by this factor.
const HOPELESS: f64 = 4.0;

/// The learning rates of a range test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateRange {
    /// Learning rate of the first step.
    pub from: f64,
    /// Learning rate of the last step.
    pub to: f64,
    /// Number of steps.
    pub steps: u64,
}

impl RateRange {
    /// Learning rate of a step, from 0. All steps multiply it by the same factor.
    fn rate(&self, step: u64) -> f64 {
        let share = step as f64 / self.steps.saturating_sub(1).max(1) as f64;
        self.from * (self.to / self.from).powf(share)
    }
}

/// A step of a range test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangePoint {
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Loss of the step's batch, before the step.
    pub loss: f64,
    /// Exponential moving average of the losses.
    pub smoothed: f64,
}

/// What a range test shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RangeOutcome {
    /// The loss was smallest at a learning rate between the first and the last. A tenth of it is a good start.
    Smallest(f64),
    /// There were too few steps to smooth the loss.
    TooFewSteps,
    /// The loss was smallest in the first step.
    NeverFell,
    /// The loss still fell in the last step.
    StillFalling,
}

impl RangeOutcome {
    /// The outcome of these steps.
    #[must_use]
    pub fn of(points: &[RangePoint]) -> Self {
        let smallest = points.iter().enumerate().min_by(|(_, a), (_, b)| a.smoothed.total_cmp(&b.smoothed));
        match smallest {
            _ if points.len() < FEWEST_STEPS => Self::TooFewSteps,
            None | Some((0, _)) => Self::NeverFell,
            Some((number, _)) if number + 1 == points.len() => Self::StillFalling,
            Some((_, point)) => Self::Smallest(point.learning_rate),
        }
    }

    /// The learning rate to start with, if the test shows one.
    #[must_use]
    pub fn suggested_rate(self) -> Option<f64> {
        match self {
            Self::Smallest(rate) => Some(rate / 10.0),
            Self::TooFewSteps | Self::NeverFell | Self::StillFalling => None,
        }
    }
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Trains with a learning rate that grows from step to step (Smith, *Cyclical learning rates for training neural
    /// networks*, WACV 2017), for at most as many steps as the run has. The test ends early when the loss explodes.
    ///
    /// All steps are those of the first epoch, so that losses can be compared: what the criterion learns at the end of an epoch
    /// would change them, and so would what starts in a later one. Only the order of the images is that of one epoch after the
    /// other. The trainer cannot be used for a run afterwards.
    ///
    /// # Errors
    /// If an image can no longer be read.
    pub fn range_test(mut self, range: &RateRange) -> Result<Vec<RangePoint>, TrainError> {
        let steps = range.steps.min(self.steps().saturating_mul(self.settings.epochs));
        let range = RateRange { steps, ..*range };
        let (mut points, mut epoch) = (Vec::new(), 0);
        while self.range_epoch(&range, epoch, &mut points)? {
            self.position = Position { total_steps: self.position.total_steps, ..Position::default() };
            epoch += 1;
        }
        Ok(points)
    }

    /// The steps with the images of an epoch; false if the test ends in it.
    fn range_epoch(&mut self, range: &RateRange, epoch: u64, points: &mut Vec<RangePoint>) -> Result<bool, TrainError> {
        let data = Arc::clone(&self.data);
        let batches = self.batches_of_epoch(&data, epoch);
        std::thread::scope(|scope| {
            let prefetch = Prefetch::start(scope, &batches, 0);
            while let Some(batch) = prefetch.next() {
                let batch = batch.or_else(|error| agree(&mut self.workers, Err(error)))?;
                let before = self.position.loss_sum;
                let number = points.len() as u64;
                if number >= range.steps {
                    return Ok(false);
                }
                let learning_rate = range.rate(number);
                match self.step(&batch, learning_rate) {
                    Ok(()) => {}
                    Err(TrainError::Diverged { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                }
                let loss = (self.position.loss_sum - before) / batch.len() as f64;
                let smoothed = points.last().map_or(loss, |last| SMOOTHING * last.smoothed + (1.0 - SMOOTHING) * loss);
                points.push(RangePoint { learning_rate, loss, smoothed });
                let smallest = points.iter().map(|point| point.smoothed).fold(f64::INFINITY, f64::min);
                if smoothed > HOPELESS * smallest {
                    return Ok(false);
                }
                prefetch.recycle(batch);
            }
            Ok((points.len() as u64) < range.steps)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_by_a_factor() {
        let range = RateRange { from: 1e-4, to: 1.0, steps: 5 };
        let rates: Vec<f64> = (0..5).map(|step| range.rate(step)).collect();
        for (rate, want) in rates.iter().zip([1e-4, 1e-3, 1e-2, 1e-1, 1.0]) {
            assert!((rate / want - 1.0).abs() < 1e-12, "{rate}, not {want}");
        }
        assert_eq!(RateRange { from: 0.5, to: 1.0, steps: 1 }.rate(0), 0.5);
    }

    #[test]
    fn a_tenth_of_the_best_rate_is_suggested() {
        let point = |learning_rate, smoothed| RangePoint { learning_rate, loss: 0.0, smoothed };
        let outcome = |smallest: usize, steps: usize| {
            let loss = |step: usize| step.abs_diff(smallest) as f64;
            RangeOutcome::of(&(0..steps).map(|step| point(step as f64, loss(step))).collect::<Vec<_>>())
        };
        assert_eq!(outcome(5, 10), RangeOutcome::Smallest(5.0));
        assert_eq!(outcome(5, 10).suggested_rate(), Some(0.5));
        assert_eq!(outcome(5, 9), RangeOutcome::TooFewSteps);
        assert_eq!(outcome(0, 10), RangeOutcome::NeverFell);
        assert_eq!(outcome(9, 10), RangeOutcome::StillFalling);
        assert_eq!(RangeOutcome::of(&[]), RangeOutcome::TooFewSteps);
    }
}
