//! Batches of a split, whether its images are in memory or in files.
//!
//! A loader decodes every file once before the first batch, so that all unreadable files are named together, and caches
//! decoded images up to a limit. The others are read and decoded again for every batch, so that a dataset may be larger than
//! memory. The cache does not change the batches. Files to predict are not decoded before ([`Loader::unchecked`]).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use equipoise_pool::Pool;

use super::augmentation::Augmentation;
use super::image_draw::ImageDraw;
use super::normalize::Normalize;
use super::photo::{PhotoCrop, PhotoTransform};
use super::pixel::PixelValue;
use super::small::SmallTransform;
use super::thumbnail;
use crate::dataset::{Images, Pixels};
use crate::error::{DataError, UnreadableFile};
use crate::features::Features;
use crate::features::scaling::FeatureScaling;
use crate::read::decode::{DecodeLimits, DecodedImage, decode, read_image};

/// Called now and then, from any thread, with the number of images done and the number of all images.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How images become the input of a network.
#[derive(Clone, Debug, PartialEq)]
pub enum Transform {
    /// Files are resized and center-cropped to one size first; then they are treated as images in memory.
    Small {
        /// Width and height of files; images in memory keep their size.
        image_size: u32,
        /// What happens to them.
        transform: SmallTransform,
    },
    /// Every crop is taken from the complete photograph.
    Photo {
        /// Width and height of a crop.
        image_size: u32,
        /// Which area is cropped.
        crop: PhotoCrop,
        /// Augmentation of random crops.
        augmentation: Augmentation,
        /// Normalization.
        normalize: Normalize,
    },
    /// Rows of features are scaled.
    Features {
        /// How they are scaled.
        scaling: FeatureScaling,
        /// Factor and offset of every feature.
        normalize: Normalize,
    },
}

/// Decoded images that stay in memory.
enum Cache {
    /// All images, at their final size.
    Pixels(Pixels),
    /// The photographs that fit into the limit.
    Photos(Vec<Option<DecodedImage>>),
    /// Rows of features, which stay in their files.
    Features(Features),
    Nothing,
}

/// Makes the batches of a split.
pub struct Loader {
    cache: Cache,
    files: Vec<PathBuf>,
    transform: Transform,
    /// Transforms that no thread is using; each thread takes one and puts it back.
    idle: Mutex<Vec<PhotoTransform>>,
}

/// Images per task of the pool.
const IMAGES_PER_TASK: usize = 8;
/// Rows of features per task of the pool.
const ROWS_PER_TASK: usize = 64;
/// How many rows before its turn a row is requested from memory.
const ROWS_AHEAD: usize = 2;

