//! `equipoise bench step`.

use std::io::Write;
use std::time::Duration;

use equipoise_criterion::{Batch, Config, Criterion, Id, Output, Preset, SimdLevel, Workspace};
use equipoise_nn::{
    ConvolutionAlgorithm, Cpu, CpuOptions, Engine, Network, NnError, Optimizer, Precision, TensorKind, Traffic,
};
use equipoise_train::TrainError;
use equipoise_train::run::memory::{available_bytes, peak_mb};
use equipoise_train::run::processes::{Connection, Task};
use equipoise_train::settings::Architecture;
use equipoise_train::workers::{SingleProcess, Workers, agree};
use serde_json::json;

use super::{labels, median_and_best, normals, simd, tenths};
use crate::clock::timed;
use crate::cluster;
use crate::failure::Failure;
use crate::options::ThreadArgs;
use crate::output::counted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Network: resnet8, 14, 20, 32, 32x2, 32x4, 44 or 56 for small images, resnet18, 34 or 50 for photographs
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
    /// How 3 x 3 convolutions are computed: direct or winograd; bf16-amx has tiles
    #[arg(long, value_name = "ALGORITHM", default_value_t)]
    kernels: ConvolutionAlgorithm,
    /// Number format of activations and products: f32, bf16 or bf16-amx
    #[arg(long, value_name = "PRECISION", default_value_t)]
    precision: Precision,
    /// Instructions to use: portable, avx2, avx512 or avx512bf16 [default: the best]
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
    if args.model.is_for_features() {
        return Err(Failure::usage(format!(
            "--model {}: heads on features are not measured here; name a network for images",
            args.model
        )));
    }
    let kernels = algorithm(args.kernels, args.precision)?;
    let connection = match cluster::processes().filter(|_| !args.evaluate) {
        Some(processes) => {
            if args.simd.is_some() || args.kernels != ConvolutionAlgorithm::default() {
                return Err(Failure::usage("several processes: leave --simd and --kernels out"));
            }
            Some(processes.start(Task::Command, &[]).map_err(TrainError::from)?)
        }
        None => None,
    };
    let size = connection.as_ref().map_or(1, |connection| connection.peers.size());
    let Measured { times, traffic, peak_mb: peak, gradient_bytes, threads, level, checksum } =
        measure(args, connection)?;
    let (batch_size, classes) = (args.batch_size as usize, args.classes);
    let speed = |time: Duration| tenths(batch_size as f64 / time.as_secs_f64());
    let (median, best) = median_and_best(times);
    let (seconds, median, best) = (median.as_secs_f64(), speed(median), speed(best));
    let (model, channels, side) = (args.model, args.channels, args.image_size);
    let (device, precision) = (format!("cpu {level:?}").to_lowercase(), args.precision);
    if args.json {
        let line = json!({
            "model": model.name(), "batch": batch_size, "ranks": size, "threads": threads, "device": device, "images_per_second": median,
            "best": best, "peak_mb": peak, "evaluate": args.evaluate, "size": side, "channels": channels,
            "classes": classes, "kernels": kernels, "precision": args.precision, "criterion": (!args.evaluate).then_some(args.criterion),
            "seconds": seconds, "checksum": checksum, "software": args.precision.is_software(level), "gradient_bytes": gradient_bytes,
            "exchanges": traffic.short, "exchanged_bytes": traffic.short_bytes, "exchange_seconds": traffic.short_seconds,
            "sums": traffic.sums, "summed_bytes": traffic.sum_bytes, "sum_seconds": traffic.sum_seconds,
            "gathers": traffic.gathers, "gathered_bytes": traffic.gather_bytes, "gather_seconds": traffic.gather_seconds,
        });
        return Ok(writeln!(out, "{line}")?);
    }
    let peak = peak.map_or_else(|| "unknown".to_owned(), |mb| format!("{mb} MiB"));
    let what = if args.evaluate { "evaluation" } else { "training" };
    let images = format!("batch size {batch_size}, {channels} x {side} x {side}");
    let software = if args.precision.is_software(level) { " in software" } else { "" };
    let threads = counted(threads, "thread");
    let ranks = if size > 1 { format!("{size} ranks with ") } else { String::new() };
    writeln!(
        out,
        "{model}, {what}, {images}, {ranks}{threads}, {device} {kernels}, {precision}{software}: {median} images/s (best {best}), \
         peak memory {peak}, checksum {checksum}"
    )?;
    if size > 1 {
        let Traffic { short, sums, gathers, .. } = traffic;
        let (kb, mb) = (
            traffic.short_bytes as f64 / 1e3,
            [traffic.sum_bytes, traffic.gather_bytes].map(|bytes| bytes as f64 / 1e6),
        );
        let seconds = [traffic.short_seconds, traffic.sum_seconds, traffic.gather_seconds];
        let ms = seconds.map(|seconds| tenths(1e3 * seconds));
        writeln!(
            out,
            "a step of rank 0: {short} exchanges of {kb:.1} KB together in {} ms, {sums} sums of gradients that send {:.1} MB in {} ms, \
             {gathers} gathers of parameters that send {:.1} MB in {} ms",
            ms[0], mb[0], ms[1], mb[1], ms[2]
        )?;
    }
    Ok(())
}

