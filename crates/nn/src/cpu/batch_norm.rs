//! Batch norm: from sums over a batch to what the kernels apply while they read and write.
//!
//! A batch norm is a y + b, by channel. The gradient with respect to y is k0 g + k1 y + k2, where g is the gradient
//! with respect to the batch norm's output. This file computes a, b and the three k; `kernel/fused_norm.rs` applies
//! them.

use super::CpuOf;
use super::plan::Layer;
use crate::kernel::fused_norm::{Centered, Normed, OutputGradient};
use crate::kernel::value::Activation;

/// Added to the variance.
const EPSILON: f64 = 1e-5;
/// The newest batch's share of the running statistics in training.
pub(super) const MOMENTUM: f32 = 0.1;

/// Rows of a layer's coefficients, with a value for every channel: a, b, the mean, and the three k.
pub(super) const ROWS: usize = 6;
const A: usize = 0;
const B: usize = 1;
const MEAN: usize = 2;
const K: usize = 3;

impl<T: Activation> Layer<T> {
    fn row(&self, row: usize) -> *const f32 {
        self.coefficients[row * self.channels()..].as_ptr()
    }

    pub(super) fn mean(&self) -> &[f32] {
        let channels = self.channels();
        &self.coefficients[MEAN * channels..][..channels]
    }

    /// The layer's output after its batch norm.
    pub(super) fn normed(&self) -> Normed<T> {
        self.normed_at(self.memory.output.as_ptr())
    }

    /// The batch norm of an output that is kept elsewhere.
    pub(super) fn normed_at(&self, y: *const T) -> Normed<T> {
        Normed { y, a: self.row(A), b: self.row(B) }
    }

    /// The layer's output with its mean, from which the sums of the backward pass are taken.
    pub(super) fn centered(&self) -> Centered<T> {
        Centered { y: self.memory.output.as_ptr(), mean: self.row(MEAN) }
    }

    /// The gradient of the layer's output from the gradient `g` of its batch norm.
    pub(super) fn output_gradient(&self, g: *const T) -> OutputGradient<T> {
        OutputGradient { g, y: self.memory.output.as_ptr(), k: self.row(K) }
    }

    /// Sets a channel's a and b from its mean and variance.
    fn set_norm(&mut self, c: usize, mean: f64, variance: f64, parameters: &[f32]) {
        let (gamma, beta) = (f64::from(parameters[self.gamma.start + c]), f64::from(parameters[self.beta.start + c]));
        let inverse = 1.0 / (variance + EPSILON).sqrt();
        let (a, channels) = (gamma * inverse, self.channels());
        self.inverse_deviation[c] = inverse;
        self.coefficients[A * channels + c] = a as f32;
        self.coefficients[B * channels + c] = (beta - mean * a) as f32;
        self.coefficients[MEAN * channels + c] = mean as f32;
    }
}

impl<T: Activation> CpuOf<T> {
    /// Sets a layer's batch norm to the batch's statistics, which get this share of the running ones. `sums` has the sums
    /// of y - running mean and of its square.
    pub(super) fn norm_by_batch(&mut self, number: usize, share: f32) {
        let layer = &mut self.layers[number];
        let (channels, [height, width]) = (layer.channels(), layer.convolution.geometry.out());
        let pixels = (self.batch_images * height * width) as f64;
        for c in 0..channels {
            let (at_mean, at_variance) = (layer.mean.start + c, layer.variance.start + c);
            let (sum, squares) = (self.sums[c] / pixels, self.sums[channels + c] / pixels);
            let mean = f64::from(self.statistics[at_mean]) + sum;
            let variance = (squares - sum * sum).max(0.0);
            let unbiased = variance * pixels / (pixels - 1.0).max(1.0);
            // a share of 0 would turn infinity into NaN
            if share > 0.0 {
                let update = |old: &mut f32, new: f64| *old = (1.0 - share) * *old + share * new as f32;
                update(&mut self.statistics[at_mean], mean);
                update(&mut self.statistics[at_variance], unbiased);
            }
            layer.set_norm(c, mean, variance, &self.parameters);
        }
    }

    /// Sets all batch norms to the running statistics.
    pub(super) fn norm_by_running_statistics(&mut self) {
        let (statistics, parameters) = (&self.statistics, &self.parameters);
        self.tasks.pool.each(&mut self.layers, |_, layer| {
            for c in 0..layer.channels() {
                let (mean, variance) = (statistics[layer.mean.start + c], statistics[layer.variance.start + c]);
                layer.set_norm(c, mean.into(), variance.into(), parameters);
            }
        });
    }

    /// Computes the gradients of a batch norm's parameters and the k of its input's gradient. `sums` has the sum of g and,
    /// in row `row`, that of g (y - mean). Frozen statistics do not depend on y.
    pub(super) fn norm_backward(&mut self, number: usize, row: usize) {
        let layer = &mut self.layers[number];
        let (channels, [height, width]) = (layer.channels(), layer.convolution.geometry.out());
        let pixels = (self.batch_images * height * width) as f64;
        for c in 0..channels {
            let (sum, product) = (self.sums[c], self.sums[row * channels + c]);
            let inverse = layer.inverse_deviation[c];
            let mean = f64::from(layer.coefficients[MEAN * channels + c]);
            let a = f64::from(self.parameters[layer.gamma.start + c]) * inverse;
            self.gradients[layer.gamma.start + c] = (product * inverse) as f32;
            self.gradients[layer.beta.start + c] = sum as f32;
            let (k1, k2) = if self.frozen_norms {
                (0.0, 0.0)
            } else {
                let k1 = -a * inverse * inverse * product / pixels;
                (k1, -a * sum / pixels - k1 * mean)
            };
            let k = &mut layer.coefficients[K * channels..];
            k[c] = a as f32;
            k[channels + c] = k1 as f32;
            k[2 * channels + c] = k2 as f32;
        }
    }
}
