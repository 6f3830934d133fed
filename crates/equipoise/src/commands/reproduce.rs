//! `equipoise reproduce`: a published table next to ours.
//!
//! A recipe is a table of the literature: its cells (data), its methods (rows), the published figures, and the settings of the
//! runs behind each. What is missing of it is run; what was broken off is taken up; what is done is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use equipoise_criterion::{DrwConfig, Pool};
use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_nn::Network;
use equipoise_record::Outcome;
use equipoise_report::statistics::{Spread, tenths};
use equipoise_report::table::{Entry, Table};
use equipoise_train::settings::Settings;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bench::speed;
use super::data::{RootArgs, warn};
use crate::Failure;
use crate::progress::time;
use crate::runs::{Found, Show, pool, quoted, read_text, taken_up, train_failure};

/// The tables, by name.
const RECIPES: [(&str, &str); 4] = [
    ("table1", include_str!("../../../../recipes/table1.toml")),
    ("table2", include_str!("../../../../recipes/table2.toml")),
    ("table3", include_str!("../../../../recipes/table3.toml")),
    ("ingredients", include_str!("../../../../recipes/ingredients.toml")),
];

/// What columns there can be: all classes, and groups by their usual names; more than four groups have numbers.
const COLUMNS: [&str; 7] = ["overall", "Many", "Medium", "Few", "Rare", "All", "Group N"];

/// How much faster an image is evaluated than trained on.
const EVALUATION: f64 = 3.3;

#[derive(clap::Args)]
#[command(after_long_help = "\
Tables: table1 (8 methods on CIFAR-10-LT, CIFAR-100-LT and Tiny-ImageNet-LT at four imbalance factors, ResNet-32), table2
(ImageNet-LT and iNaturalist 2017 by group, ResNet-50), table3 (the ablation), ingredients (what each part of our recommended
recipe is worth; not a published one). Methods without a published figure are run where
--criteria names them.

Runs that are done are left alone, those that were broken off are taken up, whatever stopped them: the same command goes on. The
figures are of the last epoch; with the paper's schedule the best epoch on the test set stands beside it, as the paper has it.

Examples:
  equipoise reproduce table1 --dry-run
  equipoise reproduce table1 --only cifar10/100 --schedule short --seeds 3
  equipoise reproduce table1 --only cifar10/100 --criteria softmax,seesaw,cwap
  equipoise reproduce table3 --only cifar10/100 --schedule short")]
pub(crate) struct Args {
    /// The table, or a recipe of your own: a TOML file like those in recipes/
    #[arg(value_name = "TABLE")]
    table: String,
    /// Only these cells, with commas between: a data set, or one with its imbalance factor
    #[arg(long, value_name = "CELLS", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these methods, with commas between [default: those with a published figure]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    criteria: Vec<String>,
    /// Runs per method, with seeds from 0 on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// How long runs are: paper, or short, which has the same shape and fits a CPU (ingredients: long or short) [default: the
    /// longer]
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// Show what would be run, and how long that takes here
    #[arg(long)]
    dry_run: bool,
    /// Show the table of what is there, and run nothing
    #[arg(long, conflicts_with = "dry_run")]
    show: bool,
    /// Runs at the same time; threads are shared among them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Folder of the runs
    #[arg(long, value_name = "DIR", default_value = "runs/reproduce")]
    out: PathBuf,
    /// Threads; all cores if left out. Results do not depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    root: RootArgs,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Print the table as Markdown
    #[arg(long, conflicts_with_all = ["json", "dry_run"])]
    markdown: bool,
    /// Print the plan or the table as JSON
    #[arg(long)]
    json: bool,
}

/// A table of the literature.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    title: String,
    /// What a published figure is made of: groups and `overall`.
    columns: Vec<String>,
    #[serde(default)]
    settings: toml::Table,
    schedules: BTreeMap<String, toml::Table>,
    #[serde(rename = "method")]
    methods: Vec<Method>,
    #[serde(rename = "cell")]
    cells: Vec<Cell>,
}