/// The algorithm that the engine will use.
pub(super) fn algorithm(chosen: ConvolutionAlgorithm, precision: Precision) -> Result<String, Failure> {
    match precision {
        Precision::Bf16Amx if chosen != ConvolutionAlgorithm::default() => {
            Err(Failure::usage("--kernels: bf16-amx always computes with tiles; leave --kernels out"))
        }
        Precision::Bf16Amx => Ok(ConvolutionAlgorithm::Tiles.to_string()),
        Precision::F32 | Precision::Bf16 => Ok(chosen.to_string()),
    }
}

/// Takes part in the steps that rank 0 measures.
pub(super) fn follow(args: &Args, connection: Connection) -> Result<(), Failure> {
    measure(args, Some(connection)).map(drop)
}

/// What was measured.
struct Measured {
    times: Vec<Duration>,
    /// What a step sends to other processes.
    traffic: Traffic,
    /// Peak memory of the steps, in MiB.
    peak_mb: Option<u64>,
    gradient_bytes: usize,
    threads: usize,
    level: SimdLevel,
    /// A checksum of the parameters after training steps, or of the logits of an evaluation.
    checksum: String,
}

/// Measures steps on random images, together with other processes if there are any.
fn measure(args: &Args, connection: Option<Connection>) -> Result<Measured, Failure> {
    let (batch_size, side, classes) = (args.batch_size as usize, args.image_size, args.classes);
    let level = args.simd.unwrap_or_default();
    let (mut workers, peers): (Box<dyn Workers>, _) = match connection {
        Some(Connection { workers, peers }) => (workers, Some(peers)),
        None => (Box::new(SingleProcess), None),
    };
    let build = || -> Result<(Cpu, Option<Criterion>, Workspace, usize), Failure> {
        let pool = args.threads.pool()?;
        let threads = pool.threads();
        let network = Network::new(args.model, args.channels, [side, side], classes)?;
        let bytes = Cpu::bytes(&network, batch_size.div_ceil(workers.shard().size()), threads, args.precision);
        if available_bytes().is_some_and(|available| bytes > available) {
            return Err(NnError::Memory { batch_size, bytes }.into());
        }
        let options = CpuOptions { precision: args.precision, simd: level, algorithm: args.kernels, peers };
        let engine = Cpu::with_options(network, batch_size, 0, pool.clone(), options)?;
        let criterion = match args.evaluate {
            true => None,
            false => {
                let criterion = Config::from(args.criterion.preset(Preset::Reference)).init(&vec![1; classes]);
                Some(criterion.map_err(|error| Failure::from(error).about(&format!("--classes {classes}")))?)
            }
        };
        Ok((engine, criterion, Workspace::with_pool(pool).with_simd(level), threads))
    };
    let built = build();
    let what = built.as_ref().err().map(|failure| TrainError::Unusable { what: failure.to_string() });
    let agreed = agree(&mut workers, what.map_or(Ok(()), Err));
    let (engine, criterion, workspace, threads) = match (built, workers.shard().rank()) {
        // it is in the message to the others, who do not show it
        (Err(failure), 0) => return Err(failure),
        (built, _) => {
            agreed?;
            built?
        }
    };
    let gradient_bytes = engine.gradient_bytes();
    let (times, traffic, peak_mb, checksum) = time_steps(args, engine, criterion, workspace, &mut workers)?;
    Ok(Measured { times, traffic, peak_mb, gradient_bytes, threads, level, checksum })
}

