//! `equipoise predict`: classes and probabilities of images.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use equipoise_data::features::read::{features, is_feature_file};
use equipoise_data::read::image_paths::ImagePaths;
use equipoise_data::{Images, Split};
use equipoise_report::csv_field;
use equipoise_support::Examples;
use equipoise_train::checkpoint::CheckpointHeader;
use equipoise_train::run::prediction::{FilePrediction, PredictionOptions, Predictor};
use serde_json::json;

use crate::checkpoints::{self, warn_if_untrained, warn_of_second_correction};
use crate::cluster;
use crate::decisions::{CautionArgs, ProbabilityArgs, promise, rejection_promise, warn_of_rough_prior};
use crate::failure::Failure;
use crate::options::{PostHocArgs, PrecisionArg, ThreadArgs, image_files};
use crate::output::{note, printable, refuse_inputs, warn, write_file};
use crate::progress::Progress;
use crate::signals::when_interrupted;

#[derive(clap::Args)]
#[command(after_long_help = "\
A PATH is an image; a folder, whose images are found however deep; a list (a .txt file with a path per line, or a CSV, TSV or JSON-lines \
list as `train` reads it, with or without labels; paths are relative to the list or to a folder beside it); a quoted pattern such as \
'photos/**/*.jpg'; or - for paths on standard input. For a run on features, a PATH is a .npy, .npz or \
safetensors file, and every row is predicted.

An image that cannot be read is named and left out; the exit code is 1 then. CSV has the columns path, label and probability, and with \
--top 3 also label_2, probability_2 and so on. A text that a spreadsheet would run as a formula gets a ' in front, unless --raw is given.

Probabilities are calibrated if the run is: `train` does that if there are validation images, and `equipoise calibrate` later. --prior makes \
predictions right for a place where the classes have other shares than the criterion has learned. --sets lists all classes that an image may \
well belong to, and --reject marks images that are probably none of them; both need a calibration, and do not depend on --prior.

Examples:
  equipoise predict runs/my-images-balanced-softmax-resnet32-s0 photo.jpg other.png
  equipoise predict runs/my-images-balanced-softmax-resnet32-s0 photos --top 3 -o labels.csv
  equipoise predict runs/my-images-softmax-resnet32-s0 list.txt --logit-adjustment 1 --json
  equipoise predict runs/my-images-balanced-softmax-resnet32-s0 photos --prior train --sets 0.1 --reject 0.05")]
pub(crate) struct Args {
    /// Run folder or checkpoint
    run: PathBuf,
    /// Images, folders, lists or patterns
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Number of classes to print per image
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    /// Column of a list that names the image files [default: that of the run, or one with a usual name]
    #[arg(long, value_name = "NAME")]
    path_column: Option<String>,
    #[command(flatten)]
    post_hoc: PostHocArgs,
    #[command(flatten)]
    probabilities: ProbabilityArgs,
    #[command(flatten)]
    caution: CautionArgs,
    #[command(flatten)]
    precision: PrecisionArg,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print a line of JSON per image
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV
    #[arg(long)]
    csv: bool,
    /// Write CSV texts as they are, even if a spreadsheet would run them
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Write to a file instead of standard output; its extension decides the format (.csv, .json, .jsonl or .txt) unless an option does
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How predictions are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// For people.
    Text,
    Csv,
    /// An object per line.
    Json,
}

