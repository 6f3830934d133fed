//! Every algorithm against the definition, at every level of instructions.

use equipoise_random::Draws;

use super::*;
use crate::buffer::Buffer;
use crate::kernel::fused_norm::ShortcutBack;

/// Random values between -1 and 1.
fn random(length: usize, salt: u64) -> Buffer {
    let mut values = Buffer::new(length);
    let draws = Draws::new(7, salt, length as u64);
    values.iter_mut().enumerate().for_each(|(i, x)| *x = 2.0 * draws.unit(i as u64) as f32 - 1.0);
    values
}

/// The definition in f64: output, gradient of the input, gradient of the weights.
fn plain(g: &Geometry, images: usize, x: &[f32], w: &[f32], dy: &[f32]) -> [Vec<f64>; 3] {
    let ([height, width], [rows, columns]) = (g.size, g.out());
    let mut y = vec![0.0; images * rows * columns * g.outputs];
    let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
    for n in 0..images {
        for row in 0..rows {
            for column in 0..columns {
                for ky in 0..g.kernel {
                    for kx in 0..g.kernel {
                        let index = |at: usize, k: usize, most: usize| {
                            (at * g.stride + k).checked_sub(g.pad).filter(|index| *index < most)
                        };
                        let (Some(iy), Some(ix)) = (index(row, ky, height), index(column, kx, width)) else {
                            continue;
                        };
                        let at_x = ((n * height + iy) * width + ix) * g.inputs;
                        let at_y = ((n * rows + row) * columns + column) * g.outputs;
                        for i in 0..g.inputs {
                            let at_w = ((ky * g.kernel + kx) * g.inputs + i) * g.outputs;
                            for o in 0..g.outputs {
                                let (x, w, dy) =
                                    (f64::from(x[at_x + i]), f64::from(w[at_w + o]), f64::from(dy[at_y + o]));
                                y[at_y + o] += x * w;
                                dx[at_x + i] += w * dy;
                                dw[at_w + o] += x * dy;
                            }
                        }
                    }
                }
            }
        }
    }
    [y, dx, dw]
}

/// Scratch buffers full of NaN: what other layers leave there must not matter.
fn scratch_buffers(c: &Convolution) -> [Buffer; 6] {
    let size = c.scratch_size();
    let mut all = [size.input, size.v, size.m, size.gradient, size.du, size.sums].map(Buffer::new);
    all.iter_mut().take(5).for_each(|buffer| buffer.fill(f32::NAN));
    all
}

/// The same results by the kernels, and a check of the forward pass's sums.
fn kernels(c: &Convolution, simd: SimdLevel, images: usize, x: &Buffer, w: &Buffer, dy: &Buffer) -> [Vec<f32>; 3] {
    let g = c.geometry;
    let [rows, columns] = g.out();
    let (mut forward, mut back) = (Buffer::new(c.packed()), Buffer::new(c.packed()));
    let back_at = if g.inputs.is_multiple_of(16) { back.as_mut_ptr() } else { std::ptr::null_mut() };
    let mut buffers = scratch_buffers(c);
    let [input, v, m, gradient, du, sums] = &mut buffers;
    let scratch = Scratch {
        input: input.as_mut_ptr(),
        v: v.as_mut_ptr(),
        m: m.as_mut_ptr(),
        gradient: gradient.as_mut_ptr(),
        du: du.as_mut_ptr(),
        sums: sums.as_mut_ptr(),
    };
    let mut y = Buffer::new(images * rows * columns * g.outputs);
    let mut dx = Buffer::new(x.len());
    let (mut dw, mut slices) = (Buffer::new(g.weights()), Buffer::new(2 * g.weights()));
    let mut k = Buffer::new(3 * g.outputs);
    k[..g.outputs].fill(1.0);
    let zeros = Buffer::new(dy.len());
    let mut sums = vec![0.0; 3 * g.inputs.max(g.outputs)];
    let shift = random(g.outputs, 9);
    // SAFETY: inputs, outputs, packed weights and sums have the sizes that `geometry` implies, the scratch buffers
    // those of `scratch_size`; they are separate and this thread's own.
    unsafe {
        c.pack(simd, w.as_ptr(), 0..g.inputs, forward.as_mut_ptr(), back_at);
        let source = Source::Plain(x.as_ptr());
        let (run_sums, weights) = (Some((shift.as_ptr(), sums.as_mut_ptr())), forward.as_ptr());
        c.forward(
            simd,
            &Forward {
                source,
                images: 0..images,
                after: None,
                cached: false,
                weights,
                y: y.as_mut_ptr(),
                sums: run_sums,
            },
            &scratch,
        );
        for o in 0..g.outputs {
            let values = y.iter().skip(o).step_by(g.outputs).map(|y| f64::from(y - shift[o]));
            let (sum, squares) = values.fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
            let close = |a: f64, b: f64| (a - b).abs() < 1e-4 * (1.0 + squares);
            assert!(close(sums[o], sum) && close(sums[g.outputs + o], squares), "{g:?}: {} {sum}", sums[o]);
        }
        // two slices, as a batch would have
        let middle = images / 2;
        let out = dx.as_mut_ptr();
        let sink = match g.inputs.is_multiple_of(16) {
            true => Sink::Plain { shortcut: ShortcutBack::Nothing, out },
            false => Sink::Nothing,
        };
        for (slice, images) in [0..middle, middle..images].into_iter().enumerate() {
            let back = OutputGradient { g: dy.as_ptr(), y: zeros.as_ptr(), k: k.as_ptr() };
            let (weights, dw) = (back_at.cast_const(), slices.as_mut_ptr().add(slice * g.weights()));
            let run = Backward { source, back, images, after: None, weights, dw, sink, sums: sums.as_mut_ptr() };
            c.backward(simd, &run, &scratch);
        }
        c.collect(simd, slices.as_ptr(), 2, 0..g.inputs, dw.as_mut_ptr());
    }
    [y.to_vec(), dx.to_vec(), dw.to_vec()]
}

