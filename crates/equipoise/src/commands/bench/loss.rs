//! `equipoise bench loss`.

use std::io::Write;
use std::time::Duration;

use equipoise_criterion::{Batch, Config, Id, Output, Preset, SimdLevel, Workspace};
use serde_json::json;

use super::{labels, median_and_best, normals, simd, tenths};
use crate::clock::timed;
use crate::failure::Failure;
use crate::options::ThreadArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Examples per batch
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_size: u32,
    /// Number of classes
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    classes: u32,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Measured calls per criterion, after as many to warm up (at most 20)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeats: u32,
    /// Criteria, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "ID,..")]
    criteria: Vec<Id>,
    /// Instructions to use: portable, avx2 or avx512 [default: the best]
    #[arg(long, value_name = "LEVEL", value_parser = simd)]
    simd: Option<SimdLevel>,
    /// Print a line of JSON per criterion
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if u64::from(args.batch_size) * u64::from(args.classes) > 1 << 30 {
        return Err(Failure::usage("--batch-size x --classes: more than 2^30 logits (8 GB with the gradient)"));
    }
    let pool = args.threads.pool()?;
    let (rows, classes, threads) = (args.batch_size as usize, args.classes as usize, pool.threads());
    let mut workspace = Workspace::with_pool(pool).with_simd(args.simd.unwrap_or_default());
    let logits = normals(rows * classes, 2.0);
    let labels = labels(rows, classes);
    let batch = Batch::new(&logits, &labels);
    if !args.json {
        writeln!(out, "{rows} examples, {classes} classes, {threads} threads; microseconds per call")?;
        writeln!(out, "{:<24}{:>12}{:>12}", "criterion", "median", "best")?;
    }
    for id in if args.criteria.is_empty() { Id::ALL } else { &args.criteria } {
        let times = measure(*id, &batch, classes, args.repeats, &mut workspace)?;
        let micros = |time: Duration| tenths(time.as_secs_f64() * 1e6);
        let (median, best) = median_and_best(times);
        let (median, best) = (micros(median), micros(best));
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

/// Times of the calls of a criterion.
fn measure(
    id: Id,
    batch: &Batch<'_>,
    classes: usize,
    repeats: u32,
    workspace: &mut Workspace,
) -> Result<Vec<Duration>, Failure> {
    // 1280 images in the largest class, 5 in the smallest
    let count = |c: usize| (1280.0 * 256f64.powf(-(c as f64) / (classes - 1) as f64)).max(1.0) as u64;
    let counts: Vec<u64> = (0..classes).map(count).collect();
    let mut criterion = Config::from(id.preset(Preset::Printed)).init(&counts)?;
    let (mut grad, mut weights) = (vec![0.0; batch.logits.len()], vec![0.0; batch.labels.len()]);
    let warmup = repeats.min(20);
    let mut times = Vec::new();
    for round in 0..repeats + warmup {
        let output = Output::new(&mut grad, &mut weights);
        let (summary, time) = timed(|| criterion.train(batch, output, workspace));
        summary?;
        if round >= warmup {
            times.push(time);
        }
    }
    Ok(times)
}
