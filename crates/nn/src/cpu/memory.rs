//! What an engine keeps of a batch between its passes, and how much memory that takes.

use super::evaluation;
use super::plan::Plan;
use crate::buffer::Buffer;
use crate::kernel::convolution::Geometry;
use crate::kernel::stored;
use crate::kernel::value::Activation;
use crate::network::{Network, pooled};

/// Values of a forward pass in training that the backward pass needs, beside every layer's output.
pub(super) struct Activations<T> {
    /// The images, with the channels of a pixel side by side.
    pub(super) images: Buffer,
    /// The input of every block, and the output of the last one.
    pub(super) block_inputs: Vec<Buffer<T>>,
    /// The pixel of the window that the stem's max pool took.
    pub(super) pool_taps: Vec<u8>,
}

impl<T: Activation> Activations<T> {
    pub(super) fn new(plan: &Plan<T>, network: &Network, batch_size: usize) -> Self {
        let length = |size: [usize; 2], channels: usize| batch_size * size[0] * size[1] * channels;
        // a head on features reads them where its first layer does
        let Some(stem) = plan.layers.first() else {
            return Self { images: Buffer::new(0), block_inputs: Vec::new(), pool_taps: Vec::new() };
        };
        let stem_output = stem.convolution.geometry.out();
        let first = if network.stem.pool { pooled(stem_output) } else { stem_output };
        let first = length(first, stem.channels());
        let outputs = plan.blocks.iter().map(|block| plan.layers[block.last()].output.len());
        Self {
            images: Buffer::new(length(network.size, network.channels)),
            block_inputs: [first].into_iter().chain(outputs).map(Buffer::new).collect(),
            pool_taps: vec![0; if network.stem.pool { first } else { 0 }],
        }
    }
}

/// Gradients of activations. Each is needed for a short time only, so that layers share them.
pub(super) struct ActivationGradients<T> {
    /// Gradients of the outputs of a block and of the one before it, in turn.
    pub(super) blocks: [Buffer<T>; 2],
    /// Gradients inside a block, in turn.
    pub(super) inner: [Buffer<T>; 2],
    /// The gradient of a projection's input.
    pub(super) projection: Buffer<T>,
    /// The gradient of the features.
    pub(super) features: Buffer,
}

impl<T: Activation> ActivationGradients<T> {
    pub(super) fn new(plan: &Plan<T>, network: &Network, batch_size: usize) -> Self {
        let stem = plan.layers.first().map_or(0, |layer| layer.output.len());
        let (mut block_length, mut inner, mut projection) = (stem, 0, 0);
        // without layers before it, nobody needs the gradient of what the head reads
        let has_features = plan.hidden.is_some() || !plan.layers.is_empty();
        for block in &plan.blocks {
            let (last, others) = block.layers.split_last().expect("a block has layers");
            block_length = block_length.max(plan.layers[*last].output.len());
            inner = others.iter().map(|layer| plan.layers[*layer].output.len()).fold(inner, usize::max);
            if let Some(number) = block.projection {
                let Geometry { inputs, size: [height, width], .. } = plan.layers[number].convolution.geometry;
                projection = projection.max(batch_size * height * width * inputs);
            }
        }
        let two_inside = plan.blocks.iter().any(|block| block.layers.len() > 2);
        Self {
            blocks: [Buffer::new(block_length), Buffer::new(block_length)],
            inner: [Buffer::new(inner), Buffer::new(if two_inside { inner } else { 0 })],
            projection: Buffer::new(projection),
            features: Buffer::new(if has_features { batch_size * stored(network.features()) } else { 0 }),
        }
    }
}

/// Estimates the bytes of an engine: what it keeps of a batch and three gradients, in values of `size` bytes, the
/// parameters, and the threads' scratch.
pub(super) fn bytes(network: &Network, batch_size: usize, threads: usize, size: usize) -> u64 {
    let values = |size: [usize; 2], channels: usize| (size[0] * size[1] * stored(channels)) as u64;
    let (layers, blocks) = network.layers();
    let outputs = || layers.iter().map(|layer| values(layer.out(), layer.outputs));
    let largest = outputs().max().unwrap_or(0);
    let block_outputs = blocks.iter().map(|block| &layers[block.last()]).map(|last| values(last.out(), last.outputs));
    let kept = outputs().sum::<u64>() + block_outputs.sum::<u64>();
    let image = (network.channels * network.size[0] * network.size[1]) as u64;
    let in_f32 = 2 * image + 3 * stored(network.features()) as u64 + 3 * stored(network.classes) as u64;
    let per_image = size as u64 * (kept + 3 * largest) + 4 * in_f32;
    let parameters = 48 * network.parameter_count() as u64;
    // a thread's frames and tiles of a few images, and the transformed weights of a layer; once more the activations, for
    // images that all threads evaluate together
    let windows = layers.iter().filter(|layer| layer.kernel > 1);
    let transformed = windows.map(|layer| 36 * (stored(layer.inputs) * stored(layer.outputs)) as u64);
    let group = evaluation::GROUP as u64 * largest;
    let per_thread = 4 * (transformed.max().unwrap_or(0) + 7 * group);
    let all = (batch_size as u64).saturating_mul(per_image).saturating_add(parameters + 4 * 6 * group);
    all.saturating_add(per_thread.saturating_mul(threads as u64))
}
