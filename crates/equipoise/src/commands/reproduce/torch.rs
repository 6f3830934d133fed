//! The commands that train the runs of a table with PyTorch.

use std::io::Write;
use std::path::Path;

use equipoise_train::run::ExistingRun;

use super::{Args, Job, Table};
use crate::failure::Failure;
use crate::output::{quoted, write_file};

/// Writes the settings of every missing run beside its folder, and prints the command that trains it. The commands are a script: run
/// again, it continues what was interrupted.
pub(super) fn print_commands(args: &Args, tables: &[Table<'_>], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "#!/bin/sh -e")?;
    for table in tables {
        writeln!(out, "# {}", table.recipe.title.replace('\n', " "))?;
        for job in table.jobs.iter().filter(|job| job.run.existing != ExistingRun::Finished) {
            writeln!(out, "{}", command(args, job)?)?;
        }
    }
    let names: Vec<&str> = args.tables.iter().map(String::as_str).collect();
    writeln!(out, "equipoise reproduce {} --show -o {}", names.join(" "), quoted(&args.output))?;
    Ok(())
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
