//! The forward pass of an evaluation. Batch norms are fixed, so that a few images go through the whole network at once
//! and never leave the cache. Where there are fewer such groups than threads, all threads compute one group after the other,
//! layer by layer: every layer is cut into parts of its output.

use std::ops::Range;

use super::CpuOf;
use super::average_pool::average;
use super::head::normalize;
use super::residual::BlockOutputs;
use super::scratch::{EvaluationScratch, Shared};
use crate::kernel::convolution::{Forward, OutputPart, Scratch};
use crate::kernel::fused_norm::{Band, Frame, Source, join};
use crate::kernel::value::Activation;
use crate::network::{Network, pooled};

/// Images that go through the network together: few enough for the cache, enough for every load of the weights.
pub(super) const GROUP: usize = 4;

/// Who computes a group.
#[derive(Clone, Copy)]
enum Workers<'a> {
    /// The thread that has this scratch.
    One(&'a Scratch),
    /// All threads, which are waiting.
    All,
}

impl<T: Activation> CpuOf<T> {
    /// Computes the features of a batch with the running statistics.
    pub(super) fn backbone_evaluate(&mut self, images: usize) {
        self.norm_by_running_statistics();
        self.pack_for_evaluation();
        let features = Shared::new(self.head.features.as_mut_ptr());
        let lengths = Shared::new(self.head.lengths.as_mut_ptr());
        let memory = self.group_scratch.evaluation::<T>();
        let (engine, size) = (&*self, GROUP.min(self.batch_size));
        let groups = images.div_ceil(size);
        let group = |number: usize| number * size..images.min((number + 1) * size);
        if groups < self.tasks.pool.threads() {
            for number in 0..groups {
                let workers = Workers::All;
                // SAFETY: `features` and `lengths` have rows for `batch_size` images; nobody else uses the memory.
                unsafe { engine.evaluate_group(group(number), workers, &memory, features.get(), lengths.get()) };
            }
            return;
        }
        self.tasks.run_with_thread_scratch(groups, |task, _, scratch| {
            let (kernel, memory) = (scratch.kernel(), scratch.evaluation::<T>());
            let workers = Workers::One(&kernel);
            // SAFETY: `features` and `lengths` have rows for `batch_size` images, and each task has its own images and scratch.
            unsafe { engine.evaluate_group(group(task), workers, &memory, features.get(), lengths.get()) };
        });
    }

    /// Computes the features of some images.
    ///
    /// # Safety
    /// `features` and `lengths` must be valid for writes of these images' rows; the images are at most [`GROUP`], and images
    /// of the batch. Nobody else uses those rows, the memory and the scratch of a single worker.
    unsafe fn evaluate_group(
        &self,
        images: Range<usize>,
        workers: Workers<'_>,
        memory: &EvaluationScratch<T>,
        features: *mut f32,
        lengths: *mut f32,
    ) {
        let number = images.len();
        let Network { channels, size: [height, width], .. } = self.network;
        let first_image = self.activations.images[images.start * height * width * channels..].as_ptr();
        let [mut input, mut next_input] = memory.block_inputs;
        // SAFETY: by the contract, the group has at most `GROUP` images of the batch. Every part of an evaluation's scratch
        // holds `GROUP` images of any layer, initialized; the parts do not overlap, and are the caller's own, as
        // `evaluate_pool`, `evaluate_layer` and `evaluate_features` ask. So are the rows.
        unsafe {
            self.evaluate_layer(0, Source::Plain(first_image), memory.last, number, workers);
            for (number_of_block, block) in self.blocks.iter().enumerate() {
                let mut source = if number_of_block == 0 && self.network.stem.pool {
                    self.evaluate_pool(memory.last, input, number, workers);
                    Source::Plain(input)
                } else {
                    let outputs = BlockOutputs { last: memory.last, input: next_input, projection: memory.projection };
                    self.block_input_from(number_of_block, outputs, input)
                };
                for (i, layer) in block.layers.iter().enumerate() {
                    let y = if i + 1 == block.layers.len() { memory.last } else { memory.inner[i % 2] };
                    self.evaluate_layer(*layer, source, y, number, workers);
                    source = Source::Active(self.layers[*layer].normed_at(y));
                }
                if let Some(projection) = block.projection {
                    self.evaluate_layer(projection, Source::Plain(input), memory.projection, number, workers);
                }
                (input, next_input) = (next_input, input);
            }
            let outputs = BlockOutputs { last: memory.last, input: next_input, projection: memory.projection };
            let source = self.block_input_from(self.blocks.len(), outputs, input);
            self.evaluate_features(source, images, workers, features, lengths);
        }
    }

