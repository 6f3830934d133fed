//! The plan of a network: where every layer's values are, and how its passes are cut into tasks.
//!
//! Tasks depend neither on the number of threads nor on that of processes, and their partial sums are added in a fixed
//! order (`slices.rs`). Results are therefore the same for any number of threads and processes.

use std::ops::Range;

use super::batch_norm;
use super::features::HiddenLayer;
use super::head::HeadLayer;
use super::memory::{Activations, LayerMemory, LayerSizes, Needs, allocate};
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
    /// Where its tensors are.
    pub(super) memory: LayerMemory<T>,
    /// The rows that `batch_norm.rs` lists.
    pub(super) coefficients: Buffer,
    /// 1 / sqrt(variance + epsilon) of every channel.
    pub(super) inverse_deviation: Vec<f64>,
}

/// The convolution of a layer, and what it needs memory for.
fn convolution<T: Activation>(
    first: bool,
    layer: &LayerDescription,
    options: &PlanOptions,
) -> (Convolution, LayerSizes) {
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
    let sizes = LayerSizes::of(&convolution, depth);
    (convolution, sizes)
}

impl<T: Activation> Layer<T> {
    fn new(
        layer: &LayerDescription,
        convolution: Convolution,
        memory: LayerMemory<T>,
        offsets: &mut Offsets,
        slice_images: usize,
    ) -> Self {
        let geometry = convolution.geometry;
        let task_images = slice_images.div_ceil(TASKS_OF_SLICE).next_multiple_of(convolution.forward.group);
        let channels = geometry.outputs;
        Self {
            unpadded: [layer.inputs, layer.outputs],
            task_images,
            slice_tasks: slice_images.div_ceil(task_images),
            weight: offsets.take_parameters(geometry.weights()),
            gamma: offsets.take_parameters(channels),
            beta: offsets.take_parameters(channels),
            mean: offsets.take_statistics(channels),
            variance: offsets.take_statistics(channels),
            memory,
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
    /// Slices of this process.
    pub(super) own_slices: usize,
    pub(super) algorithm: ConvolutionAlgorithm,
    /// Whether tensors that are not needed at the same time share memory.
    pub(super) shares_memory: bool,
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
    pub(super) activations: Activations<T>,
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
        let of_layer = |(number, layer)| convolution::<T>(number == 0, layer, options);
        let (convolutions, sizes): (Vec<_>, Vec<_>) = descriptions.iter().enumerate().map(of_layer).unzip();
        let &PlanOptions { images, own_slices, shares_memory, .. } = options;
        let needs = Needs {
            network,
            blocks: &blocks,
            layers: sizes,
            images,
            own_slices,
            value_bytes: size_of::<T>(),
            shares_memory,
        };
        let (memory, activations) = allocate(&needs);
        let slice_images = options.slices.images();
        let planned = descriptions.iter().zip(convolutions).zip(memory);
        let layers = planned
            .map(|((layer, convolution), memory)| Layer::new(layer, convolution, memory, &mut offsets, slice_images))
            .collect();
        let hidden = HiddenLayer::new(network, options.images, &mut offsets);
        let head = HeadLayer::new(network, options, &mut offsets);
        Self { layers, blocks, activations, hidden, head, offsets }
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
    pub(super) fn largest_activation(&self) -> usize {
        self.layers.iter().map(|layer| layer.convolution.geometry.output_len()).max().unwrap_or(0)
    }

    /// Most channels of any input or output.
    pub(super) fn most_channels(&self) -> usize {
        let channels = |c: &Convolution| c.geometry.inputs.max(c.geometry.outputs);
        self.convolutions().map(channels).max().unwrap_or(0)
    }

    /// Pieces of the packing after a step: a layer (a hidden layer and the head come last) with some of its input channels.
    pub(super) fn packing(&self) -> Vec<(usize, Range<usize>)> {
        let is_late = |number: usize| self.layers.get(number).is_some_and(|layer| layer.memory.is_packed_late);
        let early = self.convolutions().enumerate().filter(|(number, _)| !is_late(*number));
        early.flat_map(|(number, convolution)| pieces(number, convolution)).collect()
    }
}

/// Pieces of the packing of a layer: its number with some of its input channels.
pub(super) fn pieces(number: usize, convolution: &Convolution) -> Vec<(usize, Range<usize>)> {
    let inputs = convolution.geometry.inputs;
    let step = channel_step(inputs);
    (0..inputs).step_by(step).map(|first| (number, first..first + step)).collect()
}

/// Input channels of a layer that one task packs, or sums the weight gradients of.
pub(super) fn channel_step(inputs: usize) -> usize {
    if inputs.is_multiple_of(CHANNELS) { CHANNELS } else { inputs }
}
