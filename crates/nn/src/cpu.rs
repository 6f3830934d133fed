//! The engine for the CPU.
//!
//! A layer is a convolution and the batch norm behind it. What is kept of a forward pass is every convolution's output y and
//! every block's input z; batch norm, ReLU and the sum at a block's end happen while the next convolution reads, their gradients
//! while the next one writes. Tasks are groups of images, or slices of them where weight gradients are summed; both are the same
//! for any number of threads, and partial sums are added in their order, so that results are the same too.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use equipoise_pool::Pool;
use equipoise_simd::Simd;

use crate::buffer::Buffer;
use crate::engine::{Engine, Kind, Sgd};
use crate::error::NnError;
use crate::head::{HeadLayer, normalise, turn_back};
use crate::isa::{Isa, dispatch};
use crate::kernel::convolution::{Backward, Convolution, Forward, Geometry, Method, Room, Space};
use crate::kernel::ends::{Back, Centred, Frame, Normed, Shortcut, ShortcutBack, Sink, Source, drain, fill};
use crate::kernel::{CHANNELS, stored};
use crate::network::{Head, Joint, Network, pooled};

/// How 3 x 3 convolutions with stride 1 are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// As they are defined.
    Direct,
    /// Winograd F(2 x 2).
    Winograd2,
    /// Winograd F(4 x 4): the fastest.
    #[default]
    Winograd4,
}

/// More than any machine has: refused before sizes overflow.
const MOST_BYTES: u64 = 1 << 42;
/// Of a batch norm's variance.
const EPSILON: f64 = 1e-5;
/// The newest batch's share of the running statistics.
const NEWEST: f32 = 0.1;
/// Tasks of a forward pass at most.
const TASKS: usize = 16;
/// Images that go through the whole network together in an evaluation: few enough for the cache, enough for the weights.
const EVALUATED: usize = 4;
/// Slices of a batch at most.
const SLICES: usize = 8;
/// Transformed weights of all slices of a layer, if there are more than two: each slice's gradient is transformed back.
const SLICE_VALUES: usize = 640 << 10;

/// Values of a flat buffer in a task.
const CHUNK: usize = 1 << 13;

/// A pointer that tasks share; each uses a part of its own.
#[derive(Clone, Copy)]
struct Shared<T>(T);
// SAFETY: tasks write to parts that no other task of the same loop reads or writes; see where they are made.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// The pointer; a method, so that closures capture the whole.
    fn get(&self) -> T {
        self.0
    }
}

/// Where a layer's values are in the flat parameters.
struct Layer {
    convolution: Convolution,
    /// Inputs and outputs without padding.
    real: [usize; 2],
    weight: Range<usize>,
    gamma: Range<usize>,
    beta: Range<usize>,
    /// In the running statistics; the variance follows the mean.
    mean: Range<usize>,
    variance: Range<usize>,
    /// Images in a task of the forward pass.
    task: usize,
    /// Images in a slice.
    slice: usize,
    y: Buffer,
    forward: Buffer,
    back: Buffer,
    /// a, b, mean and the three k, a value for every channel each.
    coefficients: Buffer,
    /// 1 / sqrt(variance + epsilon)
    inverse: Vec<f64>,
}

/// Rows of a layer's coefficients.
const A: usize = 0;
const B: usize = 1;
const MEAN: usize = 2;
const K: usize = 3;

impl Layer {
    fn channels(&self) -> usize {
        self.convolution.geometry.outputs
    }

    fn row(&self, row: usize) -> *const f32 {
        self.coefficients[row * self.channels()..].as_ptr()
    }

    fn normed(&self) -> Normed {
        self.normed_at(self.y.as_ptr())
    }

    /// With its output elsewhere.
    fn normed_at(&self, y: *const f32) -> Normed {
        Normed { y, a: self.row(A), b: self.row(B) }
    }

    /// Sets a channel's batch norm.
    fn set_norm(&mut self, c: usize, mean: f64, variance: f64, parameters: &[f32]) {
        let (gamma, beta) = (f64::from(parameters[self.gamma.start + c]), f64::from(parameters[self.beta.start + c]));
        let inverse = 1.0 / (variance + EPSILON).sqrt();
        let (a, channels) = (gamma * inverse, self.channels());
        self.inverse[c] = inverse;
        self.coefficients[A * channels + c] = a as f32;
        self.coefficients[B * channels + c] = (beta - mean * a) as f32;
        self.coefficients[MEAN * channels + c] = mean as f32;
    }

    fn centred(&self) -> Centred {
        Centred { y: self.y.as_ptr(), mean: self.row(MEAN) }
    }

    fn back(&self, g: *const f32) -> Back {
        Back { g, y: self.y.as_ptr(), k: self.row(K) }
    }
}

impl Layer {
    /// The max pool of image `n` after its batch norm and ReLU; `which` of the window's values it took, unless that is null.
    ///
    /// # Safety
    /// `y` must be good for the images before the pool, `z` and `which` for those behind it.
    unsafe fn max_pool(&self, y: *const f32, n: usize, z: *mut f32, which: *mut u8) {
        let ([height, width], channels) = (self.convolution.geometry.out(), self.channels());
        let [rows, columns] = pooled([height, width]);
        let (a, b) = (&self.coefficients[A * channels..], &self.coefficients[B * channels..]);
        let (whole, one) = (height * width * channels, rows * columns * channels);
        // SAFETY: the caller's.
        let (y, z) = unsafe {
            (std::slice::from_raw_parts(y.add(n * whole), whole), std::slice::from_raw_parts_mut(z.add(n * one), one))
        };
        let mut taken = vec![0u8; channels];
        for row in 0..rows {
            for column in 0..columns {
                let at = (row * columns + column) * channels;
                let z = &mut z[at..at + channels];
                z.fill(f32::NEG_INFINITY);
                for tap in 0..9 {
                    let inside = |at: usize, tap: usize, most: usize| {
                        (2 * at + tap).checked_sub(1).filter(|place| *place < most)
                    };
                    let place = (inside(row, tap / 3, height), inside(column, tap % 3, width));
                    let (Some(from_row), Some(from_column)) = place else { continue };
                    let y = &y[(from_row * width + from_column) * channels..][..channels];
                    for c in 0..channels {
                        let value = (a[c] * y[c] + b[c]).max(0.0);
                        // the first of equals, as everybody does
                        if value > z[c] {
                            z[c] = value;
                            taken[c] = tap as u8;
                        }
                    }
                }
                if !which.is_null() {
                    // SAFETY: the caller's.
                    unsafe { std::ptr::copy_nonoverlapping(taken.as_ptr(), which.add(n * one + at), channels) };
                }
            }
        }
    }
}

/// A task's own memory: one stretch in large pages. A transform writes to dozens of places far apart, more than a CPU has
/// addresses of small pages at hand.
struct Own {
    memory: Buffer,
    /// Where its parts begin: those of a space, and of an evaluation the blocks' inputs (two, in turn), inside a block (two, in
    /// turn), its last layer and its projection.
    starts: [usize; 12],
}

