//! `equipoise calibrate`: the temperature of a run's probabilities, and what sets and rejections need.

use std::io::Write;
use std::path::PathBuf;

use equipoise_record::names::CALIBRATION;
use equipoise_record::{Calibration, RunFolder};
use equipoise_support::Examples;
use equipoise_train::run::calibration::calibrate_checkpoint;
use equipoise_train::run::dataset::SplitChoice;
use equipoise_train::run::evaluation::EvaluationOptions;

use crate::checkpoints::{self, describe, warn_if_untrained};
use crate::cluster;
use crate::decisions::{calibration_sentence, warn_of_bound};
use crate::failure::Failure;
use crate::options::{ColumnArgs, Environment, RootArgs, ThreadArgs};
use crate::output::{percent, printable};
use crate::reports::write_report;
use crate::signals::when_interrupted;

#[derive(clap::Args)]
#[command(after_long_help = "\
One temperature is fitted on the class-balanced log-loss of images that the run was not trained on: every class counts the same, however few \
images it has. A prior that weighs as much as two images draws it toward 1, and with fewer than 20 images it is 1: that few say nothing \
about probabilities. The log-loss is that of probabilities for equal shares of all classes; the figures that are printed are for the \
shares that the run assumes, and need not fall on the images it was fitted on. The predicted classes stay what they are. The result is calibration.json in the run folder, which `predict`, `evaluate` and \
`export` use from then on; the report shows probabilities before and after. `train` does this by itself at the end of a run that has \
validation images.

Examples:
  equipoise calibrate runs/my-images-balanced-softmax-resnet32-s0
  equipoise calibrate runs/my-images-balanced-softmax-resnet32-s0 path/to/other/images")]
pub(crate) struct Args {
    /// Run folder
    run: PathBuf,
    /// Name of a dataset or a path: images that were not trained on [default: the validation images of the run]
    data: Option<String>,
    /// Images to calibrate on: val or test, and all for another dataset [default: val; for another dataset as `evaluate`]
    #[arg(long, value_name = "SPLIT")]
    split: Option<SplitChoice>,
    #[command(flatten)]
    columns: ColumnArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    root: RootArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let checkpoint = checkpoints::read(&args.run)?;
    let folder = RunFolder::open(&args.run)?;
    warn_if_untrained(&checkpoint.header);
    let environment = Environment::new(args.threads, &args.root)?;
    let images = EvaluationOptions {
        dataset: args.data.clone(),
        split: args.split,
        path_column: args.columns.path_column.clone(),
        label_column: args.columns.label_column.clone(),
        labels: args.columns.labels.clone(),
        ..EvaluationOptions::default()
    };
    cluster::introduce(environment.pool.threads(), Examples::Images);
    when_interrupted("interrupted; nothing was written");
    let calibration = calibrate_checkpoint(&checkpoint, &images, &environment.context())?;
    when_interrupted("interrupted; the calibration may not have been written");
    folder.write(CALIBRATION, (serde_json::to_string(&calibration)? + "\n").as_bytes())?;
    write_report(std::slice::from_ref(&args.run), &folder)?;
    let examples = Examples::of_features(checkpoint.header.network.is_on_features());
    warn_of_bound(&calibration, examples);
    if args.json {
        return Ok(writeln!(out, "{}", serde_json::to_string(&calibration)?)?);
    }
    print(&calibration, &describe(&checkpoint.header), examples, out)
}

fn print(calibration: &Calibration, weights: &str, examples: Examples, out: &mut impl Write) -> Result<(), Failure> {
    if !calibration.is_fitted() {
        return Ok(writeln!(out, "{weights}: {}", printable(&calibration_sentence(calibration, examples)))?);
    }
    let images = examples.counted(calibration.images.labels.len() as u64, "");
    let (temperature, source) = (calibration.temperature, printable(&calibration.source));
    writeln!(out, "{weights}: temperature {temperature:.3}, from {images} ({source})")?;
    let Some(test) = &calibration.test else { return Ok(()) };
    let loss = |loss: Option<f64>| loss.map_or_else(|| "n/a".to_owned(), |loss| format!("{loss:.3}"));
    writeln!(out, "\n{:<30} {:>8} {:>8}", format!("test {}", examples.many()), "before", "after")?;
    let (before, after) = (&test.before, &test.after);
    let rows = [
        ("cross-entropy", loss(before.loss), loss(after.loss)),
        ("cross-entropy by class", loss(before.balanced_loss), loss(after.balanced_loss)),
        ("calibration error", percent(before.calibration), percent(after.calibration)),
    ];
    for (name, before, after) in rows {
        writeln!(out, "{name:<30} {before:>8} {after:>8}")?;
    }
    Ok(())
}
