//! `equipoise compare`: the same network, once per criterion and seed.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use equipoise_criterion::Id;
use equipoise_record::names::{COMPARISON, COMPARISON_RESULT, is_comparison};
use equipoise_record::{FolderError, RunFolder};
use equipoise_train::settings::Settings;
use serde_json::Value;

use super::report::{open, plain, show_runs, summary};
use super::train::stem;
use crate::Failure;
use crate::progress::time;
use crate::runs::{SettingArgs, Show, percent, pool, quoted, taken_up, train_failure, trainer};

#[derive(clap::Args)]
#[command(after_long_help = "\
Without a data set: `softmax`, `seesaw` and `cwap` on the set inside the program, with a small network.

Examples:
  equipoise compare
  equipoise compare cifar10 --imbalance 100 --epochs 40 --seeds 3
  equipoise compare path/to/images --criteria softmax,balanced-softmax,cwap --val 0.1")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// The criteria, with commas between
    #[arg(long, value_delimiter = ',', default_value = "softmax,seesaw,cwap")]
    criteria: Vec<Id>,
    /// Runs per criterion, with seeds one after another
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Folder of the runs; runs in it that were stopped are taken up [default: a new one under runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show the report in a browser when all runs have ended
    #[arg(long)]
    open: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
}

/// What is compared where nothing is said: small enough for a minute.
fn base(own: bool) -> Settings {
    let mut settings = Settings::default();
    if own {
        settings.model.name = "resnet8".to_owned();
        settings.epochs = 30;
        settings.batch = 32;
        settings.evaluate_every = 5;
    }
    settings
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let mut criteria: Vec<Id> = Vec::new();
    for id in &args.criteria {
        if criteria.contains(id) {
            return Err(Failure::Usage(format!("--criteria: {id} is there twice")));
        }
        criteria.push(*id);
    }
    let pool = pool(args.settings.threads)?;
    let all: Vec<Settings> = criteria
        .iter()
        .map(|id| args.settings.settings(base(args.settings.data.is_none()), Some(*id)))
        .collect::<Result<_, _>>()?;
    let settings = &all[0];
    if settings.seed.checked_add(args.seeds).is_none_or(|last| i64::try_from(last).is_err()) {
        return Err(Failure::Usage(format!("--seed {}: too large for {} seeds", settings.seed, args.seeds)));
    }
    // the first trainer also shows that data and network fit, before a folder is made
    let first = trainer(settings.clone(), &args.settings.root, &pool, None)?;
    drop(first);
    let store = |error: FolderError| train_failure(error.into());
    let folder = match &args.out {
        // one that was stopped is taken up
        Some(path) if is_comparison(path) => RunFolder::open_comparison(path),
        Some(path) => RunFolder::create(path),
        None => RunFolder::create_unique("runs".as_ref(), &format!("compare-{}", stem(settings, false))),
    }
    .map_err(store)?;
    if !folder.path().join(COMPARISON).exists() {
        folder.write(COMPARISON, settings.to_toml().map_err(train_failure)?.as_bytes()).map_err(store)?;
    }
    let whole = criteria.len() * args.seeds as usize;
    let resume = format!("the same command with --out {}", quoted(folder.path()));
    let mut places = Vec::new();
    let mut seconds = 0.0;
    for (c, (id, settings)) in criteria.iter().zip(&all).enumerate() {
        for seed in 0..args.seeds {
            let mut settings = settings.clone();
            settings.seed += seed;
            let place = folder.path().join(format!("{id}-s{}", settings.seed));
            let number = c * args.seeds as usize + seed as usize + 1;
            let title = format!("[{number}/{whole}] {id}");
            let mut show = Show::new(&title, settings.epochs, args.quiet, false, Duration::from_secs(300));
            let result = taken_up(&settings, &place, &args.settings.root, &pool, &mut show, &resume)
                .map_err(|failure| failure.about(&title))?;
            seconds += result.seconds;
            if !args.quiet {
                let overall = percent(result.last.as_ref().and_then(|figures| figures.metrics.top1));
                // nobody to tell if this fails
                let _ = writeln!(std::io::stderr(), "{title}: overall {overall} in {}", time(result.seconds));
            }
            places.push(place);
        }
    }
    let (page, comparisons) = show_runs(&places, &folder)?;
    let path = folder.path().display().to_string();
    let tables: Vec<Value> = comparisons.iter().map(summary).collect();
    let mut table = tables.into_iter().next().unwrap_or_default();
    table["seeds"] = args.seeds.into();
    table["seconds"] = seconds.into();
    table["folder"] = path.clone().into();
    let text = serde_json::to_string_pretty(&table)? + "\n";
    folder.write(COMPARISON_RESULT, text.as_bytes()).map_err(store)?;
    if args.open {
        open(&page)?;
    }
    if args.json {
        writeln!(out, "{table}")?;
        return Ok(());
    }
    for comparison in &comparisons {
        plain(comparison, out)?;
    }
    writeln!(out, "\n{} in all; the runs are in {path}, to look at in {}", time(seconds), quoted(&page))?;
    Ok(())
}