impl Own {
    fn new(room: &Room, value: usize) -> Self {
        let &Room { input, v, m, gradient, du, sums } = room;
        let lengths = [input, v, m, gradient, du, sums, value, value, value, value, value, value];
        let (mut starts, mut length) = ([0; 12], 0);
        for (start, part) in starts.iter_mut().zip(lengths) {
            *start = length;
            length += part.next_multiple_of(CHANNELS);
        }
        Self { memory: Buffer::in_pages(length), starts }
    }

    /// The beginnings of all parts.
    fn parts(&mut self) -> [*mut f32; 12] {
        let memory = self.memory.as_mut_ptr();
        // SAFETY: every start lies in the memory, or at its end.
        self.starts.map(|start| unsafe { memory.add(start) })
    }

    fn space(&mut self) -> Space {
        let [input, v, m, gradient, du, sums, ..] = self.parts();
        Space { input, v, m, gradient, du, sums }
    }
}

/// Threads, with memory for each.
struct Tasks {
    pool: Pool,
    simd: Simd,
    own: Mutex<Vec<Own>>,
    /// Every pass over the batch goes the other way than the last one: what was used last is still in the cache.
    backwards: AtomicBool,
}

impl Tasks {
    /// Every task knows its number, and that of the same thread's next one, if nothing is in its way.
    fn run(&self, tasks: usize, body: impl Fn(usize, Option<usize>, &Space) + Sync) {
        self.run_with(tasks, |task, next, own| body(task, next, &own.space()));
    }

    fn run_with(&self, tasks: usize, body: impl Fn(usize, Option<usize>, &mut Own) + Sync) {
        let free = || self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let backwards = self.backwards.fetch_xor(true, Ordering::Relaxed);
        self.pool.sweep(tasks, backwards, |task| {
            let mut own = free().pop().expect("as many as there are threads");
            let next = if backwards { task.checked_sub(1) } else { Some(task + 1).filter(|next| *next < tasks) };
            body(task, next, &mut own);
            free().push(own);
        });
    }
}

/// The EMA of the weights, laid out as the weights are.
struct Ema {
    parameters: Buffer,
    statistics: Buffer,
}

/// Moves every value of an average toward the current value.
fn update_average(pool: &Pool, average: &mut [f32], current: &[f32], decay: f32) {
    let length = average.len().min(current.len());
    let shared = Shared(average.as_mut_ptr());
    pool.run(length.div_ceil(CHUNK), |task| {
        let (first, last) = (task * CHUNK, length.min((task + 1) * CHUNK));
        // SAFETY: first..last lies inside `average`, which this function borrows alone, and no other task has this chunk.
        let average = unsafe { std::slice::from_raw_parts_mut(shared.get().add(first), last - first) };
        for (a, w) in average.iter_mut().zip(&current[first..last]) {
            *a = decay * *a + (1.0 - decay) * w;
        }
    });
}

/// Trains and evaluates a network on the CPU.
pub struct Cpu {
    network: Network,
    joints: Vec<Joint>,
    /// Images that there is room for.
    batch: usize,
    tasks: Tasks,
    parameters: Buffer,
    gradients: Buffer,
    momentum: Buffer,
    statistics: Buffer,
    ema: Option<Ema>,
    layers: Vec<Layer>,
    head: HeadLayer,
    /// The images, pixel after pixel.
    images: Buffer,
    /// Every block's input, and the last one's output.
    z: Vec<Buffer>,
    /// Which of the window's values the stem's max pool took.
    pooled: Vec<u8>,
    /// Gradients of blocks' outputs (two, in turn), inside blocks (two, in turn), and of projections.
    outer: [Buffer; 2],
    inner: [Buffer; 2],
    projected: Buffer,
    /// Of the features.
    feature_gradient: Buffer,
    /// Weight gradients of the slices of one layer.
    slices: Buffer,
    /// Partial sums, task after task.
    partial: Vec<f64>,
    logits: Vec<f32>,
    /// Images of the last forward pass in training.
    trained: usize,
    /// Whether only the head is trained.
    frozen: bool,
    /// What is packed together after a step: a layer (the head comes last) and some of its input channels.
    packing: Vec<(usize, Range<usize>)>,
}

impl Cpu {
    /// An engine for batches of up to `batch` images, with parameters drawn from a seed.
    ///
    /// # Errors
    /// For a description that makes no sense, or no batch.
    pub fn new(network: Network, batch: usize, seed: u64, pool: Pool) -> Result<Self, NnError> {
        Self::with_kernels(network, batch, seed, pool, Simd::best(), Kernels::default())
    }

