//! `equipoise`: train image classifiers that do not forget the tail.
//!
//! This file parses the command line, calls the command and maps its result to an exit code: 0 success, 1 failure, 2 wrong usage or
//! input, 128 plus the number of a signal after that signal. `commands` has a module per command; they share the other modules.

mod arguments;
mod checkpoints;
mod clock;
pub mod cluster;
mod commands;
mod cross_validation;
mod decisions;
mod failure;
mod figures;
pub mod launch;
mod live_report;
mod options;
mod output;
mod progress;
mod reports;
mod signals;
mod training;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// What the program prints without arguments.
const START: &str = "\
equipoise: train image classifiers that do not forget the tail

Three commands to start with:
  equipoise compare                 three criteria on the built-in dataset, in about half a minute
  equipoise inspect path/to/images  a dataset before training: class sizes, imbalance, problems, advice
  equipoise train path/to/images    one run, with the criterion of your choice

`equipoise help` lists all commands, `equipoise help COMMAND` explains one.
";

#[derive(Parser)]
#[command(
    name = "equipoise",
    version,
    about = "Train image classifiers that do not forget the tail",
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Train the same network once per criterion and show what each group of classes gains or loses
    Compare(commands::compare::Args),
    /// Train a network
    Train(commands::train::Args),
    /// Find out which learning rates work, with a plot
    LrRange(commands::lr_range::Args),
    /// Evaluate a trained run
    Evaluate(commands::evaluate::Args),
    /// Calibrate the probabilities of a run on images that it was not trained on
    Calibrate(commands::calibrate::Args),
    /// Compare finished runs: a report page, a verdict, tables
    Report(commands::report::Args),
    /// Reproduce a published table
    Reproduce(commands::reproduce::Args),
    /// Predict the classes of images
    Predict(commands::predict::Args),
    /// Compute features of images with a pretrained ONNX backbone
    Embed(commands::embed::Args),
    /// Export the network of a run for other programs
    Export(commands::export::Args),
    /// Find labels that are probably wrong, by cross-validation
    LabelErrors(commands::label_errors::Args),
    /// Look at a dataset before training: images per class, imbalance, problems, advice
    Inspect(commands::inspect::Args),
    /// List, download and import datasets; write long-tailed subsets
    Data(commands::data::Args),
    /// List the training criteria, or explain one
    Criteria(commands::criteria::Args),
    /// List the settings of a run with their defaults
    Settings(commands::settings::Args),
    /// Evaluate a criterion on given logits: loss, gradient, weights and state as JSON
    Loss(commands::loss::Args),
    /// Measure speed on this machine
    Bench(commands::bench::Args),
    /// Print completions for a shell
    Completions(commands::completions::Args),
}

fn run(cli: Cli) -> Result<(), Failure> {
    let out = &mut io::stdout();
    match cli.command {
        None => out.write_all(START.as_bytes())?,
        Some(Command::Compare(args)) => commands::compare::run(&args, out)?,
        Some(Command::Train(args)) => commands::train::run(&args, out)?,
        Some(Command::LrRange(args)) => commands::lr_range::run(&args, out)?,
        Some(Command::Evaluate(args)) => commands::evaluate::run(&args, out)?,
        Some(Command::Calibrate(args)) => commands::calibrate::run(&args, out)?,
        Some(Command::Report(args)) => commands::report::run(&args, out)?,
        Some(Command::Reproduce(args)) => commands::reproduce::run(&args, out)?,
        Some(Command::Predict(args)) => commands::predict::run(&args, out)?,
        Some(Command::Embed(args)) => commands::embed::run(&args, out)?,
        Some(Command::Export(args)) => commands::export::run(&args, out)?,
        Some(Command::Completions(args)) => commands::completions::run(&args, &mut Cli::command(), out)?,
        Some(Command::LabelErrors(args)) => commands::label_errors::run(&args, out)?,
        Some(Command::Inspect(args)) => commands::inspect::run(&args, out)?,
        Some(Command::Data(args)) => commands::data::run(&args, out)?,
        Some(Command::Criteria(args)) => commands::criteria::run(&args, out)?,
        Some(Command::Settings(args)) => commands::settings::run(&args, out)?,
        Some(Command::Loss(args)) => commands::loss::run(&args, out)?,
        Some(Command::Bench(args)) => commands::bench::run(&args, out)?,
    }
    out.flush()?;
    Ok(())
}

/// The program: parses the command line, calls the command, and maps its result to an exit code.
#[must_use]
pub fn main() -> ExitCode {
    signals::install();
    run_command()
}

/// Parses the command line, calls the command, and maps its result to an exit code.
fn run_command() -> ExitCode {
    signals::when_interrupted("interrupted");
    let cli = match arguments::parse(std::env::args_os(), true) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // the reader of our output has seen enough
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            output::message(&cluster::with_rank(&failure));
            ExitCode::from(failure.exit_code())
        }
    }
}
