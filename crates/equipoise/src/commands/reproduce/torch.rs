//! The commands that train the runs of a table with PyTorch.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use equipoise_nn::Precision;
use equipoise_train::run::ExistingRun;

use super::{Args, Job, Table};
use crate::failure::Failure;
use crate::output::{quoted, write_file};

/// Writes the settings of every missing run beside its folder, and prints the command that trains it. The commands are a script: run
/// again, it continues what was interrupted.
pub(super) fn print_commands(args: &Args, tables: &[Table<'_>], out: &mut impl Write) -> Result<(), Failure> {
    let mut jobs = tables.iter().flat_map(|table| table.jobs.iter().map(move |job| (table.schedule, job)));
    if let Some((schedule, job)) = jobs.find(|(_, job)| job.run.settings.precision != Precision::F32) {
        let precision = job.run.settings.precision;
        let what = format!(
            "--schedule {schedule} sets the precision {precision} of this program's engine, and torch has its own (--amp)"
        );
        return Err(Failure::usage(format!("{what}; choose a schedule without one")));
    }
    writeln!(out, "#!/bin/sh -e")?;
    let mut folders = BTreeSet::new();
    for table in tables {
        writeln!(out, "# {}", table.recipe.title.replace('\n', " "))?;
        let is_left = |job: &&Job<'_>| job.run.existing != ExistingRun::Finished;
        for job in table.jobs.iter().filter(is_left) {
            if !folders.insert(&job.run.folder) {
                continue;
            }
            writeln!(out, "{}", command(args, job)?)?;
        }
    }
    writeln!(out, "{}", show(args))?;
    Ok(())
}

/// The command that shows the tables of these runs.
fn show(args: &Args) -> String {
    let names: Vec<String> = args.tables.iter().map(|table| quoted(Path::new(table))).collect();
    let lists = [("--schedule", &args.schedule), ("--only", &args.only), ("--criteria", &args.criteria)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let options: String =
        lists.map(|(option, list)| format!(" {option} {}", quoted(Path::new(&list.join(","))))).collect();
    let seeds = args.seeds.map_or_else(String::new, |seeds| format!(" --seeds {seeds}"));
    format!("equipoise reproduce {}{options}{seeds} --show -o {}", names.join(" "), quoted(&args.output))
}

/// The command of a run.
fn command(args: &Args, job: &Job<'_>) -> Result<String, Failure> {
    let folder = &job.run.folder;
    let config = folder.with_extension("toml");
    std::fs::create_dir_all(config.parent().unwrap_or(Path::new(".")))?;
    write_file(&config, job.run.settings.to_toml()?.as_bytes())?;
    Ok(format!(
        "torchrun --standalone --nproc-per-node {} --max-restarts 3 -m equipoise.torch.train --config {} --amp bf16 -o {}",
        args.nproc_per_node,
        quoted(&config),
        quoted(folder)
    ))
}
