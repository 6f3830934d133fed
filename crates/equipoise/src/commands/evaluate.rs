//! `equipoise evaluate`: metrics of a trained run.

use std::io::Write;
use std::path::{Path, PathBuf};

use equipoise_data::describe::groups::GroupRule;
use equipoise_record::Metrics;
use equipoise_report::csv_field;
use equipoise_train::run::dataset::SplitChoice;
use equipoise_train::run::evaluation::{EvaluationOptions, ImagePrediction, evaluate_checkpoint};
use serde_json::json;

use crate::checkpoints::{self, describe, selected_by, warn_if_untrained, warn_of_second_correction};
use crate::failure::Failure;
use crate::options::{ColumnArgs, Environment, PostHocArgs, RootArgs, ThreadArgs, Tta};
use crate::output::{counted, percent, printable, write_file};

#[derive(clap::Args)]
#[command(after_long_help = "\
The best checkpoint is used if the run has one, else the newest. The dataset is that of the run unless another one is named: its test \
split is evaluated if it has one, else all of its images. Its classes are matched by name, and it need not have all of them. Two \
corrections can be applied after training: --tau-norm divides the weights of each class in a linear head by their norm to the power of \
tau and drops the bias (Kang et al., ICLR 2020); --logit-adjustment subtracts tau times the log of the class's share of the training images \
(Menon et al., ICLR 2021), which is for softmax and other criteria that do not correct for class sizes in training. --tta flip averages the logits of every image and its mirror image.

