//! The training batches of an epoch. A separate thread prepares each one while the engine trains on the previous one; rows of features are
//! prepared between steps.
//!
//! Pixels are `f32`, normalized, or `u8`, to be normalized on another device.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use equipoise_criterion::Mixed;
use equipoise_data::batch::augmentation::Mixing;
use equipoise_data::batch::cutmix::Patch;
use equipoise_data::batch::image_draw::ImageDraw;
use equipoise_data::batch::mixup::blend;
use equipoise_data::batch::pixel::PixelValue;
use equipoise_data::batch::sampler::Shard;
use equipoise_nn::Slices;
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::prepare::SplitLoader;
use crate::workers::rows_of;

/// A batch that is ready for the engine.
#[derive(Default)]
pub struct TrainBatch<P = f32> {
    /// Rows of the batch that this worker computes.
    pub rows: Range<usize>,
    /// Pixels of these rows, image after image. All that follows is for the whole batch.
    pub images: Vec<P>,
    /// Index of each image in the training split.
    pub indices: Vec<u32>,
    /// Class of each image.
    pub labels: Vec<u32>,
    /// The indices again, as the criterion takes them.
    pub examples: Vec<u64>,
    /// Class of each image's partner, or its own class without a partner; empty if no images are mixed.
    partner_labels: Vec<u32>,
    /// Share of each image in the mixture with its partner, 1 without a partner; empty if no images are mixed.
    shares: Vec<f32>,
    /// Whether all images are blended with others (mixup), so that none is as it was.
    pub is_blended: bool,
}

impl<P> TrainBatch<P> {
    /// Number of images of all workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The second labels of the images, if they are mixed.
    #[must_use]
    pub fn mixed(&self) -> Option<Mixed<'_>> {
        (!self.partner_labels.is_empty()).then(|| Mixed { labels: &self.partner_labels, share: &self.shares })
    }
}

/// The images of a step, counted from 0; `None` after the last step.
///
/// Every batch but the last has `size` images. If the last one would have less than a quarter of that, or a single image, it shares evenly
/// with the one before it: a step by a few images, with batch norms over them, undoes what many have learned.
///
/// # Panics
/// If `size` is 0.
#[must_use]
pub fn nth_batch(order: &[u32], size: usize, step: usize) -> Option<&[u32]> {
    let (whole, rest) = (order.len() / size, order.len() % size);
    let is_enough = rest == 0 || 4 * rest >= size && rest > 1;
    if whole == 0 || is_enough || step + 1 < whole {
        return order.chunks(size).nth(step);
    }
    let (first, second) = order[(whole - 1) * size..].split_at((size + rest).div_ceil(2));
    [first, second].get(step + 1 - whole).copied()
}

/// The batches of one epoch: a function of the settings and of the epoch.
pub struct EpochBatches<'a> {
    /// The training split.
    pub train: &'a SplitLoader,
    /// How images are mixed in this epoch, if they are.
    pub mixing: Option<Arc<Mixing>>,
    /// The images in the order of the epoch.
    pub order: Vec<u32>,
    /// The images from which partners are drawn; empty if no images are mixed.
    pub partners: Vec<u32>,
    /// Level of each class, for RandAugment by difficulty; empty for other augmentation. Levels do not change within an epoch.
    pub levels: Vec<u8>,
    /// Images per batch, of all workers.
    pub batch_size: usize,
    /// Which of the workers this is.
    pub shard: Shard,
    /// How the engine cuts a batch, if it computes with other workers.
    pub slices: Option<Slices>,
    /// Threads that prepare a batch.
    pub pool: Pool,
    /// Seed of the run.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
}

