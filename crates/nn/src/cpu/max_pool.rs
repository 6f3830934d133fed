//! The stem's max pool: 3 x 3, stride 2, of relu(a y + b).

use std::ops::Range;

use equipoise_simd::{Simd, SimdLevel, dispatch};

use super::CpuOf;
use super::plan::Layer;
use super::scratch::Shared;
use crate::kernel::CHANNELS;
use crate::kernel::fused_norm::Normed;
use crate::kernel::value::Activation;
use crate::network::pooled;

/// The row or column of a tap of a window, if it lies inside the image.
fn inside(window: usize, tap: usize, size: usize) -> Option<usize> {
    (2 * window + tap).checked_sub(1).filter(|at| *at < size)
}

impl<T: Activation> Layer<T> {
    /// Pools image `n` of `y` after batch norm and ReLU, into some rows of `z`. `taps` gets the tap that each value came from.
    ///
    /// # Safety
    /// `y` must be valid for reads of images 0 to `n` of the layer's output, all of them initialized; `z` and `taps` for
    /// writes of images 0 to `n` of the pooled output. The three overlap neither each other nor the layer's parameters, and
    /// nobody else uses these rows of image `n` of `z` and `taps` meanwhile.
    pub(super) unsafe fn max_pool(
        &self,
        level: SimdLevel,
        y: *const T,
        (n, rows): (usize, Range<usize>),
        z: *mut T,
        taps: Option<*mut u8>,
    ) {
        let (size, channels) = (self.convolution.geometry.out(), self.channels());
        let [height, width] = pooled(size);
        let (input, output) = (size[0] * size[1] * channels, height * width * channels);
        // SAFETY: by the contract, `y` is valid for reading image `n`, and `z` and `taps` for writing it; layers have a
        // multiple of 16 channels.
        unsafe {
            let taps = taps.map(|taps| taps.add(n * output));
            pool_rows(level, size, rows, self.normed_at(y.add(n * input)), channels, z.add(n * output), taps);
        }
    }
}

dispatch! {
    /// Pools an image after batch norm and ReLU, into some rows.
    ///
    /// # Safety
    /// `normed` is valid for reading an image of this size and of `channels`, a multiple of 16; `z` and `taps` for writing the
    /// pooled image. They do not overlap.
    unsafe fn pool_rows<T: Activation>(size: [usize; 2], rows: Range<usize>, normed: Normed<T>, channels: usize, z: *mut T, taps: Option<*mut u8>) = pool_kernel with bf16 if T::IS_BF16
}

dispatch! {
    /// Goes back through the pool and the ReLU of an image: `out` gets the gradient of the batch norm's output, and `sums` the
    /// sums of g and of g (y - mean) by channel.
    ///
    /// # Safety
    /// `normed` is valid for reading an image of this size and of `channels`, a multiple of 16, and `mean` for a value per
    /// channel; gradient and taps `of_pool` for reading the pooled image, `out` for writing the image, and `sums` for reading and writing two
    /// values per channel. They do not overlap.
    unsafe fn pool_image_back<T: Activation>(
        size: [usize; 2], normed: Normed<T>, mean: &[f32], of_pool: (*const T, *const u8), out: *mut T, sums: *mut f64
    ) = pool_back_kernel with bf16
}

/// # Safety
/// The contract of [`pool_rows`].
#[inline(always)]
unsafe fn pool_kernel<I: Simd, T: Activation>(
    simd: I,
    [height, width]: [usize; 2],
    rows: Range<usize>,
    normed: Normed<T>,
    channels: usize,
    z: *mut T,
    taps: Option<*mut u8>,
) {
    let columns = pooled([height, width])[1];
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    for pixel in rows.start * columns..rows.end * columns {
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: k and the pixels lie inside the channels and the images, for which the contract makes the pointers valid.
            unsafe {
                let (a, b) = (simd.load(normed.a.add(k)), simd.load(normed.b.add(k)));
                let (mut best, mut taken) = (simd.splat(-1.0), zero);
                // 1, or 0 once there was a NaN, which no maximum hides
                let mut numbers = one;
                for tap in 0..9 {
                    let from = (inside(pixel / columns, tap / 3, height), inside(pixel % columns, tap % 3, width));
                    let (Some(row), Some(column)) = from else { continue };
                    let y = T::load(simd, normed.y.add((row * width + column) * channels + k));
                    let value = simd.max(zero, simd.add(simd.mul(a, y), b));
                    numbers = simd.where_positive(simd.add(value, one), numbers);
                    // the first of equal values, as in PyTorch
                    let more = simd.sub(value, best);
                    taken = simd.add(taken, simd.where_positive(more, simd.sub(simd.splat(tap as f32), taken)));
                    best = simd.max(value, best);
                }
                let at = pixel * channels + k;
                let nan = simd.where_positive(simd.sub(one, numbers), simd.splat(f32::NAN));
                T::store(simd, z.add(at), simd.add(best, nan));
                if let Some(taps) = taps {
                    let mut lanes = [0.0; CHANNELS];
                    simd.store(lanes.as_mut_ptr(), taken);
                    for (i, tap) in lanes.iter().enumerate().take(I::WIDTH) {
                        *taps.add(at + i) = *tap as u8;
                    }
                }
            }
        }
    }
}

