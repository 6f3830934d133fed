//! `equipoise reproduce`: published tables next to ours.
//!
//! The runs of the tables that are missing are executed, those that were interrupted are resumed, finished ones are read.

mod execute;
mod plan;
mod table;
mod torch;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use equipoise_record::RunResult;
use equipoise_train::recipe::Recipe;
use equipoise_train::recipe::plan::{PlannedRun, Selection};
use equipoise_train::run::ExistingRun;

use crate::failure::Failure;
use crate::options::{RootArgs, ThreadArgs};
use crate::training::read_result;

#[derive(clap::Args)]
#[command(after_long_help = "\
Tables: table1 (8 methods on CIFAR-10-LT, CIFAR-100-LT and Tiny-ImageNet-LT at four imbalance factors, ResNet-32), table2 (ImageNet-LT and \
iNaturalist 2017 by group, ResNet-50), table3 (the ablation), and five that are not published: readings (of the method, over the paper's \
schedule), live (what in the live margin works), within (whether a balance within classes helps on top of it), choices (for the recommended \
recipe, on held-out images), ingredients (what each part of it is worth). Methods without a published number are run if --criteria names them.

Several tables are worked through in the order they are named: put what matters most first. A run that two tables share is made once. Each \
table takes those of --schedule, --only and --criteria that it has. Several of these commands can work on the same folder at the same time.

Finished runs are kept and interrupted ones are resumed: repeat the command to continue. The numbers are those of the last epoch; with the \
paper's schedule, the best epoch on the test split is shown too, as in the paper.

Examples:
  equipoise reproduce table1 --dry-run
  equipoise reproduce table1 --only cifar10/100 --schedule short --seeds 3
  equipoise reproduce table1 --only cifar10/100 --criteria softmax,seesaw,cwap
  equipoise reproduce table3 --only cifar10/100 --schedule short
  equipoise reproduce table2 --engine torch --nproc-per-node 8 > table2.sh
  equipoise reproduce readings choices within --schedule paper-bf16,long-bf16 --threads 1 --dry-run")]
pub(crate) struct Args {
    /// Names of tables, most important first, or recipes of your own: TOML files like those in recipes/
    #[arg(value_name = "TABLE", required = true)]
    tables: Vec<String>,
    /// Only these cells, separated by commas: a dataset, or a dataset with its imbalance factor
    #[arg(long, value_name = "CELL,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these methods, separated by commas [default: those with a published number, or all of a table that has none]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    criteria: Vec<String>,
    /// Number of runs per method, with seeds from 0 on [default: the recipe's, usually 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Length of the runs: paper, or short, which has the same shape and fits a CPU (choices and ingredients: long or short); paper-bf16
    /// and long-bf16 are those in bf16, where the table has them. Of several, separated by commas, each table takes the first that it
    /// has [default: paper or long]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    schedule: Vec<String>,
    /// Show what would be run and how long it would take
    #[arg(long)]
    dry_run: bool,
    /// Show the table of the finished runs and run nothing
    #[arg(long, conflicts_with = "dry_run")]
    show: bool,
    /// Number of simultaneous runs, which share the threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Folder of the runs
    #[arg(short, long, value_name = "DIR", default_value = "runs/reproduce")]
    output: PathBuf,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    root: RootArgs,
    /// What trains: cpu runs here; torch prints the commands that train the missing runs with PyTorch, in the same folders, so that
    /// --show makes the table of them
    #[arg(long, value_enum, default_value = "cpu", conflicts_with_all = ["dry_run", "show", "json", "markdown"])]
    engine: TableEngine,
    /// Processes per machine in the commands for torch: the number of its GPUs
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    nproc_per_node: u16,
    /// Do not show progress
    #[arg(long)]
    quiet: bool,
    /// Print the table as Markdown
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    markdown: bool,
    /// Print the plan or the table as JSON
    #[arg(long)]
    json: bool,
}

/// What trains the runs of a table.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TableEngine {
    /// The engine of this program.
    Cpu,
    /// PyTorch, by commands that are printed.
    Torch,
}

/// A run of the table, and its result if it has finished.
struct Job<'r> {
    run: PlannedRun<'r>,
    result: Option<RunResult>,
}

impl Args {
    fn schedule<'a>(&'a self, recipe: &'a Recipe) -> &'a str {
        recipe.choose_schedule(&self.schedule)
    }
}