    /// Runs a layer's convolution for the `number` images of a group.
    ///
    /// # Safety
    /// The source must be valid for reads, and what it keeps and `y` for writes, of `number` images of this layer, which nobody
    /// else uses; a single worker's scratch must be its own.
    unsafe fn evaluate_layer<S: Activation>(
        &self,
        number_of_layer: usize,
        source: Source<S>,
        y: *mut T,
        number: usize,
        workers: Workers<'_>,
    ) {
        let layer = &self.layers[number_of_layer];
        let weights = layer.memory.evaluation_weights.as_ptr().cast::<S>();
        let Workers::One(scratch) = workers else {
            // SAFETY: the contract is the same.
            return unsafe { self.evaluate_layer_in_parts(number_of_layer, source, y, number) };
        };
        let images = 0..number;
        let run = Forward { source, images, after: None, cached: true, part: None, weights, y, sums: None };
        // SAFETY: by the contract, the source, `y` and the scratch fit this layer; its weights are packed for this
        // convolution.
        unsafe { layer.convolution.forward(self.tasks.simd, &run, scratch) };
    }

    /// Runs a layer's convolution on all threads.
    ///
    /// # Safety
    /// The contract of [`evaluate_layer`](Self::evaluate_layer).
    unsafe fn evaluate_layer_in_parts<S: Activation>(&self, layer: usize, source: Source<S>, y: *mut T, number: usize) {
        let layer = &self.layers[layer];
        let (convolution, simd) = (&layer.convolution, self.tasks.simd);
        let mut source = source;
        if let Source::Joined { keep, .. } = source {
            // neighboring parts read the same rows, and would both write them
            // SAFETY: by the contract, the source is valid for the images.
            unsafe { self.join_in_parts(&source, convolution.geometry.inputs, convolution.geometry.size, number) };
            if !convolution.reads_before_rounding::<S>() {
                source = Source::Plain(keep);
            }
        }
        let cut = convolution.cut(number, self.tasks.pool.threads());
        let (source, y) = (Shared::new(source), Shared::new(y));
        let weights = Shared::new(layer.memory.evaluation_weights.as_ptr().cast::<S>().cast_const());
        self.tasks.run(cut.pieces(), |piece, _, scratch| {
            let (images, part) = cut.piece(piece);
            let forward = |source: Source<S>, images: Range<usize>, part: OutputPart| {
                let (weights, y, part) = (weights.get(), y.get(), Some(part));
                let run = Forward { source, images, after: None, cached: true, part, weights, y, sums: None };
                // SAFETY: by the contract, the source and `y` fit this layer, whose weights are packed for this convolution.
                // Every task writes its own part of `y` and its own scratch.
                unsafe { convolution.forward(simd, &run, scratch) };
            };
            let Source::Joined { normed, shortcut, .. } = source.get() else {
                return forward(source.get(), images, part);
            };
            // What was kept is rounded, and this kernel reads the sum before that: it computes the sum again, and leaves the second
            // copy in its scratch, image by image.
            let length = convolution.geometry.input_len();
            for n in images {
                let keep = scratch.gradient.cast::<S>().wrapping_sub(n * length);
                forward(Source::Joined { normed, shortcut, keep }, n..n + 1, part.clone());
            }
        });
    }