/// # Safety
/// The contract of [`pool_image_back`].
#[inline(always)]
unsafe fn pool_back_kernel<I: Simd, T: Activation>(
    simd: I,
    [height, width]: [usize; 2],
    normed: Normed<T>,
    mean: &[f32],
    (g, taps): (*const T, *const u8),
    out: *mut T,
    sums: *mut f64,
) {
    let ([rows, columns], channels) = (pooled([height, width]), mean.len());
    for pixel in 0..height * width {
        let (row, column) = (pixel / width, pixel % width);
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: k, the pixels and the windows lie inside the channels and the images, for which the contract makes the
            // pointers valid.
            unsafe {
                let mut gradient = simd.splat(0.0);
                for window_row in row / 2..rows.min(row.div_ceil(2) + 1) {
                    for window_column in column / 2..columns.min(column.div_ceil(2) + 1) {
                        let tap = (row + 1 - 2 * window_row) * 3 + column + 1 - 2 * window_column;
                        let at = (window_row * columns + window_column) * channels + k;
                        let mut lanes = [0.0; CHANNELS];
                        for (i, lane) in lanes.iter_mut().enumerate().take(I::WIDTH) {
                            *lane = f32::from(*taps.add(at + i)) - tap as f32;
                        }
                        let other = simd.load(lanes.as_ptr());
                        let same = simd.fnma(other, other, simd.splat(1.0));
                        gradient = simd.add(gradient, simd.where_positive(same, T::load(simd, g.add(at))));
                    }
                }
                let at = pixel * channels + k;
                let y = T::load(simd, normed.y.add(at));
                let value = simd.add(simd.mul(simd.load(normed.a.add(k)), y), simd.load(normed.b.add(k)));
                let gradient = simd.where_positive(value, gradient);
                T::store(simd, out.add(at), gradient);
                let (mut gradients, mut centered) = ([0.0; CHANNELS], [0.0; CHANNELS]);
                simd.store(gradients.as_mut_ptr(), gradient);
                simd.store(centered.as_mut_ptr(), simd.sub(y, simd.load(mean.as_ptr().add(k))));
                for i in 0..I::WIDTH {
                    *sums.add(k + i) += f64::from(gradients[i]);
                    *sums.add(channels + k + i) += f64::from(gradients[i]) * f64::from(centered[i]);
                }
            }
        }
    }
}

impl<T: Activation> CpuOf<T> {
    /// Pools the stem's output into the first block's input.
    pub(super) fn max_pool_forward(&mut self, images: usize) {
        let stem = &self.layers[0];
        let z = Shared::new(self.activations.block_inputs[0].as_ptr());
        let (taps, simd) = (Shared::new(self.activations.pool_taps.as_mut_ptr()), self.tasks.simd);
        let rows = pooled(stem.convolution.geometry.out())[0];
        self.tasks.pool.run(images, |n| {
            // SAFETY: the stem's output, the first block's input and the taps have `batch_size` images; each task has
            // its own image.
            unsafe { stem.max_pool(simd, stem.memory.output.as_ptr(), (n, 0..rows), z.get(), Some(taps.get())) };
        });
    }

    /// Goes back from the gradient `g` of the first block's input. Every image has its sums in `partial_sums`.
    pub(super) fn max_pool_backward(&mut self, g: *const T, images: usize) {
        let stem = &self.layers[0];
        let ([height, width], channels) = (stem.convolution.geometry.out(), stem.channels());
        let [rows, columns] = pooled([height, width]);
        let (input, output) = (height * width * channels, rows * columns * channels);
        let (g, out) = (Shared::new(g), Shared::new(self.activations.pool_gradient.as_ptr()));
        let (taps, simd) = (&self.activations.pool_taps, self.tasks.simd);
        self.partial_sums[..3 * images * channels].fill(0.0);
        let mut tasks: Vec<&mut [f64]> = self.partial_sums.chunks_exact_mut(3 * channels).take(images).collect();
        self.tasks.pool.each(&mut tasks, |n, sums| {
            let taps = taps[n * output..][..output].as_ptr();
            // SAFETY: the gradients and the stem's output have `batch_size` images, and their places do not overlap in this step. Each task
            // has an image of its own. The sums have three values per channel; layers have a multiple of 16 channels.
            unsafe {
                let normed = stem.normed_at(stem.memory.output.as_ptr().add(n * input));
                let (g, out) = (g.get().add(n * output), out.get().add(n * input));
                pool_image_back(simd, [height, width], normed, stem.mean(), (g, taps), out, sums.as_mut_ptr());
            }
        });
    }
}