    /// With a level of instructions and kernels of one's choice.
    ///
    /// # Errors
    /// As [`new`](Self::new). A level that this CPU does not have is replaced by the best one.
    pub fn with_kernels(
        network: Network,
        batch: usize,
        seed: u64,
        pool: Pool,
        simd: Simd,
        kernels: Kernels,
    ) -> Result<Self, NnError> {
        const MOST: usize = 1 << 16;
        network.check()?;
        if !(1..=MOST).contains(&batch) {
            return Err(NnError::Batch { got: batch, most: MOST });
        }
        let bytes = Self::bytes(&network, batch, pool.threads());
        if bytes > MOST_BYTES {
            return Err(NnError::Memory { batch, bytes });
        }
        let simd = if Simd::available().contains(&simd) { simd } else { Simd::best() };
        let method = match kernels {
            Kernels::Direct => Method::Direct,
            Kernels::Winograd2 => Method::Winograd2,
            Kernels::Winograd4 => Method::Winograd4,
        };
        let (descriptions, joints) = network.layers();
        let (mut parameters, mut statistics) = (0, 0);
        let take = |from: &mut usize, number: usize| {
            *from += number;
            *from - number..*from
        };
        let mut room = Room::default();
        let mut layers = Vec::new();
        for (number, layer) in descriptions.iter().enumerate() {
            let geometry = Geometry {
                inputs: if number == 0 { layer.inputs } else { stored(layer.inputs) },
                outputs: stored(layer.outputs),
                kernel: layer.kernel,
                stride: layer.stride,
                pad: layer.pad,
                size: layer.size,
            };
            let convolution = Convolution::new(geometry, method, batch);
            room = room.max(convolution.room());
            let (channels, [height, width]) = (geometry.outputs, geometry.out());
            let packed = convolution.packed();
            layers.push(Layer {
                real: [layer.inputs, layer.outputs],
                task: batch.div_ceil(TASKS).next_multiple_of(convolution.forward.group),
                slice: slice(&convolution, batch),
                weight: take(&mut parameters, geometry.weights()),
                gamma: take(&mut parameters, channels),
                beta: take(&mut parameters, channels),
                mean: take(&mut statistics, channels),
                variance: take(&mut statistics, channels),
                y: Buffer::new(batch * height * width * channels),
                forward: Buffer::new(packed),
                // the images' gradient is nobody's wish
                back: Buffer::new(if number == 0 { 0 } else { packed }),
                coefficients: Buffer::new(6 * channels),
                inverse: vec![0.0; channels],
                convolution,
            });
        }
        let head = {
            let (inputs, outputs) = (stored(network.features()), stored(network.classes));
            let geometry = Geometry { inputs, outputs, kernel: 1, stride: 1, pad: 0, size: [1, 1] };
            let convolution = Convolution::new(geometry, Method::Direct, batch);
            room = room.max(convolution.room());
            let mut k = Buffer::new(3 * outputs);
            k[..outputs].fill(1.0);
            HeadLayer {
                weight: take(&mut parameters, geometry.weights()),
                bias: take(&mut parameters, outputs),
                forward: Buffer::new(convolution.packed()),
                back: Buffer::new(convolution.packed()),
                features: Buffer::new(batch * inputs),
                lengths: vec![0.0; batch],
                directions: Buffer::new(geometry.weights()),
                weight_lengths: vec![0.0; outputs],
                logits: Buffer::new(batch * outputs),
                k,
                convolution,
            }
        };
        let value = |size: [usize; 2], channels: usize| batch * size[0] * size[1] * channels;
        let stem = &layers[0];
        let stem_out = stem.convolution.geometry.out();
        let first = if network.stem.pool { pooled(stem_out) } else { stem_out };
        let mut z = vec![Buffer::new(value(first, stem.channels()))];
        let (mut outer, mut inner, mut projected) = (value(stem_out, stem.channels()), 0, 0);
        for joint in &joints {
            let (last, before) = joint.layers.split_last().expect("a block has layers");
            let last = &layers[*last];
            z.push(Buffer::new(value(last.convolution.geometry.out(), last.channels())));
            outer = outer.max(last.y.len());
            inner = before.iter().map(|i| layers[*i].y.len()).fold(inner, usize::max);
            if let Some(projection) = joint.projection {
                let Geometry { inputs, size, .. } = layers[projection].convolution.geometry;
                projected = projected.max(value(size, inputs));
            }
        }
        // the last layer's frame, and a row of the head's gradient
        let last = layers.last().map_or([1, 1], |layer| layer.convolution.geometry.out());
        room.input = room.input.max(last[0] * last[1] * stored(network.features()));
        let slices = layers
            .iter()
            .map(|layer| batch.div_ceil(layer.slice) * layer.convolution.geometry.weights())
            .fold(head.convolution.geometry.weights() * batch.div_ceil(head.convolution.forward.group), usize::max);
        let tasks_most = batch;
        let sides = |convolution: &Convolution| convolution.geometry.inputs.max(convolution.geometry.outputs);
        let channels_most =
            layers.iter().map(|layer| sides(&layer.convolution)).fold(sides(&head.convolution), usize::max);
        let mut packing = Vec::new();
        let geometries = layers.iter().map(|layer| layer.convolution.geometry).chain([head.convolution.geometry]);
        for (number, geometry) in geometries.enumerate() {
            let step = if geometry.inputs.is_multiple_of(CHANNELS) { CHANNELS } else { geometry.inputs };
            for first in (0..geometry.inputs).step_by(step) {
                packing.push((number, first..first + step));
            }
        }
        // values of one image where they are most
        let image = layers.iter().map(|layer| layer.y.len() / batch).max().unwrap_or(0);
        let own = (0..pool.threads()).map(|_| Own::new(&room, EVALUATED.min(batch) * image)).collect();
        let mut engine = Self {
            batch,
            tasks: Tasks { pool, simd, own: Mutex::new(own), backwards: AtomicBool::new(false) },
            parameters: Buffer::new(parameters),
            gradients: Buffer::new(parameters),
            momentum: Buffer::new(parameters),
            statistics: Buffer::new(statistics),
            ema: None,
            images: Buffer::new(batch * network.size[0] * network.size[1] * network.channels),
            z,
            pooled: vec![0; if network.stem.pool { value(first, stem.channels()) } else { 0 }],
            outer: [Buffer::new(outer), Buffer::new(outer)],
            inner: [Buffer::new(inner), Buffer::new(if joints.iter().any(|j| j.layers.len() > 2) { inner } else { 0 })],
            projected: Buffer::new(projected),
            feature_gradient: Buffer::new(batch * stored(network.features())),
            slices: Buffer::new(slices),
            partial: vec![0.0; 3 * tasks_most * channels_most],
            logits: Vec::with_capacity(batch * network.classes),
            trained: 0,
            frozen: false,
            packing,
            layers,
            head,
            joints,
            network,
        };
        for layer in &engine.layers {
            engine.statistics[layer.variance.clone()].fill(1.0);
        }
        let initial = engine.network.initial(seed);
        engine.set_tensors(Kind::Parameters, &initial)?;
        Ok(engine)
    }

    /// About how many bytes an engine takes: what is kept of a batch, three gradients, the parameters, and what each thread needs.
    #[must_use]
    pub fn bytes(network: &Network, batch: usize, threads: usize) -> u64 {
        let value = |size: [usize; 2], channels: usize| (size[0] * size[1] * stored(channels)) as u64;
        let (layers, joints) = network.layers();
        let outputs = || layers.iter().map(|layer| value(layer.out(), layer.outputs));
        let blocks = joints.iter().filter_map(|joint| joint.layers.last());
        let kept = outputs().sum::<u64>() + blocks.map(|i| value(layers[*i].out(), layers[*i].outputs)).sum::<u64>();
        let image = (network.channels * network.size[0] * network.size[1]) as u64;
        let one = kept + 3 * outputs().max().unwrap_or(0) + 2 * image;
        let parameters = 12 * network.parameter_count() as u64;
        // a thread's frames and tiles of a few images, and the transformed weights of a layer
        let windows = layers.iter().filter(|layer| layer.kernel > 1);
        let weights = windows.map(|layer| 36 * (stored(layer.inputs) * stored(layer.outputs)) as u64);
        let thread = weights.max().unwrap_or(0) + 7 * EVALUATED as u64 * outputs().max().unwrap_or(0);
        let all = (batch as u64).saturating_mul(one).saturating_add(parameters);
        all.saturating_add(thread.saturating_mul(threads as u64)).saturating_mul(4)
    }

