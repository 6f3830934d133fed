//! The head: from features to logits and back.
//!
//! A linear head is a 1 x 1 convolution of images with one pixel, plus a bias. A cosine head is the same convolution of
//! normalized features with normalized weights, times a scale. A head with learnable weight scaling is a linear head whose
//! logits are multiplied by a factor of their class.

use std::ops::Range;

use equipoise_pool::Pool;

use super::CpuOf;
use super::dense::row_stride;
use super::plan::{Offsets, PlanOptions};
use super::scratch::Shared;
use crate::buffer::Buffer;
use crate::error::NnError;
use crate::kernel::convolution::{Backward, Convolution, ConvolutionAlgorithm, Forward, Geometry, SliceGradients};
use crate::kernel::fused_norm::{OutputGradient, ShortcutBack, Sink, Source};
use crate::kernel::stored;
use crate::kernel::value::Activation;
use crate::network::{Head, Network};

/// The head, ready to run. It multiplies f32, unless it is on features, which are of type T.
pub(super) struct HeadLayer<T> {
    kind: Head,
    pub(super) convolution: Convolution,
    /// Where the weight and the bias are in the flat buffer of all parameters.
    pub(super) weight: Range<usize>,
    pub(super) bias: Range<usize>,
    /// Where the scale of a cosine head that learns it is, or those of all classes, and padding; else empty.
    pub(super) scale: Range<usize>,
    /// The weights as the kernels of the forward and of the backward pass read them.
    pub(super) forward_weights: Buffer,
    pub(super) backward_weights: Buffer,
    /// The features that a backbone has computed; normalized for a cosine head.
    pub(super) features: Buffer,
    /// The same for a head on features: what it reads of every row.
    pub(super) rows: Buffer<T>,
    /// Distance from one of them to the next.
    pub(super) row_stride: usize,
    /// The lengths of features or rows before they were normalized.
    pub(super) lengths: Vec<f32>,
    /// The normalized weights of a cosine head.
    pub(super) directions: Buffer,
    /// The lengths of the weights, by class.
    weight_lengths: Vec<f32>,
    /// The logits without bias and scale, and later their gradients.
    pub(super) logits: Buffer,
    /// The k of a gradient that passes unchanged: 1, 0, 0 for every class.
    identity: Buffer,
}

/// Rows of a task that copies logits or their gradients.
const ROWS_PER_TASK: usize = 128;
/// Length that shorter vectors are divided by: a zero vector stays zero.
const SHORTEST: f64 = 1e-12;

/// Divides values by their length and returns the length. A zero vector stays zero.
pub(super) fn normalize(values: &mut [f32]) -> f32 {
    let length = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(SHORTEST);
    values.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    length as f32
}

/// Turns the gradient of a normalized vector into that of the vector itself.
fn normalize_backward(direction: &[f32], length: f32, gradient: &mut [f32]) {
    let along: f64 = direction.iter().zip(&*gradient).map(|(d, g)| f64::from(*d) * f64::from(*g)).sum();
    for (g, d) in gradient.iter_mut().zip(direction) {
        *g = ((f64::from(*g) - along * f64::from(*d)) / f64::from(length)) as f32;
    }
}

impl<T: Activation> HeadLayer<T> {
    pub(super) fn new(network: &Network, options: &PlanOptions, offsets: &mut Offsets) -> Self {
        let images = options.images;
        let (inputs, outputs) = (stored(network.features()), stored(network.classes));
        let geometry = Geometry { inputs, outputs, kernel: 1, stride: 1, pad: 0, size: [1, 1] };
        let (algorithm, slice_images) = (ConvolutionAlgorithm::Direct, options.slices.images());
        let (convolution, depth) = match network.is_on_features() {
            true => (Convolution::new::<T, T>(geometry, algorithm, slice_images), T::DEPTH),
            false => (Convolution::new::<f32, f32>(geometry, algorithm, slice_images), 1),
        };
        let (features, rows) = if network.is_on_features() { (0, images) } else { (images, 0) };
        let row_stride = if network.hidden().is_none() { row_stride(inputs) } else { inputs };
        let mut identity = Buffer::new(3 * outputs);
        identity[..outputs].fill(1.0);
        Self {
            kind: network.head,
            weight: offsets.take_parameters(geometry.weights()),
            bias: offsets.take_parameters(outputs),
            scale: offsets.take_parameters(match network.head {
                Head::Cosine { learned: true, .. } => stored(1),
                Head::Lws => outputs,
                Head::Linear | Head::Cosine { learned: false, .. } => 0,
            }),
            forward_weights: Buffer::new(convolution.packed() / depth),
            backward_weights: Buffer::new(convolution.packed() / depth),
            features: Buffer::new(features * inputs),
            rows: Buffer::new(rows * row_stride),
            row_stride,
            lengths: vec![0.0; images],
            directions: Buffer::new(geometry.weights()),
            weight_lengths: vec![0.0; outputs],
            logits: Buffer::new(images * outputs),
            identity,
            convolution,
        }
    }

