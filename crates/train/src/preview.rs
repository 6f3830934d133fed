//! A picture of what the network sees: training images as they are, and as the augmentation makes them, by group of classes.
//!
//! The images go through the code that makes training batches. Only the images that are shown are read, so partners of mixup,
//! CutMix and CMO are drawn among them.

use std::sync::Arc;

use equipoise_data::batch::normalize::Normalize;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::contact_sheet::{SheetColumn, SheetGroup, Tile, contact_sheet};
use equipoise_data::describe::groups::ClassGroup;
use equipoise_data::{Dataset, Images, Pixels};
use equipoise_pool::Pool;
use equipoise_random::{Example, Stream};

use crate::difficulty::MAX_LEVEL;
use crate::error::{TrainError, first_broken};
use crate::prepare::{SplitLoader, default_normalize, transform};
use crate::run::input::choose_input;
use crate::settings::Settings;
use crate::trainer::batches::{EpochBatches, TrainBatch};

/// Images of each group.
const IMAGES_PER_GROUP: usize = 8;
/// Augmented versions of each image: those of as many epochs.
const VERSIONS: u64 = 3;

/// Draws a PNG file with augmented training images of every group of classes. Network and image size follow from the images if the
/// settings leave them open.
///
/// # Errors
/// If there are no images, one cannot be read, or a setting is out of range.
pub fn preview(dataset: &Dataset, settings: &Settings, pool: &Pool) -> Result<Vec<u8>, TrainError> {
    settings.check()?;
    let mut settings = settings.clone();
    choose_input(&mut settings, dataset);
    let counts = class_counts(&dataset.train.labels, dataset.classes.len())?;
    let groups = settings.groups.groups(&counts);
    let columns: Vec<Column> =
        (0..groups.len()).flat_map(|group| choose(dataset, &groups, group, settings.seed)).collect();
    if columns.is_empty() {
        let what = "it has no training images".to_owned();
        return Err(TrainError::Dataset { dataset: dataset.name.clone(), what });
    }
    Ok(contact_sheet(&draw(dataset, &settings, &groups, &columns, pool)?)?)
}

/// An image that is shown.
#[derive(Clone, Copy)]
struct Column {
    /// Index of the image in the training split.
    index: u32,
    /// The group of its class.
    group: usize,
}

/// Images of a group: one of each class in turn.
fn choose(dataset: &Dataset, groups: &[ClassGroup], group: usize, seed: u64) -> Vec<Column> {
    let labels = &dataset.train.labels;
    let of_class = |class: &usize| {
        let mut indices: Vec<u32> =
            (0..labels.len() as u32).filter(|i| labels[*i as usize] as usize == *class).collect();
        let order = |index: &u32| Example { seed, epoch: 0, example: (*index).into() }.draws(Stream::Sampler).at(0);
        indices.sort_by_key(order);
        indices.truncate(IMAGES_PER_GROUP);
        indices
    };
    let classes: Vec<Vec<u32>> = groups[group].classes.iter().take(IMAGES_PER_GROUP).map(of_class).collect();
    let in_turn = (0..IMAGES_PER_GROUP).flat_map(|turn| classes.iter().filter_map(move |of_class| of_class.get(turn)));
    let mut chosen: Vec<Column> = in_turn.take(IMAGES_PER_GROUP).map(|index| Column { index: *index, group }).collect();
    // images of a class side by side
    chosen
        .sort_by_key(|column| groups[group].classes.iter().position(|c| *c == labels[column.index as usize] as usize));
    chosen
}

/// The sheet of these images.
fn draw(
    dataset: &Dataset,
    settings: &Settings,
    groups: &[ClassGroup],
    columns: &[Column],
    pool: &Pool,
) -> Result<Vec<SheetGroup>, TrainError> {
    let split = dataset.train.subset(&columns.iter().map(|column| column.index).collect::<Vec<u32>>());
    let (files, normalize) = (matches!(split.images, Images::Files(_)), default_normalize(dataset));
    let loader = |train: bool| -> Result<SplitLoader, TrainError> {
        let (transform, mut broken) = (transform(settings, files, &normalize, train), Vec::new());
        let loader = SplitLoader::new(split.clone(), transform, &dataset.classes, &mut broken, (pool, &|_, _| {}))?;
        let unreadable = || TrainError::Dataset { dataset: dataset.name.clone(), what: first_broken(&broken) };
        loader.ok_or_else(unreadable)
    };
    let (plain, train) = (loader(false)?, loader(true)?);
    let order: Vec<u32> = (0..columns.len() as u32).collect();
    let mut images = vec![0.0; columns.len() * plain.image_len()];
    plain.loader.batch(&order, 0, 0, &mut images, pool)?;
    let mut tiles: Vec<Vec<Tile>> = images
        .chunks_exact(plain.image_len())
        .map(|image| vec![tile(&plain, &normalize, image, "original".to_owned())])
        .collect();
    for epoch in 0..VERSIONS {
        let batch = augmented(&train, settings, dataset.classes.len(), &order, epoch)?;
        for (row, (tiles, image)) in tiles.iter_mut().zip(batch.images.chunks_exact(train.image_len())).enumerate() {
            tiles.push(tile(&train, &normalize, image, caption(&batch, row, &dataset.classes)));
        }
    }
    let mut sheet: Vec<SheetGroup> =
        groups.iter().map(|group| SheetGroup { title: title(group), columns: Vec::new() }).collect();
    for (column, tiles) in columns.iter().zip(tiles) {
        let title = dataset.classes[dataset.train.labels[column.index as usize] as usize].clone();
        sheet[column.group].columns.push(SheetColumn { title, tiles });
    }
    sheet.retain(|group| !group.columns.is_empty());
    Ok(sheet)
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
