//! A look at every image of a dataset: which are usable, which occur twice, what is odd about them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use equipoise_pool::Pool;

use super::near_duplicates::{Look, LookIndex, look};
use crate::batch::loader::Progress;
use crate::dataset::{Dataset, Images, Problem, Split};
use crate::hash::fnv1a;
use crate::read::decode::{DecodeLimits, decode_named, format_by_name, read_image};

/// Names of the splits, in the order in which they are inspected.
const SPLITS: [&str; 3] = ["train", "val", "test"];

/// Training images that others are compared with, at most: each takes about a kilobyte.
const MAX_LOOKS: usize = 400_000;

/// An image file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenImage {
    /// The file.
    pub path: PathBuf,
    /// Its class.
    pub label: u32,
    /// What is wrong with it.
    pub what: String,
}

/// What a look at all images shows.
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    /// Usable images of train, val and test, by class.
    pub(super) usable: [Vec<u64>; 3],
    /// Files that cannot be read.
    pub(super) broken: Vec<BrokenImage>,
    /// Number of images of a split that are in an earlier split too, by the names of both.
    pub(super) overlap: BTreeMap<(&'static str, &'static str), u64>,
    /// Images of a split that look almost like a training image, by the name of the split.
    pub(super) near: BTreeMap<&'static str, NearDuplicates>,
    pub(super) sizes: BTreeMap<(u64, u64), u64>,
    pub(super) formats: BTreeMap<&'static str, u64>,
}

/// An image by its split and index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ImageId {
    split: usize,
    index: usize,
}

impl Findings {
    /// Looks at all images of a dataset.
    pub(super) fn of(dataset: &Dataset, pool: &Pool, progress: Progress<'_>) -> Self {
        let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
        let zeros = || vec![0; dataset.classes.len()];
        let mut found = Self {
            problems: dataset.problems.clone(),
            usable: [zeros(), zeros(), zeros()],
            broken: Vec::new(),
            overlap: BTreeMap::new(),
            near: BTreeMap::new(),
            sizes: BTreeMap::new(),
            formats: BTreeMap::new(),
        };
        let path = |id: ImageId| {
            let name = splits[id.split].and_then(|split| split.images.name(id.index));
            name.unwrap_or_else(|| format!("{}[{}]", SPLITS[id.split], id.index))
        };
        let total: u64 = splits.iter().flatten().map(|split| split.labels.len() as u64).sum();
        let done = AtomicU64::new(0);
        let step = |images: u64| progress(done.fetch_add(images, Ordering::Relaxed) + images, total);
        let mut first: HashMap<u128, (ImageId, u32)> = HashMap::new();
        let (mut looks, mut trained) = (LookIndex::default(), Vec::new());
        for (number, split) in splits.into_iter().enumerate() {
            let Some(split) = split else { continue };
            // of very many training images every second or third one is compared
            let every = if number == 0 { split.labels.len().div_ceil(MAX_LOOKS).max(1) } else { 1 };
            for (index, summary) in summaries(split, every, pool, &step).into_iter().enumerate() {
                let (id, label) = (ImageId { split: number, index }, split.labels[index]);
                match summary {
                    Ok(summary) => {
                        let earlier = *first.entry(summary.key).or_insert((id, label));
                        found.add_image(id, label, &summary, earlier, &path);
                        match summary.look {
                            Some(look) if number == 0 => {
                                looks.add(look);
                                trained.push(id);
                            }
                            Some(look) if earlier.0 == id => {
                                let other = looks.find(&look).map(|other| path(trained[other]));
                                found.near.entry(SPLITS[number]).or_default().add(other, || path(id));
                            }
                            _ => {}
                        }
                    }
                    Err(what) => {
                        let path = split.images.file(index).map(Path::to_owned).unwrap_or_default();
                        found.broken.push(BrokenImage { path, label, what });
                    }
                }
            }
        }
        found
    }

