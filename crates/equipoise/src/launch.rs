//! Training on an engine that another program brings: `python -m equipoise.torch.train`.
//!
//! Options, display, records and exit codes are those of `equipoise train`. Rank 0 prints and writes; the other workers are silent
//! unless they fail alone.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use equipoise_criterion::Pool;
use equipoise_nn::{Engine, Network};
use equipoise_record::names::RESULT;
use equipoise_train::TrainError;
use equipoise_train::run::{ExistingRun, Feedback, NoFeedback, RunContext, RunSource, SharedRun, train};
use equipoise_train::settings::{Precision, Settings};
use equipoise_train::workers::{Workers, agree};

use crate::arguments::parse;
use crate::cluster::Follower;
use crate::commands::train::{Args, introduce, print_config, save_every, settings, settings_of_run, show_result};
use crate::failure::Failure;
use crate::live_report::LiveFolder;
use crate::output::{message, note, quoted};
use crate::progress::Console;
use crate::reports::write_report;
use crate::signals::{self, Guard, received};
use crate::training::{DisplayOptions, RunDisplay, execute, read_result};

/// Precision of the passes in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Amp {
    /// 32 bits.
    None,
    /// 16 bits with the exponents of 32.
    Bf16,
    /// 16 bits; losses are scaled.
    Fp16,
}

/// Help of `--threads`: unlike the engine of the crates, torch adds in another order with another number of threads.
const THREADS: &str = "Number of threads of each process [default: OMP_NUM_THREADS if it is set, else all cores, shared out among the \
    processes of a machine]. Torch's last bits depend on it, and training amplifies them";

/// Options of a training with torch.
#[derive(Parser)]
#[command(
    name = "python -m equipoise.torch.train",
    version,
    about = "Train a network with PyTorch, on the CPU, on a GPU, or with torchrun on several of them",
    max_term_width = 110,
    mut_arg("threads", |threads| threads.help(THREADS))
)]
pub struct TorchArgs {
    #[command(flatten)]
    train: Args,
    /// Device of the network: cpu, cuda, cuda:N [default: cuda if there is one; under torchrun, that of the local rank]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Mixed precision in training. Evaluation has 32 bits, so that the numbers are those of the weights
    #[arg(long, value_enum, default_value = "none")]
    pub amp: Amp,
    /// Compile the network with torch.compile
    #[arg(long)]
    pub compile: bool,
    /// Statistics of batch norms over the rows of all workers, instead of each worker's own rows
    #[arg(long)]
    pub sync_bn: bool,
    /// Keep images in the order channels, height, width on the device
    #[arg(long)]
    pub no_channels_last: bool,
}

impl TorchArgs {
    /// Parses arguments, without the name of the program. Prints help or what is wrong.
    ///
    /// # Errors
    /// The exit code, if there is nothing to train.
    pub fn parse_arguments(arguments: Vec<OsString>, is_first: bool) -> Result<Self, u8> {
        let program = OsString::from("python -m equipoise.torch.train");
        let args: Self = parse([program].into_iter().chain(arguments), is_first)?;
        if args.train.print_config {
            let shown = if is_first { print_config(&args.train, &mut io::stdout()) } else { Ok(()) };
            return Err(finish(shown, is_first));
        }
        Ok(args)
    }

    /// The number of threads, if the user chose one.
    #[must_use]
    pub fn threads(&self) -> Option<usize> {
        self.train.settings.threads.chosen()
    }

    /// Where the run comes from and goes.
    fn source(&self, is_restart: bool) -> Result<RunSource, Failure> {
        let Args { resume, output, settings: options, .. } = &self.train;
        if let Some(path) = resume {
            check_precision(&settings_of_run(path)?)?;
            return Ok(RunSource::Resume { path: path.clone(), dataset: options.data.clone(), epochs: options.epochs });
        }
        let settings = Box::new(settings(&self.train)?);
        check_precision(&settings)?;
        Ok(match output {
            Some(path) => RunSource::At(settings, path.clone()),
            None => RunSource::In { settings, parent: PathBuf::from("runs"), is_restart },
        })
    }

    /// Whether the run has its result already.
    fn is_finished(&self, source: &RunSource) -> Result<bool, Failure> {
        Ok(match source {
            RunSource::At(settings, path) => ExistingRun::find(path, settings)? == ExistingRun::Finished,
            RunSource::Resume { path, epochs: Some(epochs), .. } if settings_of_run(path)?.epochs != *epochs => false,
            RunSource::Resume { path, .. } => path.join(RESULT).exists(),
            RunSource::In { .. } => false,
        })
    }
}

