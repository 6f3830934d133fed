//! Several processes that run one command: `equipoise-mpi`.
//!
//! Rank 0 runs the command and prints. The others are told when there is a run to build or to train, and are silent unless they
//! fail alone.

use std::process::ExitCode;
use std::sync::OnceLock;

use equipoise_record::{EpochRecord, GradientNorms};
use equipoise_train::TrainError;
use equipoise_train::run::build::RunTrainer;
use equipoise_train::run::processes::{Connection, Processes, build};
use equipoise_train::run::train;
use equipoise_train::trainer::{Directive, Observer, StepProgress};

use crate::failure::Failure;
use crate::output::message;
use crate::signals::{self, Guard, received};

/// What rank 0 knows about the others.
struct Cluster {
    processes: Box<dyn Processes>,
    /// Threads of each process, unless the user chooses; 0 for all cores.
    threads: usize,
}

static CLUSTER: OnceLock<Cluster> = OnceLock::new();

/// The other processes, if there are any.
pub(crate) fn processes() -> Option<&'static dyn Processes> {
    CLUSTER.get().map(|cluster| &*cluster.processes)
}

/// Threads of a process, unless the user chooses; 0 for all cores.
pub(crate) fn default_threads() -> usize {
    CLUSTER.get().map_or(0, |cluster| cluster.threads)
}

/// The program as rank 0 of several processes runs it, with this number of threads unless the user chooses another (0 for all
/// cores).
pub fn lead(processes: Box<dyn Processes>, threads: usize) -> ExitCode {
    signals::install();
    // it is the first call
    let _ = CLUSTER.set(Cluster { processes, threads });
    crate::run_command()
}

/// What the other processes do: they follow rank 0.
pub struct Following {
    trainer: Option<RunTrainer>,
}

impl Following {
    /// A process before its first run.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it handles the signals of the process from here on")]
    pub fn new() -> Self {
        signals::install();
        Self { trainer: None }
    }

    /// Builds the run that rank 0 builds.
    pub fn build(&mut self, order: &[u8], connection: Connection) {
        // the memory of the run before
        self.trainer = None;
        // rank 0 reports it
        self.trainer = build(order, connection).ok();
    }

    /// Trains the run that was built last. False if this process failed in a way that the others know nothing of; it has then
    /// said so.
    #[must_use]
    pub fn train(&mut self, rank: usize) -> bool {
        let Some(mut trainer) = self.trainer.take() else { return true };
        let _guard = Guard::new(None);
        match train(&mut trainer, None, &mut Follower) {
            // a run diverges for all at once
            Ok(_) | Err(TrainError::Diverged { .. }) => true,
            Err(error) => {
                let failure = Failure::from(error);
                let is_alone = failure.is_of_one_worker();
                if is_alone {
                    message(&format!("rank {rank}: {failure}"));
                }
                !is_alone
            }
        }
    }
}

/// The observer of a worker that does not write: it only listens to signals.
pub(crate) struct Follower;

impl Follower {
    fn directive() -> Directive {
        if received().is_some() { Directive::Stop } else { Directive::Continue }
    }
}

impl Observer for Follower {
    fn step(&mut self, _: &StepProgress) -> Directive {
        Self::directive()
    }

    fn evaluating(&mut self, _: usize, _: usize) -> Directive {
        Self::directive()
    }

    fn epoch(&mut self, _: &EpochRecord, _: &GradientNorms) {}
}
