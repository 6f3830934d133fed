//! `equipoise evaluate`: metrics of a trained run.

use std::io::Write;
use std::path::{Path, PathBuf};

use equipoise_data::describe::groups::GroupRule;
use equipoise_record::{Calibration, Metrics};
use equipoise_report::csv_field;
use equipoise_support::Examples;
use equipoise_train::checkpoint::CheckpointHeader;
use equipoise_train::decision::{GroupRejections, GroupSets, RejectionFigures, SetFigures};
use equipoise_train::run::dataset::SplitChoice;
use equipoise_train::run::evaluation::{Evaluation, EvaluationOptions, ImagePrediction, evaluate_checkpoint};
use serde_json::{Value, json};

use crate::checkpoints::{self, describe, selected_by, warn_if_untrained, warn_of_second_correction};
use crate::cluster;
use crate::decisions::{CautionArgs, ProbabilityArgs, calibration_sentence, promise, warn_of_rough_prior};
use crate::failure::Failure;
use crate::figures::{classes_csv, interval_percent, print_averages, print_classes, with_intervals};
use crate::options::{ColumnArgs, Environment, PostHocArgs, PrecisionArg, RootArgs, ThreadArgs, Tta};
use crate::output::{percent, printable, refuse_inputs, write_file};
use crate::signals::when_interrupted;

#[derive(clap::Args)]
#[command(after_long_help = "\
The best checkpoint is used if the run has one, else the newest. The dataset is that of the run unless another one is named: its test \
split is evaluated if it has one, else all of its images. Its classes are matched by name, and it need not have all of them. Two \
corrections can be applied after training: --tau-norm divides the weights of each class in a linear head by their norm to the power of \
tau and drops the bias (Kang et al., ICLR 2020); --logit-adjustment subtracts tau times the log of the class's share of the training images \
(Menon et al., ICLR 2021), which is for softmax and other criteria that do not correct for class sizes in training. --tta flip averages the logits of every image and its mirror image.

Every rate has a 95 % interval (Wilson). Probabilities are calibrated if the run is (`equipoise calibrate`). --prior evaluates predictions for a \
place where the classes have other shares; --sweep shows what rare classes gain and frequent ones lose on the way there. --sets and --reject show \
what prediction sets and rejections would do on these images.

Examples:
  equipoise evaluate runs/fashion-mini-balanced-softmax-resnet32-s0
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 path/to/new/images
  equipoise evaluate runs/cifar10-if100-softmax-resnet32-s0 --logit-adjustment 1 --json
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 --predictions predictions.csv
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 --prior train --sets 0.1 --reject 0.05
  equipoise evaluate runs/my-images-balanced-softmax-resnet32-s0 --split val --sweep")]
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
    #[command(flatten)]
    probabilities: ProbabilityArgs,
    #[command(flatten)]
    caution: CautionArgs,
    /// Show accuracy by group for predictions that favor rare classes less or more; --sweep=FILE writes it as CSV
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    sweep: Option<PathBuf>,
    /// Write a CSV file with the figures of every class and their intervals
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// Write a CSV file with the label, the prediction and their probabilities of every image
    #[arg(long, value_name = "FILE")]
    predictions: Option<PathBuf>,
    /// Write CSV texts as they are, even if a spreadsheet would run them as formulas
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    precision: PrecisionArg,
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
    args.post_hoc.check_prior(&args.probabilities)?;
    if args.raw && args.predictions.is_none() && args.classes.is_none() {
        return Err(Failure::usage("--raw is about CSV files; name one with --predictions or --classes"));
    }
    let mut checkpoint = checkpoints::read(&args.run)?;
    args.precision.apply(&mut checkpoint.header);
    warn_if_untrained(&checkpoint.header);
    warn_of_second_correction(&checkpoint.header, args.post_hoc);
    let header = checkpoint.header.clone();
    let own = &header.settings.data;
    let read = [args.data.as_ref(), Some(&own.dataset), own.test_data.as_ref(), own.val_data.as_ref()];
    let read: Vec<PathBuf> = read.into_iter().flatten().map(PathBuf::from).collect();
    for written in [&args.predictions, &args.classes] {
        refuse_inputs(written.as_deref(), &read)?;
    }
    let environment = Environment::new(args.threads, &args.root)?;
    let decision = args.probabilities.decision(&args.run, &header, Some(args.caution), args.post_hoc.tau_norm)?;
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
        decision,
        logits: false,
    };
    cluster::introduce(environment.pool.threads(), Examples::Images);
    when_interrupted("interrupted; nothing was written");
    let evaluation = evaluate_checkpoint(checkpoint, &options, &environment.context())?;
    warn_of_rough_prior(&header, &options.decision.prior, evaluation.prior_is_exact);
    if let Some(path) = &args.predictions {
        write_file(path, predictions_csv(args, &evaluation.predictions, &header.classes).as_bytes())?;
    }
    if let Some(path) = &args.classes {
        write_file(path, classes_csv(&evaluation.metrics, &evaluation.groups, args.raw).as_bytes())?;
    }
    if let Some(path) = args.sweep.as_deref().filter(|path| *path != Path::new("-")) {
        write_file(path, sweep_csv(&evaluation).as_bytes())?;
    }
    match args.json {
        true => Ok(writeln!(out, "{}", summary(args, &evaluation, &header, &options))?),
        false => print(args, &evaluation, &header, &options, out),
    }
}

