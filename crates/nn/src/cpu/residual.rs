//! The residual join: how a block's last layer and its shortcut form the input of the next block, and the way back.
//!
//! The sum is computed while the next layer reads it, and its gradient while the next layer writes the gradient of its
//! input.

use super::CpuOf;
use super::scratch::Shared;
use crate::kernel::convolution::Geometry;
use crate::kernel::fused_norm::{Band, Frame, Shortcut, ShortcutBack, Sink, Source, join};
use crate::kernel::value::Activation;

/// Values that a task takes through a chain of blocks together: few enough for the cache.
const VALUES_TOGETHER: usize = 1 << 14;

/// What meets at the end of a block.
#[derive(Clone, Copy)]
pub(super) struct BlockOutputs<T> {
    /// The output of the block's last layer.
    pub(super) last: *const T,
    /// The block's input.
    pub(super) input: *const T,
    /// The output of the block's projection, or null.
    pub(super) projection: *const T,
}

/// A shortcut between different shapes without parameters.
struct PaddedShortcut {
    /// Channels of the block's input.
    channels: usize,
    /// Zero channels before them.
    before: usize,
    /// Stride of the pixels.
    step: usize,
}

impl<T: Activation> CpuOf<T> {
    /// The input of a block, or of the head for the number of blocks, in a training pass. Whoever reads it also writes
    /// it to `block_inputs`.
    pub(super) fn block_input(&self, block: usize) -> Source<T> {
        let keep = self.activations.block_inputs[block].as_ptr();
        let null = std::ptr::null();
        let projection = |block: usize| {
            self.blocks[block].projection.map_or(null, |number| self.layers[number].memory.output.as_ptr().cast_const())
        };
        let outputs = match block.checked_sub(1) {
            None => BlockOutputs { last: self.layers[0].memory.output.as_ptr(), input: null, projection: null },
            Some(before) => BlockOutputs {
                last: self.layers[self.blocks[before].last()].memory.output.as_ptr(),
                input: self.activations.block_inputs[before].as_ptr(),
                projection: projection(before),
            },
        };
        self.block_input_from(block, outputs, keep)
    }

    /// The input of a block from the outputs of the block before it; the stem's only output is `last`.
    pub(super) fn block_input_from(&self, block: usize, outputs: BlockOutputs<T>, keep: *mut T) -> Source<T> {
        let Some(before) = block.checked_sub(1) else {
            return Source::Joined {
                normed: self.layers[0].normed_at(outputs.last),
                shortcut: Shortcut::Nothing,
                keep,
            };
        };
        let block = &self.blocks[before];
        let z = outputs.input;
        let shortcut = match (block.projection, self.padded_shortcut(before)) {
            (Some(projection), _) => Shortcut::Normed(self.layers[projection].normed_at(outputs.projection)),
            (None, None) => Shortcut::Same(z),
            (None, Some(PaddedShortcut { channels, before, step })) => {
                let Geometry { inputs, size, .. } = self.layers[block.first()].convolution.geometry;
                Shortcut::Strided { z, size, stored: inputs, channels, before, step }
            }
        };
        Source::Joined { normed: self.layers[block.last()].normed_at(outputs.last), shortcut, keep }
    }

    /// Computes the block inputs again that the backward passes of this block and of some before it need, from the outputs that are kept. A
    /// task takes some pixels through the whole chain.
    pub(super) fn recompute_block_inputs(&self, block: usize, images: usize) {
        let chain = self.activations.recomputed[block].clone();
        if chain.is_empty() {
            return;
        }
        let Geometry { inputs: channels, size: [height, width], .. } =
            self.layers[self.blocks[block].first()].convolution.geometry;
        let chain: Vec<Shared<Source<T>>> = chain.map(|block| Shared::new(self.block_input(block))).collect();
        // the batch as one image with a pixel in each row
        let (pixels, step) = (images * height * width, (VALUES_TOGETHER / channels).max(1));
        let frame = Frame { height: pixels, width: 1, channels, row: channels };
        let simd = self.tasks.simd;
        self.tasks.run(pixels.div_ceil(step), |task, _, _| {
            let band = Band { image: 0, rows: task * step..pixels.min((task + 1) * step) };
            for source in &chain {
                // SAFETY: outputs and inputs of blocks have `batch_size` images of one shape from a projection to the next, so
                // that no shortcut is strided, and their places do not overlap in this step. Channels are a multiple of 16, and
                // each task has pixels of its own.
                unsafe { join(simd, &source.get(), &band, &frame) };
            }
        });
    }

    /// The shortcut of a block without a projection, or `None` if it is the identity.
    fn padded_shortcut(&self, block: usize) -> Option<PaddedShortcut> {
        let block = &self.blocks[block];
        let (first, last) = (&self.layers[block.first()], &self.layers[block.last()]);
        let ([inputs, _], [_, outputs]) = (first.unpadded, last.unpadded);
        if (inputs, first.convolution.geometry.size) == (outputs, last.convolution.geometry.out()) {
            return None;
        }
        let step = block.layers.iter().map(|layer| self.layers[*layer].convolution.geometry.stride).product();
        Some(PaddedShortcut { channels: inputs, before: (outputs - inputs) / 2, step })
    }

    /// What the shortcut of a block without a projection adds to the gradient of the block's input; `g` is the gradient
    /// of the block's output.
    pub(super) fn shortcut_gradient(&self, block: usize, g: *const T) -> ShortcutBack<T> {
        let Some(PaddedShortcut { before, step, .. }) = self.padded_shortcut(block) else {
            return ShortcutBack::Same(g);
        };
        let last = &self.layers[self.blocks[block].last()];
        ShortcutBack::Strided { g, size: last.convolution.geometry.out(), stored: last.channels(), before, step }
    }

    /// Where the gradient of a block's input goes, or of the head's input for the number of blocks: through the ReLU to
    /// the layers that met there.
    pub(super) fn block_input_sink(&self, block: usize, shortcut: ShortcutBack<T>, out: *mut T) -> Sink<T> {
        let (last, projection) = match block.checked_sub(1) {
            None if self.network.stem.pool => return Sink::Plain { shortcut, out },
            None => (0, None),
            Some(before) => (self.blocks[before].last(), self.blocks[before].projection),
        };
        Sink::Joined {
            shortcut,
            z: self.activations.block_inputs[block].as_ptr(),
            centered: self.layers[last].centered(),
            second: projection.map(|number| self.layers[number].centered()),
            out,
        }
    }
}
