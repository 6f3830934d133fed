//! Training works: small loops over the engine and a criterion.

use equipoise_criterion::{Batch, Config, Id, Output, Preset, Workspace};
use equipoise_data::acquire::embedded::fashion_mini;
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::sampler::{Sampler, SamplerKind, Shard};
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::{Pixels, Split};
use equipoise_nn::{Architecture, ConvolutionAlgorithm, Cpu, Engine, Network, Optimizer};
use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

const BATCH: usize = 64;

struct Run {
    engine: Cpu,
    policy: SmallTransform,
    pool: Pool,
    /// Mean loss of every epoch.
    losses: Vec<f64>,
}

fn pixels(part: &Split) -> &Pixels {
    part.images.pixels().expect("in memory")
}

/// Trains on some places of a part with softmax; the rate falls linearly.
fn train(part: &Split, places: &[u32], epochs: u64, seed: u64, augment: bool, kernels: ConvolutionAlgorithm) -> Run {
    let pool = Pool::new(2).expect("threads");
    let network = Network::new(Architecture::ResNet8, 1, [28, 28], 10).expect("known");
    let mut engine = Cpu::with_kernels(network, BATCH, seed, pool.clone(), SimdLevel::best(), kernels).expect("valid");
    let images = pixels(part);
    let normalize = Normalize::of(images, places);
    let plain = SmallTransform::plain(normalize.clone());
    let augmentation = Augmentation { crop_padding: 2, ..Augmentation::default() };
    let policy = if augment { SmallTransform { augmentation, normalize } } else { plain.clone() };
    let labels: Vec<u32> = places.iter().map(|at| part.labels[*at as usize]).collect();
    let mut criterion = Config::from(Id::Softmax.preset(Preset::Reference)).init(&[1; 10]).expect("valid");
    let mut work = Workspace::with_pool(pool.clone());
    let sampler = Sampler::new(SamplerKind::Uniform, epochs, &labels, 10, seed).expect("labels");
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        let mut loss = 0.0;
        for some in sampler.epoch(epoch, Shard::WHOLE).chunks(BATCH) {
            let at: Vec<u32> = some.iter().map(|place| places[*place as usize]).collect();
            let mut batch = vec![0.0; at.len() * images.stride()];
            policy.batch(images, &at, seed, epoch, &mut batch, &pool);
            let labels: Vec<u32> = some.iter().map(|place| labels[*place as usize]).collect();
            let (mut grad, mut weights) = (vec![0.0; at.len() * 10], vec![0.0; at.len()]);
            let logits = engine.forward(&batch, true).expect("fits");
            let output = Output::new(&mut grad, &mut weights);
            let summary = criterion.train(&Batch::new(logits, &labels), output, &mut work).expect("a good batch");
            loss += summary.loss * at.len() as f64;
            engine.backward(&grad).expect("fits");
            let rate = 0.1 * (1.0 - epoch as f32 / epochs as f32);
            engine.step(&Optimizer::sgd(rate, 0.9, 2e-4));
        }
        losses.push(loss / places.len() as f64);
    }
    Run { engine, policy: plain, pool, losses }
}

/// Share of images that get their label.
fn accuracy(run: &mut Run, part: &Split, places: &[u32]) -> f64 {
    let (images, mut hits) = (pixels(part), 0);
    for some in places.chunks(BATCH) {
        let mut batch = vec![0.0; some.len() * images.stride()];
        run.policy.batch(images, some, 0, 0, &mut batch, &run.pool);
        let logits = run.engine.forward(&batch, false).expect("fits");
        for (at, row) in some.iter().zip(logits.chunks(10)) {
            let best = (0..10).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("ten classes");
            hits += usize::from(best as u32 == part.labels[*at as usize]);
        }
    }
    hits as f64 / places.len() as f64
}

#[test]
fn five_hundred_and_twelve_images_are_learned_by_heart() {
    let set = fashion_mini().expect("embedded");
    let places: Vec<u32> = (0..512).map(|i| i * set.train.labels.len() as u32 / 512).collect();
    let mut run = train(&set.train, &places, 40, 1, false, ConvolutionAlgorithm::default());
    assert_eq!(accuracy(&mut run, &set.train, &places), 1.0, "losses {:?}", run.losses);
}

/// The embedded set, with every kernel: what a test image is called does not depend on how the convolutions are
/// computed.
#[test]
fn the_embedded_set_is_learned_whatever_the_kernels() {
    let set = fashion_mini().expect("embedded");
    let (train_places, test_places): (Vec<u32>, Vec<u32>) =
        ((0..set.train.labels.len() as u32).collect(), (0..set.test.labels.len() as u32).collect());
    let mut results = Vec::new();
    for kernels in [ConvolutionAlgorithm::Winograd, ConvolutionAlgorithm::Direct] {
        let mut run = train(&set.train, &train_places, 8, 3, true, kernels);
        let accuracy = accuracy(&mut run, &set.test, &test_places);
        assert!(accuracy > 0.5, "{kernels:?}: {accuracy}, losses {:?}", run.losses);
        results.push((accuracy, run.losses));
    }
    let [(first, losses), (second, others)] = &results[..] else { panic!("two runs") };
    assert!((first - second).abs() < 0.06, "{first} and {second}");
    assert!(losses.iter().zip(others).all(|(a, b)| (a - b).abs() < 0.1), "{losses:?} and {others:?}");
}
