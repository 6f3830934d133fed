//! A head on features: rows in, an optional hidden layer with ReLU, then the head.

use std::ops::Range;

use super::Cpu;
use super::dense::DenseShape;
use super::head::normalize;
use super::plan::Offsets;
use crate::buffer::Buffer;
use crate::error::NnError;
use crate::kernel::convolution::{Convolution, ConvolutionAlgorithm, Geometry};
use crate::kernel::stored;
use crate::network::Network;

/// Rows that one task copies or normalizes.
const TASK_ROWS: usize = 16;

/// The hidden layer of a head on features. Its convolution tells how weights are packed.
pub(super) struct HiddenLayer {
    pub(super) convolution: Convolution,
    pub(super) weight: Range<usize>,
    pub(super) bias: Range<usize>,
    pub(super) forward_weights: Buffer,
    /// The features that it reads.
    input: Buffer,
    /// Its output after ReLU.
    output: Buffer,
}

impl HiddenLayer {
    pub(super) fn new(network: &Network, batch_size: usize, offsets: &mut Offsets) -> Option<Self> {
        let (inputs, outputs) = (stored(network.channels), stored(network.hidden()?));
        let geometry = Geometry { inputs, outputs, kernel: 1, stride: 1, pad: 0, size: [1, 1] };
        let convolution = Convolution::new(geometry, ConvolutionAlgorithm::Direct, batch_size);
        Some(Self {
            weight: offsets.take_parameters(geometry.weights()),
            bias: offsets.take_parameters(outputs),
            forward_weights: Buffer::new(convolution.packed()),
            input: Buffer::new(batch_size * inputs),
            output: Buffer::new(batch_size * outputs),
            convolution,
        })
    }

    fn shape(&self, rows: usize) -> DenseShape {
        let Geometry { inputs, outputs, .. } = self.convolution.geometry;
        DenseShape { rows, inputs, outputs }
    }
}

impl Cpu {
    /// Computes what the head reads of a batch of rows, and returns their number.
    pub(super) fn features_forward(&mut self, rows: &[f32]) -> Result<usize, NnError> {
        let number = self.read_features(rows)?;
        self.hidden_forward(number);
        if self.head.is_cosine() {
            let inputs = self.head.convolution.geometry.inputs;
            let rows =
                self.head.features.chunks_mut(TASK_ROWS * inputs).zip(self.head.feature_lengths.chunks_mut(TASK_ROWS));
            let mut tasks: Vec<(&mut [f32], &mut [f32])> = rows.take(number.div_ceil(TASK_ROWS)).collect();
            self.tasks.pool.each(&mut tasks, |_, (rows, lengths)| {
                rows.chunks_exact_mut(inputs)
                    .zip(lengths.iter_mut())
                    .for_each(|(row, length)| *length = normalize(row));
            });
        }
        Ok(number)
    }

