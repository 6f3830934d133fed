//! What an engine needs memory for in a step, and when.
//!
//! The outputs of convolutions are needed from their forward to their backward pass, all gradients of activations and the weight
//! gradients of slices for a short time only. The inputs of blocks are recomputed from these outputs where a chain of blocks has a
//! projection to begin with; the largest outputs, which are those of the first bottlenecks, are recomputed too. The weights of large
//! layers are packed right before they are used.
#![expect(clippy::single_range_in_vec_init, reason = "many tensors are needed in one range of steps")]

use std::ops::Range;

use super::arena::{Arena, Stretch};
use super::evaluation;
use super::lifetimes::{Tensor, most_bytes, place};
use crate::buffer::Buffer;
use crate::kernel::convolution::{Convolution, Geometry};
use crate::kernel::stored;
use crate::kernel::value::Activation;
use crate::network::{Layer as LayerDescription, Network, ResidualBlock, Shortcut};
use crate::slices::Slices;

/// Words of packed weights that are packed once after every step. More of them are packed right before each pass: they are then in the
/// cache when they are read, and all layers can use the same memory.
const PACKED_ONCE: u64 = 3 << 16;

/// What a layer needs memory for.
#[derive(Clone, Copy)]
pub(super) struct LayerSizes {
    /// Values of an input and of an output image.
    input: u64,
    output: u64,
    weights: u64,
    /// Words of the weights packed for one pass.
    packed: u64,
    /// Whether packed weights have padding, which is zero and stays zero.
    has_padding: bool,
    /// Whether it widens a bottleneck: a 1 x 1 convolution with four times as many outputs as inputs.
    widens: bool,
}

impl LayerSizes {
    /// Those of a convolution that multiplies words of `depth` values.
    pub(super) fn of(convolution: &Convolution, depth: usize) -> Self {
        let Geometry { inputs, outputs, size, kernel, stride, .. } = convolution.geometry;
        Self {
            input: values(size, inputs),
            output: values(convolution.geometry.out(), outputs),
            weights: convolution.geometry.weights() as u64,
            packed: (convolution.packed() / depth) as u64,
            has_padding: convolution.has_padding(),
            widens: widens([inputs, outputs], [kernel, stride]),
        }
    }

    /// Those of a layer that is not planned yet. Packed weights are those of Winograd's F(4 x 4, 3 x 3), where that fits.
    fn estimate(layer: &LayerDescription, depth: u64) -> Self {
        let (inputs, outputs) = (stored(layer.inputs), stored(layer.outputs));
        let windows = if layer.kernel == 3 && layer.stride == 1 { 36 } else { layer.kernel * layer.kernel };
        Self {
            input: values(layer.size, inputs),
            output: values(layer.out(), outputs),
            weights: (layer.kernel * layer.kernel * inputs * outputs) as u64,
            packed: (windows * inputs * outputs) as u64 / depth,
            has_padding: false,
            widens: widens([inputs, outputs], [layer.kernel, layer.stride]),
        }
    }
}

/// Whether a convolution with these numbers of channels, this window and stride widens a bottleneck.
fn widens([inputs, outputs]: [usize; 2], window: [usize; 2]) -> bool {
    window == [1, 1] && outputs == 4 * inputs
}

fn values([height, width]: [usize; 2], channels: usize) -> u64 {
    (height * width * channels) as u64
}

/// The steps of a pass over a batch in the order of time.
#[derive(Clone, Copy)]
struct Steps {
    layers: usize,
}

impl Steps {
    fn forward(self, layer: usize) -> usize {
        layer
    }

    fn average_pool(self) -> usize {
        self.layers
    }

    fn head_backward(self) -> usize {
        self.layers + 1
    }

    fn average_pool_backward(self) -> usize {
        self.layers + 2
    }

    fn backward(self, layer: usize) -> usize {
        2 * self.layers + 2 - layer
    }

    /// An evaluation, which comes between two steps.
    fn evaluation(self) -> usize {
        2 * self.layers + 3
    }

    fn all(self) -> Range<usize> {
        0..self.evaluation() + 1
    }
}

/// The numbers of a layer's tensors.
#[derive(Clone, Copy)]
struct LayerTensors {
    output: usize,
    input_gradient: usize,
    slice_gradients: usize,
    forward_weights: usize,
    backward_weights: usize,
    evaluation_weights: usize,
}

/// All tensors that a network needs.
struct Tensors {
    all: Vec<Tensor>,
    layers: Vec<LayerTensors>,
    /// The input of every block, and the output of the last one.
    block_inputs: Vec<usize>,
    /// Gradients of the last block's output and of what the stem's max pool reads.
    last_gradient: usize,
    pool_gradient: usize,
    /// Weight gradients of the slices of the head.
    head_slices: usize,
}