    pub(super) fn is_cosine(&self) -> bool {
        matches!(self.kind, Head::Cosine { .. })
    }

    /// Normalizes the weights of every class, which are columns.
    pub(super) fn normalize_weights(&mut self, weight: &[f32]) {
        let classes = self.convolution.geometry.outputs;
        let mut squares = vec![0.0f64; classes];
        for row in weight.chunks_exact(classes) {
            squares.iter_mut().zip(row).for_each(|(square, x)| *square += f64::from(*x).powi(2));
        }
        let lengths: Vec<f64> = squares.into_iter().map(|square| square.sqrt().max(SHORTEST)).collect();
        for (to, row) in self.directions.chunks_exact_mut(classes).zip(weight.chunks_exact(classes)) {
            for ((to, x), length) in to.iter_mut().zip(row).zip(&lengths) {
                *to = (f64::from(*x) / length) as f32;
            }
        }
        self.weight_lengths.iter_mut().zip(lengths).for_each(|(to, length)| *to = length as f32);
    }

    /// Turns the gradients of the normalized weights into those of the weights.
    fn normalize_weights_backward(&self, gradient: &mut [f32]) {
        let classes = self.convolution.geometry.outputs;
        let mut along = vec![0.0f64; classes];
        for (directions, row) in self.directions.chunks_exact(classes).zip(gradient.chunks_exact(classes)) {
            for ((along, d), g) in along.iter_mut().zip(directions).zip(row) {
                *along += f64::from(*d) * f64::from(*g);
            }
        }
        for (directions, row) in self.directions.chunks_exact(classes).zip(gradient.chunks_exact_mut(classes)) {
            for (((g, d), along), length) in row.iter_mut().zip(directions).zip(&along).zip(&self.weight_lengths) {
                *g = ((f64::from(*g) - along * f64::from(*d)) / f64::from(*length)) as f32;
            }
        }
    }

    /// The factors of the logits: one for every class, or one for all.
    fn scales<'a>(&'a self, parameters: &'a [f32]) -> &'a [f32] {
        match &self.kind {
            Head::Linear => &[1.0],
            Head::Cosine { scale, learned: false } => std::slice::from_ref(scale),
            Head::Cosine { learned: true, .. } => &parameters[self.scale.start..=self.scale.start],
            Head::Lws => &parameters[self.scale.clone()],
        }
    }

    /// Whether only the scales of the head are trained.
    pub(super) fn trains_scales_only(&self) -> bool {
        self.kind == Head::Lws
    }

    /// Sums the gradient of the logits, and that of the scales, over the rows of a slice from `first` on, by class. What a
    /// scale multiplies is still in the logits' place, without the bias.
    fn add_gradients(&self, first: usize, gradient: &[f32], classes: usize, bias: &[f32], sums: &mut [f64]) {
        let (of_bias, of_scale) = sums.split_at_mut(classes);
        let logits = self.logits.chunks_exact(self.convolution.geometry.outputs).skip(first);
        for (logits, row) in logits.zip(gradient.chunks_exact(classes)) {
            of_bias.iter_mut().zip(row).for_each(|(sum, g)| *sum += f64::from(*g));
            if self.scale.is_empty() {
                continue;
            }
            for (((sum, x), b), g) in of_scale.iter_mut().zip(logits).zip(bias).zip(row) {
                *sum += f64::from(x + b) * f64::from(*g);
            }
        }
    }

