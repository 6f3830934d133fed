//! `equipoise bench step`.

use std::io::Write;
use std::time::Duration;

use equipoise_criterion::{Batch, Config, Criterion, Id, Output, Preset, SimdLevel, Workspace};
use equipoise_nn::{ConvolutionAlgorithm, Cpu, Engine, Network, NnError, Optimizer};
use equipoise_train::run::memory::{available_bytes, peak_mb};
use equipoise_train::settings::Architecture;
use serde_json::json;

use super::{labels, median_and_best, normals, simd, tenths};
use crate::clock::timed;
use crate::failure::Failure;
use crate::options::ThreadArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Network: resnet8, 14, 20, 32, 32x2, 32x4, 44 or 56 for small images, resnet18 or 50 for photographs
    #[arg(long, value_name = "NAME", default_value = "resnet32")]
    model: Architecture,
    /// Images per batch
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch_size: u32,
    /// Measured steps, after three to warm up
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Height and width of the images
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    image_size: usize,
    /// Channels of the images
    #[arg(long, value_name = "N", default_value_t = 3)]
    channels: usize,
    /// Number of classes
    #[arg(long, value_name = "N", default_value_t = 10)]
    classes: usize,
    /// Criterion
    #[arg(long, value_name = "ID", default_value = "softmax")]
    criterion: Id,
    /// How 3 x 3 convolutions are computed: direct or winograd
    #[arg(long, value_name = "ALGORITHM", default_value_t)]
    kernels: ConvolutionAlgorithm,
    /// Instructions to use: portable, avx2 or avx512 [default: the best]
    #[arg(long, value_name = "LEVEL", value_parser = simd)]
    simd: Option<SimdLevel>,
    /// Measure evaluation: only the forward pass
    #[arg(long)]
    evaluate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let (batch_size, size, classes) = (args.batch_size as usize, args.image_size, args.classes);
    let pool = args.threads.pool()?;
    let threads = pool.threads();
    let level = args.simd.unwrap_or_default();
    let network = Network::new(args.model, args.channels, [size, size], classes)?;
    let bytes = Cpu::bytes(&network, batch_size, threads);
    if available_bytes().is_some_and(|available| bytes > available) {
        return Err(NnError::Memory { batch_size, bytes }.into());
    }
    let engine = Cpu::with_kernels(network, batch_size, 0, pool.clone(), level, args.kernels)?;
    let criterion = match args.evaluate {
        true => None,
        false => {
            let criterion = Config::from(args.criterion.preset(Preset::Reference)).init(&vec![1; classes]);
            Some(criterion.map_err(|error| Failure::from(error).about(&format!("--classes {classes}")))?)
        }
    };
    let has_criterion = criterion.is_some();
    let workspace = Workspace::with_pool(pool).with_simd(level);
    let times = measure(args, engine, criterion, workspace)?;
    let speed = |time: Duration| tenths(batch_size as f64 / time.as_secs_f64());
    let (median, best) = median_and_best(times);
    let (median, best, peak) = (speed(median), speed(best), peak_mb());
    let (model, channels, device) = (args.model, args.channels, format!("cpu {level:?}").to_lowercase());
    let kernels = args.kernels.to_string();
    if args.json {
        let line = json!({
            "model": model.name(), "batch": batch_size, "threads": threads, "device": device, "images_per_second": median,
            "best": best, "peak_mb": peak, "evaluate": args.evaluate, "size": size, "channels": channels,
            "classes": classes, "kernels": kernels, "criterion": has_criterion.then_some(args.criterion),
        });
        return Ok(writeln!(out, "{line}")?);
    }
    let peak = peak.map_or_else(|| "unknown".to_owned(), |mb| format!("{mb} MB"));
    let what = if args.evaluate { "evaluation" } else { "training" };
    let images = format!("batch size {batch_size}, {channels} x {size} x {size}");
    writeln!(
        out,
        "{model}, {what}, {images}, {threads} threads, {device} {kernels}: {median} images/s (best {best}), peak memory {peak}"
    )?;
    Ok(())
}

/// Times of the steps on random images.
fn measure(
    args: &Args,
    mut engine: Cpu,
    mut criterion: Option<Criterion>,
    mut workspace: Workspace,
) -> Result<Vec<Duration>, Failure> {
    const WARMUP: u32 = 3;
    let (batch_size, size) = (args.batch_size as usize, args.image_size);
    let images = normals(batch_size * args.channels * size * size, 1.0);
    let labels = labels(batch_size, args.classes);
    let (mut grad, mut weights) = (vec![0.0; batch_size * args.classes], vec![0.0; batch_size]);
    let sgd = Optimizer::sgd(0.1, 0.9, 2e-4);
    let mut step = || -> Result<(), Failure> {
        let logits = engine.forward(&images, !args.evaluate)?;
        if let Some(criterion) = &mut criterion {
            let output = Output::new(&mut grad, &mut weights);
            criterion.train(&Batch::new(logits, &labels), output, &mut workspace)?;
            engine.backward(&grad)?;
            engine.step(&sgd)?;
        }
        Ok(())
    };
    let mut times = Vec::new();
    for round in 0..args.steps + WARMUP {
        let (result, time) = timed(&mut step);
        result?;
        if round >= WARMUP {
            times.push(time);
        }
    }
    Ok(times)
}
