//! `equipoise`: train image classifiers that do not forget the tail.
//!
//! This file parses the command line, calls the command and maps what it says to an exit code: 0 fine, 1 failed, 2 wrong
//! usage or input, 128 and a signal's number after that signal. Each command has a file of its own under `commands`.

mod commands;
mod log;
mod progress;
mod runs;
mod signals;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// What a newcomer sees without arguments.
const START: &str = "\
equipoise: train image classifiers that do not forget the tail

Three commands to start with:
  equipoise compare                 three criteria on the data set inside the program, in about a minute
  equipoise inspect path/to/images  a data set before training: bars, imbalance, problems, advice
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
    /// Train the same network once per criterion, and show what each group of classes gains or loses
    Compare(commands::compare::Args),
    /// Train a network
    Train(commands::train::Args),
    /// Metrics of a trained run
    Evaluate(commands::evaluate::Args),
    /// Runs side by side: a page to look at, a verdict, tables
    Report(commands::report::Args),
    /// A published table next to ours
    Reproduce(commands::reproduce::Args),
    /// Labels and probabilities of images
    Predict(commands::predict::Args),
    /// Weights of a trained run for other programs
    Export(commands::export::Args),
    /// Look at a data set before training: images per class, imbalance, problems, advice
    Inspect(commands::inspect::Args),
    /// List, fetch and import known data sets; write long-tailed subsets
    Data(commands::data::Args),
    /// List the training criteria, or explain one
    Criteria(commands::criteria::Args),
    /// Evaluate a criterion on given logits: loss, gradient, weights and state as JSON
    Loss(commands::loss::Args),
    /// Measure speed on this machine
    Bench(commands::bench::Args),
    /// Completions for a shell
    Completions(commands::completions::Args),
}

/// Why a command did not end well.
pub(crate) enum Failure {
    /// The command line or an input file is wrong: exit code 2.
    Usage(String),
    /// Something else went wrong: exit code 1.
    Failed(anyhow::Error),
    /// A signal came, and this was done about it: exit code 128 and the signal's number.
    Interrupted(i32, String),
}

impl Failure {
    /// The same, saying what it is about.
    fn about(self, what: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{what}: {message}")),
            Self::Failed(error) => Self::Failed(error.context(what.to_owned())),
            Self::Interrupted(signal, done) => Self::Interrupted(signal, format!("{what}: {done}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Interrupted(_, message) => f.write_str(message),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let out = &mut io::stdout();
    match cli.command {
        None => out.write_all(START.as_bytes())?,
        Some(Command::Compare(args)) => commands::compare::run(&args, out)?,
        Some(Command::Train(args)) => commands::train::run(&args, out)?,
        Some(Command::Evaluate(args)) => commands::evaluate::run(&args, out)?,
        Some(Command::Report(args)) => commands::report::run(&args, out)?,
        Some(Command::Reproduce(args)) => commands::reproduce::run(&args, out)?,
        Some(Command::Predict(args)) => commands::predict::run(&args, out)?,
        Some(Command::Export(args)) => commands::export::run(&args, out)?,
        Some(Command::Completions(args)) => commands::completions::run(&args, &mut Cli::command(), out)?,
        Some(Command::Inspect(args)) => commands::inspect::run(&args, out)?,
        Some(Command::Data(args)) => commands::data::run(&args, out)?,
        Some(Command::Criteria(args)) => commands::criteria::run(&args, out)?,
        Some(Command::Loss(args)) => commands::loss::run(&args, out)?,
        Some(Command::Bench(args)) => commands::bench::run(&args, out)?,
    }
    out.flush()?;
    Ok(())
}

fn main() -> ExitCode {
    signals::install();
    let failure = match run(Cli::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    let code = match &failure {
        Failure::Usage(_) => 2,
        // whoever reads our output has seen enough
        Failure::Failed(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            return ExitCode::SUCCESS;
        }
        Failure::Interrupted(signal, _) => 128 + *signal as u8,
        Failure::Failed(_) => 1,
    };
    let message = failure.to_string();
    // nowhere left to complain if this fails
    let _ = writeln!(io::stderr(), "equipoise: {}", one_line(&message));
    ExitCode::from(code)
}

/// A message in one line, without what a terminal would take for commands.
pub(crate) fn one_line(message: &str) -> String {
    printable(&message.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// Text of others (names, paths) without what a terminal would take for commands: control characters, those that turn the
/// direction of writing, and those that cannot be seen.
pub(crate) fn printable(text: &str) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|c| if odd(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}