impl Loader {
    /// Decodes all images once; `cache_bytes` is the limit on decoded files that are kept.
    ///
    /// # Errors
    /// Names every file that cannot be read. Crops of photographs are refused for images in memory.
    pub fn new(
        images: Images,
        transform: Transform,
        cache_bytes: u64,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, DataError> {
        let idle = Mutex::new(Vec::new());
        let files = match (images, &transform) {
            (Images::Memory(pixels), Transform::Small { .. }) => {
                return Ok(Self { cache: Cache::Pixels(pixels), files: Vec::new(), transform, idle });
            }
            (Images::Features(features), Transform::Features { .. }) => {
                return Ok(Self { cache: Cache::Features(features), files: Vec::new(), transform, idle });
            }
            (Images::Features(_), _) | (_, Transform::Features { .. }) => return Err(DataError::NoPixels),
            (Images::Memory(_), Transform::Photo { .. }) => return Err(DataError::NoPhotographs),
            (Images::Files(files), _) => files,
        };
        let mut loader = Self { cache: Cache::Nothing, files, transform, idle };
        let scan = Scan { total: loader.files.len(), done: AtomicU64::new(0), failed: Mutex::default(), progress };
        let cache = match &loader.transform {
            Transform::Small { image_size, .. } => loader.scan_small(&scan, *image_size as usize, cache_bytes, pool),
            Transform::Photo { .. } | Transform::Features { .. } => loader.scan_photos(&scan, cache_bytes, pool),
        };
        scan.finish()?;
        loader.cache = cache;
        Ok(loader)
    }

    /// A loader of files that nobody has looked at: every batch reads its files, and names those that it cannot read.
    #[must_use]
    pub fn unchecked(files: Vec<PathBuf>, transform: Transform) -> Self {
        Self { cache: Cache::Nothing, files, transform, idle: Mutex::new(Vec::new()) }
    }

    /// A loader that treats images in memory as photographs: they are scaled up or down to the transform's size.
    #[must_use]
    pub fn photographs(pixels: &Pixels, transform: Transform) -> Self {
        let photo = |index| Some(DecodedImage::from_planes(pixels.image(index), pixels.width, pixels.height));
        let photos = (0..pixels.len()).map(photo).collect();
        Self { cache: Cache::Photos(photos), files: Vec::new(), transform, idle: Mutex::new(Vec::new()) }
    }

    /// Decodes all files; keeps all of them at their final size, or none.
    fn scan_small(&self, scan: &Scan<'_>, side: usize, cache_bytes: u64, pool: &Pool) -> Cache {
        let (total, stride) = (scan.total, 3 * side * side);
        if stride as u64 * total as u64 > cache_bytes {
            pool.run(total.div_ceil(IMAGES_PER_TASK), |task| {
                let first = task * IMAGES_PER_TASK;
                scan.decode(first, &self.files[first..total.min(first + IMAGES_PER_TASK)], &mut |_, _| {});
            });
            return Cache::Nothing;
        }
        let mut bytes = vec![0; total * stride];
        let mut tasks: Vec<(&[PathBuf], &mut [u8])> =
            self.files.chunks(IMAGES_PER_TASK).zip(bytes.chunks_mut(IMAGES_PER_TASK * stride)).collect();
        pool.each(&mut tasks, |task, (files, out)| {
            self.with_transform(|transform| {
                scan.decode(task * IMAGES_PER_TASK, files, &mut |i, image| {
                    transform.fit(&image, &mut out[i * stride..][..stride]);
                });
            });
        });
        drop(tasks);
        Cache::Pixels(Pixels { channels: 3, height: side, width: side, bytes: bytes.into() })
    }

    /// Decodes all files; keeps as many of them as fit into the limit.
    fn scan_photos(&self, scan: &Scan<'_>, cache_bytes: u64, pool: &Pool) -> Cache {
        let used = AtomicU64::new(0);
        let mut photos: Vec<Option<DecodedImage>> = (0..scan.total).map(|_| None).collect();
        let mut tasks: Vec<(&[PathBuf], &mut [Option<DecodedImage>])> =
            self.files.chunks(IMAGES_PER_TASK).zip(photos.chunks_mut(IMAGES_PER_TASK)).collect();
        pool.each(&mut tasks, |task, (files, out)| {
            scan.decode(task * IMAGES_PER_TASK, files, &mut |i, image| {
                let size = image.bytes.len() as u64;
                let fits = |used: u64| used.checked_add(size).filter(|used| *used <= cache_bytes);
                if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
                    out[i] = Some(image);
                }
            });
        });
        drop(tasks);
        Cache::Photos(photos)
    }

    /// Whether these are rows of features rather than images.
    #[must_use]
    pub fn is_of_features(&self) -> bool {
        matches!(self.cache, Cache::Features(_))
    }

    /// Whether batches are made of files or decoded photographs, which takes much longer than images at their final size.
    #[must_use]
    pub fn decodes(&self) -> bool {
        matches!(self.cache, Cache::Photos(_) | Cache::Nothing)
    }

    /// Channels, height and width of the images in a batch; rows of features are images of one pixel.
    #[must_use]
    pub fn shape(&self) -> (usize, usize, usize) {
        match (&self.cache, &self.transform) {
            (Cache::Pixels(pixels), _) => (pixels.channels, pixels.height, pixels.width),
            (Cache::Features(features), _) => (features.width(), 1, 1),
            (_, Transform::Features { normalize, .. }) => (normalize.scale.len(), 1, 1),
            (_, Transform::Small { image_size, .. } | Transform::Photo { image_size, .. }) => {
                (3, *image_size as usize, *image_size as usize)
            }
        }
    }

