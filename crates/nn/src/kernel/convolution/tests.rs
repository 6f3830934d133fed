//! Every algorithm against the definition, at every level of instructions.

use equipoise_random::Draws;
use equipoise_simd::Bf16;

use super::cut::Cut;
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

/// The same values in another type.
fn stored<S: Activation>(values: &[f32]) -> Buffer<S> {
    let mut stored = Buffer::new(values.len());
    stored.iter_mut().zip(values).for_each(|(to, x)| *to = S::from_f32(*x));
    stored
}

/// The values as f32.
fn values<S: Activation>(stored: &[S]) -> Vec<f32> {
    stored.iter().map(|x| x.to_f32()).collect()
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
fn kernels<S: Activation>(
    c: &Convolution,
    simd: SimdLevel,
    images: usize,
    x: &Buffer<S>,
    w: &[f32],
    dy: &Buffer<S>,
) -> [Vec<f32>; 3] {
    let g = c.geometry;
    let [rows, columns] = g.out();
    let (mut forward, mut back) = (Buffer::<S>::new(c.packed()), Buffer::<S>::new(c.packed()));
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
    let mut y = Buffer::<S>::new(images * rows * columns * g.outputs);
    let mut dx = Buffer::<S>::new(x.len());
    let (mut dw, mut second) = (Buffer::<f32>::new(g.weights()), Buffer::<f32>::new(g.weights()));
    let mut k = Buffer::new(3 * g.outputs);
    k[..g.outputs].fill(1.0);
    let zeros = Buffer::<S>::new(dy.len());
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
                part: None,
                weights,
                y: y.as_mut_ptr(),
                sums: run_sums,
            },
            &scratch,
        );
        for o in 0..g.outputs {
            let values = y.iter().skip(o).step_by(g.outputs).map(|y| f64::from(y.to_f32() - shift[o]));
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
        let gradients = SliceGradients { first: dw.as_mut_ptr(), others: second.as_mut_ptr(), weights: g.weights() };
        for (slice, images) in [0..middle, middle..images].into_iter().enumerate() {
            let back = OutputGradient { g: dy.as_ptr(), y: zeros.as_ptr(), k: k.as_ptr() };
            let (weights, dw) = (back_at.cast_const(), gradients.of(slice));
            let run = Backward { source, back, images, after: None, weights, dw, sink, sums: sums.as_mut_ptr() };
            c.backward(simd, &run, &scratch);
        }
        c.collect(simd, &gradients, 2, 0..g.inputs);
    }
    [values(&y), values(&dx), dw.to_vec()]
}

fn check(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) {
    // an interpreter is slow: some of the small ones
    if cfg!(miri) && (geometry.weights() > 3000 || geometry.size.iter().any(|side| *side > 8)) {
        return;
    }
    check_type::<f32>(geometry, algorithm, images);
    // the caller's images are f32
    if geometry.inputs.is_multiple_of(CHANNELS) {
        check_type::<Bf16>(geometry, algorithm, images);
    }
}

/// The largest errors of output, input gradient and weight gradient, as shares of the largest value.
///
/// In f32 they grow with the number of products. In bf16 the operands, which are given, have no error; the output and the
/// input gradient are rounded to 2^-8 of a value. Winograd's transforms of operands are rounded too, which its points
/// amplify some five times.
fn bounds<S: Activation>(is_winograd: bool) -> [f64; 3] {
    match (S::DEPTH, is_winograd) {
        (1, false) => [4e-6; 3],
        (1, true) => [2e-5; 3],
        (_, false) => [3.95e-3, 3.95e-3, 4e-6],
        (_, true) => [2.5e-2; 3],
    }
}

