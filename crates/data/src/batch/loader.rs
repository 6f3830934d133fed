//! Batches of a part of a set, whether its images lie in memory or in files.
//!
//! A loader looks at every file once before the first batch: all that cannot be read are named together, and what fits in the
//! room it was given stays decoded. The rest is read and decoded again for every batch, one image per thread at a time, so that
//! a set may be larger than memory. What is kept has no influence on the batches.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use equipoise_pool::Pool;
use equipoise_random::Example;

use crate::batch::photo::{View, Viewer};
use crate::batch::random_ops::{Jitter, RandAugment};
use crate::batch::small::{Normalize, Policy};
use crate::batch::thumbnail;
use crate::dataset::{Images, Pixels};
use crate::error::{DataError, Unreadable};
use crate::read::decode::{Bounds, Rgb, decode, read_image};

/// Called with the images done and all of them, now and then, from any thread.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// How images become what a network sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Files are brought to one size first (the shorter side scaled, then the middle); then as images in memory.
    Small {
        /// The size of files; images in memory keep theirs.
        side: u32,
        /// What is done to them.
        policy: Policy,
    },
    /// Each view is taken from the whole photograph.
    Photo {
        /// Width and height of a view.
        side: u32,
        /// Which view.
        view: View,
        /// Normalisation.
        normalize: Normalize,
        /// Changes of random views.
        randaugment: Option<RandAugment>,
        /// Changes of random views' colours, after the others.
        jitter: Option<Jitter>,
    },
}

/// What stays in memory.
enum Kept {
    Pixels(Pixels),
    /// Decoded as far as there was room.
    Photos(Vec<Option<Rgb>>),
    Nothing,
}

/// Makes batches.
pub struct Loader {
    kept: Kept,
    files: Vec<PathBuf>,
    recipe: Recipe,
    /// Between batches; each thread takes one and puts it back.
    viewers: Mutex<Vec<Viewer>>,
}

/// Images that a task of the pool takes.
const AT_ONCE: usize = 8;

impl Loader {
    /// Looks at all images; `room` is how many bytes of decoded files may be kept.
    ///
    /// # Errors
    /// Names every file that cannot be read. A photograph's view of images in memory is refused.
    pub fn new(
        images: Images,
        recipe: Recipe,
        room: u64,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, DataError> {
        let viewers = Mutex::new(Vec::new());
        let files = match (images, &recipe) {
            (Images::Memory(pixels), Recipe::Small { .. }) => {
                return Ok(Self { kept: Kept::Pixels(pixels), files: Vec::new(), recipe, viewers });
            }
            (Images::Memory(_), Recipe::Photo { .. }) => return Err(DataError::NoPhotographs),
            (Images::Files(files), _) => files,
        };
        let mut loader = Self { kept: Kept::Nothing, files, recipe, viewers };
        loader.kept = loader.look(room, pool, progress)?;
        Ok(loader)
    }

    /// Decodes every file, and keeps what there is room for.
    fn look(&self, room: u64, pool: &Pool, progress: Progress<'_>) -> Result<Kept, DataError> {
        let total = self.files.len();
        let (done, used) = (AtomicU64::new(0), AtomicU64::new(0));
        let failed: Mutex<Vec<Unreadable>> = Mutex::new(Vec::new());
        let look = |first: usize, files: &[PathBuf], keep: &mut dyn FnMut(usize, Rgb)| {
            for (i, file) in files.iter().enumerate() {
                match open(file) {
                    Ok(image) => keep(i, image),
                    Err(what) => {
                        let bad = Unreadable { at: (first + i) as u32, path: file.clone(), what };
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(bad);
                    }
                }
            }
            let done = done.fetch_add(files.len() as u64, Ordering::Relaxed) + files.len() as u64;
            progress(done, total as u64);
        };
        let kept = match &self.recipe {
            Recipe::Small { side, .. } if 3 * u64::from(*side).pow(2) * total as u64 <= room => {
                let side = *side as usize;
                let stride = 3 * side * side;
                let mut bytes = vec![0; total * stride];
                let mut tasks: Vec<(&[PathBuf], &mut [u8])> =
                    self.files.chunks(AT_ONCE).zip(bytes.chunks_mut(AT_ONCE * stride)).collect();
                pool.each(&mut tasks, |task, (files, out)| {
                    self.with_viewer(|viewer| {
                        look(task * AT_ONCE, files, &mut |i, image| {
                            viewer.fit(&image, &mut out[i * stride..][..stride]);
                        });
                    });
                });
                drop(tasks);
                Kept::Pixels(Pixels { channels: 3, height: side, width: side, bytes: bytes.into() })
            }
            Recipe::Small { .. } => {
                pool.run(total.div_ceil(AT_ONCE), |task| {
                    let first = task * AT_ONCE;
                    look(first, &self.files[first..total.min(first + AT_ONCE)], &mut |_, _| {});
                });
                Kept::Nothing
            }
            Recipe::Photo { .. } => {
                let mut photos: Vec<Option<Rgb>> = (0..total).map(|_| None).collect();
                let mut tasks: Vec<(&[PathBuf], &mut [Option<Rgb>])> =
                    self.files.chunks(AT_ONCE).zip(photos.chunks_mut(AT_ONCE)).collect();
                pool.each(&mut tasks, |task, (files, out)| {
                    look(task * AT_ONCE, files, &mut |i, image| {
                        let size = image.bytes.len() as u64;
                        let fits = |used: u64| used.checked_add(size).filter(|used| *used <= room);
                        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
                            out[i] = Some(image);
                        }
                    });
                });
                drop(tasks);
                Kept::Photos(photos)
            }
        };
        let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        if failed.is_empty() {
            return Ok(kept);
        }
        failed.sort_by_key(|bad| bad.at);
        Err(DataError::Unreadable { files: failed })
    }

