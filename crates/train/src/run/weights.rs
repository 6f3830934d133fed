//! Weights to start from, and checkpoints to use.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use equipoise_nn::network::Head;
use equipoise_nn::{Architecture, Engine, Network, NnError, TensorKind, Weights};
use equipoise_record::names::{BEST, CHECKPOINT, PREVIOUS, is_run};
use equipoise_support::with_causes;

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
    let none = || match runs_in(path) {
        runs if runs.is_empty() => format!("{}: not a run: it has no checkpoint", path.display()),
        runs => format!("{}: not a run; name one of the runs in it: {}", path.display(), runs.join(", ")),
    };
    Err(TrainError::Unusable { what: first_error.unwrap_or_else(none) })
}

/// The run folders in a folder, sorted.
fn runs_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut runs: Vec<String> = entries
        .filter(|path| is_run(path) && path.join(CHECKPOINT).exists())
        .map(|path| path.display().to_string())
        .collect();
    runs.sort();
    runs
}

/// Weights to start from.
#[derive(Clone, Copy, Debug)]
pub struct InitialWeights<'a> {
    /// A run folder, a checkpoint or a safetensors file.
    pub path: &'a Path,
    /// Whether the head keeps its random weights.
    pub reset_head: bool,
}

/// Puts weights into an engine. In the head, classes that the weights do not know keep their initial weights; a checkpoint knows
/// its classes by name.
///
/// # Errors
/// Returns an error if the weights cannot be read, or belong to another network.
pub fn initialize(
    engine: &mut impl Engine,
    initial: &InitialWeights<'_>,
    classes: &[String],
    feedback: &dyn Feedback,
) -> Result<(), TrainError> {
    let (path, network) = (initial.path, engine.network().clone());
    let random: Tensors = [engine.tensors(TensorKind::Parameters)?, engine.tensors(TensorKind::Statistics)?];
    let mut values = random.clone();
    let mut missing = match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => from_safetensors(path, &network, &mut values)?,
        false => {
            let checkpoint = load_checkpoint(path, feedback)?;
            let name = &checkpoint.header.network.name;
            // the tensors of a deeper network include those of a shallower one
            if *name != network.name {
                let what = format!("weights of another network: it is {name}, and the run trains {}", network.name);
                return Err(input_error(path, what));
            }
            from_checkpoint(&checkpoint, classes, &network, &mut values)
        }
    };
    // a linear head has no scales, which start at 1
    let scale = format!("{}.scale", network.head_name());
    missing.tensors.retain(|name| network.head != Head::Lws || *name != scale);
    if let Some(name) = missing.tensors.iter().find(|name| !name.starts_with(network.head_name())) {
        return Err(input_error(path, format!("weights of another network: it has no matching tensor '{name}'")));
    }
    if network.head == Head::Lws && !(missing.tensors.is_empty() && missing.classes.is_empty()) {
        return Err(input_error(path, "it has no linear head for these classes, which 'lws' could scale".to_owned()));
    }
    if initial.reset_head {
        reset_head(&network, &random, &mut values);
    } else {
        missing.warn(path, classes, feedback);
    }
    set_tensors(engine, &values)
}

/// What weights lack.
struct Missing {
    /// Names of tensors.
    tensors: Vec<String>,
    /// Classes whose rows of the head are missing, although others are there.
    classes: Vec<String>,
}

impl Missing {
    /// Says what starts from random weights.
    fn warn(&self, path: &Path, classes: &[String], feedback: &dyn Feedback) {
        const SHOWN: usize = 5;
        let path = path.display();
        if !self.tensors.is_empty() || self.classes.len() == classes.len() {
            feedback.warn(&format!(
                "{path} has other classes or another head, so the head of this run starts from random weights"
            ));
        } else if !self.classes.is_empty() {
            let shown: Vec<&str> = self.classes.iter().take(SHOWN).map(String::as_str).collect();
            let more = self.classes.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = shown.join(", ");
            feedback
                .warn(&format!("{path} does not know these classes, which start from random weights: {names}{more}"));
        }
    }
}

/// Gives the head its random weights back.
fn reset_head(network: &Network, random: &Tensors, values: &mut Tensors) {
    let tensors = network.parameters().into_iter().zip(&random[0]).zip(&mut values[0]);
    for ((tensor, random), value) in tensors {
        if tensor.name.starts_with(network.head_name()) {
            value.clone_from(random);
        }
    }
}