fn check_type<S: Activation>(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) {
    let [rows, columns] = geometry.out();
    let x = stored::<S>(&random(images * geometry.size[0] * geometry.size[1] * geometry.inputs, 1));
    let w = values(&stored::<S>(&random(geometry.weights(), 2)));
    let dy = stored::<S>(&random(images * rows * columns * geometry.outputs, 3));
    let want = plain(&geometry, images, &values(&x), &w, &values(&dy));
    let c = Convolution::new::<S, S>(geometry, algorithm, images);
    let bounds = bounds::<S>(matches!(c.plan, Plan::Winograd(_)));
    let mut fused: Option<[Vec<f32>; 3]> = None;
    for &simd in SimdLevel::available() {
        let got = kernels(&c, simd, images, &x, &w, &dy);
        for ((what, bound), (got, want)) in ["y", "dx", "dw"].iter().zip(bounds).zip(got.iter().zip(&want)) {
            if *what == "dx" && !geometry.inputs.is_multiple_of(16) {
                continue;
            }
            let scale = want.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let worst = got.iter().zip(want).fold(0.0, |a: f64, (g, w)| a.max((f64::from(*g) - w).abs()));
            let depth = S::DEPTH;
            assert!(worst <= bound * scale, "{what} {simd:?} {depth} {algorithm:?} {geometry:?}: {worst} of {scale}");
        }
        if simd != SimdLevel::Portable {
            let fused = fused.get_or_insert_with(|| got.clone());
            assert_eq!(*fused, got, "{simd:?} {algorithm:?} {geometry:?}");
        }
    }
}

#[test]
fn three_by_three_with_every_algorithm() {
    for algorithm in [ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd, ConvolutionAlgorithm::Tiles] {
        for size in [[8, 8], [7, 7], [1, 1], [2, 5], [13, 6], [16, 16]] {
            for (inputs, outputs) in [(16, 16), (16, 48), (32, 16), (64, 32)] {
                let geometry = Geometry { inputs, outputs, kernel: 3, stride: 1, pad: 1, size };
                check(geometry, algorithm, 3);
            }
        }
        let geometry = Geometry { inputs: 16, outputs: 16, kernel: 3, stride: 1, pad: 1, size: [32, 32] };
        check(geometry, algorithm, 2);
        // its packed weights go past the caches
        let geometry = Geometry { inputs: 256, outputs: 256, kernel: 3, stride: 1, pad: 1, size: [3, 4] };
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
            for (inputs, outputs) in [(3, 16), (1, 32), (16, 32), (48, 16), (5, 64), (64, 32)] {
                let geometry = Geometry { inputs, outputs, kernel, stride, pad, size };
                check(geometry, ConvolutionAlgorithm::Winograd, 3);
                check(geometry, ConvolutionAlgorithm::Tiles, 3);
            }
        }
    }
}

/// Weights of which a panel at a time is used, and output gradients that are read in bands.
#[test]
fn wide_windows_and_large_images() {
    for (inputs, outputs, kernel, stride, size, images) in [
        (128, 160, 3, 2, [9, 7], 3),
        (3, 64, 7, 2, [75, 90], 1),
        (160, 128, 1, 2, [20, 19], 2),
        (16, 64, 3, 2, [60, 70], 1),
    ] {
        let geometry = Geometry { inputs, outputs, kernel, stride, pad: kernel / 2, size };
        check(geometry, ConvolutionAlgorithm::Winograd, images);
    }
}

/// Runs the forward pass of a convolution, whole or cut, with weights packed from `w`.
fn forward_in_pieces<S: Activation>(
    c: &Convolution,
    simd: SimdLevel,
    cut: Option<&Cut>,
    x: &Buffer<S>,
    w: &[f32],
) -> Vec<f32> {
    let g = c.geometry;
    let [rows, columns] = g.out();
    let images = x.len() / g.input_len();
    let mut weights = Buffer::<S>::new(c.packed());
    let mut buffers = scratch_buffers(c);
    let [input, v, m, gradient, du, sums] = buffers.each_mut().map(Buffer::as_mut_ptr);
    let scratch = Scratch { input, v, m, gradient, du, sums };
    let mut y = Buffer::<S>::new(images * rows * columns * g.outputs);
    y.fill(S::from_f32(f32::NAN));
    let pieces: Vec<_> = match cut {
        Some(cut) => {
            (0..cut.pieces()).map(|piece| cut.piece(piece)).map(|(images, part)| (images, Some(part))).collect()
        }
        None => vec![(0..images, None)],
    };
    // SAFETY: inputs, outputs and packed weights have the sizes that `geometry` implies, the scratch buffers those of
    // `scratch_size`; they are separate and this thread's own.
    unsafe {
        c.pack(simd, w.as_ptr(), 0..g.inputs, weights.as_mut_ptr(), std::ptr::null_mut());
        for (images, part) in pieces {
            let (source, weights, y) = (Source::Plain(x.as_ptr()), weights.as_ptr(), y.as_mut_ptr());
            let run = Forward { source, images, after: None, cached: true, part, weights, y, sums: None };
            c.forward(simd, &run, &scratch);
        }
    }
    values(&y)
}

