//! Classifiers that need no training, beside the runs of a comparison on features: the nearest class mean and the nearest neighbors.

use equipoise_nn::{Architecture, Cpu, Engine, Network, TensorKind};
use equipoise_pool::Pool;
use equipoise_record::BaselineResult;

use super::class_means::{ClassMeans, each_row};
use crate::error::TrainError;
use crate::prepare::{RunData, SplitLoader};

/// Neighbors that vote.
const NEIGHBORS: usize = 10;
/// Training rows that are compared with at once.
const CHUNK: usize = 2048;
/// Test rows that are compared at once.
const ROWS: usize = 256;
/// Multiplications of all distances beyond which neighbors are not looked for: it would take longer than training.
const MOST_PRODUCTS: u64 = 1_000_000_000_000;

/// What the nearest class mean and the nearest neighbors reach on the test split, with features as a run sees them. Nothing without
/// features or test rows; no neighbors where there are too many rows.
///
/// # Errors
/// Returns an error if a row can no longer be read.
pub fn baselines(data: &RunData, pool: &Pool) -> Result<Vec<BaselineResult>, TrainError> {
    let (train, test) = (&data.train, &data.test);
    if !train.loader.is_of_features() || test.labels.is_empty() || train.labels.is_empty() {
        return Ok(Vec::new());
    }
    let (weight, bias) = ClassMeans::of(train, data.classes.len(), pool)?.linear();
    // a class without training rows has no mean, and is nobody's nearest
    let missing = data.counts.iter().map(|count| *count == 0);
    let bias: Vec<f32> =
        bias.into_iter().zip(missing).map(|(b, is_missing)| if is_missing { f32::MIN } else { b }).collect();
    let mut scores = Scores::new(test, &weight, &bias, pool)?;
    let mut predicted = Vec::with_capacity(test.labels.len());
    scores.each(|_, row| predicted.push(largest(row)))?;
    let mut results = vec![result("nearest class mean", &predicted, test, data.classes.len())];
    let products =
        [train.labels.len(), test.labels.len(), train.image_len()].iter().map(|n| *n as u64).product::<u64>();
    if products <= MOST_PRODUCTS {
        let neighbors = NEIGHBORS.min(train.labels.len());
        let predicted = by_neighbors(data, neighbors, pool)?;
        results.push(result(&format!("{neighbors} nearest neighbors"), &predicted, test, data.classes.len()));
    }
    Ok(results)
}

/// The products of test rows with other rows, computed as the logits of a linear head.
struct Scores<'a> {
    engine: Cpu,
    test: &'a SplitLoader,
    pool: &'a Pool,
}

impl<'a> Scores<'a> {
    fn new(test: &'a SplitLoader, weight: &[f32], bias: &[f32], pool: &'a Pool) -> Result<Self, TrainError> {
        let network = Network::new(Architecture::Linear, test.image_len(), [1, 1], bias.len())?;
        let mut engine = Cpu::new(network, ROWS, 0, pool.clone())?;
        engine.set_tensors(TensorKind::Parameters, &[weight.to_vec(), bias.to_vec()])?;
        Ok(Self { engine, test, pool })
    }

    /// Calls `each` with the index of every test row and its products.
    fn each(&mut self, mut each: impl FnMut(usize, &[f32])) -> Result<(), TrainError> {
        let (total, width) = (self.test.labels.len(), self.test.image_len());
        let outputs = self.engine.network().classes;
        let mut rows = Vec::new();
        for first in (0..total).step_by(ROWS) {
            let indices: Vec<u32> = (first as u32..total.min(first + ROWS) as u32).collect();
            rows.resize(indices.len() * width, 0.0f32);
            self.test.loader.batch(&indices, 0, 0, &mut rows, self.pool)?;
            let products = self.engine.forward(&rows, false)?;
            products.chunks_exact(outputs).enumerate().for_each(|(row, products)| each(first + row, products));
        }
        Ok(())
    }
}

/// The position of the largest value, the first of equal ones.
fn largest(values: &[f32]) -> usize {
    let better = |best: usize, (at, x): (usize, &f32)| if *x > values[best] { at } else { best };
    values.iter().enumerate().fold(0, better)
}

/// The class that most of the nearest training rows have; of equally many, that of the nearest.
fn by_neighbors(data: &RunData, neighbors: usize, pool: &Pool) -> Result<Vec<usize>, TrainError> {
    let (train, test) = (&data.train, &data.test);
    let mut nearest: Vec<Vec<(f32, u32)>> = vec![Vec::with_capacity(neighbors + 1); test.labels.len()];
    let (mut chunk, mut lengths, mut first) = (Vec::new(), Vec::new(), 0);
    let mut failed = Ok(());
    let mut compare = |chunk: &mut Vec<f32>, lengths: &mut Vec<f32>, first: &mut usize| -> Result<(), TrainError> {
        // the nearest row x has the largest x t - |x|^2 / 2
        let mut scores = Scores::new(test, chunk, lengths, pool)?;
        scores.each(|row, products| {
            let best = &mut nearest[row];
            for (at, score) in products.iter().enumerate() {
                if best.len() == neighbors && *score <= best[neighbors - 1].0 {
                    continue;
                }
                let place = best.partition_point(|(other, _)| *other >= *score);
                best.insert(place, (*score, train.labels[*first + at]));
                best.truncate(neighbors);
            }
        })?;
        *first += lengths.len();
        chunk.clear();
        lengths.clear();
        Ok(())
    };
    each_row(train, pool, |row, _| {
        chunk.extend_from_slice(row);
        lengths.push((-row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 2.0) as f32);
        if lengths.len() == CHUNK && failed.is_ok() {
            failed = compare(&mut chunk, &mut lengths, &mut first);
        }
    })?;
    failed?;
    if !lengths.is_empty() {
        compare(&mut chunk, &mut lengths, &mut first)?;
    }
    let vote = |best: Vec<(f32, u32)>| {
        let votes = |class: u32| best.iter().filter(|(_, other)| *other == class).count();
        let winner = best.iter().map(|(_, class)| *class).rev().max_by_key(|class| votes(*class));
        winner.unwrap_or(0) as usize
    };
    Ok(nearest.into_iter().map(vote).collect())
}

fn result(name: &str, predicted: &[usize], test: &SplitLoader, classes: usize) -> BaselineResult {
    let (mut correct, mut examples) = (vec![0; classes], vec![0; classes]);
    for (predicted, label) in predicted.iter().zip(&test.labels) {
        let label = *label as usize;
        examples[label] += 1;
        correct[label] += u64::from(*predicted == label);
    }
    BaselineResult { name: name.to_owned(), correct, examples }
}