    /// Images that there is room for.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Brings the parameters into the order that the kernels read.
    fn pack(&mut self) {
        let simd = self.tasks.simd;
        if let Head::Cosine { .. } = self.network.head {
            let weight = &self.parameters[self.head.weight.clone()];
            self.head.point(weight);
        }
        let parameters = Shared(self.parameters.as_ptr());
        let head = Shared((
            match self.network.head {
                Head::Linear => self.parameters[self.head.weight.clone()].as_ptr(),
                Head::Cosine { .. } => self.head.directions.as_ptr(),
            },
            self.head.forward.as_mut_ptr(),
            self.head.back.as_mut_ptr(),
        ));
        let packed: Vec<Shared<[*mut f32; 2]>> = self
            .layers
            .iter_mut()
            .enumerate()
            .map(|(i, layer)| {
                let back = if i == 0 { std::ptr::null_mut() } else { layer.back.as_mut_ptr() };
                Shared([layer.forward.as_mut_ptr(), back])
            })
            .collect();
        let (layers, packing, head_layer) = (&self.layers, &self.packing, &self.head);
        self.tasks.pool.run(packing.len(), |task| {
            let (number, rows) = packing[task].clone();
            // SAFETY: the buffers have the sizes that the convolution asked for, and no two tasks have the same rows.
            unsafe {
                match layers.get(number) {
                    Some(layer) => {
                        let [forward, back] = packed[number].get();
                        let w = parameters.get().add(layer.weight.start);
                        layer.convolution.pack(simd, w, rows, forward, back);
                    }
                    None => {
                        let (w, forward, back) = head.get();
                        head_layer.convolution.pack(simd, w, rows, forward, back);
                    }
                }
            }
        });
    }

    /// Runs a layer's convolution, and turns the batch's statistics into its batch norm.
    fn layer_forward(&mut self, number: usize, source: Source, images: usize) {
        let layer = &mut self.layers[number];
        // some groups to a task, so that one can be asked for ahead of the next
        let (channels, group) = (layer.channels(), layer.task);
        let tasks = images.div_ceil(group);
        let mean = self.statistics[layer.mean.clone()].as_ptr();
        let partial = &mut self.partial[..tasks * 2 * channels];
        partial.fill(0.0);
        let shared = Shared((source, layer.y.as_mut_ptr(), layer.forward.as_ptr(), mean, partial.as_mut_ptr()));
        let (convolution, simd) = (&layer.convolution, self.tasks.simd);
        self.tasks.run(tasks, |task, next, space| {
            let (source, y, weights, mean, partial) = shared.get();
            let after = next.map(|next| next * group);
            let images = task * group..images.min((task + 1) * group);
            // SAFETY: every task has its own images of y and its own sums, and nobody else's space.
            unsafe {
                let sums = Some((mean, partial.add(task * 2 * channels)));
                convolution.forward(simd, &Forward { source, images, after, near: false, weights, y, sums }, space);
            }
        });
        let [height, width] = layer.convolution.geometry.out();
        let number = (images * height * width) as f64;
        for c in 0..channels {
            let (at_mean, at_variance) = (layer.mean.start + c, layer.variance.start + c);
            let add = |row: usize| (0..tasks).map(|t| self.partial[(2 * t + row) * channels + c]).sum::<f64>();
            let (sum, squares) = (add(0) / number, add(1) / number);
            let mean = f64::from(self.statistics[at_mean]) + sum;
            let variance = (squares - sum * sum).max(0.0);
            let unbiased = variance * number / (number - 1.0).max(1.0);
            let mix = |old: &mut f32, new: f64| *old = (1.0 - NEWEST) * *old + NEWEST * new as f32;
            mix(&mut self.statistics[at_mean], mean);
            mix(&mut self.statistics[at_variance], unbiased);
            layer.set_norm(c, mean, variance, &self.parameters);
        }
    }

    /// What the block with this number reads, or with the number of blocks the head: it also keeps its sum as z.
    fn joined(&mut self, block: usize) -> Source {
        let keep = self.z[block].as_mut_ptr();
        let Some(before) = block.checked_sub(1) else {
            return self.joined_at(block, [self.layers[0].y.as_ptr(), std::ptr::null(), std::ptr::null()], keep);
        };
        let joint = &self.joints[before];
        let last = self.layers[joint.layers[joint.layers.len() - 1]].y.as_ptr();
        let projected = joint.projection.map_or(std::ptr::null(), |projection| self.layers[projection].y.as_ptr());
        self.joined_at(block, [last, self.z[before].as_ptr(), projected], keep)
    }

    /// The same from the outputs of the block before it: its last layer's, its input, and its projection's.
    fn joined_at(&self, block: usize, [y, z, projected]: [*const f32; 3], keep: *mut f32) -> Source {
        let Some(before) = block.checked_sub(1) else {
            return Source::Joined { normed: self.layers[0].normed_at(y), shortcut: Shortcut::Nothing, keep };
        };
        let joint = &self.joints[before];
        let (first, last) = (&self.layers[joint.layers[0]], &self.layers[joint.layers[joint.layers.len() - 1]]);
        let Geometry { inputs, size, .. } = first.convolution.geometry;
        let shortcut = match joint.projection {
            Some(projection) => Shortcut::Normed(self.layers[projection].normed_at(projected)),
            None if (first.real[0], size) == (last.real[1], last.convolution.geometry.out()) => Shortcut::Same(z),
            None => {
                let (channels, before, step) = self.padding(before);
                Shortcut::Strided { z, size, stored: inputs, channels, before, step }
            }
        };
        Source::Joined { normed: last.normed_at(y), shortcut, keep }
    }

    /// Channels that a padded shortcut takes, the zeros before them, and its stride.
    fn padding(&self, block: usize) -> (usize, usize, usize) {
        let joint = &self.joints[block];
        let (first, last) = (&self.layers[joint.layers[0]], &self.layers[joint.layers[joint.layers.len() - 1]]);
        let ([inputs, _], [_, outputs]) = (first.real, last.real);
        let step = joint.layers.iter().map(|layer| self.layers[*layer].convolution.geometry.stride).product();
        (inputs, (outputs - inputs) / 2, step)
    }

    /// The last block's output, as features are made of it.
    fn last_frame(&self) -> Frame {
        let last = &self.layers[*self.joints.last().expect("a network has blocks").layers.last().expect("layers")];
        let ([height, width], channels) = (last.convolution.geometry.out(), last.channels());
        Frame { height, width, channels, row: width * channels }
    }

    /// The features of a training pass.
    fn features(&mut self, images: usize) {
        let source = self.joined(self.joints.len());
        let (frame, simd) = (self.last_frame(), self.tasks.simd);
        let channels = frame.channels;
        let cosine = matches!(self.network.head, Head::Cosine { .. });
        let shared = Shared((source, self.head.features.as_mut_ptr(), self.head.lengths.as_mut_ptr()));
        self.tasks.run(images, |n, _, space| {
            let (source, features, lengths) = shared.get();
            // SAFETY: every task has its own image and features.
            unsafe {
                let features = features.add(n * channels);
                average_at(simd, &source, n, &frame, space.input, features);
                if cosine {
                    let features = std::slice::from_raw_parts_mut(features, channels);
                    *lengths.add(n) = normalise(features);
                }
            }
        });
    }

