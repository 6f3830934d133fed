//! The backward pass of the backbone.

use super::CpuOf;
use super::packing::PackedFor;
use super::plan::channel_step;
use super::scratch::Shared;
use super::sums::Parts;
use crate::error::NnError;
use crate::kernel::convolution::{Backward, SliceGradients};
use crate::kernel::fused_norm::{ShortcutBack, Sink, Source};
use crate::kernel::value::Activation;

impl<T: Activation> CpuOf<T> {
    /// Computes the gradients of all layers from that of the features.
    pub(super) fn backbone_backward(&mut self, images: usize) -> Result<(), NnError> {
        self.average_pool_backward(images);
        // parts of the pass that wrote the last partial sums, and the gradient that it wrote
        let (mut parts, mut g) = (self.parts_by_image(images), self.activations.last_gradient.as_ptr());
        for block in (0..self.blocks.len()).rev() {
            self.recompute_outputs(block, images)?;
            self.recompute_block_inputs(block, images);
            parts = self.block_backward(block, g, parts, images)?;
            g = self.layers[self.blocks[block].first()].memory.input_gradient.as_ptr();
        }
        if self.network.stem.pool {
            self.max_pool_backward(g, images);
            (parts, g) = (self.parts_by_image(images), self.activations.pool_gradient.as_ptr());
        }
        self.add_parts(parts, [2, 3], self.layers[0].channels())?;
        self.norm_backward(0, 1);
        self.layer_backward(0, Source::Plain(self.activations.images.as_ptr()), g, Sink::Nothing, images)?;
        Ok(())
    }

    /// Goes back through a block, from the gradient of its output to that of its input. `parts` wrote the partial sums of the
    /// block's last batch norms; returns the parts that wrote those of the block before.
    fn block_backward(
        &mut self,
        block: usize,
        block_gradient: *const T,
        parts: Parts,
        images: usize,
    ) -> Result<Parts, NnError> {
        let last = self.blocks[block].last();
        let input = Source::Plain(self.activations.block_inputs[block].as_ptr());
        let projection = self.blocks[block].projection;
        let wanted = if projection.is_some() { 3 } else { 2 };
        self.add_parts(parts, [wanted, 3], self.layers[last].channels())?;
        self.norm_backward(last, 1);
        let shortcut = match projection {
            None => self.shortcut_gradient(block, block_gradient),
            Some(projection) => {
                self.norm_backward(projection, 2);
                let out = self.layers[projection].memory.input_gradient.as_ptr();
                let sink = Sink::Plain { shortcut: ShortcutBack::Nothing, out };
                self.layer_backward(projection, input, block_gradient, sink, images)?;
                ShortcutBack::Same(out)
            }
        };
        let (mut g, mut above) = (block_gradient, last);
        for i in 0..self.blocks[block].layers.len() - 1 {
            let layers = &self.blocks[block].layers;
            let number = layers[layers.len() - 2 - i];
            let out = self.layers[above].memory.input_gradient.as_ptr();
            let layer = &self.layers[number];
            let source = Source::Active(layer.normed());
            let sink = Sink::Active { normed: layer.normed(), centered: layer.centered(), out };
            let channels = layer.channels();
            let parts = self.layer_backward(above, source, g, sink, images)?;
            self.add_parts(parts, [2, 3], channels)?;
            self.norm_backward(number, 1);
            (g, above) = (out, number);
        }
        let out = self.layers[above].memory.input_gradient.as_ptr();
        let sink = self.block_input_sink(block, shortcut, out);
        self.layer_backward(above, input, g, sink, images)
    }

    /// Runs a layer's backward pass and sums its weight gradients. Returns the parts whose sums are in `partial_sums`.
    fn layer_backward<S: Activation>(
        &mut self,
        number: usize,
        input: Source<S>,
        g: *const T,
        sink: Sink<S>,
        images: usize,
    ) -> Result<Parts, NnError> {
        if !matches!(sink, Sink::Nothing) {
            self.pack_late(number, PackedFor::Backward);
        }
        let layer = &self.layers[number];
        let (convolution, simd, slice_images) = (&layer.convolution, self.tasks.simd, self.slices.images());
        let inputs = convolution.geometry.inputs;
        let weight = layer.weight.clone();
        let tasks = images.div_ceil(slice_images);
        self.partial_sums[..3 * tasks * inputs].fill(0.0);
        let (source, sink) = (Shared::new(input), Shared::new(sink));
        let (back, weights) =
            (Shared::new(layer.output_gradient(g)), Shared::new(layer.memory.backward_weights.as_ptr().cast::<S>()));
        let slices = Shared::new(SliceGradients {
            first: self.gradients[weight.clone()].as_mut_ptr(),
            others: layer.memory.slice_gradients.as_ptr(),
            weights: convolution.geometry.weights(),
        });
        let partial_sums = Shared::new(self.partial_sums.as_mut_ptr());
        self.tasks.run(tasks, |task, next, scratch| {
            // SAFETY: `partial_sums` has three values for every task and channel.
            let sums = unsafe { partial_sums.get().add(3 * task * inputs) };
            let run = Backward {
                source: source.get(),
                back: back.get(),
                images: task * slice_images..images.min((task + 1) * slice_images),
                after: next.map(|next| next * slice_images),
                weights: weights.get().cast_const(),
                dw: slices.get().of(task),
                sink: sink.get(),
                sums,
            };
            // SAFETY: all buffers were planned for this convolution and `batch_size` images. Each task writes its own
            // images of the sink, its own slice and sums, and its own scratch.
            unsafe { convolution.backward(simd, &run, scratch) };
        });
        let step = channel_step(inputs);
        self.tasks.pool.run(inputs / step, |task| {
            // SAFETY: the tasks above wrote `tasks` slices, of which the first is the layer's part of the gradients; each task
            // writes its own rows.
            unsafe { convolution.collect(simd, &slices.get(), tasks, task * step..(task + 1) * step) };
        });
        self.start_gradient_sum(weight)?;
        Ok(Parts { number: tasks, per_slice: 1 })
    }
}