/// The evaluation for programs.
fn summary(args: &Args, evaluation: &Evaluation, header: &CheckpointHeader, options: &EvaluationOptions) -> Value {
    let mut metrics = with_intervals(&evaluation.metrics);
    if let (Some(sets), Some(classes)) = (&evaluation.sets, metrics["per_class"].as_array_mut()) {
        for ((class, guarantee), [images, covered, sizes]) in
            classes.iter_mut().zip(&sets.guarantees).zip(&sets.classes)
        {
            class["sets"] = json!({
                "guarantee": guarantee.name(),
                "coverage_interval": interval_percent(*covered, *images),
                "mean_size": (*images > 0).then(|| *sizes as f64 / *images as f64),
            });
        }
    }
    let calibration = options.decision.calibration.as_ref();
    let mut line = json!({
        "run": args.run.display().to_string(), "dataset": evaluation.dataset, "split": evaluation.split.to_string(),
        "images": evaluation.images, "epoch": header.position.epoch,
        "selected": selected_by(header), "own": args.data.is_none(), "logit_adjustment": evaluation.logit_adjustment,
        "tau_norm": args.post_hoc.tau_norm, "tta": (args.post_hoc.tta == Tta::Flip).then_some("flip"), "precision": header.settings.precision,
        "temperature": calibration.map(|calibration| calibration.temperature),
        "temperature_fit": calibration.map(|calibration| calibration.fit),
        "prior": args.probabilities.prior,
        "metrics": metrics, "confusion": evaluation.confusion,
    });
    if calibration.is_some_and(Calibration::is_fitted) {
        let Metrics { calibration, loss, .. } = &evaluation.uncalibrated;
        line["uncalibrated"] = json!({"calibration": calibration, "loss": loss});
    }
    if args.sweep.is_some() {
        line["sweep"] = json!(evaluation.sweep);
    }
    if let Some(sets) = &evaluation.sets {
        let group = |group: &GroupSets| {
            let GroupSets { name, coverage, size, own, classes } = group;
            json!({"name": name, "coverage": coverage.map(|share| 100.0 * share), "mean_size": size, "own_guarantee": own, "classes": classes})
        };
        line["sets"] = json!({"alpha": args.caution.sets, "groups": sets.groups.iter().map(group).collect::<Vec<_>>()});
    }
    if let Some(rejection) = &evaluation.rejection {
        let group = |group: &GroupRejections| {
            let [right, wrong, accuracy] =
                [group.right, group.wrong, group.accuracy].map(|share| share.map(|x| 100.0 * x));
            json!({"name": group.name, "rejected_right": right, "rejected_wrong": wrong, "accuracy_of_the_rest": accuracy, "sparse": group.sparse})
        };
        let groups: Vec<_> = rejection.groups.iter().map(group).collect();
        line["rejection"] = json!({"rate": args.caution.reject, "groups": groups});
    }
    line
}

/// The evaluation for people.
fn print(
    args: &Args,
    evaluation: &Evaluation,
    header: &CheckpointHeader,
    options: &EvaluationOptions,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (dataset, images) = (printable(&evaluation.dataset), evaluation.images as u64);
    let examples = Examples::of_features(header.network.is_on_features());
    let images = match evaluation.split {
        SplitChoice::Train => examples.counted(images, "training"),
        SplitChoice::Val => examples.counted(images, "validation"),
        SplitChoice::Test => examples.counted(images, "test"),
        SplitChoice::All => format!("all {}", examples.counted(images, "")),
    };
    writeln!(out, "{dataset}: {images}, {}", describe(header))?;
    if evaluation.logit_adjustment > 0.0 {
        writeln!(out, "logits adjusted, tau {}", evaluation.logit_adjustment)?;
    }
    if args.post_hoc.tau_norm > 0.0 {
        writeln!(out, "weights of the head normalized, tau {}, without bias", args.post_hoc.tau_norm)?;
    }
    if args.post_hoc.tta == Tta::Flip {
        writeln!(out, "logits averaged over images and their mirror images")?;
    }
    if let Some(prior) = &args.probabilities.prior {
        writeln!(out, "predictions for the prior {}", printable(prior))?;
    }
    if let Some(calibration) = &options.decision.calibration {
        writeln!(out, "{}", printable(&calibration_sentence(calibration, examples)))?;
    }
    print_classes(&evaluation.metrics, examples, out)?;
    let fitted = options.decision.calibration.as_ref().filter(|calibration| calibration.is_fitted());
    let before = fitted.map(|_| &evaluation.uncalibrated);
    print_averages(&evaluation.metrics, before, examples, out)?;
    if let (Some(alpha), Some(sets)) = (args.caution.sets, &evaluation.sets) {
        print_sets(alpha, sets, examples, out)?;
    }
    if let (Some(rate), Some(rejection)) = (args.caution.reject, &evaluation.rejection) {
        print_rejection(rate, rejection, examples, out)?;
    }
    if args.sweep.as_deref() == Some(Path::new("-")) {
        print_sweep(evaluation, examples, out)?;
    }
    Ok(())
}

