//! A trained network as a file that stands alone: its weights, and in the metadata all that a program needs to use them.

use std::path::Path;

use equipoise_data::batch::loader::Transform;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::features::read::metadata as metadata_of;
use equipoise_data::features::scaling::FeatureScaling;
use equipoise_nn::Weights;
use equipoise_nn::network::Head;
use equipoise_onnx::{BackboneFile, FeatureScale};
use serde_json::{Value, json};

use super::files::{input_error, read_bytes};
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
    with_model(checkpoint, decision, version, |model| Ok(equipoise_onnx::write(model)))
}

/// A head on features joined with its backbone as an ONNX file: pixels in 0..=1 in, logits and probabilities out. The file of features says
/// which output of the backbone they are, and how images are normalized.
///
/// # Errors
/// Returns an error if the run is not on features of `embed`, or the backbone cannot be joined.
pub fn to_joined_onnx(
    checkpoint: &Checkpoint,
    backbone: &Path,
    decision: &DecisionOptions,
    version: &str,
) -> Result<Vec<u8>, TrainError> {
    let header = &checkpoint.header;
    if !header.network.is_on_features() {
        let what = format!("--backbone is for heads on features, and this run trained {}", header.network.name);
        return Err(TrainError::Unusable { what });
    }
    let features = Path::new(&header.settings.data.dataset);
    let about = EmbeddedBy::read(features)?;
    let bytes = read_bytes(backbone)?;
    let file = BackboneFile {
        bytes: &bytes,
        output: &about.output,
        mean: &about.mean,
        std: &about.std,
        image_size: about.image_size,
    };
    with_model(checkpoint, decision, version, |model| {
        let mut metadata = model.metadata.to_vec();
        let side = about.image_size.to_string();
        let shape = [("channels", about.mean.len().to_string()), ("height", side.clone()), ("width", side)];
        metadata.extend(shape);
        metadata.push(("resize", about.resize.to_string()));
        let model = equipoise_onnx::Model { metadata: &metadata, ..*model };
        equipoise_onnx::write_joined(&model, &file).map_err(|error| input_error(backbone, error.to_string()))
    })
}

/// How features were computed from images, as `embed` records it.
struct EmbeddedBy {
    output: String,
    mean: Vec<f32>,
    std: Vec<f32>,
    image_size: usize,
    resize: u64,
}

impl EmbeddedBy {
    fn read(features: &Path) -> Result<Self, TrainError> {
        let unknown = || {
            let what = "it does not say how its features were computed; only features of `equipoise embed` can be joined with their backbone";
            input_error(features, what)
        };
        let metadata = metadata_of(features)?;
        let (_, output) = metadata.get("backbone").and_then(|text| text.split_once(", output ")).ok_or_else(unknown)?;
        let how: Value =
            metadata.get("preprocessing").and_then(|text| serde_json::from_str(text).ok()).ok_or_else(unknown)?;
        let list = |key: &str| -> Option<Vec<f32>> {
            how[key].as_array()?.iter().map(|value| Some(value.as_f64()? as f32)).collect()
        };
        Ok(Self {
            output: output.to_owned(),
            mean: list("mean").ok_or_else(unknown)?,
            std: list("std").ok_or_else(unknown)?,
            image_size: how["image_size"].as_u64().ok_or_else(unknown)? as usize,
            resize: how["resize"].as_u64().ok_or_else(unknown)?,
        })
    }
}

/// Calls `write` with a checkpoint as a model.
fn with_model(
    checkpoint: &Checkpoint,
    decision: &DecisionOptions,
    version: &str,
    write: impl FnOnce(&equipoise_onnx::Model<'_>) -> Result<Vec<u8>, TrainError>,
) -> Result<Vec<u8>, TrainError> {
    let Checkpoint { header, parameters, statistics, .. } = checkpoint;
    let weights = Weights { parameters: parameters.clone(), statistics: statistics.clone() };
    weights.check(&header.network)?;
    let (adjustment, temperature) = adjustment(checkpoint, decision)?;
    let mut metadata = [vec![("network", header.network.name.clone())], input_metadata(checkpoint, version)].concat();
    metadata.extend(prior_metadata(checkpoint, decision));
    metadata.push(("temperature", temperature.to_string()));
    let features = header.network.is_on_features().then(|| match header.settings.data.scaling {
        FeatureScaling::Standardize => {
            FeatureScale::Affine { scale: header.normalize.scale(), offset: header.normalize.offset() }
        }
        FeatureScaling::Normalize => FeatureScale::UnitLength,
        FeatureScaling::None => FeatureScale::Nothing,
    });
    write(&equipoise_onnx::Model {
        network: &header.network,
        parameters,
        statistics,
        mean: &header.normalize.mean(),
        std: &header.normalize.std(),
        features,
        logit_scale: adjustment.scale,
        logit_offsets: &adjustment.offsets,
        temperature,
        metadata: &metadata,
        version,
    })
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
    let normalize = &header.normalize;
    metadata.extend(match network.is_on_features() {
        true => [("scale", json!(normalize.scale()).to_string()), ("offset", json!(normalize.offset()).to_string())],
        false => [("mean", json!(normalize.mean()).to_string()), ("std", json!(normalize.std()).to_string())],
    });
    metadata.extend([("head", head.to_owned()), ("head_scale", (head_scale * adjustment.scale).to_string())]);
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
    ];
    if network.is_on_features() {
        metadata.push(("features", network.channels.to_string()));
        metadata.push(("scaling", header.settings.data.scaling.to_string()));
        return metadata;
    }
    metadata.extend([
        ("channels", network.channels.to_string()),
        ("height", network.size[0].to_string()),
        ("width", network.size[1].to_string()),
    ]);
    // only files of any size need a rule
    match loading(header) {
        Ok(Transform::Photo { crop: PhotoCrop::CenterCrop { resize }, .. }) => {
            metadata.push(("resize", resize.to_string()));
        }
        Ok(Transform::Small { image_size, .. } | Transform::Photo { image_size, .. }) => {
            metadata.push(("resize", image_size.to_string()));
        }
        Ok(Transform::Features { .. }) | Err(_) => {}
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
