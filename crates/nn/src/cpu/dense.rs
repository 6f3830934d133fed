//! Matrix products of fully connected layers: a batch of rows times weights, and the gradients of both.
//!
//! A task has some rows of the batch, or some inputs of the weights, whatever the number of threads. Nothing is summed over
//! tasks, so that results do not depend on them.

use equipoise_simd::SimdLevel;

use super::scratch::{Shared, Tasks};
use crate::kernel::CHANNELS;
use crate::kernel::gemm::{Gemm, Outer, Segment, gemm, outer};
use crate::kernel::prefetch::Prefetch;

/// Rows of a task: a multiple of what the kernels keep in registers, and few enough that small batches have several.
pub(super) const TASK_ROWS: usize = 24;
/// Inputs of a task of the weights' gradient.
const TASK_INPUTS: usize = 3 * CHANNELS;

/// The sizes of a product: rows of `inputs` values become rows of `outputs` values. Both are multiples of 16.
#[derive(Clone, Copy)]
pub(super) struct DenseShape {
    pub(super) rows: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl DenseShape {
    /// `y = x w` on this thread, with weights as the kernels read them.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn product(self, simd: SimdLevel, x: &[f32], packed: &[f32], y: &mut [f32]) {
        let Self { rows, inputs, outputs } = self;
        assert!(x.len() >= rows * inputs && packed.len() >= inputs * outputs && y.len() >= rows * outputs);
        let product = Gemm {
            count: 1,
            next: [0; 3],
            rows,
            columns: outputs,
            a: x.as_ptr(),
            a_stride: inputs,
            segments: &[Segment { offset: 0, length: inputs }],
            b: packed.as_ptr(),
            c: y.as_mut_ptr(),
            c_stride: outputs,
            prefetch: &Prefetch::new(0, &(0..0), &(0..0)),
        };
        // SAFETY: the assertion above: all rows lie inside `x` and `y`, and all weights inside `packed`. `y` is not `x`.
        unsafe { gemm(simd, &product) };
    }
}

impl Tasks {
    /// `y = x w`, with weights as the kernels read them.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn dense_product(&self, shape: DenseShape, x: &[f32], packed: &[f32], y: &mut [f32]) {
        let DenseShape { rows, inputs, outputs } = shape;
        let rows_of = x[..rows * inputs].chunks(TASK_ROWS * inputs);
        let mut tasks: Vec<(&[f32], &mut [f32])> =
            rows_of.zip(y[..rows * outputs].chunks_mut(TASK_ROWS * outputs)).collect();
        self.pool.each(&mut tasks, |_, (x, y)| {
            DenseShape { rows: x.len() / inputs, ..shape }.product(self.simd, x, packed, y);
        });
    }

    /// `dw = transposed x times g`, the gradient of the weights, inputs x outputs.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn dense_weight_gradient(&self, shape: DenseShape, x: &[f32], g: &[f32], dw: &mut [f32]) {
        let DenseShape { rows, inputs, outputs } = shape;
        assert!(x.len() >= rows * inputs && g.len() >= rows * outputs && dw.len() >= inputs * outputs);
        let [x, g] = [x, g].map(|values| Shared::new(values.as_ptr()));
        let dw = Shared::new(dw.as_mut_ptr());
        self.pool.run(inputs.div_ceil(TASK_INPUTS), |task| {
            let first = task * TASK_INPUTS;
            let prefetch = Prefetch::new(0, &(0..0), &(0..0));
            // SAFETY: the assertion above: the inputs of the task lie inside every row of `x` and inside `dw`, and `g` has all
            // rows. Each task writes the gradient of inputs of its own.
            unsafe {
                let sum = Outer {
                    prefetch: &prefetch,
                    count: 1,
                    next: [0; 3],
                    fresh: true,
                    rows: TASK_INPUTS.min(inputs - first),
                    columns: outputs,
                    size: [1, rows],
                    a: x.get().add(first),
                    a_strides: [0, inputs],
                    d: g.get(),
                    d_strides: [0, outputs],
                    w: dw.get().add(first * outputs),
                    w_stride: outputs,
                };
                outer(self.simd, &sum);
            }
        });
    }
}