/// What the memory of a network depends on.
pub(super) struct Needs<'a> {
    pub(super) network: &'a Network,
    pub(super) blocks: &'a [ResidualBlock],
    pub(super) layers: Vec<LayerSizes>,
    /// Most images at a time, the slices of this process, and the bytes of an activation.
    pub(super) images: usize,
    pub(super) own_slices: usize,
    pub(super) value_bytes: usize,
    /// Whether tensors share memory; if not, each has a place of its own, and nothing is computed or packed twice.
    pub(super) shares_memory: bool,
}

impl Needs<'_> {
    /// The block inputs that are recomputed right before the backward pass of a block: all up to its own that are computed one from
    /// the other. A chain begins behind a block with a projection, whose two outputs are all that the next block's input needs, or
    /// with the first block, whose input is kept.
    fn recomputed_before(&self, block: usize) -> Range<usize> {
        let blocks = self.blocks;
        let ends_chain = blocks[block].projection.is_some() || block + 1 == blocks.len();
        if !self.shares_memory || self.network.shortcut != Shortcut::Projection || !ends_chain {
            return 0..0;
        }
        let first = blocks[..block].iter().rposition(|block| block.projection.is_some()).unwrap_or(0);
        first + 1..block + 1
    }

    /// The layers whose outputs are recomputed right before the backward pass of a block, because the inputs of blocks that are then
    /// recomputed need them: the last ones of the bottlenecks of the first chain. In a ResNet-50 they have the largest outputs and the
    /// fewest inputs, so that they save the most memory for the least work. Weights that are packed right before a pass have no place at
    /// that time, so that layers with such weights keep their outputs.
    fn outputs_recomputed_before(&self, block: usize) -> Vec<usize> {
        if self.recomputed_before(block).start != 1 {
            return Vec::new();
        }
        let last = self.blocks[..block].iter().map(ResidualBlock::last);
        let is_recomputed = |sizes: &LayerSizes| sizes.widens && !self.is_packed_late(sizes);
        last.filter(|layer| is_recomputed(&self.layers[*layer])).collect()
    }

    /// The steps in which the output of a layer is needed.
    fn output_steps(&self, number: usize, steps: Steps) -> Vec<Range<usize>> {
        let (forward, backward) = (steps.forward(number), steps.backward(number));
        let before = (0..self.blocks.len()).find(|end| self.outputs_recomputed_before(*end).contains(&number));
        let Some(end) = before.map(|end| &self.blocks[end]) else { return vec![forward..backward + 1] };
        // the block behind it reads it, and then nobody until the inputs of blocks are recomputed
        let reader = self.blocks.iter().map(ResidualBlock::first).find(|first| *first > number).unwrap_or(number);
        vec![forward..steps.forward(reader) + 1, steps.backward(end.projection.unwrap_or(end.last()))..backward + 1]
    }

    /// Whether the weights of a layer are packed right before each pass.
    fn is_packed_late(&self, sizes: &LayerSizes) -> bool {
        self.shares_memory && sizes.packed > PACKED_ONCE && !sizes.has_padding
    }

    fn tensors(&self) -> Tensors {
        let steps = Steps { layers: self.layers.len() };
        let mut all = Vec::new();
        let layers = (0..self.layers.len()).map(|number| self.layer(number, steps, &mut all)).collect();
        let block_inputs = (0..=self.blocks.len()).map(|block| self.block_input(block, steps, &mut all)).collect();
        let features = self.layers.last().map_or(0, |_| self.block_output(self.blocks.len()));
        let first = |block: &ResidualBlock| steps.backward(block.first());
        let until = self.blocks.last().map_or(0, |block| first(block) + 1);
        let last_gradient = self.activation(features, vec![steps.average_pool_backward()..until], &mut all);
        let pool_gradient = match self.layers.first() {
            Some(stem) if self.network.stem.pool => stem.output,
            _ => 0,
        };
        let (stem, head) = (steps.backward(0), (stored(self.network.features()) * stored(self.network.classes)) as u64);
        let pool_gradient = self.activation(pool_gradient, vec![stem..stem + 1], &mut all);
        // with a frozen backbone it is trained between evaluations
        let of_head = [steps.head_backward(), steps.evaluation()].map(|step| step..step + 1).to_vec();
        let head = if self.layers.is_empty() { 0 } else { head };
        let head_slices = push(&mut all, self.slice_gradients(head), of_head);
        Tensors { all, layers, block_inputs, last_gradient, pool_gradient, head_slices }
    }

    /// The tensors of a layer.
    fn layer(&self, number: usize, steps: Steps, all: &mut Vec<Tensor>) -> LayerTensors {
        let sizes = self.layers[number];
        let (forward, backward) = (steps.forward(number), steps.backward(number));
        let [in_forward, in_backward, in_evaluation] =
            [forward, backward, steps.evaluation()].map(|step| step..step + 1);
        let (late, packed) = (self.is_packed_late(&sizes), 4 * sizes.packed);
        let packed_in = |pass: Range<usize>| vec![if late { pass } else { steps.all() }];
        let forward_weights = push(all, packed, packed_in(in_forward));
        let evaluation_weights = if late { push(all, packed, vec![in_evaluation]) } else { forward_weights };
        // nobody needs the gradient of the images
        let has_gradient = number > 0;
        LayerTensors {
            output: self.activation(sizes.output, self.output_steps(number, steps), all),
            input_gradient: {
                let until = self.gradient_reader(number, steps) + 1;
                self.activation(if has_gradient { sizes.input } else { 0 }, vec![backward..until], all)
            },
            slice_gradients: push(all, self.slice_gradients(sizes.weights), vec![in_backward.clone()]),
            forward_weights,
            backward_weights: push(all, if has_gradient { packed } else { 0 }, packed_in(in_backward)),
            evaluation_weights,
        }
    }

    /// Bytes for so many weight gradients of every slice but the first, whose place is that of their sum.
    fn slice_gradients(&self, weights: u64) -> u64 {
        4 * self.own_slices.saturating_sub(1) as u64 * weights
    }

    /// The last step that reads the gradient of a layer's input.
    fn gradient_reader(&self, number: usize, steps: Steps) -> usize {
        let of = |block: &ResidualBlock| block.first() <= number && number <= block.projection.unwrap_or(block.last());
        let Some(block) = self.blocks.iter().position(of) else { return steps.backward(number) };
        let (first, before) = (self.blocks[block].first(), block.checked_sub(1).map(|before| &self.blocks[before]));
        match number == first {
            // the shortcut of the block before takes it to the block's input
            true => steps.backward(before.map_or(0, ResidualBlock::first)),
            false if self.blocks[block].projection == Some(number) => steps.backward(first),
            false => steps.backward(number - 1),
        }
    }

    /// The input of a block, or the output of the last one.
    fn block_input(&self, block: usize, steps: Steps, all: &mut Vec<Tensor>) -> usize {
        let blocks = self.blocks;
        let Some(_) = blocks.first() else { return push(all, 0, Vec::new()) };
        let written =
            |block: usize| blocks.get(block).map_or(steps.average_pool(), |block| steps.forward(block.first()));
        let length = self.block_output(block);
        if block == blocks.len() {
            return self.activation(length, vec![written(block)..steps.average_pool_backward() + 1], all);
        }
        // the max pool writes the first one before the first block reads it
        let from = if block == 0 { 0 } else { written(block) };
        let until = steps.backward(blocks[block].first()) + 1;
        let before = (block..blocks.len()).find(|end| self.recomputed_before(*end).contains(&block));
        let needed = match before {
            None => vec![from..until],
            Some(end) => {
                let end = &blocks[end];
                vec![from..written(block + 1) + 1, steps.backward(end.projection.unwrap_or(end.last()))..until]
            }
        };
        self.activation(length, needed, all)
    }

    /// Values of an image where a block begins, or where the last one ends.
    fn block_output(&self, block: usize) -> u64 {
        match self.blocks.get(block) {
            Some(block) => self.layers[block.first()].input,
            None => self.blocks.last().map_or(0, |last| self.layers[last.last()].output),
        }
    }

    /// Adds a tensor with so many values for every image of a batch.
    fn activation(&self, length: u64, steps: Vec<Range<usize>>, all: &mut Vec<Tensor>) -> usize {
        let bytes = (self.images as u64).saturating_mul(length).saturating_mul(self.value_bytes as u64);
        push(all, bytes, steps)
    }
}

