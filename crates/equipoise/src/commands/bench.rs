//! `equipoise bench`: speed on this machine, as numbers that can be set beside a peer's.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Subcommand;
use equipoise_criterion::random::Draws;
use equipoise_criterion::{Batch, Config, Id, Output, Pool, Preset, Simd, Work};
use serde_json::json;

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
    let (mut grad, mut weights, mut work) = (vec![0.0; logits.len()], vec![0.0; rows], Work::with_pool(pool));
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
            let output = Output { grad: &mut grad, weights: &mut weights };
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

/// A normal deviate at a position (Box and Muller).
fn normal(draws: Draws, position: u64) -> f32 {
    let (u, v) = (1.0 - draws.unit(2 * position), draws.unit(2 * position + 1));
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}