    /// The logits from the features.
    fn head_forward(&mut self, images: usize) {
        let (head, simd) = (&mut self.head, self.tasks.simd);
        let (classes, group) = (head.convolution.geometry.outputs, head.convolution.forward.group);
        let source = Source::Plain(head.features.as_ptr());
        let shared = Shared((source, head.logits.as_mut_ptr(), head.forward.as_ptr()));
        let convolution = &head.convolution;
        self.tasks.run(images.div_ceil(group), |task, _, space| {
            let (source, y, weights) = shared.get();
            let images = task * group..images.min((task + 1) * group);
            // SAFETY: every task has its own images.
            unsafe {
                convolution.forward(
                    simd,
                    &Forward { source, images, after: None, near: false, weights, y, sums: None },
                    space,
                );
            };
        });
        let bias = &self.parameters[head.bias.clone()];
        self.logits.clear();
        for row in head.logits.chunks_exact(classes).take(images) {
            let row = row.iter().zip(bias).take(self.network.classes);
            match self.network.head {
                Head::Linear => self.logits.extend(row.map(|(x, b)| x + b)),
                Head::Cosine { scale } => self.logits.extend(row.map(|(x, _)| scale * x)),
            }
        }
    }

    /// Backward through the head: gradients of its parameters, and of the features.
    fn head_backward(&mut self, gradient: &[f32], images: usize) {
        let (simd, classes) = (self.tasks.simd, self.network.classes);
        let head = &mut self.head;
        let (inputs, outputs) = (head.convolution.geometry.inputs, head.convolution.geometry.outputs);
        // the logits' place takes their gradient
        let scale = match self.network.head {
            Head::Linear => 1.0,
            Head::Cosine { scale } => scale,
        };
        for (to, from) in head.logits.chunks_exact_mut(outputs).zip(gradient.chunks_exact(classes)) {
            to.fill(0.0);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = scale * from);
        }
        let bias = &mut self.gradients[head.bias.clone()];
        bias.fill(0.0);
        if self.network.head == Head::Linear {
            for (c, sum) in bias.iter_mut().take(classes).enumerate() {
                *sum = gradient.iter().skip(c).step_by(classes).map(|g| f64::from(*g)).sum::<f64>() as f32;
            }
        }
        let group = head.convolution.forward.group;
        let tasks = images.div_ceil(group);
        let (source, g) = (Source::Plain(head.features.as_ptr()), head.logits.as_ptr());
        let shared = Shared((
            source,
            Back { g, y: g, k: head.k.as_ptr() },
            head.back.as_ptr(),
            self.slices.as_mut_ptr(),
            self.feature_gradient.as_mut_ptr(),
            self.partial.as_mut_ptr(),
        ));
        let convolution = &head.convolution;
        self.tasks.run(tasks, |task, _, space| {
            let (source, back, weights, slices, out, partial) = shared.get();
            let images = task * group..images.min((task + 1) * group);
            let sink = Sink::Plain { shortcut: ShortcutBack::Nothing, out };
            // SAFETY: every task has its own images, slice and sums (which a plain sink leaves as they are).
            unsafe {
                let (dw, sums) = (slices.add(task * convolution.geometry.weights()), partial.add(3 * task * inputs));
                convolution.backward(
                    simd,
                    &Backward { source, back, images, after: None, weights, dw, sink, sums },
                    space,
                );
            }
        });
        let dw = self.gradients[head.weight.clone()].as_mut_ptr();
        // SAFETY: one thread, all rows.
        unsafe { convolution.collect(simd, self.slices.as_ptr(), tasks, 0..inputs, dw) };
        if let Head::Cosine { .. } = self.network.head {
            head.turn_back(&mut self.gradients[head.weight.clone()]);
            for n in 0..images {
                let at = n * inputs..(n + 1) * inputs;
                turn_back(&head.features[at.clone()], head.lengths[n], &mut self.feature_gradient[at]);
            }
        }
    }

    /// The same gradient at every pixel of the last block's output.
    fn spread_back(&mut self, images: usize) {
        let simd = self.tasks.simd;
        let joint = self.joints.last().expect("a network has blocks");
        let last = &self.layers[*joint.layers.last().expect("layers")];
        let [height, width] = last.convolution.geometry.out();
        let channels = last.channels();
        let frame = Frame { height, width, channels, row: 0 };
        let sink = Sink::Joined {
            shortcut: ShortcutBack::Nothing,
            z: self.z[self.joints.len()].as_ptr(),
            centred: last.centred(),
            second: joint.projection.map(|projection| self.layers[projection].centred()),
            out: self.outer[0].as_mut_ptr(),
        };
        self.partial[..images * 3 * channels].fill(0.0);
        let shared = Shared((sink, self.feature_gradient.as_ptr(), self.partial.as_mut_ptr()));
        self.tasks.run(images, |n, _, space| {
            let (sink, gradient, partial) = shared.get();
            // SAFETY: every task has its own image and sums.
            unsafe {
                let gradient = std::slice::from_raw_parts(gradient.add(n * channels), channels);
                spread_at(simd, &sink, n, &frame, gradient, space, partial.add(3 * n * channels));
            }
        });
    }

    /// What the sums of g, and of g (y - mean) in `row`, mean for a layer's batch norm.
    fn fold_back(&mut self, number: usize, tasks: usize, row: usize, images: usize) {
        let layer = &mut self.layers[number];
        let channels = layer.channels();
        let [height, width] = layer.convolution.geometry.out();
        let number = (images * height * width) as f64;
        for c in 0..channels {
            let add = |row: usize| (0..tasks).map(|t| self.partial[(3 * t + row) * channels + c]).sum::<f64>();
            let (sum, product) = (add(0), add(row));
            let inverse = layer.inverse[c];
            let mean = f64::from(layer.coefficients[MEAN * channels + c]);
            let a = f64::from(self.parameters[layer.gamma.start + c]) * inverse;
            self.gradients[layer.gamma.start + c] = (product * inverse) as f32;
            self.gradients[layer.beta.start + c] = sum as f32;
            let k1 = -a * inverse * inverse * product / number;
            let k = &mut layer.coefficients[K * channels..];
            k[c] = a as f32;
            k[channels + c] = k1 as f32;
            k[2 * channels + c] = (-a * sum / number - k1 * mean) as f32;
        }
    }

    /// Runs a layer's backward pass and sums its weight gradients; returns the number of tasks, whose sums are in `partial`.
    fn layer_backward(&mut self, number: usize, source: Source, g: *const f32, sink: Sink, images: usize) -> usize {
        let layer = &self.layers[number];
        let (convolution, simd, slice) = (&layer.convolution, self.tasks.simd, layer.slice);
        let inputs = convolution.geometry.inputs;
        let tasks = images.div_ceil(slice);
        self.partial[..3 * tasks * inputs].fill(0.0);
        let shared = Shared((
            source,
            layer.back(g),
            layer.back.as_ptr(),
            self.slices.as_mut_ptr(),
            sink,
            self.partial.as_mut_ptr(),
        ));
        self.tasks.run(tasks, |task, next, space| {
            let (source, back, weights, slices, sink, partial) = shared.get();
            let images = task * slice..images.min((task + 1) * slice);
            let after = next.map(|next| next * slice);
            // SAFETY: every task has its own images, slice and sums.
            unsafe {
                let (dw, sums) = (slices.add(task * convolution.geometry.weights()), partial.add(3 * task * inputs));
                convolution.backward(simd, &Backward { source, back, images, after, weights, dw, sink, sums }, space);
            }
        });
        let shared = Shared((self.slices.as_ptr(), self.gradients[layer.weight.clone()].as_mut_ptr()));
        let step = if inputs.is_multiple_of(CHANNELS) { CHANNELS } else { inputs };
        self.tasks.pool.run(inputs / step, |task| {
            let (from, dw) = shared.get();
            // SAFETY: every task has its own rows of the gradient.
            unsafe { convolution.collect(simd, from, tasks, task * step..(task + 1) * step, dw) };
        });
        tasks
    }

    /// Takes the caller's images, which have channel after channel.
    fn read(&mut self, images: &[f32]) -> Result<usize, NnError> {
        let Network { channels, size: [height, width], .. } = self.network;
        let one = channels * height * width;
        let number = images.len() / one;
        if images.len() != number * one {
            return Err(NnError::Images { got: images.len(), channels, height, width });
        }
        if number == 0 || number > self.batch {
            return Err(NnError::Batch { got: number, most: self.batch });
        }
        let mut tasks: Vec<(&[f32], &mut [f32], bool)> = images
            .chunks_exact(one)
            .zip(self.images.chunks_exact_mut(one))
            .map(|(from, to)| (from, to, true))
            .collect();
        self.tasks.pool.each(&mut tasks, |_, (from, to, finite)| {
            for (c, plane) in from.chunks_exact(height * width).enumerate() {
                for (x, to) in plane.iter().zip(to.iter_mut().skip(c).step_by(channels)) {
                    *finite &= x.is_finite();
                    *to = *x;
                }
            }
        });
        if let Some(image) = tasks.iter().position(|(_, _, finite)| !finite) {
            let value = tasks[image].0.iter().copied().find(|x| !x.is_finite()).unwrap_or(f32::NAN);
            return Err(NnError::NotFinite { what: "images", image, value });
        }
        Ok(number)
    }

    /// Where a parameter's values are in the flat ones: stored shape, in PyTorch's order of the network's parameters.
    fn parameter_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let (descriptions, _) = self.network.layers();
        for (layer, description) in self.layers.iter().zip(&descriptions) {
            let Geometry { inputs, outputs, kernel, .. } = layer.convolution.geometry;
            places.push(Place {
                start: layer.weight.start,
                real: [kernel * kernel, description.inputs, description.outputs],
                stored: [inputs, outputs],
            });
            for range in [&layer.gamma, &layer.beta] {
                places.push(Place { start: range.start, real: [1, 1, description.outputs], stored: [1, outputs] });
            }
        }
        let Geometry { inputs, outputs, .. } = self.head.convolution.geometry;
        let (features, classes) = (self.network.features(), self.network.classes);
        places.push(Place { start: self.head.weight.start, real: [1, features, classes], stored: [inputs, outputs] });
        if self.network.head == Head::Linear {
            places.push(Place { start: self.head.bias.start, real: [1, 1, classes], stored: [1, outputs] });
        }
        places
    }

    fn places(&self, kind: Kind) -> Vec<Place> {
        if kind.is_statistics() { self.statistic_places() } else { self.parameter_places() }
    }

    fn statistic_places(&self) -> Vec<Place> {
        let (descriptions, _) = self.network.layers();
        let each = |(layer, description): (&Layer, &crate::network::Layer)| {
            let stored = layer.channels();
            [&layer.mean, &layer.variance].map(|range| Place {
                start: range.start,
                real: [1, 1, description.outputs],
                stored: [1, stored],
            })
        };
        self.layers.iter().zip(&descriptions).flat_map(each).collect()
    }
}

