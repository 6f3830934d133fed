//! A trained run on image files.
//!
//! Several processes take a batch each in turn. One that cannot read a file leaves its batch to rank 0, so that files which only
//! rank 0 has are predicted too.

use std::path::PathBuf;

use equipoise_data::batch::loader::{Loader, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::{DataError, Images};
use equipoise_nn::Cpu;
use equipoise_pool::Pool;
use serde::{Deserialize, Serialize};

use super::build::engine;
use super::evaluation::normalize_head;
use super::processes::{Processes, Task, to_json};
use super::shared::read_checkpoint;
use super::weights::set_tensors;
use crate::checkpoint::{Checkpoint, CheckpointHeader};
use crate::decision::{Decision, DecisionOptions};
use crate::error::TrainError;
use crate::evaluate::{Inference, LogitAdjustment, TestTimeAugmentation};
use crate::prepare::transform;
use crate::same_files::{LabeledFile, absolute, check_files};
use crate::workers::{SingleProcess, Workers, agree};

/// Images per forward pass at most: enough for every thread, and few enough that results appear soon.
const BATCH_SIZE: usize = 64;
/// Pixels per forward pass: photographs go in smaller batches, whose memory is faster to get.
const BATCH_PIXELS: usize = 1 << 20;

/// What to predict with, where it differs from the run.
#[derive(Clone, Debug, Default)]
pub struct PredictionOptions {
    /// Another tau of the post-hoc logit adjustment.
    pub logit_adjustment: Option<f64>,
    /// Tau of the normalization of a linear head's weights (Kang et al., ICLR 2020); 0 for none.
    pub tau_norm: f64,
    /// Test-time augmentation.
    pub tta: TestTimeAugmentation,
    /// Number of classes per image, the most probable ones.
    pub top: usize,
    /// How logits become decisions.
    pub decision: DecisionOptions,
}

/// The prediction for an image file.
#[derive(Clone, Debug, PartialEq)]
pub struct FilePrediction {
    /// The most probable classes, the most probable first.
    pub classes: Vec<Probability>,
    /// The classes that may well be that of the image, if sets were asked for.
    pub set: Option<Vec<usize>>,
    /// Whether the image is probably none of the classes.
    pub rejected: bool,
}

/// Predicts the classes of image files.
pub struct Predictor {
    header: CheckpointHeader,
    engine: Cpu,
    loader: Loader,
    images: usize,
    batch_size: usize,
    inference: Inference,
    decision: Decision,
    top: usize,
    pool: Pool,
    workers: Box<dyn Workers>,
}

/// What the other processes need to know of a prediction.
#[derive(Serialize, Deserialize)]
struct Order {
    files: Vec<PathBuf>,
    logit_adjustment: Option<f64>,
    tau_norm: f64,
    is_flipped: bool,
    threads: usize,
}

/// A class with its probability.
pub type Probability = (usize, f64);

impl Predictor {
    /// Prepares a trained run for these images, whose files are not looked at yet, or for these rows of features. Other processes
    /// take part if there are files for them.
    ///
    /// # Errors
    /// Returns an error if the run cannot be used for files, or the options do not fit its head.
    pub fn new(
        checkpoint: Checkpoint,
        images: Images,
        options: &PredictionOptions,
        pool: &Pool,
        processes: Option<&dyn Processes>,
    ) -> Result<Self, TrainError> {
        let order = processes.zip(order(&checkpoint, &images, options, pool));
        let files = match (&order, &images) {
            (Some(_), Images::Files(files)) => unlabeled(files),
            _ => Vec::new(),
        };
        let mut predictor = Self::alone(checkpoint, images, options, pool)?;
        if let Some((processes, (order, mut checkpoint))) = order.filter(|_| predictor.images > predictor.batch_size) {
            predictor.workers = processes.start(Task::Predict, &order)?.workers;
            predictor.workers.broadcast(&mut checkpoint)?;
            agree(&mut predictor.workers, Ok(()))?;
            check_files(Some(&files), true, &mut predictor.workers)?;
        }
        Ok(predictor)
    }

    fn alone(
        checkpoint: Checkpoint,
        images: Images,
        options: &PredictionOptions,
        pool: &Pool,
    ) -> Result<Self, TrainError> {
        check_images(&checkpoint.header, &images)?;
        options.tta.check(&checkpoint.header.network)?;
        let Checkpoint { header, mut parameters, statistics, .. } = checkpoint;
        if options.tau_norm > 0.0 {
            normalize_head(&header.network, &mut parameters, options.tau_norm)?;
        }
        let (number, [height, width]) = (images.len(), header.network.size);
        let batch_size = (BATCH_PIXELS / (height * width).max(1)).clamp(8, BATCH_SIZE).min(number).max(1);
        let mut engine = engine(header.network.clone(), batch_size, 0, header.settings.precision, pool)?;
        set_tensors(&mut engine, &[parameters, statistics])?;
        let loader = match images {
            Images::Files(files) => Loader::unchecked(files, loading(&header)?),
            others => Loader::new(others, loading(&header)?, 0, pool, &|_, _| {})?,
        };
        let tau = options.logit_adjustment.unwrap_or(header.settings.logit_adjustment);
        let adjustment = LogitAdjustment::new(&header.settings.criterion.method, &header.counts, tau);
        let groups = header.settings.groups.groups(&header.counts);
        let decision = Decision::new(&header, &adjustment, &groups, &options.decision)?;
        let inference = Inference { adjustment, tta: options.tta };
        let top = options.top.clamp(1, header.classes.len());
        let (workers, pool) = (Box::new(SingleProcess), pool.clone());
        Ok(Self { header, engine, loader, images: number, batch_size, inference, decision, top, pool, workers })
    }

    /// How many processes predict: one if the images are a single batch, or rows of features.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.workers.shard().size()
    }

    /// Names of the classes.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.header.classes
    }

    /// What becomes of the logits.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Calls `each` with the index of every image and its prediction, or why it cannot be read.
    ///
    /// # Errors
    /// Returns the first error of `each`.
    pub fn predict<E: From<TrainError>>(
        &mut self,
        mut each: impl FnMut(usize, Result<&FilePrediction, &str>) -> Result<(), E>,
    ) -> Result<(), E> {
        let indices: Vec<u32> = (0..self.images as u32).collect();
        let batches: Vec<&[u32]> = indices.chunks(self.batch_size).collect();
        for batches in batches.chunks(self.workers.shard().size()) {
            let first = self.logits(batches[0]);
            let first = agree(&mut self.workers, first)?;
            // rank 0 has no use for its own message
            let others = self.workers.exchange(&[]).map_err(TrainError::from)?;
            let mut first = Some(first);
            let mut write = || -> Result<(), E> {
                for (batch, message) in batches.iter().zip(&others) {
                    let computed = match (first.take(), message.is_empty()) {
                        (Some(first), _) => first,
                        (None, true) => self.logits(batch)?,
                        (None, false) => Logits { values: from_bytes(message), unreadable: Vec::new() },
                    };
                    self.decide_all(batch, &computed, &mut each)?;
                }
                Ok(())
            };
            let written = write();
            let stopped = |_: &E| TrainError::Unusable { what: "the predictions cannot be written".to_owned() };
            let told = agree(&mut self.workers, written.as_ref().copied().map_err(stopped));
            written?;
            told?;
        }
        Ok(())
    }

    /// Calls `each` with the images of a batch.
    fn decide_all<E>(
        &self,
        indices: &[u32],
        Logits { values, unreadable }: &Logits,
        each: &mut impl FnMut(usize, Result<&FilePrediction, &str>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (index, logits) in indices.iter().zip(values.chunks_exact(self.header.network.classes)) {
            match unreadable.iter().find(|(unreadable, _)| unreadable == index) {
                Some((_, what)) => each(*index as usize, Err(what))?,
                None => each(*index as usize, Ok(&self.decide(logits)))?,
            }
        }
        Ok(())
    }

    /// The logits of a batch.
    fn logits(&mut self, indices: &[u32]) -> Result<Logits, TrainError> {
        let Batch { mut images, unreadable } = self.batch(indices)?;
        let values = self.inference.logits(&mut self.engine, &mut images)?.to_vec();
        Ok(Logits { values, unreadable })
    }

    /// Computes the batches of a process that is not rank 0.
    fn predict_share(&mut self) -> Result<(), TrainError> {
        let (rank, size) = (self.workers.shard().rank(), self.workers.shard().size());
        let indices: Vec<u32> = (0..self.images as u32).collect();
        let batches: Vec<&[u32]> = indices.chunks(self.batch_size).collect();
        for batches in batches.chunks(size) {
            let own = batches.get(rank).map_or(Ok(Vec::new()), |batch| {
                let Logits { values, unreadable } = self.logits(batch)?;
                // rank 0 computes the whole batch, and says why a file cannot be read
                Ok(if unreadable.is_empty() { to_bytes(&values) } else { Vec::new() })
            });
            let own = agree(&mut self.workers, own)?;
            self.workers.exchange(&own)?;
            agree(&mut self.workers, Ok(()))?;
        }
        Ok(())
    }

    fn decide(&self, logits: &[f32]) -> FilePrediction {
        let mut probable = logits.to_vec();
        self.decision.apply(&mut probable);
        FilePrediction {
            classes: most_probable(&probable, self.top),
            set: self.decision.set(logits),
            rejected: self.decision.rejects(logits),
        }
    }

    /// Loads a batch in the channels of the network.
    fn batch(&self, indices: &[u32]) -> Result<Batch, TrainError> {
        let network = &self.header.network;
        let plane = network.size[0] * network.size[1];
        // files have three channels
        let channels = if network.is_on_features() { network.channels } else { 3 };
        let mut images = vec![0.0; indices.len() * channels * plane];
        let unreadable = match self.loader.batch(indices, 0, 0, &mut images, &self.pool) {
            Ok(()) => Vec::new(),
            Err(DataError::Unreadable { files }) => files.into_iter().map(|file| (file.index, file.what)).collect(),
            Err(error) => return Err(error.into()),
        };
        if network.channels != 1 || network.is_on_features() {
            return Ok(Batch { images, unreadable });
        }
        // files have three channels: a network for gray images sees their brightness, normalized afterwards
        let brightness = |image: &[f32]| -> Vec<f32> {
            let (red, rest) = image.split_at(plane);
            let (green, blue) = rest.split_at(plane);
            let rgb = red.iter().zip(green).zip(blue);
            let normalize = &self.header.normalize;
            rgb.map(|((r, g), b)| normalize.value(0, 255.0 * (0.299 * r + 0.587 * g + 0.114 * b))).collect()
        };
        let images = images.chunks_exact(3 * plane).flat_map(brightness).collect();
        Ok(Batch { images, unreadable })
    }
}

