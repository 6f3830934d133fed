//! All that a run knows about other processes that train the same network.
//!
//! Every worker prepares, and computes the logits of, its own rows of every batch. The logits are gathered, so that every
//! worker runs the criterion on the whole batch: all have the same criterion state at any time, whatever the criterion
//! remembers. Each goes back through the network with the gradient of its own rows, and the gradients of the parameters are
//! summed. All workers make the same steps, so an order of collective calls is all that they have to keep.
//!
//! An engine may sum over the workers itself ([`Engine::slices`](equipoise_nn::Engine::slices)): the CPU's adds along one fixed
//! tree, so that the number of workers is not part of the result. Otherwise gradients are summed here, and each worker has
//! batch-norm statistics of its own rows.
//!
//! A worker that cannot go on before a collective call says so in [`agree`], where the others are or will be, and all end with
//! its error. A worker that fails later than that leaves, and the next collective call of the others fails.

use std::ops::Range;

use equipoise_data::batch::sampler::Shard;
use equipoise_nn::Slices;
use equipoise_support::with_causes;
use thiserror::Error;

use crate::error::TrainError;

/// The other workers cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the other processes cannot be reached: {what}")]
pub struct WorkersError {
    /// What the transport says.
    pub what: String,
}

/// Processes that train one network together. All workers make the same calls in the same order.
pub trait Workers {
    /// Which of the workers this is, and how many there are.
    fn shard(&self) -> Shard;

    /// The largest of the workers' numbers.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn max(&mut self, own: u64) -> Result<u64, WorkersError>;

    /// Puts the values of all workers into `all`, by rank. `lengths` has the number of values of each.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn gather(&mut self, own: &[f32], lengths: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError>;

    /// The messages of all workers, by rank.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError>;

    /// Replaces a message by that of rank 0.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), WorkersError>;

    /// Sums values over all workers, with the same bits in each.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), WorkersError>;

    /// Called when this worker begins to train a run that all have built, for those that have to be told.
    ///
    /// # Errors
    /// If a worker cannot be reached.
    fn start_training(&mut self) -> Result<(), WorkersError> {
        Ok(())
    }

    /// The machine that this worker runs on; empty if nobody needs to know.
    fn node(&self) -> String {
        String::new()
    }
}

impl Workers for Box<dyn Workers> {
    fn shard(&self) -> Shard {
        (**self).shard()
    }

    fn max(&mut self, own: u64) -> Result<u64, WorkersError> {
        (**self).max(own)
    }

