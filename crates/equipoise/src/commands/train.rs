//! `equipoise train`: one run.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use equipoise_criterion::Id;
use equipoise_record::RunFolder;
use equipoise_record::names::{CONFIG, REPORT, RESULT};
use equipoise_train::checkpoint::{Checkpoint, files};
use equipoise_train::settings::Settings;

use super::data::warn;
use super::report::{open, show_runs};
use crate::Failure;
use crate::runs::{SettingArgs, Show, drive, percent, pool, quoted, read_text, train_failure, trainer};

#[derive(clap::Args)]
#[command(after_long_help = "\
A run's folder holds config.toml (everything resolved), metrics.jsonl (a line per epoch), checkpoint.eqp and previous.eqp,
best.eqp if a best epoch is chosen, result.json, report.html (a page to look at), the records behind it (norms.jsonl, times.jsonl,
details.json) and events for TensorBoard. It is never overwritten. Ctrl-C saves and says how to go on; a run that was
killed goes on from its last checkpoint, and ends as if nothing had happened, bit for bit.

The test set chooses nothing: the best epoch is chosen on a validation part (--val 0.1, or one that the set has), else there is
only the last. The preset `paper` reports the best epoch on the test set too, as the paper does, and says so.

Examples:
  equipoise train
  equipoise train cifar10 --imbalance 100 --criterion cwap --model resnet32 --epochs 200
  equipoise train path/to/images --val 0.1 --set augment.randaugment=[2,9]
  equipoise train --resume runs/fashion-mini-cwap-resnet32-s0
  equipoise train --config recipe.toml --print-config")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// The criterion [default: cwap]
    #[arg(long, value_name = "ID")]
    criterion: Option<Id>,
    /// Folder of the run [default: a new one under runs/]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in this folder; name the data set if it has moved
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "model", "imbalance", "epochs", "batch", "rate", "seed", "val", "init", "freeze", "preset", "config", "set", "criterion"])]
    resume: Option<PathBuf>,
    /// Print the resolved settings and stop
    #[arg(long)]
    print_config: bool,
    /// Minutes between checkpoints within an epoch
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    save_minutes: f64,
    /// Show the report in a browser when the run has ended
    #[arg(long)]
    open: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if !(args.save_minutes >= 0.0 && args.save_minutes <= 1e6) {
        return Err(Failure::Usage(format!("--save-minutes {}: must be at least 0", args.save_minutes)));
    }
    let pool = pool(args.settings.threads)?;
    let (mut trainer, folder) = match &args.resume {
        Some(path) => {
            let folder = RunFolder::open(path).map_err(|error| train_failure(error.into()))?;
            let text = read_text(&path.join(CONFIG))?;
            let mut settings = Settings::from_toml(&text, &Settings::default())
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.join(CONFIG).display())))?;
            if args.print_config {
                write!(out, "{}", settings.to_toml().map_err(train_failure)?)?;
                return Ok(());
            }
            if let Some(data) = &args.settings.data {
                settings.data.set.clone_from(data);
            }
            let found = files::load(&folder).map_err(|error| train_failure(error.into()))?;
            let mut checkpoint = None;
            if let Some(found) = found {
                if let Some(warning) = found.warning {
                    warn(&warning);
                }
                checkpoint = Some(Checkpoint::new(found.checkpoint).map_err(train_failure)?);
            }
            (trainer(settings, &args.settings.root, &pool, checkpoint.as_ref())?, folder)
        }
        None => {
            let settings = args.settings.settings(Settings::default(), args.criterion)?;
            let text = settings.to_toml().map_err(train_failure)?;
            if args.print_config {
                write!(out, "{text}")?;
                return Ok(());
            }
            let stem = stem(&settings, true);
            let trainer = trainer(settings, &args.settings.root, &pool, None)?;
            let folder = match &args.out {
                Some(path) => RunFolder::create(path),
                None => RunFolder::create_unique("runs".as_ref(), &stem),
            };
            let folder = folder.map_err(|error| train_failure(error.into()))?;
            folder.write(CONFIG, text.as_bytes()).map_err(|error| train_failure(error.into()))?;
            (trainer, folder)
        }
    };
    let (data, settings) = (trainer.data(), trainer.settings());
    if !args.quiet {
        let (name, method, model) = (&data.name, settings.criterion.method.id(), &settings.model.name);
        let (images, classes) = (data.train.labels.len(), data.classes.len());
        let text =
            format!("{name}: {images} images, {classes} classes; {method}, {model}; in {}", folder.path().display());
        // nobody to tell if this fails
        let _ = writeln!(std::io::stderr(), "{}", crate::one_line(&text));
    }
    let done = folder.path().join(RESULT);
    if trainer.finished() && done.exists() {
        return Err(Failure::Usage(format!(
            "{} is finished: its result is in {}",
            folder.path().display(),
            done.display()
        )));
    }
    let save_every = Duration::from_secs_f64(60.0 * args.save_minutes);
    let mut show = Show::new("", settings.epochs, args.quiet, true, save_every);
    let resume = format!("equipoise train --resume {}", quoted(folder.path()));
    let result = drive(&mut trainer, &folder, &mut show, &resume)?;
    let page = show_runs(&[folder.path().to_owned()], &folder)?.0;
    if args.open {
        open(&page)?;
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&result)?)?;
        return Ok(());
    }
    for (figures, which) in [(&result.last, "last epoch"), (&result.best, result.best_is.as_str())] {
        let Some(figures) = figures else { continue };
        let metrics = &figures.metrics;
        let groups = metrics.groups.iter().map(|group| format!("{} {}, ", group.name, percent(group.accuracy)));
        let groups: String = groups.collect();
        let (overall, balanced) = (percent(metrics.top1), percent(metrics.balanced));
        writeln!(out, "{which} ({}): {groups}overall {overall}, balanced {balanced}", figures.epoch)?;
    }
    if result.logit_adjust > 0.0 {
        writeln!(out, "logits were adjusted after training, tau {}", result.logit_adjust)?;
    }
    writeln!(
        out,
        "{} in training: {:.0} images/s; everything is in {}, to look at in {REPORT}",
        crate::progress::time(result.seconds),
        result.images_per_second,
        folder.path().display()
    )?;
    Ok(())
}

/// A readable name for a run, or for runs with several criteria.
pub(crate) fn stem(settings: &Settings, one: bool) -> String {
    let name = std::path::Path::new(&settings.data.set)
        .file_name()
        .map_or_else(|| "data".to_owned(), |n| n.to_string_lossy().into_owned());
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let name = name.trim_matches('.');
    let name = if name.is_empty() { "data" } else { name };
    let imbalance = settings.data.imbalance.map_or_else(String::new, |factor| format!("-if{factor}"));
    let criterion = if one { format!("-{}", settings.criterion.method.id()) } else { String::new() };
    format!("{name}{imbalance}{criterion}-{}-s{}", settings.model.name, settings.seed)
}
