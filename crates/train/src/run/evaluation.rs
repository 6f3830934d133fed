//! A trained run on a dataset.

use std::fs;
use std::path::{Path, PathBuf};

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::describe::groups::{ClassGroup, GroupRule};
use equipoise_data::{Dataset, Images};
use equipoise_nn::network::Head;
use equipoise_nn::{Cpu, Network};
use equipoise_pool::Pool;
use equipoise_record::{Metrics, SweepPoint};
use equipoise_support::Examples;
use serde::{Deserialize, Serialize};

use super::build::engine;
use super::dataset::{SplitChoice, check_place, labeled_as};
use super::prediction::most_probable;
use super::processes::{Processes, Task, to_json};
use super::readable::prepare_readable;
use super::repeated::{dataset_of_run, trained_images};
use super::shared::read_checkpoint;
use super::weights::set_tensors;
use super::{NoFeedback, RunContext};
use crate::checkpoint::{Checkpoint, CheckpointHeader};
use crate::decision::{Decision, DecisionOptions, DecisionTally, RejectionFigures, SetFigures};
use crate::error::TrainError;
use crate::evaluate::{EvaluatedBatch, Inference, LogitAdjustment, TestTimeAugmentation, evaluate};
use crate::metrics::EvaluationCounts;
use crate::prepare::{self, Prepared, SplitLoader, find_broken, fingerprint, take_validation_split, transform};
use crate::prior::{assumed_prior, train_log_shares};
use crate::same_files::{absolute, check_files, files_of};
use crate::settings::DataSettings;
use crate::sweep::SweepCounts;
use crate::trainer::same_run::check_same;
use crate::workers::{SingleProcess, Workers, agree};

/// What to evaluate, where it differs from the run.
#[derive(Clone, Debug, Default)]
pub struct EvaluationOptions {
    /// Another dataset, whose classes are some of the run's.
    pub dataset: Option<String>,
    /// The images to evaluate; `None` for the test split, or for all images of another dataset that has none.
    pub split: Option<SplitChoice>,
    /// The column of another dataset's list that names the image files.
    pub path_column: Option<String>,
    /// The column of another dataset's list that names the classes.
    pub label_column: Option<String>,
    /// The file of the labels of another dataset's features.
    pub labels: Option<String>,
    /// Other groups of classes.
    pub groups: Option<GroupRule>,
    /// Another tau of the post-hoc logit adjustment.
    pub logit_adjustment: Option<f64>,
    /// Tau of the normalization of a linear head's weights (Kang et al., ICLR 2020), which drops the bias; 0 for none.
    pub tau_norm: f64,
    /// Test-time augmentation.
    pub tta: TestTimeAugmentation,
    /// Whether to list the prediction of every image.
    pub predictions: bool,
    /// How logits become decisions.
    pub decision: DecisionOptions,
    /// Whether to keep the adjusted logits of every image.
    pub logits: bool,
}

/// The prediction of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagePrediction {
    /// File name of the image, or its number.
    pub name: String,
    /// Its class.
    pub label: usize,
    /// The most probable class.
    pub predicted: usize,
    /// Probability of the most probable class.
    pub probability: f64,
    /// Probability of the image's class.
    pub label_probability: f64,
    /// The classes that may well be that of the image, if sets were asked for.
    pub set: Option<Vec<usize>>,
    /// Whether the image is probably none of the classes.
    pub rejected: bool,
}

/// Metrics of a trained run on a dataset.
pub struct Evaluation {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of images.
    pub images: usize,
    /// Which images they are.
    pub split: SplitChoice,
    /// Whether they are of the dataset of the run, split as in the run.
    pub own: bool,
    /// Tau of the post-hoc logit adjustment.
    pub logit_adjustment: f64,
    /// The metrics.
    pub metrics: Metrics,
    /// Label, prediction and number of images, for every pair that occurred.
    pub confusion: Vec<[u64; 3]>,
    /// Every image in the order of the split; empty unless asked for.
    pub predictions: Vec<ImagePrediction>,
    /// The metrics without temperature and target prior.
    pub uncalibrated: Metrics,
    /// Groups of classes.
    pub groups: Vec<ClassGroup>,
    /// Coverage and size of prediction sets, if they were asked for.
    pub sets: Option<SetFigures>,
    /// How many images were rejected, if that was asked for.
    pub rejection: Option<RejectionFigures>,
    /// The trade-off between frequent and rare classes.
    pub sweep: Vec<SweepPoint>,
    /// Whether the prior that the logits assume follows from the criterion's equation.
    pub prior_is_exact: bool,
    /// Adjusted logits of every image, row after row, if they were asked for.
    pub logits: Vec<f32>,
    /// The images with their labels.
    pub data: SplitLoader,
    /// Logarithms of the shares of the classes that the adjusted logits assume.
    pub assumed: Vec<f64>,
}