    /// Fills `out` with the images at these indices, normalized or as levels: image after image, channel after channel.
    ///
    /// # Shapes
    /// `out` is `indices.len()` x channels x height x width.
    ///
    /// # Errors
    /// Names the files that cannot be read. All other images are in `out`.
    ///
    /// # Panics
    /// If `out` has another size, or an index is out of range.
    pub fn batch<P: PixelValue>(
        &self,
        indices: &[u32],
        seed: u64,
        epoch: u64,
        out: &mut [P],
        pool: &Pool,
    ) -> Result<(), DataError> {
        self.draw(&ImageDraw::all(indices, seed, epoch), out, pool)
    }

    /// Fills `out` with images, normalized or as levels, each with random numbers of its own: image after image, channel after
    /// channel.
    ///
    /// # Shapes
    /// `out` is `images.len()` x channels x height x width.
    ///
    /// # Errors
    /// Names the files that can no longer be read.
    ///
    /// # Panics
    /// If `out` has another size, or an index is out of range.
    pub fn draw<P: PixelValue>(&self, images: &[ImageDraw], out: &mut [P], pool: &Pool) -> Result<(), DataError> {
        if let (Cache::Pixels(pixels), Transform::Small { transform, .. }) = (&self.cache, &self.transform) {
            transform.draw(pixels, images, out, pool);
            return Ok(());
        }
        let (channels, height, width) = self.shape();
        let stride = channels * height * width;
        assert_eq!(out.len(), images.len() * stride, "the output must hold every pixel of the batch");
        if let (Cache::Features(features), Transform::Features { scaling, normalize }) = (&self.cache, &self.transform)
        {
            let out = P::as_features(out).ok_or(DataError::NoPixels)?;
            let rows = images.chunks(ROWS_PER_TASK).zip(out.chunks_mut(ROWS_PER_TASK * stride));
            let mut tasks: Vec<(&[ImageDraw], &mut [f32])> = rows.collect();
            pool.each(&mut tasks, |_, (images, out)| {
                for (at, row) in out.chunks_exact_mut(stride).enumerate() {
                    // rows are far apart, and the CPU cannot guess the next ones
                    let soon = images.get(at + ROWS_AHEAD).map(|image| image.index as usize);
                    features.copy_row_and_prefetch(images[at].index as usize, row, soon);
                    scaling.apply(normalize, row);
                }
            });
            return Ok(());
        }
        // photographs take so long that each is worth a task
        let mut tasks: Vec<(&ImageDraw, &mut [P], Option<UnreadableFile>)> =
            images.iter().zip(out.chunks_exact_mut(stride)).map(|(image, out)| (image, out, None)).collect();
        pool.each(&mut tasks, |_, (image, out, failed)| {
            if let Err(what) = self.with_transform(|transform| self.image(image, out, transform)) {
                let index = image.index;
                *failed = Some(UnreadableFile { index, path: self.files[index as usize].clone(), what });
            }
        });
        let files: Vec<UnreadableFile> = tasks.into_iter().filter_map(|(_, _, failed)| failed).collect();
        if files.is_empty() { Ok(()) } else { Err(DataError::Unreadable { files }) }
    }