impl Args {
    /// The format that the options ask for, or the file's extension.
    fn format(&self) -> Result<Format, Failure> {
        let extension =
            self.output.as_ref().and_then(|path| path.extension()).map(|e| e.to_string_lossy().to_lowercase());
        let format = match extension.as_deref() {
            _ if self.csv => Format::Csv,
            _ if self.json => Format::Json,
            Some("csv") => Format::Csv,
            Some("json" | "jsonl" | "ndjson") => Format::Json,
            None | Some("txt") => Format::Text,
            Some(other) => {
                let what = format!("--output: .{other} is no format; --csv or --json says what the file holds");
                return Err(Failure::usage(what));
            }
        };
        if self.raw && format != Format::Csv {
            return Err(Failure::usage("--raw is for CSV: add --csv, or name a .csv file"));
        }
        Ok(format)
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    args.post_hoc.check()?;
    args.post_hoc.check_prior(&args.probabilities)?;
    let format = args.format()?;
    refuse_inputs(args.output.as_deref(), &args.paths)?;
    let mut checkpoint = checkpoints::read(&args.run)?;
    args.precision.apply(&mut checkpoint.header);
    warn_if_untrained(&checkpoint.header);
    warn_of_second_correction(&checkpoint.header, args.post_hoc);
    let pool = args.threads.pool()?;
    let (images, files) = match checkpoint.header.network.is_on_features() {
        true => find_features(&args.paths)?,
        false => {
            let files = find_images(args, &checkpoint.header)?;
            (Images::Files(files.clone()), files)
        }
    };
    let header = checkpoint.header.clone();
    let decision = args.probabilities.decision(&args.run, &header, Some(args.caution), args.post_hoc.tau_norm)?;
    let prior = decision.prior.clone();
    let options = PredictionOptions {
        logit_adjustment: args.post_hoc.logit_adjustment,
        tau_norm: args.post_hoc.tau_norm,
        tta: args.post_hoc.tta.into(),
        top: args.top.into(),
        decision,
    };
    let examples = Examples::of_features(header.network.is_on_features());
    match &args.output {
        Some(path) => when_interrupted(&format!("interrupted; {} was not written", path.display())),
        None => {
            when_interrupted("interrupted; the predictions that were printed are complete, and the others are missing");
        }
    }
    let mut predictor = Predictor::new(checkpoint, images, &options, &pool, cluster::processes())?;
    match predictor.processes() {
        1 if cluster::processes().is_some() => {
            note("rank 0 predicts alone: a single batch of images, or rows of features, are not shared out");
        }
        _ => cluster::introduce(pool.threads(), Examples::Images),
    }
    warn_of_rough_prior(&header, &prior, predictor.decision().prior_is_exact);
    if let (Some(alpha), Some(sets)) = (args.caution.sets, predictor.decision().sets()) {
        note(&promise(alpha, sets.guarantees(), examples));
    }
    if let (Some(rate), Some(rejection)) = (args.caution.reject, predictor.decision().rejection()) {
        note(&rejection_promise(rate, rejection, &header.settings.groups.groups(&header.counts), examples));
    }
    let failed = match &args.output {
        None => predict(args, format, &mut predictor, (&files, examples), out)?,
        Some(path) => {
            let mut text = Vec::new();
            let failed = predict(args, format, &mut predictor, (&files, examples), &mut text)?;
            write_file(path, &text)?;
            failed
        }
    };
    match failed {
        0 => Ok(()),
        failed if failed == files.len() => Err(Failure::usage("none of the images can be read")),
        failed => Err(anyhow!("{failed} of {} images cannot be read; the others are predicted", files.len()).into()),
    }
}

/// The rows of features in these files, and a name for each: what it is of, or its file and number.
fn find_features(paths: &[PathBuf]) -> Result<(Images, Vec<PathBuf>), Failure> {
    let (mut splits, mut names) = (Vec::new(), Vec::new());
    for path in paths {
        if !is_feature_file(path) {
            let what = "the run was trained on features: name .npy, .npz or safetensors files (`equipoise embed MODEL IMAGES --unlabeled` computes \
                        them)";
            return Err(Failure::usage(format!("{}: {what}", path.display())));
        }
        let features = features(path)?;
        let name = |row: usize| {
            features.name(row).map_or_else(|| PathBuf::from(format!("{}[{row}]", path.display())), Path::to_owned)
        };
        names.extend((0..features.len()).map(name));
        splits.push(Split { labels: vec![0; features.len()], images: Images::Features(features) });
    }
    let joined =
        Split::joined(splits).ok_or_else(|| Failure::usage("the files differ in their numbers of features"))?;
    Ok((joined.images, names))
}

/// The image files that the paths stand for.
fn find_images(args: &Args, header: &CheckpointHeader) -> Result<Vec<PathBuf>, Failure> {
    let usual_path_column = header.settings.data.path_column.clone();
    let mut found = ImagePaths { path_column: args.path_column.clone(), usual_path_column, ..ImagePaths::default() };
    for path in &args.paths {
        match path.as_os_str() == "-" {
            true => found.add_lines(&mut io::stdin())?,
            false => found.add(path)?,
        }
    }
    image_files(found, &args.paths)
}

/// Predicts all images and names those that cannot be read. Returns their number.
fn predict(
    args: &Args,
    format: Format,
    predictor: &mut Predictor,
    (files, examples): (&[PathBuf], Examples),
    out: &mut dyn Write,
) -> Result<usize, Failure> {
    let names = predictor.classes().to_vec();
    if format == Format::Csv {
        writeln!(out, "{}", csv_header(args, names.len()))?;
    }
    let progress = Progress::new(examples.many());
    let mut failed = 0;
    predictor.predict(|image, classes| -> Result<(), Failure> {
        match classes {
            Ok(prediction) => write_image(args, format, &files[image], &names, prediction, out)?,
            Err(what) => {
                failed += 1;
                warn(&format!("{}: {what}", files[image].display()));
            }
        }
        progress.update(image as u64 + 1, files.len() as u64);
        Ok(())
    })?;
    Ok(failed)
}

fn csv_header(args: &Args, classes: usize) -> String {
    let more = (2..=usize::from(args.top).min(classes)).map(|rank| format!(",label_{rank},probability_{rank}"));
    let sets = if args.caution.sets.is_some() { ",set" } else { "" };
    let rejected = if args.caution.reject.is_some() { ",rejected" } else { "" };
    format!("path,label,probability{}{sets}{rejected}", more.collect::<String>())
}

/// Writes the prediction for one image.
fn write_image(
    args: &Args,
    format: Format,
    file: &Path,
    names: &[String],
    prediction: &FilePrediction,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let path = file.display().to_string();
    let FilePrediction { classes, set, rejected } = prediction;
    let labels = classes.iter().map(|(class, probability)| (&names[*class], probability));
    let set: Option<Vec<&str>> = set.as_ref().map(|set| set.iter().map(|class| names[*class].as_str()).collect());
    let rejected = args.caution.reject.map(|_| *rejected);
    match format {
        Format::Json => {
            let labels: Vec<_> = labels.map(|(label, p)| json!({"label": label, "probability": p})).collect();
            let mut line = json!({"path": path, "predictions": labels});
            if let Some(set) = set {
                line["set"] = json!(set);
            }
            if let Some(rejected) = rejected {
                line["rejected"] = json!(rejected);
            }
            writeln!(out, "{line}")?;
        }
        Format::Csv => {
            let labels = labels.map(|(label, p)| format!(",{},{p:.6}", csv_field(label, args.raw)));
            let set = set.map_or_else(String::new, |set| format!(",{}", csv_field(&set.join("|"), args.raw)));
            let rejected = rejected.map_or("", |rejected| if rejected { ",yes" } else { ",no" });
            writeln!(out, "{}{}{set}{rejected}", csv_field(&path, args.raw), labels.collect::<String>())?;
        }
        Format::Text => {
            let labels: Vec<String> =
                labels.map(|(label, p)| format!("{} {:.1} %", printable(label), 100.0 * p)).collect();
            let labels = labels.join(", ");
            let set = set.map_or_else(String::new, |set| format!("; one of: {}", printable(&set.join(", "))));
            match rejected {
                Some(true) => writeln!(out, "{}: none of these ({labels}{set})", printable(&path))?,
                _ => writeln!(out, "{}: {labels}{set}", printable(&path))?,
            }
        }
    }
    Ok(())
}
