//! Reports of runs: what `train` and `compare` write while they run and at their end, and `report` on demand.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use equipoise_record::RunFolder;
use equipoise_record::names::REPORT;
use equipoise_report::comparison::Comparison;
use equipoise_report::page::{live_page, page};
use equipoise_report::run::{RecordedRun, ReportError};
use equipoise_report::table::Table;
use equipoise_support::with_causes;
use equipoise_train::settings::RecordedSettings;
use serde_json::{Value, json};

use crate::clock::{now, timed};
use crate::failure::Failure;
use crate::output::{printable, warn};

/// Reads run folders and compares the runs on the same data.
pub(crate) fn read_comparisons(paths: &[PathBuf]) -> Result<Vec<Comparison>, Failure> {
    let (runs, skipped) = read_runs(paths)?;
    for error in skipped {
        warn(&format!("skipped: {}", with_causes(&error)));
    }
    Ok(Comparison::all(runs))
}

/// Reads run folders; also returns why others are skipped.
fn read_runs(paths: &[PathBuf]) -> Result<(Vec<RecordedRun>, Vec<ReportError>), Failure> {
    let (mut runs, skipped) = RecordedRun::all(paths)?;
    for run in &mut runs {
        // settings that the run does not name have their defaults; settings that we cannot read stay as they are
        let RecordedSettings { resolved, criterion_label } = RecordedSettings::new(&run.config);
        run.criterion_label = criterion_label;
        let _ = resolved.map(|text| run.resolve_settings(&text));
    }
    Ok((runs, skipped))
}

/// The folder that shows a report while a run trains.
#[derive(Clone, Copy)]
pub(crate) enum LiveFolder<'a> {
    /// None.
    Nowhere,
    /// The run's own.
    OfRun,
    /// The folder of a comparison, with all of its runs.
    OfComparison(&'a RunFolder),
}

/// A report that is written again and again while a run trains. It takes a small share of the time.
pub(crate) struct LiveReport<'a> {
    folder: &'a RunFolder,
    /// When the report was last written, and how long that took.
    written: Option<(Instant, Duration)>,
}

impl<'a> LiveReport<'a> {
    /// Shortest time between two reports. The page reloads itself as often.
    const EVERY: Duration = Duration::from_secs(10);
    /// A report is written again after this many times the time that it took.
    const RARELY: u32 = 30;

    pub(crate) fn new(folder: &'a RunFolder) -> Self {
        Self { folder, written: None }
    }

    /// Writes the report after an evaluated epoch, if it is time. A report that cannot be written is no reason to stop training: the
    /// last one tells what is wrong.
    pub(crate) fn update(&mut self) {
        let is_due = |(at, took): (Instant, Duration)| now() - at >= Self::EVERY.max(took * Self::RARELY);
        if self.written.is_none_or(is_due) {
            let ((), took) = timed(|| drop(self.write()));
            self.written = Some((now(), took));
        }
    }

    fn write(&self) -> Result<(), Failure> {
        let (runs, _) = read_runs(&[self.folder.path().to_owned()])?;
        let html = live_page(&Comparison::all_under_way(runs), Self::EVERY.as_secs());
        Ok(self.folder.write(REPORT, html.as_bytes())?)
    }
}

/// A report in the folder of its runs.
pub(crate) struct WrittenReport {
    pub(crate) page: PathBuf,
    pub(crate) comparisons: Vec<Comparison>,
}

/// Writes the report of some runs to a folder.
pub(crate) fn write_report(runs: &[PathBuf], folder: &RunFolder) -> Result<WrittenReport, Failure> {
    let comparisons = read_comparisons(runs)?;
    folder.write(REPORT, page(&comparisons).as_bytes())?;
    Ok(WrittenReport { page: folder.path().join(REPORT), comparisons })
}

/// Where a report goes if the user does not say: into the folder if there is only one.
pub(crate) fn default_page(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join(REPORT),
        _ => Path::new(REPORT).to_owned(),
    }
}

/// Prints the table and the verdict for people.
pub(crate) fn print_plain(comparison: &Comparison, out: &mut impl Write) -> Result<(), Failure> {
    for table in [Some(Table::groups(comparison)), Table::optimistic(comparison)].into_iter().flatten() {
        writeln!(out, "{}", table.plain().lines().map(printable).collect::<Vec<_>>().join("\n"))?;
        writeln!(out)?;
    }
    let variants = comparison.variants.len();
    let sentences: Vec<String> =
        if variants == 1 { 0..1 } else { 1..variants }.map(|v| comparison.sentence(v)).collect();
    for line in sentences.iter().chain(&comparison.notes) {
        writeln!(out, "{}", printable(&line.replace('±', "+-")))?;
    }
    Ok(())
}

/// The table and the verdict for programs.
pub(crate) fn summary(comparison: &Comparison) -> Value {
    let (verdict, others) = comparison.verdict();
    let setting = |name: &str| comparison.runs.first().and_then(|run| run.setting(name));
    json!({
        "dataset": comparison.dataset,
        "which": comparison.epoch_text(),
        "model": setting("model.name"),
        "epochs": setting("epochs").and_then(|epochs| epochs.parse::<u64>().ok()),
        "columns": comparison.columns,
        "rows": (0..comparison.variants.len()).map(|number| row(comparison, number)).collect::<Vec<_>>(),
        "verdict": verdict,
        "other_verdicts": others,
        "notes": comparison.notes,
    })
}

/// A row of the table for programs.
fn row(comparison: &Comparison, number: usize) -> Value {
    let variant = &comparison.variants[number];
    let difference = |column: usize| {
        let difference = comparison.difference(number, column)?;
        let distinguishable = difference.distinguishable();
        let (mean, half_width, pairs) = (difference.mean, difference.half_width, difference.pairs);
        Some(json!({"mean": mean, "half_width": half_width, "pairs": pairs, "distinguishable": distinguishable}))
    };
    json!({
        "criterion": variant.criterion,
        "label": variant.label,
        "seeds": variant.runs.iter().map(|run| comparison.runs[*run].seed()).collect::<Vec<_>>(),
        "mean": variant.cells.iter().map(|cell| cell.spread.map(|spread| spread.mean)).collect::<Vec<_>>(),
        "sd": variant.cells.iter().map(|cell| cell.spread.and_then(|spread| spread.sd)).collect::<Vec<_>>(),
        "bold": variant.cells.iter().map(|cell| cell.bold).collect::<Vec<_>>(),
        "difference": (0..variant.cells.len()).map(difference).collect::<Vec<_>>(),
        "best_on_test": variant.optimistic.as_ref().map(|cells| {
            cells.iter().map(|cell| cell.spread.map(|spread| spread.mean)).collect::<Vec<_>>()
        }),
    })
}
