//! `equipoise train`: one run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_criterion::Id;
use equipoise_record::RunResult;
use equipoise_record::names::{CONFIG, REPORT, RESULT};
use equipoise_train::run::files::read_text;
use equipoise_train::run::{OutputFolder, Run};
use equipoise_train::settings::Settings;

use crate::clock::duration;
use crate::failure::Failure;
use crate::options::{Environment, SettingArgs};
use crate::output::{counted, note, open_in_browser, percent, quoted};
use crate::reports::{LiveFolder, write_report};
use crate::training::{DisplayOptions, RunDisplay, execute};

#[derive(clap::Args)]
#[command(after_long_help = "\
A run folder has config.toml (all settings), metrics.jsonl (a line per epoch), checkpoint.eqp and previous.eqp, best.eqp if a best epoch
is selected, result.json, report.html (the report page), the records behind it (norms.jsonl, times.jsonl, details.json) and TensorBoard
events. It is never overwritten. Ctrl-C saves the run and prints how to continue; a killed run continues from its last checkpoint. Either
way the run ends as if it had never stopped, bit for bit.

The test split selects nothing: the best epoch is selected on a validation split (--val-fraction 0.1, or that of the dataset). Without
one, the last epoch is reported. The preset `paper` also reports the best epoch on the test split, as the paper does, and says so.

To choose settings without looking at the test split, compare runs on images that are held out (--val 0.1); then --refit trains on all
training images with the settings of the run that was best: same epochs, no validation split, the last epoch counts.

Examples:
  equipoise train
  equipoise train cifar10 --imbalance 100 --criterion cwap --model resnet32 --epochs 200
  equipoise train path/to/images --val-fraction 0.1 --set augment.randaugment=[2,9]
  equipoise train path/to/photos --model resnet50 --image-size 160 --batch-size 32 --lr 0.05 -o runs/photos
  equipoise train cifar10 --imbalance 100 --val 0.1 -o runs/held-out && equipoise train --refit runs/held-out
  equipoise train --resume runs/fashion-mini-cwap-resnet32-s0
  equipoise train --config recommended --print-config")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// Criterion to train with; `equipoise criteria` lists them [default: cwap]
    #[arg(long, value_name = "ID")]
    criterion: Option<Id>,
    /// Run folder [default: a new one in runs/]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Continue the run in this folder; name the dataset if it has moved
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "model", "imbalance", "epochs", "batch_size", "lr", "seed", "val", "val_fraction", "image_size", "path_column", "label_column", "test_data", "val_data", "group_by", "test_fraction", "strict", "weights", "freeze_backbone", "preset", "config", "set", "criterion"])]
    resume: Option<PathBuf>,
    /// Train on all training images with the settings of this finished run, which held some out (--val)
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume", "model", "imbalance", "epochs", "batch_size", "lr", "val", "val_fraction", "image_size", "path_column", "label_column", "test_data", "val_data", "group_by", "test_fraction", "strict", "weights", "freeze_backbone", "preset", "config", "set", "criterion"])]
    refit: Option<PathBuf>,
    /// Print the settings as TOML and exit
    #[arg(long)]
    print_config: bool,
    /// Minutes between checkpoints within an epoch
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    checkpoint_minutes: f64,
    /// Open the report in a browser when the run has ended
    #[arg(long)]
    open: bool,
    /// Do not show progress
    #[arg(long)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if !(args.checkpoint_minutes >= 0.0 && args.checkpoint_minutes <= 1e6) {
        return Err(Failure::usage(format!("--checkpoint-minutes {}: must be at least 0", args.checkpoint_minutes)));
    }
    if args.print_config {
        write!(out, "{}", settings(args)?.to_commented_toml()?)?;
        return Ok(());
    }
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    let context = environment.context();
    let mut run = match (&args.resume, &args.output) {
        (Some(path), _) => Run::resume(path, args.settings.data.as_deref(), &context)?,
        (None, Some(path)) => Run::start(settings(args)?, OutputFolder::At(path), &context)?,
        (None, None) => Run::start(settings(args)?, OutputFolder::In(Path::new("runs")), &context)?,
    };
    if !args.quiet {
        introduce(&run);
    }
    let path = run.folder.path().to_owned();
    if run.is_complete() {
        let (folder, result) = (path.display(), path.join(RESULT));
        return Err(Failure::usage(format!("{folder} is finished: its result is in {}", result.display())));
    }
    let save_every = Duration::from_secs_f64(60.0 * args.checkpoint_minutes);
    let options = DisplayOptions { quiet: args.quiet, epoch_lines: true, save_every };
    let mut display = RunDisplay::new("", run.trainer.settings().epochs, options);
    let resume = format!("equipoise train --resume {}", quoted(&path));
    let result = execute(&mut run, &mut display, LiveFolder::OfRun, &resume)?;
    let report = write_report(std::slice::from_ref(&path), &run.folder)?;
    if args.open {
        open_in_browser(&report.page)?;
    }
    match args.json {
        true => Ok(writeln!(out, "{}", serde_json::to_string(&result)?)?),
        false => print_result(&result, &path, out),
    }
}