/// A row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Method {
    name: String,
    label: String,
    /// Share of the epochs after which deferred re-weighting begins.
    drw: Option<f64>,
    settings: toml::Table,
}

/// Some data.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    name: String,
    /// Training and test images, known before the data is there.
    images: [u64; 2],
    settings: toml::Table,
    #[serde(default)]
    schedules: BTreeMap<String, toml::Table>,
    /// By method.
    #[serde(default)]
    published: BTreeMap<String, Vec<f64>>,
}

impl Cell {
    /// Of its runs.
    fn folder(&self) -> String {
        self.name.replace('/', "-")
    }
}

/// A run that the table needs.
struct Job<'r> {
    cell: &'r Cell,
    method: &'r Method,
    settings: Settings,
    place: PathBuf,
    /// If it is done.
    outcome: Option<Outcome>,
    /// Epochs that are done of it.
    done: u64,
}

impl Recipe {
    fn named(name: &str) -> Result<Self, Failure> {
        let own;
        let text = match RECIPES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => *text,
            None if Path::new(name).extension().is_some_and(|end| end == "toml") => {
                own = read_text(Path::new(name))?;
                &own
            }
            None => {
                let known: Vec<&str> = RECIPES.iter().map(|(name, _)| *name).collect();
                let what = format!(
                    "{name}: there is no such table; there are {}, or a file of your own: NAME.toml",
                    known.join(", ")
                );
                return Err(Failure::Usage(what));
            }
        };
        let recipe: Self = toml::from_str(text).map_err(|error| {
            Failure::Usage(match Settings::from_toml(text, &Settings::default()) {
                Ok(_) => {
                    format!("{name}: these are the settings of a run, no table: `equipoise train --config {name}`")
                }
                Err(_) => format!("{name}: {error}"),
            })
        })?;
        recipe.check(name)?;
        Ok(recipe)
    }

    /// Whether names are ones that a folder can have, each once, and figures fit the columns.
    fn check(&self, name: &str) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::Usage(format!("{name}: {what}")));
        for (what, number) in [
            ("column", self.columns.len()),
            ("schedule", self.schedules.len()),
            ("method", self.methods.len()),
            ("cell", self.cells.len()),
        ] {
            if number == 0 {
                return wrong(format!("there is no {what}"));
            }
        }
        let numbered =
            |column: &str| column.strip_prefix("Group ").is_some_and(|number| number.parse::<usize>().is_ok());
        let known = |column: &&String| numbered(column) || COLUMNS[..6].contains(&column.as_str());
        if let Some(column) = self.columns.iter().find(|column| !known(column)) {
            return wrong(format!("column `{column}`: must be one of {}", COLUMNS.join(", ")));
        }
        let plain =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let mut folders = BTreeSet::new();
        for method in &self.methods {
            let what = match method.drw {
                _ if !plain(&method.name) => "a name has letters, digits, - and _".to_owned(),
                _ if !folders.insert(method.name.clone()) => "there are two of this name".to_owned(),
                Some(share) if !(share > 0.0 && share < 1.0) => format!("drw is {share}, must be above 0 and below 1"),
                _ => continue,
            };
            return wrong(format!("method `{}`: {what}", method.name));
        }
        folders.clear();
        for cell in &self.cells {
            let of_nobody =
                cell.published.keys().find(|method| !self.methods.iter().any(|known| known.name == **method));
            let unknown = cell.schedules.keys().find(|name| !self.schedules.contains_key(*name));
            let figures = cell.published.iter().find(|(_, figures)| figures.len() != self.columns.len());
            let strange = cell.published.values().flatten().find(|figure| !(0.0..=100.0).contains(*figure));
            let what = if !cell.name.split('/').all(plain) {
                "a name has letters, digits, - and _, with / between its parts".to_owned()
            } else if !folders.insert(cell.folder()) {
                format!("there are two whose runs would be in {}", cell.folder())
            } else if let Some(method) = of_nobody {
                format!("there is no method `{method}`")
            } else if let Some(schedule) = unknown {
                format!("there is no schedule `{schedule}`")
            } else if let Some((method, figures)) = figures {
                format!("{method} has {} figures for {} columns", figures.len(), self.columns.len())
            } else if let Some(figure) = strange {
                format!("{figure} is no accuracy in %")
            } else {
                continue;
            };
            return wrong(format!("cell `{}`: {what}", cell.name));
        }
        let methods = self.methods.iter().map(|method| &method.settings);
        let cells = self.cells.iter().flat_map(|cell| cell.schedules.values().chain([&cell.settings]));
        let mut all = self.schedules.values().chain([&self.settings]).chain(methods).chain(cells);
        match all.any(|settings| settings.contains_key("seed")) {
            true => wrong("`seed` is no setting of a recipe: --seeds says how many there are".to_owned()),
            false => Ok(()),
        }
    }

    /// The settings of a run.
    fn settings(&self, cell: &Cell, method: &Method, schedule: &str, seed: u64) -> Result<Settings, Failure> {
        let own = cell.schedules.get(schedule);
        let parts =
            [Some(&self.settings), self.schedules.get(schedule), own, Some(&cell.settings), Some(&method.settings)];
        let mut settings = Settings { seed, ..Settings::default() };
        let wrong = |error| train_failure(error).about(&format!("cell `{}`, method `{}`", cell.name, method.name));
        for part in parts.into_iter().flatten() {
            settings = settings.with(part).map_err(wrong)?;
        }
        if let Some(share) = method.drw {
            let start = (share * settings.epochs as f64) as u64;
            settings.criterion.drw = Some(DrwConfig::new(start));
        }
        settings.check().map_err(wrong)?;
        Ok(settings)
    }

    /// The name of the schedule that is asked for.
    fn schedule<'a>(&'a self, args: &'a Args) -> &'a str {
        let own = self.schedules.keys().find(|name| *name == "paper").or(self.schedules.keys().next());
        args.schedule.as_deref().or(own.map(String::as_str)).unwrap_or("paper")
    }

    /// The runs that are asked for, cell by cell, and in a cell all methods before the next seed.
    fn jobs(&self, args: &Args) -> Result<Vec<Job<'_>>, Failure> {
        let [asked, only] = [&args.criteria, &args.only]
            .map(|names| names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect::<Vec<_>>());
        let schedule = self.schedule(args);
        if !self.schedules.contains_key(schedule) {
            let known: Vec<&str> = self.schedules.keys().map(String::as_str).collect();
            return Err(Failure::Usage(format!("--schedule {schedule}: must be {}", known.join(" or "))));
        }
        let fits = |cell: &Cell, only: &str| cell.name == only || cell.name.split('/').next() == Some(only);
        if let Some(only) = only.iter().find(|only| !self.cells.iter().any(|cell| fits(cell, only))) {
            let known: Vec<&str> = self.cells.iter().map(|cell| cell.name.as_str()).collect();
            return Err(Failure::Usage(format!("--only {only}: the table has {}", known.join(", "))));
        }
        if let Some(name) = asked.iter().find(|name| !self.methods.iter().any(|method| method.name == **name)) {
            let known: Vec<&str> = self.methods.iter().map(|method| method.name.as_str()).collect();
            return Err(Failure::Usage(format!("--criteria {name}: the table has {}", known.join(", "))));
        }
        let mut jobs = Vec::new();
        for cell in self.cells.iter().filter(|cell| only.is_empty() || only.iter().any(|only| fits(cell, only))) {
            for seed in 0..args.seeds {
                for method in &self.methods {
                    let wanted = match asked.is_empty() {
                        true => cell.published.is_empty() || cell.published.contains_key(&method.name),
                        false => asked.contains(&method.name.as_str()),
                    };
                    if wanted {
                        let settings = self.settings(cell, method, schedule, seed)?;
                        let place = args.out.join(schedule).join(cell.folder());
                        jobs.push(Job::new(cell, method, settings, &place)?);
                    }
                }
            }
        }
        Ok(jobs)
    }
}