/// Evaluates a checkpoint on the images of a dataset, together with the other processes if there are any.
///
/// The dataset of the run is split as in the run. The test split is evaluated if there is one, else the validation split,
/// else all images. Its classes are told by their names; it need not have all of them.
///
/// # Errors
/// Returns an error if the dataset cannot be read, does not fit the run, or has changed since the run.
pub fn evaluate_checkpoint(
    checkpoint: Checkpoint,
    options: &EvaluationOptions,
    context: &RunContext<'_>,
) -> Result<Evaluation, TrainError> {
    options.tta.check(&checkpoint.header.network)?;
    let mut workers: Box<dyn Workers> = match context.processes {
        Some(processes) => order_evaluation(processes, &checkpoint, options, context)?,
        None => Box::new(SingleProcess),
    };
    let mut subject = Subject::new(checkpoint, options, &mut workers, context)?;
    let (header, tau) = (subject.header.clone(), subject.tau);
    let adjustment = subject.inference.adjustment.clone();
    let groups = subject.groups.groups(&header.counts);
    let decision = Decision::new(&header, &adjustment, &groups, &options.decision);
    // the others know nothing of decisions
    let decision = agree(&mut workers, decision)?;
    let assumed = agree(&mut workers, assumed_prior(&header.settings, &header.counts, &adjustment))?;
    let mut tally = DecisionTally::new(&decision, &groups, header.classes.len());
    let mut decided = EvaluationCounts::new(header.classes.len());
    let mut sweep = SweepCounts::new(&assumed.log_shares, &train_log_shares(&header.counts));
    let (mut predictions, mut logits) = (Vec::new(), Vec::new());
    let counts = subject.evaluate(&mut workers, context.pool, &mut |batch, data| {
        let mut probable = batch.logits.to_vec();
        decision.apply(&mut probable);
        decided.add(&probable, batch.labels);
        let final_batch = EvaluatedBatch { logits: &probable, ..*batch };
        if options.predictions {
            predictions.extend(image_predictions(batch, &final_batch, &decision, data));
        }
        if options.logits {
            logits.extend_from_slice(batch.logits);
        }
        for ((row, label), (probable, _)) in batch.rows().zip(final_batch.rows()) {
            sweep.add(row, label);
            tally.add(row, probable, label);
        }
    })?;
    let pair = |((label, predicted), images): (&(u32, u32), &u64)| [u64::from(*label), u64::from(*predicted), *images];
    let metrics = |counts: &EvaluationCounts| counts.metrics(&header.counts, &groups, &header.classes);
    let (sets, rejection) = tally.finish();
    let Subject { dataset, split, own, data, .. } = subject;
    Ok(Evaluation {
        images: data.labels.len(),
        split,
        own,
        logit_adjustment: tau,
        metrics: metrics(&decided),
        uncalibrated: metrics(&counts),
        confusion: decided.confusion().iter().map(pair).collect(),
        predictions,
        dataset,
        sets,
        rejection,
        sweep: sweep.points(&groups),
        prior_is_exact: decision.prior_is_exact,
        groups,
        logits,
        data,
        assumed: assumed.log_shares,
    })
}

/// What the other processes need to know of an evaluation.
#[derive(Serialize, Deserialize)]
struct Order {
    dataset: Option<String>,
    split: Option<String>,
    path_column: Option<String>,
    label_column: Option<String>,
    labels: Option<String>,
    logit_adjustment: Option<f64>,
    tau_norm: f64,
    is_flipped: bool,
    data_root: PathBuf,
    threads: usize,
}

