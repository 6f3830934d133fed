//! The average pool between the last block and the head: a feature is a channel's mean over an image's pixels.

use super::Cpu;
use super::head::normalize;
use super::scratch::Shared;
use crate::isa::{Isa, dispatch};
use crate::kernel::convolution::Scratch;
use crate::kernel::fused_norm::{Frame, ShortcutBack, Sink, Source, drain, fill};

impl Cpu {
    /// The frame of the last block's output.
    pub(super) fn feature_frame(&self) -> Frame {
        let last = &self.layers[self.blocks[self.blocks.len() - 1].last()];
        let ([height, width], channels) = (last.convolution.geometry.out(), last.channels());
        Frame { height, width, channels, row: width * channels }
    }

    /// Computes the features of a training pass.
    pub(super) fn average_pool_forward(&mut self, images: usize) {
        let (source, frame) = (Shared::new(self.block_input(self.blocks.len())), self.feature_frame());
        let (channels, simd, cosine) = (frame.channels, self.tasks.simd, self.head.is_cosine());
        let features = Shared::new(self.head.features.as_mut_ptr());
        let lengths = Shared::new(self.head.feature_lengths.as_mut_ptr());
        self.tasks.run(images, |n, _, scratch| {
            // SAFETY: `features` has a row of `channels` values and `lengths` a value for every image of a batch. Each task uses
            // those of its own image, and the scratch holds an image of the last layer.
            unsafe {
                let features = features.get().add(n * channels);
                average(simd, &source.get(), n, &frame, scratch.input, features);
                if cosine {
                    *lengths.get().add(n) = normalize(std::slice::from_raw_parts_mut(features, channels));
                }
            }
        });
    }

    /// Computes the gradient of the last block's output from that of the features.
    pub(super) fn average_pool_backward(&mut self, images: usize) {
        let out = self.activation_gradients.blocks[0].as_mut_ptr();
        let sink = Shared::new(self.block_input_sink(self.blocks.len(), ShortcutBack::Nothing, out));
        // every row of an image has the same gradient
        let frame = Frame { row: 0, ..self.feature_frame() };
        let (channels, simd) = (frame.channels, self.tasks.simd);
        self.partial_sums[..images * 3 * channels].fill(0.0);
        let gradients = &self.activation_gradients.features;
        let partial_sums = Shared::new(self.partial_sums.as_mut_ptr());
        self.tasks.run(images, |n, _, scratch| {
            let gradient = &gradients[n * channels..][..channels];
            // SAFETY: the buffers of the sink have `batch_size` images and `partial_sums` three values for every image and channel.
            // Each task writes those of its own image.
            unsafe {
                spread(simd, &sink.get(), n, &frame, gradient, scratch, partial_sums.get().add(3 * n * channels));
            };
        });
    }
}

dispatch!(pub(super) unsafe fn average(source: &Source, n: usize, frame: &Frame, scratch: *mut f32, features: *mut f32) = average_kernel);
dispatch!(unsafe fn spread(sink: &Sink, n: usize, frame: &Frame, gradient: &[f32], scratch: &Scratch, sums: *mut f64) = spread_kernel);

/// Writes the mean over the pixels of image `n`.
///
/// # Safety
/// The CPU must have the instructions of `I`, the source's pointers must be valid for image `n`, `scratch` for writes of an image
/// of the frame, and `features` for writes of a value per channel.
#[inline(always)]
unsafe fn average_kernel<I: Isa>(source: &Source, n: usize, frame: &Frame, scratch: *mut f32, features: *mut f32) {
    let &Frame { height, width, channels, .. } = frame;
    // SAFETY: the caller's pointers are valid for image `n`, and for height x width x channels values of scratch. Channels are
    // padded to a multiple of the width of a register.
    unsafe {
        fill::<I>(source, n, frame, scratch);
        for k in (0..channels).step_by(I::WIDTH) {
            let mut sum = I::splat(0.0);
            for pixel in 0..height * width {
                sum = I::add(sum, I::load(scratch.add(pixel * channels + k)));
            }
            I::store(features.add(k), I::mul(sum, I::splat(1.0 / (height * width) as f32)));
        }
    }
}

/// Gives every pixel of image `n` its share of the features' gradient.
///
/// # Safety
/// The CPU must have the instructions of `I`, the sink's pointers must be valid for image `n`, `scratch` for a row of the frame and
/// three sums per channel, and `sums` for reads and writes of three values per channel.
#[inline(always)]
unsafe fn spread_kernel<I: Isa>(
    sink: &Sink,
    n: usize,
    frame: &Frame,
    gradient: &[f32],
    scratch: &Scratch,
    sums: *mut f64,
) {
    let &Frame { height, width, channels, .. } = frame;
    let scale = 1.0 / (height * width) as f32;
    // SAFETY: the caller's scratch holds a row of width x channels values, which stands for every row because `frame.row` is 0; the
    // other pointers are passed on under the same promises.
    unsafe {
        for x in 0..width {
            for (c, g) in gradient.iter().enumerate() {
                *scratch.input.add(x * channels + c) = scale * g;
            }
        }
        drain::<I>(sink, n, frame, scratch.input, scratch.sums, sums);
    }
}
