//! `equipoise compare`: the same network, once per criterion and seed.

use std::io::Write;
use std::path::{Path, PathBuf};

use equipoise_criterion::{ConfigError, Id};
use equipoise_record::names::{BASELINES, COMPARISON, COMPARISON_RESULT, CRITERIA, is_comparison};
use equipoise_record::{RunFolder, RunResult};
use equipoise_support::Examples;
use equipoise_train::run::baselines::baselines;
use equipoise_train::run::build::trainer;
use equipoise_train::run::comparison_name;
use equipoise_train::run::cross_validation::fold_settings;
use equipoise_train::settings::{Architecture, Settings};
use serde_json::Value;

use crate::clock::duration;
use crate::cluster;
use crate::cross_validation::{Plan, cross_validate};
use crate::failure::Failure;
use crate::live_report::LiveFolder;
use crate::options::{Environment, SettingArgs};
use crate::output::{counted, note, open_in_browser, percent, quoted, warn};
use crate::reports::{WrittenReport, print_plain, summary, write_report};
use crate::training::{DisplayOptions, RunDisplay, execute_or_read};

#[derive(clap::Args)]
#[command(after_long_help = "\
Without a dataset: `softmax`, `balanced-softmax` and `cwap` on the built-in dataset, with resnet8, 30 epochs and a batch size of 32.

± in the table (+- in text) is the standard deviation over seeds. A number with * is distinguishable from every other number of its column: a 95 % \
interval for other seeds and other test images, which takes three seeds or more.

On features the table also has the nearest class mean and the nearest neighbors, which need no training.

A comparison that was stopped continues with the same command and --output.

Examples:
  equipoise compare
  equipoise compare cifar10 --imbalance 100 --epochs 40 --seeds 3
  equipoise compare features.safetensors --criteria all --seeds 5
  equipoise compare path/to/images --criteria softmax,balanced-softmax,cwap --val-fraction 0.1 -o runs/images
  equipoise compare features.safetensors --folds 5 --repeats 3")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// Criteria, separated by commas, or `all`; the first is the one that the others are compared with [default: softmax,balanced-softmax,cwap]
    #[arg(long, alias = "criterion", value_name = "ID,..", value_delimiter = ',', value_parser = named)]
    criteria: Option<Vec<Named>>,
    /// Number of runs per criterion, with consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Compare by cross-validation: every image is tested once, by a network that was not trained on it. For datasets that are too small for a
    /// test split
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..=1000), conflicts_with_all = ["seeds", "test_data", "test_fraction"])]
    folds: Option<u32>,
    /// Repeat the cross-validation with other folds and seeds
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "folds", default_value_t = 1)]
    repeats: u32,
    /// Folder of the runs; runs in it that were stopped are resumed [default: a new one in runs/]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Open the report in a browser when all runs have ended
    #[arg(long)]
    open: bool,
    /// Do not show progress
    #[arg(long)]
    quiet: bool,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

/// A word of `--criteria`.
#[derive(Clone, Copy)]
enum Named {
    All,
    One(Id),
}

fn named(word: &str) -> Result<Named, ConfigError> {
    if word == "all" { Ok(Named::All) } else { word.parse().map(Named::One) }
}

impl Args {
    /// The criteria that the user names.
    fn named_criteria(&self) -> Option<Vec<Id>> {
        let ids = |named: &Named| match named {
            Named::All => Id::ALL.to_vec(),
            Named::One(id) => vec![*id],
        };
        self.criteria.as_ref().map(|named| named.iter().flat_map(ids).collect())
    }
}

/// The criteria of a comparison that names none.
const CRITERIA_BY_DEFAULT: [Id; 3] = [Id::Softmax, Id::BalancedSoftmax, Id::Cwap];

/// The defaults of a comparison. On the built-in dataset they take about half a minute on two cores.
fn base(built_in: bool) -> Settings {
    let mut settings = Settings::default();
    if built_in {
        settings.model.name = Some(Architecture::ResNet8);
        settings.epochs = 30;
        settings.batch_size = 32;
        settings.evaluate_every = 5;
    }
    settings
}