/// Tells the other processes to evaluate a checkpoint.
fn order_evaluation(
    processes: &dyn Processes,
    checkpoint: &Checkpoint,
    options: &EvaluationOptions,
    context: &RunContext<'_>,
) -> Result<Box<dyn Workers>, TrainError> {
    let EvaluationOptions { dataset, split, path_column, label_column, labels, logit_adjustment, .. } = options.clone();
    // processes may have other working folders
    let absolute = |path: String| match KnownDataset::by_name(&path).is_none() && Path::new(&path).exists() {
        true => std::path::absolute(&path).map_or(path, |path| path.display().to_string()),
        false => path,
    };
    let order = Order {
        dataset: dataset.map(absolute),
        split: split.map(|split| split.to_string()),
        path_column,
        label_column,
        labels: labels.map(absolute),
        logit_adjustment,
        tau_norm: options.tau_norm,
        is_flipped: options.tta == TestTimeAugmentation::Flip,
        data_root: std::path::absolute(context.data_root).unwrap_or_else(|_| context.data_root.to_owned()),
        threads: context.pool.threads(),
    };
    let mut checkpoint = checkpoint.to_raw()?.to_bytes();
    let mut workers = processes.start(Task::Evaluate, &to_json(&order)?)?.workers;
    workers.broadcast(&mut checkpoint)?;
    Ok(workers)
}

/// Takes part in the evaluation that rank 0 makes.
///
/// # Errors
/// If any process cannot.
pub fn evaluate_share(order: &[u8], mut workers: Box<dyn Workers>) -> Result<(), TrainError> {
    let mut checkpoint = Vec::new();
    workers.broadcast(&mut checkpoint)?;
    let read = || {
        let unusable = |what: String| TrainError::Unusable { what };
        let order: Order = serde_json::from_slice(order).map_err(|error| unusable(error.to_string()))?;
        let pool = Pool::new(order.threads).map_err(|error| unusable(format!("cannot start threads: {error}")))?;
        let split = order.split.as_ref().map(|split| split.parse()).transpose().map_err(unusable)?;
        let checkpoint = read_checkpoint(&checkpoint)?.ok_or_else(|| unusable("there is no checkpoint".to_owned()))?;
        Ok((order, split, checkpoint, pool))
    };
    let (order, split, checkpoint, pool) = match read() {
        Ok(read) => read,
        // rank 0 comes by there
        Err(error) => return agree(&mut workers, Err(error)),
    };
    let options = EvaluationOptions {
        dataset: order.dataset,
        split,
        path_column: order.path_column,
        label_column: order.label_column,
        labels: order.labels,
        logit_adjustment: order.logit_adjustment,
        tau_norm: order.tau_norm,
        tta: if order.is_flipped { TestTimeAugmentation::Flip } else { TestTimeAugmentation::None },
        ..EvaluationOptions::default()
    };
    let context = RunContext { data_root: &order.data_root, pool: &pool, feedback: &NoFeedback, processes: None };
    let mut subject = Subject::new(checkpoint, &options, &mut workers, &context)?;
    agree(&mut workers, Ok(()))?;
    agree(&mut workers, Ok(()))?;
    subject.evaluate(&mut workers, &pool, &mut |_, _| {})?;
    Ok(())
}

/// A trained network and the images to evaluate it on.
struct Subject {
    header: CheckpointHeader,
    dataset: String,
    split: SplitChoice,
    own: bool,
    data: SplitLoader,
    engine: Cpu,
    inference: Inference,
    tau: f64,
    groups: GroupRule,
    batch_size: usize,
}

impl Subject {
    /// Reads the images and prepares the network. All workers have the same images.
    fn new(
        checkpoint: Checkpoint,
        options: &EvaluationOptions,
        workers: &mut impl Workers,
        context: &RunContext<'_>,
    ) -> Result<Self, TrainError> {
        let (mut files, mut content, is_shared) = (None, String::new(), workers.shard().size() > 1);
        let subject = Self::read(checkpoint, options, context, &mut |dataset| {
            if is_shared {
                // of all files, before any is left out
                files.get_or_insert_with(|| files_of(dataset).into_iter().map(absolute).collect::<Vec<_>>());
                content = prepare::content(dataset);
            }
        });
        // files that one worker lacks change splits, and may be why it cannot read the images
        check_files(files.as_deref(), false, workers)?;
        let subject = agree(workers, subject)?;
        let data = format!("{} {content} {:?}", subject.dataset, subject.data.labels);
        check_same(&subject.dataset, [String::new(), data, String::new()], workers)?;
        Ok(subject)
    }

