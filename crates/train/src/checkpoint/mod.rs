//! A checkpoint: the state of a run after some step, with everything needed to resume it or to use its weights.
//!
//! [`mod@format`] is the byte format with its checksum, [`files`] saves and finds the files in a run folder; this module says
//! what the header means and whether the tensors fit it.

pub mod files;
pub mod format;

use std::collections::BTreeMap;

use equipoise_criterion::State;
use equipoise_data::batch::normalize::Normalize;
use equipoise_nn::Network;
use equipoise_nn::network::Tensor;
use equipoise_record::{EpochRecord, GradientNorms};
use serde::{Deserialize, Serialize};

pub use self::files::{CheckpointError, FoundCheckpoint};
pub use self::format::{Corruption, RawCheckpoint};
use crate::difficulty::Difficulty;
use crate::error::TrainError;
use crate::norms::NormHistogram;
use crate::settings::{OptimizerKind, Settings};
use crate::trainer::Position;

/// Everything in a checkpoint that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointHeader {
    /// Settings of the run.
    pub settings: Settings,
    /// The network.
    pub network: Network,
    /// Name of the dataset.
    pub dataset: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Training images per class.
    pub counts: Vec<u64>,
    /// Fingerprint of the splits.
    pub fingerprint: String,
    /// Hash of a sample of the pixels of the splits; `None` in checkpoints of older versions.
    #[serde(default)]
    pub content: Option<String>,
    /// Whether the images come from files.
    pub files: bool,
    /// Normalization of the pixels.
    pub normalize: Normalize,
    /// Position within the run.
    pub position: Position,
    /// State of the criterion.
    pub criterion: State,
    /// Records of the finished epochs.
    pub history: Vec<EpochRecord>,
    /// The best epoch so far, from 1.
    pub best: Option<u64>,
    /// Whether an EMA of parameters and statistics follows the other tensors.
    pub has_ema: bool,
    /// Gradient norms of the unfinished epoch.
    pub(crate) norms: NormHistogram,
    /// Gradient norms of the last finished epoch.
    pub(crate) last_norms: Option<GradientNorms>,
    /// Levels of the classes, if RandAugment's magnitude follows the difficulty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) difficulty: Option<Difficulty>,
}

/// A checkpoint whose tensors fit its network.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Everything that is not a tensor.
    pub header: CheckpointHeader,
    /// The parameters to evaluate with: their EMA if the run has one.
    pub parameters: Vec<Vec<f32>>,
    /// The running means and variances to evaluate with: their EMA if the run has one.
    pub statistics: Vec<Vec<f32>>,
    /// The parameters in training.
    pub(crate) trained_parameters: Vec<Vec<f32>>,
    /// The running means and variances in training.
    pub(crate) trained_statistics: Vec<Vec<f32>>,
    /// Momentum of the optimizer.
    pub(crate) momentum: Vec<Vec<f32>>,
    /// Second moment of AdamW; `None` for SGD.
    pub(crate) second_moment: Option<Vec<Vec<f32>>>,
}

impl Checkpoint {
    /// Interprets the content of a checkpoint file.
    ///
    /// # Errors
    /// If the header cannot be read, or the tensors do not fit the network.
    pub fn new(raw: RawCheckpoint) -> Result<Self, TrainError> {
        let invalid = |what: String| TrainError::Checkpoint { what };
        let header: CheckpointHeader =
            serde_json::from_str(&raw.header).map_err(|error| invalid(format!("invalid header: {error}")))?;
        header.network.check()?;
        let parameters: Vec<usize> = header.network.parameters().iter().map(Tensor::len).collect();
        let statistics: Vec<usize> = header.network.statistics().iter().map(Tensor::len).collect();
        // in the order of `Trainer::checkpoint`
        let has_second_moment = header.settings.optimizer.name == OptimizerKind::AdamW;
        let mut sections = vec![&parameters, &parameters, &statistics];
        sections.extend(has_second_moment.then_some(&parameters));
        sections.extend([&parameters, &statistics].into_iter().filter(|_| header.has_ema));
        if !raw.tensors.iter().map(Vec::len).eq(sections.iter().copied().flatten().copied()) {
            return Err(invalid("its tensors are not those of its network".to_owned()));
        }
        let mut tensors = raw.tensors.into_iter();
        let mut take = |lengths: &Vec<usize>| tensors.by_ref().take(lengths.len()).collect::<Vec<_>>();
        let [trained_parameters, momentum, trained_statistics] =
            [take(&parameters), take(&parameters), take(&statistics)];
        let second_moment = has_second_moment.then(|| take(&parameters));
        let [parameters, statistics] = match header.has_ema {
            true => [take(&parameters), take(&statistics)],
            false => [trained_parameters.clone(), trained_statistics.clone()],
        };
        Ok(Self { header, parameters, statistics, trained_parameters, trained_statistics, momentum, second_moment })
    }

    /// The content of its file.
    ///
    /// # Errors
    /// If the header has a value that JSON cannot express.
    pub(crate) fn to_raw(&self) -> Result<RawCheckpoint, TrainError> {
        let header = serde_json::to_string(&self.header)
            .map_err(|error| TrainError::Checkpoint { what: format!("cannot write JSON: {error}") })?;
        // in the order of `new`
        let mut sections = vec![&self.trained_parameters, &self.momentum, &self.trained_statistics];
        sections.extend(&self.second_moment);
        sections.extend([&self.parameters, &self.statistics].into_iter().filter(|_| self.header.has_ema));
        Ok(RawCheckpoint { header, tensors: sections.into_iter().flatten().cloned().collect() })
    }
}

/// Copies parameters and statistics of one network into another, where name and shape agree. Returns the names of the
/// tensors that were not copied.
#[must_use]
pub fn transfer(from: (&Network, [&[Vec<f32>]; 2]), to: &Network, into: &mut [Vec<Vec<f32>>; 2]) -> Vec<String> {
    let (network, values) = from;
    let tensors = |network: &Network| network.parameters().into_iter().chain(network.statistics());
    let values = values.into_iter().flatten();
    let sources: BTreeMap<String, (Vec<usize>, &Vec<f32>)> =
        tensors(network).zip(values).map(|(tensor, values)| (tensor.name, (tensor.shape, values))).collect();
    let mut missing = Vec::new();
    for (tensor, value) in tensors(to).zip(into.iter_mut().flatten()) {
        match sources.get(&tensor.name) {
            Some((shape, values)) if *shape == tensor.shape && values.len() == value.len() => value.clone_from(values),
            _ => missing.push(tensor.name),
        }
    }
    missing
}