/// The settings of the run that the options ask for.
fn settings(args: &Args) -> Result<Settings, Failure> {
    let of_run = |path: &Path| -> Result<Settings, Failure> {
        let text = read_text(&path.join(CONFIG))?;
        Ok(Settings::from_toml(&text, &Settings::default())?)
    };
    match (&args.resume, &args.refit) {
        (Some(path), _) => of_run(path),
        (None, Some(path)) => {
            let option = format!("--refit {}", path.display());
            if !path.join(RESULT).exists() {
                return Err(Failure::usage(format!("{option}: there is no finished run in this folder")));
            }
            let settings = of_run(path)?.refit().map_err(|error| Failure::from(error).about(&option))?;
            args.settings.settings(settings, None)
        }
        (None, None) => args.settings.settings(Settings::default(), args.criterion),
    }
}

/// One line about the run before it starts.
fn introduce(run: &Run) {
    let (data, settings) = (run.trainer.data(), run.trainer.settings());
    let (images, classes) = (counted(data.train.labels.len(), "image"), counted(data.classes.len(), "class"));
    let (method, model) = (settings.criterion.method.id(), settings.architecture());
    let (_, height, width) = data.train.loader.shape();
    let (folder, network) = (run.folder.path().display(), format!("{model} at {height} x {width}"));
    note(&format!("{}: {images}, {classes}; {method}, {network}; in {folder}", data.name));
}

fn print_result(result: &RunResult, folder: &Path, out: &mut impl Write) -> Result<(), Failure> {
    for (epoch, which) in [(&result.last, "last epoch"), (&result.best, result.best_is.as_str())] {
        let Some(epoch) = epoch else { continue };
        let metrics = &epoch.metrics;
        if metrics.per_class.iter().all(|class| class.test == 0) {
            let val =
                epoch.val_balanced.map_or_else(String::new, |val| format!(", balanced {val:.1} on validation images"));
            writeln!(out, "{which} ({}): trained on everything, no test images{val}", epoch.epoch)?;
            continue;
        }
        let groups = metrics.groups.iter().map(|group| format!("{} {}, ", group.name, percent(group.accuracy)));
        let groups: String = groups.collect();
        let (overall, balanced) = (percent(metrics.top1), percent(metrics.balanced));
        writeln!(out, "{which} ({}): {groups}overall {overall}, balanced {balanced}", epoch.epoch)?;
    }
    if result.logit_adjustment > 0.0 {
        writeln!(out, "logits were adjusted after training, tau {}", result.logit_adjustment)?;
    }
    let (time, speed) = (duration(result.seconds), result.images_per_second);
    writeln!(
        out,
        "{time}, {speed:.0} images/s in training; the run is in {}, its report in {REPORT}",
        folder.display()
    )?;
    Ok(())
}