/// What the other processes need to know; `None` if the images come from no files, or from files whose names cannot be sent.
fn order(
    checkpoint: &Checkpoint,
    images: &Images,
    options: &PredictionOptions,
    pool: &Pool,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let Images::Files(files) = images else { return None };
    let order = Order {
        files: files.iter().map(std::path::absolute).collect::<Result<_, _>>().ok()?,
        logit_adjustment: options.logit_adjustment,
        tau_norm: options.tau_norm,
        is_flipped: options.tta == TestTimeAugmentation::Flip,
        threads: pool.threads(),
    };
    Some((to_json(&order).ok()?, checkpoint.to_raw().ok()?.to_bytes()))
}

/// Takes part in a prediction of rank 0.
///
/// # Errors
/// If any process cannot.
pub fn predict_share(order: &[u8], mut workers: Box<dyn Workers>) -> Result<(), TrainError> {
    let mut checkpoint = Vec::new();
    workers.broadcast(&mut checkpoint)?;
    let read = || {
        let unusable = |what: String| TrainError::Unusable { what };
        let order: Order = serde_json::from_slice(order).map_err(|error| unusable(error.to_string()))?;
        let pool = Pool::new(order.threads).map_err(|error| unusable(format!("cannot start threads: {error}")))?;
        let checkpoint = read_checkpoint(&checkpoint)?.ok_or_else(|| unusable("there is no checkpoint".to_owned()))?;
        let options = PredictionOptions {
            logit_adjustment: order.logit_adjustment,
            tau_norm: order.tau_norm,
            tta: if order.is_flipped { TestTimeAugmentation::Flip } else { TestTimeAugmentation::None },
            ..PredictionOptions::default()
        };
        let files = unlabeled(&order.files);
        Ok((Predictor::alone(checkpoint, Images::Files(order.files), &options, &pool)?, files))
    };
    let (mut predictor, files) = agree(&mut workers, read())?;
    check_files(Some(&files), true, &mut workers)?;
    predictor.workers = workers;
    predictor.predict_share()
}

