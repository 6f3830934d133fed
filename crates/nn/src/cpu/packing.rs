//! Brings the parameters into the order in which the kernels read them.

use std::ops::Range;

use super::CpuOf;
use super::scratch::Shared;
use crate::kernel::convolution::Convolution;
use crate::kernel::value::Activation;

/// A convolution with its weights, and where their words are packed for both passes.
struct Packing<'a> {
    convolution: &'a Convolution,
    weights: Shared<*const f32>,
    forward: Shared<*mut f32>,
    /// Null if no backward pass needs them.
    backward: Shared<*mut f32>,
    /// Whether the convolution multiplies f32, whatever the activations are.
    is_f32: bool,
}

impl<T: Activation> CpuOf<T> {
    /// Packs the weights of all layers.
    pub(super) fn pack(&mut self) {
        self.pack_layers(0..usize::MAX);
    }

    /// Packs the weights of the layers with these numbers; the weights of a cosine head are normalized first.
    pub(super) fn pack_layers(&mut self, numbers: Range<usize>) {
        let (is_head, head) = (numbers.contains(&(self.layers.len() + self.hidden.iter().count())), &mut self.head);
        if is_head && head.is_cosine() {
            head.normalize_weights(&self.parameters[head.weight.clone()]);
        }
        let head_weights =
            if head.is_cosine() { head.directions.as_ptr() } else { self.parameters[head.weight.clone()].as_ptr() };
        let parameters = &self.parameters;
        let mut packings: Vec<Packing<'_>> = Vec::with_capacity(self.layers.len() + 2);
        for (number, layer) in self.layers.iter_mut().enumerate() {
            let backward = if number == 0 { std::ptr::null_mut() } else { layer.backward_weights.as_mut_ptr() };
            packings.push(Packing {
                convolution: &layer.convolution,
                weights: Shared::new(parameters[layer.weight.clone()].as_ptr()),
                forward: Shared::new(layer.forward_weights.as_mut_ptr()),
                backward: Shared::new(backward),
                is_f32: number == 0,
            });
        }
        let is_first = self.network.is_on_features() && self.hidden.is_none();
        if let Some(hidden) = &mut self.hidden {
            packings.push(Packing {
                convolution: &hidden.convolution,
                weights: Shared::new(parameters[hidden.weight.clone()].as_ptr()),
                forward: Shared::new(hidden.forward_weights.as_mut_ptr()),
                // the gradient of the features is not computed
                backward: Shared::new(std::ptr::null_mut()),
                is_f32: false,
            });
        }
        let backward = if is_first { std::ptr::null_mut() } else { head.backward_weights.as_mut_ptr() };
        packings.push(Packing {
            convolution: &head.convolution,
            weights: Shared::new(head_weights),
            forward: Shared::new(head.forward_weights.as_mut_ptr()),
            backward: Shared::new(backward),
            is_f32: !self.network.is_on_features(),
        });
        let start = self.packing.partition_point(|(number, _)| *number < numbers.start);
        let end = self.packing.partition_point(|(number, _)| *number < numbers.end);
        let (pieces, simd) = (&self.packing[start..end], self.tasks.simd);
        self.tasks.pool.run(pieces.len(), |task| {
            let (number, channels) = pieces[task].clone();
            let Packing { convolution, weights, forward, backward, is_f32 } = &packings[number];
            // SAFETY: the weights and both packed buffers have the sizes that the convolution asked for, and each task
            // packs channels of its own.
            unsafe {
                if *is_f32 {
                    convolution.pack(simd, weights.get(), channels, forward.get(), backward.get());
                } else {
                    let (forward, backward) = (forward.get().cast::<T>(), backward.get().cast::<T>());
                    convolution.pack(simd, weights.get(), channels, forward, backward);
                }
            };
        });
    }
}