/// Puts parameters and statistics into an engine.
///
/// # Errors
/// Returns an error if they do not fit its network.
pub fn set_tensors(engine: &mut impl Engine, [parameters, statistics]: &Tensors) -> Result<(), TrainError> {
    engine.set_tensors(TensorKind::Parameters, parameters)?;
    Ok(engine.set_tensors(TensorKind::Statistics, statistics)?)
}

/// Copies the tensors of a safetensors file.
fn from_safetensors(path: &Path, network: &Network, values: &mut Tensors) -> Result<Missing, TrainError> {
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
    let weights = weights.map_err(|error| match error {
        NnError::UnknownTensor { .. } | NnError::MissingTensor { .. } => {
            let hint = fitting(&bytes, network).map(|other| format!("; it fits {other}: --model {other}"));
            input_error(path, format!("{error}{}", hint.unwrap_or_default()))
        }
        error => input_error(path, error.to_string()),
    })?;
    let tensors = transfer((&source, [&weights.parameters, &weights.statistics]), network, values);
    Ok(Missing { tensors, classes: Vec::new() })
}

/// The network that the tensors of a safetensors file belong to, if it is not this one.
fn fitting(bytes: &[u8], network: &Network) -> Option<Architecture> {
    let others = Architecture::ALL.into_iter().filter(|other| !other.is_for_features());
    let fits = |other: &Architecture| {
        let other = Network::new(*other, network.channels, network.size, network.classes);
        // of other classes or channels, only a shape differs
        other.is_ok_and(|other| matches!(Weights::from_bytes(bytes, &other), Ok(_) | Err(NnError::Shape { .. })))
    };
    others.into_iter().find(fits)
}

/// Copies the tensors of a checkpoint. The head is copied class by class, by name.
fn from_checkpoint(checkpoint: &Checkpoint, classes: &[String], network: &Network, values: &mut Tensors) -> Missing {
    let source = &checkpoint.header.network;
    let mut parameters = checkpoint.parameters.clone();
    let same_classes = checkpoint.header.classes == classes;
    // a head for other classes, or of another kind, is useless even if it has the same shape
    let same_kind = source.head == network.head || (source.head, network.head) == (Head::Linear, Head::Lws);
    if !same_classes || !same_kind {
        let of_head = source.parameters().into_iter().map(|tensor| tensor.name.starts_with(network.head_name()));
        parameters.iter_mut().zip(of_head).filter(|(_, of_head)| *of_head).for_each(|(values, _)| values.clear());
    }
    let mut tensors = transfer((source, [&parameters, &checkpoint.statistics]), network, values);
    if same_classes || !same_kind {
        return Missing { tensors, classes: Vec::new() };
    }
    tensors.retain(|name| !name.starts_with(network.head_name()));
    Missing { tensors, classes: copy_head_rows(checkpoint, classes, network, values) }
}

/// Copies the rows of the head whose classes have the same name. Returns the classes that the checkpoint does not know.
fn copy_head_rows(checkpoint: &Checkpoint, classes: &[String], network: &Network, values: &mut Tensors) -> Vec<String> {
    let known: BTreeMap<&String, usize> = checkpoint.header.classes.iter().zip(0..).collect();
    let sources: BTreeMap<String, &Vec<f32>> =
        checkpoint.header.network.parameters().into_iter().map(|t| t.name).zip(&checkpoint.parameters).collect();
    let heads = network.parameters().into_iter().zip(&mut values[0]);
    for (tensor, to) in heads.filter(|(tensor, _)| tensor.name.starts_with(network.head_name())) {
        let Some(from) = sources.get(&tensor.name) else { continue };
        if tensor.shape == [1] {
            // the learned scale of a cosine head belongs to no class
            to.clone_from(from);
            continue;
        }
        let width = to.len() / classes.len();
        for (class, row) in classes.iter().zip(to.chunks_exact_mut(width)) {
            if let Some(from) = known.get(class).and_then(|old| from.get(old * width..(old + 1) * width)) {
                row.copy_from_slice(from);
            }
        }
    }
    classes.iter().filter(|class| !known.contains_key(class)).cloned().collect()
}
