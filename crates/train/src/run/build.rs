//! From settings to a trainer.

use std::collections::HashSet;
use std::path::Path;

use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::sampler::SamplerKind;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::image_groups::ImageGroups;
use equipoise_data::{Dataset, Images};
use equipoise_nn::{Architecture, Cpu, CpuOptions, Engine, Network, NnError, Precision};
use equipoise_pool::Pool;
use equipoise_support::Examples;

use super::RunContext;
use super::class_means::start_at_class_means;
use super::dataset::load;
use super::files::input_error;
use super::input::{check_input, choose_input, few_photographs};
use super::memory::available_bytes;
use super::processes::{build_together, is_for_one_process};
use super::readable::prepare_readable;
use super::repeated::{known_to_weights, repeated_images, untested_classes};
use super::result::{FEWEST_VALIDATION_IMAGES, few_images};
use super::weight_decay::choose_weight_decay;
use super::weights::{InitialWeights, initialize};
use crate::checkpoint::{Checkpoint, RawCheckpoint};
use crate::error::TrainError;
use crate::prepare::{RunData, SplitData, SplitOptions, check_dataset, take_validation_split};
use crate::same_files::{check_files, files_of};
use crate::settings::{OptimizerKind, SelectBest, Settings};
use crate::trainer::same_run::check_same_run;
use crate::trainer::{FULL_BATCH_ROWS, Position, Trainer, check_selection};
use crate::workers::{SingleProcess, Workers, agree};

/// The trainer of a run on the CPU, in one process or in one of several.
pub type RunTrainer = Trainer<Cpu, Box<dyn Workers>>;

/// Reads the dataset of a run, and chooses what the settings leave open: network and image size by the images, and the weight decay by
/// cross-validation if they ask for it. Pixels are normalized as given, or as suits the dataset.
///
/// # Errors
/// Returns an error if the dataset cannot be read or trained on.
pub fn prepare(
    settings: &mut Settings,
    normalize: Option<&Normalize>,
    context: &RunContext<'_>,
) -> Result<RunData, TrainError> {
    prepare_checked(settings, normalize, (&|_, _| Ok(()), &mut |_| {}), context)
}

/// What is known against a network with this batch size before its images are read.
pub(super) type NetworkCheck<'a> = &'a dyn Fn(&Network, usize) -> Result<(), TrainError>;

