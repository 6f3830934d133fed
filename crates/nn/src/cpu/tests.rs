//! An engine whose tensors share memory computes the bits of one in which every tensor has a place of its own.

use equipoise_pool::Pool;
use equipoise_random::Draws;
use equipoise_simd::{Bf16, SimdLevel};

use super::CpuOf;
use crate::engine::{Engine, Optimizer, TensorKind};
use crate::kernel::convolution::ConvolutionAlgorithm;
use crate::kernel::value::Activation;
use crate::network::{Architecture, Network, Stage, Stem};

/// Images of a batch, at most: enough for more than one slice.
const MOST: usize = 34;
/// Images of most batches.
const BATCH: usize = 5;

/// Two engines that do the same.
struct Pair<T> {
    engines: [CpuOf<T>; 2],
    values: usize,
    draws: Draws,
    position: u64,
}

impl<T: Activation> Pair<T> {
    fn new(architecture: Architecture, size: [usize; 2], algorithm: ConvolutionAlgorithm) -> Self {
        Self::of(&Network::new(architecture, 3, size, 7).expect("valid"), algorithm)
    }

    fn of(network: &Network, algorithm: ConvolutionAlgorithm) -> Self {
        let values = network.channels * network.size[0] * network.size[1];
        let engines = [true, false].map(|shares_memory| {
            let (pool, kernels) = (Pool::new(2).expect("threads"), (SimdLevel::default(), algorithm));
            CpuOf::build_with(network.clone(), MOST, 3, pool, kernels, None, shares_memory).expect("valid")
        });
        Self { engines, values, draws: Draws::new(5, 0, 0), position: 0 }
    }

    fn normals(&mut self, number: usize) -> Vec<f32> {
        let first = self.position;
        self.position += 2 * number as u64;
        (0..number as u64).map(|i| self.draws.normal(first + 2 * i) as f32).collect()
    }

    /// Does something with both engines and compares what they have afterwards.
    fn same<R: PartialEq + std::fmt::Debug>(&mut self, what: &str, action: impl Fn(&mut CpuOf<T>) -> R) {
        let [shared, own] = &mut self.engines;
        assert!(action(shared) == action(own), "{what}: other results");
        let [shared, own] = [&*shared, &*own];
        for (name, a, b) in [
            ("parameters", &shared.parameters, &own.parameters),
            ("gradients", &shared.gradients, &own.gradients),
            ("statistics", &shared.statistics, &own.statistics),
        ] {
            assert!(a.iter().zip(&b[..]).all(|(a, b)| a.to_bits() == b.to_bits()), "{what}: other {name}");
        }
    }

    fn forward(&mut self, images: usize, train: bool) {
        let images = self.normals(images * self.values);
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        self.same("forward", |engine| bits(engine.forward(&images, train).expect("fits")));
    }

    fn backward(&mut self, images: usize) {
        let gradient = self.normals(images * 7);
        self.same("backward", |engine| engine.backward(&gradient).expect("fits"));
    }

    fn step(&mut self) {
        let sgd = Optimizer::sgd(0.05, 0.9, 1e-4);
        self.same("step", |engine| engine.step(&sgd).expect("finite").to_bits());
    }

    fn train(&mut self, images: usize) {
        self.forward(images, true);
        self.backward(images);
        self.step();
    }

    /// All that an engine can do, in an order in which memory that was used for one thing is used for another.
    fn do_everything(&mut self) {
        self.train(BATCH);
        self.train(3);
        // evaluations between passes, twice with the same weights
        self.forward(4, true);
        self.forward(2, false);
        self.forward(BATCH, false);
        self.train(BATCH);
        self.forward(1, false);
        // weights changed between an evaluation and training
        let images = self.normals(2 * self.values);
        self.same("EMA", |engine| {
            engine.start_ema().expect("on the CPU");
            engine.set_tensors(TensorKind::Statistics, &engine.tensors(TensorKind::Statistics)?)
        });
        self.train(2);
        self.same("EMA", |engine| engine.update_ema(0.5));
        self.same("EMA", Engine::swap_ema);
        self.forward(3, false);
        self.same("statistics", |engine| engine.estimate_statistics(&images, 0.5));
        self.forward(3, false);
        self.same("EMA", Engine::swap_ema);
        self.forward(3, false);
        self.train(4);
        self.same("weights", |engine| {
            let mut weights = engine.tensors(TensorKind::Parameters)?;
            weights.iter_mut().flatten().for_each(|w| *w *= 0.75);
            engine.set_tensors(TensorKind::Parameters, &weights)
        });
        self.forward(2, false);
        // sharpness-aware minimization
        self.forward(BATCH, true);
        self.backward(BATCH);
        self.same("ascent", |engine| engine.ascend(0.05).expect("finite").to_bits());
        self.train(BATCH);
        // a frozen backbone, whose head is trained between evaluations
        self.same("frozen", |engine| engine.freeze_backbone(true));
        self.train(BATCH);
        self.train(2);
        self.forward(4, false);
        self.same("frozen", |engine| engine.freeze_backbone(false));
        self.same("frozen", |engine| engine.freeze_batch_norm(true));
        self.train(3);
    }
}

#[test]
fn memory_is_not_part_of_results() {
    use Architecture::{ResNet8, ResNet18, ResNet32x4, ResNet34, ResNet50};
    use ConvolutionAlgorithm::{Direct, Tiles, Winograd};
    let mut small = Pair::<f32>::new(ResNet8, [9, 8], Winograd);
    small.do_everything();
    small.train(MOST);
    Pair::<Bf16>::new(ResNet18, [17, 16], Winograd).train(MOST);
    Pair::<f32>::new(ResNet32x4, [8, 8], Direct).train(BATCH);
    Pair::<f32>::new(ResNet18, [40, 32], Winograd).do_everything();
    Pair::<f32>::new(ResNet34, [33, 32], Winograd).train(BATCH);
    Pair::<f32>::new(ResNet50, [48, 40], Winograd).train(BATCH);
    Pair::<Bf16>::new(ResNet50, [40, 48], Winograd).do_everything();
    Pair::<Bf16>::new(ResNet18, [32, 32], Tiles).train(BATCH);
}

/// Bottlenecks whose widening convolutions have so many weights that they are packed right before each pass, in the chain whose
/// outputs would be recomputed otherwise.
#[test]
fn wide_bottlenecks_keep_their_outputs() {
    let mut network = Network::new(Architecture::ResNet50, 3, [8, 8], 7).expect("valid");
    network.stages = [(2, 224, 1), (1, 224, 2)].map(|(blocks, width, stride)| Stage { blocks, width, stride }).to_vec();
    network.stem = Stem { width: 16, kernel: 3, stride: 1, pool: false };
    let mut pair = Pair::<f32>::of(&network, ConvolutionAlgorithm::Direct);
    pair.train(BATCH);
    pair.train(3);
}
