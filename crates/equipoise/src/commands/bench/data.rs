//! `equipoise bench data`.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use equipoise_criterion::Pool;
use equipoise_criterion::random::Draws;
use equipoise_data::batch::augmentation::{Augmentation, Policy};
use equipoise_data::batch::loader::{Loader, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::batch::random_ops::{ColorJitter, RandAugment};
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::{DataError, Images, Pixels};
use serde_json::json;

use crate::clock::timed;
use crate::failure::Failure;
use crate::options::ThreadArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Photographs
    files: Vec<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Rounds over all images; the median and the best are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Additional augmentation
    #[arg(long, value_enum, default_value = "crop")]
    policy: PolicyName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum PolicyName {
    /// Only crop and flip
    Crop,
    /// Color jitter
    Jitter,
    /// RandAugment
    #[value(name = "randaugment")]
    RandAugment,
    /// TrivialAugment
    #[value(name = "trivialaugment")]
    TrivialAugment,
    /// AutoAugment with CIFAR-10's policy
    #[value(name = "autoaugment-cifar10")]
    AutoAugment,
}

impl PolicyName {
    fn augmentation(self) -> Result<Augmentation, DataError> {
        let crop = Augmentation::default();
        Ok(match self {
            Self::Crop => crop,
            Self::Jitter => Augmentation { color_jitter: Some(ColorJitter::new(0.4, 0.4, 0.4, 0.1)?), ..crop },
            Self::RandAugment => Augmentation { randaugment: Some(RandAugment::new(2, 9)?), ..crop },
            Self::TrivialAugment => Augmentation { policy: Some(Policy::TrivialAugment), ..crop },
            Self::AutoAugment => Augmentation { policy: Some(Policy::AutoAugmentCifar10), ..crop },
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Crop => "",
            Self::Jitter => ", jitter",
            Self::RandAugment => ", RandAugment",
            Self::TrivialAugment => ", TrivialAugment",
            Self::AutoAugment => ", AutoAugment",
        }
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let pool = args.threads.pool()?;
    let (what, images, mut speeds) = if args.files.is_empty() {
        ("crop, flip, normalize 3 x 32 x 32", IMAGES as usize, small_images(args, &pool)?)
    } else {
        ("read, decode, random resized crop to 224", args.files.len(), photographs(args, &pool)?)
    };
    let (what, threads) = (format!("{what}{}", args.policy.text()), pool.threads());
    speeds.sort_by(f64::total_cmp);
    let (median, best) = (speeds[speeds.len() / 2].round(), speeds[speeds.len() - 1].round());
    if args.json {
        let line =
            json!({"what": what, "images": images, "threads": threads, "images_per_second": median, "best": best});
        return Ok(writeln!(out, "{line}")?);
    }
    Ok(writeln!(out, "{what}: {median} images/s (best {best}), {images} images, {threads} threads")?)
}

/// Number of small images.
const IMAGES: u32 = 10_000;

/// Images per second of every round.
fn small_images(args: &Args, pool: &Pool) -> Result<Vec<f64>, Failure> {
    const BATCH_SIZE: usize = 128;
    let draws = Draws::new(0, 0, 0);
    let bytes: Vec<u8> = (0..u64::from(IMAGES) * 3072).map(|i| draws.at(i) as u8).collect();
    let pixels = Pixels { channels: 3, height: 32, width: 32, bytes: bytes.into() };
    let transform = SmallTransform { augmentation: args.policy.augmentation()?, normalize: Normalize::cifar() };
    let indices: Vec<u32> = (0..IMAGES).collect();
    let mut batch = vec![0.0; BATCH_SIZE * 3072];
    let mut round = |epoch: u32| {
        let ((), time) = timed(|| {
            for indices in indices.chunks(BATCH_SIZE) {
                transform.batch(&pixels, indices, 1, epoch.into(), &mut batch[..indices.len() * 3072], pool);
            }
        });
        f64::from(IMAGES) / time.as_secs_f64()
    };
    // warms up
    round(0);
    Ok((0..args.rounds).map(|epoch| round(epoch + 1)).collect())
}

/// Images per second of every round.
fn photographs(args: &Args, pool: &Pool) -> Result<Vec<f64>, Failure> {
    const SIZE: u32 = 224;
    const BATCH_SIZE: usize = 32;
    let (crop, normalize) = (PhotoCrop::RandomResizedCrop, Normalize::imagenet());
    let transform = Transform::Photo { image_size: SIZE, crop, augmentation: args.policy.augmentation()?, normalize };
    // without a cache, files are read and decoded again for every batch
    let loader = Loader::new(Images::Files(args.files.clone()), transform, 0, pool, &|_, _| {})?;
    let indices: Vec<u32> = (0..args.files.len() as u32).collect();
    let stride = 3 * (SIZE * SIZE) as usize;
    let mut batch = vec![0.0; BATCH_SIZE * stride];
    let mut speeds = Vec::new();
    for epoch in 0..args.rounds {
        let (read, time) = timed(|| {
            indices
                .chunks(BATCH_SIZE)
                .try_for_each(|chunk| loader.batch(chunk, 1, epoch.into(), &mut batch[..chunk.len() * stride], pool))
        });
        read?;
        speeds.push(indices.len() as f64 / time.as_secs_f64());
    }
    Ok(speeds)
}
