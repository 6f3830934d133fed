//! Weights to start from, and checkpoints to use.

use std::error::Error;
use std::path::{Path, PathBuf};

use equipoise_nn::network::Head;
use equipoise_nn::{Cpu, Engine, Network, NnError, TensorKind, Weights};

use equipoise_record::names::{BEST, CHECKPOINT, PREVIOUS};

use super::Feedback;
use super::files::{input_error, read_bytes};
use crate::checkpoint::{Checkpoint, files, transfer};
use crate::error::TrainError;

/// Parameters and statistics of a network.
type Tensors = [Vec<Vec<f32>>; 2];

/// The checkpoint of a run folder, the best one if there is one, else the newest; or the checkpoint in a file.
///
/// # Errors
/// Returns an error if there is no checkpoint that can be used.
pub fn load_checkpoint(path: &Path, feedback: &dyn Feedback) -> Result<Checkpoint, TrainError> {
    let candidates: Vec<PathBuf> = match path.is_dir() {
        true => {
            [BEST, CHECKPOINT, PREVIOUS].map(|name| path.join(name)).into_iter().filter(|file| file.exists()).collect()
        }
        false => vec![path.to_owned()],
    };
    let mut first_error = None;
    for file in candidates {
        match files::read(&file).map_err(TrainError::from).and_then(Checkpoint::new) {
            Ok(checkpoint) => {
                if let Some(error) = first_error {
                    feedback.warn(&format!("{error}; using {} instead", file.display()));
                }
                return Ok(checkpoint);
            }
            Err(error) => first_error = first_error.or(Some(with_causes(&error))),
        }
    }
    let none = || format!("{}: not a run: it has no checkpoint", path.display());
    Err(TrainError::Unusable { what: first_error.unwrap_or_else(none) })
}

/// An error with its causes, in one line.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // a transparent error repeats its cause
    texts.dedup();
    texts.join(": ")
}

/// Puts weights of a run folder, a checkpoint or a safetensors file into an engine. A head for other classes keeps its
/// initial weights.
///
/// # Errors
/// Returns an error if the weights cannot be read, or belong to another network.
pub fn initialize(
    engine: &mut Cpu,
    path: &Path,
    classes: &[String],
    feedback: &dyn Feedback,
) -> Result<(), TrainError> {
    let network = engine.network().clone();
    let mut values: Tensors = [engine.tensors(TensorKind::Parameters), engine.tensors(TensorKind::Statistics)];
    let missing = match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => from_safetensors(path, &network, &mut values)?,
        false => from_checkpoint(&load_checkpoint(path, feedback)?, classes, &network, &mut values),
    };
    // a linear head has no scales, which start at 1
    let scale = format!("{}.scale", network.head_name());
    let missing: Vec<String> = missing.into_iter().filter(|name| network.head != Head::Lws || *name != scale).collect();
    if let Some(name) = missing.iter().find(|name| !name.starts_with(network.head_name())) {
        return Err(input_error(path, format!("weights of another network: it has no matching tensor '{name}'")));
    }
    if !missing.is_empty() && network.head == Head::Lws {
        return Err(input_error(path, "it has no linear head for these classes, which 'lws' could scale".to_owned()));
    }
    if !missing.is_empty() {
        let path = path.display();
        feedback.warn(&format!(
            "{path} has other classes or another head, so the head of this run starts from random weights"
        ));
    }
    set_tensors(engine, &values)
}

/// Puts parameters and statistics into an engine.
///
/// # Errors
/// Returns an error if they do not fit its network.
pub fn set_tensors(engine: &mut Cpu, [parameters, statistics]: &Tensors) -> Result<(), TrainError> {
    engine.set_tensors(TensorKind::Parameters, parameters)?;
    Ok(engine.set_tensors(TensorKind::Statistics, statistics)?)
}

/// Copies the tensors of a safetensors file. Returns the names of the tensors that it lacks.
fn from_safetensors(path: &Path, network: &Network, values: &mut Tensors) -> Result<Vec<String>, TrainError> {
    let bytes = read_bytes(path)?;
    let parse = |network: &Network| Weights::from_bytes(&bytes, network);
    let (source, weights) = match parse(network) {
        // a head for as many classes as the file has
        Err(NnError::Shape { name, got, .. }) if name.starts_with(network.head_name()) && !got.is_empty() => {
            let source = Network { classes: got[0], ..network.clone() };
            let weights = parse(&source);
            (source, weights)
        }
        // a linear head, which gets its scales now
        Err(NnError::MissingTensor { name }) if network.head == Head::Lws && name.ends_with(".scale") => {
            let source = network.clone().with_head(Head::Linear);
            let weights = parse(&source);
            (source, weights)
        }
        weights => (network.clone(), weights),
    };
    let weights = weights.map_err(|error| input_error(path, error.to_string()))?;
    Ok(transfer((&source, [&weights.parameters, &weights.statistics]), network, values))
}

/// Copies the tensors of a checkpoint. Returns the names of the tensors that it lacks.
fn from_checkpoint(
    checkpoint: &Checkpoint,
    classes: &[String],
    network: &Network,
    values: &mut Tensors,
) -> Vec<String> {
    let source = &checkpoint.header.network;
    let mut parameters = checkpoint.parameters.clone();
    // a head for other classes, or of another kind, is useless even if it has the same shape
    let same_kind = source.head == network.head || (source.head, network.head) == (Head::Linear, Head::Lws);
    if checkpoint.header.classes != classes || !same_kind {
        let of_head = source.parameters().into_iter().map(|tensor| tensor.name.starts_with(network.head_name()));
        parameters.iter_mut().zip(of_head).filter(|(_, of_head)| *of_head).for_each(|(values, _)| values.clear());
    }
    transfer((source, [&parameters, &checkpoint.statistics]), network, values)
}