    /// A thumbnail of an image: a PNG file in base 64, with at most `side` pixels a side.
    ///
    /// # Errors
    /// If its file can no longer be read.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn thumbnail(&self, index: u32, side: u32) -> Result<String, DataError> {
        let i = index as usize;
        let read = || decode_file(&self.files[i]).and_then(|photo| thumbnail::of_image(&photo, side));
        let thumbnail = match &self.cache {
            Cache::Pixels(pixels) => thumbnail::of_pixels(pixels, i, side),
            Cache::Photos(photos) => photos[i].as_ref().map_or_else(read, |photo| thumbnail::of_image(photo, side)),
            Cache::Nothing => read(),
            Cache::Features(features) => match features.name(i) {
                Some(file) => decode_file(file).and_then(|photo| thumbnail::of_image(&photo, side)),
                None => Err("features have no picture".to_owned()),
            },
        };
        thumbnail.map_err(|what| {
            let path = self.files.get(i).cloned().unwrap_or_default();
            DataError::Unreadable { files: vec![UnreadableFile { index, path, what }] }
        })
    }

    /// Transforms one image that is not cached at its final size.
    fn image<P: PixelValue>(
        &self,
        draw: &ImageDraw,
        out: &mut [P],
        photo_transform: &mut PhotoTransform,
    ) -> Result<(), String> {
        if matches!(self.transform, Transform::Features { .. }) {
            return Err(DataError::NoPixels.to_string());
        }
        let decoded;
        let index = draw.index as usize;
        let image = match &self.cache {
            Cache::Photos(photos) if let Some(photo) = &photos[index] => photo,
            _ => {
                decoded = decode_file(&self.files[index])?;
                &decoded
            }
        };
        match &self.transform {
            Transform::Photo { crop, .. } => photo_transform.crop(image, crop, draw, out),
            Transform::Small { image_size, transform } => {
                let side = *image_size as usize;
                let mut bytes = vec![0; 3 * side * side];
                photo_transform.fit(image, &mut bytes);
                let pixels = Pixels { channels: 3, height: side, width: side, bytes: bytes.into() };
                transform.image(&pixels, 0, draw, &mut transform.scratch(&pixels), out);
            }
            // refused above
            Transform::Features { .. } => {}
        }
        Ok(())
    }

    /// Lends a transform, which keeps its memory between batches.
    fn with_transform<T>(&self, f: impl FnOnce(&mut PhotoTransform) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let reused = idle().pop();
        let mut transform = reused.unwrap_or_else(|| match &self.transform {
            Transform::Small { image_size, transform } => {
                PhotoTransform::new(*image_size, transform.augmentation, transform.normalize.clone())
            }
            Transform::Photo { image_size, augmentation, normalize, .. } => {
                PhotoTransform::new(*image_size, *augmentation, normalize.clone())
            }
            Transform::Features { normalize, .. } => PhotoTransform::new(1, Augmentation::NONE, normalize.clone()),
        });
        let value = f(&mut transform);
        idle().push(transform);
        value
    }
}

/// The files that cannot be read, by index. All of them are decoded once.
#[must_use]
pub fn unreadable_files(files: &[PathBuf], pool: &Pool, progress: Progress<'_>) -> Vec<UnreadableFile> {
    let total = files.len();
    let scan = Scan { total, done: AtomicU64::new(0), failed: Mutex::default(), progress };
    pool.run(total.div_ceil(IMAGES_PER_TASK), |task| {
        let first = task * IMAGES_PER_TASK;
        scan.decode(first, &files[first..total.min(first + IMAGES_PER_TASK)], &mut |_, _| {});
    });
    match scan.finish() {
        Err(DataError::Unreadable { files }) => files,
        _ => Vec::new(),
    }
}

/// The first look at all files.
struct Scan<'a> {
    /// Number of files.
    total: usize,
    done: AtomicU64,
    failed: Mutex<Vec<UnreadableFile>>,
    progress: Progress<'a>,
}

impl Scan<'_> {
    /// Decodes some files, the first of which has index `first`, and passes the images to `keep` with their position.
    fn decode(&self, first: usize, files: &[PathBuf], keep: &mut dyn FnMut(usize, DecodedImage)) {
        for (i, file) in files.iter().enumerate() {
            match decode_file(file) {
                Ok(image) => keep(i, image),
                Err(what) => {
                    let unreadable = UnreadableFile { index: (first + i) as u32, path: file.clone(), what };
                    self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(unreadable);
                }
            }
        }
        let done = self.done.fetch_add(files.len() as u64, Ordering::Relaxed) + files.len() as u64;
        (self.progress)(done, self.total as u64);
    }

    /// All files that could not be read, by index, as an error.
    fn finish(self) -> Result<(), DataError> {
        let mut files = self.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        files.sort_by_key(|file| file.index);
        if files.is_empty() { Ok(()) } else { Err(DataError::Unreadable { files }) }
    }
}

/// Reads and decodes a file.
fn decode_file(file: &Path) -> Result<DecodedImage, String> {
    decode(&read_image(file)?, DecodeLimits::default()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
