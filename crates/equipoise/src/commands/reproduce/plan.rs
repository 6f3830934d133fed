//! What is left to run, and how long it takes on this machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_nn::{Engine, Network, NnError, Precision};
use equipoise_train::run::build;
use equipoise_train::settings::Architecture;
use serde_json::{Value, json};

use super::{Args, Job, Table};
use crate::clock::{duration, timed};
use crate::failure::Failure;

/// Multiply-adds of a forward pass per second in training, for every precision of the runs that are left.
pub(super) struct Speeds(Vec<(Precision, f64)>);

impl Speeds {
    /// A short measurement.
    pub(super) fn measure(args: &Args, tables: &[Table<'_>]) -> Result<Self, Failure> {
        let mut speeds: Vec<(Precision, f64)> = Vec::new();
        for job in tables.iter().flat_map(|table| &table.jobs).filter(|job| job.result.is_none()) {
            let precision = job.run.settings.precision;
            if speeds.iter().all(|(known, _)| *known != precision) {
                speeds.push((precision, training_speed(args, precision)?));
            }
        }
        Ok(Self(speeds))
    }

    /// Estimated seconds of the rest of a run.
    fn seconds(&self, job: &Job<'_>) -> Result<f64, Failure> {
        let speed = self.0.iter().find(|(precision, _)| *precision == job.run.settings.precision);
        Ok(speed.map_or(Ok(0.0), |(_, speed)| job.run.remaining_work().map(|work| work / speed))?)
    }
}

fn training_speed(args: &Args, precision: Precision) -> Result<f64, Failure> {
    const BATCH_SIZE: usize = 128;
    let network = Network::new(Architecture::ResNet32, 3, [32, 32], 10)?;
    let work = BATCH_SIZE as f64 * network.multiply_adds() as f64;
    let mut engine = build::engine(network, BATCH_SIZE, 0, precision, &args.threads.pool()?)?;
    let (images, gradient) = (vec![0.5; BATCH_SIZE * 3 * 32 * 32], vec![1e-3; BATCH_SIZE * 10]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let (step, time) = timed(|| -> Result<(), NnError> {
            engine.forward(&images, true)?;
            engine.backward(&gradient)
        });
        step?;
        best = best.min(time.as_secs_f64());
    }
    Ok(work / best)
}

/// Prints the plan, as tables or as JSON.
pub(super) fn print(args: &Args, tables: &[Table<'_>], speeds: &Speeds, out: &mut impl Write) -> Result<(), Failure> {
    if !args.json {
        return print_tables(args, tables, speeds, out);
    }
    let line = |(table, job): (&Table<'_>, &Job<'_>)| -> Result<Value, Failure> {
        let run = &job.run;
        Ok(json!({
            "table": table.name, "cell": run.cell.name, "method": run.method.name, "seed": run.settings.seed,
            "epochs": run.settings.epochs, "done": run.epochs_done(),
            "seconds": speeds.seconds(job)?.round(), "folder": run.folder.display().to_string(),
        }))
    };
    let jobs = tables.iter().flat_map(|table| table.jobs.iter().map(move |job| (table, job)));
    let plan = jobs.map(line).collect::<Result<Vec<_>, _>>()?;
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?)
}

/// Prints what is left of every table, a row per cell, and in total.
pub(super) fn print_tables(
    args: &Args,
    tables: &[Table<'_>],
    speeds: &Speeds,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut total = 0.0;
    let mut folders = BTreeSet::new();
    for table in tables {
        writeln!(out, "{}, {} schedule\n", table.recipe.title, table.schedule)?;
        writeln!(
            out,
            "{:<20} {:>5} {:>5} {:>8} {:>7} {:>14}",
            "cell", "runs", "done", "started", "epochs", "time left"
        )?;
        for cell in &table.recipe.cells {
            let jobs: Vec<&Job<'_>> = table.jobs.iter().filter(|job| job.run.cell.name == cell.name).collect();
            let Some(first) = jobs.first() else { continue };
            let done = jobs.iter().filter(|job| job.result.is_some()).count();
            let is_started = |job: &&&Job<'_>| job.run.epochs_done() > 0 && job.result.is_none();
            let started = jobs.iter().filter(is_started).count();
            let mut left = 0.0;
            for job in &jobs {
                let seconds = speeds.seconds(job)?;
                left += seconds;
                total += if folders.insert(&job.run.folder) { seconds } else { 0.0 };
            }
            let missing = if has_dataset(args, first) { "" } else { "  no dataset" };
            let (runs, epochs, left) = (jobs.len(), first.run.settings.epochs, duration(left));
            writeln!(out, "{:<20} {runs:>5} {done:>5} {started:>8} {epochs:>7} {left:>14}{missing}", cell.name)?;
        }
        writeln!(out)?;
    }
    let shared = tables.iter().map(|table| table.jobs.len()).sum::<usize>() - folders.len();
    let shared = match shared {
        0 => String::new(),
        1 => ", with 1 run that two tables share".to_owned(),
        _ => format!(", with {shared} runs that tables share"),
    };
    Ok(writeln!(out, "{} in total on this machine, by a short measurement{shared}", duration(total))?)
}

/// Whether the dataset of a run is available.
fn has_dataset(args: &Args, job: &Job<'_>) -> bool {
    let dataset = &job.run.settings.data.dataset;
    match KnownDataset::by_name(dataset) {
        Some(known) => known.is_embedded() || args.root.path().join(known.name).is_dir(),
        None => Path::new(dataset).exists(),
    }
}

/// Refuses to start without the datasets of all runs.
pub(super) fn check_datasets(args: &Args, tables: &[Table<'_>]) -> Result<(), Failure> {
    let mut jobs = tables.iter().flat_map(|table| &table.jobs);
    let missing = jobs.find(|job| job.result.is_none() && !has_dataset(args, job));
    let Some(job) = missing else { return Ok(()) };
    let dataset = &job.run.settings.data.dataset;
    Err(Failure::usage(match KnownDataset::by_name(dataset) {
        Some(_) => {
            format!(
                "{dataset} is missing: get it with `equipoise data fetch {dataset}`, or select other cells with --only"
            )
        }
        None => format!("{dataset}: neither a known dataset (`equipoise data list`) nor a path"),
    }))
}
