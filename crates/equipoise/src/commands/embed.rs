//! `equipoise embed`: features of images from an ONNX backbone.

use std::io::Write;
use std::path::PathBuf;

use equipoise_criterion::Pool;
use equipoise_data::Dataset;
use equipoise_embed::{
    Backbone, EmbedError, EmbedOptions, Embedded, Overrides, Pooling, Preprocessing, Ranks, embed, library,
    partial_path,
};
use equipoise_support::Examples;
use equipoise_train::TrainError;
use equipoise_train::run::processes::{Connection, Task};
use equipoise_train::run::{Feedback, NoFeedback};
use equipoise_train::same_files::{check_files, files_of};
use equipoise_train::workers::{SingleProcess, Workers, agree};

use crate::cluster;
use crate::failure::Failure;
use crate::options::{DatasetArgs, ThreadArgs};
use crate::output::{counted, message, quoted, warn};
use crate::progress::{Console, Progress};
use crate::signals::when_interrupted;

#[derive(clap::Args)]
#[command(after_long_help = "\
The model is run by onnxruntime, whose library is not part of this program: `pip install onnxruntime` is enough, or name the library \
with --onnxruntime or the environment variable ORT_DYLIB_PATH.

How images are resized and normalized comes from the options, else from a JSON file beside the model (model.json, or preprocessor_config.json \
of Hugging Face), else from the model's metadata, else it is what most models trained on ImageNet expect.

The file has a row of `features` per image, their `labels` and their `split` (0 training, 1 validation, 2 test), with the names of classes and \
files in the metadata: `equipoise train features.safetensors` trains a head on it. An interrupted command continues when it is started again.

Examples:
  equipoise embed dinov2.onnx path/to/photos -o features.safetensors
  equipoise embed dinov2.onnx path/to/new/photos --unlabeled -o new.safetensors
  equipoise embed clip.onnx cifar10 --imbalance 100 --image-size 224 --tensor image_embeds -o features.safetensors")]
pub(crate) struct Args {
    /// ONNX file of the backbone
    model: PathBuf,
    #[command(flatten)]
    dataset: DatasetArgs,
    /// File to write; an existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Output of the model that holds the features [default: the only one, or one with a usual name]
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// Height and width of the model's input
    #[arg(long, value_name = "PIXELS")]
    image_size: Option<u32>,
    /// Length of the shorter side of an image before its center is cropped
    #[arg(long, value_name = "PIXELS")]
    resize: Option<u32>,
    /// Mean of the pixels in 0 to 1, by channel
    #[arg(long, value_name = "R,G,B", value_delimiter = ',')]
    mean: Option<Vec<f32>>,
    /// Standard deviation of the pixels in 0 to 1, by channel
    #[arg(long, value_name = "R,G,B", value_delimiter = ',')]
    std: Option<Vec<f32>>,
    /// Take all images at DATA, which is a folder, a list or a file, as having no labels: features for `predict`
    #[arg(long, conflicts_with_all = ["augmented_copies", "imbalance", "subset_file", "test_data", "val_data", "labels", "label_column", "group_by"])]
    unlabeled: bool,
    /// Additional rows for every training image: randomly cropped and mirrored copies
    #[arg(long, value_name = "N", default_value_t = 0)]
    augmented_copies: u32,
    /// Library of onnxruntime, or the folder that holds it
    #[arg(long, value_name = "PATH")]
    onnxruntime: Option<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.output.exists() {
        return Err(Failure::usage(format!("{} already exists", args.output.display())));
    }
    if args.output.extension().is_none_or(|extension| extension != "safetensors") {
        let what = "the features are written as safetensors; give the file a name that ends in .safetensors";
        return Err(Failure::usage(format!("{}: {what}", args.output.display())));
    }
    when_interrupted("interrupted; nothing was written");
    let mut opened = Opened::new(args, &Console::default())?;
    let Preprocessing { image_size, resize, mean, std, source } = &opened.preprocessing;
    message(&format!(
        "output {}; images resized to {resize} and cropped to {image_size} x {image_size}, mean {mean:?}, std {std:?} (from {source})",
        opened.backbone.output()
    ));
    cluster::introduce(opened.pool.threads(), Examples::Images);
    let mut workers = match cluster::processes() {
        Some(processes) => processes.start(Task::Command, &[]).map_err(TrainError::from)?.workers,
        None => Box::new(SingleProcess),
    };
    agree(&mut workers, Ok(()))?;
    check_files(Some(&files_of(&opened.dataset)), false, &mut workers)?;
    let progress = Progress::new("images");
    let mut show = |done: usize, total: usize| progress.update(done as u64, total as u64);
    let partial = quoted(&partial_path(&args.output));
    when_interrupted(&format!("interrupted; the rows so far are in {partial}, from where the same command goes on"));
    let embedded = opened.embed(args, workers, &mut show)?;
    when_interrupted(&format!("interrupted; {} was written", args.output.display()));
    drop(progress);
    embedded.map_or(Ok(()), |embedded| summarize(args, &embedded, out))
}

