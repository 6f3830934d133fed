//! Benchmarks of single kernels on made-up numbers: what the engine runs, without a network around it.

use std::marker::PhantomData;

use equipoise_simd::{Amx, Bf16, Simd, SimdLevel, TILE, TILE_BYTES, Tiles, VectorTiles, dispatch};

use crate::buffer::Buffer;
use crate::cpu::Precision;
use crate::kernel::convolution::{Backward, Convolution, ConvolutionAlgorithm, Forward, Geometry, Scratch};
use crate::kernel::fused_norm::{OutputGradient, ShortcutBack, Sink, Source};
use crate::kernel::value::Activation;
use crate::kernel::{CHANNELS, stored};

/// The sizes of a convolution as the engine runs it, with the sums for its batch norm and that batch norm's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Height and width of the window; it is padded so that stride 1 keeps the size.
    pub kernel: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
    /// Height and width of the images.
    pub side: usize,
    /// Number of images.
    pub images: usize,
}

impl Shape {
    /// The number of operations of one of its three passes by the definition.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let out = self.side.div_ceil(self.stride);
        2.0 * (self.images * out * out * self.kernel * self.kernel * self.inputs * self.outputs) as f64
    }
}

/// A convolution with its memory, on one thread.
pub trait Measured {
    /// Runs the forward pass.
    fn forward(&mut self);

    /// Computes the gradient of the weights and, unless the inputs are the caller's images, of the input.
    fn backward(&mut self);

    /// The number of gradients that [`backward`](Self::backward) computes.
    fn passes_back(&self) -> usize;
}

/// Plans a convolution and allocates its memory. The caller's images, which have few channels, are f32 at any precision.
///
/// # Panics
/// Panics if a number of the shape is 0, or if its images or its weights have more than 2^28 values.
#[must_use]
pub fn convolution(
    shape: &Shape,
    precision: Precision,
    algorithm: ConvolutionAlgorithm,
    level: SimdLevel,
) -> Box<dyn Measured> {
    match precision {
        Precision::Bf16 if shape.inputs >= CHANNELS => Box::new(Planned::<Bf16>::new(shape, algorithm, level)),
        Precision::Bf16Amx if shape.inputs >= CHANNELS => {
            Box::new(Planned::<Bf16>::new(shape, ConvolutionAlgorithm::Tiles, level))
        }
        _ => Box::new(Planned::<f32>::new(shape, algorithm, level)),
    }
}

/// A convolution of values of type T.
struct Planned<T> {
    convolution: Convolution,
    level: SimdLevel,
    images: usize,
    scratch: [Buffer; 6],
    weights: Buffer<T>,
    back: Buffer<T>,
    dw: Buffer,
    x: Buffer<T>,
    y: Buffer<T>,
    g: Buffer<T>,
    dx: Buffer<T>,
    k: Buffer,
    sums: Vec<f64>,
}

impl<T: Activation> Planned<T> {
    fn new(shape: &Shape, algorithm: ConvolutionAlgorithm, level: SimdLevel) -> Self {
        let &Shape { inputs, outputs, kernel, stride, side, images } = shape;
        assert!([inputs, outputs, kernel, stride, side, images].iter().all(|n| *n > 0), "{shape:?}");
        let product = |sizes: &[usize]| {
            sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size).filter(|n| *n <= 1 << 28))
        };
        let padded = side.saturating_add(kernel);
        let values = product(&[images, padded, padded, stored(inputs.max(outputs).min(1 << 28))]);
        assert!(values.is_some() && product(&[kernel, kernel, inputs, outputs]).is_some(), "{shape:?}");
        // the caller's images are not padded
        let inputs = if inputs < CHANNELS { inputs } else { stored(inputs) };
        let outputs = stored(outputs);
        let geometry = Geometry { inputs, outputs, kernel, stride, pad: kernel / 2, size: [side, side] };
        let convolution = Convolution::new::<T, T>(geometry, algorithm, images);
        let size = convolution.scratch_size();
        let [rows, columns] = geometry.out();
        let (input, output) = (images * side * side * inputs, images * rows * columns * outputs);
        let ones = |length: usize| {
            let mut buffer = Buffer::new(length);
            buffer.fill(T::from_f32(1.0));
            buffer
        };
        let mut k = Buffer::new(3 * outputs);
        k.fill(1.0);
        Self {
            level,
            images,
            scratch: [size.input, size.v, size.m, size.gradient, size.du, size.sums].map(Buffer::new),
            weights: ones(convolution.packed()),
            back: ones(convolution.packed()),
            dw: Buffer::new(geometry.weights()),
            x: ones(input),
            y: ones(output),
            g: ones(output),
            dx: ones(input),
            k,
            sums: vec![0.0; 3 * inputs.max(outputs)],
            convolution,
        }
    }

    fn scratch(&mut self) -> Scratch {
        let [input, v, m, gradient, du, sums] = self.scratch.each_mut().map(Buffer::as_mut_ptr);
        Scratch { input, v, m, gradient, du, sums }
    }
}

