//! Several processes that train one run on the CPU: rank 0 drives and writes, the others are told what to do.
//!
//! Rank 0 runs a command as if it were alone. Where it builds the trainer of a run, the other processes build theirs; where it
//! trains, they train; where it evaluates, they evaluate their share of the images. Nothing else concerns them.

use std::path::PathBuf;

use equipoise_data::features::read::is_feature_file;
use equipoise_nn::{Cpu, CpuOptions, Network, Peers};
use equipoise_pool::Pool;
use serde::{Deserialize, Serialize};

use super::build::{RunTrainer, check_memory, trainer_with};
use super::shared::read_checkpoint;
use super::{NoFeedback, RunContext};
use crate::error::TrainError;
use crate::settings::Settings;
use crate::workers::{Workers, WorkersError, agree};

/// What connects a process with the others while they train a run.
pub struct Connection {
    /// For the trainer.
    pub workers: Box<dyn Workers>,
    /// For the engine.
    pub peers: Box<dyn Peers>,
}

/// The other processes, as rank 0 reaches them between runs.
pub trait Processes: Send + Sync {
    /// How many processes there are, with this one.
    fn size(&self) -> usize;

    /// Tells the others to take part in a task, with its order.
    ///
    /// # Errors
    /// If a process cannot be reached.
    fn start(&self, task: Task, order: &[u8]) -> Result<Connection, WorkersError>;
}

/// What processes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// They build a run: the others pass the order to [`build`].
    Build,
    /// They evaluate a checkpoint: the others pass the order to [`evaluate_share`](super::evaluation::evaluate_share).
    Evaluate,
    /// They predict images: the others pass the order to [`predict_share`](super::prediction::predict_share).
    Predict,
    /// They run a command that shares out its work itself, with the command line of this process.
    Command,
}

/// Whether a run is a head on features. Rank 0 trains it alone: the gradient of its weights is one sum over all rows, not one over slices
/// and their tree, so that sharing it out would change its bits.
pub(super) fn is_for_one_process(settings: &Settings) -> bool {
    settings.architecture().is_for_features() || is_feature_file(settings.data.dataset.as_ref())
}

/// What a process needs to know to build the trainer of a run.
#[derive(Serialize, Deserialize)]
struct Order {
    settings: String,
    data_root: PathBuf,
    threads: usize,
}

/// Tells the other processes to build a run, and builds it together with them.
pub(super) fn build_together(
    processes: &dyn Processes,
    settings: Settings,
    checkpoint: Vec<u8>,
    context: &RunContext<'_>,
) -> Result<RunTrainer, TrainError> {
    let (data_root, threads) = (std::path::absolute(context.data_root), context.pool.threads());
    let data_root = data_root.unwrap_or_else(|_| context.data_root.to_owned());
    let order = Order { settings: settings.to_toml()?, data_root, threads };
    build_connected(settings, checkpoint, processes.start(Task::Build, &to_json(&order)?)?, context)
}

/// An order as JSON.
pub(super) fn to_json(order: &impl Serialize) -> Result<Vec<u8>, TrainError> {
    serde_json::to_vec(order).map_err(|error| TrainError::Unusable { what: format!("cannot write JSON: {error}") })
}

/// Builds the trainer of a run that rank 0 builds.
///
/// # Errors
/// If any process cannot build it.
pub fn build(order: &[u8], mut connection: Connection) -> Result<RunTrainer, TrainError> {
    let read = || {
        let unusable = |what: String| TrainError::Unusable { what };
        let order: Order = serde_json::from_slice(order).map_err(|error| unusable(error.to_string()))?;
        let settings = Settings::from_toml(&order.settings, &Settings::default())?;
        let pool = Pool::new(order.threads).map_err(|error| unusable(format!("cannot start threads: {error}")))?;
        Ok((settings, order.data_root, pool))
    };
    let read = read();
    if read.is_err() {
        // rank 0 comes by there
        agree(&mut connection.workers, read.map(drop))?;
        return Err(TrainError::Unusable { what: "the order cannot be read".to_owned() });
    }
    let (settings, data_root, pool) = read?;
    let context = RunContext { data_root: &data_root, pool: &pool, feedback: &NoFeedback, processes: None };
    build_connected(settings, Vec::new(), connection, &context)
}

/// Builds a trainer that is connected with others. Rank 0 has the checkpoint.
fn build_connected(
    settings: Settings,
    mut checkpoint: Vec<u8>,
    Connection { mut workers, peers }: Connection,
    context: &RunContext<'_>,
) -> Result<RunTrainer, TrainError> {
    agree(&mut workers, Ok(()))?;
    workers.broadcast(&mut checkpoint)?;
    let checkpoint = read_checkpoint(&checkpoint);
    let checkpoint = agree(&mut workers, checkpoint)?;
    let size = peers.size();
    let precision = settings.precision;
    let check = |network: &Network, batch_size: usize| {
        check_memory(network, batch_size.div_ceil(size), precision, context.pool)
    };
    let make = |network: Network, batch_size: usize, seed| {
        check(&network, batch_size)?;
        let options = CpuOptions { precision, peers: Some(peers), ..CpuOptions::default() };
        Ok(Cpu::with_options(network, batch_size, seed, context.pool.clone(), options)?)
    };
    trainer_with(settings, checkpoint.as_ref(), workers, (&check, make), context)
}
