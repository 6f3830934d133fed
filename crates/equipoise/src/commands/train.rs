//! `equipoise train`: one run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equipoise_criterion::{Config, Id, Preset};
use equipoise_nn::Engine;
use equipoise_record::names::{CONFIG, REPORT, RESULT, is_run};
use equipoise_record::{FolderError, Metrics, RunFolder, RunResult, SelectionSplit};
use equipoise_support::Examples;
use equipoise_train::prepare::RunData;
use equipoise_train::run::build::check;
use equipoise_train::run::{OutputFolder, Run, RunContext, read_config};
use equipoise_train::settings::{Precision, Settings};
use equipoise_train::trainer::Trainer;
use equipoise_train::workers::Workers;
use serde_json::json;

use crate::checkpoints::{self, warn_if_untrained};
use crate::clock::duration;
use crate::cluster;
use crate::cross_validation::{Plan, cross_validate};
use crate::failure::Failure;
use crate::figures::{classes_csv, print_averages, print_classes, with_intervals};
use crate::live_report::LiveFolder;
use crate::options::{Environment, SettingArgs};
use crate::output::{counted, note, open_in_browser, percent, quoted};
use crate::reports::write_report;
use crate::training::{DisplayOptions, RunDisplay, execute, read_result};

#[derive(clap::Args)]
#[command(after_long_help = "\
A run folder has config.toml (all settings), metrics.jsonl (a line per epoch), checkpoint.eqp and previous.eqp, best.eqp if a best epoch \
is selected, result.json, report.html (the report page), the records behind it (norms.jsonl, times.jsonl, details.json) and TensorBoard \
events. It is never overwritten. Ctrl-C saves the run and prints how to continue; a killed run continues from its last checkpoint. Either \
way the run ends as if it had never stopped, bit for bit.

The test split selects nothing: the best epoch is selected on a validation split (--val-fraction 0.1, or that of the dataset). Without \
one, the last epoch is reported. The preset `paper` also reports the best epoch on the test split, as the paper does, and says so.

To choose settings without looking at the test split, compare runs on images that are held out (--val 0.1); then --refit trains on all \
training images with the settings of the run that was best: same epochs, no validation split, the last epoch counts.

A dataset that is too small for a test split is cross-validated: --folds 5 trains five networks, each on four fifths of every class, and every \
image is tested by the one that has not seen it. --repeats 2 does so twice, with other folds.