    /// Writes what a joined source keeps, on all threads.
    ///
    /// # Safety
    /// The source must be valid for `number` images of this size and channels, which nobody else uses.
    unsafe fn join_in_parts<S: Activation>(
        &self,
        source: &Source<S>,
        channels: usize,
        [height, width]: [usize; 2],
        number: usize,
    ) {
        let frame = Frame { height, width, channels, row: width * channels };
        let (bands, source) = (self.bands(height, number), Shared::new(*source));
        self.tasks.pool.run(number * bands.len(), |task| {
            let band = Band { image: task / bands.len(), rows: bands[task % bands.len()].clone() };
            // SAFETY: by the contract, the source has the image. Layers have a multiple of 16 channels, and each task its own
            // rows.
            unsafe { join(self.tasks.simd, &source.get(), &band, &frame) };
        });
    }

    /// Cuts the rows of an image, so that `number` images occupy all threads.
    fn bands(&self, height: usize, number: usize) -> Vec<Range<usize>> {
        let rows = height.div_ceil(self.tasks.pool.threads().div_ceil(number));
        (0..height).step_by(rows).map(|first| first..height.min(first + rows)).collect()
    }

    /// Pools the stem's output `y` into `z`.
    ///
    /// # Safety
    /// `y` must be valid for reads of `number` images of the stem's output, all of them initialized, and `z` for writes of as
    /// many of the pooled output, which nobody else uses.
    unsafe fn evaluate_pool(&self, y: *const T, z: *mut T, number: usize, workers: Workers<'_>) {
        let (stem, simd) = (&self.layers[0], self.tasks.simd);
        let rows = pooled(stem.convolution.geometry.out())[0];
        match workers {
            Workers::One(_) => {
                for n in 0..number {
                    // SAFETY: by the contract, `y` and `z` have image `n`.
                    unsafe { stem.max_pool(simd, y, (n, 0..rows), z, None) };
                }
            }
            Workers::All => {
                let (bands, y, z) = (self.bands(rows, number), Shared::new(y), Shared::new(z));
                self.tasks.pool.run(number * bands.len(), |task| {
                    let rows = bands[task % bands.len()].clone();
                    // SAFETY: by the contract, `y` and `z` have the image; each task has its own rows of `z`.
                    unsafe { stem.max_pool(simd, y.get(), (task / bands.len(), rows), z.get(), None) };
                });
            }
        }
    }

    /// Averages the last block's output; a cosine head's features are also normalized.
    ///
    /// # Safety
    /// The source must be valid for a group of images, and `features` and `lengths` for writes of the rows of `images`; a single
    /// worker's scratch must be its own.
    unsafe fn evaluate_features(
        &self,
        source: Source<T>,
        images: Range<usize>,
        workers: Workers<'_>,
        features: *mut f32,
        lengths: *mut f32,
    ) {
        let frame = self.feature_frame();
        let (source, features, lengths) = (Shared::new(source), Shared::new(features), Shared::new(lengths));
        let image = |n: usize, scratch: &Scratch| {
            // SAFETY: by the contract, the source and the rows hold these images. As `average` asks, the scratch holds an
            // image of the last layer, and layers have a multiple of 16 channels.
            unsafe {
                let features = features.get().add((images.start + n) * frame.channels);
                average(self.tasks.simd, &source.get(), n, &frame, scratch.input, features);
                if self.head.is_cosine() {
                    let features = std::slice::from_raw_parts_mut(features, frame.channels);
                    *lengths.get().add(images.start + n) = normalize(features);
                }
            }
        };
        match workers {
            Workers::One(scratch) => (0..images.len()).for_each(|n| image(n, scratch)),
            Workers::All => self.tasks.run(images.len(), |n, _, scratch| image(n, scratch)),
        }
    }
}
