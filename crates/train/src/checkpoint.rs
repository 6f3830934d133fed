//! A checkpoint as a run means it: what stands beside the tensors, and whether they fit together.

use std::collections::BTreeMap;

use equipoise_criterion::State;
use equipoise_data::batch::normalize::Normalize;
use equipoise_nn::Network;
use equipoise_nn::network::Tensor;
use equipoise_record::{Epoch, Norms};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::norms;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::trainer::Position;

/// What a checkpoint says beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Of this structure.
    pub format: u32,
    /// The run.
    pub settings: Settings,
    /// The network.
    pub network: Network,
    /// The set's name.
    pub dataset: String,
    /// Its classes.
    pub classes: Vec<String>,
    /// Training images per class.
    pub counts: Vec<u64>,
    /// Of the parts.
    pub fingerprint: String,
    /// Whether images came from files.
    pub files: bool,
    /// Of images.
    pub normalize: Normalize,
    /// Where the run is.
    pub position: Position,
    /// The criterion's state.
    pub criterion: State,
    /// The epochs that are done.
    pub history: Vec<Epoch>,
    /// Which of them is the best, from 1.
    pub best: Option<u64>,
    /// Whether averages of parameters and statistics follow.
    pub averaged: bool,
    /// Gradient norms of the epoch that is not done.
    #[serde(default)]
    pub(crate) norms: Option<norms::Tally>,
    /// Those of the last one that is.
    #[serde(default)]
    pub(crate) last_norms: Option<Norms>,
}

/// Of [`Header`].
pub(crate) const FORMAT: u32 = 1;

/// A checkpoint's tensors, and what it says about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// What it says.
    pub header: Header,
    /// Parameters, as they are evaluated.
    pub parameters: Vec<Vec<f32>>,
    /// Running means and variances, as they are evaluated.
    pub statistics: Vec<Vec<f32>>,
    pub(crate) trained: Vec<Vec<f32>>,
    pub(crate) momentum: Vec<Vec<f32>>,
    pub(crate) running: Vec<Vec<f32>>,
}

impl Checkpoint {
    /// Reads one.
    ///
    /// # Errors
    /// For a file of another version, or whose parts do not fit together.
    pub fn new(snapshot: Snapshot) -> Result<Self, TrainError> {
        let wrong = |what: String| TrainError::Checkpoint { what };
        let header: Header = serde_json::from_str(&snapshot.header).map_err(|error| wrong(error.to_string()))?;
        if header.format != FORMAT {
            return Err(wrong(format!("format {}: this program reads {FORMAT}", header.format)));
        }
        header.network.check()?;
        let lengths: Vec<usize> = header.network.parameters().iter().map(Tensor::len).collect();
        let statistics: Vec<usize> = header.network.statistics().iter().map(Tensor::len).collect();
        let parts = [&lengths, &lengths, &statistics, &lengths, &statistics];
        let parts = &parts[..if header.averaged { 5 } else { 3 }];
        if !snapshot.tensors.iter().map(Vec::len).eq(parts.iter().copied().flatten().copied()) {
            return Err(wrong("its tensors are not those of its network".to_owned()));
        }
        let mut tensors = snapshot.tensors.into_iter();
        let mut take = |part: &Vec<usize>| tensors.by_ref().take(part.len()).collect::<Vec<_>>();
        let [trained, momentum, running] = [take(&lengths), take(&lengths), take(&statistics)];
        let [parameters, statistics] = match header.averaged {
            true => [take(&lengths), take(&statistics)],
            false => [trained.clone(), running.clone()],
        };
        Ok(Self { header, parameters, statistics, trained, momentum, running })
    }
}

/// Takes what fits from one network's parameters and statistics for another's: those of the same name and shape. Returns the
/// names of the others.
#[must_use]
pub fn transfer(from: (&Network, [&[Vec<f32>]; 2]), to: &Network, into: &mut [Vec<Vec<f32>>; 2]) -> Vec<String> {
    let (network, values) = from;
    let tensors = |network: &Network| network.parameters().into_iter().chain(network.statistics());
    let values = values.into_iter().flatten();
    let found: BTreeMap<String, (Vec<usize>, &Vec<f32>)> =
        tensors(network).zip(values).map(|(tensor, values)| (tensor.name, (tensor.shape, values))).collect();
    let mut left = Vec::new();
    for (tensor, value) in tensors(to).zip(into.iter_mut().flatten()) {
        match found.get(&tensor.name) {
            Some((shape, values)) if *shape == tensor.shape && values.len() == value.len() => value.clone_from(values),
            _ => left.push(tensor.name),
        }
    }
    left
}
