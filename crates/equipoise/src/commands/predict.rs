//! `equipoise predict`: labels and probabilities for images.

use std::io::Write;
use std::path::PathBuf;

use equipoise_data::Images;
use equipoise_data::augment::{Normalize, Policy};
use equipoise_data::loader::{Loader, Recipe};
use equipoise_nn::{Engine, Kind};
use equipoise_train::checkpoint::Checkpoint;
use equipoise_train::evaluate::LogitAdjustment;
use equipoise_train::prepare::recipe;
use serde_json::json;

use super::data::failure;
use crate::runs::{checkpoint, engine, pool, train_failure};
use crate::{Failure, printable};

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise predict runs/my-images-cwap-resnet32-s0 photo.jpg other.png
  equipoise predict runs/my-images-cwap-resnet32-s0 --top 3 --csv *.jpg > labels.csv")]
pub(crate) struct Args {
    /// A run's folder, or a checkpoint
    run: PathBuf,
    /// Images
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// How many classes to name for each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    /// Threads; all cores if left out
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print a line of JSON per image
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: path, label, probability
    #[arg(long)]
    csv: bool,
}

/// Images that go through the network at once.
const BATCH: usize = 32;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Checkpoint { header, parameters, statistics, .. } = checkpoint(&args.run)?;
    let pool = pool(args.threads)?;
    let network = header.network.clone();
    let batch = BATCH.min(args.images.len());
    let mut engine = engine(network.clone(), batch, 0, &pool)?;
    let put = |error: equipoise_nn::NnError| train_failure(error.into());
    engine.set_tensors(Kind::Parameters, &parameters).map_err(put)?;
    engine.set_tensors(Kind::Statistics, &statistics).map_err(put)?;
    // files have three channels: a grey network sees their brightness, normalised afterwards
    let grey = network.channels == 1;
    let mut settings = header.settings.clone();
    settings.data.side = network.size[0] as u32;
    if network.size[0] != network.size[1] {
        let what = format!(
            "the run's images are {} x {}: only square ones can be made of files",
            network.size[0], network.size[1]
        );
        return Err(Failure::Usage(what));
    }
    let recipe = if grey {
        let plain = Normalize::new(&[0.0; 3], &[1.0; 3]).map_err(failure)?;
        Recipe::Small { side: network.size[0] as u32, policy: Policy::plain(plain) }
    } else {
        recipe(&settings, header.files, &header.normalize, false).map_err(train_failure)?
    };
    let loader = Loader::new(Images::Files(args.images.clone()), recipe, 0, &pool, &|_, _| {}).map_err(failure)?;
    let plane = network.size[0] * network.size[1];
    let adjust = LogitAdjustment::from_counts(&header.counts, header.settings.logit_adjust);
    let top = usize::from(args.top).min(header.classes.len());
    if args.csv {
        writeln!(out, "path,label,probability")?;
    }
    let places: Vec<u32> = (0..args.images.len() as u32).collect();
    for places in places.chunks(batch) {
        let mut images = vec![0.0; places.len() * 3 * plane];
        loader.batch(places, 0, 0, &mut images, &pool).map_err(failure)?;
        if grey {
            let brightness = |image: &[f32]| -> Vec<f32> {
                let (red, rest) = image.split_at(plane);
                let (green, blue) = rest.split_at(plane);
                let rgb = red.iter().zip(green).zip(blue);
                rgb.map(|((r, g), b)| header.normalize.value(0, 255.0 * (0.299 * r + 0.587 * g + 0.114 * b))).collect()
            };
            images = images.chunks_exact(3 * plane).flat_map(brightness).collect();
        }
        let mut logits = engine.forward(&images, false).map_err(put)?.to_vec();
        adjust.apply(&mut logits);
        for (at, logits) in places.iter().zip(logits.chunks_exact(network.classes)) {
            let path = args.images[*at as usize].display().to_string();
            let most = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let powers: Vec<f64> = logits.iter().map(|x| f64::from(x - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let mut order: Vec<usize> = (0..powers.len()).collect();
            order.sort_by(|a, b| powers[*b].total_cmp(&powers[*a]).then(a.cmp(b)));
            let found = order.iter().take(top).map(|c| (&header.classes[*c], powers[*c] / sum));
            if args.json {
                let found: Vec<_> = found.map(|(label, p)| json!({"label": label, "probability": p})).collect();
                writeln!(out, "{}", json!({"path": path, "predictions": found}))?;
            } else if args.csv {
                for (label, p) in found {
                    writeln!(out, "{},{},{p:.6}", field(&path), field(label))?;
                }
            } else {
                let found: Vec<String> =
                    found.map(|(label, p)| format!("{} {:.1} %", printable(label), 100.0 * p)).collect();
                writeln!(out, "{}: {}", printable(&path), found.join(", "))?;
            }
        }
    }
    Ok(())
}

/// A field of CSV.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
