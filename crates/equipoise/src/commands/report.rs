//! `equipoise report`: runs side by side.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use equipoise_record::RunFolder;
use equipoise_record::names::REPORT;
use equipoise_report::comparison::Comparison;
use equipoise_report::page::page;
use equipoise_report::run::{ReportError, Run};
use equipoise_report::table::Table;
use equipoise_train::settings::Settings;
use serde_json::{Value, json};

use super::data::warn;
use crate::runs::{quoted, train_failure};
use crate::{Failure, printable};

#[derive(clap::Args)]
#[command(after_long_help = "\
A RUN is the folder of a run, or one with runs in it, as `compare` leaves it. Runs that differ in nothing but their seeds are
one row; runs on different data get tables of their own. The page is one file that needs no network.

± in tables is the standard deviation over seeds. Differences are paired by seed and come with a 95 % interval; a figure is bold
only if it is distinguishable from every other of its column.

Examples:
  equipoise report runs/compare-fashion-mini-resnet8-s0
  equipoise report runs/cifar10-if100-* -o cifar10.html --open
  equipoise report runs/cifar10-if100-* --plain --baseline seesaw
  equipoise report runs/cifar10-if100-* --format latex
  equipoise report runs/cifar10-if100-* --format csv --table classes")]
pub(crate) struct Args {
    /// Folders of runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where to put the page [default: report.html in the folder, if there is one, else in this one]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The row that the others are compared with [default: softmax, else the first]
    #[arg(long, value_name = "LABEL")]
    baseline: Option<String>,
    /// Show the page in a browser
    #[arg(long)]
    open: bool,
    /// Print the verdict and the table, and make no page
    #[arg(long, conflicts_with_all = ["out", "open", "format", "table"])]
    plain: bool,
    /// Print the tables in a format, and make no page
    #[arg(long, conflicts_with_all = ["out", "open"])]
    format: Option<Format>,
    /// Which table --format prints [default: groups; JSON has all but classes and runs]
    #[arg(long, value_name = "TABLE", requires = "format")]
    table: Option<TableName>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TableName {
    /// What each criterion reaches, by group
    Groups,
    /// The same of the best epoch on the test set, where runs have one
    Best,
    /// How the others differ from the baseline
    Differences,
    /// What each criterion reaches, by class
    Classes,
    /// Each run, with its speed, time and commit
    Runs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Markdown,
    Csv,
    Latex,
    Json,
}

fn report_failure(error: ReportError) -> Failure {
    Failure::Usage(format!("{:#}", anyhow::Error::from(error)))
}

fn read(paths: &[PathBuf]) -> Result<Vec<Comparison>, Failure> {
    let (mut runs, left) = Run::all(paths).map_err(report_failure)?;
    for run in &mut runs {
        // what an older version did not write is what it is by default; settings of none that we know stay as they are
        let whole = Settings::from_toml(&run.config, &Settings::default()).and_then(|settings| settings.to_toml());
        let _ = whole.map(|whole| run.resolve_settings(&whole));
    }
    for path in left {
        warn(&format!("{} is left out: none of its epochs has been evaluated", path.display()));
    }
    Ok(Comparison::all(runs))
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let mut comparisons = read(&args.runs)?;
    if let Some(label) = &args.baseline {
        let based = comparisons.into_iter().map(|comparison| comparison.with_baseline(label)).collect::<Result<_, _>>();
        comparisons = based.map_err(|known: Vec<String>| {
            Failure::Usage(format!("--baseline {label}: there is no such row; there are: {}", known.join("; ")))
        })?;
    }
    if args.plain {
        for (number, comparison) in comparisons.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            plain(comparison, out)?;
        }
        return Ok(());
    }
    if let Some(format) = args.format {
        if format == Format::Json && args.table.is_none() {
            let all: Vec<Value> = comparisons.iter().map(summary).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
            return Ok(());
        }
        if format == Format::Json {
            return Err(Failure::Usage(
                "--table: JSON has all of them but classes and runs, which result.json has".to_owned(),
            ));
        }
        let table = |comparison: &Comparison| match args.table.unwrap_or(TableName::Groups) {
            TableName::Groups => Some(Table::groups(comparison)),
            TableName::Best => Table::optimistic(comparison),
            TableName::Differences => Table::differences(comparison),
            TableName::Classes => Some(Table::classes(comparison)),
            TableName::Runs => Some(Table::runs(comparison)),
        };
        let tables: Vec<Table> = comparisons.iter().filter_map(table).collect();
        if tables.is_empty() {
            return Err(Failure::Usage("--table: the runs have nothing for this one".to_owned()));
        }
        for (number, table) in tables.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            let text = match format {
                Format::Markdown => table.markdown(),
                Format::Csv => table.csv(),
                Format::Latex | Format::Json => table.latex(),
            };
            write!(out, "{text}")?;
        }
        return Ok(());
    }
    let place = match (&args.out, args.runs.as_slice()) {
        (Some(path), _) => path.clone(),
        (None, [one]) => one.join(REPORT),
        (None, _) => PathBuf::from(REPORT),
    };
    put(&place, page(&comparisons).as_bytes())?;
    for comparison in &comparisons {
        writeln!(out, "{}", printable(&comparison.verdict().0))?;
    }
    writeln!(out, "{}", quoted(&place))?;
    if args.open {
        open(&place)?;
    }
    Ok(())
}

