//! The stem's max pool: 3 x 3, stride 2, of relu(a y + b).

use super::Cpu;
use super::plan::Layer;
use super::scratch::Shared;
use crate::network::pooled;

/// The row or column of a tap of a window, if it lies inside the image.
fn inside(window: usize, tap: usize, size: usize) -> Option<usize> {
    (2 * window + tap).checked_sub(1).filter(|at| *at < size)
}

impl Layer {
    /// Pools image `n` of `y` after batch norm and ReLU. `taps` gets the tap that each value came from.
    ///
    /// # Safety
    /// `y` must be valid for reads of images 0 to `n` of the layer's output, all of them initialized; `z` and `taps` for
    /// writes of images 0 to `n` of the pooled output, and image `n` of `z` must be initialized. The three overlap neither
    /// each other nor the layer's parameters, and nobody else uses image `n` of `z` and `taps` meanwhile.
    pub(super) unsafe fn max_pool(&self, y: *const f32, n: usize, z: *mut f32, taps: Option<*mut u8>) {
        let ([height, width], channels) = (self.convolution.geometry.out(), self.channels());
        let [rows, columns] = pooled([height, width]);
        let (a, b) = self.scale_and_shift();
        let (input, output) = (height * width * channels, rows * columns * channels);
        // SAFETY: by the contract, `y` is valid for reading image `n` and `z` for writing it.
        let (y, z) = unsafe {
            (
                std::slice::from_raw_parts(y.add(n * input), input),
                std::slice::from_raw_parts_mut(z.add(n * output), output),
            )
        };
        let mut taken = vec![0u8; channels];
        for (pixel, z) in z.chunks_exact_mut(channels).enumerate() {
            let (row, column) = (pixel / columns, pixel % columns);
            z.fill(f32::NEG_INFINITY);
            for tap in 0..9 {
                let from = (inside(row, tap / 3, height), inside(column, tap % 3, width));
                let (Some(from_row), Some(from_column)) = from else { continue };
                let y = &y[(from_row * width + from_column) * channels..][..channels];
                for c in 0..channels {
                    let value = (a[c] * y[c] + b[c]).max(0.0);
                    // the first of equal values, as in PyTorch
                    if value > z[c] {
                        z[c] = value;
                        taken[c] = tap as u8;
                    }
                }
            }
            if let Some(taps) = taps {
                // SAFETY: by the contract, `taps` is valid for writing image `n`, and `pixel` lies inside it.
                unsafe {
                    std::ptr::copy_nonoverlapping(taken.as_ptr(), taps.add(n * output + pixel * channels), channels);
                }
            }
        }
    }

    /// Goes back through the pool and the ReLU of one image: `out` gets the gradient of the batch norm's output, and
    /// `sums` the sums of g and of g (y - mean) by channel.
    fn max_pool_backward(&self, g: &[f32], taps: &[u8], y: &[f32], out: &mut [f32], sums: &mut [f64]) {
        let ([height, width], channels) = (self.convolution.geometry.out(), self.channels());
        let [_, columns] = pooled([height, width]);
        out.fill(0.0);
        for (pixel, (g, taps)) in g.chunks_exact(channels).zip(taps.chunks_exact(channels)).enumerate() {
            let (row, column) = (pixel / columns, pixel % columns);
            for c in 0..channels {
                let tap = usize::from(taps[c]);
                let (to_row, to_column) = (2 * row + tap / 3 - 1, 2 * column + tap % 3 - 1);
                out[(to_row * width + to_column) * channels + c] += g[c];
            }
        }
        let ((a, b), mean) = (self.scale_and_shift(), self.mean());
        for (out, y) in out.chunks_exact_mut(channels).zip(y.chunks_exact(channels)) {
            for c in 0..channels {
                if a[c] * y[c] + b[c] > 0.0 {
                    sums[c] += f64::from(out[c]);
                    sums[channels + c] += f64::from(out[c]) * f64::from(y[c] - mean[c]);
                } else {
                    out[c] = 0.0;
                }
            }
        }
    }
}

impl Cpu {
    /// Pools the stem's output into the first block's input.
    pub(super) fn max_pool_forward(&mut self, images: usize) {
        let stem = &self.layers[0];
        let z = Shared::new(self.activations.block_inputs[0].as_mut_ptr());
        let taps = Shared::new(self.activations.pool_taps.as_mut_ptr());
        self.tasks.pool.run(images, |n| {
            // SAFETY: the stem's output, the first block's input and the taps have `batch_size` images; each task has
            // its own image.
            unsafe { stem.max_pool(stem.output.as_ptr(), n, z.get(), Some(taps.get())) };
        });
    }

    /// Goes back from block gradient `current` to the other one. Every image has its sums in `partial_sums`.
    pub(super) fn max_pool_backward(&mut self, current: usize, images: usize) {
        let stem = &self.layers[0];
        let ([height, width], channels) = (stem.convolution.geometry.out(), stem.channels());
        let [rows, columns] = pooled([height, width]);
        let (input, output) = (height * width * channels, rows * columns * channels);
        let [first, second] = &mut self.activation_gradients.blocks;
        let (g, out) = if current == 0 { (&*first, second) } else { (&*second, first) };
        let taps = &self.activations.pool_taps;
        self.partial_sums[..3 * images * channels].fill(0.0);
        let sums = self.partial_sums.chunks_exact_mut(3 * channels);
        let mut tasks: Vec<(&mut [f32], &mut [f64])> = out.chunks_exact_mut(input).zip(sums).take(images).collect();
        self.tasks.pool.each(&mut tasks, |n, (out, sums)| {
            let (g, taps) = (&g[n * output..][..output], &taps[n * output..][..output]);
            stem.max_pool_backward(g, taps, &stem.output[n * input..][..input], out, sums);
        });
    }
}
