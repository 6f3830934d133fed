//! Does the algorithm of convolution matter? Trains the same network with both algorithms on real data:
//!
//!     cargo run --release -p equipoise-nn --example kernels -- CIFAR-10-FOLDER [epochs] [seeds] [model]
//!
//! A long-tailed subset with imbalance 10 (20,431 images), batch size 128, learning rate 0.1 falling linearly, padded
//! crops and flips. Prints a line for every run: the mean loss of every epoch, and the accuracy on the test set.

use std::path::Path;

use equipoise_criterion::{Batch, Config, Id, Output, Preset, Workspace};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::sampler::{Sampler, SamplerKind, Shard};
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::read::format::cifar::cifar10;
use equipoise_data::subset::long_tail::LongTail;
use equipoise_nn::{ConvolutionAlgorithm, Cpu, CpuOptions, Engine, Network, Optimizer};
use equipoise_pool::Pool;

const BATCH: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let folder = args.get(1).ok_or("the folder of CIFAR-10's binary version is needed")?;
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let (epochs, seeds) = (number(2, 5)?, number(3, 3)?);
    let model = args.get(4).map_or("resnet20", String::as_str);
    let dataset = cifar10(Path::new(folder))?;
    let indices = LongTail::new(10.0).draw(&dataset.train.labels, 10)?;
    let labels: Vec<u32> = indices.iter().map(|at| dataset.train.labels[*at as usize]).collect();
    let train = dataset.train.images.pixels().ok_or("CIFAR-10 is in memory")?;
    let test = dataset.test.images.pixels().ok_or("CIFAR-10 is in memory")?;
    let pool = Pool::new(0)?;
    for seed in 0..seeds {
        for algorithm in [ConvolutionAlgorithm::Winograd, ConvolutionAlgorithm::Direct] {
            let network = Network::new(model.parse()?, 3, [32, 32], 10)?;
            let mut engine = {
                let options = CpuOptions { algorithm, ..CpuOptions::default() };
                Cpu::with_options(network, BATCH, seed, pool.clone(), options)?
            };
            let mut criterion = Config::from(Id::Softmax.preset(Preset::Reference)).init(&[1; 10])?;
            let mut workspace = Workspace::with_pool(pool.clone());
            let sampler = Sampler::new(SamplerKind::Uniform, epochs, &labels, 10, seed)?;
            let (augmented, plain) =
                (SmallTransform::train(Normalize::cifar()), SmallTransform::plain(Normalize::cifar()));
            let mut images = vec![0.0; BATCH * 3072];
            let mut losses = Vec::new();
            for epoch in 0..epochs {
                let mut loss = 0.0;
                let order = sampler.epoch(epoch, Shard::WHOLE);
                for (step, batch_indices) in order.chunks(BATCH).enumerate() {
                    let at: Vec<u32> = batch_indices.iter().map(|index| indices[*index as usize]).collect();
                    let batch_labels: Vec<u32> = batch_indices.iter().map(|index| labels[*index as usize]).collect();
                    let images = &mut images[..at.len() * 3072];
                    augmented.batch(train, &at, seed, epoch, images, &pool);
                    let (mut grad, mut weights) = (vec![0.0; at.len() * 10], vec![0.0; at.len()]);
                    let output = Output::new(&mut grad, &mut weights);
                    let batch = Batch::new(engine.forward(images, true)?, &batch_labels);
                    loss += criterion.train(&batch, output, &mut workspace)?.loss * at.len() as f64;
                    engine.backward(&grad)?;
                    let progress =
                        (epoch as usize * order.len() + step * BATCH) as f32 / (epochs as usize * order.len()) as f32;
                    engine.step(&Optimizer::sgd(0.1 * (1.0 - progress), 0.9, 2e-4)).expect("on the CPU");
                }
                losses.push(format!("{:.3}", loss / labels.len() as f64));
            }
            let mut correct = 0;
            let all: Vec<u32> = (0..dataset.test.labels.len() as u32).collect();
            for some in all.chunks(BATCH) {
                let images = &mut images[..some.len() * 3072];
                plain.batch(test, some, 0, 0, images, &pool);
                for (at, row) in some.iter().zip(engine.forward(images, false)?.chunks(10)) {
                    let best = (0..10).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0);
                    correct += usize::from(best as u32 == dataset.test.labels[*at as usize]);
                }
            }
            let accuracy = 100.0 * correct as f64 / all.len() as f64;
            println!("{model}, seed {seed}, {algorithm:?}: losses {}, accuracy {accuracy:.2} %", losses.join(" "));
        }
    }
    Ok(())
}