    /// Reads the images and prepares the network. `seen` is shown the dataset as it is read.
    fn read(
        checkpoint: Checkpoint,
        options: &EvaluationOptions,
        context: &RunContext<'_>,
        seen: &mut dyn FnMut(&Dataset),
    ) -> Result<Self, TrainError> {
        let Checkpoint { header, mut parameters, statistics, .. } = checkpoint;
        let mut settings = header.settings.clone();
        settings.data.image_size = header.network.size[0] as u32;
        settings.groups = options.groups.unwrap_or(settings.groups);
        let own = match &options.dataset {
            None => {
                check_place(&settings.data.dataset, "equipoise evaluate RUN DATA")?;
                true
            }
            Some(dataset) => is_same(dataset, &settings.data.dataset) || is_moved(dataset, options, &header, context),
        };
        match &options.dataset {
            Some(dataset) if own => settings.data.dataset.clone_from(dataset),
            Some(dataset) => settings.data = foreign(dataset, options, &settings.data),
            None => {}
        }
        let mut trained = None;
        let (dataset, split, data) = prepare_readable(&settings.data, context, |loaded, progress| {
            seen(&loaded.dataset);
            let mut dataset = loaded.into_dataset();
            if own {
                take_validation_split(&mut dataset, &settings)?;
                let same_content = header.content.as_ref().is_none_or(|content| *content == prepare::content(&dataset));
                if fingerprint(&dataset) != header.fingerprint || !same_content {
                    // files that could not be read in training are in no split
                    let broken = find_broken(&dataset, context.pool, progress);
                    match options.dataset {
                        _ if !broken.is_empty() => return Ok(Prepared::Broken(broken)),
                        None => return Err(changed(&dataset.name)),
                        Some(_) => {}
                    }
                }
            }
            let split = options.split.unwrap_or_else(|| SplitChoice::usual(&dataset));
            let name = dataset.name.clone();
            let files = matches!(dataset.train.images, Images::Files(_));
            let images = labeled_as(dataset, &header.classes, split)?;
            trained = match (own, split) {
                (true, SplitChoice::All) => Some(header.counts.iter().sum::<u64>() as usize),
                (true, _) => None,
                (false, _) => trained_images(&images, &header, context),
            };
            let transform = transform(&settings, files, &header.normalize, false);
            let mut broken = Vec::new();
            let loader = SplitLoader::new(images, transform, &header.classes, &mut broken, (context.pool, progress))?;
            Ok(loader.map_or(Prepared::Broken(broken), |loader| Prepared::Ready((name, split, loader))))
        })?;
        if let Some(trained) = trained.filter(|trained| *trained > 0) {
            let (images, were) = (data.labels.len(), if trained == 1 { "was" } else { "were" });
            let text = format!(
                "{trained} of these {images} {} {were} trained on (same content): results will look better than they are",
                Examples::of_features(header.network.is_on_features()).many()
            );
            context.feedback.warn(&text);
        }
        check_shape(&dataset, &data, &header.network)?;
        if options.tau_norm > 0.0 {
            normalize_head(&header.network, &mut parameters, options.tau_norm)?;
        }
        let batch_size = settings.batch_size.min(data.labels.len());
        let mut engine = engine(header.network.clone(), batch_size, 0, settings.precision, context.pool)?;
        set_tensors(&mut engine, &[parameters, statistics])?;
        let tau = options.logit_adjustment.unwrap_or(settings.logit_adjustment);
        let adjustment = LogitAdjustment::new(&settings.criterion.method, &header.counts, tau);
        let inference = Inference { adjustment, tta: options.tta };
        let groups = settings.groups;
        Ok(Self { header, dataset, split, own, data, engine, inference, tau, groups, batch_size })
    }