Examples:
  equipoise train
  equipoise train cifar10 --imbalance 100 --criterion cwap --model resnet32 --epochs 200
  equipoise train path/to/images --val-fraction 0.1 --set augment.randaugment=[2,9]
  equipoise train path/to/photos --model resnet50 --image-size 160 --batch-size 32 --lr 0.05 -o runs/photos
  equipoise train cifar10 --imbalance 100 --val 0.1 -o runs/held-out && equipoise train --refit runs/held-out
  equipoise train features.safetensors --criterion balanced-softmax
  equipoise train embeddings.npy --labels labels.csv --model cosine
  equipoise train --resume runs/fashion-mini-balanced-softmax-resnet32-s0
  equipoise train --from runs/my-images-softmax-resnet32-s0 --retrain-head
  equipoise train path/to/few/images --folds 5 --repeats 2
  equipoise train --config recommended --print-config")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Criterion to train with; `equipoise criteria` lists them [default: balanced-softmax]
    #[arg(long, value_name = "ID")]
    criterion: Option<Id>,
    /// Run folder [default: a new one in runs/]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Continue the run in this folder; name the dataset if it has moved. --epochs gives it another number of epochs, if its schedule
    /// allows that
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "model", "imbalance", "batch_size", "precision", "lr", "seed", "val", "val_fraction", "image_size", "path_column", "label_column", "labels", "test_data", "val_data", "group_by", "test_fraction", "strict", "weights", "freeze_backbone", "preset", "config", "set", "criterion"])]
    pub(crate) resume: Option<PathBuf>,
    /// Run whose data, network and settings a second stage starts from; needs --retrain-head
    #[arg(long, value_name = "DIR", requires = "retrain_head", conflicts_with_all = ["resume", "refit", "weights", "freeze_backbone", "config"])]
    from: Option<PathBuf>,
    /// Train a new head on the frozen network of --from: 10 epochs of balanced-softmax with a cosine schedule, unless options say
    /// otherwise (cRT, Kang et al., ICLR 2020)
    #[arg(long, requires = "from")]
    retrain_head: bool,
    /// Train on all training images with the settings of this finished run, which held some out (--val)
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume", "model", "imbalance", "epochs", "batch_size", "precision", "lr", "val", "val_fraction", "image_size", "path_column", "label_column", "labels", "test_data", "val_data", "group_by", "test_fraction", "strict", "weights", "freeze_backbone", "preset", "config", "set", "criterion"])]
    refit: Option<PathBuf>,
    /// Cross-validation, for datasets that are too small for a test split: K runs, each of which tests on a K-th of the images. Figures are those
    /// of all images, and --output may name the folder of a cross-validation that was stopped
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..=1000), conflicts_with_all = ["resume", "refit", "from", "test_data", "test_fraction", "print_config"])]
    folds: Option<u32>,
    /// Repeat the cross-validation with other folds
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "folds", default_value_t = 1)]
    repeats: u32,
    /// Print the settings as TOML and exit
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Minutes between checkpoints within an epoch
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub(crate) checkpoint_minutes: f64,
    /// Open the report in a browser when the run has ended
    #[arg(long)]
    open: bool,
    /// Do not show progress
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let save_every = save_every(args)?;
    if args.print_config {
        return print_config(args, out);
    }
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    if let Some(folds) = args.folds {
        return run_folds(args, folds, &environment, out);
    }
    let context = environment.context();
    let mut run = match (&args.resume, &args.output) {
        (Some(path), _) => match resume(args, path, &context)? {
            Resumed::Run(run) => *run,
            Resumed::Finished(result) => return show_result(args, &result, path, out),
        },
        (None, path) => {
            let settings = settings(args)?;
            args.settings.note_data(&settings)?;
            let output = path.as_deref().map_or(OutputFolder::In(Path::new("runs")), OutputFolder::At);
            Run::start(settings, output, &context)?
        }
    };
    if !args.quiet {
        introduce(&run.trainer, &run.folder);
    }
    let path = run.folder.path().to_owned();
    let options = DisplayOptions { quiet: args.quiet, epoch_lines: true, save_every };
    let mut display = RunDisplay::new("", run.trainer.settings().epochs, options);
    let resume = format!("equipoise train --resume {}{}", quoted(&path), args.settings.root.typed());
    let result = execute(&mut run.trainer, &run.folder, &mut display, LiveFolder::OfRun, &resume)?;
    let report = write_report(std::slice::from_ref(&path), &run.folder)?;
    if args.open {
        open_in_browser(&report.page)?;
    }
    show_result(args, &result, &path, out)
}

/// A repeated cross-validation.
fn run_folds(args: &Args, folds: u32, environment: &Environment, out: &mut impl Write) -> Result<(), Failure> {
    let settings = settings(args)?;
    args.settings.note_data(&settings)?;
    let name = format!("cv{folds}");
    let (repeats, quiet) = (args.repeats, args.quiet);
    let plan = Plan { folds, repeats, output: args.output.as_deref(), quiet, name: &name, title: "" };
    let validated = cross_validate(&settings, plan, environment)?;
    let figures = validated.out_of_fold.figures();
    let page = validated.write_report(&settings, &figures, plan)?;
    let groups = settings.groups.groups(&validated.out_of_fold.counts);
    let folder = &validated.folder;
    folder.write("classes.csv", classes_csv(&figures.metrics, &groups, false).as_bytes())?;
    let seconds: f64 = validated.results.iter().map(|run| run.seconds).sum();
    let images: u64 = validated.out_of_fold.counts.iter().sum();
    let by_repeat = |value: fn(&Metrics) -> Option<f64>| figures.repeats.iter().map(value).collect::<Vec<_>>();
    let summary = json!({
        "folds": folds, "repeats": repeats, "images": images, "metrics": with_intervals(&figures.metrics),
        "top1_by_repeat": by_repeat(|metrics| metrics.top1), "balanced_by_repeat": by_repeat(|metrics| metrics.balanced),
        "seconds": seconds, "folder": folder.path().display().to_string(),
    });
    folder.write("cross-validation.json", (serde_json::to_string_pretty(&summary)? + "\n").as_bytes())?;
    if args.open {
        open_in_browser(&page)?;
    }
    if args.json {
        return Ok(writeln!(out, "{summary}")?);
    }
    let examples = Examples::of_model(validated.results.first().map_or("", |run| run.model.as_str()));
    let repeated =
        if repeats > 1 { format!(", repeated {repeats} times: means over the repetitions") } else { String::new() };
    writeln!(out, "{}, each tested once in {folds} folds{repeated}", examples.counted(images, ""))?;
    print_classes(&figures.metrics, examples, out)?;
    print_averages(&figures.metrics, None, examples, out)?;
    if repeats > 1 {
        let list = |values: Vec<Option<f64>>| values.into_iter().map(percent).collect::<Vec<_>>().join(", ");
        writeln!(out, "balanced, by repetition: {}", list(by_repeat(|metrics| metrics.balanced)))?;
    }
    let (time, path) = (duration(seconds), folder.path().display());
    Ok(writeln!(out, "{time} in total; the runs are in {path}, their report is {}", quoted(&page))?)
}

