//! Workers that are threads and talk through channels, and an engine that fails when it is told to.

use std::sync::mpsc::{Receiver, Sender, channel};

use equipoise_data::batch::sampler::Shard;
use equipoise_nn::{Cpu, Engine, Network, NnError, Optimizer, TensorKind};
use equipoise_train::workers::{Workers, WorkersError};

/// A worker. When it is dropped, its channels close, and the others cannot reach it any more.
pub(crate) struct Crew {
    shard: Shard,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// Workers that know each other.
pub(crate) fn crew(size: usize) -> Vec<Crew> {
    let mut to: Vec<Vec<Sender<Vec<u8>>>> = (0..size).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Receiver<Vec<u8>>>> = (0..size).map(|_| Vec::new()).collect();
    for senders in &mut to {
        for receivers in &mut from {
            let (send, receive) = channel();
            senders.push(send);
            receivers.push(receive);
        }
    }
    let shards = (0..size).map(|rank| Shard::new(rank, size).expect("one of them"));
    shards.zip(to.into_iter().zip(from)).map(|(shard, (to, from))| Crew { shard, to, from }).collect()
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|x| x.to_le_bytes()).collect()
}

impl Workers for Crew {
    fn shard(&self) -> Shard {
        self.shard
    }

    fn max(&mut self, own: u64) -> Result<u64, WorkersError> {
        let all = self.exchange(&own.to_le_bytes())?;
        let numbers = all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")));
        Ok(numbers.max().unwrap_or(own))
    }

    fn gather(&mut self, own: &[f32], lengths: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError> {
        let messages = self.exchange(&bytes(own))?;
        assert!(messages.iter().map(|message| message.len() / 4).eq(lengths.iter().copied()), "{lengths:?}");
        all.clear();
        all.extend(messages.iter().flat_map(|message| floats(message)));
        Ok(())
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError> {
        let left = |rank: usize| WorkersError { what: format!("rank {rank} has left") };
        for (rank, to) in self.to.iter().enumerate() {
            to.send(own.to_vec()).map_err(|_| left(rank))?;
        }
        self.from.iter().enumerate().map(|(rank, from)| from.recv().map_err(|_| left(rank))).collect()
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), WorkersError> {
        *message = self.exchange(message)?.swap_remove(0);
        Ok(())
    }

    fn sum(&mut self, values: &mut [f32]) -> Result<(), WorkersError> {
        let messages = self.exchange(&bytes(values))?;
        values.fill(0.0);
        for message in &messages {
            values.iter_mut().zip(floats(message)).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }
}

/// Where an engine fails: in the n-th pass of a kind, from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailsIn {
    Nothing,
    Forward(usize),
    Backward(usize),
    Evaluation(usize),
}

/// The CPU engine, which may fail.
pub(crate) struct FailingEngine {
    engine: Cpu,
    fails: FailsIn,
    passes: [usize; 3],
}

impl FailingEngine {
    pub(crate) fn new(engine: Cpu, fails: FailsIn) -> Self {
        Self { engine, fails, passes: [0; 3] }
    }

    fn pass(&mut self, kind: usize) -> Result<(), NnError> {
        self.passes[kind] += 1;
        let number = self.passes[kind];
        let now = [FailsIn::Forward(number), FailsIn::Backward(number), FailsIn::Evaluation(number)][kind];
        if self.fails == now { Err(NnError::Device { what: "the device is gone".to_owned() }) } else { Ok(()) }
    }
}

impl Engine for FailingEngine {
    fn network(&self) -> &Network {
        self.engine.network()
    }

    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        self.pass(if train { 0 } else { 2 })?;
        self.engine.forward(images, train)
    }

    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        self.pass(1)?;
        self.engine.backward(gradient)
    }

    fn forward_without_images(&mut self) -> Result<(), NnError> {
        self.engine.forward_without_images()
    }

    fn backward_without_images(&mut self) -> Result<(), NnError> {
        self.engine.backward_without_images()
    }

    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError> {
        self.engine.freeze_backbone(frozen)
    }

    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError> {
        self.engine.freeze_batch_norm(frozen)
    }

    fn gradients(&mut self) -> Option<&mut [f32]> {
        self.engine.gradients()
    }

    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        self.engine.step(optimizer)
    }

    fn ascend(&mut self, rho: f32) -> Result<f64, NnError> {
        self.engine.ascend(rho)
    }

    fn start_second_moment(&mut self) -> Result<(), NnError> {
        self.engine.start_second_moment()
    }

    fn start_ema(&mut self) -> Result<(), NnError> {
        self.engine.start_ema()
    }

    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        self.engine.update_ema(decay)
    }

    fn swap_ema(&mut self) -> Result<(), NnError> {
        self.engine.swap_ema()
    }

    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError> {
        self.engine.estimate_statistics(images, share)
    }

    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        self.engine.tensors(kind)
    }

    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        self.engine.set_tensors(kind, values)
    }
}
