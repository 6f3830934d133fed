//! A picture of what the network sees: training images as they are, and as the augmentation makes them, by group of classes.
//!
//! The images go through the code that makes training batches. Only the images that are shown are read, so partners of mixup,
//! CutMix and CMO are drawn among them.

use std::sync::Arc;

use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::sampler::Shard;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::contact_sheet::{SheetColumn, SheetGroup, Tile, contact_sheet};
use equipoise_data::describe::groups::ClassGroup;
use equipoise_data::describe::strips::strips;
use equipoise_data::{Dataset, Images, Pixels, Split};
use equipoise_pool::Pool;
use equipoise_random::{Example, Stream};
use equipoise_record::{SampleGroup, SampleImage, TrainingSamples};

use crate::batches::{EpochBatches, TrainBatch};
use crate::difficulty::MAX_LEVEL;
use crate::error::{TrainError, first_broken};
use crate::prepare::{RunData, SplitLoader, default_normalize, transform};
use crate::settings::Settings;

/// Images of each group on a sheet.
const IMAGES_PER_GROUP: usize = 8;
/// Augmented versions of each image on a sheet: those of as many epochs.
const VERSIONS: u64 = 3;
/// Images of each group in a run's report.
const REPORTED_IMAGES: usize = 6;
/// Augmented versions of each image in a run's report.
const REPORTED_VERSIONS: u64 = 2;
/// Characters of all images in a run's report.
const REPORTED_BYTES: usize = 140_000;

/// Draws a PNG file with augmented training images of every group of classes, as a network sees them whose image size has been chosen.
///
/// # Errors
/// If there are no images, one cannot be read, or a setting is out of range.
pub fn preview(dataset: &Dataset, settings: &Settings, pool: &Pool) -> Result<Vec<u8>, TrainError> {
    settings.check()?;
    if dataset.train.images.features().is_some() {
        let what = "it has features, which are no pictures".to_owned();
        return Err(TrainError::Dataset { dataset: dataset.name.clone(), what });
    }
    let counts = class_counts(&dataset.train.labels, dataset.classes.len())?;
    let groups = settings.groups.groups(&counts);
    let chosen = ChosenImages::new(&dataset.train, &groups, IMAGES_PER_GROUP, settings.seed);
    if chosen.groups.is_empty() {
        let what = "it has no training images".to_owned();
        return Err(TrainError::Dataset { dataset: dataset.name.clone(), what });
    }
    let source = Source { classes: &dataset.classes, normalize: &default_normalize(dataset, settings), settings, pool };
    let tiles = source.tiles(&chosen, VERSIONS)?;
    let mut sheet: Vec<SheetGroup> =
        groups.iter().map(|group| SheetGroup { title: title(group), columns: Vec::new() }).collect();
    for ((label, group), tiles) in chosen.split.labels.iter().zip(&chosen.groups).zip(tiles) {
        sheet[*group].columns.push(SheetColumn { title: dataset.classes[*label as usize].clone(), tiles });
    }
    sheet.retain(|group| !group.columns.is_empty());
    Ok(contact_sheet(&sheet)?)
}

/// The images for the report of a run, as they are and as its augmentation makes them.
///
/// # Errors
/// If an image cannot be read.
pub(crate) fn samples(data: &RunData, settings: &Settings, pool: &Pool) -> Result<TrainingSamples, TrainError> {
    if data.train.loader.is_of_features() {
        return Ok(TrainingSamples { groups: Vec::new() });
    }
    let (chosen, source) = (&data.shown, Source { classes: &data.classes, normalize: &data.normalize, settings, pool });
    let tiles = source.tiles(chosen, REPORTED_VERSIONS)?;
    let (images, mixed): (Vec<Vec<Pixels>>, Vec<Vec<String>>) = tiles
        .into_iter()
        .map(|tiles| {
            let mixed = tiles.iter().skip(1).map(|tile| tile.caption.clone()).filter(|caption| !caption.is_empty());
            let mixed = mixed.collect();
            (tiles.into_iter().map(|tile| tile.pixels).collect(), mixed)
        })
        .unzip();
    let strips = strips(&images, REPORTED_BYTES)?;
    let mut groups: Vec<SampleGroup> =
        data.groups.iter().map(|group| SampleGroup { name: group.name.clone(), images: Vec::new() }).collect();
    let of_image = chosen.split.labels.iter().zip(&chosen.groups);
    for (((class, group), strip), mixed_with) in of_image.zip(strips).zip(mixed) {
        groups[*group].images.push(SampleImage { class: *class, strip, mixed_with });
    }
    groups.retain(|group| !group.images.is_empty());
    Ok(TrainingSamples { groups })
}

/// Training images to show.
pub struct ChosenImages {
    /// The images.
    split: Split,
    /// The group of each image's class.
    groups: Vec<usize>,
}

impl ChosenImages {
    /// Chooses up to this many images of every group.
    pub(crate) fn new(train: &Split, groups: &[ClassGroup], per_group: usize, seed: u64) -> Self {
        let of_group = |group: usize| {
            let chosen = choose(&train.labels, &groups[group].classes, per_group, seed);
            chosen.into_iter().map(move |index| (index, group))
        };
        let (indices, groups): (Vec<u32>, Vec<usize>) = (0..groups.len()).flat_map(of_group).unzip();
        Self { split: train.subset(&indices), groups }
    }