/// Time between checkpoints within an epoch.
pub(crate) fn save_every(args: &Args) -> Result<Duration, Failure> {
    let minutes = args.checkpoint_minutes;
    match (0.0..=1e6).contains(&minutes) {
        true => Ok(Duration::from_secs_f64(60.0 * minutes)),
        false => Err(Failure::usage(format!("--checkpoint-minutes {minutes}: must be at least 0"))),
    }
}

/// Prints the settings, if `train` would accept them.
pub(crate) fn print_config(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let settings = settings(args)?;
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    check(&settings, &environment.context())?;
    if let Some(path) =
        args.output.as_deref().filter(|path| path.read_dir().is_ok_and(|mut entries| entries.next().is_some()))
    {
        return Err(FolderError::NotEmpty { path: path.to_owned() }.into());
    }
    Ok(write!(out, "{}", settings.to_commented_toml()?)?)
}

/// A run that `--resume` names.
enum Resumed {
    /// A run to train on.
    Run(Box<Run>),
    /// The result of a run that has nothing left to train.
    Finished(Box<RunResult>),
}

/// Opens a run to train on, with another number of epochs if the options ask for that.
fn resume(args: &Args, path: &Path, context: &RunContext<'_>) -> Result<Resumed, Failure> {
    let (data, planned) = (args.settings.data.as_deref(), settings_of_run(path)?);
    let epochs = args.settings.epochs.filter(|epochs| *epochs != planned.epochs);
    if epochs.is_none() && is_run(path) && path.join(RESULT).exists() {
        note(&format!("{} is finished; this is its result", path.display()));
        complete_report(path)?;
        return Ok(Resumed::Finished(Box::new(read_result(path, &planned)?)));
    }
    let Some(epochs) = epochs else { return Ok(Resumed::Run(Box::new(Run::resume(path, data, context)?))) };
    let run = Run::extend(path, epochs, data, context)?;
    note(&format!(
        "{0} instead of {1}: the learning rate goes on as at the end, and the weights will be those of a run with {0} from its start",
        counted(epochs as usize, "epoch"),
        planned.epochs
    ));
    Ok(Resumed::Run(Box::new(run)))
}

/// Writes the report of a finished run again, in case its process was killed before the report was complete. A folder that is in use,
/// or cannot be written to, stays as it is.
fn complete_report(path: &Path) -> Result<(), Failure> {
    match RunFolder::open(path) {
        Ok(folder) => write_report(&[path.to_owned()], &folder).map(drop),
        Err(_) => Ok(()),
    }
}

pub(crate) fn show_result(args: &Args, result: &RunResult, folder: &Path, out: &mut impl Write) -> Result<(), Failure> {
    match args.json {
        true => Ok(writeln!(out, "{}", serde_json::to_string(result)?)?),
        false => print_result(result, folder, out),
    }
}

/// The settings in a run folder.
pub(crate) fn settings_of_run(path: &Path) -> Result<Settings, Failure> {
    if !is_run(path) {
        // says why
        RunFolder::open(path)?;
    }
    let config = path.join(CONFIG);
    let settings = Settings::from_toml(&read_config(path)?, &Settings::default());
    settings.map_err(|error| Failure::from(error).about(&config.display().to_string()))
}

/// The settings of the run that the options ask for.
pub(crate) fn settings(args: &Args) -> Result<Settings, Failure> {
    match (&args.resume, &args.refit) {
        (Some(path), _) => {
            let planned = settings_of_run(path)?;
            let epochs = args.settings.epochs.unwrap_or(planned.epochs);
            Ok(Settings { epochs, ..planned })
        }
        (None, Some(path)) => {
            let option = format!("--refit {}", path.display());
            if !path.join(RESULT).exists() {
                return Err(Failure::usage(format!("{option}: there is no finished run in this folder")));
            }
            let settings = settings_of_run(path)?.refit().map_err(|error| Failure::from(error).about(&option))?;
            args.settings.settings(settings, None)
        }
        (None, None) => args.settings.settings(base(args)?, args.criterion),
    }
}