    /// Evaluates the network with all workers. `on_batch` sees every batch.
    fn evaluate(
        &mut self,
        workers: &mut impl Workers,
        pool: &Pool,
        on_batch: &mut dyn FnMut(&EvaluatedBatch<'_>, &SplitLoader),
    ) -> Result<EvaluationCounts, TrainError> {
        let Self { engine, data, batch_size, inference, .. } = self;
        evaluate(engine, workers, data, *batch_size, pool, inference, &mut |batch| on_batch(batch, data))
    }
}

/// The predictions of a batch, from its adjusted logits and from those of the probabilities.
fn image_predictions(
    batch: &EvaluatedBatch<'_>,
    probable: &EvaluatedBatch<'_>,
    decision: &Decision,
    split: &SplitLoader,
) -> Vec<ImagePrediction> {
    let rows = batch.rows().zip(probable.rows()).map(|((adjusted, label), (probable, _))| (adjusted, label, probable));
    let predict = |(row, (adjusted, label, probable)): (usize, (&[f32], usize, &[f32]))| {
        let all = most_probable(probable, probable.len());
        let (predicted, probability) = all[0];
        let label_probability = all.iter().find(|(class, _)| *class == label).map_or(0.0, |(_, p)| *p);
        ImagePrediction {
            name: split.name((batch.first + row) as u32),
            label,
            predicted,
            probability,
            label_probability,
            set: decision.set(adjusted),
            rejected: decision.rejects(adjusted),
        }
    };
    rows.enumerate().map(predict).collect()
}

/// Whether two names or paths mean the same dataset.
fn is_same(one: &str, other: &str) -> bool {
    let path = |name: &str| match KnownDataset::by_name(name) {
        Some(_) => None,
        None => fs::canonicalize(name).ok(),
    };
    one == other || path(one).is_some_and(|one| Some(one) == path(other))
}

/// Whether a dataset is that of the run at another place.
fn is_moved(dataset: &str, options: &EvaluationOptions, header: &CheckpointHeader, context: &RunContext<'_>) -> bool {
    let own = &header.settings.data;
    let data = DataSettings {
        dataset: dataset.to_owned(),
        path_column: options.path_column.clone().or(own.path_column.clone()),
        label_column: options.label_column.clone().or(own.label_column.clone()),
        ..own.clone()
    };
    let is_moved = dataset_of_run(header, &data, context).is_some();
    if is_moved {
        let text = format!("{dataset} is the dataset of the run at another place, and its splits are those of the run");
        context.feedback.warn(&text);
    }
    is_moved
}

/// How a dataset is read that the run was not trained on: whole, unless it has splits of its own.
fn foreign(dataset: &str, options: &EvaluationOptions, own: &DataSettings) -> DataSettings {
    DataSettings {
        dataset: dataset.to_owned(),
        path_column: options.path_column.clone(),
        label_column: options.label_column.clone(),
        test_fraction: 0.0,
        max_broken: own.max_broken,
        image_size: own.image_size,
        scaling: own.scaling,
        labels: options.labels.clone(),
        ..DataSettings::default()
    }
}

fn changed(dataset: &str) -> TrainError {
    let what = "its images have changed since the run; to evaluate on it anyway, name the dataset".to_owned();
    TrainError::Dataset { dataset: dataset.to_owned(), what }
}

/// Checks that images have the shape that a network expects.
fn check_shape(dataset: &str, data: &SplitLoader, network: &Network) -> Result<(), TrainError> {
    let (channels, height, width) = data.loader.shape();
    if (channels, [height, width]) == (network.channels, network.size) {
        return Ok(());
    }
    let [want_height, want_width] = network.size;
    let what = format!(
        "its images are {channels} x {height} x {width}; those of the run are {} x {want_height} x {want_width}",
        network.channels
    );
    Err(TrainError::Dataset { dataset: dataset.to_owned(), what })
}

/// Scales each class's weights of a linear head by their norm to the power of -tau, and drops the bias, as Kang et al. do.
pub(super) fn normalize_head(network: &Network, parameters: &mut [Vec<f32>], tau: f64) -> Result<(), TrainError> {
    let reason = match network.head {
        Head::Linear => None,
        Head::Lws => Some("the head is scaled class by class already (lws)"),
        Head::Cosine { .. } => Some("a cosine head has no norms to normalize"),
    };
    if let Some(reason) = reason {
        return Err(TrainError::Unusable { what: format!("tau-normalization: {reason}") });
    }
    let (name, bias) = (format!("{}.weight", network.head_name()), format!("{}.bias", network.head_name()));
    let tensors = network.parameters();
    for (tensor, values) in tensors.iter().zip(parameters) {
        if tensor.name == bias {
            values.fill(0.0);
        }
        if tensor.name != name {
            continue;
        }
        for row in values.chunks_exact_mut(tensor.shape[1]) {
            let norm = row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt().max(1e-12);
            let scale = norm.powf(-tau) as f32;
            row.iter_mut().for_each(|w| *w *= scale);
        }
    }
    Ok(())
}