/// A tensor inside a flat buffer.
struct Place {
    start: usize,
    /// Taps, inputs, outputs.
    real: [usize; 3],
    /// Inputs and outputs as they are stored.
    stored: [usize; 2],
}

impl Place {
    /// Places of the values in PyTorch's order: outputs, inputs, taps.
    fn each(&self) -> impl Iterator<Item = usize> {
        let ([taps, inputs, outputs], [stored_inputs, stored_outputs], start) = (self.real, self.stored, self.start);
        (0..outputs).flat_map(move |o| {
            (0..inputs)
                .flat_map(move |i| (0..taps).map(move |tap| start + (tap * stored_inputs + i) * stored_outputs + o))
        })
    }
}

/// Images in a slice of a layer: few slices, so that their sums take little memory and time.
fn slice(convolution: &Convolution, batch: usize) -> usize {
    let slices = (SLICE_VALUES / convolution.packed()).clamp(2, SLICES);
    batch.div_ceil(slices).next_multiple_of(convolution.backward.group)
}

impl Engine for Cpu {
    fn network(&self) -> &Network {
        &self.network
    }

    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        self.trained = 0;
        let number = self.read(images)?;
        if train && !self.frozen {
            self.layer_forward(0, Source::Plain(self.images.as_ptr()), number);
            if self.network.stem.pool {
                self.pool_forward(number);
            }
            for block in 0..self.joints.len() {
                let joint = self.joints[block].clone();
                let mut source = match block {
                    0 if self.network.stem.pool => Source::Plain(self.z[0].as_ptr()),
                    block => self.joined(block),
                };
                for layer in &joint.layers {
                    self.layer_forward(*layer, source, number);
                    source = Source::Active(self.layers[*layer].normed());
                }
                if let Some(projection) = joint.projection {
                    self.layer_forward(projection, Source::Plain(self.z[block].as_ptr()), number);
                }
            }
            self.features(number);
        } else {
            self.evaluate(number);
        }
        self.head_forward(number);
        self.trained = if train { number } else { 0 };
        Ok(&self.logits)
    }

    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        let images = self.trained;
        if images == 0 {
            return Err(NnError::NoForward);
        }
        let want = images * self.network.classes;
        if gradient.len() != want {
            return Err(NnError::Length { what: "gradient of the logits", got: gradient.len(), want });
        }
        self.head_backward(gradient, images);
        if self.frozen {
            self.trained = 0;
            return Ok(());
        }
        self.spread_back(images);
        let (mut tasks, mut current) = (images, 0);
        for block in (0..self.joints.len()).rev() {
            let joint = self.joints[block].clone();
            let (last, rest) = joint.layers.split_last().expect("a block has layers");
            self.fold_back(*last, tasks, 1, images);
            let g = self.outer[current].as_ptr();
            let z = Source::Plain(self.z[block].as_ptr());
            let mut shortcut = ShortcutBack::Same(g);
            if let Some(projection) = joint.projection {
                self.fold_back(projection, tasks, 2, images);
                let out = self.projected.as_mut_ptr();
                let sink = Sink::Plain { shortcut: ShortcutBack::Nothing, out };
                self.layer_backward(projection, z, g, sink, images);
                shortcut = ShortcutBack::Same(self.projected.as_ptr());
            } else {
                let (first, last) = (&self.layers[joint.layers[0]], &self.layers[*last]);
                let size = first.convolution.geometry.size;
                let (out, stored) = (last.convolution.geometry.out(), last.channels());
                if (first.real[0], size) != (last.real[1], out) {
                    let (_, before, step) = self.padding(block);
                    shortcut = ShortcutBack::Strided { g, size: out, stored, before, step };
                }
            }
            // inside the block, from its end to its beginning
            let (mut g, mut above) = (g, *last);
            for (i, layer) in rest.iter().rev().enumerate() {
                let out = self.inner[i % 2].as_mut_ptr();
                let below = &self.layers[*layer];
                let (source, sink) = (
                    Source::Active(below.normed()),
                    Sink::Active { normed: below.normed(), centred: below.centred(), out },
                );
                let tasks = self.layer_backward(above, source, g, sink, images);
                self.fold_back(*layer, tasks, 1, images);
                (g, above) = (out.cast_const(), *layer);
            }
            let out = self.outer[1 - current].as_mut_ptr();
            let sink = match block.checked_sub(1) {
                None if self.network.stem.pool => Sink::Plain { shortcut, out },
                before => {
                    let before = before.map(|before| &self.joints[before]);
                    let meets = before.map_or(0, |joint| joint.layers[joint.layers.len() - 1]);
                    let second = before.and_then(|joint| joint.projection).map(|p| self.layers[p].centred());
                    let centred = self.layers[meets].centred();
                    Sink::Joined { shortcut, z: self.z[block].as_ptr(), centred, second, out }
                }
            };
            tasks = self.layer_backward(above, z, g, sink, images);
            current = 1 - current;
        }
        if self.network.stem.pool {
            tasks = self.pool_backward(current, images);
            current = 1 - current;
        }
        self.fold_back(0, tasks, 1, images);
        let g = self.outer[current].as_ptr();
        self.layer_backward(0, Source::Plain(self.images.as_ptr()), g, Sink::Nothing, images);
        self.trained = 0;
        Ok(())
    }

    fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        self.trained = 0;
        self.gradients.fill(0.0);
    }

    fn gradients(&mut self) -> &mut [f32] {
        &mut self.gradients
    }

    fn step(&mut self, sgd: &Sgd) -> f64 {
        self.trained = 0;
        let mut squares = vec![0.0; self.gradients.len().div_ceil(CHUNK)];
        let gradients = &self.gradients;
        self.tasks.pool.each(&mut squares, |task, sum| {
            let chunk = gradients.iter().skip(task * CHUNK).take(CHUNK);
            *sum = chunk.map(|g| f64::from(*g).powi(2)).sum();
        });
        let norm = squares.iter().sum::<f64>().sqrt();
        if !norm.is_finite() {
            return norm;
        }
        let scale = match sgd.clip {
            Some(clip) if norm > f64::from(clip) => (f64::from(clip) / norm) as f32,
            _ => 1.0,
        };
        // the head comes last
        let first = if self.frozen { self.head.weight.start } else { 0 };
        let parts = self.parameters[first..].chunks_mut(CHUNK).zip(self.momentum[first..].chunks_mut(CHUNK));
        let mut tasks: Vec<_> = parts.zip(self.gradients[first..].chunks(CHUNK)).collect();
        self.tasks.pool.each(&mut tasks, |_, ((parameters, momentum), gradients)| {
            for ((w, m), g) in parameters.iter_mut().zip(momentum.iter_mut()).zip(*gradients) {
                let g = scale * g + sgd.weight_decay * *w;
                *m = sgd.momentum * *m + g;
                *w -= sgd.rate * *m;
            }
        });
        self.pack();
        norm
    }

    fn start_ema(&mut self) {
        let copy = |from: &Buffer| {
            let mut copy = Buffer::new(from.len());
            copy.copy_from_slice(from);
            copy
        };
        self.ema = Some(Ema { parameters: copy(&self.parameters), statistics: copy(&self.statistics) });
    }

    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        update_average(&self.tasks.pool, &mut ema.parameters, &self.parameters, decay);
        update_average(&self.tasks.pool, &mut ema.statistics, &self.statistics, decay);
        Ok(())
    }

    fn swap_ema(&mut self) -> Result<(), NnError> {
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        std::mem::swap(&mut ema.parameters, &mut self.parameters);
        std::mem::swap(&mut ema.statistics, &mut self.statistics);
        // what a forward pass left belongs to the old values
        self.trained = 0;
        self.pack();
        Ok(())
    }

    fn tensors(&self, kind: Kind) -> Vec<Vec<f32>> {
        let flat = match (kind, &self.ema) {
            (Kind::Parameters, _) => &self.parameters,
            (Kind::Gradients, _) => &self.gradients,
            (Kind::Momentum, _) => &self.momentum,
            (Kind::Statistics, _) => &self.statistics,
            (Kind::EmaParameters, Some(ema)) => &ema.parameters,
            (Kind::EmaStatistics, Some(ema)) => &ema.statistics,
            (Kind::EmaParameters | Kind::EmaStatistics, None) => return Vec::new(),
        };
        self.places(kind).iter().map(|place| place.each().map(|at| flat[at]).collect()).collect()
    }

    fn set_tensors(&mut self, kind: Kind, values: &[Vec<f32>]) -> Result<(), NnError> {
        let places = self.places(kind);
        let want = places.len();
        if values.len() != want {
            return Err(NnError::Length { what: "tensors", got: values.len(), want });
        }
        let tensors = if kind.is_statistics() { self.network.statistics() } else { self.network.parameters() };
        for (tensor, values) in tensors.into_iter().zip(values) {
            if values.len() != tensor.len() {
                return Err(NnError::Shape { name: tensor.name, got: vec![values.len()], want: tensor.shape });
            }
        }
        let flat = match kind {
            Kind::Parameters => &mut self.parameters,
            Kind::Gradients => &mut self.gradients,
            Kind::Momentum => &mut self.momentum,
            Kind::Statistics => &mut self.statistics,
            Kind::EmaParameters => &mut self.ema.as_mut().ok_or(NnError::NoEma)?.parameters,
            Kind::EmaStatistics => &mut self.ema.as_mut().ok_or(NnError::NoEma)?.statistics,
        };
        for (place, values) in places.iter().zip(values) {
            for (at, value) in place.each().zip(values) {
                flat[at] = *value;
            }
        }
        // what a forward pass left belongs to the old values
        self.trained = 0;
        if kind == Kind::Parameters {
            self.pack();
        }
        Ok(())
    }
}