    /// Copies the caller's rows, with padding, to where the hidden layer or the head reads them.
    fn read_features(&mut self, rows: &[f32]) -> Result<usize, NnError> {
        let width = self.network.channels;
        let number = rows.len() / width;
        if rows.len() != number * width {
            return Err(NnError::Images { got: rows.len(), channels: width, height: 1, width: 1 });
        }
        if number == 0 || number > self.batch_size {
            return Err(NnError::BatchSize { got: number, most: self.batch_size });
        }
        let padded = stored(width);
        let to = match &mut self.hidden {
            Some(hidden) => &mut hidden.input,
            None => &mut self.head.features,
        };
        let chunks = rows.chunks(TASK_ROWS * width).zip(to.chunks_mut(TASK_ROWS * padded));
        let mut tasks: Vec<(&[f32], &mut [f32], bool)> = chunks.map(|(from, to)| (from, to, true)).collect();
        self.tasks.pool.each(&mut tasks, |_, (from, to, is_finite)| {
            for (from, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(padded)) {
                to[..width].copy_from_slice(from);
                // without their signs, the bits of finite values are below those of infinity
                let largest = from.iter().fold(0, |most: u32, x| most.max(x.abs().to_bits()));
                *is_finite &= largest < f32::INFINITY.to_bits();
            }
        });
        if tasks.iter().all(|(_, _, is_finite)| *is_finite) {
            return Ok(number);
        }
        match rows.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(NnError::NotFinite { image: at / width, value: rows[at] }),
            None => Ok(number),
        }
    }

    fn hidden_forward(&mut self, rows: usize) {
        let Some(hidden) = &mut self.hidden else { return };
        let (shape, bias) = (hidden.shape(rows), &self.parameters[hidden.bias.clone()]);
        self.tasks.dense_product(shape, &hidden.input, &hidden.forward_weights, &mut hidden.output);
        let outputs = hidden.output.chunks_mut(TASK_ROWS * shape.outputs);
        let features = self.head.features.chunks_mut(TASK_ROWS * shape.outputs);
        let mut tasks: Vec<(&mut [f32], &mut [f32])> = outputs.zip(features).take(rows.div_ceil(TASK_ROWS)).collect();
        self.tasks.pool.each(&mut tasks, |_, (output, features)| {
            for (output, features) in
                output.chunks_exact_mut(shape.outputs).zip(features.chunks_exact_mut(shape.outputs))
            {
                for ((y, b), feature) in output.iter_mut().zip(bias).zip(features) {
                    *y = (*y + b).max(0.0);
                    *feature = *y;
                }
            }
        });
    }

    /// Computes the logits of rows without bias and scale.
    pub(super) fn head_product(&mut self, rows: usize) {
        let head = &mut self.head;
        let Geometry { inputs, outputs, .. } = head.convolution.geometry;
        let shape = DenseShape { rows, inputs, outputs };
        self.tasks.dense_product(shape, &head.features, &head.forward_weights, &mut head.logits);
    }

    /// Computes the gradients of the head's weights, and of its input if a hidden layer needs it.
    pub(super) fn head_product_backward(&mut self, rows: usize) {
        let head = &self.head;
        let Geometry { inputs, outputs, .. } = head.convolution.geometry;
        let shape = DenseShape { rows, inputs, outputs };
        self.tasks.dense_weight_gradient(shape, &head.features, &head.logits, &mut self.gradients[head.weight.clone()]);
        if self.hidden.is_some() && !self.frozen {
            let back = DenseShape { rows, inputs: outputs, outputs: inputs };
            let features = &mut self.activation_gradients.features;
            self.tasks.dense_product(back, &head.logits, &head.backward_weights, features);
        }
    }

    /// Computes the gradients of the hidden layer from that of its output.
    pub(super) fn hidden_backward(&mut self, rows: usize) {
        let Some(hidden) = &self.hidden else { return };
        let shape = hidden.shape(rows);
        let gradients = &mut self.activation_gradients.features;
        let outputs = hidden.output.chunks(TASK_ROWS * shape.outputs);
        let mut tasks: Vec<(&[f32], &mut [f32])> =
            outputs.zip(gradients.chunks_mut(TASK_ROWS * shape.outputs)).take(rows.div_ceil(TASK_ROWS)).collect();
        self.tasks.pool.each(&mut tasks, |_, (output, gradient)| {
            for (g, y) in gradient.iter_mut().zip(*output) {
                *g = if *y > 0.0 { *g } else { 0.0 };
            }
        });
        let bias = &mut self.gradients[hidden.bias.clone()];
        bias.copy_from_slice(&column_sums(&gradients[..rows * shape.outputs], shape.outputs));
        self.tasks.dense_weight_gradient(shape, &hidden.input, gradients, &mut self.gradients[hidden.weight.clone()]);
    }
}

/// The sums of all columns, each over the rows in their order.
pub(super) fn column_sums(rows: &[f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; columns];
    for row in rows.chunks_exact(columns) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}