/// Adds a tensor and returns its number.
fn push(all: &mut Vec<Tensor>, bytes: u64, steps: Vec<Range<usize>>) -> usize {
    all.push(Tensor { bytes, steps });
    all.len() - 1
}

/// Where the tensors of a layer are.
pub(super) struct LayerMemory<T> {
    /// The convolution's output y.
    pub(super) output: Stretch<T>,
    /// The gradient of its input.
    pub(super) input_gradient: Stretch<T>,
    /// The weight gradients of all slices but the first.
    pub(super) slice_gradients: Stretch<f32>,
    /// The weights as the kernels of the forward pass in training, of the backward pass and of an evaluation read them: words of f32,
    /// or of pairs.
    pub(super) forward_weights: Stretch<f32>,
    pub(super) backward_weights: Stretch<f32>,
    pub(super) evaluation_weights: Stretch<f32>,
    /// Whether the weights are packed right before each pass, and not after a step.
    pub(super) is_packed_late: bool,
}

/// What is kept of a batch beside every layer's tensors.
pub(super) struct Activations<T> {
    /// The images, with the channels of a pixel side by side.
    pub(super) images: Buffer,
    /// The input of every block, and the output of the last one.
    pub(super) block_inputs: Vec<Stretch<T>>,
    /// For every block, the layers whose outputs are recomputed before its backward pass, and then the block inputs.
    pub(super) recomputed_outputs: Vec<Vec<usize>>,
    pub(super) recomputed: Vec<Range<usize>>,
    /// The pixel of the window that the stem's max pool took.
    pub(super) pool_taps: Vec<u8>,
    /// The gradient of the last block's output.
    pub(super) last_gradient: Stretch<T>,
    /// The gradient of the stem's output after its batch norm, if a max pool reads it.
    pub(super) pool_gradient: Stretch<T>,
    /// The gradient of the features.
    pub(super) feature_gradients: Buffer,
    /// Weight gradients of the head, of all slices but the first.
    pub(super) head_slices: Stretch<f32>,
}