Examples:
  equipoise evaluate runs/fashion-mini-balanced-softmax-resnet32-s0
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 path/to/new/images
  equipoise evaluate runs/cifar10-if100-softmax-resnet32-s0 --logit-adjustment 1 --json
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 --predictions predictions.csv")]
pub(crate) struct Args {
    /// Run folder or checkpoint
    run: PathBuf,
    /// Name of a dataset or a path [default: the dataset of the run]
    data: Option<String>,
    /// Images to evaluate: train, val, test or all [default: test; all for a dataset without a test split]
    #[arg(long, value_name = "SPLIT")]
    split: Option<SplitChoice>,
    #[command(flatten)]
    columns: ColumnArgs,
    #[command(flatten)]
    post_hoc: PostHocArgs,
    /// Write a CSV file with the label, the prediction and their probabilities of every image
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Write CSV texts as they are, even if a spreadsheet would run them as formulas
    #[arg(long, requires = "predictions")]
    raw: bool,
    /// How classes are grouped: rank:K, mass:K or threshold [default: as in the run]
    #[arg(long, value_name = "RULE")]
    groups: Option<GroupRule>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    root: RootArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    args.post_hoc.check()?;
    let checkpoint = checkpoints::read(&args.run)?;
    warn_if_untrained(&checkpoint.header);
    warn_of_second_correction(&checkpoint.header, args.post_hoc);
    let header = checkpoint.header.clone();
    let environment = Environment::new(args.threads, &args.root)?;
    let options = EvaluationOptions {
        dataset: args.data.clone(),
        split: args.split,
        path_column: args.columns.path_column.clone(),
        label_column: args.columns.label_column.clone(),
        labels: args.columns.labels.clone(),
        groups: args.groups,
        logit_adjustment: args.post_hoc.logit_adjustment,
        tau_norm: args.post_hoc.tau_norm,
        tta: args.post_hoc.tta.into(),
        predictions: args.predictions.is_some(),
    };
    let evaluation = evaluate_checkpoint(checkpoint, &options, &environment.context())?;
    if let Some(path) = &args.predictions {
        write_predictions(path, &evaluation.predictions, &header.classes, args.raw)?;
    }
    let tau = evaluation.logit_adjustment;
    if args.json {
        let line = json!({
            "run": args.run.display().to_string(), "dataset": evaluation.dataset, "split": evaluation.split.to_string(),
            "images": evaluation.images, "epoch": header.position.epoch,
            "selected": selected_by(&header), "own": args.data.is_none(), "logit_adjustment": tau,
            "tau_norm": args.post_hoc.tau_norm, "tta": (args.post_hoc.tta == Tta::Flip).then_some("flip"), "metrics": evaluation.metrics, "confusion": evaluation.confusion,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let (dataset, images) = (printable(&evaluation.dataset), evaluation.images);
    let images = match evaluation.split {
        SplitChoice::Train => counted(images, "training image"),
        SplitChoice::Val => counted(images, "validation image"),
        SplitChoice::Test => counted(images, "test image"),
        SplitChoice::All => format!("all {}", counted(images, "image")),
    };
    writeln!(out, "{dataset}: {images}, {}", describe(&header))?;
    if tau > 0.0 {
        writeln!(out, "logits adjusted, tau {tau}")?;
    }
    if args.post_hoc.tau_norm > 0.0 {
        writeln!(out, "weights of the head normalized, tau {}, without bias", args.post_hoc.tau_norm)?;
    }
    if args.post_hoc.tta == Tta::Flip {
        writeln!(out, "logits averaged over images and their mirror images")?;
    }
    print_classes(&evaluation.metrics, out)?;
    print_averages(&evaluation.metrics, out)
}

/// Writes the prediction of every image as CSV.
fn write_predictions(path: &Path, images: &[ImagePrediction], classes: &[String], raw: bool) -> Result<(), Failure> {
    let mut text = "path,label,prediction,probability,label_probability\n".to_owned();
    for image in images {
        let [name, label, prediction] =
            [&image.name, &classes[image.label], &classes[image.predicted]].map(|text| csv_field(text, raw));
        let (probability, of_label) = (image.probability, image.label_probability);
        text += &format!("{name},{label},{prediction},{probability:.6},{of_label:.6}\n");
    }
    write_file(path, text.as_bytes())
}

/// Accuracy by class, the largest class first.
fn print_classes(metrics: &Metrics, out: &mut impl Write) -> Result<(), Failure> {
    const SHOWN: usize = 40;
    let width = metrics.per_class.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).clamp(5, 30);
    writeln!(out, "\n{:<width$} {:>7} {:>7} {:>9}", "class", "train", "images", "accuracy")?;
    let mut classes: Vec<_> = metrics.per_class.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.train));
    for (rank, class) in classes.iter().enumerate() {
        if classes.len() > SHOWN && (SHOWN / 2..classes.len() - SHOWN / 2).contains(&rank) {
            if rank == SHOWN / 2 {
                writeln!(out, "... {} more classes (--json lists all) ...", classes.len() - SHOWN)?;
            }
            continue;
        }
        let name: String = printable(&class.name).chars().take(width).collect();
        let accuracy = (class.test > 0).then(|| 100.0 * class.hits as f64 / class.test as f64);
        writeln!(out, "{name:<width$} {:>7} {:>7} {:>9}", class.train, class.test, percent(accuracy))?;
    }
    Ok(writeln!(out)?)
}

/// Metrics over several classes.
fn print_averages(metrics: &Metrics, out: &mut impl Write) -> Result<(), Failure> {
    let groups = metrics.several_groups().iter().map(|group| (group.name.as_str(), group.accuracy));
    let averages = [
        ("overall", metrics.top1),
        ("top 5", metrics.top5),
        ("balanced", metrics.balanced),
        ("macro F1", metrics.macro_f1),
        ("calibration error", metrics.calibration),
    ];
    for (name, value) in groups.chain(averages) {
        writeln!(out, "{name:<20}{:>6}", percent(value))?;
    }
    if metrics.unusable > 0 {
        writeln!(out, "{} images have logits that are not finite and count as misclassified", metrics.unusable)?;
    }
    let loss = metrics.loss.map_or_else(|| "n/a".to_owned(), |loss| format!("{loss:.3}"));
    Ok(writeln!(out, "{:<20}{loss:>6}", "cross-entropy")?)
}