impl EpochBatches<'_> {
    /// Fills a batch with these images.
    ///
    /// # Errors
    /// Names the files that cannot be read.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn prepare<P: PixelValue>(&self, batch: &mut TrainBatch<P>, indices: &[u32]) -> Result<(), TrainError> {
        let train = self.train;
        batch.indices.clear();
        batch.indices.extend_from_slice(indices);
        batch.labels.clear();
        batch.labels.extend(indices.iter().map(|index| train.labels[*index as usize]));
        batch.examples.clear();
        batch.examples.extend(indices.iter().map(|index| u64::from(*index)));
        batch.rows = rows_of(indices.len(), self.shard.rank(), self.shard.size(), self.slices);
        batch.images.resize(batch.rows.len() * train.image_len(), P::default());
        let draws: Vec<ImageDraw> = indices.iter().map(|index| self.draw(*index)).collect();
        train.loader.draw(&draws[batch.rows.clone()], &mut batch.images, &self.pool)?;
        batch.partner_labels.clear();
        batch.shares.clear();
        batch.is_blended = matches!(self.mixing.as_deref(), Some(Mixing::Mixup(_)));
        match &self.mixing {
            Some(mixing) => self.mix(batch, &draws, mixing),
            None => Ok(()),
        }
    }

    /// An image in its turn.
    fn draw(&self, index: u32) -> ImageDraw {
        ImageDraw { level: self.level(index), ..ImageDraw::new(index, self.seed, self.epoch) }
    }

    /// Level of an image's class.
    fn level(&self, index: u32) -> u8 {
        self.levels.get(self.train.labels[index as usize] as usize).copied().unwrap_or(0)
    }

    /// Mixes images of a batch with their partners.
    fn mix<P: PixelValue>(
        &self,
        batch: &mut TrainBatch<P>,
        draws: &[ImageDraw],
        mixing: &Mixing,
    ) -> Result<(), TrainError> {
        let (train, image_len) = (self.train, self.train.image_len());
        let rows = draws.iter().enumerate();
        let mixtures: Vec<(usize, Mixture)> =
            rows.filter_map(|(row, draw)| Some((row, self.mixture(draw, mixing)?))).collect();
        batch.partner_labels.extend_from_slice(&batch.labels);
        batch.shares.resize(draws.len(), 1.0);
        for (row, mixture) in &mixtures {
            batch.shares[*row] = mixture.how.share();
            batch.partner_labels[*row] = train.labels[mixture.partner.index as usize];
        }
        let own: Vec<_> = mixtures.iter().filter(|(row, _)| batch.rows.contains(row)).collect();
        let partners: Vec<ImageDraw> = own.iter().map(|(_, mixture)| mixture.partner).collect();
        let mut images = vec![P::default(); partners.len() * image_len];
        train.loader.draw(&partners, &mut images, &self.pool)?;
        for ((row, mixture), partner) in own.into_iter().zip(images.chunks_exact(image_len)) {
            mixture.how.apply(&mut batch.images[(row - batch.rows.start) * image_len..][..image_len], partner);
        }
        Ok(())
    }

    /// The partner of an image, if it has one.
    fn mixture(&self, draw: &ImageDraw, mixing: &Mixing) -> Option<Mixture> {
        match mixing {
            Mixing::Mixup(mixup) => {
                let partner = mixup.draw(draw.example, self.partners.len());
                Some(Mixture {
                    partner: self.draw(self.partners[partner.position]),
                    how: Combine::Blend(partner.share),
                })
            }
            Mixing::CutMix(cutmix) => {
                let (_, height, width) = self.train.loader.shape();
                let (partner, patch) = cutmix.draw(draw.example, &self.partners, [height, width])?;
                let partner = ImageDraw { level: self.level(partner.index), ..partner };
                Some(Mixture { partner, how: Combine::Paste(patch) })
            }
        }
    }
}

/// The partner of an image, and how the two are combined.
struct Mixture {
    partner: ImageDraw,
    how: Combine,
}

/// How two images become one.
enum Combine {
    /// Blended; the image keeps this share.
    Blend(f32),
    /// A patch of the partner is pasted into the image.
    Paste(Patch),
}

impl Combine {
    /// The share that an image keeps.
    fn share(&self) -> f32 {
        match self {
            Self::Blend(share) => *share,
            Self::Paste(patch) => patch.share(),
        }
    }

    /// Combines the partner into an image.
    fn apply<P: PixelValue>(&self, image: &mut [P], partner: &[P]) {
        match self {
            Self::Blend(share) => blend(image, partner, *share),
            Self::Paste(patch) => patch.paste(image, partner),
        }
    }
}

