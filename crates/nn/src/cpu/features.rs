//! A head on features: rows in, an optional hidden layer with ReLU, then the head. In the forward pass a task takes its rows through
//! all layers, while they are in the cache.

use std::ops::Range;

use equipoise_simd::SimdLevel;

use super::CpuOf;
use super::dense::{DenseShape, TASK_ROWS, row_stride};
use super::head::{HeadLayer, normalize};
use super::plan::Offsets;
use crate::buffer::Buffer;
use crate::error::NnError;
use crate::kernel::convolution::{Convolution, ConvolutionAlgorithm, Geometry};
use crate::kernel::rounding::round;
use crate::kernel::stored;
use crate::kernel::value::Activation;
use crate::network::Network;

/// The hidden layer of a head on features. Its convolution tells how weights are packed.
pub(super) struct HiddenLayer<T> {
    pub(super) convolution: Convolution,
    pub(super) weight: Range<usize>,
    pub(super) bias: Range<usize>,
    pub(super) forward_weights: Buffer,
    /// The features that it reads.
    input: Buffer<T>,
    /// Its output after ReLU.
    output: Buffer,
    /// The gradient of the logits, rounded.
    logit_gradients: Buffer<T>,
}

impl<T: Activation> HiddenLayer<T> {
    pub(super) fn new(network: &Network, batch_size: usize, offsets: &mut Offsets) -> Option<Self> {
        let (inputs, outputs) = (stored(network.channels), stored(network.hidden()?));
        let geometry = Geometry { inputs, outputs, kernel: 1, stride: 1, pad: 0, size: [1, 1] };
        let convolution = Convolution::new::<T, T>(geometry, ConvolutionAlgorithm::Direct, batch_size);
        Some(Self {
            weight: offsets.take_parameters(geometry.weights()),
            bias: offsets.take_parameters(outputs),
            forward_weights: Buffer::new(convolution.packed() / T::DEPTH),
            input: Buffer::new(batch_size * row_stride(inputs)),
            output: Buffer::new(batch_size * outputs),
            logit_gradients: Buffer::new(batch_size * stored(network.classes)),
            convolution,
        })
    }

    fn shape(&self, rows: usize) -> DenseShape {
        let Geometry { inputs, outputs, .. } = self.convolution.geometry;
        DenseShape { stride: row_stride(inputs), ..DenseShape::new(rows, inputs, outputs) }
    }
}

