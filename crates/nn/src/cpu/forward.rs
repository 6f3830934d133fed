//! The forward pass in training.

use super::CpuOf;
use super::packing::PackedFor;
use super::scratch::Shared;
use super::sums::Parts;
use crate::error::NnError;
use crate::kernel::convolution::Forward;
use crate::kernel::fused_norm::Source;
use crate::kernel::value::Activation;
use crate::network::Network;

impl<T: Activation> CpuOf<T> {
    /// Copies the caller's images, which have channel after channel, and returns their number.
    pub(super) fn read_images(&mut self, images: &[f32]) -> Result<usize, NnError> {
        let Network { channels, size: [height, width], .. } = self.network;
        let image_values = channels * height * width;
        let number = images.len() / image_values;
        if images.len() != number * image_values {
            return Err(NnError::Images { got: images.len(), channels, height, width });
        }
        if number == 0 || number > self.batch_size {
            return Err(NnError::BatchSize { got: number, most: self.batch_size });
        }
        let mut tasks: Vec<(&[f32], &mut [f32], bool)> = images
            .chunks_exact(image_values)
            .zip(self.activations.images.chunks_exact_mut(image_values))
            .map(|(from, to)| (from, to, true))
            .collect();
        self.tasks.pool.each(&mut tasks, |_, (from, to, finite)| {
            for (c, plane) in from.chunks_exact(height * width).enumerate() {
                for (x, to) in plane.iter().zip(to.iter_mut().skip(c).step_by(channels)) {
                    *finite &= x.is_finite();
                    *to = *x;
                }
            }
        });
        if let Some(image) = tasks.iter().position(|(_, _, finite)| !finite) {
            let value = tasks[image].0.iter().copied().find(|x| !x.is_finite()).unwrap_or(f32::NAN);
            return Err(NnError::NotFinite { image, value });
        }
        Ok(number)
    }

    /// Refuses more images for training than the slices of this process hold.
    pub(super) fn check_slices(&self, number: usize) -> Result<usize, NnError> {
        let most = match &self.peers {
            Some(_) => self.batch_size.min(self.own_slices * self.slices.images()),
            None => self.batch_size,
        };
        if number > most {
            return Err(NnError::BatchSize { got: number, most });
        }
        Ok(number)
    }

    /// Computes the features of a batch and keeps what the backward pass needs. The batch gets this share of the running
    /// statistics; without one, batch norms use the running statistics as they are.
    pub(super) fn backbone_forward(&mut self, images: usize, share: Option<f32>) -> Result<(), NnError> {
        if share.is_none() {
            self.norm_by_running_statistics();
        }
        self.layer_forward(0, Source::Plain(self.activations.images.as_ptr()), images, share)?;
        if self.network.stem.pool {
            self.max_pool_forward(images);
        }
        for block in 0..self.blocks.len() {
            let mut source = match block {
                0 if self.network.stem.pool => Source::Plain(self.activations.block_inputs[0].as_ptr()),
                block => self.block_input(block),
            };
            for i in 0..self.blocks[block].layers.len() {
                let layer = self.blocks[block].layers[i];
                self.layer_forward(layer, source, images, share)?;
                source = Source::Active(self.layers[layer].normed());
            }
            if let Some(projection) = self.blocks[block].projection {
                let input = Source::Plain(self.activations.block_inputs[block].as_ptr());
                self.layer_forward(projection, input, images, share)?;
            }
        }
        self.average_pool_forward(images);
        Ok(())
    }

    /// Computes outputs again that the backward passes of this block and of those before it need. Batch norms stay as they are.
    pub(super) fn recompute_outputs(&mut self, block: usize, images: usize) -> Result<(), NnError> {
        for i in 0..self.activations.recomputed_outputs[block].len() {
            let number = self.activations.recomputed_outputs[block][i];
            let source = Source::Active(self.layers[number - 1].normed());
            self.layer_forward(number, source, images, None)?;
        }
        Ok(())
    }

    /// Runs a layer's convolution, and sets its batch norm to the batch's statistics if these get a share of the running ones.
    fn layer_forward<S: Activation>(
        &mut self,
        number: usize,
        source: Source<S>,
        images: usize,
        share: Option<f32>,
    ) -> Result<(), NnError> {
        self.receive_parameters(number)?;
        self.pack_late(number, PackedFor::Forward);
        let layer = &self.layers[number];
        let (channels, task_images, slice_tasks) = (layer.channels(), layer.task_images, layer.slice_tasks);
        let slice_images = self.slices.images();
        let first = |task: usize| task / slice_tasks * slice_images + task % slice_tasks * task_images;
        let (slice, rest) = (images / slice_images, images % slice_images);
        let tasks = slice * slice_tasks + rest.div_ceil(task_images);
        let partial_sums = &mut self.partial_sums[..tasks * 2 * channels];
        if share.is_some() {
            partial_sums.fill(0.0);
        }
        let (source, y) = (Shared::new(source), Shared::new(layer.memory.output.as_ptr()));
        let weights = Shared::new(layer.memory.forward_weights.as_ptr().cast::<S>().cast_const());
        let mean = Shared::new(self.statistics[layer.mean.clone()].as_ptr());
        let partial_sums = Shared::new(partial_sums.as_mut_ptr());
        let (convolution, simd, has_sums) = (&layer.convolution, self.tasks.simd, share.is_some());
        self.tasks.run(tasks, |task, next, scratch| {
            let run = Forward {
                source: source.get(),
                images: first(task)
                    ..images.min((first(task) + task_images).min((task / slice_tasks + 1) * slice_images)),
                after: next.map(first),
                cached: false,
                part: None,
                weights: weights.get(),
                y: y.get(),
                // SAFETY: `partial_sums` has `tasks` rows of 2 x `channels` values, and `task` is less than `tasks`.
                sums: has_sums.then(|| (mean.get(), unsafe { partial_sums.get().add(task * 2 * channels) })),
            };
            // SAFETY: the buffers behind the source, the weights and y were planned for this convolution and
            // `batch_size` images. Each task writes its own images of y (and of what the source keeps), its own sums
            // and its own scratch.
            unsafe { convolution.forward(simd, &run, scratch) };
        });
        if let Some(share) = share {
            self.add_parts(Parts { number: tasks, per_slice: slice_tasks }, [2, 2], channels)?;
            self.norm_by_batch(number, share);
        }
        Ok(())
    }
}
