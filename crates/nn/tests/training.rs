//! Training works: small loops over the engine and a criterion.

use equipoise_criterion::{Batch, Config, Id, Output, Preset, Workspace};
use equipoise_data::acquire::embedded::fashion_mini;
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::sampler::{Sampler, SamplerKind, Shard};
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::{Pixels, Split};
use equipoise_nn::{Architecture, ConvolutionAlgorithm, Cpu, CpuOptions, Engine, Network, Optimizer};
use equipoise_pool::Pool;

const BATCH: usize = 64;

struct Run {
    engine: Cpu,
    transform: SmallTransform,
    pool: Pool,
    /// Mean loss of every epoch.
    losses: Vec<f64>,
}

fn pixels(split: &Split) -> &Pixels {
    split.images.pixels().expect("in memory")
}

/// Trains on some images of a split with softmax; the learning rate falls linearly.
fn train(split: &Split, indices: &[u32], epochs: u64, seed: u64, augment: bool, kernels: ConvolutionAlgorithm) -> Run {
    let pool = Pool::new(2).expect("threads");
    let network = Network::new(Architecture::ResNet8, 1, [28, 28], 10).expect("known");
    let mut engine = {
        let options = CpuOptions { algorithm: kernels, ..CpuOptions::default() };
        Cpu::with_options(network, BATCH, seed, pool.clone(), options).expect("valid")
    };
    let images = pixels(split);
    let normalize = Normalize::of(images, indices);
    let plain = SmallTransform::plain(normalize.clone());
    let augmentation = Augmentation { crop_padding: 2, ..Augmentation::default() };
    let transform = if augment { SmallTransform { augmentation, normalize } } else { plain.clone() };
    let labels: Vec<u32> = indices.iter().map(|at| split.labels[*at as usize]).collect();
    let mut criterion = Config::from(Id::Softmax.preset(Preset::Reference)).init(&[1; 10]).expect("valid");
    let mut workspace = Workspace::with_pool(pool.clone());
    let sampler = Sampler::new(SamplerKind::Uniform, epochs, &labels, 10, seed).expect("labels");
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        let mut loss = 0.0;
        for batch_indices in sampler.epoch(epoch, Shard::WHOLE).chunks(BATCH) {
            let at: Vec<u32> = batch_indices.iter().map(|index| indices[*index as usize]).collect();
            let mut batch = vec![0.0; at.len() * images.stride()];
            transform.batch(images, &at, seed, epoch, &mut batch, &pool);
            let labels: Vec<u32> = batch_indices.iter().map(|index| labels[*index as usize]).collect();
            let (mut grad, mut weights) = (vec![0.0; at.len() * 10], vec![0.0; at.len()]);
            let logits = engine.forward(&batch, true).expect("fits");
            let output = Output::new(&mut grad, &mut weights);
            let summary = criterion.train(&Batch::new(logits, &labels), output, &mut workspace).expect("a good batch");
            loss += summary.loss * at.len() as f64;
            engine.backward(&grad).expect("fits");
            let learning_rate = 0.1 * (1.0 - epoch as f32 / epochs as f32);
            engine.step(&Optimizer::sgd(learning_rate, 0.9, 2e-4)).expect("on the CPU");
        }
        losses.push(loss / indices.len() as f64);
    }
    Run { engine, transform: plain, pool, losses }
}

/// Fraction of images that are classified correctly.
fn accuracy(run: &mut Run, split: &Split, indices: &[u32]) -> f64 {
    let (images, mut correct) = (pixels(split), 0);
    for batch_indices in indices.chunks(BATCH) {
        let mut batch = vec![0.0; batch_indices.len() * images.stride()];
        run.transform.batch(images, batch_indices, 0, 0, &mut batch, &run.pool);
        let logits = run.engine.forward(&batch, false).expect("fits");
        for (at, row) in batch_indices.iter().zip(logits.chunks(10)) {
            let best = (0..10).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("ten classes");
            correct += usize::from(best as u32 == split.labels[*at as usize]);
        }
    }
    correct as f64 / indices.len() as f64
}

#[test]
fn five_hundred_and_twelve_images_are_memorized() {
    let dataset = fashion_mini().expect("embedded");
    let indices: Vec<u32> = (0..512).map(|i| i * dataset.train.labels.len() as u32 / 512).collect();
    let mut run = train(&dataset.train, &indices, 40, 1, false, ConvolutionAlgorithm::default());
    assert_eq!(accuracy(&mut run, &dataset.train, &indices), 1.0, "losses {:?}", run.losses);
}

/// Accuracy on the embedded dataset does not depend on the algorithm of the convolutions.
#[test]
fn the_embedded_dataset_is_learned_with_every_algorithm() {
    let dataset = fashion_mini().expect("embedded");
    let (train_indices, test_indices): (Vec<u32>, Vec<u32>) =
        ((0..dataset.train.labels.len() as u32).collect(), (0..dataset.test.labels.len() as u32).collect());
    let mut results = Vec::new();
    for kernels in [ConvolutionAlgorithm::Winograd, ConvolutionAlgorithm::Direct] {
        let mut run = train(&dataset.train, &train_indices, 8, 3, true, kernels);
        let accuracy = accuracy(&mut run, &dataset.test, &test_indices);
        assert!(accuracy > 0.5, "{kernels:?}: {accuracy}, losses {:?}", run.losses);
        results.push((accuracy, run.losses));
    }
    let [(first, losses), (second, others)] = &results[..] else { panic!("two runs") };
    assert!((first - second).abs() < 0.06, "{first} and {second}");
    assert!(losses.iter().zip(others).all(|(a, b)| (a - b).abs() < 0.1), "{losses:?} and {others:?}");
}