/// Makes the page of some runs in a folder; returns where it is, and what it shows.
pub(crate) fn show_runs(runs: &[PathBuf], folder: &RunFolder) -> Result<(PathBuf, Vec<Comparison>), Failure> {
    let comparisons = read(runs)?;
    folder.write(REPORT, page(&comparisons).as_bytes()).map_err(|error| train_failure(error.into()))?;
    Ok((folder.path().join(REPORT), comparisons))
}

/// The verdict and the table for a person.
pub(crate) fn plain(comparison: &Comparison, out: &mut impl Write) -> Result<(), Failure> {
    for table in [Some(Table::groups(comparison)), Table::optimistic(comparison)].into_iter().flatten() {
        writeln!(out, "{}", table.plain().lines().map(printable).collect::<Vec<_>>().join("\n"))?;
        writeln!(out)?;
    }
    let (verdict, others) = comparison.verdict();
    for line in [verdict].iter().chain(&others).chain(&comparison.notes) {
        writeln!(out, "{}", printable(&line.replace('±', "+-")))?;
    }
    Ok(())
}

/// The verdict and the table for a program.
pub(crate) fn summary(comparison: &Comparison) -> Value {
    let (verdict, others) = comparison.verdict();
    let setting = |name: &str| comparison.runs.first().and_then(|run| run.setting(name));
    let rows = comparison.variants.iter().enumerate().map(|(number, variant)| {
        let difference = |column: usize| {
            let difference = comparison.difference(number, column)?;
            let distinguishable = difference.distinguishable();
            let (mean, half, pairs) = (difference.mean, difference.half, difference.pairs);
            Some(json!({"mean": mean, "half": half, "pairs": pairs, "distinguishable": distinguishable}))
        };
        json!({
            "criterion": variant.criterion,
            "label": variant.label,
            "seeds": variant.runs.iter().map(|at| comparison.runs[*at].seed()).collect::<Vec<_>>(),
            "mean": variant.cells.iter().map(|cell| cell.spread.map(|spread| spread.mean)).collect::<Vec<_>>(),
            "sd": variant.cells.iter().map(|cell| cell.spread.and_then(|spread| spread.sd)).collect::<Vec<_>>(),
            "best": variant.cells.iter().map(|cell| cell.best).collect::<Vec<_>>(),
            "difference": (0..variant.cells.len()).map(difference).collect::<Vec<_>>(),
            "best_on_test": variant.optimistic.as_ref().map(|cells| {
                cells.iter().map(|cell| cell.spread.map(|spread| spread.mean)).collect::<Vec<_>>()
            }),
        })
    });
    json!({
        "dataset": comparison.dataset,
        "which": comparison.epoch_text(),
        "model": setting("model.name"),
        "epochs": setting("epochs").and_then(|epochs| epochs.parse::<u64>().ok()),
        "columns": comparison.columns,
        "rows": rows.collect::<Vec<_>>(),
        "verdict": verdict,
        "others": others,
        "notes": comparison.notes,
    })
}

/// Writes a file so that nobody ever sees half of it.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(anyhow::anyhow!("cannot write {}: {error}", path.display()));
    // what a link points at is replaced, not the link; a terminal or a pipe is written to
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(failed);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path)).map_err(|error| {
        // the error is told either way
        let _ = std::fs::remove_file(&part);
        failed(error)
    })
}

/// Shows a page in the user's browser.
pub(crate) fn open(page: &Path) -> Result<(), Failure> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = match cfg!(windows) {
        true => {
            let mut command = Command::new("cmd");
            command.args(["/C", "start", ""]);
            command
        }
        false => Command::new(program),
    };
    let page = std::fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    let opened = command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match opened {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(anyhow::anyhow!("{program} cannot show {}: {status}", page.display()))),
        Err(error) => Err(Failure::Failed(anyhow::anyhow!("cannot run {program} to show {}: {error}", page.display()))),
    }
}