/// The runs of a comparison.
struct Finished {
    folders: Vec<PathBuf>,
    /// Names of the runs that have diverged.
    diverged: Vec<String>,
    seconds: f64,
}

/// The beginning of a sentence about this many runs.
fn have(runs: usize) -> String {
    format!("{} {}", counted(runs, "run"), if runs == 1 { "has" } else { "have" })
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let mut all = settings(args)?;
    args.settings.note_data(&all[0])?;
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    // shows that data and network fit before a folder is created
    let checked = args.folds.map_or_else(|| all[0].clone(), |folds| fold_settings(&all[0], folds, 1).swap_remove(0).1);
    let first = trainer(checked, None, &environment.context())?;
    // a single split says nothing about classifiers without training beside a cross-validation
    let baselines = if args.folds.is_some() { Vec::new() } else { baselines(first.data(), &environment.pool)? };
    let chosen = first.settings().clone();
    if !args.quiet {
        let examples = Examples::of_features(first.data().train.loader.is_of_features());
        cluster::introduce(first.threads(), examples);
    }
    drop(first);
    all.iter_mut().for_each(|settings| settings.choose_as(&chosen));
    all.iter().try_for_each(Settings::check)?;
    let folder = open_folder(args.output.as_deref(), &all[0])?;
    if let Some(criteria) = args.named_criteria() {
        folder.write(CRITERIA, serde_json::to_string(&criteria)?.as_bytes())?;
    }
    if !baselines.is_empty() {
        folder.write(BASELINES, serde_json::to_string(&baselines)?.as_bytes())?;
    }
    let finished = match args.folds {
        Some(folds) => cross_validate_all(args, folds, &all, &folder, &environment)?,
        None => execute_all(args, &all, &folder, &environment)?,
    };
    if finished.folders.is_empty() {
        return Err(Failure::Failed(anyhow::anyhow!("all runs have diverged, so there is nothing to compare")));
    }
    let WrittenReport { page, comparisons } = write_report(&finished.folders, &folder)?;
    let path = folder.path().display().to_string();
    let mut table = comparisons.first().map(summary).unwrap_or_default();
    match args.folds {
        Some(folds) => (table["folds"], table["repeats"]) = (folds.into(), args.repeats.into()),
        None => table["seeds"] = args.seeds.into(),
    }
    table["seconds"] = finished.seconds.into();
    table["folder"] = path.clone().into();
    write_table(&table, &folder)?;
    if args.open {
        open_in_browser(&page)?;
    }
    if args.json {
        writeln!(out, "{table}")?;
    } else {
        for comparison in &comparisons {
            print_plain(comparison, out)?;
        }
        let time = duration(finished.seconds);
        writeln!(out, "\n{time} in total; the runs are in {path}, their report is {}", quoted(&page))?;
    }
    match finished.diverged.as_slice() {
        [] => Ok(()),
        runs => {
            let what = format!("{} diverged, so the table lacks: {}", have(runs.len()), runs.join("; "));
            Err(Failure::Failed(anyhow::anyhow!(what)))
        }
    }
}

/// The settings of the first seed, by criterion.
fn settings(args: &Args) -> Result<Vec<Settings>, Failure> {
    let criteria = args.named_criteria().unwrap_or_else(|| CRITERIA_BY_DEFAULT.to_vec());
    let repeated = |(number, id): &(usize, &Id)| criteria[..*number].contains(id);
    if let Some((_, id)) = criteria.iter().enumerate().find(repeated) {
        return Err(Failure::usage(format!("--criteria: {id} is named twice")));
    }
    let base = base(args.settings.data.is_none() && args.settings.weights.is_none());
    let of = |id: &Id| args.settings.settings(base.clone(), Some(*id));
    let all: Vec<Settings> = criteria.iter().map(of).collect::<Result<_, _>>()?;
    let seed = all[0].seed;
    if seed.checked_add(args.seeds).is_none_or(|last| i64::try_from(last).is_err()) {
        return Err(Failure::usage(format!("--seed {seed}: too large for {} seeds", args.seeds)));
    }
    Ok(all)
}