    fn gather(&mut self, own: &[f32], lengths: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError> {
        (**self).gather(own, lengths, all)
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError> {
        (**self).exchange(own)
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), WorkersError> {
        (**self).broadcast(message)
    }

    fn sum(&mut self, values: &mut [f32]) -> Result<(), WorkersError> {
        (**self).sum(values)
    }

    fn start_training(&mut self) -> Result<(), WorkersError> {
        (**self).start_training()
    }

    fn node(&self) -> String {
        (**self).node()
    }
}

/// A single process that trains alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Workers for SingleProcess {
    fn shard(&self) -> Shard {
        Shard::WHOLE
    }

    fn max(&mut self, own: u64) -> Result<u64, WorkersError> {
        Ok(own)
    }

    fn gather(&mut self, own: &[f32], _: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError> {
        all.clear();
        all.extend_from_slice(own);
        Ok(())
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError> {
        Ok(vec![own.to_vec()])
    }

    fn broadcast(&mut self, _: &mut Vec<u8>) -> Result<(), WorkersError> {
        Ok(())
    }

    fn sum(&mut self, _: &mut [f32]) -> Result<(), WorkersError> {
        Ok(())
    }
}

/// The number of a worker that cannot go on: larger than that of anything else that workers decide.
const FAILED: u64 = u64::MAX;

/// The rows of a batch that a worker computes: whole slices if the engine cuts batches into slices; else workers differ by at
/// most one row. Some may have none.
#[must_use]
pub fn rows_of(batch: usize, rank: usize, size: usize, slices: Option<Slices>) -> Range<usize> {
    match slices {
        Some(slices) => slices.rows(batch, rank, size),
        None => batch * rank / size..batch * (rank + 1) / size,
    }
}

/// The number of values of each worker, for a batch with this many values per row.
pub(crate) fn lengths(batch: usize, per_row: usize, size: usize, slices: Option<Slices>) -> Vec<usize> {
    (0..size).map(|rank| rows_of(batch, rank, size, slices).len() * per_row).collect()
}

/// What this worker has, if no worker failed. Otherwise rank 0 has its own error, and all others, or rank 0 if it did not
/// fail, have [`TrainError::Worker`] for the first worker that failed.
///
/// # Errors
/// If a worker failed.
pub fn agree<T>(workers: &mut impl Workers, own: Result<T, TrainError>) -> Result<T, TrainError> {
    largest(workers, own, |_| 0).map(|(own, _)| own)
}

/// As [`agree`], but an error of rank 0 names it too: for what any of several workers may meet in the middle of a run.
///
/// # Errors
/// If a worker failed.
pub(crate) fn agree_by_rank<T>(workers: &mut impl Workers, own: Result<T, TrainError>) -> Result<T, TrainError> {
    let is_first = workers.shard().size() > 1 && workers.shard().rank() == 0;
    let named = |error| TrainError::Worker { rank: 0, what: with_causes(&error) };
    agree(workers, own).map_err(|error| match error {
        // a run diverges for all at once
        error @ (TrainError::Worker { .. } | TrainError::Workers(_) | TrainError::Diverged { .. }) => error,
        error if is_first => named(error),
        error => error,
    })
}

/// What this worker has, and the largest number that any worker makes of its own, if no worker failed.
///
/// # Errors
/// If a worker failed, as [`agree`].
pub(crate) fn largest<T>(
    workers: &mut impl Workers,
    own: Result<T, TrainError>,
    number: impl FnOnce(&T) -> u64,
) -> Result<(T, u64), TrainError> {
    let proposed = own.as_ref().map_or(FAILED, number);
    if workers.shard().size() == 1 {
        return own.map(|own| (own, proposed));
    }
    let largest = workers.max(proposed)?;
    if largest < FAILED {
        return own.map(|own| (own, largest));
    }
    // rank 0 knows where it is
    let place = match workers.node() {
        node if node.is_empty() || workers.shard().rank() == 0 => String::new(),
        node => format!(" (on {node})"),
    };
    let text = own.as_ref().err().map_or_else(String::new, |error| with_causes(error) + &place);
    let all = workers.exchange(text.as_bytes())?;
    match own {
        Err(error) if workers.shard().rank() == 0 => Err(error),
        _ => {
            let failed = all.iter().enumerate().find(|(_, text)| !text.is_empty());
            let (rank, text) = failed.map_or((0, &[][..]), |(rank, text)| (rank, text));
            Err(TrainError::Worker { rank, what: String::from_utf8_lossy(text).into_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_every_batch() {
        for size in 1..=5 {
            for batch in 0..=17 {
                let rows: Vec<Range<usize>> = (0..size).map(|rank| rows_of(batch, rank, size, None)).collect();
                assert_eq!(rows.iter().cloned().flatten().collect::<Vec<_>>(), (0..batch).collect::<Vec<_>>());
                assert_eq!(lengths(batch, 3, size, None), rows.iter().map(|rows| 3 * rows.len()).collect::<Vec<_>>());
                assert!(rows.iter().all(|rows| rows.len() <= batch.div_ceil(size)));
            }
        }
    }

    #[test]
    fn one_process_agrees_with_itself() {
        assert_eq!(largest(&mut SingleProcess, Ok(7), |x| *x).expect("it is fine"), (7, 7));
        let error = || TrainError::Unusable { what: "no".to_owned() };
        assert_eq!(agree::<()>(&mut SingleProcess, Err(error())).expect_err("its own").to_string(), "no");
    }
}