/// Prepares a dataset as [`prepare`] does, if nothing speaks against the network. `seen` is shown the dataset as it is read.
fn prepare_checked(
    settings: &mut Settings,
    normalize: Option<&Normalize>,
    (check, seen): (NetworkCheck<'_>, &mut dyn FnMut(&Dataset)),
    context: &RunContext<'_>,
) -> Result<RunData, TrainError> {
    let data = settings.data.clone();
    let mut warnings = Vec::new();
    let prepared = prepare_readable(&data, context, |loaded, progress| {
        seen(&loaded.dataset);
        choose_input(settings, &loaded.dataset);
        check_input(settings, &loaded.dataset)?;
        let dataset = loaded.into_dataset();
        if let Images::Files(files) = &dataset.train.images {
            let side = settings.data.image_size as usize;
            // validation takes at most half of every class
            let batch_size = settings.batch_size.min(files.len().div_ceil(2));
            check(&network_for(settings, (3, side, side), dataset.classes.len())?, batch_size)?;
        }
        if settings.optimizer.cross_validation > 0 {
            settings.check()?;
            settings.optimizer.weight_decay = choose_weight_decay(&dataset, settings, context)?;
        }
        warnings = repeated_images(&dataset, context.pool);
        warnings.extend(untested_classes(&dataset));
        warnings.extend(known_to_weights(&dataset, settings, context));
        RunData::prepare(dataset, settings, normalize, context.pool, progress)
    })?;
    if let Some(ImageGroups { summary, warnings }) = &prepared.image_groups {
        context.feedback.note(summary);
        warnings.iter().for_each(|warning| context.feedback.warn(warning));
    }
    warnings.iter().for_each(|warning| context.feedback.warn(warning));
    Ok(prepared)
}

/// Reads one split of the dataset of a run, as [`prepare`] reads all of them.
///
/// # Errors
/// Returns an error if the dataset cannot be read, or has no such split.
pub fn prepare_split(
    settings: &mut Settings,
    normalize: Option<&Normalize>,
    options: SplitOptions,
    context: &RunContext<'_>,
) -> Result<SplitData, TrainError> {
    let data = settings.data.clone();
    prepare_readable(&data, context, |loaded, progress| {
        choose_input(settings, &loaded.dataset);
        check_input(settings, &loaded.dataset)?;
        SplitData::prepare(loaded.into_dataset(), settings, normalize, options, context.pool, progress)
    })
}

/// Checks what a run needs of its dataset and weights, without decoding an image: what this refuses, training would refuse.
///
/// # Errors
/// Returns an error if a setting, the dataset or the weights cannot be used.
pub fn check(settings: &Settings, context: &RunContext<'_>) -> Result<(), TrainError> {
    settings.check()?;
    let mut dataset = load(&settings.data, context.data_root, &HashSet::new(), context.feedback)?.into_dataset();
    check_dataset(&dataset, settings)?;
    let mut with_input = settings.clone();
    choose_input(&mut with_input, &dataset);
    check_input(&with_input, &dataset)?;
    with_input.check()?;
    take_validation_split(&mut dataset, settings)?;
    check_selection(settings, dataset.val.is_some())?;
    settings.criterion.init(&class_counts(&dataset.train.labels, dataset.classes.len())?)?;
    match settings.model.weights.as_deref().map(Path::new) {
        Some(path) if !path.exists() => Err(input_error(path, "there are no weights here")),
        _ => Ok(()),
    }
}

/// The network of a run.
///
/// # Errors
/// Returns an error if the images do not fit the network.
pub fn network(settings: &Settings, data: &RunData) -> Result<Network, TrainError> {
    network_for(settings, data.train.loader.shape(), data.classes.len())
}

/// The network of a run for images of this many channels, height and width.
fn network_for(
    settings: &Settings,
    (channels, height, width): (usize, usize, usize),
    classes: usize,
) -> Result<Network, TrainError> {
    let architecture = settings.architecture();
    let network = Network::new(architecture, channels, [height, width], classes)?;
    let hidden = (architecture == Architecture::Mlp).then_some(settings.model.hidden);
    Ok(network.with_hidden(hidden).with_head(settings.head()))
}

/// An engine for batches of up to this size.
///
/// # Errors
/// Returns an error if there is not enough memory.
pub fn engine(
    network: Network,
    batch_size: usize,
    seed: u64,
    precision: Precision,
    pool: &Pool,
) -> Result<Cpu, TrainError> {
    check_memory(&network, batch_size, precision, pool)?;
    let options = CpuOptions { precision, ..CpuOptions::default() };
    Ok(Cpu::with_options(network, batch_size, seed, pool.clone(), options)?)
}

/// Checks that there is memory for an engine.
pub(super) fn check_memory(
    network: &Network,
    batch_size: usize,
    precision: Precision,
    pool: &Pool,
) -> Result<(), TrainError> {
    let bytes = Cpu::bytes(network, batch_size, pool.threads(), precision);
    match available_bytes().is_some_and(|available| bytes > available) {
        true => Err(NnError::Memory { batch_size, bytes }.into()),
        false => Ok(()),
    }
}

/// Builds the trainer of a run, at its start or at a checkpoint, together with the other processes if there are any.
///
/// # Errors
/// Returns an error if a setting, the dataset, the network or the checkpoint cannot be used.
pub fn trainer(
    settings: Settings,
    resume: Option<RawCheckpoint>,
    context: &RunContext<'_>,
) -> Result<RunTrainer, TrainError> {
    if let Some(processes) = context.processes.filter(|_| !is_for_one_process(&settings)) {
        let checkpoint = resume.map_or_else(Vec::new, |checkpoint| checkpoint.to_bytes());
        return build_together(processes, settings, checkpoint, context);
    }
    let resume = resume.map(Checkpoint::new).transpose()?;
    let precision = settings.precision;
    let make = |network, batch_size, seed| engine(network, batch_size, seed, precision, context.pool);
    let check = |network: &Network, batch_size| check_memory(network, batch_size, precision, context.pool);
    trainer_with(settings, resume.as_ref(), Box::new(SingleProcess), (&check, make), context)
}

/// Builds the trainer of a run on an engine that `make` makes of the network, the batch size of all workers together and the
/// seed of the initial weights. `check` is asked about the network before image files are read.
///
/// # Errors
/// As [`trainer`].
pub(super) fn trainer_with<E: Engine, W: Workers>(
    settings: Settings,
    resume: Option<&Checkpoint>,
    mut workers: W,
    (check, make): (NetworkCheck<'_>, impl FnOnce(Network, usize, u64) -> Result<E, TrainError>),
    context: &RunContext<'_>,
) -> Result<Trainer<E, W>, TrainError> {
    let mut settings = settings.with_head_of_criterion();
    let (mut files, is_shared) = (None, workers.shard().size() > 1);
    let mut seen = |dataset: &Dataset| {
        if is_shared && files.is_none() {
            files = Some(files_of(dataset));
        }
    };
    let build = || {
        // a run that is resumed has chosen its weight decay
        let folds = settings.optimizer.cross_validation;
        settings.optimizer.cross_validation = if resume.is_some() { 0 } else { folds };
        let data = prepare_checked(&mut settings, None, (check, &mut seen), context)?;
        settings.optimizer.cross_validation = folds;
        let images = data.train.labels.len();
        warn_of_settings(&settings, &data, context);
        if resume.is_none() && data.files {
            few_photographs(&settings, images).iter().for_each(|hint| context.feedback.note(hint));
        }
        let rows = match settings.optimizer.name {
            OptimizerKind::Lbfgs => FULL_BATCH_ROWS,
            OptimizerKind::Sgd | OptimizerKind::AdamW => settings.batch_size,
        };
        let batch_size = rows.min(images);
        let mut engine = make(network(&settings, &data)?, batch_size, settings.seed)?;
        if let (Some(path), None) = (&settings.model.weights, resume) {
            let initial = InitialWeights { path: path.as_ref(), reset_head: settings.model.reset_head };
            initialize(&mut engine, &initial, &data.classes, context.feedback)?;
        }
        if let (true, None) = (settings.model.class_means, resume) {
            start_at_class_means(&mut engine, &data, context.pool)?;
        }
        Ok((data, engine))
    };
    let built = build();
    // files that one worker lacks change splits, and may be why it cannot build the run
    check_files(files.as_deref(), false, &mut workers)?;
    let (data, engine) = agree(&mut workers, built)?;
    let position = resume.map_or_else(Position::default, |checkpoint| checkpoint.header.position);
    check_same_run(&settings, &data, position, &mut workers)?;
    let preparing = preparing_threads(&data, context.pool);
    let mut trainer =
        Trainer::new(settings, data, engine, workers, context.pool.clone())?.with_preparing_threads(preparing);
    if let Some(checkpoint) = resume {
        trainer.restore(checkpoint)?;
    }
    trainer.warnings().iter().for_each(|warning| context.feedback.warn(warning));
    Ok(trainer)
}

/// Threads that prepare batches: as many as the engine has, if files are decoded. They sleep while there is nothing to decode, and get the
/// cores whenever the engine waits for a batch. Rows of features are copied by the engine's own threads between steps. Images in memory are
/// prepared in no time by one.
fn preparing_threads(data: &RunData, pool: &Pool) -> Pool {
    // a thread that cannot be started is no reason to fail: one is enough
    if data.train.loader.decodes() {
        Pool::without_spinning(pool.threads()).unwrap_or_default()
    } else if data.train.loader.is_of_features() {
        pool.clone()
    } else {
        Pool::single()
    }
}

/// A sentence about corrections for class sizes, if more than one of criterion, sampler and logit adjustment makes one.
/// `logit_adjustment` is the tau that is applied after training.
#[must_use]
pub fn second_correction(settings: &Settings, logit_adjustment: f64) -> Option<String> {
    let (method, sampler) = (settings.criterion.method.id(), settings.data.sampler);
    let is_balanced = matches!(sampler, SamplerKind::ClassBalanced | SamplerKind::Progressive);
    let corrections = [
        method.corrects_for_counts().then(|| format!("the criterion {method}")),
        is_balanced.then(|| format!("the {sampler} sampler")),
        (logit_adjustment > 0.0).then(|| "the logit adjustment".to_owned()),
    ];
    let given: Vec<String> = corrections.into_iter().flatten().collect();
    let (last, others) = given.split_last().filter(|(_, others)| !others.is_empty())?;
    let correct = if others.len() == 1 { "corrects" } else { "correct" };
    let others = others.join(" and ");
    Some(format!("{others} {correct} for class sizes already, and {last} corrects for them again; one is enough"))
}

/// Learning rate of AdamW beyond which it is probably that of SGD.
const ADAMW_LEARNING_RATE: f64 = 0.02;

/// A head with fewer optimizer steps may not have learned its classes.
const FEWEST_HEAD_STEPS: u64 = 200;

/// Warns of settings that are allowed but probably a mistake.
fn warn_of_settings(settings: &Settings, data: &RunData, context: &RunContext<'_>) {
    let (size, images) = (settings.batch_size, data.train.labels.len());
    if size > images {
        let examples = Examples::of_model(settings.architecture().name()).counted(images as u64, "");
        context.feedback.warn(&format!("a batch of {size} is the whole training split of {examples}"));
    }
    if let Some(advice) = settings.precision.advice().filter(|_| !settings.architecture().is_for_features()) {
        context.feedback.note(advice);
    }
    let Settings { optimizer, .. } = settings;
    let steps = settings.epochs * images.div_ceil(size.max(1)) as u64;
    let is_short = settings.architecture().is_for_features() && optimizer.name != OptimizerKind::Lbfgs;
    if is_short && steps < FEWEST_HEAD_STEPS {
        let epochs = FEWEST_HEAD_STEPS.div_ceil(steps.max(1)) * settings.epochs;
        context.feedback.note(&format!(
            "{} of few rows are {steps} optimizer steps, which may be too few; --epochs {epochs} or --set optimizer.name=lbfgs \
             gives the head more",
            if settings.epochs == 1 { "1 epoch".to_owned() } else { format!("{} epochs", settings.epochs) }
        ));
    }
    let rate = settings.learning_rate();
    if optimizer.name == OptimizerKind::AdamW && rate > ADAMW_LEARNING_RATE {
        context.feedback.warn(&format!("a learning rate of {rate} is large for adamw; 0.001 is usual"));
    }
    let is_selected = matches!(settings.select_best, SelectBest::Auto | SelectBest::Val);
    let validation = data.val.as_ref().map(|val| val.labels.len());
    if let Some(images) = validation.filter(|images| is_selected && *images < FEWEST_VALIDATION_IMAGES) {
        let what = few_images(images);
        context.feedback.warn(&format!("{what}; hold more out, or keep the last one with --set select_best=last"));
    }
    let (cutout, (_, height, width)) = (settings.augment.cutout, data.train.loader.shape());
    if cutout > 0 && cutout >= height.min(width) {
        let what = format!("augment.cutout = {cutout} erases most of images of {height} x {width}");
        context.feedback.warn(&format!("{what}; half of their side is usual"));
    }
    if let Some(correction) = second_correction(settings, settings.logit_adjustment) {
        context.feedback.warn(&correction);
    }
}
