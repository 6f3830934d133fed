//! Single kernels on made-up numbers, for benchmarks: what the engine runs, without a network around it.

use equipoise_simd::SimdLevel;

use crate::buffer::Buffer;
use crate::isa::{Isa, dispatch};
use crate::kernel::convolution::{Backward, Convolution, ConvolutionAlgorithm, Forward, Geometry, Scratch};
use crate::kernel::fused_norm::{OutputGradient, ShortcutBack, Sink, Source};
use crate::kernel::stored;

/// A convolution as the engine has it: with the sums for its batch norm, and behind a batch norm's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels of the input.
    pub inputs: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// Side of the window; it is padded so that stride 1 keeps the size.
    pub kernel: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
    /// Side of the images.
    pub side: usize,
    /// Images that are worked on one after another.
    pub images: usize,
}

impl Shape {
    /// Operations of one of its three passes if it is computed as it is defined.
    #[must_use]
    pub fn operations(&self) -> f64 {
        let out = self.side.div_ceil(self.stride);
        2.0 * (self.images * out * out * self.kernel * self.kernel * self.inputs * self.outputs) as f64
    }
}

/// A convolution with its memory, in one thread.
pub struct Measured {
    convolution: Convolution,
    simd: SimdLevel,
    images: usize,
    own: [Buffer; 6],
    weights: Buffer,
    back: Buffer,
    dw: Buffer,
    x: Buffer,
    y: Buffer,
    g: Buffer,
    dx: Buffer,
    k: Buffer,
    sums: Vec<f64>,
}

impl Measured {
    /// A level that this CPU does not have is replaced by the best one.
    ///
    /// # Panics
    /// If a number of the shape is 0, or its images have more than 2^28 values.
    #[must_use]
    pub fn new(shape: &Shape, algorithm: ConvolutionAlgorithm, simd: SimdLevel) -> Self {
        let &Shape { inputs, outputs, kernel, stride, side, images } = shape;
        assert!([inputs, outputs, kernel, stride, side, images].iter().all(|n| *n > 0), "{shape:?}");
        let most = |sides: &[usize]| {
            sides.iter().try_fold(1usize, |all, side| all.checked_mul(*side).filter(|n| *n <= 1 << 28))
        };
        let padded = side.saturating_add(kernel);
        let values = most(&[images, padded, padded, stored(inputs.max(outputs).min(1 << 28))]);
        assert!(values.is_some() && most(&[kernel, kernel, inputs, outputs]).is_some(), "{shape:?}");
        let simd = if SimdLevel::available().contains(&simd) { simd } else { SimdLevel::best() };
        // a caller's images are not padded
        let inputs = if inputs < crate::kernel::CHANNELS { inputs } else { stored(inputs) };
        let outputs = stored(outputs);
        let geometry = Geometry { inputs, outputs, kernel, stride, pad: kernel / 2, size: [side, side] };
        let convolution = Convolution::new(geometry, algorithm, images);
        let room = convolution.scratch_size();
        let [rows, columns] = geometry.out();
        let (input, output) = (images * side * side * inputs, images * rows * columns * outputs);
        let ones = |length: usize| {
            let mut buffer = Buffer::new(length);
            buffer.fill(1.0);
            buffer
        };
        Self {
            simd,
            images,
            own: [room.input, room.v, room.m, room.gradient, room.du, room.sums].map(Buffer::new),
            weights: ones(convolution.packed()),
            back: ones(convolution.packed()),
            dw: Buffer::new(geometry.weights()),
            x: ones(input),
            y: ones(output),
            g: ones(output),
            dx: ones(input),
            k: ones(3 * outputs),
            sums: vec![0.0; 3 * inputs.max(outputs)],
            convolution,
        }
    }

    fn space(&mut self) -> Scratch {
        let [input, v, m, gradient, du, sums] = self.own.each_mut().map(Buffer::as_mut_ptr);
        Scratch { input, v, m, gradient, du, sums }
    }

    /// The forward pass.
    pub fn forward(&mut self) {
        let space = self.space();
        let run = Forward {
            source: Source::Plain(self.x.as_ptr()),
            images: 0..self.images,
            after: None,
            cached: false,
            weights: self.weights.as_ptr(),
            y: self.y.as_mut_ptr(),
            sums: Some((self.k.as_ptr(), self.sums.as_mut_ptr())),
        };
        // SAFETY: every buffer has the size that the convolution asks for, and is this value's own.
        unsafe { self.convolution.forward(self.simd, &run, &space) };
    }

    /// The gradients of the weights and, unless the inputs are a caller's images, of the input.
    pub fn backward(&mut self) {
        let (space, out) = (self.space(), self.dx.as_mut_ptr());
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
        // SAFETY: as above.
        unsafe { self.convolution.backward(self.simd, &run, &space) };
    }

    /// How many gradients [`backward`](Self::backward) computes.
    #[must_use]
    pub fn passes_back(&self) -> usize {
        if self.convolution.geometry.inputs < crate::kernel::CHANNELS { 1 } else { 2 }
    }
}

/// Products and sums in registers alone, as many as this CPU can do: returns how many operations that were.
#[must_use]
pub fn peak(simd: SimdLevel, rounds: usize) -> f64 {
    let simd = if SimdLevel::available().contains(&simd) { simd } else { SimdLevel::best() };
    // SAFETY: the level is one that this CPU has.
    unsafe { peak_at(simd, rounds) }
}

dispatch!(unsafe fn peak_at(rounds: usize) -> f64 = peak_of);

#[inline(always)]
unsafe fn peak_of<I: Isa>(rounds: usize) -> f64 {
    const CHAINS: usize = 12;
    // SAFETY: the level's instructions are the caller's promise, and `out` is good for a register.
    unsafe {
        let mut sums = [I::splat(0.0); CHAINS];
        let (a, b) = (I::splat(std::hint::black_box(0.5)), I::splat(std::hint::black_box(0.25)));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = I::fma(*sum, a, b);
            }
        }
        let mut out = [0.0; 16];
        for sum in sums {
            I::store(out.as_mut_ptr(), sum);
            std::hint::black_box(&mut out);
        }
    }
    (2 * CHAINS * I::WIDTH * rounds) as f64
}