    /// Adds a usable image; `earlier` is the first image with the same pixels, which may be this one.
    fn add_image(
        &mut self,
        id: ImageId,
        label: u32,
        summary: &ImageSummary,
        (earlier, earlier_label): (ImageId, u32),
        path: &dyn Fn(ImageId) -> String,
    ) {
        self.usable[id.split][label as usize] += 1;
        *self.sizes.entry((summary.width, summary.height)).or_default() += 1;
        *self.formats.entry(summary.format).or_default() += 1;
        if let Some(named) = summary.misnamed {
            let what = format!("a {} file with the extension of a {named}", summary.format);
            self.problems.push(Problem { path: path(id), what });
        }
        if earlier != id {
            if earlier.split != id.split {
                *self.overlap.entry((SPLITS[earlier.split], SPLITS[id.split])).or_default() += 1;
            }
            let class = if earlier_label == label { "" } else { ", with another label" };
            let thing = if summary.format == "features" { "row" } else { "image" };
            let what = match (path(id) == path(earlier), earlier_label == label) {
                (true, true) => "listed twice".to_owned(),
                (true, false) => "listed twice, with different labels".to_owned(),
                (false, _) => format!("the same {thing} as {}{class}", path(earlier)),
            };
            self.problems.push(Problem { path: path(id), what });
        }
    }
}

/// Images of a split that look almost like a training image.
#[derive(Default)]
pub(super) struct NearDuplicates {
    /// Images that were compared.
    pub(super) images: u64,
    /// Those among them that look almost like a training image.
    pub(super) near: u64,
    /// The first of them, and the training image.
    pub(super) example: Option<(String, String)>,
}

impl NearDuplicates {
    fn add(&mut self, other: Option<String>, own: impl FnOnce() -> String) {
        self.images += 1;
        if let Some(other) = other {
            self.near += 1;
            self.example.get_or_insert_with(|| (own(), other));
        }
    }
}

/// What a look at one image shows.
struct ImageSummary {
    /// Hash of its size and pixels.
    key: u128,
    width: u64,
    height: u64,
    format: &'static str,
    /// What it roughly looks like, if it is a file with contrast that is compared.
    look: Option<Look>,
    /// The format of its extension, if that is another one.
    misnamed: Option<&'static str>,
}

/// Looks at every image of a split, on all threads, and keeps what every `every`-th of them looks like; `step` is called with the number of
/// images done.
fn summaries(
    split: &Split,
    every: usize,
    pool: &Pool,
    step: &(dyn Fn(u64) + Sync),
) -> Vec<Result<ImageSummary, String>> {
    let mut all: Vec<Result<ImageSummary, String>> = (0..split.labels.len()).map(|_| Err(String::new())).collect();
    const IMAGES_PER_TASK: usize = 16;
    let mut tasks: Vec<&mut [Result<ImageSummary, String>]> = all.chunks_mut(IMAGES_PER_TASK).collect();
    pool.each(&mut tasks, |task, summaries| {
        for (i, summary) in summaries.iter_mut().enumerate() {
            let index = task * IMAGES_PER_TASK + i;
            *summary = match &split.images {
                Images::Memory(pixels) => {
                    let (width, height) = (pixels.width as u64, pixels.height as u64);
                    let key = content_key(width, height, pixels.image(index));
                    Ok(ImageSummary { key, width, height, format: "in memory", look: None, misnamed: None })
                }
                Images::Files(files) => summary_of_file(&files[index], index.is_multiple_of(every)),
                Images::Features(features) => {
                    let mut row = vec![0.0; features.width()];
                    features.copy_row(index, &mut row);
                    let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                    let (width, height) = (row.len() as u64, 1);
                    let key = content_key(width, height, &bytes);
                    Ok(ImageSummary { key, width, height, format: "features", look: None, misnamed: None })
                }
            };
        }
        step(summaries.len() as u64);
    });
    all
}

/// Reads and decodes a file.
fn summary_of_file(file: &Path, with_look: bool) -> Result<ImageSummary, String> {
    let decoded = decode_named(&read_image(file)?, DecodeLimits::default());
    let (image, format) = decoded.map_err(|error| error.to_string())?;
    let look = with_look.then(|| look(image.width as usize, image.height as usize, &image.bytes)).flatten();
    let (width, height) = (image.width.into(), image.height.into());
    let misnamed = format_by_name(file).filter(|named| *named != format);
    Ok(ImageSummary { key: content_key(width, height, &image.bytes), width, height, format, look, misnamed })
}

/// A 128-bit hash of the size and pixels of an image. Different images practically never share one.
fn content_key(width: u64, height: u64, pixels: &[u8]) -> u128 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let high = pixels.iter().fold(width << 32 | height, step);
    u128::from(high) << 64 | u128::from(fnv1a(pixels))
}