/// The folder of the comparison: a new one, or one whose runs are resumed.
fn open_folder(output: Option<&Path>, settings: &Settings) -> Result<RunFolder, Failure> {
    let folder = match output {
        Some(path) if is_comparison(path) => return Ok(RunFolder::open_comparison(path)?),
        Some(path) => RunFolder::create(path),
        None => RunFolder::create_unique("runs".as_ref(), &comparison_name(settings)),
    }?;
    folder.write(COMPARISON, settings.to_toml()?.as_bytes())?;
    Ok(folder)
}

/// Executes all runs, criterion by criterion.
fn execute_all(
    args: &Args,
    all: &[Settings],
    folder: &RunFolder,
    environment: &Environment,
) -> Result<Finished, Failure> {
    let total = all.len() * args.seeds as usize;
    let resume = format!("the same command with --output {}", quoted(folder.path()));
    let mut finished = Finished { folders: Vec::new(), diverged: Vec::new(), seconds: 0.0 };
    for settings in all {
        for seed in settings.seed..settings.seed + args.seeds {
            let settings = Settings { seed, ..settings.clone() };
            let id = settings.criterion.method.id();
            let path = folder.path().join(format!("{id}-s{seed}"));
            let title = format!("[{}/{total}] {id}, seed {seed}", finished.folders.len() + finished.diverged.len() + 1);
            let mut display = RunDisplay::new(&title, settings.epochs, DisplayOptions::one_of_several(args.quiet));
            let live = LiveFolder::OfComparison(folder);
            let result = execute_or_read(&settings, &path, &environment.context(), &mut display, live, &resume);
            let result = match result {
                Err(failure) if failure.is_divergence() => {
                    warn(&failure.about(&title).to_string());
                    finished.diverged.push(format!("{id}, seed {seed}"));
                    continue;
                }
                result => result.map_err(|failure| failure.about(&title))?,
            };
            if result.divergence().is_some() {
                finished.diverged.push(format!("{id}, seed {seed}"));
                continue;
            }
            if !args.quiet {
                note(&format!("{title}: {} in {}", reported(&result), duration(result.seconds)));
            }
            finished.seconds += result.seconds;
            finished.folders.push(path);
        }
    }
    Ok(finished)
}

/// Executes a cross-validation per criterion, each in a folder of its own.
fn cross_validate_all(
    args: &Args,
    folds: u32,
    all: &[Settings],
    folder: &RunFolder,
    environment: &Environment,
) -> Result<Finished, Failure> {
    let mut finished = Finished { folders: Vec::new(), diverged: Vec::new(), seconds: 0.0 };
    for settings in all {
        let title = settings.criterion.method.id().to_string();
        let path = folder.path().join(&title);
        let (output, repeats, quiet) = (Some(path.as_path()), args.repeats, args.quiet);
        let plan = Plan { folds, repeats, output, quiet, name: "", title: &title };
        let validated = cross_validate(settings, plan, environment)?;
        finished.seconds += validated.results.iter().map(|run| run.seconds).sum::<f64>();
        finished.folders.extend(validated.write_pooled(settings, &validated.out_of_fold.figures(), plan)?);
    }
    Ok(finished)
}

/// The accuracy that the table reports, and the epoch that it is of.
fn reported(result: &RunResult) -> String {
    let Some(epoch) = result.reported() else { return "no epoch was evaluated".to_owned() };
    let which = match result.best {
        Some(_) if !result.selected_on_test() => "best on the validation split",
        _ => "the last",
    };
    format!("overall {} in epoch {}, {which},", percent(epoch.metrics.top1), epoch.epoch)
}

fn write_table(table: &Value, folder: &RunFolder) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(table)? + "\n";
    Ok(folder.write(COMPARISON_RESULT, text.as_bytes())?)
}
