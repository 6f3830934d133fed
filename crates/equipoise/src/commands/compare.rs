//! `equipoise compare`: the same network, once per criterion and seed.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use equipoise_criterion::{Id, Preset};
use equipoise_train::folder::{Folder, fresh};
use equipoise_train::settings::Settings;
use serde_json::{Value, json};

use super::train::stem;
use crate::Failure;
use crate::progress::time;
use crate::runs::{SettingArgs, Show, drive, pool, train_failure, trainer, with_criterion};

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
    /// Folder of the runs [default: a new one under runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show nothing but the table
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

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let settings = args.settings.settings(base(args.settings.data.is_none()))?;
    let mut criteria: Vec<Id> = Vec::new();
    for id in &args.criteria {
        if criteria.contains(id) {
            return Err(Failure::Usage(format!("--criteria: {id} is there twice")));
        }
        criteria.push(*id);
    }
    let pool = pool(args.settings.threads)?;
    // the first trainer also shows that data and network fit, before a folder is made
    let first =
        trainer(with_criterion(settings.clone(), criteria[0], Preset::Recommended), &args.settings.root, &pool, None)?;
    let groups: Vec<String> = first.data().groups.iter().map(|group| group.name.clone()).collect();
    let name = first.data().name.clone();
    drop(first);
    let folder = match &args.out {
        Some(path) => Folder::create(path),
        None => fresh("runs".as_ref(), &format!("compare-{}", stem(&settings, false))),
    };
    let folder = folder.map_err(|error| train_failure(error.into()))?;
    let whole = criteria.len() * args.seeds as usize;
    let mut rows = Vec::new();
    let mut seconds = 0.0;
    for (c, id) in criteria.iter().enumerate() {
        let mut results: Vec<Value> = Vec::new();
        for seed in 0..args.seeds {
            let mut settings = with_criterion(settings.clone(), *id, Preset::Recommended);
            settings.seed += seed;
            let text = settings.to_toml().map_err(train_failure)?;
            let mut trainer = trainer(settings.clone(), &args.settings.root, &pool, None)?;
            let run = Folder::create(&folder.path().join(format!("{id}-s{}", settings.seed)));
            let run = run.map_err(|error| train_failure(error.into()))?;
            run.write("config.toml", text.as_bytes()).map_err(|error| train_failure(error.into()))?;
            let number = c * args.seeds as usize + seed as usize + 1;
            let title = format!("[{number}/{whole}] {id}");
            let mut show = Show::new(&title, settings.epochs, args.quiet, false, Duration::from_secs(300));
            let resume = format!("equipoise train --resume {}", run.path().display());
            results.push(drive(&mut trainer, &run, &mut show, &resume)?);
            seconds += show.seconds();
            if !args.quiet {
                let overall = results.last().and_then(|r| r["last"]["top1"].as_f64()).unwrap_or(f64::NAN);
                // nobody to tell if this fails
                let _ = writeln!(std::io::stderr(), "{title}: overall {overall:.1} in {}", time(show.seconds()));
            }
        }
        let of = |path: &dyn Fn(&Value) -> Option<f64>| {
            spread(&results.iter().map(|r| path(&r["last"])).collect::<Vec<_>>())
        };
        let mut columns: Vec<Option<(f64, Option<f64>)>> =
            (0..groups.len()).map(|g| of(&|last: &Value| last["groups"][g]["accuracy"].as_f64())).collect();
        columns.push(of(&|last: &Value| last["top1"].as_f64()));
        rows.push((*id, columns));
    }
    let names: Vec<String> = groups.iter().cloned().chain(["overall".to_owned()]).collect();
    let table = json!({
        "dataset": name, "model": settings.model.name, "epochs": settings.epochs, "seeds": args.seeds, "columns": names,
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
    writeln!(out, "{name}, {}, {} epochs, accuracy in % after the last", settings.model.name, settings.epochs)?;
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