/// A recipe and its selected runs.
struct Table<'r> {
    /// What the user calls it.
    name: &'r str,
    recipe: &'r Recipe,
    schedule: &'r str,
    jobs: Vec<Job<'r>>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let recipes = args.tables.iter().map(|table| Recipe::load(table)).collect::<Result<Vec<_>, _>>()?;
    let mut tables = Vec::new();
    for (name, recipe) in args.tables.iter().zip(&recipes) {
        let jobs = jobs(args, recipe, &recipes)?;
        if recipes.len() == 1 || !jobs.is_empty() {
            tables.push(Table { name, recipe, schedule: args.schedule(recipe), jobs });
        }
    }
    if tables.is_empty() {
        return Err(Failure::usage("none of the tables has both a cell of --only and a method of --criteria"));
    }
    check_shared(&tables)?;
    if args.engine == TableEngine::Torch {
        return torch::print_commands(args, &tables, out);
    }
    if !args.show {
        if args.dry_run {
            let speeds = plan::Speeds::measure(args, &tables)?;
            return plan::print(args, &tables, &speeds, out);
        }
        if !args.quiet {
            let speeds = plan::Speeds::measure(args, &tables)?;
            plan::print_tables(args, &tables, &speeds, &mut std::io::stderr())?;
        }
        plan::check_datasets(args, &tables)?;
        let jobs = tables.iter_mut().flat_map(|table| &mut table.jobs);
        let (mut jobs, repeated) = split_shared(jobs);
        let (total, failed) = (jobs.len(), execute::execute(args, &mut jobs)?);
        for job in repeated {
            job.result =
                jobs.iter().find(|first| first.run.folder == job.run.folder).and_then(|first| first.result.clone());
        }
        if failed > 0 {
            table::print(args, &tables, out)?;
            return Err(anyhow!("{failed} of {total} runs failed; the warnings above say why").into());
        }
    }
    table::print(args, &tables, out)
}

/// One job for every folder, and the others, which are those of tables that share runs.
fn split_shared<'j, 'r>(jobs: impl Iterator<Item = &'j mut Job<'r>>) -> (Vec<&'j mut Job<'r>>, Vec<&'j mut Job<'r>>) {
    let mut folders = BTreeSet::new();
    jobs.partition(|job| folders.insert(job.run.folder.clone()))
}

/// Refuses tables whose runs would be in the same folder and are not the same.
fn check_shared(tables: &[Table<'_>]) -> Result<(), Failure> {
    let mut folders = BTreeMap::new();
    for (table, job) in tables.iter().flat_map(|table| table.jobs.iter().map(move |job| (table, job))) {
        let PlannedRun { folder, settings, cell, method, .. } = &job.run;
        let (first, other) = *folders.entry(folder).or_insert((table.name, settings));
        if let Some(field) = settings.difference_as_runs(other) {
            return Err(Failure::usage(format!(
                "{first} and {}: their runs of '{}' in {} would share a folder, with different '{field}'; rename one of the methods",
                table.name, method.name, cell.name
            )));
        }
    }
    Ok(())
}

/// The names that a table has, of those in an option. A name that no table has stays, so that it is refused.
fn names_of(names: &[String], has: impl Fn(&str) -> bool, anyone_has: impl Fn(&str) -> bool) -> Vec<&str> {
    let names = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
    names.filter(|name| has(name) || !anyone_has(name)).collect()
}

/// The selected runs of a table. Of the cells and methods that were asked for, every table has its own.
fn jobs<'r>(args: &'r Args, recipe: &'r Recipe, all: &[Recipe]) -> Result<Vec<Job<'r>>, Failure> {
    let cells =
        names_of(&args.only, |name| recipe.has_cell(name), |name| all.iter().any(|recipe| recipe.has_cell(name)));
    let methods = names_of(
        &args.criteria,
        |name| recipe.has_method(name),
        |name| all.iter().any(|recipe| recipe.has_method(name)),
    );
    let none_of = |asked: &[String], own: &[&str]| own.is_empty() && asked.iter().any(|name| !name.trim().is_empty());
    if none_of(&args.only, &cells) || none_of(&args.criteria, &methods) {
        return Ok(Vec::new());
    }
    let selection = Selection { schedule: args.schedule(recipe), cells, methods, seeds: args.seeds };
    let job = |run: PlannedRun<'r>| {
        let is_finished = run.existing == ExistingRun::Finished;
        let result = is_finished.then(|| read_result(&run.folder, &run.settings)).transpose()?;
        Ok(Job { run, result })
    };
    recipe.plan(&selection, &args.output)?.into_iter().map(job).collect()
}
