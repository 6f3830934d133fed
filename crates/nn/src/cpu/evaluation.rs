//! The forward pass of an evaluation. Batch norms are fixed, so that a few images go through the whole network at once
//! and never leave the cache.

use std::ops::Range;

use super::CpuOf;
use super::average_pool::average;
use super::head::normalize;
use super::residual::BlockOutputs;
use super::scratch::{Shared, ThreadScratch};
use crate::kernel::convolution::{Forward, Scratch};
use crate::kernel::fused_norm::Source;
use crate::kernel::value::Activation;
use crate::network::Network;

/// Images that go through the network together: few enough for the cache, enough for every load of the weights.
pub(super) const GROUP: usize = 4;

impl<T: Activation> CpuOf<T> {
    /// Computes the features of a batch with the running statistics.
    pub(super) fn backbone_evaluate(&mut self, images: usize) {
        self.norm_by_running_statistics();
        self.pack_for_evaluation();
        let features = Shared::new(self.head.features.as_mut_ptr());
        let lengths = Shared::new(self.head.lengths.as_mut_ptr());
        let (engine, group) = (&*self, GROUP.min(self.batch_size));
        self.tasks.run_with_thread_scratch(images.div_ceil(group), |task, _, scratch| {
            let group = task * group..images.min((task + 1) * group);
            // SAFETY: `features` and `lengths` have rows for `batch_size` images, and each task has its own images.
            unsafe { engine.evaluate_group(group, scratch, features.get(), lengths.get()) };
        });
    }

    /// Computes the features of some images.
    ///
    /// # Safety
    /// `features` and `lengths` must be valid for writes of these images' rows, which nobody else uses; the images are
    /// at most [`GROUP`], and images of the batch.
    unsafe fn evaluate_group(
        &self,
        images: Range<usize>,
        scratch: &mut ThreadScratch,
        features: *mut f32,
        lengths: *mut f32,
    ) {
        let (kernel, memory, number) = (scratch.kernel(), scratch.evaluation::<T>(), images.len());
        let Network { channels, size: [height, width], .. } = self.network;
        let first_image = self.activations.images[images.start * height * width * channels..].as_ptr();
        let [mut input, mut next_input] = memory.block_inputs;
        // SAFETY: by the contract, the group has at most `GROUP` images of the batch. Every part of an evaluation's scratch
        // holds `GROUP` images of any layer, initialized; the parts do not overlap, and `scratch` is this task's own, as
        // `max_pool`, `evaluate_layer` and `evaluate_features` ask. The rows are the caller's to write.
        unsafe {
            self.evaluate_layer(0, Source::Plain(first_image), memory.last, number, &kernel);
            for (number_of_block, block) in self.blocks.iter().enumerate() {
                let mut source = if number_of_block == 0 && self.network.stem.pool {
                    for n in 0..number {
                        self.layers[0].max_pool(self.tasks.simd, memory.last, n, input, None);
                    }
                    Source::Plain(input)
                } else {
                    let outputs = BlockOutputs { last: memory.last, input: next_input, projection: memory.projection };
                    self.block_input_from(number_of_block, outputs, input)
                };
                for (i, layer) in block.layers.iter().enumerate() {
                    let y = if i + 1 == block.layers.len() { memory.last } else { memory.inner[i % 2] };
                    self.evaluate_layer(*layer, source, y, number, &kernel);
                    source = Source::Active(self.layers[*layer].normed_at(y));
                }
                if let Some(projection) = block.projection {
                    self.evaluate_layer(projection, Source::Plain(input), memory.projection, number, &kernel);
                }
                (input, next_input) = (next_input, input);
            }
            let outputs = BlockOutputs { last: memory.last, input: next_input, projection: memory.projection };
            let source = self.block_input_from(self.blocks.len(), outputs, input);
            self.evaluate_features(&source, images, &kernel, features, lengths);
        }
    }

    /// Runs a layer's convolution for the `number` images of a group.
    ///
    /// # Safety
    /// The source must be valid for reads and `y` for writes of `number` images of this layer, and `scratch` must be
    /// the task's own.
    unsafe fn evaluate_layer<S: Activation>(
        &self,
        layer: usize,
        source: Source<S>,
        y: *mut T,
        number: usize,
        scratch: &Scratch,
    ) {
        let layer = &self.layers[layer];
        let weights = layer.memory.evaluation_weights.as_ptr().cast::<S>();
        let run = Forward { source, images: 0..number, after: None, cached: true, weights, y, sums: None };
        // SAFETY: by the contract, the source, `y` and the scratch fit this layer; its weights are packed for this
        // convolution.
        unsafe { layer.convolution.forward(self.tasks.simd, &run, scratch) };
    }

    /// Averages the last block's output; a cosine head's features are also normalized.
    ///
    /// # Safety
    /// The source must be valid for a group of images, and `features` and `lengths` for writes of the rows of `images`.
    unsafe fn evaluate_features(
        &self,
        source: &Source<T>,
        images: Range<usize>,
        scratch: &Scratch,
        features: *mut f32,
        lengths: *mut f32,
    ) {
        let frame = self.feature_frame();
        for (n, image) in images.enumerate() {
            // SAFETY: by the contract, the source and the rows hold these images. As `average` asks, the scratch holds an
            // image of the last layer, and layers have a multiple of 16 channels.
            unsafe {
                let features = features.add(image * frame.channels);
                average(self.tasks.simd, source, n, &frame, scratch.input, features);
                if self.head.is_cosine() {
                    let features = std::slice::from_raw_parts_mut(features, frame.channels);
                    *lengths.add(image) = normalize(features);
                }
            }
        }
    }
}
