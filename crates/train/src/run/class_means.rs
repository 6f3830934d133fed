//! The means of classes: where a head on features may start, and the simplest classifier there is.

use equipoise_nn::network::Head;
use equipoise_nn::{Engine, TensorKind};
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::prepare::{RunData, SplitLoader};

/// Rows that are read at once.
const ROWS: usize = 512;

/// The mean row of every class, and the mean squared distance of rows from their class's mean.
pub(crate) struct ClassMeans {
    /// Class after class.
    pub(crate) means: Vec<f64>,
    /// Mean squared distance of a row from the mean of its class.
    pub(crate) spread: f64,
    /// Number of features.
    pub(crate) width: usize,
}

impl ClassMeans {
    /// Means of a split's rows, as the network sees them. A class without rows has a mean of 0.
    pub(crate) fn of(split: &SplitLoader, classes: usize, pool: &Pool) -> Result<Self, TrainError> {
        let width = split.image_len();
        let (mut sums, mut counts) = (vec![0.0f64; classes * width], vec![0u64; classes]);
        let mut squares = 0.0;
        each_row(split, pool, |row, label| {
            counts[label] += 1;
            for (sum, x) in sums[label * width..][..width].iter_mut().zip(row) {
                *sum += f64::from(*x);
                squares += f64::from(*x).powi(2);
            }
        })?;
        let rows = counts.iter().sum::<u64>().max(1) as f64;
        let mut explained = 0.0;
        for (mean, count) in sums.chunks_exact_mut(width).zip(&counts) {
            let count = (*count).max(1) as f64;
            explained += mean.iter().map(|sum| sum * sum).sum::<f64>() / count;
            mean.iter_mut().for_each(|sum| *sum /= count);
        }
        let spread = ((squares - explained) / rows).max(f64::MIN_POSITIVE);
        Ok(Self { means: sums, spread, width })
    }

    /// Weights and bias of the linear classifier that chooses the nearest mean: logits are (m x - |m|^2 / 2) / spread.
    pub(crate) fn linear(&self) -> (Vec<f32>, Vec<f32>) {
        let weight = self.means.iter().map(|mean| (mean / self.spread) as f32).collect();
        let bias = self.means.chunks_exact(self.width);
        let bias = bias.map(|mean| (-mean.iter().map(|m| m * m).sum::<f64>() / (2.0 * self.spread)) as f32).collect();
        (weight, bias)
    }
}

/// Calls `each` with every row of a split and its label, in their order.
pub(crate) fn each_row(
    split: &SplitLoader,
    pool: &Pool,
    mut each: impl FnMut(&[f32], usize),
) -> Result<(), TrainError> {
    let width = split.image_len();
    let mut rows = Vec::new();
    for first in (0..split.labels.len()).step_by(ROWS) {
        let labels = &split.labels[first..split.labels.len().min(first + ROWS)];
        let indices: Vec<u32> = (first as u32..).take(labels.len()).collect();
        rows.resize(indices.len() * width, 0.0f32);
        split.loader.batch(&indices, 0, 0, &mut rows, pool)?;
        rows.chunks_exact(width).zip(labels).for_each(|(row, label)| each(row, *label as usize));
    }
    Ok(())
}

/// Lets a head start as the classifier by the nearest class mean. A cosine head gets the directions of the means.
pub(super) fn start_at_class_means(engine: &mut impl Engine, data: &RunData, pool: &Pool) -> Result<(), TrainError> {
    let (weight, bias) = ClassMeans::of(&data.train, data.classes.len(), pool)?.linear();
    let mut tensors = engine.tensors(TensorKind::Parameters)?;
    tensors[0] = weight;
    if engine.network().head == Head::Linear {
        tensors[1] = bias;
    }
    Ok(engine.set_tensors(TensorKind::Parameters, &tensors)?)
}
