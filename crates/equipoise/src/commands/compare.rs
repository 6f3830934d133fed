//! `equipoise compare`: the same network, once per criterion and seed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_criterion::{Id, Pool};
use equipoise_train::folder::{Folder, StoreError, fresh};
use equipoise_train::settings::{Choose, Settings};
use equipoise_train::trainer::Checkpoint;
use serde_json::{Value, json};

use super::train::stem;
use crate::Failure;
use crate::progress::time;
use crate::runs::{SettingArgs, Show, drive, pool, quoted, read_text, train_failure, trainer};

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

/// Mean and standard deviation of what there is.
fn spread(values: &[Option<f64>]) -> Option<(f64, Option<f64>)> {
    let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (!values.is_empty()).then(|| (mean, (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())))
}

/// One run: trained, taken up, or done already.
fn one(
    args: &Args,
    settings: &Settings,
    place: &Path,
    title: &str,
    folder: &Folder,
    pool: &Pool,
) -> Result<Value, Failure> {
    let store = |error: StoreError| train_failure(error.into());
    let (run, checkpoint) = if place.join("config.toml").exists() {
        let text = read_text(&place.join("config.toml"))?;
        let before = Settings::from_toml(&text, &Settings::default()).map_err(train_failure)?;
        if let Some(field) = before.difference(settings) {
            let what = format!("{} has runs with another `{field}`: choose another --out", folder.path().display());
            return Err(Failure::Usage(what));
        }
        let done = place.join("result.json");
        if done.exists() {
            return serde_json::from_str(&read_text(&done)?)
                .map_err(|error| Failure::Usage(format!("{}: {error}", done.display())));
        }
        let run = Folder::open(place).map_err(store)?;
        let found = run.load().map_err(store)?;
        (run, found.map(|(snapshot, _)| Checkpoint::new(snapshot)).transpose().map_err(train_failure)?)
    } else {
        let run = Folder::create(place).map_err(store)?;
        run.write("config.toml", settings.to_toml().map_err(train_failure)?.as_bytes()).map_err(store)?;
        (run, None)
    };
    let mut trainer = trainer(settings.clone(), &args.settings.root, pool, checkpoint.as_ref())?;
    let mut show = Show::new(title, settings.epochs, args.quiet, false, Duration::from_secs(300));
    let resume = format!("the same command with --out {}", quoted(folder.path()));
    drive(&mut trainer, &run, &mut show, &resume)
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
    let groups: Vec<String> = first.data().groups.iter().map(|group| group.name.clone()).collect();
    let name = first.data().name.clone();
    drop(first);
    let store = |error: StoreError| train_failure(error.into());
    let folder = match &args.out {
        // one that was stopped is taken up
        Some(path) if path.join("config.toml").exists() => Folder::open(path),
        Some(path) => Folder::create(path),
        None => fresh("runs".as_ref(), &format!("compare-{}", stem(settings, false))),
    }
    .map_err(store)?;
    if !folder.path().join("config.toml").exists() {
        folder.write("config.toml", settings.to_toml().map_err(train_failure)?.as_bytes()).map_err(store)?;
    }
    let whole = criteria.len() * args.seeds as usize;
    let mut rows = Vec::new();
    let (mut seconds, mut best) = (0.0, false);
    for (c, (id, settings)) in criteria.iter().zip(&all).enumerate() {
        let mut results: Vec<Value> = Vec::new();
        for seed in 0..args.seeds {
            let mut settings = settings.clone();
            settings.seed += seed;
            let place = folder.path().join(format!("{id}-s{}", settings.seed));
            let number = c * args.seeds as usize + seed as usize + 1;
            let title = format!("[{number}/{whole}] {id}");
            let result = one(args, &settings, &place, &title, &folder, &pool)?;
            seconds += result["seconds"].as_f64().unwrap_or(0.0);
            if !args.quiet {
                let overall = result["last"]["top1"].as_f64().unwrap_or(f64::NAN);
                let spent = time(result["seconds"].as_f64().unwrap_or(0.0));
                // nobody to tell if this fails
                let _ = writeln!(std::io::stderr(), "{title}: overall {overall:.1} in {spent}");
            }
            results.push(result);
        }
        // what a validation part has chosen, where there is one; never what the test set has
        best = all[0].choose != Choose::Test && results.iter().all(|result| !result["best"].is_null());
        let which = if best { "best" } else { "last" };
        let of =
            |path: &dyn Fn(&Value) -> Option<f64>| spread(&results.iter().map(|r| path(&r[which])).collect::<Vec<_>>());
        let mut columns: Vec<Option<(f64, Option<f64>)>> =
            (0..groups.len()).map(|g| of(&|figures: &Value| figures["groups"][g]["accuracy"].as_f64())).collect();
        columns.push(of(&|figures: &Value| figures["top1"].as_f64()));
        rows.push((*id, columns));
    }
    let which = if best { "of the best epoch on the validation part" } else { "after the last" };
    let names: Vec<String> = groups.iter().cloned().chain(["overall".to_owned()]).collect();
    let table = json!({
        "dataset": name, "which": which, "model": settings.model.name, "epochs": settings.epochs, "seeds": args.seeds, "columns": names,
        "rows": rows.iter().map(|(id, columns)| json!({
            "criterion": id,
            "mean": columns.iter().map(|x| x.map(|(mean, _)| mean)).collect::<Vec<_>>(),
            "sd": columns.iter().map(|x| x.and_then(|(_, sd)| sd)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "seconds": seconds, "folder": folder.path().display().to_string(),
    });
    let text = serde_json::to_string_pretty(&table)? + "\n";
    folder.write("compare.json", text.as_bytes()).map_err(|error| train_failure(error.into()))?;
    if args.json {
        writeln!(out, "{table}")?;
        return Ok(());
    }
    let cell = |x: &Option<(f64, Option<f64>)>| match x {
        None => "n/a".to_owned(),
        Some((mean, None)) => format!("{mean:.1}"),
        Some((mean, Some(sd))) => format!("{mean:.1} +- {sd:.1}"),
    };
    let first = rows.iter().map(|(id, _)| id.name().len()).max().unwrap_or(0).max("criterion".len());
    let wide = if args.seeds > 1 { 14 } else { 9 };
    writeln!(out, "{name}, {}, {} epochs, accuracy in % {which}", settings.model.name, settings.epochs)?;
    write!(out, "\n{:<first$}", "criterion")?;
    names.iter().try_for_each(|name| write!(out, "{name:>wide$}"))?;
    writeln!(out)?;
    for (id, columns) in &rows {
        write!(out, "{:<first$}", id.name())?;
        columns.iter().try_for_each(|x| write!(out, "{:>wide$}", cell(x)))?;
        writeln!(out)?;
    }
    writeln!(out, "\n{} in all; the runs are in {}", time(seconds), folder.path().display())?;
    Ok(())
}
