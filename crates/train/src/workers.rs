//! All that a run knows about other processes that train the same network.

use equipoise_criterion::State;
use equipoise_data::batch::sampler::Shard;

/// Processes that train one network together: each trains on a part of every epoch, and all make the same steps.
pub trait Workers {
    /// Which of the processes this is, and how many there are.
    fn shard(&self) -> Shard;

    /// Sums the gradients over all processes, in the same order in each.
    fn sum_gradients(&mut self, gradients: &mut [f32]);

    /// Sums counts over all processes.
    fn sum_counts(&mut self, counts: &mut [u64]);

    /// The criterion states of the other processes. All had the same state when the epoch started.
    fn other_states(&mut self, own: &State) -> Vec<State>;

    /// Makes running statistics of batch norms the mean over all processes.
    fn average_statistics(&mut self, statistics: &mut [Vec<f32>]);
}

/// A single process that trains alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl Workers for SingleProcess {
    fn shard(&self) -> Shard {
        Shard::WHOLE
    }

    fn sum_gradients(&mut self, _: &mut [f32]) {}

    fn sum_counts(&mut self, _: &mut [u64]) {}

    fn other_states(&mut self, _: &State) -> Vec<State> {
        Vec::new()
    }

    fn average_statistics(&mut self, _: &mut [Vec<f32>]) {}
}
