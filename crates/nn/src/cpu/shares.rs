//! Which process updates which parameters, and how all get them.
//!
//! The parameters are cut into parts of equal length, which belong to the processes in turn. A process sums the gradients of its own parts
//! over all processes, updates these parts with their momentum and EMA, and sends them to the others: so nothing that a step does
//! with the parameters is done twice, except for packing them. They arrive while the next forward pass computes the layers before.
//!
//! Momentum, second moment and EMA of the parts of others are those of some earlier time, until all processes gather them
//! ([`Engine::gather_state`](crate::engine::Engine::gather_state)).

use std::collections::VecDeque;
use std::ops::Range;

use super::CpuOf;
use crate::engine::TensorKind;
use crate::error::NnError;
use crate::kernel::value::Activation;
use crate::slices::Parts;

/// What the processes have of each other's parts.
#[derive(Default)]
pub(super) struct Shares {
    /// Parameters that are on their way, with the number of their layer; the head comes last.
    arriving: VecDeque<(usize, Range<usize>)>,
    /// Whether momentum, second moment and EMA of others' parts are old.
    is_old: bool,
}

/// The slices of a buffer at these ranges, which are in order.
pub(super) fn pieces_mut<'a>(mut buffer: &'a mut [f32], ranges: &[Range<usize>]) -> Vec<&'a mut [f32]> {
    let mut start = 0;
    let piece = |range: &Range<usize>| {
        let rest = std::mem::take(&mut buffer).split_at_mut(range.start - start).1;
        let (piece, rest) = rest.split_at_mut(range.len());
        (buffer, start) = (rest, range.end);
        piece
    };
    ranges.iter().map(piece).collect()
}

impl<T: Activation> CpuOf<T> {
    /// Which of the processes this is, and how many there are.
    pub(super) fn rank_and_size(&self) -> (usize, usize) {
        self.peers.as_ref().map_or((0, 1), |peers| (peers.rank(), peers.size()))
    }

    /// The parameters that every process updates: those of a cosine head, whose gradient is projected when all of it is known.
    fn updated_by_all(&self) -> Range<usize> {
        let end = self.parameters.len();
        if self.head.is_cosine() { self.head.weight.start..end } else { end..end }
    }

    /// How the parameters are cut into parts.
    pub(super) fn parts(&self) -> Parts {
        Parts::of(self.parameters.len())
    }

    /// What this process updates of a range of the parameters, by part.
    pub(super) fn own_parts(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let ((rank, size), all) = (self.rank_and_size(), self.updated_by_all().start.clamp(range.start, range.end));
        let own = self.parts().cut(range.start..all, size).filter(|(owner, _)| *owner == rank);
        own.chain(self.parts().cut(all..range.end, size)).map(|(_, part)| part).collect()
    }

    /// Whether this process adds up the squares of a part of the gradients, for their norm.
    pub(super) fn is_own(&self, part: usize) -> bool {
        let (rank, size) = self.rank_and_size();
        part % size == rank
    }

    /// The parameters that are not the same in all processes after an update, by layer.
    fn updated_by_one(&self, with_backbone: bool) -> Vec<(usize, Range<usize>)> {
        let (mut found, end) = (Vec::new(), self.updated_by_all().start);
        let starts = self.layers.iter().map(|layer| layer.weight.start).chain([self.head.weight.start, end]);
        let bounds: Vec<usize> = starts.collect();
        let (head, first) = (self.layers.len(), if with_backbone { 0 } else { self.layers.len() });
        found.extend((first..=head).map(|number| (number, bounds[number]..bounds[number + 1])));
        found.retain(|(_, range)| !range.is_empty());
        found
    }

    /// Packs the parameters after an update: at once, or when those of other processes have arrived. A frozen backbone stays as it is.
    pub(super) fn share_parameters(&mut self) -> Result<(), NnError> {
        let first = if self.frozen { self.layers.len() } else { 0 };
        if self.peers.is_none() {
            self.pack_layers(first..usize::MAX);
            return Ok(());
        }
        // those of an update before were packed in a forward pass, unless there was none
        self.finish_parameters()?;
        let (lists, parts) = (self.updated_by_one(!self.frozen), self.parts());
        if let Some(peers) = &mut self.peers {
            let parameters = &self.parameters;
            lists.iter().try_for_each(|(_, list)| peers.start_gather(parts, list.start, &parameters[list.clone()]))?;
        }
        self.shares.arriving.extend(lists);
        self.evaluation_weights_are_packed &= self.frozen;
        if self.head.is_cosine() {
            self.pack_layers(self.layers.len()..usize::MAX);
        }
        Ok(())
    }

    /// Waits for the parameters of all layers up to this one, and packs them.
    pub(super) fn receive_parameters(&mut self, layer: usize) -> Result<(), NnError> {
        let parts = self.parts();
        while self.shares.arriving.front().is_some_and(|(number, _)| *number <= layer) {
            let Some((number, range)) = self.shares.arriving.pop_front() else { break };
            if let Some(peers) = &mut self.peers {
                peers.finish_gather(parts, range.start, &mut self.parameters[range])?;
            }
            self.pack_layers(number..if number == self.layers.len() { usize::MAX } else { number + 1 });
        }
        Ok(())
    }

    /// Waits for the parameters of all layers.
    pub(super) fn finish_parameters(&mut self) -> Result<(), NnError> {
        self.receive_parameters(usize::MAX)
    }

    /// Says that momentum, second moment or EMA have changed in the processes to which they belong.
    pub(super) fn state_changed(&mut self) {
        self.shares.is_old = self.peers.is_some();
    }

    /// Gets the parameters, momentum, second moment and EMA of others' parts.
    pub(super) fn gather_shares(&mut self) -> Result<(), NnError> {
        self.finish_parameters()?;
        if !std::mem::take(&mut self.shares.is_old) {
            return Ok(());
        }
        let (lists, parts) = (self.updated_by_one(true), self.parts());
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let ema = self.ema.as_mut().map(|ema| &mut ema.parameters);
        for buffer in [Some(&mut self.momentum), self.second_moment.as_mut(), ema].into_iter().flatten() {
            lists.iter().try_for_each(|(_, list)| peers.start_gather(parts, list.start, &buffer[list.clone()]))?;
            lists.iter().try_for_each(|(_, list)| peers.finish_gather(parts, list.start, &mut buffer[list.clone()]))?;
        }
        Ok(())
    }

    /// Checks that this process has all values of a kind, and not only those of its own parts.
    pub(super) fn check_gathered(&self, kind: TensorKind) -> Result<(), NnError> {
        let is_old = match kind {
            TensorKind::Statistics | TensorKind::EmaStatistics => false,
            TensorKind::Parameters => !self.shares.arriving.is_empty(),
            TensorKind::Gradients => self.peers.is_some(),
            TensorKind::Momentum | TensorKind::SecondMoment | TensorKind::EmaParameters => self.shares.is_old,
        };
        match is_old {
            true => Err(NnError::Device { what: format!("{kind:?} of other processes have not been gathered") }),
            false => Ok(()),
        }
    }
}
