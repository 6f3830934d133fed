//! The plan of a network: where every layer's values are, and how its passes are cut into tasks.
//!
//! Tasks depend neither on the number of threads nor on that of processes, and their partial sums are added in a fixed
//! order (`slices.rs`). Results are therefore the same for any number of threads and processes.

use std::ops::Range;

use super::batch_norm;
use super::features::HiddenLayer;
use super::head::HeadLayer;
use crate::buffer::Buffer;
use crate::kernel::convolution::{Convolution, ConvolutionAlgorithm, Geometry, ScratchSize};
use crate::kernel::value::Activation;
use crate::kernel::{CHANNELS, stored};
use crate::network::{Layer as LayerDescription, Network, ResidualBlock};
use crate::slices::Slices;

/// Tasks of a slice in a layer's forward pass, at most.
const TASKS_OF_SLICE: usize = 2;

/// A convolution with its batch norm, ready to run.
pub(super) struct Layer<T> {
    pub(super) convolution: Convolution,
    /// Input and output channels without padding.
    pub(super) unpadded: [usize; 2],
    /// Where the parameters of the convolution and of the batch norm are in the flat buffer of all parameters.
    pub(super) weight: Range<usize>,
    pub(super) gamma: Range<usize>,
    pub(super) beta: Range<usize>,
    /// Where the running mean and variance are in the flat buffer of all statistics.
    pub(super) mean: Range<usize>,
    pub(super) variance: Range<usize>,
    /// Images of a task in the forward pass: several groups, so that a group can be prefetched while the one before is
    /// computed. A slice has `slice_tasks` of them; one task computes a slice in the backward pass.
    pub(super) task_images: usize,
    pub(super) slice_tasks: usize,
    /// The convolution's output y.
    pub(super) output: Buffer<T>,
    /// The weights as the kernels of the forward and of the backward pass read them: words of f32, or of pairs.
    pub(super) forward_weights: Buffer,
    pub(super) backward_weights: Buffer,
    /// The rows that `batch_norm.rs` lists.
    pub(super) coefficients: Buffer,
    /// 1 / sqrt(variance + epsilon) of every channel.
    pub(super) inverse_deviation: Vec<f64>,
}

impl<T: Activation> Layer<T> {
    fn new(first: bool, layer: &LayerDescription, offsets: &mut Offsets, options: &PlanOptions) -> Self {
        let geometry = Geometry {
            // the caller's images are not padded
            inputs: if first { layer.inputs } else { stored(layer.inputs) },
            outputs: stored(layer.outputs),
            kernel: layer.kernel,
            stride: layer.stride,
            pad: layer.pad,
            size: layer.size,
        };
        let slice_images = options.slices.images();
        // images are f32, and so is the stem's arithmetic
        let (convolution, depth) = match first {
            true => (Convolution::new::<f32, T>(geometry, options.algorithm, slice_images), 1),
            false => (Convolution::new::<T, T>(geometry, options.algorithm, slice_images), T::DEPTH),
        };
        let task_images = slice_images.div_ceil(TASKS_OF_SLICE).next_multiple_of(convolution.forward.group);
        let (channels, [height, width]) = (geometry.outputs, geometry.out());
        let packed = convolution.packed() / depth;
        Self {
            unpadded: [layer.inputs, layer.outputs],
            task_images,
            slice_tasks: slice_images.div_ceil(task_images),
            weight: offsets.take_parameters(geometry.weights()),
            gamma: offsets.take_parameters(channels),
            beta: offsets.take_parameters(channels),
            mean: offsets.take_statistics(channels),
            variance: offsets.take_statistics(channels),
            output: Buffer::new(options.images * height * width * channels),
            forward_weights: Buffer::new(packed),
            // the gradient of the images is not computed
            backward_weights: Buffer::new(if first { 0 } else { packed }),
            coefficients: Buffer::new(batch_norm::ROWS * channels),
            inverse_deviation: vec![0.0; channels],
            convolution,
        }
    }

    /// Output channels, padding included.
    pub(super) fn channels(&self) -> usize {
        self.convolution.geometry.outputs
    }
}

