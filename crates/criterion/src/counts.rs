//! What criteria derive from the training images per class: weights, log-priors, padded tables.
//!
//! A class without images gets weight 0 where weights are inverse to counts. Where the logarithm or a power of a count
//! is added to logits it counts as one image. Everything stays finite.

use crate::error::ConfigError;
use crate::kernel::lanes::LANES;

/// The number of training images of each class, checked once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    pub(crate) fn new(counts: &[u64]) -> Result<Self, ConfigError> {
        if counts.len() < 2 {
            return Err(ConfigError::Classes(counts.len()));
        }
        if let Some((class, &count)) = counts.iter().enumerate().find(|(_, n)| **n > 1 << 53) {
            return Err(ConfigError::TooMany { class, count });
        }
        if counts.iter().all(|n| *n == 0) {
            return Err(ConfigError::NoImages);
        }
        Ok(Self(counts.to_vec()))
    }

    pub(crate) fn classes(&self) -> usize {
        self.0.len()
    }

    /// The counts as numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|n| *n as f64)
    }

    pub(crate) fn total(&self) -> f64 {
        self.iter().sum()
    }

    /// The counts, where an empty class counts as one image.
    fn at_least_one(&self) -> impl Iterator<Item = f64> {
        self.iter().map(|n| n.max(1.0))
    }

    /// The largest count.
    pub(crate) fn largest(&self) -> f64 {
        self.iter().fold(0.0, f64::max)
    }

    /// The smallest count.
    pub(crate) fn smallest(&self) -> f64 {
        self.iter().fold(f64::INFINITY, f64::min)
    }

    /// The classes without images.
    pub(crate) fn empty(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, n)| **n == 0).map(|(class, _)| class)
    }

    /// n^-power, scaled to the sum C.
    pub(crate) fn inverse_power(&self, power: f64) -> Vec<f64> {
        // relative to the smallest class, so that no power underflows for all of them
        let least = self.iter().filter(|n| *n > 0.0).fold(f64::INFINITY, f64::min);
        self.weights(|n| (n / least).powf(-power))
    }

    /// (1 - beta) / (1 - beta^n), scaled to the sum C.
    pub(crate) fn effective_number(&self, beta: f64) -> Vec<f64> {
        self.weights(|n| if beta == 0.0 { 1.0 } else { (1.0 - beta) / -(n * beta.ln()).exp_m1() })
    }

    fn weights(&self, raw: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut weights: Vec<f64> = self.iter().map(|n| if n > 0.0 { raw(n) } else { 0.0 }).collect();
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        weights.iter_mut().for_each(|w| *w *= scale);
        weights
    }

    /// The logarithm of each class's share of the images.
    pub(crate) fn log_prior(&self) -> impl Iterator<Item = f64> {
        let total = self.total();
        self.at_least_one().map(move |n| (n / total).ln())
    }

    /// (n / n_max)^power.
    pub(crate) fn relative_power(&self, power: f64) -> impl Iterator<Item = f64> {
        let most = self.largest();
        self.at_least_one().map(move |n| (n / most).powf(power))
    }
}

/// A table of one number per class for the kernels, padded to whole lanes with `pad`.
pub(crate) fn table(values: impl Iterator<Item = f64>, pad: f32) -> Vec<f32> {
    let mut table: Vec<f32> = values.map(|v| v as f32).collect();
    table.resize(table.len().next_multiple_of(LANES), pad);
    table
}
