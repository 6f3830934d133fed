//! What is left to run, and how long it takes on this machine.

use std::io::Write;
use std::path::Path;

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_nn::{Cpu, Engine, Network, NnError};
use equipoise_train::recipe::Recipe;
use equipoise_train::settings::Architecture;
use serde_json::{Value, json};

use super::{Args, Job};
use crate::clock::{duration, timed};
use crate::failure::Failure;

/// Estimated seconds of the rest of every run.
pub(super) fn estimate(args: &Args, jobs: &[Job<'_>]) -> Result<Vec<f64>, Failure> {
    let speed = training_speed(args)?;
    jobs.iter().map(|job| Ok(job.run.remaining_work()? / speed)).collect()
}

/// Multiply-adds of a forward pass per second in training, by a short measurement.
fn training_speed(args: &Args) -> Result<f64, Failure> {
    const BATCH_SIZE: usize = 128;
    let network = Network::new(Architecture::ResNet32, 3, [32, 32], 10)?;
    let work = BATCH_SIZE as f64 * network.multiply_adds() as f64;
    let mut engine = Cpu::new(network, BATCH_SIZE, 0, args.threads.pool()?)?;
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

/// Prints the plan, as a table or as JSON.
pub(super) fn print(
    args: &Args,
    recipe: &Recipe,
    jobs: &[Job<'_>],
    seconds: &[f64],
    out: &mut impl Write,
) -> Result<(), Failure> {
    if !args.json {
        return print_table(args, recipe, jobs, seconds, out);
    }
    let line = |(job, seconds): (&Job<'_>, &f64)| {
        let run = &job.run;
        json!({
            "cell": run.cell.name, "method": run.method.name, "seed": run.settings.seed,
            "epochs": run.settings.epochs, "done": run.epochs_done(),
            "seconds": seconds.round(), "folder": run.folder.display().to_string(),
        })
    };
    let plan: Vec<Value> = jobs.iter().zip(seconds).map(line).collect();
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?)
}

/// Prints the plan as a table, a row per cell.
pub(super) fn print_table(
    args: &Args,
    recipe: &Recipe,
    jobs: &[Job<'_>],
    seconds: &[f64],
    out: &mut impl Write,
) -> Result<(), Failure> {
    writeln!(out, "{}, {} schedule\n", recipe.title, args.schedule(recipe))?;
    writeln!(out, "{:<20} {:>5} {:>5} {:>8} {:>7} {:>14}", "cell", "runs", "done", "started", "epochs", "time left")?;
    for cell in &recipe.cells {
        let of_cell = jobs.iter().zip(seconds).filter(|(job, _)| job.run.cell.name == cell.name);
        let of_cell: Vec<(&Job<'_>, &f64)> = of_cell.collect();
        let Some((first, _)) = of_cell.first() else { continue };
        let done = of_cell.iter().filter(|(job, _)| job.result.is_some()).count();
        let is_started = |job: &Job<'_>| job.run.epochs_done() > 0 && job.result.is_none();
        let started = of_cell.iter().filter(|(job, _)| is_started(job)).count();
        let left = duration(of_cell.iter().map(|(_, seconds)| **seconds).sum());
        let missing = if has_dataset(args, first) { "" } else { "  no dataset" };
        let (runs, epochs) = (of_cell.len(), first.run.settings.epochs);
        writeln!(out, "{:<20} {runs:>5} {done:>5} {started:>8} {epochs:>7} {left:>14}{missing}", cell.name)?;
    }
    let total = duration(seconds.iter().sum());
    Ok(writeln!(out, "\n{total} in total on this machine, by a short measurement")?)
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
pub(super) fn check_datasets(args: &Args, jobs: &[Job<'_>]) -> Result<(), Failure> {
    let missing = jobs.iter().find(|job| job.result.is_none() && !has_dataset(args, job));
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