/// The settings that options change: the defaults, or those that re-train the head of a run.
fn base(args: &Args) -> Result<Settings, Failure> {
    let Some(run) = &args.from else { return Ok(Settings::default()) };
    let settings = settings_of_run(run)?;
    if settings.architecture().is_for_features() {
        let what = "the run has no backbone: it is a head on features, which `train` trains anew in seconds";
        return Err(Failure::usage(format!("--from {}: {what}", quoted(run))));
    }
    warn_if_untrained(&checkpoints::read(run)?.header);
    Ok(settings.retrain_head(&run.display().to_string()))
}

/// One line about the run before it starts.
pub(crate) fn introduce<E: Engine, W: Workers>(trainer: &Trainer<E, W>, folder: &RunFolder) {
    let (data, settings) = (trainer.data(), trainer.settings());
    let examples = Examples::of_features(data.train.loader.is_of_features());
    let (sizes, classes) = (split_sizes(data, examples), counted(data.classes.len(), "class"));
    let (criterion, model) = (criterion(&settings.criterion), settings.architecture());
    let network = match (examples, data.train.loader.shape()) {
        (Examples::Rows, (features, ..)) => format!("{model} on {}", counted(features, "feature")),
        (Examples::Images, (_, height, width)) => format!("{model} at {height} x {width}"),
    };
    let precision = settings.precision;
    let network = if precision == Precision::F32 { network } else { format!("{network} in {precision}") };
    note(&format!("{}: {sizes}, {classes}; {criterion}, {network}; in {}", data.name, folder.path().display()));
    cluster::introduce(trainer.threads(), examples);
}

/// How many examples every split has.
fn split_sizes(data: &RunData, examples: Examples) -> String {
    let mut sizes = vec![format!("{} training", data.train.labels.len())];
    sizes.extend(data.val.as_ref().map(|val| format!("{} validation", val.labels.len())));
    let test = data.test.labels.len() as u64;
    format!("{} and {}", sizes.join(", "), examples.counted(test, "test"))
}

/// The criterion with its preset, unless all are the same.
fn criterion(config: &Config) -> String {
    let (id, (preset, changed)) = (config.method.id(), config.method.nearest_preset());
    let differ = Preset::ALL.iter().any(|other| id.preset(*other) != id.default_config());
    let preset = differ.then(|| format!("preset {}", preset.name()));
    match preset.into_iter().chain(changed).collect::<Vec<_>>() {
        notes if notes.is_empty() => id.to_string(),
        notes => format!("{id} ({})", notes.join(", ")),
    }
}

fn print_result(result: &RunResult, folder: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let many = Examples::of_model(&result.model).many();
    let best = result.best_selected_on.map_or("best epoch", SelectionSplit::best_epoch);
    for (epoch, which) in [(&result.last, "last epoch"), (&result.best, best)] {
        let Some(epoch) = epoch else { continue };
        let metrics = &epoch.metrics;
        if metrics.per_class.iter().all(|class| class.test == 0) {
            let figures = match epoch.val_balanced {
                Some(val) => format!("balanced {val:.1} on validation {many}, no test {many}"),
                None => format!("trained on everything, no test {many}"),
            };
            writeln!(out, "{which} ({}): {figures}", epoch.epoch)?;
            continue;
        }
        let groups = metrics.several_groups().iter();
        let groups = groups.map(|group| format!("{} {}, ", group.name, percent(group.accuracy)));
        let groups: String = groups.collect();
        let (overall, balanced) = (percent(metrics.top1), percent(metrics.balanced));
        let val =
            epoch.val_balanced.map_or_else(String::new, |val| format!("; balanced {val:.1} on validation {many}"));
        writeln!(out, "{which} ({}): {groups}overall {overall}, balanced {balanced}{val}", epoch.epoch)?;
    }
    if let (true, Some(last)) = (result.stopped_early, &result.last) {
        let (done, planned) = (last.epoch, result.epochs);
        writeln!(
            out,
            "stopped early, after {done} of {planned} epochs: the validation split no longer improved (patience)"
        )?;
    }
    if result.logit_adjustment > 0.0 {
        writeln!(out, "logits were adjusted after training, tau {}", result.logit_adjustment)?;
    }
    let (time, speed) = (duration(result.seconds), result.images_per_second);
    // lbfgs has no steps to measure
    let speed = if speed > 0.0 { format!(", {speed:.0} {many}/s in training") } else { String::new() };
    writeln!(out, "{time}{speed}; the run is in {}, its report in {REPORT}", folder.display())?;
    Ok(())
}