/// Finds places for all tensors of a network.
pub(super) fn allocate<T: Activation>(needs: &Needs<'_>) -> (Vec<LayerMemory<T>>, Activations<T>) {
    let mut tensors = needs.tensors();
    if !needs.shares_memory {
        // all at the same time, so that no two overlap
        tensors.all.iter_mut().for_each(|tensor| tensor.steps = vec![0..1]);
    }
    let arena = Arena::new(place(&tensors.all));
    let of_layer = |(layer, sizes): (&LayerTensors, &LayerSizes)| LayerMemory {
        output: arena.stretch(layer.output),
        input_gradient: arena.stretch(layer.input_gradient),
        slice_gradients: arena.stretch(layer.slice_gradients),
        forward_weights: arena.stretch(layer.forward_weights),
        backward_weights: arena.stretch(layer.backward_weights),
        evaluation_weights: arena.stretch(layer.evaluation_weights),
        is_packed_late: needs.is_packed_late(sizes),
    };
    let layers = tensors.layers.iter().zip(&needs.layers).map(of_layer).collect();
    let &Needs { network, images, .. } = needs;
    let on_features = network.is_on_features();
    let image = if on_features { 0 } else { network.channels * network.size[0] * network.size[1] };
    let pooled = if network.stem.pool { needs.block_output(0) as usize } else { 0 };
    // without layers before it, nobody needs the gradient of what the head reads
    let has_features = network.hidden().is_some() || !on_features;
    let activations = Activations {
        images: Buffer::new(images * image),
        block_inputs: tensors.block_inputs.iter().map(|tensor| arena.stretch(*tensor)).collect(),
        recomputed_outputs: (0..needs.blocks.len()).map(|block| needs.outputs_recomputed_before(block)).collect(),
        recomputed: (0..needs.blocks.len()).map(|block| needs.recomputed_before(block)).collect(),
        pool_taps: vec![0; images * pooled],
        last_gradient: arena.stretch(tensors.last_gradient),
        pool_gradient: arena.stretch(tensors.pool_gradient),
        feature_gradients: Buffer::new(if has_features { images * stored(network.features()) } else { 0 }),
        head_slices: arena.stretch(tensors.head_slices),
    };
    (layers, activations)
}

