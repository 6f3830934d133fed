//! `equipoise bench`: speed on this machine, as numbers that can be set beside a peer's.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use equipoise_criterion::random::Draws;
use equipoise_criterion::{Batch, Config, Id, Output, Pool, Preset, Simd, Workspace};
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::loader::{Loader, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::batch::random_ops::{ColorJitter, RandAugment};
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::{DataError, Images, Pixels};
use equipoise_nn::measure::{Measured, Shape, peak};
use equipoise_nn::{Cpu, Engine, Kernels, Network, NnError, Sgd};
use serde_json::json;

use super::data::failure;
use crate::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Loss and gradient of each criterion, counting included
    #[command(after_long_help = "\
Examples:
  equipoise bench loss
  equipoise bench loss --batch 256 --classes 8142 --threads 2 --json
  equipoise bench loss --criteria softmax,cwap --repeats 500")]
    Loss(LossArgs),
    /// Whole training steps: forward, criterion, backward and optimiser, on random images
    #[command(after_long_help = "\
Examples:
  equipoise bench step
  equipoise bench step --model resnet32 --batch 128 --steps 15 --threads 2 --json
  equipoise bench step --model resnet50 --size 224 --batch 16 --evaluate")]
    Step(StepArgs),
    /// The engine's convolutions one by one, beside the most that a core can do
    #[command(after_long_help = "\
One thread. GFLOP/s are counted as if every convolution were computed as it is defined: Winograd's needs fewer operations and
may exceed the peak, which is that of products and sums in registers. The backward pass gives both gradients (the first layer
has no input to give one to).

Examples:
  equipoise bench kernels
  equipoise bench kernels --kernels direct --simd avx2 --json")]
    Kernels(KernelArgs),
    /// Preparing batches: crop, flip, change and normalise small images, or decode and crop photographs
    #[command(after_long_help = "\
Without FILES: random crop, flip and normalisation of 32 x 32 colour images in memory, as for CIFAR.
With FILES: each is read, decoded and cropped at random to 224 x 224, as for ImageNet.
--policy jitter: also brightness, contrast, saturation (0.4 each) and hue (0.1) in a random order.
--policy randaugment: also 2 changes of magnitude 9.

Examples:
  equipoise bench data --threads 2
  equipoise bench data --policy randaugment
  equipoise bench data photographs/*.jpg --json")]
    Data(DataArgs),
}

#[derive(clap::Args)]
struct StepArgs {
    /// The network: resnet8, 14, 20, 32, 44 and 56 for small images, resnet18 and 50 for large ones
    #[arg(long, default_value = "resnet32")]
    model: String,
    /// Images per batch
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Measured steps, after three that warm up
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Threads; all cores if left out
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Side of the images
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Channels of the images
    #[arg(long, default_value_t = 3)]
    channels: usize,
    /// Classes
    #[arg(long, default_value_t = 10)]
    classes: usize,
    /// Criterion
    #[arg(long, default_value = "softmax")]
    criterion: Id,
    /// How 3 x 3 convolutions are computed
    #[arg(long, value_enum, default_value_t = KernelName::F4)]
    kernels: KernelName,
    /// Instructions to use instead of the best ones: portable, avx2 or avx512
    #[arg(long, value_parser = simd)]
    simd: Option<Simd>,
    /// Evaluation instead of training: the forward pass only
    #[arg(long)]
    evaluate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct KernelArgs {
    /// How 3 x 3 convolutions with stride 1 are computed
    #[arg(long, value_enum, default_value_t = KernelName::F4)]
    kernels: KernelName,
    /// Instructions to use instead of the best ones: portable, avx2 or avx512
    #[arg(long, value_parser = simd)]
    simd: Option<Simd>,
    /// Measured rounds; the median counts
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum KernelName {
    /// As they are defined
    Direct,
    /// Winograd F(2 x 2)
    F2,
    /// Winograd F(4 x 4)
    F4,
}

impl From<KernelName> for Kernels {
    fn from(name: KernelName) -> Self {
        match name {
            KernelName::Direct => Self::Direct,
            KernelName::F2 => Self::Winograd2,
            KernelName::F4 => Self::Winograd4,
        }
    }
}

#[derive(clap::Args)]
struct DataArgs {
    /// Photographs
    files: Vec<PathBuf>,
    /// Threads; all cores if left out
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Rounds over all images; the best and the median are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// What is done to images besides
    #[arg(long, value_enum, default_value = "crop")]
    policy: Changes,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Changes {
    /// Crop and flip only
    Crop,
    /// Colour jitter
    Jitter,
    /// RandAugment
    #[value(name = "randaugment")]
    RandAugment,
}

impl Changes {
    fn augmentation(self) -> Result<Augmentation, DataError> {
        let crop = Augmentation::default();
        Ok(match self {
            Self::Crop => crop,
            Self::Jitter => Augmentation { color_jitter: Some(ColorJitter::new(0.4, 0.4, 0.4, 0.1)?), ..crop },
            Self::RandAugment => Augmentation { randaugment: Some(RandAugment::new(2, 9)?), ..crop },
        })
    }
}

#[derive(clap::Args)]
struct LossArgs {
    /// Examples per batch
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Classes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    classes: u32,
    /// Threads; all cores if left out
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Measured calls per criterion, after as many again have warmed it up (at most 20)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeats: u32,
    /// Criteria, separated by commas; all if left out
    #[arg(long, value_delimiter = ',', value_name = "ID,..")]
    criteria: Vec<Id>,
    /// Instructions to use instead of the best ones: portable, avx2 or avx512
    #[arg(long, value_parser = simd)]
    simd: Option<Simd>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    match &args.what {
        What::Step(args) => step(args, out),
        What::Kernels(args) => kernels(args, out),
        What::Data(args) => {
            let pool = Pool::new(args.threads.unwrap_or(0).into()).context("cannot start the threads")?;
            data(args, &pool, out)
        }
        What::Loss(args) => {
            if u64::from(args.batch) * u64::from(args.classes) > 1 << 30 {
                let what = "--batch x --classes: more than 2^30 logits (8 GB with the gradient)";
                return Err(Failure::Usage(what.to_owned()));
            }
            let pool = Pool::new(args.threads.unwrap_or(0).into()).context("cannot start the threads")?;
            loss(args, pool, out)
        }
    }
}

fn loss(args: &LossArgs, pool: Pool, out: &mut impl Write) -> Result<(), Failure> {
    let (rows, classes, threads) = (args.batch as usize, args.classes as usize, pool.threads());
    let ids = if args.criteria.is_empty() { Id::ALL } else { &args.criteria };
    let draws = Draws::new(0, 0, 0);
    let logits: Vec<f32> = (0..rows * classes).map(|i| 2.0 * normal(draws, i as u64)).collect();
    let labels: Vec<u32> = (0..rows).map(|i| (Draws::new(0, 1, 0).unit(i as u64) * classes as f64) as u32).collect();
    // 1280 images in the largest class, 5 in the smallest
    let counts: Vec<u64> =
        (0..classes).map(|c| (1280.0 * 256f64.powf(-(c as f64) / (classes - 1) as f64)).max(1.0) as u64).collect();
    let (mut grad, mut weights, mut work) = (vec![0.0; logits.len()], vec![0.0; rows], Workspace::with_pool(pool));
    work = work.with_simd(args.simd.unwrap_or_default());
    let batch = Batch::new(&logits, &labels);
    if !args.json {
        writeln!(out, "{rows} examples, {classes} classes, {threads} threads; microseconds per call")?;
        writeln!(out, "{:<24}{:>12}{:>12}", "criterion", "median", "best")?;
    }
    for id in ids {
        let mut criterion = Config::from(id.preset(Preset::Reference)).init(&counts)?;
        let mut times = Vec::new();
        for round in 0..args.repeats + args.repeats.min(20) {
            let output = Output::new(&mut grad, &mut weights);
            let (summary, time) = timed(|| criterion.train(&batch, output, &mut work));
            summary?;
            if round >= args.repeats.min(20) {
                times.push(time);
            }
        }
        times.sort_unstable();
        let micros = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
        let (median, best) = (micros(times[times.len() / 2]), micros(times[0]));
        if args.json {
            let line = json!({
                "criterion": id, "batch": rows, "classes": classes, "threads": threads, "microseconds": median, "best": best,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{id:<24}{median:>12.1}{best:>12.1}")?;
        }
    }
    Ok(())
}

fn step(args: &StepArgs, out: &mut impl Write) -> Result<(), Failure> {
    let wrong = |error: NnError| Failure::Usage(error.to_string());
    let pool = Pool::new(args.threads.unwrap_or(0).into()).context("cannot start the threads")?;
    let (batch, size, classes, threads) = (args.batch as usize, args.size, args.classes, pool.threads());
    let network = Network::named(&args.model, args.channels, [size, size], classes).map_err(wrong)?;
    let bytes = Cpu::bytes(&network, batch, threads);
    if available().is_some_and(|free| bytes > free) {
        return Err(wrong(NnError::Memory { batch, bytes }));
    }
    let level = args.simd.unwrap_or_default();
    let mut engine = Cpu::with_kernels(network, batch, 0, pool.clone(), level, args.kernels.into()).map_err(wrong)?;
    let draws = Draws::new(0, 0, 0);
    let images: Vec<f32> = (0..batch * args.channels * size * size).map(|i| normal(draws, i as u64)).collect();
    let label = |i: usize| (Draws::new(0, 1, 0).unit(i as u64) * classes as f64) as u32;
    let labels: Vec<u32> = (0..batch).map(label).collect();
    let criterion = Config::from(args.criterion.preset(Preset::Reference)).init(&vec![1; classes]);
    let mut criterion = match (criterion, args.evaluate) {
        (Ok(criterion), false) => Some(criterion),
        (Err(error), false) => return Err(Failure::Usage(format!("--classes {classes}: {error}"))),
        (_, true) => None,
    };
    let (mut grad, mut weights) = (vec![0.0; batch * classes], vec![0.0; batch]);
    let mut work = Workspace::with_pool(pool).with_simd(level);
    let sgd = Sgd { rate: 0.1, momentum: 0.9, weight_decay: 2e-4, clip: None };
    let mut times = Vec::new();
    for round in 0..args.steps + 3 {
        let (done, time) = timed(|| -> Result<(), Failure> {
            let logits = engine.forward(&images, !args.evaluate).map_err(wrong)?;
            if let Some(criterion) = &mut criterion {
                let output = Output::new(&mut grad, &mut weights);
                criterion.train(&Batch::new(logits, &labels), output, &mut work)?;
                engine.backward(&grad).map_err(wrong)?;
                engine.step(&sgd);
            }
            Ok(())
        });
        done?;
        if round >= 3 {
            times.push(time);
        }
    }
    times.sort_unstable();
    let rate = |time: Duration| (10.0 * batch as f64 / time.as_secs_f64()).round() / 10.0;
    let (median, best, peak) = (rate(times[times.len() / 2]), rate(times[0]), peak_mb());
    let (model, device) = (&args.model, format!("cpu {level:?}").to_lowercase());
    let kernels = args.kernels.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    if args.json {
        let line = json!({
            "model": model, "batch": batch, "threads": threads, "device": device, "images_per_second": median,
            "best": best, "peak_mb": peak, "evaluate": args.evaluate, "size": size, "channels": args.channels,
            "classes": classes, "kernels": kernels, "criterion": criterion.as_ref().map(|_| args.criterion),
        });
        writeln!(out, "{line}")?;
    } else {
        let peak = peak.map_or_else(|| "unknown".to_owned(), |mb| format!("{mb} MB"));
        let what = if args.evaluate { "evaluation" } else { "training" };
        writeln!(
            out,
            "{model}, {what}, batch {batch} of {} x {size} x {size}, {threads} threads, {device} {kernels}: {median} images/s (best {best}), peak memory {peak}",
            args.channels
        )?;
    }
    Ok(())
}

/// Convolutions of ResNet-32 and of ResNet-18 and 50: inputs, outputs, window, stride, side, images.
const SHAPES: [[usize; 6]; 11] = [
    [3, 16, 3, 1, 32, 64],
    [16, 16, 3, 1, 32, 64],
    [16, 32, 3, 2, 32, 64],
    [32, 32, 3, 1, 16, 64],
    [32, 64, 3, 2, 16, 64],
    [64, 64, 3, 1, 8, 64],
    [3, 64, 7, 2, 224, 1],
    [64, 64, 3, 1, 56, 4],
    [256, 64, 1, 1, 56, 4],
    [256, 256, 3, 1, 14, 8],
    [512, 2048, 1, 1, 7, 16],
];

fn kernels(args: &KernelArgs, out: &mut impl Write) -> Result<(), Failure> {
    let level = args.simd.unwrap_or_default();
    let device = format!("cpu {level:?}").to_lowercase();
    // the first round warms up
    let median = |f: &mut dyn FnMut()| -> f64 {
        let mut times: Vec<Duration> = (0..=args.rounds).map(|_| timed(&mut *f).1).skip(1).collect();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64().max(1e-9)
    };
    const ROUNDS: usize = 1_000_000;
    let mut operations = 0.0;
    let time = median(&mut || operations = peak(level, ROUNDS));
    let tenths = |x: f64| (x * 10.0).round() / 10.0;
    let most = tenths(operations / time / 1e9);
    if !args.json {
        writeln!(out, "{device}, one thread, peak {most:.1} GFLOP/s; GFLOP/s counted as direct convolution")?;
        writeln!(out, "{:<44}{:>12}{:>12}", "convolution", "forward", "backward")?;
    }
    for [inputs, outputs, kernel, stride, side, images] in SHAPES {
        let shape = Shape { inputs, outputs, kernel, stride, side, images };
        let mut measured = Measured::new(&shape, args.kernels.into(), level);
        let forward = tenths(shape.operations() / median(&mut || measured.forward()) / 1e9);
        let operations = shape.operations() * measured.passes_back() as f64;
        let backward = tenths(operations / median(&mut || measured.backward()) / 1e9);
        if args.json {
            let line = json!({
                "inputs": inputs, "outputs": outputs, "window": kernel, "stride": stride, "side": side, "images": images,
                "device": device, "peak": most, "forward": forward, "backward": backward,
            });
            writeln!(out, "{line}")?;
        } else {
            let name =
                format!("{inputs} to {outputs}, {kernel} x {kernel} / {stride}, {side} x {side}, {images} images");
            writeln!(out, "{name:<44}{forward:>12.1}{backward:>12.1}")?;
        }
    }
    Ok(())
}

/// Multiply-adds of a network's forward pass that this machine trains in a second, by a short measurement.
pub(crate) fn speed(threads: Option<u16>) -> Result<f64, Failure> {
    let wrong = |error: NnError| Failure::Usage(error.to_string());
    let pool = Pool::new(threads.unwrap_or(0).into()).context("cannot start the threads")?;
    let network = Network::named("resnet32", 3, [32, 32], 10).map_err(wrong)?;
    let (batch, work) = (128, network.multiply_adds() as f64);
    let mut engine = Cpu::new(network, batch, 0, pool).map_err(wrong)?;
    let (images, gradient) = (vec![0.5; batch * 3 * 32 * 32], vec![1e-3; batch * 10]);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let (done, time) = timed(|| {
            engine.forward(&images, true)?;
            engine.backward(&gradient)
        });
        done.map_err(wrong)?;
        best = best.min(time.as_secs_f64());
    }
    Ok(batch as f64 * work / best)
}

/// The most memory that this process has had, where the system tells.
pub(crate) fn peak_mb() -> Option<u64> {
    Some(kilobytes("/proc/self/status", "VmHWM:")?.div_ceil(1024))
}

/// Bytes of memory that are free, where the system tells.
pub(crate) fn available() -> Option<u64> {
    Some(kilobytes("/proc/meminfo", "MemAvailable:")? * 1024)
}

/// A figure of one of Linux's tables.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let table = std::fs::read_to_string(file).ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn data(args: &DataArgs, pool: &Pool, out: &mut impl Write) -> Result<(), Failure> {
    let (mut what, images, mut rates) = if args.files.is_empty() {
        ("crop, flip, normalise 3 x 32 x 32".to_owned(), 10_000, small_images(args, pool)?)
    } else {
        ("read, decode, random resized crop to 224".to_owned(), args.files.len(), photographs(args, pool)?)
    };
    match args.policy {
        Changes::Crop => {}
        Changes::Jitter => what += ", jitter",
        Changes::RandAugment => what += ", RandAugment",
    }
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2].round(), rates[rates.len() - 1].round());
    if args.json {
        let threads = pool.threads();
        writeln!(
            out,
            "{}",
            json!({"what": what, "images": images, "threads": threads, "images_per_second": median, "best": best})
        )?;
    } else {
        writeln!(out, "{what}: {median} images/s (best {best}), {images} images, {} threads", pool.threads())?;
    }
    Ok(())
}

/// Images per second of every round.
fn small_images(args: &DataArgs, pool: &Pool) -> Result<Vec<f64>, Failure> {
    const IMAGES: u32 = 10_000;
    const BATCH: usize = 128;
    let draws = Draws::new(0, 0, 0);
    let bytes: Vec<u8> = (0..u64::from(IMAGES) * 3072).map(|i| draws.at(i) as u8).collect();
    let pixels = Pixels { channels: 3, height: 32, width: 32, bytes: bytes.into() };
    let policy = SmallTransform { augmentation: args.policy.augmentation()?, normalize: Normalize::cifar() };
    let positions: Vec<u32> = (0..IMAGES).collect();
    let mut batch = vec![0.0; BATCH * 3072];
    let mut round = |epoch: u32| {
        let ((), time) = timed(|| {
            for positions in positions.chunks(BATCH) {
                policy.batch(&pixels, positions, 1, epoch.into(), &mut batch[..positions.len() * 3072], pool);
            }
        });
        f64::from(IMAGES) / time.as_secs_f64()
    };
    round(0);
    Ok((0..args.rounds).map(|epoch| round(epoch + 1)).collect())
}

/// Images per second of every round.
fn photographs(args: &DataArgs, pool: &Pool) -> Result<Vec<f64>, Failure> {
    const SIDE: u32 = 224;
    const BATCH: usize = 32;
    let (crop, normalize) = (PhotoCrop::RandomResizedCrop, Normalize::imagenet());
    let recipe = Transform::Photo { image_size: SIDE, crop, augmentation: args.policy.augmentation()?, normalize };
    // nothing is kept: the files are read and decoded anew for every batch
    let loader = Loader::new(Images::Files(args.files.clone()), recipe, 0, pool, &|_, _| {}).map_err(failure)?;
    let places: Vec<u32> = (0..args.files.len() as u32).collect();
    let stride = 3 * (SIDE * SIDE) as usize;
    let mut batch = vec![0.0; BATCH * stride];
    let mut rates = Vec::new();
    for epoch in 0..args.rounds {
        let (read, time) = timed(|| {
            places
                .chunks(BATCH)
                .try_for_each(|places| loader.batch(places, 1, epoch.into(), &mut batch[..places.len() * stride], pool))
        });
        read.map_err(failure)?;
        rates.push(places.len() as f64 / time.as_secs_f64());
    }
    Ok(rates)
}

/// A level of instructions that this CPU has.
fn simd(name: &str) -> Result<Simd, String> {
    let named = |simd: &&Simd| format!("{simd:?}").to_lowercase() == name;
    let found = Simd::available().iter().find(named).copied();
    found.ok_or_else(|| format!("not one of {:?}", Simd::available()).to_lowercase())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = f();
    (value, start.elapsed())
}

/// The normal number of an index.
fn normal(draws: Draws, position: u64) -> f32 {
    draws.normal(2 * position) as f32
}