/// Computes the share of the features that falls to a process that is not rank 0.
pub(crate) fn follow(args: &Args, Connection { mut workers, .. }: Connection) -> Result<(), Failure> {
    let opened = Opened::new(args, &NoFeedback);
    let what = opened.as_ref().err().map(|failure| TrainError::Unusable { what: failure.to_string() });
    agree(&mut workers, what.map_or(Ok(()), Err))?;
    let mut opened = opened?;
    if check_files(Some(&files_of(&opened.dataset)), false, &mut workers).is_err() {
        // rank 0 reports it
        return Ok(());
    }
    match opened.embed(args, workers, &mut |_, _| {}) {
        // rank 0 has seen it, and reports it
        Ok(_) | Err(EmbedError::Rank { .. }) => Ok(()),
        Err(error) => Err(Failure::Failed(error.into())),
    }
}

/// A model and the images for it.
struct Opened {
    pool: Pool,
    backbone: Backbone,
    preprocessing: Preprocessing,
    dataset: Dataset,
}

impl Opened {
    fn new(args: &Args, feedback: &dyn Feedback) -> Result<Self, Failure> {
        let pool = args.threads.pool()?;
        let library = library::find(args.onnxruntime.as_deref())?;
        let backbone = Backbone::open(&args.model, &library, args.tensor.as_deref(), pool.threads())?;
        let Args { image_size, resize, mean, std, .. } = args;
        let given = Overrides { image_size: *image_size, resize: *resize, mean: mean.clone(), std: std.clone() };
        let (metadata, side, channels) = (backbone.metadata(), backbone.side(), backbone.channels());
        let preprocessing = Preprocessing::new(&args.model, &given, &metadata, side, channels)?;
        let dataset = match args.unlabeled {
            true => args.dataset.load_unlabeled()?,
            false => args.dataset.load_with(&Default::default(), feedback)?.into_dataset(),
        };
        Ok(Self { pool, backbone, preprocessing, dataset })
    }

    /// Computes the features together with the other processes. Only rank 0 has a result.
    fn embed(
        &mut self,
        args: &Args,
        workers: Box<dyn Workers>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Embedded>, EmbedError> {
        let options = EmbedOptions {
            model: args.model.clone(),
            output: args.output.clone(),
            augmented_copies: args.augmented_copies,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let Self { pool, backbone, preprocessing, dataset } = self;
        embed(&options, backbone, preprocessing, dataset, pool, &mut EmbedRanks(workers), progress)
    }
}

/// The processes as the crate of features sees them.
struct EmbedRanks(Box<dyn Workers>);

impl Ranks for EmbedRanks {
    fn rank(&self) -> usize {
        self.0.shard().rank()
    }

    fn size(&self) -> usize {
        self.0.shard().size()
    }

    fn node(&self) -> String {
        self.0.node()
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.0.exchange(own).map_err(|error| error.what)
    }
}

fn summarize(args: &Args, embedded: &Embedded, out: &mut impl Write) -> Result<(), Failure> {
    let Embedded { rows, width, resumed, unreadable, pooling } = embedded;
    for file in unreadable {
        warn(&format!("{}: {}", file.path.display(), file.what));
    }
    let pooled = match pooling {
        Some(Pooling::Average) => ", averaged over positions",
        Some(Pooling::FirstToken) => ", those of the first token",
        Some(Pooling::Rows) | None => "",
    };
    let before = if *resumed > 0 { format!(", {resumed} of them computed before") } else { String::new() };
    writeln!(out, "{} of {width} features{pooled}{before}: {}", counted(*rows, "row"), args.output.display())?;
    if !unreadable.is_empty() {
        let were = if unreadable.len() == 1 { "was" } else { "were" };
        let what = format!("{} cannot be read and {were} left out", counted(unreadable.len(), "image"));
        return Err(anyhow::anyhow!(what).into());
    }
    Ok(())
}