    /// Sets the gradients of bias and scales from the sums over the batch, by class.
    fn set_gradients(&self, sums: &[f64], classes: usize, gradients: &mut [f32]) {
        let (of_bias, of_scale) = sums.split_at(classes);
        gradients[self.bias.clone()].fill(0.0);
        if !self.is_cosine() {
            gradients[self.bias.clone()].iter_mut().zip(of_bias).for_each(|(to, sum)| *to = *sum as f32);
        }
        let scale = &mut gradients[self.scale.clone()];
        match self.kind {
            Head::Lws => scale.iter_mut().zip(of_scale).for_each(|(to, sum)| *to = *sum as f32),
            Head::Cosine { learned: true, .. } => scale[0] = of_scale.iter().sum::<f64>() as f32,
            Head::Linear | Head::Cosine { learned: false, .. } => {}
        }
    }

    /// Puts the gradient of the logits, times the scales, in the logits' place.
    fn set_logits_gradient(&mut self, gradient: &[f32], classes: usize, parameters: &[f32], pool: &Pool) {
        let scales: Vec<f32> = self.scales(parameters).iter().copied().cycle().take(classes).collect();
        let outputs = self.convolution.geometry.outputs;
        let rows = gradient.chunks(ROWS_PER_TASK * classes);
        let mut tasks: Vec<(&mut [f32], &[f32])> = self.logits.chunks_mut(ROWS_PER_TASK * outputs).zip(rows).collect();
        pool.each(&mut tasks, |_, (to, from)| {
            for (to, from) in to.chunks_exact_mut(outputs).zip(from.chunks_exact(classes)) {
                to.fill(0.0);
                to.iter_mut().zip(from).zip(&scales).for_each(|((to, from), scale)| *to = scale * from);
            }
        });
    }
}

impl<T: Activation> CpuOf<T> {
    /// Computes the logits from the features.
    pub(super) fn head_forward(&mut self, images: usize) {
        // rows of features have passed through the head already
        if !self.network.is_on_features() {
            self.head_convolution_forward(images);
        }
        let head = &self.head;
        let outputs = head.convolution.geometry.outputs;
        let (bias, scales) = (&self.parameters[head.bias.clone()], head.scales(&self.parameters));
        let classes = self.network.classes;
        self.logits.resize(images * classes, 0.0);
        let rows = head.logits.chunks(ROWS_PER_TASK * outputs);
        let mut tasks: Vec<(&mut [f32], &[f32])> = self.logits.chunks_mut(ROWS_PER_TASK * classes).zip(rows).collect();
        self.tasks.pool.each(&mut tasks, |_, (to, from)| {
            for (to, from) in to.chunks_exact_mut(classes).zip(from.chunks_exact(outputs)) {
                let row = to.iter_mut().zip(from.iter().zip(bias));
                match head.kind {
                    Head::Linear => row.for_each(|(to, (x, b))| *to = x + b),
                    Head::Cosine { .. } => row.for_each(|(to, (x, _))| *to = scales[0] * x),
                    Head::Lws => row.zip(scales).for_each(|((to, (x, b)), scale)| *to = scale * (x + b)),
                }
            }
        });
    }

    /// Computes the logits without bias and scale.
    fn head_convolution_forward(&mut self, images: usize) {
        let (head, simd) = (&mut self.head, self.tasks.simd);
        let group = head.convolution.forward.group;
        let source = Shared::new(Source::Plain(head.features.as_ptr()));
        let (y, weights) = (Shared::new(head.logits.as_mut_ptr()), Shared::new(head.forward_weights.as_ptr()));
        let convolution = &head.convolution;
        self.tasks.run(images.div_ceil(group), |task, _, scratch| {
            let run = Forward {
                source: source.get(),
                images: task * group..images.min((task + 1) * group),
                after: None,
                cached: false,
                part: None,
                weights: weights.get(),
                y: y.get(),
                sums: None,
            };
            // SAFETY: features, weights and logits were allocated for this convolution and `batch_size` images. Each
            // task writes the logits of its own images and its own scratch.
            unsafe { convolution.forward(simd, &run, scratch) };
        });
    }