impl<'r> Job<'r> {
    /// Looks what is there of a run.
    fn new(cell: &'r Cell, method: &'r Method, settings: Settings, parent: &Path) -> Result<Self, Failure> {
        let place = parent.join(format!("{}-s{}", method.name, settings.seed));
        let (outcome, done) = match Found::at(&place, &settings)? {
            Found::Nothing => (None, 0),
            Found::Begun(epochs) => (None, epochs),
            Found::Done(outcome) => (Some(*outcome), settings.epochs),
        };
        Ok(Self { cell, method, settings, place, outcome, done })
    }

    /// Seconds that are left of it, on a machine that makes so many multiply-adds a second in training.
    fn seconds(&self, speed: f64) -> Result<f64, Failure> {
        if self.outcome.is_some() {
            return Ok(0.0);
        }
        let side = if self.settings.large() { 224 } else { 32 };
        let side = if self.settings.data.set == "tiny-imagenet" { 64 } else { side };
        let network = Network::named(&self.settings.model.name, 3, [side, side], 10);
        let work = network.map_err(|error| train_failure(error.into()))?.multiply_adds() as f64;
        let left = self.settings.epochs.saturating_sub(self.done) as f64;
        let [train, test] = self.cell.images.map(|images| images as f64);
        let evaluations = (left / self.settings.evaluate_every as f64).ceil();
        Ok((left * train + evaluations * test / EVALUATION) * work / speed)
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let recipe = Recipe::named(&args.table)?;
    let mut jobs = recipe.jobs(args)?;
    if !args.show {
        let speed = speed(args.threads)?;
        let seconds: Vec<f64> = jobs.iter().map(|job| job.seconds(speed)).collect::<Result<_, _>>()?;
        if args.dry_run && args.json {
            let line = |(job, seconds): (&Job<'_>, &f64)| {
                json!({
                    "cell": job.cell.name, "method": job.method.name, "seed": job.settings.seed,
                    "epochs": job.settings.epochs, "done": job.done,
                    "seconds": seconds.round(), "folder": job.place.display().to_string(),
                })
            };
            let plan: Vec<Value> = jobs.iter().zip(&seconds).map(line).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
            return Ok(());
        }
        if args.dry_run {
            plan(&recipe, args, &jobs, &seconds, out)?;
            return Ok(());
        }
        if !args.quiet {
            plan(&recipe, args, &jobs, &seconds, &mut std::io::stderr())?;
        }
        missing_sets(args, &jobs)?;
        let failed = work(args, &mut jobs)?;
        if failed > 0 {
            show(&recipe, args, &jobs, out)?;
            return Err(anyhow::anyhow!("{failed} of {} runs failed, as was said above", jobs.len()).into());
        }
    }
    show(&recipe, args, &jobs, out)
}

/// What is to be done, cell by cell.
fn plan(recipe: &Recipe, args: &Args, jobs: &[Job<'_>], seconds: &[f64], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "{}, {} schedule\n", recipe.title, recipe.schedule(args))?;
    writeln!(out, "{:<20} {:>5} {:>5} {:>8} {:>7} {:>14}", "cell", "runs", "done", "started", "epochs", "time left")?;
    for cell in &recipe.cells {
        let own: Vec<(&Job<'_>, &f64)> =
            jobs.iter().zip(seconds).filter(|(job, _)| job.cell.name == cell.name).collect();
        if own.is_empty() {
            continue;
        }
        let done = own.iter().filter(|(job, _)| job.outcome.is_some()).count();
        let started = own.iter().filter(|(job, _)| job.done > 0 && job.outcome.is_none()).count();
        let (epochs, left) = (own[0].0.settings.epochs, own.iter().map(|(_, seconds)| **seconds).sum::<f64>());
        let here = if is_here(own[0].0, args) { "" } else { "  not here" };
        let left = time(left);
        writeln!(out, "{:<20} {:>5} {done:>5} {started:>8} {epochs:>7} {left:>14}{here}", cell.name, own.len())?;
    }
    writeln!(out, "\nin all {}, on this machine, by a short measurement", time(seconds.iter().sum()))?;
    Ok(())
}

/// Whether a run's data is there.
fn is_here(job: &Job<'_>, args: &Args) -> bool {
    let set = &job.settings.data.set;
    match KnownDataset::by_name(set) {
        Some(known) => known.is_embedded() || args.root.root().join(known.name).is_dir(),
        None => Path::new(set).exists(),
    }
}

/// Data that has to be got first.
fn missing_sets(args: &Args, jobs: &[Job<'_>]) -> Result<(), Failure> {
    let missing = jobs.iter().find(|job| job.outcome.is_none() && !is_here(job, args));
    match missing {
        None => Ok(()),
        Some(job) => {
            let set = &job.settings.data.set;
            Err(Failure::Usage(match KnownDataset::by_name(set) {
                Some(_) => format!("{set} is not here: `equipoise data fetch {set}` gets it, --only leaves cells out"),
                None => {
                    format!("{set}: no set of this name is known (`equipoise data list`), and no such path is here")
                }
            }))
        }
    }
}

/// Runs what is missing. What goes wrong in one run is told, and no reason to leave out the others; returns how many did.
fn work(args: &Args, jobs: &mut [Job<'_>]) -> Result<usize, Failure> {
    let whole = jobs.len();
    let one = |number: usize, job: &mut Job<'_>, pool: &Pool, quiet: bool| -> Result<(), Failure> {
        if job.outcome.is_some() {
            return Ok(());
        }
        let title =
            format!("[{}/{whole}] {} {} seed {}", number + 1, job.cell.name, job.method.name, job.settings.seed);
        let mut show = Show::new(&title, job.settings.epochs, quiet, false, Duration::from_secs(300));
        let outcome = taken_up(&job.settings, &job.place, &args.root, pool, &mut show, "the same command");
        let outcome = outcome.map_err(|failure| failure.about(&title))?;
        if !args.quiet {
            let overall = outcome.last.as_ref().and_then(|figures| figures.metrics.top1).unwrap_or(f64::NAN);
            // nobody to tell if this fails
            let _ = writeln!(std::io::stderr(), "{title}: overall {} in {}", tenths(overall), time(outcome.seconds));
        }
        job.outcome = Some(outcome);
        Ok(())
    };
    let all = pool(args.threads)?.threads();
    let threads = u16::try_from((all / usize::from(args.jobs)).max(1)).unwrap_or(1);
    let next = Mutex::new(jobs.iter_mut().enumerate());
    let failed = AtomicUsize::new(0);
    let worker = || {
        let pool = pool(Some(threads))?;
        loop {
            let job = next.lock().map_or(None, |mut next| next.next());
            let Some((number, job)) = job else { return Ok(()) };
            match one(number, job, &pool, args.quiet || args.jobs > 1) {
                Ok(()) => {}
                Err(stopped @ Failure::Interrupted(..)) => return Err(stopped),
                Err(failure) => {
                    warn(&failure.to_string());
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..args.jobs).map(|_| scope.spawn(worker)).collect();
        let own = worker();
        let ends =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(ends.collect::<Vec<_>>()).collect::<Result<(), Failure>>()
    })?;
    Ok(failed.into_inner())
}

/// A figure of some runs, in a column of the table.
fn figure(jobs: &[&Job<'_>], column: &str, best: bool) -> Option<Spread> {
    let value = |job: &&Job<'_>| {
        let outcome = job.outcome.as_ref()?;
        let figures = if best { outcome.best.as_ref() } else { outcome.last.as_ref() }?;
        match column {
            "overall" => figures.metrics.top1,
            group => figures.metrics.groups.iter().find(|known| known.name == group)?.accuracy,
        }
    };
    Spread::of(&jobs.iter().filter_map(value).collect::<Vec<_>>())
}

/// Ours beside theirs.
fn show(recipe: &Recipe, args: &Args, jobs: &[Job<'_>], out: &mut impl Write) -> Result<(), Failure> {
    let mut tables = Vec::new();
    let mut values = Vec::new();
    for cell in &recipe.cells {
        let mut rows = Vec::new();
        let printed = !cell.published.is_empty();
        // the best epoch has a column of its own, which says what has chosen it
        let chosen = jobs.iter().filter(|job| job.cell.name == cell.name).filter_map(|job| job.outcome.as_ref());
        let chosen = chosen.filter(|outcome| outcome.best.is_some()).map(Outcome::chosen_on_test).next();
        let (best, chooser) =
            (chosen.is_some(), if chosen == Some(true) { "the test set" } else { "the validation part" });
        for method in &recipe.methods {
            let own: Vec<&Job<'_>> =
                jobs.iter().filter(|job| job.cell.name == cell.name && job.method.name == method.name).collect();
            let runs = own.iter().filter(|job| job.outcome.is_some()).count();
            if own.is_empty() {
                continue;
            }
            let mut row = vec![Entry::Text(method.label.clone()), Entry::Count(runs as u64)];
            for (number, column) in recipe.columns.iter().enumerate() {
                let published = cell.published.get(&method.name).and_then(|figures| figures.get(number).copied());
                let entry = |spread: Option<Spread>| match spread {
                    None => Entry::Nothing,
                    Some(Spread { mean, sd, .. }) => Entry::Figure { mean, sd, best: false },
                };
                row.extend(printed.then(|| entry(Spread::of(published.as_slice()))));
                let ours = [Some(false), best.then_some(true)].into_iter().flatten();
                for best in ours {
                    let spread = figure(&own, column, best);
                    values.push(json!({
                        "cell": cell.name, "method": method.name, "column": column, "published": published, "seeds": runs,
                        "epoch": if best { format!("best on {chooser}") } else { "last".to_owned() },
                        "mean": spread.map(|spread| spread.mean), "sd": spread.and_then(|spread| spread.sd),
                    }));
                    row.push(entry(spread));
                }
            }
            rows.push(row);
        }
        if rows.is_empty() {
            continue;
        }
        let mut columns = vec!["method".to_owned(), "seeds".to_owned()];
        for column in &recipe.columns {
            let ours = if printed { format!("{column}: ours") } else { column.clone() };
            columns.extend(printed.then(|| format!("{column}: paper")));
            columns.push(ours.clone());
            columns.extend(best.then(|| format!("{ours}, best on {chooser}")));
        }
        let title = format!("{}, {}, {} schedule", recipe.title, cell.name, recipe.schedule(args));
        tables.push((&cell.name, Table { title, columns, rows, notes: Vec::new() }));
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&values)?)?;
        return Ok(());
    }
    for (number, (cell, table)) in tables.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        if args.markdown && tables.len() > 1 {
            writeln!(out, "**{cell}**\n")?;
        }
        match args.markdown {
            true => write!(out, "{}", table.markdown())?,
            false => write!(out, "{}", table.plain())?,
        }
    }
    if !args.markdown {
        writeln!(out, "\nthe runs are in {}", quoted(&args.out.join(recipe.schedule(args))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_can_be_run() {
        for (name, _) in RECIPES {
            let recipe = Recipe::named(name).unwrap_or_else(|_| panic!("{name}"));
            for cell in &recipe.cells {
                for method in &recipe.methods {
                    for schedule in recipe.schedules.keys() {
                        assert!(
                            recipe.settings(cell, method, schedule, 3).is_ok(),
                            "{name} {} {}",
                            cell.name,
                            method.name
                        );
                    }
                }
            }
        }
    }
}
