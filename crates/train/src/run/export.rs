//! A trained network as a file that stands alone: its weights, and in the metadata all that a program needs to use them.

use equipoise_data::batch::loader::Transform;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_nn::Weights;
use equipoise_nn::network::Head;
use serde_json::json;

use super::prediction::loading;
use crate::checkpoint::Checkpoint;
use crate::decision::{Decision, DecisionOptions};
use crate::error::TrainError;
use crate::evaluate::LogitAdjustment;
use crate::prior::TargetPrior;

/// The weights of a checkpoint as a safetensors file. `version` is that of the program.
///
/// The metadata are texts; numbers and lists are JSON. `network`, `classes`, `channels`, `height` and `width` describe the
/// network; `resize` is the length of the shorter side (bilinear, antialiased) before the center crop; `mean` and `std` normalize
/// pixels in 0..=1; `head` is `linear`, `lws` or `cosine`, and `head_scale` the factor of its logits; `logit_offsets` are added to the
/// logits if the run adjusts them after training or they are meant for another prior; `prior` says which. Probabilities are the softmax of the
/// logits divided by `temperature`, if there is one.
///
/// # Errors
/// Returns an error if the tensors are not those of the network.
pub fn to_safetensors(
    checkpoint: &Checkpoint,
    decision: &DecisionOptions,
    version: &str,
) -> Result<Vec<u8>, TrainError> {
    let Checkpoint { header, parameters, statistics, .. } = checkpoint;
    let weights = Weights { parameters: parameters.clone(), statistics: statistics.clone() };
    let metadata = metadata(checkpoint, decision, version)?;
    Ok(weights.to_bytes(&header.network, header.position.total_steps, &metadata)?)
}

/// A checkpoint as an ONNX file: pixels in 0..=1 in, logits and probabilities out. Normalization, factors and offsets of the
/// logits are part of the graph. `version` is that of the program.
///
/// The metadata are those of [`to_safetensors`], without what the graph does; `temperature` and `prior` are in both.
///
/// # Errors
/// Returns an error if the tensors are not those of the network.
pub fn to_onnx(checkpoint: &Checkpoint, decision: &DecisionOptions, version: &str) -> Result<Vec<u8>, TrainError> {
    let Checkpoint { header, parameters, statistics, .. } = checkpoint;
    let weights = Weights { parameters: parameters.clone(), statistics: statistics.clone() };
    weights.check(&header.network)?;
    let (adjustment, temperature) = adjustment(checkpoint, decision)?;
    let mut metadata = [vec![("network", header.network.name.clone())], input_metadata(checkpoint, version)].concat();
    metadata.extend(prior_metadata(checkpoint, decision));
    metadata.push(("temperature", temperature.to_string()));
    Ok(equipoise_onnx::write(&equipoise_onnx::Model {
        network: &header.network,
        parameters,
        statistics,
        mean: &header.normalize.mean(),
        std: &header.normalize.std(),
        logit_scale: adjustment.scale,
        logit_offsets: &adjustment.offsets,
        temperature,
        metadata: &metadata,
        version,
    }))
}

/// What becomes of the logits, and the temperature of the probabilities. Offsets of a target prior are added before the temperature here, so
/// they are that many times larger.
fn adjustment(checkpoint: &Checkpoint, options: &DecisionOptions) -> Result<(LogitAdjustment, f32), TrainError> {
    let header = &checkpoint.header;
    let adjustment =
        LogitAdjustment::new(&header.settings.criterion.method, &header.counts, header.settings.logit_adjustment);
    let decision = Decision::new(header, &adjustment, &[], options)?;
    let temperature = decision.temperature();
    let offsets: Vec<f64> = decision.offsets().iter().map(|offset| offset * temperature).collect();
    Ok((adjustment.then(1.0, &offsets), temperature as f32))
}

/// The target prior, if there is one: `train`, `uniform`, or the share of every class.
fn prior_metadata(checkpoint: &Checkpoint, options: &DecisionOptions) -> Option<(&'static str, String)> {
    let shares = |numbers: &[f64]| {
        let total: f64 = numbers.iter().sum();
        let shares = checkpoint.header.classes.iter().zip(numbers).map(|(class, n)| (class.clone(), json!(n / total)));
        serde_json::Value::Object(shares.collect()).to_string()
    };
    let prior = match &options.prior {
        TargetPrior::Assumed => return None,
        TargetPrior::Train => "train".to_owned(),
        TargetPrior::Uniform => "uniform".to_owned(),
        TargetPrior::Shares(numbers) => shares(numbers),
    };
    Some(("prior", prior))
}

/// What a program needs to know to use the weights.
fn metadata(
    checkpoint: &Checkpoint,
    decision: &DecisionOptions,
    version: &str,
) -> Result<Vec<(&'static str, String)>, TrainError> {
    let (header, network) = (&checkpoint.header, &checkpoint.header.network);
    let (adjustment, temperature) = adjustment(checkpoint, decision)?;
    let (head, head_scale) = match network.head {
        Head::Linear => ("linear", 1.0),
        Head::Lws => ("lws", 1.0),
        Head::Cosine { scale, .. } => ("cosine", learned_scale(checkpoint).unwrap_or(scale)),
    };
    let mut metadata = input_metadata(checkpoint, version);
    metadata.extend([
        ("mean", json!(header.normalize.mean()).to_string()),
        ("std", json!(header.normalize.std()).to_string()),
        ("head", head.to_owned()),
        ("head_scale", (head_scale * adjustment.scale).to_string()),
    ]);
    if !adjustment.offsets.is_empty() {
        metadata.push(("logit_offsets", json!(adjustment.offsets).to_string()));
    }
    metadata.extend(prior_metadata(checkpoint, decision));
    if temperature != 1.0 {
        metadata.push(("temperature", temperature.to_string()));
    }
    Ok(metadata)
}

/// What a program needs to know to prepare images and to name classes.
fn input_metadata(checkpoint: &Checkpoint, version: &str) -> Vec<(&'static str, String)> {
    let (header, network) = (&checkpoint.header, &checkpoint.header.network);
    let mut metadata = vec![
        ("writer", format!("equipoise {version}")),
        ("dataset", header.dataset.clone()),
        ("epoch", header.position.epoch.to_string()),
        ("classes", json!(header.classes).to_string()),
        ("channels", network.channels.to_string()),
        ("height", network.size[0].to_string()),
        ("width", network.size[1].to_string()),
    ];
    // only files of any size need a rule
    match loading(header) {
        Ok(Transform::Photo { crop: PhotoCrop::CenterCrop { resize }, .. }) => {
            metadata.push(("resize", resize.to_string()));
        }
        Ok(Transform::Small { image_size, .. } | Transform::Photo { image_size, .. }) => {
            metadata.push(("resize", image_size.to_string()));
        }
        Err(_) => {}
    }
    metadata
}

/// The scale of a cosine head that was trained.
fn learned_scale(checkpoint: &Checkpoint) -> Option<f32> {
    let network = &checkpoint.header.network;
    let name = format!("{}.scale", network.head_name());
    let tensor = network.parameters().iter().position(|tensor| tensor.name == name)?;
    checkpoint.parameters[tensor].first().copied()
}
