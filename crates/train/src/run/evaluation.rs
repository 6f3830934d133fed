//! A trained run on a dataset.

use equipoise_data::describe::groups::GroupRule;
use equipoise_nn::Network;
use equipoise_nn::network::Head;
use equipoise_record::Metrics;

use super::RunContext;
use super::build::{engine, prepare};
use super::prediction::most_probable;
use super::weights::set_tensors;
use crate::checkpoint::{Checkpoint, CheckpointHeader};
use crate::error::TrainError;
use crate::evaluate::{EvaluatedBatch, LogitAdjustment, evaluate};
use crate::prepare::{RunData, SplitLoader};

/// What to evaluate, where it differs from the run.
#[derive(Clone, Debug, Default)]
pub struct EvaluationOptions {
    /// Another dataset with the same classes.
    pub dataset: Option<String>,
    /// Other groups of classes.
    pub groups: Option<GroupRule>,
    /// Another tau of the post-hoc logit adjustment.
    pub logit_adjustment: Option<f64>,
    /// Tau of the normalization of a linear head's weights (Kang et al., ICLR 2020); 0 for none.
    pub tau_norm: f64,
    /// Whether to list the prediction of every image.
    pub predictions: bool,
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
}

/// Metrics of a trained run on a test split.
pub struct Evaluation {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of test images.
    pub images: usize,
    /// Tau of the post-hoc logit adjustment.
    pub logit_adjustment: f64,
    /// The metrics.
    pub metrics: Metrics,
    /// Label, prediction and number of images, for every pair that occurred.
    pub confusion: Vec<[u64; 3]>,
    /// Every image in the order of the split; empty unless asked for.
    pub predictions: Vec<ImagePrediction>,
}

/// Evaluates a checkpoint on a test split.
///
/// # Errors
/// Returns an error if the dataset cannot be read, does not fit the run, or has changed since the run.
pub fn evaluate_checkpoint(
    checkpoint: Checkpoint,
    options: &EvaluationOptions,
    context: &RunContext<'_>,
) -> Result<Evaluation, TrainError> {
    let Checkpoint { header, mut parameters, statistics, .. } = checkpoint;
    let mut settings = header.settings.clone();
    if let Some(dataset) = &options.dataset {
        settings.data.dataset.clone_from(dataset);
        (settings.data.imbalance, settings.data.subset_file) = (None, None);
        (settings.data.val_fraction, settings.data.val_at_least) = (0.0, 0);
    }
    settings.groups = options.groups.unwrap_or(settings.groups);
    let data = prepare(&settings, Some(&header.normalize), context)?;
    check_data(&data, &header, options.dataset.is_none())?;
    if options.tau_norm > 0.0 {
        normalize_head(&header.network, &mut parameters, options.tau_norm)?;
    }
    let batch_size = settings.batch_size.min(data.test.labels.len());
    let mut engine = engine(header.network.clone(), batch_size, 0, context.pool)?;
    set_tensors(&mut engine, &[parameters, statistics])?;
    let tau = options.logit_adjustment.unwrap_or(settings.logit_adjustment);
    let adjustment = LogitAdjustment::new(&settings.criterion.method, &header.counts, tau);
    let mut predictions = Vec::new();
    let mut on_batch = |batch: &EvaluatedBatch<'_>| {
        if options.predictions {
            predictions.extend(image_predictions(batch, &data.test));
        }
        true
    };
    let counts = evaluate(&mut engine, &data.test, batch_size, context.pool, &adjustment, &mut on_batch)?;
    let counts = counts.ok_or_else(|| TrainError::Unusable { what: "the evaluation was interrupted".to_owned() })?;
    let pair = |((label, predicted), images): (&(u32, u32), &u64)| [u64::from(*label), u64::from(*predicted), *images];
    Ok(Evaluation {
        images: data.test.labels.len(),
        logit_adjustment: tau,
        metrics: counts.metrics(&header.counts, &settings.groups.groups(&header.counts), &data.classes),
        confusion: counts.confusion().iter().map(pair).collect(),
        predictions,
        dataset: data.name,
    })
}

/// The predictions of a batch.
fn image_predictions(batch: &EvaluatedBatch<'_>, split: &SplitLoader) -> Vec<ImagePrediction> {
    let classes = batch.logits.len() / batch.labels.len().max(1);
    let rows = batch.labels.iter().zip(batch.logits.chunks_exact(classes)).enumerate();
    let predict = |(row, (label, logits)): (usize, (&u32, &[f32]))| {
        let (label, all) = (*label as usize, most_probable(logits, classes));
        let (predicted, probability) = all[0];
        let label_probability = all.iter().find(|(class, _)| *class == label).map_or(0.0, |(_, p)| *p);
        ImagePrediction {
            name: split.name((batch.first + row) as u32),
            label,
            predicted,
            probability,
            label_probability,
        }
    };
    rows.map(predict).collect()
}

/// Checks that a dataset fits a checkpoint, and is unchanged if it is the run's own.
fn check_data(data: &RunData, header: &CheckpointHeader, own: bool) -> Result<(), TrainError> {
    let refuse = |what: String| Err(TrainError::Dataset { dataset: data.name.clone(), what });
    let same_content = header.content.as_ref().is_none_or(|content| *content == data.content);
    if own && (data.fingerprint != header.fingerprint || !same_content) {
        return refuse("its images have changed since the run; to evaluate on it anyway, name the dataset".to_owned());
    }
    if data.classes != header.classes {
        let (got, want) = (data.classes.len(), header.classes.len());
        return refuse(format!("its {got} classes are not the {want} classes of the run"));
    }
    let (channels, height, width) = data.test.loader.shape();
    let network = &header.network;
    if (channels, [height, width]) != (network.channels, network.size) {
        let [want_height, want_width] = network.size;
        return refuse(format!(
            "its images are {channels} x {height} x {width}; those of the run are {} x {want_height} x {want_width}",
            network.channels
        ));
    }
    Ok(())
}

/// Scales each class's weights of a linear head by their norm to the power of -tau.
pub(super) fn normalize_head(network: &Network, parameters: &mut [Vec<f32>], tau: f64) -> Result<(), TrainError> {
    if network.head != Head::Linear {
        return Err(TrainError::Unusable {
            what: "tau-normalization: a cosine head has no norms to normalize".to_owned(),
        });
    }
    let name = format!("{}.weight", network.head_name());
    let tensors = network.parameters();
    for (tensor, values) in tensors.iter().zip(parameters).filter(|(tensor, _)| tensor.name == name) {
        for row in values.chunks_exact_mut(tensor.shape[1]) {
            let norm = row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt().max(1e-12);
            let scale = norm.powf(-tau) as f32;
            row.iter_mut().for_each(|w| *w *= scale);
        }
    }
    Ok(())
}