fn check(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) {
    // an interpreter is slow: some of the small ones
    if cfg!(miri) && (geometry.weights() > 3000 || geometry.size.iter().any(|side| *side > 8)) {
        return;
    }
    let [rows, columns] = geometry.out();
    let x = random(images * geometry.size[0] * geometry.size[1] * geometry.inputs, 1);
    let w = random(geometry.weights(), 2);
    let dy = random(images * rows * columns * geometry.outputs, 3);
    let want = plain(&geometry, images, &x, &w, &dy);
    let c = Convolution::new(geometry, algorithm, images);
    let mut fused: Option<[Vec<f32>; 3]> = None;
    for &simd in SimdLevel::available() {
        let got = kernels(&c, simd, images, &x, &w, &dy);
        for (what, (got, want)) in ["y", "dx", "dw"].iter().zip(got.iter().zip(&want)) {
            if *what == "dx" && !geometry.inputs.is_multiple_of(16) {
                continue;
            }
            let scale = want.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let worst = got.iter().zip(want).fold(0.0, |a: f64, (g, w)| a.max((f64::from(*g) - w).abs()));
            let bound = if algorithm == ConvolutionAlgorithm::Winograd { 2e-5 } else { 4e-6 };
            assert!(worst <= bound * scale, "{what} {simd:?} {algorithm:?} {geometry:?}: {worst} of {scale}");
        }
        if simd != SimdLevel::Portable {
            let fused = fused.get_or_insert_with(|| got.clone());
            assert_eq!(*fused, got, "{simd:?} {algorithm:?} {geometry:?}");
        }
    }
}

#[test]
fn three_by_three_with_every_algorithm() {
    for algorithm in [ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd] {
        for size in [[8, 8], [7, 7], [1, 1], [2, 5], [13, 6], [16, 16]] {
            for (inputs, outputs) in [(16, 16), (16, 48), (32, 16), (64, 32)] {
                let geometry = Geometry { inputs, outputs, kernel: 3, stride: 1, pad: 1, size };
                check(geometry, algorithm, 3);
            }
        }
        let geometry = Geometry { inputs: 16, outputs: 16, kernel: 3, stride: 1, pad: 1, size: [32, 32] };
        check(geometry, algorithm, 2);
    }
}

/// Any window, stride, padding and size; the inputs are the caller's images, or inner ones.
#[test]
fn any_window() {
    for (kernel, stride, pad) in
        [(1, 1, 0), (1, 2, 0), (3, 2, 1), (7, 2, 3), (5, 1, 2), (5, 3, 0), (2, 2, 0), (3, 1, 0), (4, 3, 2), (3, 5, 1)]
    {
        for size in [[8, 8], [7, 9], [15, 4], [5, 5]] {
            if size.iter().any(|side| side + 2 * pad < kernel) {
                continue;
            }
            for (inputs, outputs) in [(3, 16), (1, 32), (16, 32), (48, 16), (5, 64)] {
                check(Geometry { inputs, outputs, kernel, stride, pad, size }, ConvolutionAlgorithm::Winograd, 3);
            }
        }
    }
}
