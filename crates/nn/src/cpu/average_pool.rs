//! The average pool between the last block and the head: a feature is a channel's mean over an image's pixels.

use equipoise_simd::{Simd, dispatch};

use super::CpuOf;
use super::head::normalize;
use super::scratch::Shared;
use crate::kernel::convolution::Scratch;
use crate::kernel::fused_norm::{Band, Frame, ShortcutBack, Sink, Source, drain, fill};
use crate::kernel::value::Activation;

impl<T: Activation> CpuOf<T> {
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
        let lengths = Shared::new(self.head.lengths.as_mut_ptr());
        self.tasks.run(images, |n, _, scratch| {
            // SAFETY: `features` has a row of `channels` values and `lengths` a value for every image of a batch. Each
            // task uses those of its own image. As `average` asks, the source has every image of the batch, the scratch
            // holds an image of the last layer, and layers have a multiple of 16 channels.
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
        let out = self.activations.last_gradient.as_ptr();
        let sink = Shared::new(self.block_input_sink(self.blocks.len(), ShortcutBack::Nothing, out));
        // every row of an image has the same gradient
        let frame = Frame { row: 0, ..self.feature_frame() };
        let (channels, simd) = (frame.channels, self.tasks.simd);
        self.partial_sums[..images * 3 * channels].fill(0.0);
        let gradients = &self.activations.feature_gradients;
        let partial_sums = Shared::new(self.partial_sums.as_mut_ptr());
        self.tasks.run(images, |n, _, scratch| {
            let gradient = &gradients[n * channels..][..channels];
            // SAFETY: layers have a multiple of 16 channels, and `gradient` has one value for each. The buffers of the sink
            // have `batch_size` images and `partial_sums` three values for every image and channel. Each task writes those
            // of its own image, and the scratch is its own.
            unsafe {
                spread(simd, &sink.get(), n, &frame, gradient, scratch, partial_sums.get().add(3 * n * channels));
            };
        });
    }
}

dispatch! {
    /// Averages image `n` of a source over its pixels.
    ///
    /// # Safety
    /// The frame's channels are a multiple of 16, the width of the widest vector. `source` is valid for image `n` of the
    /// frame's pixels and channels. `scratch` is valid for reading and writing the frame, whose rows follow each other,
    /// and `features` for writing a value per channel; they overlap nothing else.
    pub(super) unsafe fn average<T: Activation>(source: &Source<T>, n: usize, frame: &Frame, scratch: *mut f32, features: *mut f32) = average_kernel with bf16 if T::IS_BF16
}

dispatch! {
    /// Spreads the gradient of the mean over the pixels of image `n`: it is the same at every pixel. `scratch.sums` must
    /// be zeros.
    ///
    /// # Safety
    /// The frame's channels are a multiple of 16, the width of the widest vector, and `gradient` has a value for each of
    /// them. `sink` is valid for image `n` of the frame's pixels and channels; `frame.row` is 0. `scratch.input` is valid
    /// for reading and writing a row of pixels; `scratch.sums` and `sums` for three values per channel.
    unsafe fn spread<T: Activation>(sink: &Sink<T>, n: usize, frame: &Frame, gradient: &[f32], scratch: &Scratch, sums: *mut f64) = spread_kernel with bf16 if T::IS_BF16
}

/// # Safety
/// The contract of [`average`].
#[inline(always)]
unsafe fn average_kernel<I: Simd, T: Activation>(
    simd: I,
    source: &Source<T>,
    n: usize,
    frame: &Frame,
    scratch: *mut f32,
    features: *mut f32,
) {
    let &Frame { height, width, channels, .. } = frame;
    // SAFETY: by the contract, the source has image `n`, `scratch` a frame and `features` the channels, which are a
    // multiple of a vector's width.
    unsafe {
        fill(simd, source, &Band { image: n, rows: 0..height }, frame, scratch);
        for k in (0..channels).step_by(I::WIDTH) {
            let mut sum = simd.splat(0.0);
            for pixel in 0..height * width {
                sum = simd.add(sum, simd.load(scratch.add(pixel * channels + k)));
            }
            simd.store(features.add(k), simd.mul(sum, simd.splat(1.0 / (height * width) as f32)));
        }
    }
}

/// # Safety
/// The contract of [`spread`].
#[inline(always)]
unsafe fn spread_kernel<I: Simd, T: Activation>(
    simd: I,
    sink: &Sink<T>,
    n: usize,
    frame: &Frame,
    gradient: &[f32],
    scratch: &Scratch,
    sums: *mut f64,
) {
    let &Frame { height, width, channels, .. } = frame;
    let scale = 1.0 / (height * width) as f32;
    // SAFETY: by the contract, the sink has image `n`, `gradient` a value per channel, `scratch.input` a row of pixels,
    // which stands for all rows because `frame.row` is 0, and both sums three values per channel.
    unsafe {
        for x in 0..width {
            for (c, g) in gradient.iter().enumerate() {
                *scratch.input.add(x * channels + c) = scale * g;
            }
        }
        let band = Band { image: n, rows: 0..height };
        drain(simd, sink, &band, frame, scratch.input, scratch.sums, sums);
    }
}