/// What a plan depends on beside the network.
#[derive(Clone, Copy)]
pub(super) struct PlanOptions {
    /// Most images that this process computes at a time.
    pub(super) images: usize,
    pub(super) slices: Slices,
    pub(super) algorithm: ConvolutionAlgorithm,
}

/// Lengths of the flat buffers so far.
#[derive(Default)]
pub(super) struct Offsets {
    pub(super) parameters: usize,
    pub(super) statistics: usize,
}

impl Offsets {
    pub(super) fn take_parameters(&mut self, number: usize) -> Range<usize> {
        self.parameters += number;
        self.parameters - number..self.parameters
    }

    fn take_statistics(&mut self, number: usize) -> Range<usize> {
        self.statistics += number;
        self.statistics - number..self.statistics
    }
}

/// All layers of a network.
pub(super) struct Plan<T> {
    pub(super) layers: Vec<Layer<T>>,
    pub(super) blocks: Vec<ResidualBlock>,
    /// The hidden layer of a head on features.
    pub(super) hidden: Option<HiddenLayer<T>>,
    pub(super) head: HeadLayer<T>,
    /// Lengths of the flat buffers.
    pub(super) offsets: Offsets,
}

impl<T: Activation> Plan<T> {
    pub(super) fn new(network: &Network, options: &PlanOptions) -> Self {
        let (descriptions, blocks) = network.layers();
        let mut offsets = Offsets::default();
        let planned = |(number, layer)| Layer::new(number == 0, layer, &mut offsets, options);
        let layers = descriptions.iter().enumerate().map(planned).collect();
        let hidden = HiddenLayer::new(network, options.images, &mut offsets);
        let head = HeadLayer::new(network, options, &mut offsets);
        Self { layers, blocks, hidden, head, offsets }
    }

    fn convolutions(&self) -> impl Iterator<Item = &Convolution> {
        let hidden = self.hidden.iter().map(|hidden| &hidden.convolution);
        self.layers.iter().map(|layer| &layer.convolution).chain(hidden).chain([&self.head.convolution])
    }

    /// Scratch that every task of every layer fits in.
    pub(super) fn scratch_size(&self) -> ScratchSize {
        // the matrix products of a head on features need none
        let Some(last) = self.layers.last() else { return ScratchSize::default() };
        let mut size =
            self.convolutions().map(Convolution::scratch_size).fold(ScratchSize::default(), ScratchSize::max);
        // the average pool needs an image of the last layer
        let last = last.convolution.geometry;
        size.input = size.input.max(last.out()[0] * last.out()[1] * last.outputs);
        size
    }

    /// Values of an image's largest activation.
    pub(super) fn largest_activation(&self, images: usize) -> usize {
        self.layers.iter().map(|layer| layer.output.len() / images).max().unwrap_or(0)
    }

    /// Most channels of any input or output.
    pub(super) fn most_channels(&self) -> usize {
        let channels = |c: &Convolution| c.geometry.inputs.max(c.geometry.outputs);
        self.convolutions().map(channels).max().unwrap_or(0)
    }

    /// Values of the weight gradients of all slices of a layer, where they are most.
    pub(super) fn slice_gradients(&self, slices: usize) -> usize {
        slices * self.convolutions().map(|convolution| convolution.geometry.weights()).max().unwrap_or(0)
    }

    /// Pieces of the packing after a step: a layer (a hidden layer and the head come last) with some of its input channels.
    pub(super) fn packing(&self) -> Vec<(usize, Range<usize>)> {
        let mut pieces = Vec::new();
        for (number, convolution) in self.convolutions().enumerate() {
            let inputs = convolution.geometry.inputs;
            let step = channel_step(inputs);
            pieces.extend((0..inputs).step_by(step).map(|first| (number, first..first + step)));
        }
        pieces
    }
}

/// Input channels of a layer that one task packs, or sums the weight gradients of.
pub(super) fn channel_step(inputs: usize) -> usize {
    if inputs.is_multiple_of(CHANNELS) { CHANNELS } else { inputs }
}
