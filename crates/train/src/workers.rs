//! The only thing that a run knows about other processes that train the same network.

use equipoise_criterion::State;
use equipoise_data::batch::sampler::Shard;

/// Some processes that train one network together: each sees a part of every epoch, all make the same steps.
pub trait Workers {
    /// Which of them this is, and how many there are.
    fn shard(&self) -> Shard;

    /// Adds up the gradients of all, in the same order for everyone.
    fn sum_gradients(&mut self, gradients: &mut [f32]);

    /// Adds up counts of all.
    fn sum_counts(&mut self, counts: &mut [u64]);

    /// What the others' criteria have counted since all had the same state; the same for a moving average.
    fn others(&mut self, own: &State) -> Vec<State>;

    /// Makes running statistics of batch norms the mean of everyone's.
    fn average(&mut self, statistics: &mut [Vec<f32>]);
}

/// One process by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Workers for Alone {
    fn shard(&self) -> Shard {
        Shard::WHOLE
    }

    fn sum_gradients(&mut self, _: &mut [f32]) {}

    fn sum_counts(&mut self, _: &mut [u64]) {}

    fn others(&mut self, _: &State) -> Vec<State> {
        Vec::new()
    }

    fn average(&mut self, _: &mut [Vec<f32>]) {}
}