/// Estimates the bytes of an engine: the tensors of a step, in values of `size` bytes, the parameters with their gradients and
/// momentum, and the threads' scratch.
pub(super) fn bytes(network: &Network, batch_size: usize, threads: usize, size: usize) -> u64 {
    let (layers, blocks) = network.layers();
    let depth = |number: usize| if number == 0 { 1 } else { (size_of::<f32>() / size) as u64 };
    let sizes = layers.iter().enumerate().map(|(number, layer)| LayerSizes::estimate(layer, depth(number)));
    let own_slices = Slices::new(batch_size, 1).of(0, 1).len();
    let needs = Needs {
        network,
        blocks: &blocks,
        layers: sizes.collect(),
        images: batch_size,
        own_slices,
        value_bytes: size,
        shares_memory: true,
    };
    let image = (network.channels * network.size[0] * network.size[1]) as u64;
    let taps = if network.stem.pool { needs.block_output(0) } else { 0 };
    let heads = 3 * stored(network.features()) as u64 + 3 * stored(network.classes) as u64;
    let per_image = 4 * (2 * image + heads) + taps;
    let head = 8 * (stored(network.features()) * stored(network.classes)) as u64;
    let parameters = 12 * network.parameter_count() as u64 + head;
    // a thread's frame of an image, tiles and the transformed weights of a layer
    let windows = layers.iter().filter(|layer| layer.kernel > 1);
    let transformed = windows.map(|layer| 36 * (stored(layer.inputs) * stored(layer.outputs)) as u64);
    let largest = needs.layers.iter().map(|layer| layer.output).max().unwrap_or(0);
    let per_thread = 4 * (transformed.max().unwrap_or(0) + 2 * largest);
    // an evaluation keeps six tensors of a group of images: one group if all threads share it, else one per thread
    let group = evaluation::GROUP.min(batch_size).max(1);
    let groups = if batch_size.div_ceil(group) < threads { 1 } else { threads } as u64;
    let evaluation = groups * (6 * size * group) as u64 * largest;
    let all = most_bytes(&needs.tensors().all).saturating_add(parameters + evaluation);
    let all = all.saturating_add((batch_size as u64).saturating_mul(per_image));
    all.saturating_add(per_thread.saturating_mul(threads as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Architecture;

    fn needs<'a>(network: &'a Network, layers: &[LayerDescription], blocks: &'a [ResidualBlock]) -> Needs<'a> {
        let sizes = layers.iter().map(|layer| LayerSizes::estimate(layer, 1)).collect();
        Needs { network, blocks, layers: sizes, images: 16, own_slices: 4, value_bytes: 4, shares_memory: true }
    }

    /// The places of real networks take little more than what is needed at once.
    #[test]
    fn places_are_close() {
        for architecture in Architecture::ALL.into_iter().filter(|architecture| !architecture.is_for_features()) {
            let side = architecture.default_image_size();
            let network = Network::new(architecture, 3, [side, side], 100).expect("valid");
            let (layers, blocks) = network.layers();
            let tensors = needs(&network, &layers, &blocks).tensors().all;
            let (least, placed) = (most_bytes(&tensors), place(&tensors).bytes);
            assert!(placed as f64 <= 1.03 * least as f64, "{architecture}: {placed} bytes, {least} at once");
        }
    }

    /// Every block input but the first is recomputed once where there are projections, and none elsewhere.
    #[test]
    fn chains_of_blocks() {
        use Architecture::{ResNet18, ResNet32, ResNet34, ResNet50};
        let chains = |architecture: Architecture| -> Vec<Range<usize>> {
            let network = Network::new(architecture, 3, [64, 64], 10).expect("valid");
            let (layers, blocks) = network.layers();
            let needs = needs(&network, &layers, &blocks);
            let ranges = (0..blocks.len()).map(|block| needs.recomputed_before(block));
            ranges.filter(|range| !range.is_empty()).collect()
        };
        assert_eq!(chains(ResNet18), [1..3, 3..5, 5..7, 7..8]);
        assert_eq!(chains(ResNet34), [1..4, 4..8, 8..14, 14..16]);
        assert_eq!(chains(ResNet50), [1..4, 4..8, 8..14, 14..16]);
        assert_eq!(chains(ResNet32), []);
    }

    /// The outputs of the first bottlenecks are recomputed before the block with the next projection, and are not needed meanwhile.
    #[test]
    fn recomputed_outputs() {
        use Architecture::{ResNet18, ResNet32, ResNet50};
        let of = |architecture: Architecture| -> Vec<(usize, Vec<usize>)> {
            let network = Network::new(architecture, 3, [64, 64], 10).expect("valid");
            let (layers, blocks) = network.layers();
            let needs = needs(&network, &layers, &blocks);
            let all = (0..blocks.len()).map(|block| (block, needs.outputs_recomputed_before(block)));
            all.filter(|(_, layers)| !layers.is_empty()).collect()
        };
        assert_eq!(of(ResNet50), [(3, vec![3, 7, 10])]);
        assert_eq!(of(ResNet18), []);
        assert_eq!(of(ResNet32), []);
        let network = Network::new(Architecture::ResNet50, 3, [64, 64], 10).expect("valid");
        let (layers, blocks) = network.layers();
        let steps = Steps { layers: layers.len() };
        let needs = needs(&network, &layers, &blocks);
        // layer 3 is read by layer 5, and again from the backward pass of the projection that is layer 14 on
        assert_eq!(needs.output_steps(3, steps), [3..6, steps.backward(14)..steps.backward(3) + 1]);
        assert_eq!(needs.output_steps(2, steps), [2..steps.backward(2) + 1]);
    }
}