impl<T: Activation> Measured for Planned<T> {
    fn forward(&mut self) {
        let scratch = self.scratch();
        let run = Forward {
            source: Source::Plain(self.x.as_ptr()),
            images: 0..self.images,
            after: None,
            cached: false,
            part: None,
            weights: self.weights.as_ptr(),
            y: self.y.as_mut_ptr(),
            sums: Some((self.k.as_ptr(), self.sums.as_mut_ptr())),
        };
        // SAFETY: `new` gave source, output, packed weights, sums and scratch the sizes that the convolution needs; they are
        // separate buffers of this value, which is borrowed alone.
        unsafe { self.convolution.forward(self.level, &run, &scratch) };
    }

    fn backward(&mut self) {
        let (scratch, out) = (self.scratch(), self.dx.as_mut_ptr());
        let run = Backward {
            source: Source::Plain(self.x.as_ptr()),
            back: OutputGradient { g: self.g.as_ptr(), y: self.y.as_ptr(), k: self.k.as_ptr() },
            images: 0..self.images,
            after: None,
            weights: self.back.as_ptr(),
            dw: self.dw.as_mut_ptr(),
            sink: match self.passes_back() {
                1 => Sink::Nothing,
                _ => Sink::Plain { shortcut: ShortcutBack::Nothing, out },
            },
            sums: self.sums.as_mut_ptr(),
        };
        // SAFETY: `new` gave source, output gradient, packed weights, weight gradient, sink, sums and scratch the sizes that the
        // convolution needs; they are separate buffers of this value, which is borrowed alone.
        unsafe { self.convolution.backward(self.level, &run, &scratch) };
    }

    fn passes_back(&self) -> usize {
        if self.convolution.geometry.inputs < CHANNELS { 1 } else { 2 }
    }
}

/// Runs multiply-adds in registers alone, as many as this CPU can do; returns how many operations they were.
#[must_use]
pub fn peak(level: SimdLevel, precision: Precision, rounds: usize) -> f64 {
    match precision {
        Precision::F32 => multiply_adds(level, PhantomData::<f32>, rounds),
        Precision::Bf16 => multiply_adds(level, PhantomData::<Bf16>, rounds),
        Precision::Bf16Amx => tile_products(level, rounds),
    }
}

dispatch!(fn tile_products(rounds: usize) -> f64 = tile_products_kernel with bf16);

#[inline(always)]
fn tile_products_kernel<I: Simd>(simd: I, rounds: usize) -> f64 {
    // a product of tiles is some 128 times as much as one of vectors
    let rounds = rounds / 128;
    match Amx::request().filter(|_| I::HAS_DOT_BF16) {
        Some(amx) => multiply_tiles(&mut amx.tiles(), rounds),
        None => multiply_tiles(&mut VectorTiles::new(simd), rounds),
    }
}

/// Multiplies tiles of zeros, four products at a time, and returns the number of operations.
#[inline(always)]
fn multiply_tiles<M: Tiles>(tiles: &mut M, rounds: usize) -> f64 {
    for _ in 0..rounds {
        tiles.dot::<0, 4, 6>();
        tiles.dot::<1, 4, 7>();
        tiles.dot::<2, 5, 6>();
        tiles.dot::<3, 5, 7>();
    }
    let mut out = [0f32; TILE * TILE];
    // SAFETY: `out` has sixteen rows of sixteen values.
    unsafe { tiles.store::<0>(out.as_mut_ptr().cast(), TILE_BYTES) };
    std::hint::black_box(&out);
    (4 * 2 * TILE * TILE * 2 * TILE * rounds) as f64
}

dispatch!(fn multiply_adds<T: Activation>(of: PhantomData<T>, rounds: usize) -> f64 = multiply_adds_kernel with bf16);

#[inline(always)]
fn multiply_adds_kernel<I: Simd, T: Activation>(simd: I, _of: PhantomData<T>, rounds: usize) -> f64 {
    const CHAINS: usize = 12;
    let mut sums = [simd.splat(0.0); CHAINS];
    let [a, b] = [0.5, 0.25].map(|x| simd.splat(std::hint::black_box(x)));
    let (a, b) = if T::DEPTH == 1 { (a, b) } else { (simd.pair_bf16(a, a), simd.pair_bf16(b, b)) };
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = T::multiply_add(simd, a, b, *sum);
        }
    }
    let mut out = [0.0; 16];
    for sum in sums {
        // SAFETY: `out` has sixteen values, and a vector at most as many.
        unsafe { simd.store(out.as_mut_ptr(), sum) };
        std::hint::black_box(&mut out);
    }
    (2 * CHAINS * I::WIDTH * T::DEPTH * rounds) as f64
}