/// Refuses the precisions of the program's own engine.
fn check_precision(settings: &Settings) -> Result<(), Failure> {
    match settings.precision {
        Precision::F32 => Ok(()),
        precision => Err(Failure::usage(format!(
            "precision {precision} is for `equipoise train`; with PyTorch, --amp chooses the precision"
        ))),
    }
}

/// How a worker takes part.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Threads of this worker.
    pub threads: usize,
    /// Whether the same command was started before and has failed.
    pub is_restart: bool,
}

/// Trains a run on an engine that `make` makes, and returns the exit code. `make` gets the network, the batch size of all workers and
/// the seed of the initial weights.
pub fn launch<E: Engine, W: Workers>(
    args: &TorchArgs,
    launch: Launch,
    workers: W,
    make: impl FnOnce(Network, usize, u64) -> Result<E, TrainError>,
) -> u8 {
    signals::install();
    let is_first = workers.shard().rank() == 0;
    finish(run(args, launch, workers, make), is_first)
}

/// Prints a failure, and returns the exit code.
fn finish(result: Result<(), Failure>, is_first: bool) -> u8 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            if is_first || failure.is_of_one_worker() {
                message(&failure.to_string());
            }
            failure.exit_code()
        }
    }
}

fn run<E: Engine, W: Workers>(
    args: &TorchArgs,
    launch: Launch,
    mut workers: W,
    make: impl FnOnce(Network, usize, u64) -> Result<E, TrainError>,
) -> Result<(), Failure> {
    let is_first = workers.shard().rank() == 0;
    let save_every = save_every(&args.train)?;
    let source = match find(args, launch.is_restart, &mut workers)? {
        Found::Run(source) => source,
        Found::Finished if is_first => return show_finished(args),
        Found::Finished => return Ok(()),
    };
    // threads that spin would compete with those of torch
    let pool = Pool::without_spinning(launch.threads).context("cannot start threads")?;
    let (console, root) = (Console::default(), args.train.settings.root.path());
    let feedback: &dyn Feedback = if is_first { &console } else { &NoFeedback };
    let context = RunContext { data_root: &root, pool: &pool, feedback, processes: None };
    let SharedRun { trainer, folder } = SharedRun::open(&source, workers, make, &context)?;
    // the engine leaves the threads of the CPU idle, or has its own
    let mut trainer = trainer.with_preparing_threads(pool.clone());
    let Some(folder) = folder else {
        let _guard = Guard::new(None);
        return match train(&mut trainer, None, &mut Follower)? {
            Some(_) => Ok(()),
            None => Err(Failure::Interrupted(received().unwrap_or(2), String::new())),
        };
    };
    let quiet = args.train.quiet;
    if !quiet {
        introduce(&trainer, &folder);
    }
    let options = DisplayOptions { quiet, epoch_lines: true, save_every };
    let mut display = RunDisplay::new("", trainer.settings().epochs, options);
    let path = folder.path().to_owned();
    let resume = format!("python -m equipoise.torch.train --resume {}", quoted(&path));
    let result = execute(&mut trainer, &folder, &mut display, LiveFolder::OfRun, &resume)?;
    write_report(std::slice::from_ref(&path), &folder)?;
    show_result(&args.train, &result, &path, &mut io::stdout())
}

/// What the options ask for.
enum Found {
    /// A run to train.
    Run(RunSource),
    /// A run that has its result.
    Finished,
}

/// Rank 0 looks, and all workers know what it has found.
fn find(args: &TorchArgs, is_restart: bool, workers: &mut impl Workers) -> Result<Found, Failure> {
    let look = || {
        let source = args.source(is_restart)?;
        let is_finished = args.is_finished(&source)?;
        Ok((source, is_finished))
    };
    // files need not be there for the others
    let nothing = RunSource::Resume { path: PathBuf::new(), dataset: None, epochs: None };
    let own: Result<_, Failure> = if workers.shard().rank() == 0 { look() } else { Ok((nothing, false)) };
    let what = own.as_ref().err().map(|failure| TrainError::Unusable { what: failure.to_string() });
    let agreed = agree(workers, what.map_or(Ok(()), Err));
    let (source, is_finished) = own?;
    agreed?;
    let mut message = vec![u8::from(is_finished)];
    workers.broadcast(&mut message).map_err(TrainError::from)?;
    Ok(if message == [1] { Found::Finished } else { Found::Run(source) })
}

/// Shows the result of a run that has nothing left to train.
fn show_finished(args: &TorchArgs) -> Result<(), Failure> {
    let Args { resume, output, .. } = &args.train;
    let path: &Path = resume.as_deref().or(output.as_deref()).unwrap_or(Path::new(""));
    note(&format!("{} is finished; this is its result", path.display()));
    let result = read_result(path, &settings_of_run(path)?)?;
    show_result(&args.train, &result, path, &mut io::stdout())
}
