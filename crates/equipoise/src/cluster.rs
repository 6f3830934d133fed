//! Several processes that run one command: `equipoise-mpi`.
//!
//! Rank 0 runs the command and prints. The others are told when there is a run to build or to train, a checkpoint to evaluate or to predict
//! with, or a command that shares out its work, and are silent unless they fail alone.

use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::anyhow;
use equipoise_record::{EpochRecord, GradientNorms};
use equipoise_support::Examples;
use equipoise_train::TrainError;
use equipoise_train::run::build::RunTrainer;
use equipoise_train::run::evaluation::evaluate_share;
use equipoise_train::run::prediction::predict_share;
use equipoise_train::run::processes::{Connection, Processes, Task, build};
use equipoise_train::run::train;
use equipoise_train::trainer::{Directive, Observer, StepProgress};

use crate::arguments::parse;
use crate::failure::Failure;
use crate::output::{counted, message, note};
use crate::signals::{self, Guard, received};
use crate::{Cli, Command, commands};

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

/// Says how many processes there are, with how many threads each, if there are several; or that rank 0 trains alone, on features.
pub(crate) fn introduce(threads: usize, examples: Examples) {
    match processes() {
        Some(_) if examples == Examples::Rows => {
            note("rank 0 trains a head on features alone; its batches are not shared out");
        }
        Some(processes) => {
            note(&format!("{} with {} each", counted(processes.size(), "process"), counted(threads, "thread")));
        }
        None => {}
    }
}

/// What is said of a failure: with several processes, errors of files name rank 0, on whose machine they happened.
pub(crate) fn with_rank(failure: &Failure) -> String {
    let is_shared = processes().is_some_and(|processes| processes.size() > 1);
    if is_shared && failure.is_of_this_machine() { format!("rank 0: {failure}") } else { failure.to_string() }
}

/// Threads of a process that follows rank 0, unless the user chooses.
static FOLLOWER_THREADS: OnceLock<usize> = OnceLock::new();

/// Threads of a process, unless the user chooses; 0 for all cores.
pub(crate) fn default_threads() -> usize {
    FOLLOWER_THREADS.get().copied().or(CLUSTER.get().map(|cluster| cluster.threads)).unwrap_or(0)
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

    /// Takes part in a task of rank 0. False if this process failed in a way that the others know nothing of; it has then said so.
    #[must_use]
    pub fn start(&mut self, task: Task, order: &[u8], connection: Connection, threads: usize, rank: usize) -> bool {
        // the memory of the run before
        self.trainer = None;
        let done = match task {
            Task::Build => {
                // rank 0 reports it
                self.trainer = build(order, connection).ok();
                Ok(())
            }
            Task::Evaluate => evaluate_share(order, connection.workers).map_err(Failure::from),
            Task::Predict => predict_share(order, connection.workers).map_err(Failure::from),
            Task::Command => follow_command(connection, threads),
        };
        is_known(done, rank)
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
            Err(error) => is_known(Err(error.into()), rank),
        }
    }
}

/// Whether the other processes know how this one ended. If they do not, it says so.
fn is_known(result: Result<(), Failure>, rank: usize) -> bool {
    let Err(failure) = result else { return true };
    let is_alone = failure.is_of_one_worker();
    if is_alone {
        message(&format!("rank {rank}: {failure}"));
    }
    !is_alone
}

/// Takes part in the command of rank 0, whose command line all processes have.
fn follow_command(connection: Connection, threads: usize) -> Result<(), Failure> {
    let cli: Cli = parse(std::env::args_os(), false).map_err(|_| anyhow!("it has another command line than rank 0"))?;
    let _ = FOLLOWER_THREADS.set(threads);
    match cli.command {
        Some(Command::Embed(args)) => commands::embed::follow(&args, connection),
        Some(Command::Bench(args)) => commands::bench::follow(&args, connection),
        _ => Err(anyhow!("it has another command line than rank 0").into()),
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
