//! Matrix products of fully connected layers: a batch of rows times weights, and the gradients of both.
//!
//! A task has some rows of the batch, or some inputs of the weights, whatever the number of threads. Nothing is summed over
//! tasks, so that results do not depend on them. Products are of f32, or of bf16 with sums in f32.

use equipoise_simd::SimdLevel;

use super::scratch::Tasks;
use crate::kernel::CHANNELS;
use crate::kernel::gemm::{Gemm, Outer, Segment, gemm, outer};
use crate::kernel::prefetch::Prefetch;
use crate::kernel::rounding::pair_rows;
use crate::kernel::value::Activation;

/// Rows of a task: a multiple of what the kernels keep in registers, and few enough that small batches have several.
pub(super) const TASK_ROWS: usize = 24;
/// Inputs of a task of the weights' gradient: two vectors of the longest kind.
const TASK_INPUTS: usize = 2 * CHANNELS;
/// Rows of which a task keeps its inputs in the nearest cache, for all outputs.
const BLOCK_ROWS: usize = 128;

/// The sizes of a product: rows of `inputs` values become rows of `outputs` values. Both are multiples of 16.
#[derive(Clone, Copy)]
pub(super) struct DenseShape {
    pub(super) rows: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Distance from one row of inputs to the next.
    pub(super) stride: usize,
}

/// The distance of rows with so many values, a multiple of 16: an odd number of cache lines, because the same columns of rows that are an even
/// number apart fall into few sets of the cache.
pub(super) fn row_stride(values: usize) -> usize {
    values + CHANNELS * usize::from((values / CHANNELS).is_multiple_of(2))
}

impl DenseShape {
    /// A shape whose rows of inputs follow each other.
    pub(super) fn new(rows: usize, inputs: usize, outputs: usize) -> Self {
        Self { rows, inputs, outputs, stride: inputs }
    }

    /// `y = x w` on this thread, with weights as the kernels read them.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn product<S: Activation>(self, simd: SimdLevel, x: &[S], packed: &[f32], y: &mut [f32]) {
        let Self { rows, inputs, outputs, stride } = self;
        assert!(
            stride >= inputs
                && x.len() >= rows * stride
                && packed.len() * S::DEPTH >= inputs * outputs
                && y.len() >= rows * outputs
        );
        let product = Gemm {
            count: 1,
            next: [0; 3],
            rows,
            columns: outputs,
            a: x.as_ptr(),
            a_stride: stride,
            segments: &[Segment { offset: 0, length: inputs }],
            b: packed.as_ptr().cast(),
            c: y.as_mut_ptr(),
            c_stride: outputs,
            prefetch: &Prefetch::new(0, &(0..0), &(0..0)),
        };
        // SAFETY: the assertion above: all rows lie inside `x` and `y`, and all words of the weights inside `packed`.
        // `y` is not `x`.
        unsafe { gemm(simd, &product) };
    }
}

impl Tasks {
    /// `y = x w`, with weights as the kernels read them.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn dense_product<S: Activation>(&self, shape: DenseShape, x: &[S], packed: &[f32], y: &mut [f32]) {
        let DenseShape { rows, outputs, stride, .. } = shape;
        let rows_of = x[..rows * stride].chunks(TASK_ROWS * stride);
        let mut tasks: Vec<(&[S], &mut [f32])> =
            rows_of.zip(y[..rows * outputs].chunks_mut(TASK_ROWS * outputs)).collect();
        self.pool.each(&mut tasks, |_, (x, y)| {
            DenseShape { rows: x.len() / stride, ..shape }.product(self.simd, x, packed, y);
        });
    }

    /// The rows of a gradient as [`dense_weight_gradient`](Self::dense_weight_gradient) reads them: words of two rows, made in `room`, where
    /// products are of pairs.
    pub(super) fn gradient_words<'a, S: Activation>(
        &self,
        g: &'a [f32],
        outputs: usize,
        room: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        if S::DEPTH == 1 {
            return g;
        }
        room.resize((g.len() / outputs).div_ceil(S::DEPTH) * outputs, 0.0);
        let rows = g.chunks(TASK_ROWS * S::DEPTH * outputs);
        let mut tasks: Vec<(&[f32], &mut [f32])> = rows.zip(room.chunks_mut(TASK_ROWS * outputs)).collect();
        self.pool.each(&mut tasks, |_, (rows, words)| pair_rows(self.simd, rows, outputs, words));
        room
    }

    /// `dw = transposed x times g`, the gradient of the weights, inputs x outputs, from the words of `g`. Only the first `used` outputs are
    /// computed, the others are padding and stay 0.
    ///
    /// Vectors run along the inputs, of which there are many, so that padded outputs cost nothing; every task transposes what it has computed.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn dense_weight_gradient<S: Activation>(
        &self,
        shape: DenseShape,
        used: usize,
        x: &[S],
        words: &[f32],
        dw: &mut [f32],
    ) {
        let DenseShape { rows, inputs, outputs, stride } = shape;
        assert!(
            stride >= inputs
                && x.len() >= rows * stride
                && words.len() >= rows.div_ceil(S::DEPTH) * outputs
                && dw.len() >= inputs * outputs
        );
        let mut tasks: Vec<&mut [f32]> = dw[..inputs * outputs].chunks_mut(TASK_INPUTS * outputs).collect();
        self.pool.each(&mut tasks, |task, dw| {
            let columns = dw.len() / outputs;
            let mut transposed = vec![0.0; used * columns];
            let x = &x[task * TASK_INPUTS..];
            for first in (0..rows).step_by(BLOCK_ROWS) {
                let sum = Outer {
                    prefetch: &Prefetch::new(0, &(0..0), &(0..0)),
                    count: 1,
                    next: [0; 3],
                    fresh: first == 0,
                    rows: used,
                    columns,
                    size: [1, BLOCK_ROWS.min(rows - first)],
                    a: words[first / S::DEPTH * outputs..].as_ptr(),
                    a_strides: [0, outputs],
                    d: x[first * stride..].as_ptr(),
                    d_strides: [0, stride],
                    w: transposed.as_mut_ptr(),
                    w_stride: columns,
                };
                // SAFETY: the assertion above: the inputs of the task lie inside every row of `x`, and all outputs inside those of `words`.
                // `transposed` has `used` rows of `columns` values, and is used by this task only.
                unsafe { outer(self.simd, &sum) };
            }
            for (input, row) in dw.chunks_exact_mut(outputs).enumerate() {
                for (output, to) in row.iter_mut().enumerate().take(used) {
                    *to = transposed[output * columns + input];
                }
            }
        });
    }
}