impl Cpu {
    /// The features of an evaluation: batch norms are fixed, so that a few images go through the whole network at once and never
    /// leave the cache.
    fn evaluate(&mut self, images: usize) {
        for layer in &mut self.layers {
            for c in 0..layer.channels() {
                let (mean, variance) =
                    (self.statistics[layer.mean.start + c], self.statistics[layer.variance.start + c]);
                layer.set_norm(c, mean.into(), variance.into(), &self.parameters);
            }
        }
        let (features, lengths) = (self.head.features.as_mut_ptr(), self.head.lengths.as_mut_ptr());
        let (engine, frame, simd) = (&*self, self.last_frame(), self.tasks.simd);
        let Network { channels, size: [height, width], .. } = self.network;
        let one = height * width * channels;
        let cosine = matches!(self.network.head, Head::Cosine { .. });
        let shared = Shared((features, lengths));
        let group = EVALUATED.min(self.batch);
        self.tasks.run_with(images.div_ceil(group), |task, _, own| {
            let first = task * group;
            let number = group.min(images - first);
            let space = own.space();
            let [.., z0, z1, inner0, inner1, last, projected] = own.parts();
            let (mut z, mut old_z) = (z0, z1);
            let run = |layer: usize, source: Source, y: *mut f32| {
                let layer = &engine.layers[layer];
                let weights = layer.forward.as_ptr();
                // SAFETY: the values have room for the group's images at every layer, and are this task's own.
                unsafe {
                    layer.convolution.forward(
                        simd,
                        &Forward { source, images: 0..number, after: None, near: true, weights, y, sums: None },
                        &space,
                    );
                }
            };
            run(0, Source::Plain(engine.images[first * one..].as_ptr()), last);
            for (block, joint) in engine.joints.iter().enumerate() {
                let mut source = if block == 0 && engine.network.stem.pool {
                    let stem = &engine.layers[0];
                    for n in 0..number {
                        // SAFETY: both hold the group's images, one before and one behind the pool.
                        unsafe { stem.max_pool(last.cast_const(), n, z, std::ptr::null_mut()) };
                    }
                    Source::Plain(z)
                } else {
                    engine.joined_at(block, [last, old_z, projected], z)
                };
                for (i, layer) in joint.layers.iter().enumerate() {
                    let y = if i + 1 == joint.layers.len() { last } else { [inner0, inner1][i % 2] };
                    run(*layer, source, y);
                    source = Source::Active(engine.layers[*layer].normed_at(y));
                }
                if let Some(projection) = joint.projection {
                    run(projection, Source::Plain(z), projected);
                }
                (z, old_z) = (old_z, z);
            }
            let source = engine.joined_at(engine.joints.len(), [last, old_z, projected], z);
            for n in 0..number {
                let (features, lengths) = shared.get();
                // SAFETY: every task has its own images and features.
                unsafe {
                    let features = features.add((first + n) * frame.channels);
                    average_at(simd, &source, n, &frame, space.input, features);
                    if cosine {
                        *lengths.add(first + n) = normalise(std::slice::from_raw_parts_mut(features, frame.channels));
                    }
                }
            }
        });
    }

