//! The processes as the trainer sees them.

use equipoise_data::batch::sampler::Shard;
use equipoise_nn::sum_by_rank;
use equipoise_train::workers::{Workers, WorkersError};

use crate::comm::Comm;
use crate::orders::{Kind, Orders};

/// The processes of a run.
pub(crate) struct MpiWorkers {
    comm: Comm,
    orders: Orders,
    node: String,
}

impl MpiWorkers {
    pub(crate) fn new(comm: Comm, orders: Orders, node: &str) -> Self {
        Self { comm, orders, node: node.to_owned() }
    }
}

pub(crate) fn unreachable(what: String) -> WorkersError {
    WorkersError { what }
}

impl Workers for MpiWorkers {
    fn shard(&self) -> Shard {
        Shard::new(self.comm.rank, self.comm.size).expect("MPI counts ranks from 0")
    }

    fn max(&mut self, own: u64) -> Result<u64, WorkersError> {
        let mut all = vec![0; self.comm.size];
        self.comm.gather(&[own], &mut all).map_err(unreachable)?;
        Ok(all.into_iter().max().unwrap_or(own))
    }

    fn gather(&mut self, own: &[f32], lengths: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError> {
        self.comm.gather_lists(own, lengths, all).map_err(unreachable)
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError> {
        self.comm.exchange(own).map_err(unreachable)
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), WorkersError> {
        self.comm.broadcast(message, false).map_err(unreachable)
    }

    fn sum(&mut self, values: &mut [f32]) -> Result<(), WorkersError> {
        let mut all = vec![0.0; values.len() * self.comm.size];
        self.comm.gather(values, &mut all).map_err(unreachable)?;
        sum_by_rank(&mut all, self.comm.size);
        values.copy_from_slice(&all[..values.len()]);
        Ok(())
    }

    fn start_training(&mut self) -> Result<(), WorkersError> {
        // the others train because they were told
        if self.comm.rank == 0 { self.orders.send(Kind::Train, &[]) } else { Ok(()) }
    }

    fn node(&self) -> String {
        self.node.clone()
    }
}
