//! `equipoise bench`: speed on this machine, as numbers that can be compared with other programs.

mod data;
mod kernels;
mod loss;
mod step;

use std::io::Write;
use std::time::Duration;

use clap::Subcommand;
use equipoise_criterion::SimdLevel;
use equipoise_criterion::random::Draws;
use equipoise_train::run::processes::Connection;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Loss and gradient of each criterion, including its state
    #[command(after_long_help = "\
Examples:
  equipoise bench loss
  equipoise bench loss --batch-size 256 --classes 8142 --threads 2 --json
  equipoise bench loss --criteria softmax,cwap --repeats 500")]
    Loss(loss::Args),
    /// Whole training steps on random images: forward pass, criterion, backward pass and optimizer
    #[command(after_long_help = "\
The checksum is that of all parameters after the steps, or of the logits of an evaluation: it is the same for any number of threads and at every \
level of instructions but portable, and another one for another precision, algorithm or number of steps. Peak memory is that of the steps.

Examples:
  equipoise bench step
  equipoise bench step --model resnet32 --batch-size 128 --steps 15 --threads 2 --json
  equipoise bench step --model resnet50 --image-size 224 --batch-size 16 --evaluate")]
    Step(step::Args),
    /// The convolutions of the engine one by one, and the peak of a core
    #[command(after_long_help = "\
One thread. GFLOP/s are counted as if every convolution were computed directly: Winograd's algorithm needs fewer operations and may exceed \
the peak, which is that of multiply-adds in registers. The backward pass computes both gradients; the first layer has no gradient of its \
input.

Examples:
  equipoise bench kernels
  equipoise bench kernels --kernels direct --simd avx2 --json")]
    Kernels(kernels::Args),
    /// Preparing batches: augment and normalize small images, or decode and crop photographs
    #[command(after_long_help = "\
Without FILES: random crop, flip and normalization of 32 x 32 color images in memory, as for CIFAR.
With FILES: each file is read, decoded and randomly cropped to 224 x 224, as for ImageNet.
--policy jitter: also brightness, contrast, saturation (0.4 each) and hue (0.1) in a random order.
--policy randaugment: also 2 operations of magnitude 9; trivialaugment, autoaugment-cifar10: also the operations of that policy.

Examples:
  equipoise bench data --threads 2
  equipoise bench data --policy randaugment
  equipoise bench data photographs/*.jpg --json")]
    Data(data::Args),
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    match &args.benchmark {
        Benchmark::Loss(args) => loss::run(args, out),
        Benchmark::Step(args) => step::run(args, out),
        Benchmark::Kernels(args) => kernels::run(args, out),
        Benchmark::Data(args) => data::run(args, out),
    }
}

/// What a process that is not rank 0 does of a benchmark.
pub(crate) fn follow(args: &Args, connection: Connection) -> Result<(), Failure> {
    match &args.benchmark {
        Benchmark::Step(args) => step::follow(args, connection),
        Benchmark::Loss(_) | Benchmark::Kernels(_) | Benchmark::Data(_) => Ok(()),
    }
}

/// Parses a level of instructions that this CPU has.
fn simd(name: &str) -> Result<SimdLevel, String> {
    let is_named = |simd: &&SimdLevel| format!("{simd:?}").to_lowercase() == name;
    let found = SimdLevel::available().iter().find(is_named).copied();
    found.ok_or_else(|| format!("not one of {:?}", SimdLevel::available()).to_lowercase())
}

/// The median and the shortest of some times.
fn median_and_best(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[0])
}

/// Normal deviates with this standard deviation.
fn normals(number: usize, deviation: f32) -> Vec<f32> {
    let draws = Draws::new(0, 0, 0);
    (0..number).map(|i| deviation * draws.normal(2 * i as u64) as f32).collect()
}

/// Random labels.
fn labels(number: usize, classes: usize) -> Vec<u32> {
    (0..number).map(|i| (Draws::new(0, 1, 0).unit(i as u64) * classes as f64) as u32).collect()
}

/// Rounds to tenths.
fn tenths(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}