/// The prediction of every image.
fn predictions_csv(args: &Args, images: &[ImagePrediction], classes: &[String]) -> String {
    let (sets, rejects) = (args.caution.sets.is_some(), args.caution.reject.is_some());
    let mut text = "path,label,prediction,probability,label_probability".to_owned();
    text += if sets { ",set" } else { "" };
    text += if rejects { ",rejected\n" } else { "\n" };
    for image in images {
        let [name, label, prediction] =
            [&image.name, &classes[image.label], &classes[image.predicted]].map(|text| csv_field(text, args.raw));
        let (probability, of_label) = (image.probability, image.label_probability);
        text += &format!("{name},{label},{prediction},{probability:.6},{of_label:.6}");
        if let Some(set) = &image.set {
            let set: Vec<&str> = set.iter().map(|class| classes[*class].as_str()).collect();
            text += &format!(",{}", csv_field(&set.join("|"), args.raw));
        }
        if rejects {
            text += if image.rejected { ",yes" } else { ",no" };
        }
        text += "\n";
    }
    text
}

/// The trade-off between frequent and rare classes.
fn sweep_csv(evaluation: &Evaluation) -> String {
    let names: Vec<String> = evaluation.groups.iter().map(|group| csv_field(&group.name, false)).collect();
    let mut text = format!("strength,{},overall,balanced\n", names.join(","));
    let number = |x: &Option<f64>| x.map_or_else(String::new, |x| format!("{x:.4}"));
    for point in &evaluation.sweep {
        let values: Vec<String> = point.groups.iter().chain([&point.top1, &point.balanced]).map(number).collect();
        text += &format!("{},{}\n", point.strength, values.join(","));
    }
    text
}

fn print_sets(alpha: f64, sets: &SetFigures, examples: Examples, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "\nprediction sets, --sets {alpha}: {}", promise(alpha, &sets.guarantees, examples))?;
    writeln!(out, "{:<20}{:>9} {:>10} {:>22}", "group", "coverage", "mean size", "promise by class for")?;
    for group in &sets.groups {
        let size = group.size.map_or_else(|| "n/a".to_owned(), |size| format!("{size:.2}"));
        let (coverage, own) =
            (percent(group.coverage.map(|x| 100.0 * x)), format!("{} of {}", group.own, group.classes));
        writeln!(out, "{:<20}{coverage:>9} {size:>10} {own:>22}", printable(&group.name))?;
    }
    Ok(())
}

fn print_rejection(
    rate: f64,
    rejection: &RejectionFigures,
    examples: Examples,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let many = examples.many();
    writeln!(out, "\nrejected as none of the classes, --reject {rate}, in % of the {many} of each group")?;
    let sparse = format!("  (too few calibration {many}: rejected only below all of them)");
    writeln!(out, "{:<20}{:>14} {:>14} {:>21}", "group", "right answers", "wrong answers", "accuracy of the rest")?;
    for group in &rejection.groups {
        let [right, wrong, rest] = [group.right, group.wrong, group.accuracy].map(|x| percent(x.map(|x| 100.0 * x)));
        let remark = if group.sparse { sparse.as_str() } else { "" };
        writeln!(out, "{:<20}{right:>14} {wrong:>14} {rest:>21}{remark}", printable(&group.name))?;
    }
    Ok(())
}

fn print_sweep(evaluation: &Evaluation, examples: Examples, out: &mut impl Write) -> Result<(), Failure> {
    let many = examples.many();
    writeln!(
        out,
        "\naccuracy by strength: 0 predicts for the shares of the training {many}, 1 for equally frequent classes, more favors rare ones further"
    )?;
    let names = evaluation.groups.iter().map(|group| printable(&group.name).chars().take(12).collect::<String>());
    let header: String =
        names.chain(["overall", "balanced"].map(str::to_owned)).map(|name| format!(" {name:>12}")).collect();
    writeln!(out, "{:<8}{header}", "strength")?;
    for point in &evaluation.sweep {
        let values = point.groups.iter().chain([&point.top1, &point.balanced]);
        let values: String = values.map(|value| format!(" {:>12}", percent(*value))).collect();
        writeln!(out, "{:<8}{values}", point.strength)?;
    }
    if evaluation.split == SplitChoice::Test {
        writeln!(
            out,
            "these are test {many}: a strength that is chosen here looks better than it is; choose it with --split val"
        )?;
    }
    Ok(())
}
