//! The training batches of an epoch. A separate thread prepares each one while the engine trains on the previous one.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use equipoise_criterion::Mixed;
use equipoise_data::batch::mixup::{Mixup, blend};
use equipoise_pool::Pool;
use equipoise_random::Example;

use crate::error::TrainError;
use crate::prepare::SplitLoader;

/// A batch that is ready for the engine.
#[derive(Default)]
pub(super) struct TrainBatch {
    /// Pixels, image after image.
    pub(super) images: Vec<f32>,
    /// Index of each image in the training split.
    pub(super) indices: Vec<u32>,
    /// Class of each image.
    pub(super) labels: Vec<u32>,
    /// The indices again, as the criterion takes them.
    pub(super) examples: Vec<u64>,
    /// Class of each mixup partner; empty without mixup.
    partner_labels: Vec<u32>,
    /// Share of each image in the mixture with its partner; empty without mixup.
    shares: Vec<f32>,
}

impl TrainBatch {
    /// Number of images.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The second labels of the images, with mixup.
    pub(super) fn mixed(&self) -> Option<Mixed<'_>> {
        (!self.partner_labels.is_empty()).then(|| Mixed { labels: &self.partner_labels, share: &self.shares })
    }
}

/// The batches of one epoch: a function of the settings and of the epoch.
pub(super) struct EpochBatches<'a> {
    /// The training split.
    pub(super) train: &'a SplitLoader,
    /// Mixup, if it is on.
    pub(super) mixup: Option<Mixup>,
    /// This worker's images, in the order of the epoch.
    pub(super) order: Vec<u32>,
    /// All images of the epoch, from which mixup draws partners; empty without mixup.
    pub(super) partners: Vec<u32>,
    /// Images per batch.
    pub(super) batch_size: usize,
    /// Seed of the run.
    pub(super) seed: u64,
    /// The epoch, from 0.
    pub(super) epoch: u64,
}

impl EpochBatches<'_> {
    /// Fills a batch with these images.
    fn prepare(&self, batch: &mut TrainBatch, indices: &[u32]) -> Result<(), TrainError> {
        let train = self.train;
        batch.indices.clear();
        batch.indices.extend_from_slice(indices);
        batch.labels.clear();
        batch.labels.extend(indices.iter().map(|index| train.labels[*index as usize]));
        batch.examples.clear();
        batch.examples.extend(indices.iter().map(|index| u64::from(*index)));
        batch.images.resize(indices.len() * train.image_len(), 0.0);
        train.loader.batch(indices, self.seed, self.epoch, &mut batch.images, &Pool::single())?;
        batch.partner_labels.clear();
        batch.shares.clear();
        match &self.mixup {
            Some(mixup) => self.mix(batch, mixup),
            None => Ok(()),
        }
    }

    /// Mixes every image of a batch with a partner.
    fn mix(&self, batch: &mut TrainBatch, mixup: &Mixup) -> Result<(), TrainError> {
        let (train, image_len) = (self.train, self.train.image_len());
        let draw = |index: &u32| {
            mixup.draw(Example { seed: self.seed, epoch: self.epoch, example: u64::from(*index) }, self.partners.len())
        };
        let draws: Vec<_> = batch.indices.iter().map(draw).collect();
        let partners: Vec<u32> = draws.iter().map(|draw| self.partners[draw.position]).collect();
        let mut images = vec![0.0; partners.len() * image_len];
        train.loader.batch(&partners, self.seed, self.epoch, &mut images, &Pool::single())?;
        let pairs = batch.images.chunks_exact_mut(image_len).zip(images.chunks_exact(image_len));
        pairs.zip(&draws).for_each(|((image, partner), draw)| blend(image, partner, draw.share));
        batch.partner_labels.extend(partners.iter().map(|index| train.labels[*index as usize]));
        batch.shares.extend(draws.iter().map(|draw| draw.share));
        Ok(())
    }
}

/// Batches as they come from the thread that prepares them.
pub(super) struct Prefetch {
    batches: Receiver<Result<TrainBatch, TrainError>>,
    recycled: SyncSender<TrainBatch>,
}

impl Prefetch {
    /// Starts the thread. It ends after the last batch, or when the `Prefetch` is dropped.
    pub(super) fn start<'scope>(
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
    pub(super) fn next(&self) -> Option<Result<TrainBatch, TrainError>> {
        self.batches.recv().ok()
    }

    /// Gives the memory of a batch back.
    pub(super) fn recycle(&self, batch: TrainBatch) {
        // a full channel only means that there are enough
        let _ = self.recycled.try_send(batch);
    }
}