impl<T: Activation> CpuOf<T> {
    /// Computes the logits of a batch of rows without bias and scale, and what the head reads of them. Returns their number.
    pub(super) fn features_forward(&mut self, rows: &[f32]) -> Result<usize, NnError> {
        let number = self.check_rows(rows)?;
        let (width, simd, is_cosine) = (self.network.channels, self.tasks.simd, self.head.is_cosine());
        let HeadLayer { convolution, forward_weights, rows: head_rows, row_stride: stride, lengths, logits, .. } =
            &mut self.head;
        let (Geometry { inputs, outputs, .. }, stride) = (convolution.geometry, *stride);
        let layer = self.hidden.as_mut().map(|hidden| {
            let shape = hidden.shape(0);
            let rows = hidden
                .input
                .chunks_mut(TASK_ROWS * shape.stride)
                .zip(hidden.output.chunks_mut(TASK_ROWS * shape.outputs));
            (shape, &self.parameters[hidden.bias.clone()], &hidden.forward_weights, rows)
        });
        let (layer, mut hidden_rows) = match layer {
            Some((shape, bias, weights, rows)) => (Some((shape, bias, weights)), Some(rows)),
            None => (None, None),
        };
        let mut tasks: Vec<RowTask<'_, T>> = rows
            .chunks(TASK_ROWS * width)
            .zip(head_rows.chunks_mut(TASK_ROWS * stride))
            .zip(lengths.chunks_mut(TASK_ROWS).zip(logits.chunks_mut(TASK_ROWS * outputs)))
            .map(|((rows, head_rows), (lengths, logits))| {
                let hidden = hidden_rows.as_mut().and_then(Iterator::next);
                RowTask { rows, hidden, head_rows, lengths, logits, is_finite: true }
            })
            .collect();
        self.tasks.pool.each(&mut tasks, |_, task| {
            let rows = task.rows.len() / width;
            let (mut source, mut source_width) = (task.rows, width);
            if let (Some((input, output)), Some((shape, bias, weights))) = (&mut task.hidden, layer) {
                task.is_finite = round_rows(simd, source, input, (width, shape.stride));
                DenseShape { rows, ..shape }.product(simd, input, weights, output);
                rectify(output, bias);
                (source, source_width) = (&output[..rows * shape.outputs], shape.outputs);
            }
            if is_cosine {
                let mut directions = source.to_vec();
                let rows = directions.chunks_exact_mut(source_width).zip(task.lengths.iter_mut());
                rows.for_each(|(row, length)| *length = normalize(row));
                task.is_finite &= source.iter().all(|x| x.is_finite());
                round_rows(simd, &directions, task.head_rows, (source_width, stride));
            } else {
                task.is_finite &= round_rows(simd, source, task.head_rows, (source_width, stride));
            }
            DenseShape { rows, inputs, outputs, stride }.product(simd, task.head_rows, forward_weights, task.logits);
        });
        if tasks.iter().all(|task| task.is_finite) {
            return Ok(number);
        }
        match rows.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(NnError::NotFinite { image: at / width, value: rows[at] }),
            // a hidden layer that has diverged
            None => Ok(number),
        }
    }

    /// The number of rows of a batch.
    fn check_rows(&self, rows: &[f32]) -> Result<usize, NnError> {
        let width = self.network.channels;
        let number = rows.len() / width;
        if rows.len() != number * width {
            return Err(NnError::Images { got: rows.len(), channels: width, height: 1, width: 1 });
        }
        if number == 0 || number > self.batch_size {
            return Err(NnError::BatchSize { got: number, most: self.batch_size });
        }
        Ok(number)
    }

    /// Computes the gradients of the head's weights, and of its input if a hidden layer needs it.
    pub(super) fn head_product_backward(&mut self, rows: usize) {
        let head = &mut self.head;
        let Geometry { inputs, outputs, .. } = head.convolution.geometry;
        let shape = DenseShape { rows, inputs, outputs, stride: head.row_stride };
        let (classes, dw) = (self.network.classes, &mut self.gradients[head.weight.clone()]);
        let logits = &head.logits[..rows * outputs];
        let words = self.tasks.gradient_words::<T>(logits, outputs, &mut self.gradient_words);
        self.tasks.dense_weight_gradient(shape, classes, &head.rows, words, dw);
        if let (Some(hidden), false) = (&mut self.hidden, self.frozen) {
            let rounded = &mut hidden.logit_gradients[..rows * outputs];
            round(self.tasks.simd, logits, rounded);
            let back = DenseShape::new(rows, outputs, inputs);
            let features = &mut self.activations.feature_gradients;
            self.tasks.dense_product(back, rounded, &head.backward_weights, features);
        }
    }

    /// Computes the gradients of the hidden layer from that of its output.
    pub(super) fn hidden_backward(&mut self, rows: usize) {
        let Some(hidden) = &self.hidden else { return };
        let shape = hidden.shape(rows);
        let gradients = &mut self.activations.feature_gradients;
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
        let dw = &mut self.gradients[hidden.weight.clone()];
        let gradients = &gradients[..rows * shape.outputs];
        let words = self.tasks.gradient_words::<T>(gradients, shape.outputs, &mut self.gradient_words);
        self.tasks.dense_weight_gradient(shape, shape.outputs, &hidden.input, words, dw);
    }
}

/// Some rows of a batch, and where what is computed of them goes.
struct RowTask<'a, T> {
    rows: &'a [f32],
    /// The input and the output of the hidden layer.
    hidden: Option<(&'a mut [T], &'a mut [f32])>,
    head_rows: &'a mut [T],
    lengths: &'a mut [f32],
    logits: &'a mut [f32],
    is_finite: bool,
}

/// Rounds rows to where there is padding behind each. Returns whether all values are finite.
fn round_rows<T: Activation>(simd: SimdLevel, from: &[f32], to: &mut [T], (width, padded): (usize, usize)) -> bool {
    let rows = from.chunks_exact(width).zip(to.chunks_exact_mut(padded));
    rows.fold(true, |is_finite, (from, to)| round(simd, from, &mut to[..width]) && is_finite)
}

/// Adds the bias to the rows of a layer's output, and cuts off what is negative. NaN stays.
fn rectify(output: &mut [f32], bias: &[f32]) {
    for output in output.chunks_exact_mut(bias.len()) {
        for (y, b) in output.iter_mut().zip(bias) {
            let sum = *y + b;
            *y = if sum <= 0.0 { 0.0 } else { sum };
        }
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
