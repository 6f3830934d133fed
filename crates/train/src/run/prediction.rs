//! A trained run on image files.

use std::path::PathBuf;

use equipoise_data::Images;
use equipoise_data::batch::loader::{Loader, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::small::SmallTransform;
use equipoise_nn::{Cpu, Engine};
use equipoise_pool::Pool;

use super::build::engine;
use super::weights::set_tensors;
use crate::checkpoint::{Checkpoint, CheckpointHeader};
use crate::error::TrainError;
use crate::evaluate::LogitAdjustment;
use crate::prepare::transform;

/// Images per forward pass.
const BATCH_SIZE: usize = 32;

/// Predicts the classes of image files.
pub struct Predictor {
    header: CheckpointHeader,
    engine: Cpu,
    loader: Loader,
    images: usize,
    pool: Pool,
}

/// A class with its probability.
pub type Probability = (usize, f64);

impl Predictor {
    /// Prepares a trained run for these images.
    ///
    /// # Errors
    /// Returns an error if an image cannot be read, or the run cannot be used for files.
    pub fn new(checkpoint: Checkpoint, images: Vec<PathBuf>, pool: &Pool) -> Result<Self, TrainError> {
        let Checkpoint { header, parameters, statistics, .. } = checkpoint;
        let number = images.len();
        let mut engine = engine(header.network.clone(), BATCH_SIZE.min(number), 0, pool)?;
        set_tensors(&mut engine, &[parameters, statistics])?;
        let loader = Loader::new(Images::Files(images), loading(&header)?, 0, pool, &|_, _| {})?;
        Ok(Self { header, engine, loader, images: number, pool: pool.clone() })
    }

    /// Names of the classes.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.header.classes
    }

    /// Calls `each` with the index of every image and its classes, the most probable first.
    ///
    /// # Errors
    /// Returns an error if an image can no longer be read, and errors of `each`.
    pub fn predict<E: From<TrainError>>(
        &mut self,
        mut each: impl FnMut(usize, &[Probability]) -> Result<(), E>,
    ) -> Result<(), E> {
        let adjustment = LogitAdjustment::from_counts(&self.header.counts, self.header.settings.logit_adjustment);
        let classes = self.header.network.classes;
        let indices: Vec<u32> = (0..self.images as u32).collect();
        for indices in indices.chunks(BATCH_SIZE) {
            let images = self.batch(indices)?;
            let mut logits = self.engine.forward(&images, false).map_err(TrainError::from)?.to_vec();
            adjustment.apply(&mut logits);
            for (index, logits) in indices.iter().zip(logits.chunks_exact(classes)) {
                each(*index as usize, &probabilities(logits))?;
            }
        }
        Ok(())
    }

    /// Loads a batch in the channels of the network.
    fn batch(&self, indices: &[u32]) -> Result<Vec<f32>, TrainError> {
        let network = &self.header.network;
        let plane = network.size[0] * network.size[1];
        let mut images = vec![0.0; indices.len() * 3 * plane];
        self.loader.batch(indices, 0, 0, &mut images, &self.pool)?;
        if network.channels != 1 {
            return Ok(images);
        }
        // files have three channels: a network for gray images sees their brightness, normalized afterwards
        let brightness = |image: &[f32]| -> Vec<f32> {
            let (red, rest) = image.split_at(plane);
            let (green, blue) = rest.split_at(plane);
            let rgb = red.iter().zip(green).zip(blue);
            let normalize = &self.header.normalize;
            rgb.map(|((r, g), b)| normalize.value(0, 255.0 * (0.299 * r + 0.587 * g + 0.114 * b))).collect()
        };
        Ok(images.chunks_exact(3 * plane).flat_map(brightness).collect())
    }
}

/// How files are loaded for a network.
fn loading(header: &CheckpointHeader) -> Result<Transform, TrainError> {
    let [height, width] = header.network.size;
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

/// Classes with their probabilities, the most probable first.
fn probabilities(logits: &[f32]) -> Vec<Probability> {
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let powers: Vec<f64> = logits.iter().map(|x| f64::from(x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let mut order: Vec<usize> = (0..powers.len()).collect();
    order.sort_by(|a, b| powers[*b].total_cmp(&powers[*a]).then(a.cmp(b)));
    order.into_iter().map(|class| (class, powers[class] / sum)).collect()
}
