//! `equipoise report`: runs side by side.

use std::io::Write;
use std::path::PathBuf;

use equipoise_report::comparison::Comparison;
use equipoise_report::page::{page, unfinished_page};
use equipoise_report::run::RecordedRun;
use equipoise_report::table::Table;
use serde_json::Value;

use crate::failure::Failure;
use crate::live_report::unfinished_status;
use crate::output::{open_in_browser, printable, quoted, write_file};
use crate::reports::{default_page, print_plain, read_comparisons, summary};

#[derive(clap::Args)]
#[command(after_long_help = "\
A RUN is a run folder, or a folder of runs such as `compare` writes. Runs that differ only in their seeds are one row; runs on different \
data get separate tables. The page is a single file that needs no network.

± in tables is the standard deviation over seeds. Differences are paired by seed and, from three seeds on, come with a 95 % interval for other \
seeds and other test images; a number is bold (* in text) only if it is distinguishable from every other number of its column.

Examples:
  equipoise report runs/compare-fashion-mini-resnet8-s0
  equipoise report runs/cifar10-if100-* -o cifar10.html --open
  equipoise report runs/cifar10-if100-* --plain --baseline seesaw
  equipoise report runs/cifar10-if100-* --format latex
  equipoise report runs/cifar10-if100-* --format csv --table classes")]
pub(crate) struct Args {
    /// Run folders
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// File of the page [default: report.html in the folder if there is only one, else in the current folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Row that the others are compared with [default: the first one that --criteria of `compare` named, else softmax, else the first]
    #[arg(long, value_name = "LABEL")]
    baseline: Option<String>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Print the verdict and the table instead of writing a page
    #[arg(long, conflicts_with_all = ["output", "open", "format", "table"])]
    plain: bool,
    /// Print a table in this format instead of writing a page
    #[arg(long, conflicts_with_all = ["output", "open"])]
    format: Option<Format>,
    /// Table to print with --format [default: groups; JSON has all but classes and runs]
    #[arg(long, value_name = "TABLE", requires = "format")]
    table: Option<TableName>,
    /// Write CSV texts as they are, even if a spreadsheet would run them as formulas
    #[arg(long, requires = "format")]
    raw: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TableName {
    /// Accuracy of each criterion by group
    Groups,
    /// The same for the best epoch on the test split, for runs that select it
    Best,
    /// Differences from the baseline
    Differences,
    /// Accuracy of each criterion by class
    Classes,
    /// Each run with its speed, time and commit
    Runs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Markdown,
    Csv,
    Latex,
    Json,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let is_page = |path: &PathBuf| {
        path.extension().is_some_and(|e| e.eq_ignore_ascii_case("html") || e.eq_ignore_ascii_case("htm"))
    };
    if let Some(path) = args.output.as_ref().filter(|path| path.is_file() && !is_page(path)) {
        let what = "this file is no page and is not replaced; name a .html file";
        return Err(Failure::usage(format!("--output {}: {what}", path.display())));
    }
    let mut comparisons = read_comparisons(&args.runs)?;
    if let Some(label) = &args.baseline {
        let rebased =
            comparisons.into_iter().map(|comparison| comparison.with_baseline(label)).collect::<Result<_, _>>();
        comparisons = rebased.map_err(|known: Vec<String>| {
            Failure::usage(format!("--baseline {label}: no such row; the rows are: {}", known.join("; ")))
        })?;
    }
    if args.plain {
        return separated(&comparisons, out, print_plain);
    }
    match args.format {
        Some(format) => print_tables(&comparisons, format, args.raw, args.table, out),
        None => write_page(args, &comparisons, out),
    }
}

/// Prints several things with an empty line between them.
fn separated<T, W: Write>(
    things: &[T],
    out: &mut W,
    print: impl Fn(&T, &mut W) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (number, thing) in things.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        print(thing, out)?;
    }
    Ok(())
}

fn print_tables(
    comparisons: &[Comparison],
    format: Format,
    raw: bool,
    name: Option<TableName>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let write: fn(&Table) -> String = match format {
        Format::Markdown => Table::markdown,
        Format::Csv if raw => Table::raw_csv,
        Format::Csv => Table::csv,
        Format::Latex => Table::latex,
        Format::Json if name.is_none() => {
            let all: Vec<Value> = comparisons.iter().map(summary).collect();
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
        }
        Format::Json => {
            let what = "--table: JSON has all tables but classes and runs, which are in result.json";
            return Err(Failure::usage(what));
        }
    };
    let table = |comparison: &Comparison| match name.unwrap_or(TableName::Groups) {
        TableName::Groups => Some(Table::groups(comparison)),
        TableName::Best => Table::optimistic(comparison),
        TableName::Differences => Table::differences(comparison),
        TableName::Classes => Some(Table::classes(comparison)),
        TableName::Runs => Some(Table::runs(comparison)),
    };
    let tables: Vec<Table> = comparisons.iter().filter_map(table).collect();
    if tables.is_empty() {
        return Err(Failure::usage("--table: the runs have nothing to show in this table"));
    }
    separated(&tables, out, |table, out| Ok(write!(out, "{}", write(table))?))
}

fn write_page(args: &Args, comparisons: &[Comparison], out: &mut impl Write) -> Result<(), Failure> {
    let path = args.output.clone().unwrap_or_else(|| default_page(&args.runs));
    let runs: Vec<&RecordedRun> = comparisons.iter().flat_map(|all| &all.runs).collect();
    let status = match args.runs.as_slice() {
        [folder] => unfinished_status(folder, &runs),
        _ => None,
    };
    let html = status.map_or_else(|| page(comparisons), |status| unfinished_page(comparisons, &status));
    write_file(&path, html.as_bytes())?;
    for comparison in comparisons {
        writeln!(out, "{}", printable(&comparison.verdict().0))?;
        for note in &comparison.notes {
            writeln!(out, "{}", printable(note))?;
        }
    }
    writeln!(out, "{}", quoted(&path))?;
    if args.open {
        open_in_browser(&path)?;
    }
    Ok(())
}
