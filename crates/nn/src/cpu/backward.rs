//! The backward pass of the backbone.

use super::Cpu;
use super::plan::channel_step;
use super::scratch::Shared;
use crate::kernel::convolution::Backward;
use crate::kernel::fused_norm::{ShortcutBack, Sink, Source};

impl Cpu {
    /// Computes the gradients of all layers from that of the features.
    pub(super) fn backbone_backward(&mut self, images: usize) {
        self.average_pool_backward(images);
        // tasks of the pass that wrote the last partial sums, and which of the two block gradients it wrote
        let (mut tasks, mut current) = (images, 0);
        for block in (0..self.blocks.len()).rev() {
            tasks = self.block_backward(block, current, tasks, images);
            current = 1 - current;
        }
        if self.network.stem.pool {
            self.max_pool_backward(current, images);
            (tasks, current) = (images, 1 - current);
        }
        self.norm_backward(0, tasks, 1, images);
        let g = self.activation_gradients.blocks[current].as_ptr();
        self.layer_backward(0, Source::Plain(self.activations.images.as_ptr()), g, Sink::Nothing, images);
    }

    /// Goes back through a block, from block gradient `current` to the other one. `tasks` is the number of tasks that
    /// wrote the partial sums of the block's last batch norms; returns the number that wrote those of the block before.
    fn block_backward(&mut self, block: usize, current: usize, tasks: usize, images: usize) -> usize {
        let last = self.blocks[block].last();
        let block_gradient = self.activation_gradients.blocks[current].as_ptr();
        let input = Source::Plain(self.activations.block_inputs[block].as_ptr());
        self.norm_backward(last, tasks, 1, images);
        let shortcut = match self.blocks[block].projection {
            None => self.shortcut_gradient(block, block_gradient),
            Some(projection) => {
                self.norm_backward(projection, tasks, 2, images);
                let out = self.activation_gradients.projection.as_mut_ptr();
                let sink = Sink::Plain { shortcut: ShortcutBack::Nothing, out };
                self.layer_backward(projection, input, block_gradient, sink, images);
                ShortcutBack::Same(out)
            }
        };
        let (mut g, mut above) = (block_gradient, last);
        for i in 0..self.blocks[block].layers.len() - 1 {
            let layers = &self.blocks[block].layers;
            let number = layers[layers.len() - 2 - i];
            let out = self.activation_gradients.inner[i % 2].as_mut_ptr();
            let layer = &self.layers[number];
            let source = Source::Active(layer.normed());
            let sink = Sink::Active { normed: layer.normed(), centered: layer.centered(), out };
            let tasks = self.layer_backward(above, source, g, sink, images);
            self.norm_backward(number, tasks, 1, images);
            (g, above) = (out, number);
        }
        let out = self.activation_gradients.blocks[1 - current].as_mut_ptr();
        let sink = self.block_input_sink(block, shortcut, out);
        self.layer_backward(above, input, g, sink, images)
    }

    /// Runs a layer's backward pass and sums its weight gradients. Returns the number of tasks, whose sums are in
    /// `partial_sums`.
    fn layer_backward(&mut self, number: usize, source: Source, g: *const f32, sink: Sink, images: usize) -> usize {
        let layer = &self.layers[number];
        let (convolution, simd, slice_images) = (&layer.convolution, self.tasks.simd, layer.slice_images);
        let inputs = convolution.geometry.inputs;
        let tasks = images.div_ceil(slice_images);
        self.partial_sums[..3 * tasks * inputs].fill(0.0);
        let (source, sink) = (Shared::new(source), Shared::new(sink));
        let (back, weights) = (Shared::new(layer.output_gradient(g)), Shared::new(layer.backward_weights.as_ptr()));
        let slices = Shared::new(self.slice_gradients.as_mut_ptr());
        let partial_sums = Shared::new(self.partial_sums.as_mut_ptr());
        self.tasks.run(tasks, |task, next, scratch| {
            // SAFETY: `slice_gradients` has the weights of every slice, and `partial_sums` three values for every task
            // and channel.
            let (dw, sums) = unsafe {
                let dw = slices.get().add(task * convolution.geometry.weights());
                (dw, partial_sums.get().add(3 * task * inputs))
            };
            let run = Backward {
                source: source.get(),
                back: back.get(),
                images: task * slice_images..images.min((task + 1) * slice_images),
                after: next.map(|next| next * slice_images),
                weights: weights.get(),
                dw,
                sink: sink.get(),
                sums,
            };
            // SAFETY: all buffers were planned for this convolution and `batch_size` images. Each task writes its own
            // images of the sink, its own slice and sums, and its own scratch.
            unsafe { convolution.backward(simd, &run, scratch) };
        });
        let slices = Shared::new(self.slice_gradients.as_ptr());
        let dw = Shared::new(self.gradients[layer.weight.clone()].as_mut_ptr());
        let step = channel_step(inputs);
        self.tasks.pool.run(inputs / step, |task| {
            // SAFETY: the tasks above wrote `tasks` slices; dw is the layer's part of the gradients; each task writes
            // its own rows.
            unsafe { convolution.collect(simd, slices.get(), tasks, task * step..(task + 1) * step, dw.get()) };
        });
        tasks
    }
}