    /// Computes the gradients of the head's parameters and of the features from that of the logits.
    /// Those of the weights are complete after [`head_finish`](Self::head_finish).
    pub(super) fn head_backward(&mut self, gradient: &[f32], images: usize) -> Result<(), NnError> {
        let (classes, slice_images) = (self.network.classes, self.slices.images());
        let (head, bias) = (&self.head, &self.parameters[self.head.bias.clone()]);
        let slices = self.own_slices.max(1);
        self.sums.clear();
        self.sums.resize(slices * 2 * classes, 0.0);
        let rows = gradient.chunks(slice_images * classes);
        let mut tasks: Vec<(&mut [f64], &[f32])> = self.sums.chunks_exact_mut(2 * classes).zip(rows).collect();
        self.tasks.pool.each(&mut tasks, |slice, (sums, rows)| {
            head.add_gradients(slice * slice_images, rows, classes, bias, sums);
        });
        self.add_slices(slices)?;
        self.head.set_gradients(&self.sums, classes, &mut self.gradients);
        self.head.set_logits_gradient(gradient, classes, &self.parameters, &self.tasks.pool);
        if self.network.is_on_features() {
            self.head_product_backward(images);
        } else {
            self.head_convolution_backward(images);
        }
        let head = &self.head;
        if head.trains_scales_only() {
            self.gradients[head.weight.start..head.scale.start].fill(0.0);
        }
        // a head on features computes no gradient of them
        if head.is_cosine() && !self.activations.feature_gradients.is_empty() {
            let inputs = head.convolution.geometry.inputs;
            let rows: Vec<f32> = head.rows[..].iter().map(|x| x.to_f32()).collect();
            let directions = if self.network.is_on_features() { &rows } else { &head.features[..] };
            let gradients = self.activations.feature_gradients.chunks_exact_mut(inputs).take(images);
            for ((gradient, direction), length) in gradients.zip(directions.chunks_exact(inputs)).zip(&head.lengths) {
                normalize_backward(direction, *length, gradient);
            }
        }
        if self.head.trains_scales_only() { Ok(()) } else { self.start_gradient_sum(self.head.weight.clone()) }
    }

    /// Completes the gradients of the head's weights, when they are summed over the whole batch.
    pub(super) fn head_finish(&mut self) {
        if self.head.is_cosine() {
            self.head.normalize_weights_backward(&mut self.gradients[self.head.weight.clone()]);
        }
    }

    /// Computes the gradients of the head's weights and of its input from that of its output.
    fn head_convolution_backward(&mut self, images: usize) {
        let (head, simd) = (&self.head, self.tasks.simd);
        let convolution = &head.convolution;
        let (inputs, slice_images) = (convolution.geometry.inputs, self.slices.images());
        let tasks = images.div_ceil(slice_images);
        let g = head.logits.as_ptr();
        let source = Shared::new(Source::Plain(head.features.as_ptr()));
        let back = Shared::new(OutputGradient { g, y: g, k: head.identity.as_ptr() });
        let weights = Shared::new(head.backward_weights.as_ptr());
        let slices = Shared::new(SliceGradients {
            first: self.gradients[head.weight.clone()].as_mut_ptr(),
            others: self.activations.head_slices.as_ptr(),
            weights: convolution.geometry.weights(),
        });
        let out = self.activations.feature_gradients.as_mut_ptr();
        let sink = Shared::new(Sink::Plain { shortcut: ShortcutBack::Nothing, out });
        let partial_sums = Shared::new(self.partial_sums.as_mut_ptr());
        self.tasks.run(tasks, |task, _, scratch| {
            let images = task * slice_images..images.min((task + 1) * slice_images);
            // SAFETY: `partial_sums` has three values for every task and channel; a plain sink leaves the sums as they are.
            let (dw, sums) = (slices.get().of(task), unsafe { partial_sums.get().add(3 * task * inputs) });
            let (source, back, weights, sink) = (source.get(), back.get(), weights.get(), sink.get());
            let run = Backward { source, back, images, after: None, weights, dw, sink, sums };
            // SAFETY: all buffers were allocated for this convolution and `batch_size` images. Each task writes the
            // feature gradients of its own images, its own slice and its own scratch.
            unsafe { convolution.backward(simd, &run, scratch) };
        });
        // SAFETY: the tasks above wrote `tasks` slices, of which the first is the head's part of the gradients; only this thread uses
        // them.
        unsafe { convolution.collect(simd, &slices.get(), tasks, 0..inputs) };
    }
}