/// Files without classes.
fn unlabeled(files: &[PathBuf]) -> Vec<LabeledFile> {
    files.iter().map(|file| absolute((file.clone(), 0))).collect()
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Refuses images for a head on features, and features that do not fit the run.
fn check_images(header: &CheckpointHeader, images: &Images) -> Result<(), TrainError> {
    let what = match (header.network.is_on_features(), images) {
        (true, Images::Features(features)) if features.width() != header.network.channels => {
            format!("rows of {} features, but the run was trained on rows of {}", features.width(), header.network.channels)
        }
        (true, Images::Memory(_) | Images::Files(_)) => {
            "the run was trained on features: name a .npy, .npz or safetensors file (`equipoise embed` computes it from images)".to_owned()
        }
        (false, Images::Features(_)) => "the run was trained on images, and these are features".to_owned(),
        _ => return Ok(()),
    };
    Err(TrainError::Unusable { what })
}

/// The logits of a batch.
struct Logits {
    values: Vec<f32>,
    /// Index of each file that cannot be read, and why.
    unreadable: Vec<(u32, String)>,
}

/// Images that are ready for the network. Those of files that cannot be read are black.
struct Batch {
    images: Vec<f32>,
    /// Index of each file that cannot be read, and why.
    unreadable: Vec<(u32, String)>,
}

/// How files are loaded for a network.
pub(super) fn loading(header: &CheckpointHeader) -> Result<Transform, TrainError> {
    let [height, width] = header.network.size;
    if header.network.is_on_features() {
        return Ok(transform(&header.settings, false, &header.normalize, false));
    }
    if height != width {
        let what = format!("the run was trained on images of {height} x {width}, but files become square images");
        return Err(TrainError::Unusable { what });
    }
    if header.network.channels == 1 {
        let unchanged = Normalize::new(&[0.0; 3], &[1.0; 3])?;
        return Ok(Transform::Small { image_size: height as u32, transform: SmallTransform::plain(unchanged) });
    }
    let mut settings = header.settings.clone();
    settings.data.image_size = height as u32;
    Ok(transform(&settings, header.files, &header.normalize, false))
}

/// The most probable classes with their probabilities, the most probable first.
pub(crate) fn most_probable(logits: &[f32], top: usize) -> Vec<Probability> {
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let powers: Vec<f64> = logits.iter().map(|x| f64::from(x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let by_power = |a: &usize, b: &usize| powers[*b].total_cmp(&powers[*a]).then(a.cmp(b));
    let mut order: Vec<usize> = (0..powers.len()).collect();
    if top < order.len() {
        order.select_nth_unstable_by(top, by_power);
        order.truncate(top);
    }
    order.sort_by(by_power);
    order.into_iter().map(|class| (class, powers[class] / sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_classes_come_first() {
        let logits = [0.0, 2f32.ln(), 0.0, 5f32.ln(), f32::NEG_INFINITY];
        let close = |got: &[Probability], want: &[Probability]| {
            let same = |(a, b): (&Probability, &Probability)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6;
            assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}");
        };
        close(&most_probable(&logits, 1), &[(3, 5.0 / 9.0)]);
        close(&most_probable(&logits, 3), &[(3, 5.0 / 9.0), (1, 2.0 / 9.0), (0, 1.0 / 9.0)]);
        let all = [(3, 5.0 / 9.0), (1, 2.0 / 9.0), (0, 1.0 / 9.0), (2, 1.0 / 9.0), (4, 0.0)];
        close(&most_probable(&logits, 5), &all);
        close(&most_probable(&logits, 99), &all);
    }
}