    /// Chooses the images for the report of a run.
    pub(crate) fn for_report(train: &Split, groups: &[ClassGroup], seed: u64) -> Self {
        Self::new(train, groups, REPORTED_IMAGES, seed)
    }
}

/// Indices of images of some classes: one of each class in turn, then those of a class side by side.
fn choose(labels: &[u32], classes: &[usize], number: usize, seed: u64) -> Vec<u32> {
    let of_class = |class: &usize| {
        let mut indices: Vec<u32> =
            (0..labels.len() as u32).filter(|i| labels[*i as usize] as usize == *class).collect();
        let order = |index: &u32| Example { seed, epoch: 0, example: (*index).into() }.draws(Stream::Sampler).at(0);
        indices.sort_by_key(order);
        indices.truncate(number);
        indices
    };
    let by_class: Vec<Vec<u32>> = classes.iter().take(number).map(of_class).collect();
    let in_turn = (0..number).flat_map(|turn| by_class.iter().filter_map(move |of_class| of_class.get(turn)));
    let mut chosen: Vec<u32> = in_turn.take(number).copied().collect();
    chosen.sort_by_key(|index| classes.iter().position(|class| *class == labels[*index as usize] as usize));
    chosen
}

/// What the images go through.
struct Source<'a> {
    classes: &'a [String],
    normalize: &'a Normalize,
    settings: &'a Settings,
    pool: &'a Pool,
}

impl Source<'_> {
    /// Every image as it is, and its augmented versions.
    fn tiles(&self, chosen: &ChosenImages, versions: u64) -> Result<Vec<Vec<Tile>>, TrainError> {
        let Self { classes, normalize, settings, pool } = *self;
        let split = &chosen.split;
        let files = matches!(split.images, Images::Files(_));
        let loader = |train: bool| -> Result<SplitLoader, TrainError> {
            let (transform, mut broken) = (transform(settings, files, normalize, train), Vec::new());
            let loader = SplitLoader::new(split.clone(), transform, classes, &mut broken, (pool, &|_, _| {}))?;
            let dataset = &settings.data.dataset;
            let unreadable = || TrainError::Dataset { dataset: dataset.clone(), what: first_broken(&broken) };
            loader.ok_or_else(unreadable)
        };
        let (plain, train) = (loader(false)?, loader(true)?);
        let order: Vec<u32> = (0..split.labels.len() as u32).collect();
        let mut images = vec![0.0; order.len() * plain.image_len()];
        plain.loader.batch(&order, 0, 0, &mut images, pool)?;
        let original = |image| vec![tile(&plain, normalize, image, "original".to_owned())];
        let mut tiles: Vec<Vec<Tile>> = images.chunks_exact(plain.image_len()).map(original).collect();
        for epoch in 0..versions {
            let batch = augmented(&train, settings, classes.len(), &order, epoch)?;
            let versions = batch.images.chunks_exact(train.image_len());
            for (row, (tiles, image)) in tiles.iter_mut().zip(versions).enumerate() {
                tiles.push(tile(&train, normalize, image, caption(&batch, row, classes)));
            }
        }
        Ok(tiles)
    }
}

fn title(group: &ClassGroup) -> String {
    let number = group.classes.len();
    format!("{}: {number} {}", group.name, if number == 1 { "class" } else { "classes" })
}

/// The images of an epoch, as the trainer prepares them. Classes have the highest level if the augmentation follows the
/// difficulty.
fn augmented(
    train: &SplitLoader,
    settings: &Settings,
    classes: usize,
    order: &[u32],
    epoch: u64,
) -> Result<TrainBatch, TrainError> {
    let batches = EpochBatches {
        train,
        mixing: settings.augment.mixing(&train.labels, classes)?.map(Arc::new),
        order: order.to_vec(),
        partners: order.to_vec(),
        levels: if settings.augment.follows_difficulty() { vec![MAX_LEVEL; classes] } else { Vec::new() },
        batch_size: order.len(),
        shard: Shard::WHOLE,
        slices: None,
        pool: Pool::single(),
        seed: settings.seed,
        epoch,
    };
    let mut batch = TrainBatch::default();
    batches.prepare(&mut batch, order)?;
    Ok(batch)
}

/// The second label of a mixture with its share.
fn caption(batch: &TrainBatch, row: usize, classes: &[String]) -> String {
    match batch.mixed() {
        Some(mixed) if mixed.is_mixture(row) => {
            let percent = 100.0 * (1.0 - mixed.share[row]);
            format!("{percent:.0}% {}", classes[mixed.labels[row] as usize])
        }
        _ => String::new(),
    }
}

/// A normalized image back in 8 bits.
fn tile(split: &SplitLoader, normalize: &Normalize, image: &[f32], caption: String) -> Tile {
    let (channels, height, width) = split.loader.shape();
    let planes = image.chunks_exact(height * width).enumerate();
    let bytes = planes.flat_map(|(channel, plane)| plane.iter().map(move |value| normalize.level(channel, *value)));
    Tile { pixels: Pixels { channels, height, width, bytes: bytes.collect() }, caption }
}
