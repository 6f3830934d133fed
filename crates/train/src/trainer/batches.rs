//! The training batches of an epoch. A separate thread prepares each one while the engine trains on the previous one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use equipoise_criterion::Mixed;
use equipoise_data::batch::augmentation::Mixing;
use equipoise_data::batch::cutmix::Patch;
use equipoise_data::batch::image_draw::ImageDraw;
use equipoise_data::batch::mixup::blend;
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::prepare::SplitLoader;

/// A batch that is ready for the engine.
#[derive(Default)]
pub(crate) struct TrainBatch {
    /// Pixels, image after image.
    pub(crate) images: Vec<f32>,
    /// Index of each image in the training split.
    pub(crate) indices: Vec<u32>,
    /// Class of each image.
    pub(crate) labels: Vec<u32>,
    /// The indices again, as the criterion takes them.
    pub(crate) examples: Vec<u64>,
    /// Class of each image's partner, or its own class without a partner; empty if no images are mixed.
    partner_labels: Vec<u32>,
    /// Share of each image in the mixture with its partner, 1 without a partner; empty if no images are mixed.
    shares: Vec<f32>,
    /// Whether all images are blended with others (mixup), so that none is as it was.
    pub(crate) is_blended: bool,
}

impl TrainBatch {
    /// Number of images.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The second labels of the images, if they are mixed.
    pub(crate) fn mixed(&self) -> Option<Mixed<'_>> {
        (!self.partner_labels.is_empty()).then(|| Mixed { labels: &self.partner_labels, share: &self.shares })
    }
}

/// The batches of one epoch: a function of the settings and of the epoch.
pub(crate) struct EpochBatches<'a> {
    /// The training split.
    pub(crate) train: &'a SplitLoader,
    /// How images are mixed in this epoch, if they are.
    pub(crate) mixing: Option<Arc<Mixing>>,
    /// This worker's images, in the order of the epoch.
    pub(crate) order: Vec<u32>,
    /// All images of the epoch, from which partners are drawn; empty if no images are mixed.
    pub(crate) partners: Vec<u32>,
    /// Level of each class, for RandAugment by difficulty; empty for other augmentation. Levels do not change within an epoch.
    pub(crate) levels: Vec<u8>,
    /// Images per batch.
    pub(crate) batch_size: usize,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// The epoch, from 0.
    pub(crate) epoch: u64,
}

impl EpochBatches<'_> {
    /// Fills a batch with these images.
    pub(crate) fn prepare(&self, batch: &mut TrainBatch, indices: &[u32]) -> Result<(), TrainError> {
        let train = self.train;
        batch.indices.clear();
        batch.indices.extend_from_slice(indices);
        batch.labels.clear();
        batch.labels.extend(indices.iter().map(|index| train.labels[*index as usize]));
        batch.examples.clear();
        batch.examples.extend(indices.iter().map(|index| u64::from(*index)));
        batch.images.resize(indices.len() * train.image_len(), 0.0);
        let draws: Vec<ImageDraw> = indices.iter().map(|index| self.draw(*index)).collect();
        train.loader.draw(&draws, &mut batch.images, &Pool::single())?;
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
    fn mix(&self, batch: &mut TrainBatch, draws: &[ImageDraw], mixing: &Mixing) -> Result<(), TrainError> {
        let (train, image_len) = (self.train, self.train.image_len());
        let rows = draws.iter().enumerate();
        let mixtures: Vec<(usize, Mixture)> =
            rows.filter_map(|(row, draw)| Some((row, self.mixture(draw, mixing)?))).collect();
        let partners: Vec<ImageDraw> = mixtures.iter().map(|(_, mixture)| mixture.partner).collect();
        let mut images = vec![0.0; partners.len() * image_len];
        train.loader.draw(&partners, &mut images, &Pool::single())?;
        batch.partner_labels.extend_from_slice(&batch.labels);
        batch.shares.resize(draws.len(), 1.0);
        for ((row, mixture), partner) in mixtures.iter().zip(images.chunks_exact(image_len)) {
            let image = &mut batch.images[row * image_len..][..image_len];
            batch.shares[*row] = mixture.how.apply(image, partner);
            batch.partner_labels[*row] = train.labels[mixture.partner.index as usize];
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
    /// Combines the partner into an image, and returns the image's share.
    fn apply(&self, image: &mut [f32], partner: &[f32]) -> f32 {
        match self {
            Self::Blend(share) => {
                blend(image, partner, *share);
                *share
            }
            Self::Paste(patch) => {
                patch.paste(image, partner);
                patch.share()
            }
        }
    }
}

/// Batches as they come from the thread that prepares them.
pub(crate) struct Prefetch {
    batches: Receiver<Result<TrainBatch, TrainError>>,
    recycled: SyncSender<TrainBatch>,
}

impl Prefetch {
    /// Starts the thread. It ends after the last batch, or when the `Prefetch` is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        epoch: &'scope EpochBatches<'_>,
        first_step: usize,
    ) -> Self {
        let (send, batches) = sync_channel(1);
        let (recycled, used) = sync_channel::<TrainBatch>(4);
        scope.spawn(move || {
            for indices in epoch.order.chunks(epoch.batch_size).skip(first_step) {
                let mut batch = used.try_recv().unwrap_or_default();
                let result = epoch.prepare(&mut batch, indices);
                // nobody receives any more: the training loop has ended
                if send.send(result.map(|()| batch)).is_err() {
                    return;
                }
            }
        });
        Self { batches, recycled }
    }

    /// The next batch; `None` after the last.
    pub(crate) fn next(&self) -> Option<Result<TrainBatch, TrainError>> {
        self.batches.recv().ok()
    }

    /// Gives the memory of a batch back.
    pub(crate) fn recycle(&self, batch: TrainBatch) {
        // a full channel only means that there are enough
        let _ = self.recycled.try_send(batch);
    }
}