/// The batches of an epoch, one after the other.
pub(crate) enum Prefetch<'a> {
    /// A thread prepares them, each while the engine computes on the one before.
    Ahead { batches: Receiver<Result<TrainBatch, TrainError>>, recycled: SyncSender<TrainBatch> },
    /// They are prepared when they are asked for, by all threads. Rows of features are only copied; a further thread would take the time of
    /// one that computes.
    OnDemand { epoch: &'a EpochBatches<'a>, step: Cell<usize>, used: Cell<TrainBatch> },
}

impl<'a> Prefetch<'a> {
    /// Starts the thread, if there is one. It ends after the last batch, or when the `Prefetch` is dropped.
    pub(crate) fn start(scope: &'a Scope<'a, '_>, epoch: &'a EpochBatches<'a>, first_step: usize) -> Self {
        if epoch.train.loader.is_of_features() {
            return Self::OnDemand { epoch, step: Cell::new(first_step), used: Cell::default() };
        }
        let (send, batches) = sync_channel(1);
        let (recycled, used) = sync_channel::<TrainBatch>(4);
        scope.spawn(move || {
            for indices in (first_step..).map_while(|step| nth_batch(&epoch.order, epoch.batch_size, step)) {
                let mut batch = used.try_recv().unwrap_or_default();
                let result = epoch.prepare(&mut batch, indices);
                // nobody receives any more: the training loop has ended
                if send.send(result.map(|()| batch)).is_err() {
                    return;
                }
            }
        });
        Self::Ahead { batches, recycled }
    }

    /// The next batch; `None` after the last.
    pub(crate) fn next(&self) -> Option<Result<TrainBatch, TrainError>> {
        match self {
            Self::Ahead { batches, .. } => batches.recv().ok(),
            Self::OnDemand { epoch, step, used } => {
                let indices = nth_batch(&epoch.order, epoch.batch_size, step.replace(step.get() + 1))?;
                let mut batch = used.take();
                Some(epoch.prepare(&mut batch, indices).map(|()| batch))
            }
        }
    }

    /// Gives the memory of a batch back.
    pub(crate) fn recycle(&self, batch: TrainBatch) {
        match self {
            Self::Ahead { recycled, .. } => {
                // a full channel only means that there are enough
                let _ = recycled.try_send(batch);
            }
            Self::OnDemand { used, .. } => used.set(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nth_batch;

    /// Sizes of the batches of so many images, all of which come once and in their order.
    fn sizes(images: u32, size: usize) -> Vec<usize> {
        let order: Vec<u32> = (0..images).collect();
        let batches: Vec<&[u32]> = (0..).map_while(|step| nth_batch(&order, size, step)).collect();
        assert_eq!(batches.concat(), order);
        assert_eq!(batches.len(), order.len().div_ceil(size), "the number of steps does not change");
        batches.into_iter().map(<[u32]>::len).collect()
    }

    #[test]
    fn a_small_last_batch_shares_with_the_one_before() {
        assert_eq!(sizes(24, 8), [8, 8, 8]);
        assert_eq!(sizes(18, 8), [8, 8, 2], "a quarter is enough");
        assert_eq!(sizes(17, 8), [8, 5, 4]);
        assert_eq!(sizes(9, 8), [5, 4]);
        assert_eq!(sizes(1, 8), [1], "there is no other");
        assert_eq!(sizes(9, 4), [4, 3, 2], "a single image is never enough");
        assert_eq!(sizes(3, 2), [2, 1]);
        assert!(sizes(0, 8).is_empty());
        assert_eq!(sizes(3, 1), [1, 1, 1]);
        assert_eq!(sizes(11_906, 128)[91..], [128, 65, 65]);
        assert_eq!(sizes(12_406, 128)[95..], [128, 118], "CIFAR-10-LT with imbalance factor 100");
    }

    #[test]
    fn all_images_come_once() {
        for images in 0..200 {
            for size in 1..40 {
                let sizes = sizes(images, size);
                assert!(sizes.iter().all(|n| *n <= size));
                let is_enough = |n: &usize| 4 * n >= size && (*n > 1 || size < 3);
                assert!(sizes.len() < 2 || sizes.iter().all(is_enough), "{images} images, batches of {size}");
            }
        }
    }
}