fn check_pieces<S: Activation>(geometry: Geometry, algorithm: ConvolutionAlgorithm, images: usize) {
    let x = stored::<S>(&random(images * geometry.input_len(), 1));
    let w = random(geometry.weights(), 2);
    let c = Convolution::new::<S, S>(geometry, algorithm, images);
    for &simd in SimdLevel::available() {
        let whole = forward_in_pieces(&c, simd, None, &x, &w);
        for threads in [1, 2, 3, 5, 8] {
            let cut = c.cut(images, threads);
            assert_eq!(forward_in_pieces(&c, simd, Some(&cut), &x, &w), whole, "{simd:?} {geometry:?} {cut:?}");
        }
        // every way to cut
        let [row_step, channel_step] = c.steps();
        for piece in
            [[1, row_step, channel_step], [1, 2 * row_step, geometry.outputs], [1, geometry.out()[0], channel_step]]
        {
            let whole_sizes = [images, geometry.out()[0], geometry.outputs];
            let piece = [0, 1, 2].map(|side| piece[side].min(whole_sizes[side]));
            let cut = Cut { whole: whole_sizes, piece };
            assert_eq!(forward_in_pieces(&c, simd, Some(&cut), &x, &w), whole, "{simd:?} {geometry:?} {cut:?}");
        }
    }
}

/// An output that is computed in parts, by any number of threads, has the bits of the whole.
#[test]
fn parts_have_the_bits_of_the_whole() {
    for (kernel, stride) in [(3, 1), (3, 2), (1, 1), (1, 2), (7, 2), (1, 3)] {
        for size in [[8, 8], [7, 9], [15, 4], [1, 1]] {
            for (inputs, outputs) in [(16, 64), (32, 32), (64, 96), (16, 48), (48, 16)] {
                if cfg!(miri) && inputs * outputs * kernel * kernel > 3000 {
                    continue;
                }
                let geometry = Geometry { inputs, outputs, kernel, stride, pad: kernel / 2, size };
                for algorithm in [ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd] {
                    check_pieces::<f32>(geometry, algorithm, 2);
                    check_pieces::<Bf16>(geometry, algorithm, 3);
                }
                if inputs.is_multiple_of(32) && outputs.is_multiple_of(32) {
                    check_pieces::<Bf16>(geometry, ConvolutionAlgorithm::Tiles, 2);
                }
            }
        }
    }
    // weights that a panel at a time is used of, and the caller's images
    for (inputs, outputs, kernel, stride) in [(128, 192, 3, 2), (3, 64, 7, 2), (448, 384, 1, 2)] {
        let geometry = Geometry { inputs, outputs, kernel, stride, pad: kernel / 2, size: [9, 8] };
        if !cfg!(miri) {
            check_pieces::<f32>(geometry, ConvolutionAlgorithm::Winograd, 2);
        }
    }
}

/// The pieces of a cut are the whole, each value once.
#[test]
fn a_cut_covers_the_whole_once() {
    for (kernel, outputs, size) in [(3, 512, [7, 7]), (1, 64, [56, 56]), (3, 48, [9, 13]), (1, 1024, [1, 1])] {
        let geometry = Geometry { inputs: 64, outputs, kernel, stride: 1, pad: kernel / 2, size };
        let c = Convolution::new::<f32, f32>(geometry, ConvolutionAlgorithm::Winograd, 4);
        for (images, threads) in [(1, 1), (1, 2), (1, 7), (3, 2), (4, 16)] {
            let cut = c.cut(images, threads);
            let mut seen = vec![0u8; images * size[0] * outputs];
            for (images, part) in (0..cut.pieces()).map(|piece| cut.piece(piece)) {
                for n in images {
                    for row in part.rows.clone() {
                        part.channels.clone().for_each(|channel| seen[(n * size[0] + row) * outputs + channel] += 1);
                    }
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{geometry:?} {images} {threads}: {cut:?}");
            assert!(threads == 1 || cut.pieces() > 1 || size == [9, 13], "{geometry:?} {images} {threads}: {cut:?}");
        }
    }
}