    /// Channels, height and width of the images in a batch.
    #[must_use]
    pub fn shape(&self) -> (usize, usize, usize) {
        match (&self.kept, &self.recipe) {
            (Kept::Pixels(pixels), _) => (pixels.channels, pixels.height, pixels.width),
            (_, Recipe::Small { side, .. } | Recipe::Photo { side, .. }) => (3, *side as usize, *side as usize),
        }
    }

    /// Bytes of decoded images that are kept.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Pixels(pixels) => pixels.bytes.len() as u64,
            Kept::Photos(photos) => photos.iter().flatten().map(|image| image.bytes.len() as u64).sum(),
            Kept::Nothing => 0,
        }
    }

    /// Fills `out` with the images at these places: image after image, channel after channel.
    ///
    /// # Shapes
    /// `out` is `places.len()` x channels x height x width.
    ///
    /// # Errors
    /// Names the files that can no longer be read.
    ///
    /// # Panics
    /// If `out` has another size, or there is no such image.
    pub fn batch(&self, places: &[u32], seed: u64, epoch: u64, out: &mut [f32], pool: &Pool) -> Result<(), DataError> {
        if let (Kept::Pixels(pixels), Recipe::Small { policy, .. }) = (&self.kept, &self.recipe) {
            policy.batch(pixels, places, seed, epoch, out, pool);
            return Ok(());
        }
        let (channels, height, width) = self.shape();
        let stride = channels * height * width;
        assert_eq!(out.len(), places.len() * stride, "room for every pixel of the batch");
        // photographs take so long that each is worth a task
        let mut tasks: Vec<(u32, &mut [f32], Option<Unreadable>)> =
            places.iter().zip(out.chunks_exact_mut(stride)).map(|(at, out)| (*at, out, None)).collect();
        pool.each(&mut tasks, |_, (at, out, failed)| {
            let example = Example { seed, epoch, example: (*at).into() };
            if let Err(what) = self.with_viewer(|viewer| self.image(*at, example, out, viewer)) {
                *failed = Some(Unreadable { at: *at, path: self.files[*at as usize].clone(), what });
            }
        });
        let files: Vec<Unreadable> = tasks.into_iter().filter_map(|(_, _, failed)| failed).collect();
        if files.is_empty() { Ok(()) } else { Err(DataError::Unreadable { files }) }
    }

    /// A small picture of an image for people: a PNG file in base 64, with at most `side` pixels a side.
    ///
    /// # Errors
    /// If its file can no longer be read.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn picture(&self, at: u32, side: u32) -> Result<String, DataError> {
        let place = at as usize;
        let read = || open(&self.files[place]).and_then(|photo| thumbnail::of_image(&photo, side));
        let picture = match &self.kept {
            Kept::Pixels(pixels) => thumbnail::of_pixels(pixels, place, side),
            Kept::Photos(photos) => photos[place].as_ref().map_or_else(read, |photo| thumbnail::of_image(photo, side)),
            Kept::Nothing => read(),
        };
        picture.map_err(|what| {
            let path = self.files.get(place).cloned().unwrap_or_default();
            DataError::Unreadable { files: vec![Unreadable { at, path, what }] }
        })
    }

    /// One image that is not in memory at its final size.
    fn image(&self, at: u32, example: Example, out: &mut [f32], viewer: &mut Viewer) -> Result<(), String> {
        let read;
        let image = match &self.kept {
            Kept::Photos(photos) if photos[at as usize].is_some() => photos[at as usize].as_ref(),
            _ => {
                read = open(&self.files[at as usize])?;
                Some(&read)
            }
        };
        let Some(image) = image else { return Ok(()) };
        match &self.recipe {
            Recipe::Photo { view, .. } => viewer.view(image, view, example, out),
            Recipe::Small { side, policy } => {
                let side = *side as usize;
                let mut bytes = vec![0; 3 * side * side];
                viewer.fit(image, &mut bytes);
                let one = Pixels { channels: 3, height: side, width: side, bytes: bytes.into() };
                policy.image(&one, 0, example, &mut policy.room(&one), out);
            }
        }
        Ok(())
    }

    /// Lends a viewer that keeps its room between batches.
    fn with_viewer<T>(&self, f: impl FnOnce(&mut Viewer) -> T) -> T {
        let free = || self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = free().pop();
        let mut viewer = taken.unwrap_or_else(|| match &self.recipe {
            Recipe::Small { side, policy } => Viewer::new(*side, policy.normalize.clone()),
            Recipe::Photo { side, normalize, randaugment, jitter, .. } => {
                Viewer::new(*side, normalize.clone()).with_changes(*randaugment, *jitter)
            }
        });
        let value = f(&mut viewer);
        free().push(viewer);
        value
    }
}

/// Reads and decodes a file.
fn open(file: &Path) -> Result<Rgb, String> {
    decode(&read_image(file)?, Bounds::default()).map_err(|error| error.to_string())
}