/// Steps before those that are measured.
const WARMUP: u32 = 3;

/// What a step sent between two counts.
fn per_step(before: Traffic, after: Traffic, steps: u32) -> Traffic {
    let per_step = |of: fn(&Traffic) -> u64| (of(&after) - of(&before)) / u64::from(steps);
    let seconds = |of: fn(&Traffic) -> f64| (of(&after) - of(&before)) / f64::from(steps);
    Traffic {
        short: per_step(|traffic| traffic.short),
        short_bytes: per_step(|traffic| traffic.short_bytes),
        short_seconds: seconds(|traffic| traffic.short_seconds),
        sums: per_step(|traffic| traffic.sums),
        sum_bytes: per_step(|traffic| traffic.sum_bytes),
        sum_seconds: seconds(|traffic| traffic.sum_seconds),
        gathers: per_step(|traffic| traffic.gathers),
        gather_bytes: per_step(|traffic| traffic.gather_bytes),
        gather_seconds: seconds(|traffic| traffic.gather_seconds),
    }
}

/// A checksum of the bits of numbers.
fn checksum<'a>(values: impl Iterator<Item = &'a f32>) -> String {
    let fnv1a = |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", values.fold(0xcbf2_9ce4_8422_2325, fnv1a))
}

/// Times of the steps on random images, what a step sends, their peak memory, and a checksum of the results.
fn time_steps(
    args: &Args,
    mut engine: Cpu,
    mut criterion: Option<Criterion>,
    mut workspace: Workspace,
    workers: &mut Box<dyn Workers>,
) -> Result<(Vec<Duration>, Traffic, Option<u64>, String), Failure> {
    let (batch_size, side, classes, shard) = (args.batch_size as usize, args.image_size, args.classes, workers.shard());
    let rows_of = |rank: usize| match engine.slices() {
        Some(slices) => slices.rows(batch_size, rank, shard.size()),
        None => 0..batch_size,
    };
    let rows = rows_of(shard.rank());
    let lengths: Vec<usize> = (0..shard.size()).map(|rank| rows_of(rank).len() * classes).collect();
    let values = args.channels * side * side;
    let mut images = normals(batch_size * values, 1.0);
    images.truncate(rows.end * values);
    images.drain(..rows.start * values);
    let labels = labels(batch_size, classes);
    let (mut grad, mut weights) = (vec![0.0; batch_size * classes], vec![0.0; batch_size]);
    let mut all = Vec::new();
    let sgd = Optimizer::sgd(0.1, 0.9, 2e-4);
    let mut step = |engine: &mut Cpu| -> Result<(), Failure> {
        let logits = match images.is_empty() {
            true => engine.forward_without_images().map(|()| &[][..])?,
            false => engine.forward(&images, !args.evaluate)?,
        };
        if let Some(criterion) = &mut criterion {
            let logits = match shard.size() {
                1 => logits,
                _ => {
                    workers.gather(logits, &lengths, &mut all).map_err(TrainError::from)?;
                    &all
                }
            };
            let output = Output::new(&mut grad, &mut weights);
            criterion.train(&Batch::new(logits, &labels), output, &mut workspace)?;
            match images.is_empty() {
                true => engine.backward_without_images()?,
                false => engine.backward(&grad[rows.start * classes..rows.end * classes])?,
            }
            engine.step(&sgd)?;
        }
        Ok(())
    };
    let mut times = Vec::new();
    let mut before = engine.traffic();
    for round in 0..args.steps + WARMUP {
        if round == WARMUP {
            before = engine.traffic();
        }
        let (result, time) = timed(|| step(&mut engine));
        result?;
        if round >= WARMUP {
            times.push(time);
        }
    }
    let (traffic, peak) = (per_step(before, engine.traffic(), args.steps), peak_mb());
    engine.gather_state()?;
    let checksum = match args.evaluate {
        true => checksum(engine.forward(&images, false)?.iter()),
        false => checksum(engine.tensors(TensorKind::Parameters)?.iter().flatten()),
    };
    Ok((times, traffic, peak, checksum))
}