    /// The stem's max pool: 3 x 3, stride 2, of relu(a y + b).
    fn pool_forward(&mut self, images: usize) {
        let stem = &self.layers[0];
        let shared = Shared((self.z[0].as_mut_ptr(), self.pooled.as_mut_ptr()));
        self.tasks.pool.run(images, |n| {
            let (z, which) = shared.get();
            // SAFETY: every task has its own image.
            unsafe { stem.max_pool(stem.y.as_ptr(), n, z, which) };
        });
    }

    /// Back through the max pool and its ReLU; returns the number of tasks, whose sums are in `partial`.
    fn pool_backward(&mut self, current: usize, images: usize) -> usize {
        let stem = &self.layers[0];
        let ([height, width], channels) = (stem.convolution.geometry.out(), stem.channels());
        let [rows, columns] = pooled([height, width]);
        let (one, whole) = (rows * columns * channels, height * width * channels);
        let (y, a) = (&stem.y, &stem.coefficients[A * channels..]);
        let (b, mean) = (&stem.coefficients[B * channels..], &stem.coefficients[MEAN * channels..]);
        let [first, second] = &mut self.outer;
        let (g, out) = if current == 0 { (&*first, second) } else { (&*second, first) };
        let which = &self.pooled;
        self.partial[..3 * images * channels].fill(0.0);
        let mut tasks: Vec<(&mut [f32], &mut [f64])> =
            out.chunks_exact_mut(whole).zip(self.partial.chunks_exact_mut(3 * channels)).take(images).collect();
        self.tasks.pool.each(&mut tasks, |n, (out, sums)| {
            out.fill(0.0);
            let (g, which) = (&g[n * one..][..one], &which[n * one..][..one]);
            for row in 0..rows {
                for column in 0..columns {
                    for c in 0..channels {
                        let at = (row * columns + column) * channels + c;
                        let tap = usize::from(which[at]);
                        let (to_row, to_column) = (2 * row + tap / 3 - 1, 2 * column + tap % 3 - 1);
                        out[(to_row * width + to_column) * channels + c] += g[at];
                    }
                }
            }
            let y = &y[n * whole..][..whole];
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
        });
        images
    }
}

dispatch!(unsafe fn average_at(source: &Source, n: usize, frame: &Frame, scratch: *mut f32, features: *mut f32) = average);
dispatch!(unsafe fn spread_at(sink: &Sink, n: usize, frame: &Frame, gradient: &[f32], space: &Space, sums: *mut f64) = spread);

/// The mean over an image's pixels.
#[inline(always)]
unsafe fn average<I: Isa>(source: &Source, n: usize, frame: &Frame, scratch: *mut f32, features: *mut f32) {
    let &Frame { height, width, channels, .. } = frame;
    // SAFETY: the caller's scratch is good for an image, and `features` for its channels.
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

/// The gradient of the mean: the same at every pixel.
#[inline(always)]
unsafe fn spread<I: Isa>(sink: &Sink, n: usize, frame: &Frame, gradient: &[f32], space: &Space, sums: *mut f64) {
    let &Frame { height, width, channels, .. } = frame;
    let scale = 1.0 / (height * width) as f32;
    // SAFETY: the caller's space is good for an image's row, `sums` for three values per channel.
    unsafe {
        for x in 0..width {
            for (c, g) in gradient.iter().enumerate() {
                *space.input.add(x * channels + c) = scale * g;
            }
        }
        drain::<I>(sink, n, frame, space.input, space.sums, sums);
    }
}
