//! Brings the parameters into the order in which the kernels read them.
//!
//! Small layers, a hidden layer and the head are packed once after every step. Large layers are packed right before each of their
//! passes in training, and all of them before the first evaluation with new weights.

use std::ops::Range;

use super::CpuOf;
use super::plan::{Layer, pieces};
use super::scratch::Shared;
use crate::kernel::convolution::Convolution;
use crate::kernel::value::Activation;

/// A convolution with its weights, and where their words are packed for both passes.
struct Packing<'a> {
    convolution: &'a Convolution,
    weights: Shared<*const f32>,
    /// Null if the pass does not need them.
    forward: Shared<*mut f32>,
    backward: Shared<*mut f32>,
    /// Whether the convolution multiplies f32, whatever the activations are.
    is_f32: bool,
}

/// A pass for which large layers are packed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PackedFor {
    Forward,
    Backward,
    Evaluation,
}

impl<T: Activation> Layer<T> {
    /// Where the weights are packed for each pass.
    fn packed(&self, pass: PackedFor) -> *mut f32 {
        match pass {
            PackedFor::Forward => self.memory.forward_weights.as_ptr(),
            PackedFor::Backward => self.memory.backward_weights.as_ptr(),
            PackedFor::Evaluation => self.memory.evaluation_weights.as_ptr(),
        }
    }
}

impl<T: Activation> CpuOf<T> {
    /// Packs the weights of all layers that are not packed right before each pass.
    pub(super) fn pack(&mut self) {
        self.pack_layers(0..usize::MAX);
    }

    /// Packs those of the layers with these numbers; the weights of a cosine head are normalized first.
    pub(super) fn pack_layers(&mut self, numbers: Range<usize>) {
        self.evaluation_weights_are_packed &= numbers.start >= self.layers.len();
        let (is_head, head) = (numbers.contains(&(self.layers.len() + self.hidden.iter().count())), &mut self.head);
        if is_head && head.is_cosine() {
            head.normalize_weights(&self.parameters[head.weight.clone()]);
        }
        let start = self.packing.partition_point(|(number, _)| *number < numbers.start);
        let end = self.packing.partition_point(|(number, _)| *number < numbers.end);
        if start == end {
            return;
        }
        let null = std::ptr::null_mut();
        let of_layer = |(number, layer): (usize, &Layer<T>)| {
            // the gradient of the images is not computed
            let backward = if number == 0 { null } else { layer.packed(PackedFor::Backward) };
            self.packing_of(number, layer.packed(PackedFor::Forward), backward)
        };
        let mut packings: Vec<Packing<'_>> = self.layers.iter().enumerate().map(of_layer).collect();
        packings.extend(self.packings_behind_layers());
        self.run_packing(&self.packing[start..end], |number| &packings[number]);
    }

    /// Packs the weights of a large layer for its next pass.
    pub(super) fn pack_late(&self, number: usize, pass: PackedFor) {
        let layer = &self.layers[number];
        if layer.memory.is_packed_late {
            let packing = self.late_packing(number, pass);
            self.run_packing(&pieces(number, &layer.convolution), |_| &packing);
        }
    }

    /// Packs the weights of all large layers for evaluations, unless they are.
    pub(super) fn pack_for_evaluation(&mut self) {
        if std::mem::replace(&mut self.evaluation_weights_are_packed, true) {
            return;
        }
        let packings: Vec<_> =
            (0..self.layers.len()).map(|number| self.late_packing(number, PackedFor::Evaluation)).collect();
        let late = self.layers.iter().enumerate().filter(|(_, layer)| layer.memory.is_packed_late);
        let pieces: Vec<_> = late.flat_map(|(number, layer)| pieces(number, &layer.convolution)).collect();
        self.run_packing(&pieces, |number| &packings[number]);
    }

    fn late_packing(&self, number: usize, pass: PackedFor) -> Packing<'_> {
        let (packed, null) = (self.layers[number].packed(pass), std::ptr::null_mut());
        match pass {
            PackedFor::Backward => self.packing_of(number, null, packed),
            PackedFor::Forward | PackedFor::Evaluation => self.packing_of(number, packed, null),
        }
    }

    fn packing_of(&self, number: usize, forward: *mut f32, backward: *mut f32) -> Packing<'_> {
        let layer = &self.layers[number];
        Packing {
            convolution: &layer.convolution,
            weights: Shared::new(self.parameters[layer.weight.clone()].as_ptr()),
            forward: Shared::new(forward),
            backward: Shared::new(backward),
            is_f32: number == 0,
        }
    }

    /// The packing of a hidden layer and of the head.
    fn packings_behind_layers(&self) -> impl Iterator<Item = Packing<'_>> {
        let (head, parameters) = (&self.head, &self.parameters);
        let hidden = self.hidden.iter().map(|hidden| Packing {
            convolution: &hidden.convolution,
            weights: Shared::new(parameters[hidden.weight.clone()].as_ptr()),
            forward: Shared::new(hidden.forward_weights.shared_ptr()),
            // the gradient of the features is not computed
            backward: Shared::new(std::ptr::null_mut()),
            is_f32: false,
        });
        let is_first = self.network.is_on_features() && self.hidden.is_none();
        let backward = if is_first { std::ptr::null_mut() } else { head.backward_weights.shared_ptr() };
        let weights = if head.is_cosine() { &head.directions[..] } else { &parameters[head.weight.clone()] };
        hidden.chain([Packing {
            convolution: &head.convolution,
            weights: Shared::new(weights.as_ptr()),
            forward: Shared::new(head.forward_weights.shared_ptr()),
            backward: Shared::new(backward),
            is_f32: !self.network.is_on_features(),
        }])
    }

    /// Packs some input channels of some layers.
    fn run_packing<'a>(&self, pieces: &[(usize, Range<usize>)], of: impl Fn(usize) -> &'a Packing<'a> + Sync) {
        let simd = self.tasks.simd;
        self.tasks.pool.run(pieces.len(), |task| {
            let (number, channels) = pieces[task].clone();
            let Packing { convolution, weights, forward, backward, is_f32 } = of(number);
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
