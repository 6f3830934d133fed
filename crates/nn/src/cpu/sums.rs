//! Sums over a batch: inside slices, along the tree over this process's slices, and over all processes.

use std::ops::Range;

use super::CpuOf;
use crate::error::NnError;
use crate::kernel::value::Activation;
use crate::slices::{Peers, sum_by_rank};

/// How the partial sums of a pass belong to slices. Each part has sums of its own.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// Number of parts.
    pub(super) number: usize,
    /// Parts of a slice; the last one may have fewer.
    pub(super) per_slice: usize,
}

impl<T: Activation> CpuOf<T> {
    /// Parts of one image each.
    pub(super) fn parts_by_image(&self, images: usize) -> Parts {
        Parts { number: images, per_slice: self.slices.images() }
    }

    /// Adds up the partial sums of all parts and processes into `sums`. A part has `rows` of `channels` values, of which the
    /// first `wanted` are added.
    pub(super) fn add_parts(
        &mut self,
        parts: Parts,
        [wanted, rows]: [usize; 2],
        channels: usize,
    ) -> Result<(), NnError> {
        let (length, slices) = (wanted * channels, self.own_slices.max(1));
        self.sums.clear();
        self.sums.resize(slices * length, 0.0);
        let parts_of_slices =
            self.partial_sums[..parts.number * rows * channels].chunks(parts.per_slice * rows * channels);
        for (sums, parts) in self.sums.chunks_exact_mut(length).zip(parts_of_slices) {
            for part in parts.chunks_exact(rows * channels) {
                sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
            }
        }
        self.add_slices(slices)
    }

    /// Adds up the lists of `sums`, one for every slice, and those of all processes.
    pub(super) fn add_slices(&mut self, slices: usize) -> Result<(), NnError> {
        sum_by_rank(&mut self.sums, slices);
        self.sums.truncate(self.sums.len() / slices);
        match &mut self.peers {
            Some(peers) => peers.sum(&mut self.sums),
            None => Ok(()),
        }
    }

    /// The number of images of all processes, which must all be able to begin a pass.
    pub(super) fn images_of_all(&mut self, own: &Result<usize, NnError>) -> Result<usize, NnError> {
        let Some(peers) = &mut self.peers else { return own.clone() };
        let mut numbers = [own.as_ref().map_or(0, |images| *images) as f64, f64::from(u8::from(own.is_err()))];
        peers.sum(&mut numbers)?;
        own.clone()?;
        if numbers[1] > 0.0 {
            return Err(NnError::Device { what: "another process cannot compute its images".to_owned() });
        }
        Ok(numbers[0] as usize)
    }

    /// Begins the sum of some gradients over all processes.
    pub(super) fn start_gradient_sum(&mut self, range: Range<usize>) -> Result<(), NnError> {
        let parts = self.parts();
        if let Some(peers) = &mut self.peers {
            peers.start_sum(parts, range.start, &self.gradients[range.clone()])?;
            self.traveling.push(range);
        }
        Ok(())
    }

    /// Waits for the sums of the gradients of this process's parts, and for the whole gradient of the weights of a cosine head.
    pub(super) fn finish_gradient_sums(&mut self) -> Result<(), NnError> {
        let parts = self.parts();
        let Some(peers) = &mut self.peers else { return Ok(()) };
        for range in self.traveling.drain(..) {
            peers.finish_sum(parts, range.start, &mut self.gradients[range])?;
        }
        if self.head.is_cosine() {
            let (first, gradients) = (self.head.weight.start, &mut self.gradients[self.head.weight.clone()]);
            peers.start_gather(parts, first, gradients)?;
            peers.finish_gather(parts, first, gradients)?;
        }
        Ok(())
    }
}

/// Slices of this process, and the most images that it computes at a time.
pub(super) fn share(batch_size: usize, slices: &crate::slices::Slices, peers: Option<&dyn Peers>) -> [usize; 2] {
    let (rank, size) = peers.map_or((0, 1), |peers| (peers.rank(), peers.size()));
    let own = slices.of(rank, size).len();
    // evaluations are shared out evenly
    [own, slices.rows(batch_size, rank, size).len().max(batch_size.div_ceil(size))]
}
