//! What lies between features and logits, and the directions that a cosine head needs.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::kernel::convolution::Convolution;

/// From features to logits: a 1 x 1 convolution of images of one pixel.
pub(crate) struct HeadLayer {
    pub(crate) convolution: Convolution,
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Range<usize>,
    pub(crate) forward: Buffer,
    pub(crate) back: Buffer,
    /// What goes in: the features, or their directions.
    pub(crate) features: Buffer,
    /// Their lengths.
    pub(crate) lengths: Vec<f32>,
    /// The weights' directions (cosine heads), and their lengths by class.
    pub(crate) directions: Buffer,
    pub(crate) weight_lengths: Vec<f32>,
    pub(crate) logits: Buffer,
    /// 1, 0, 0 for every class.
    pub(crate) k: Buffer,
}

/// Divides by the length, which is returned; nothing has no direction and stays as it is.
pub(crate) fn normalise(values: &mut [f32]) -> f32 {
    let length = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-12);
    values.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    length as f32
}

/// The gradient of a vector from that of its direction.
pub(crate) fn turn_back(direction: &[f32], length: f32, gradient: &mut [f32]) {
    let along: f64 = direction.iter().zip(&*gradient).map(|(d, g)| f64::from(*d) * f64::from(*g)).sum();
    for (g, d) in gradient.iter_mut().zip(direction) {
        *g = ((f64::from(*g) - along * f64::from(*d)) / f64::from(length)) as f32;
    }
}

impl HeadLayer {
    /// The directions of the classes' weights (columns).
    pub(crate) fn point(&mut self, weight: &[f32]) {
        let classes = self.convolution.geometry.outputs;
        for c in 0..classes {
            let mut column: Vec<f32> = weight.iter().skip(c).step_by(classes).copied().collect();
            self.weight_lengths[c] = normalise(&mut column);
            for (to, x) in self.directions.iter_mut().skip(c).step_by(classes).zip(column) {
                *to = x;
            }
        }
    }

    /// Gradients of the weights from those of their directions.
    pub(crate) fn turn_back(&self, gradient: &mut [f32]) {
        let classes = self.convolution.geometry.outputs;
        for c in 0..classes {
            let direction: Vec<f32> = self.directions.iter().skip(c).step_by(classes).copied().collect();
            let mut column: Vec<f32> = gradient.iter().skip(c).step_by(classes).copied().collect();
            turn_back(&direction, self.weight_lengths[c], &mut column);
            for (to, x) in gradient.iter_mut().skip(c).step_by(classes).zip(column) {
                *to = x;
            }
        }
    }
}
