//! `equipoise bench kernels`.

use std::io::Write;
use std::time::Duration;

use equipoise_criterion::SimdLevel;
use equipoise_nn::measure::{Shape, convolution, peak};
use equipoise_nn::{ConvolutionAlgorithm, Precision};
use serde_json::json;

use super::step::algorithm;
use super::{median_and_best, simd, tenths};
use crate::clock::timed;
use crate::failure::Failure;
use crate::output::counted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How 3 x 3 convolutions with stride 1 are computed: direct or winograd; bf16-amx has tiles
    #[arg(long, value_name = "ALGORITHM", default_value_t)]
    kernels: ConvolutionAlgorithm,
    /// Number format of activations and products: f32, bf16 or bf16-amx
    #[arg(long, value_name = "PRECISION", default_value_t)]
    precision: Precision,
    /// Instructions to use: portable, avx2, avx512 or avx512bf16 [default: the best]
    #[arg(long, value_name = "LEVEL", value_parser = simd)]
    simd: Option<SimdLevel>,
    /// Measured rounds; the median is shown
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Convolutions of ResNet-32, ResNet-18 and ResNet-50: input channels, output channels, window, stride, image size, images.
const SHAPES: [[usize; 6]; 12] = [
    [3, 16, 3, 1, 32, 64],
    [16, 16, 3, 1, 32, 64],
    [16, 32, 3, 2, 32, 64],
    [32, 32, 3, 1, 16, 64],
    [32, 64, 3, 2, 16, 64],
    [64, 64, 3, 1, 8, 64],
    [3, 64, 7, 2, 224, 1],
    [64, 64, 3, 1, 56, 4],
    [256, 64, 1, 1, 56, 4],
    [256, 512, 1, 2, 56, 4],
    [256, 256, 3, 1, 14, 8],
    [512, 2048, 1, 1, 7, 16],
];

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    const PEAK_ROUNDS: usize = 1_000_000;
    let level = args.simd.unwrap_or_default();
    let device = format!("cpu {level:?}").to_lowercase();
    let median = |f: &mut dyn FnMut()| median_seconds(args.rounds, f);
    let mut operations = 0.0;
    let time = median(&mut || operations = peak(level, args.precision, PEAK_ROUNDS));
    let peak = tenths(operations / time / 1e9);
    let (kernels, precision) = (algorithm(args.kernels, args.precision)?, args.precision);
    let is_software = precision.is_software(level);
    if !args.json {
        let software = if is_software { " in software" } else { "" };
        let stem = if precision == Precision::F32 { "" } else { "; those of 3 channels are f32" };
        writeln!(
            out,
            "{device} {kernels}, {precision}{software}, one thread, peak {peak:.1} GFLOP/s; GFLOP/s counted as direct convolution{stem}"
        )?;
        writeln!(out, "{:<44}{:>12}{:>12}", "convolution", "forward", "backward")?;
    }
    for [inputs, outputs, kernel, stride, side, images] in SHAPES {
        let shape = Shape { inputs, outputs, kernel, stride, side, images };
        let [forward, backward] = speeds(&shape, args, level);
        if args.json {
            let line = json!({
                "inputs": inputs, "outputs": outputs, "window": kernel, "stride": stride, "image_size": side, "images": images,
                "device": device, "kernels": kernels, "precision": precision, "software": is_software, "peak": peak, "forward": forward,
                "backward": backward,
            });
            writeln!(out, "{line}")?;
        } else {
            let name = format!(
                "{inputs} to {outputs}, {kernel} x {kernel} / {stride}, {side} x {side}, {}",
                counted(images, "image")
            );
            writeln!(out, "{name:<44}{forward:>12.1}{backward:>12.1}")?;
        }
    }
    Ok(())
}

/// GFLOP/s of the forward and the backward pass of a convolution.
fn speeds(shape: &Shape, args: &Args, level: SimdLevel) -> [f64; 2] {
    let mut measured = convolution(shape, args.precision, args.kernels, level);
    let forward = median_seconds(args.rounds, &mut || measured.forward());
    let backward = median_seconds(args.rounds, &mut || measured.backward());
    let operations = shape.operations() / 1e9;
    [operations / forward, operations * measured.passes_back() as f64 / backward].map(tenths)
}

/// The median time of some rounds, after one to warm up.
fn median_seconds(rounds: u32, f: &mut dyn FnMut()) -> f64 {
    let times: Vec<Duration> = (0..=rounds).map(|_| timed(&mut *f).1).skip(1).collect();
    median_and_best(times).0.as_secs_f64().max(1e-9)
}
