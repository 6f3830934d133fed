//! How a batch is cut into slices, and how sums over a batch are added up: the same way for any number of processes.
//!
//! A batch has a fixed number of slices, by position. Every sum over a batch is taken inside each slice first, and then
//! along one binary tree over the slices: neighbors first. A process computes the slices below one node of the tree, so
//! that the upper part of the tree is what processes add up among each other. Results are therefore the same bits for
//! one process and for several.

use std::ops::{Add, Range};

use crate::error::NnError;

/// Slices of a batch for up to as many processes.
pub(crate) const SLICES: usize = 8;
/// Fewest images of a slice, where a batch has few: each slice has a sum of weight gradients of its own.
const FEWEST_IMAGES: usize = 4;

/// How a batch is cut into slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// Number of slices, a power of two.
    number: usize,
    /// Images of a slice, by position in the batch. The last slices of a batch may have fewer, or none.
    images: usize,
}

impl Slices {
    /// The slices of batches of `batch_size` images, of which a batch may have fewer. There are eight, but fewer of batches
    /// that are smaller than 32, and for more than eight processes as many as the next power of two.
    #[must_use]
    pub fn new(batch_size: usize, processes: usize) -> Self {
        let mut number = SLICES;
        while number > 1 && batch_size < number * FEWEST_IMAGES {
            number /= 2;
        }
        if processes > SLICES {
            number = number.max(processes.next_power_of_two());
        }
        Self { number, images: batch_size.div_ceil(number).max(1) }
    }

    /// Images of a slice.
    #[must_use]
    pub fn images(&self) -> usize {
        self.images
    }

    /// The slices of one of several processes: those below a node of the tree. Some processes may have none.
    #[must_use]
    pub fn of(&self, rank: usize, processes: usize) -> Range<usize> {
        let (mut slices, mut ranks) = (0..self.number, 0..processes);
        while ranks.len() > 1 {
            let (slice, first) = (middle(&slices), middle(&ranks));
            if rank < first {
                (slices.end, ranks.end) = (slice, first);
            } else {
                (slices.start, ranks.start) = (slice, first);
            }
        }
        slices
    }

    /// The rows that one of several processes computes of a batch of `rows`.
    #[must_use]
    pub fn rows(&self, rows: usize, rank: usize, processes: usize) -> Range<usize> {
        let slices = self.of(rank, processes);
        (slices.start * self.images).min(rows)..(slices.end * self.images).min(rows)
    }
}

fn middle(range: &Range<usize>) -> usize {
    range.start.midpoint(range.end)
}

/// Adds up one list of each process along the tree. `lists` has them by rank, one after the other, and the sum
/// replaces the first.
///
/// # Panics
/// If the lists have different lengths.
pub fn sum_by_rank<T: Copy + Add<Output = T>>(lists: &mut [T], processes: usize) {
    assert!(lists.len().is_multiple_of(processes), "{} values are not {processes} lists", lists.len());
    let length = lists.len() / processes;
    add(lists, length);
}

/// Adds up lists of this length along the tree, into the first of them.
fn add<T: Copy + Add<Output = T>>(lists: &mut [T], length: usize) {
    if lists.len() <= length {
        return;
    }
    let (left, right) = lists.split_at_mut(lists.len() / length / 2 * length);
    add(left, length);
    add(right, length);
    left.iter_mut().zip(right).take(length).for_each(|(sum, other)| *sum = *sum + *other);
}

/// Adds up one list of each process along the tree of [`sum_by_rank`], into that of rank `own`. The lists of others are changed.
pub fn sum_lists(lists: &mut [&mut [f32]], own: usize) {
    add_lists(lists, own);
}

/// Adds up lists along the tree, and returns which of them has the sum: `own` if it is one of them.
fn add_lists(lists: &mut [&mut [f32]], own: usize) -> usize {
    let middle = lists.len() / 2;
    if middle == 0 {
        return 0;
    }
    let is_right = (middle..lists.len()).contains(&own);
    let (left, right) = lists.split_at_mut(middle);
    let (a, b) = (add_lists(left, own), add_lists(right, own.wrapping_sub(middle)));
    // sums of two values do not depend on their order
    let (to, from) = if is_right { (&mut right[b], &left[a]) } else { (&mut left[a], &right[b]) };
    to.iter_mut().zip(from.iter()).for_each(|(sum, other)| *sum += *other);
    if is_right { middle + b } else { a }
}

/// Most and fewest values of a part of the parameters, unless all of them are fewer.
const PART: [usize; 2] = [1 << 13, 1 << 10];
/// Parts that even a small network has, if that leaves enough values in each: with few parts, some processes would have a much larger
/// share than others.
const FEWEST_PARTS: usize = 64;

/// How the parameters are cut into parts of equal length, which belong to the processes in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    length: usize,
}

impl Parts {
    /// The parts of this many parameters. The number of processes has no influence: sums over the parameters are taken part by part.
    #[must_use]
    pub fn of(parameters: usize) -> Self {
        let [most, fewest] = PART;
        Self { length: (parameters / FEWEST_PARTS).next_power_of_two().clamp(fewest, most) }
    }

    /// Values of a part. The last one may have fewer.
    #[must_use]
    pub fn length(self) -> usize {
        self.length
    }

    /// The parts of a range of the parameters, each with the process that updates it.
    pub fn cut(self, range: Range<usize>, processes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let Self { length } = self;
        let numbers = range.start / length..range.end.div_ceil(length).max(range.start / length);
        let part = move |number: usize| (number * length).max(range.start)..((number + 1) * length).min(range.end);
        numbers.map(move |number| (number % processes, part(number))).filter(|(_, part)| !part.is_empty())
    }
}

/// The other processes that compute slices of the same batches. All processes make the same calls in the same order.
pub trait Peers: Send + Sync {
    /// Which of the processes this is.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

    /// Sums short lists of values over all processes, along the tree of [`sum_by_rank`].
    ///
    /// # Errors
    /// [`NnError::Device`] if a process cannot be reached.
    fn sum(&mut self, values: &mut [f64]) -> Result<(), NnError>;

    /// Begins the sum of the gradients of the parameters from number `first` on over all processes, which goes on while this
    /// process computes. Every process gets the sums of its own parts.
    ///
    /// # Errors
    /// [`NnError::Device`] if a process cannot be reached.
    fn start_sum(&mut self, parts: Parts, first: usize, values: &[f32]) -> Result<(), NnError>;

    /// Waits for the oldest sum that was begun, with the same values. Replaces the process's own parts of them by their sum
    /// along the tree of [`sum_by_rank`]; what becomes of the others' parts is not defined.
    ///
    /// # Errors
    /// [`NnError::Device`] if a process cannot be reached.
    fn finish_sum(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> Result<(), NnError>;

    /// Begins to send this process's parts of values that belong to the parameters from number `first` on to all others, and
    /// to receive theirs.
    ///
    /// # Errors
    /// [`NnError::Device`] if a process cannot be reached.
    fn start_gather(&mut self, parts: Parts, first: usize, values: &[f32]) -> Result<(), NnError>;

    /// Waits for what the oldest gather that was begun brings, and replaces the parts of all others by it.
    ///
    /// # Errors
    /// [`NnError::Device`] if a process cannot be reached.
    fn finish_gather(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> Result<(), NnError>;

    /// What has been sent so far.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// What a process has sent to others, and how long it has waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Exchanges of batch norm sums and other short lists, which the process waits for.
    pub short: u64,
    /// Bytes of these that left the process.
    pub short_bytes: u64,
    /// Seconds in short exchanges.
    pub short_seconds: f64,
    /// Sums of gradients, which go on while the process computes.
    pub sums: u64,
    /// Bytes of these that left the process.
    pub sum_bytes: u64,
    /// Seconds in which the process began sums of gradients, and waited for them at the end of the backward pass.
    pub sum_seconds: f64,
    /// Gathers of parameters, which go on while the process computes.
    pub gathers: u64,
    /// Bytes of these that left the process.
    pub gather_bytes: u64,
    /// Seconds in which the process began gathers, and waited for them in the next forward pass.
    pub gather_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_out_every_batch() {
        for batch_size in [1, 3, 8, 16, 31, 32, 100, 128] {
            for processes in 1..=20 {
                let slices = Slices::new(batch_size, processes);
                for rows in [0, 1, batch_size / 2, batch_size] {
                    let all = (0..processes).flat_map(|rank| slices.rows(rows, rank, processes));
                    assert_eq!(all.collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
                }
                if processes <= SLICES {
                    assert_eq!(slices, Slices::new(batch_size, 1), "the number of processes is not part of the result");
                }
            }
        }
        assert_eq!(Slices::new(128, 8), Slices { number: 8, images: 16 });
        assert_eq!(Slices::new(16, 2), Slices { number: 4, images: 4 });
        assert_eq!(Slices::new(100, 9), Slices { number: 16, images: 7 });
        let of_three = [0, 1, 2].map(|rank| Slices::new(128, 3).of(rank, 3));
        assert_eq!(of_three, [0..4, 4..6, 6..8], "every process has the slices below a node of the tree");
    }

    /// Every parameter belongs to one process, whatever range it is looked up in.
    #[test]
    fn processes_share_out_the_parameters() {
        let part = 1 << 12;
        let parts = Parts::of(64 * part);
        assert_eq!(parts.length(), part);
        for processes in 1..=9 {
            let owner = |number: usize| number / part % processes;
            for range in [0..0, 5..5, part..part, 3..7, 0..part, 1..part + 1, part - 1..5 * part + 2] {
                let found: Vec<_> = parts.cut(range.clone(), processes).collect();
                let all = found.iter().flat_map(|(_, part)| part.clone());
                assert_eq!(all.collect::<Vec<_>>(), range.clone().collect::<Vec<_>>());
                assert!(
                    found.iter().all(|(rank, part)| part.clone().all(|number| owner(number) == *rank)),
                    "{range:?}"
                );
            }
        }
    }

    /// Gradients go in and parameters out of a process at most 2.2 times, also if the network is small.
    #[test]
    fn shares_are_about_equal() {
        // those of ResNet-8, 14, 20, 32 and 50
        for parameters in [77_850, 175_000, 272_474, 466_906, 25_557_032] {
            for processes in 2..=8 {
                let mut shares = vec![0; processes];
                let parts = Parts::of(parameters).cut(0..parameters, processes);
                parts.for_each(|(owner, part)| shares[owner] += part.len());
                let sent = |own: &usize| (parameters - own + own * (processes - 1)) as f64 / parameters as f64;
                let most = shares.iter().map(sent).fold(0.0, f64::max);
                assert!(most <= 2.2, "{processes} processes, {parameters} parameters: {most}");
            }
        }
        assert_eq!([466_906, 300_000, 77_850, 1_000, 0].map(|n| Parts::of(n).length()), [8192, 8192, 2048, 1024, 1024]);
    }

    /// A sum over slices does not depend on how many processes there are.
    #[test]
    fn sums_follow_one_tree() {
        let values: Vec<f32> = (0..24).map(|i| (i as f32 + 0.1).sin() * 10f32.powi(i % 7)).collect();
        let mut whole = values.clone();
        sum_by_rank(&mut whole, 8);
        for processes in 1..=8 {
            let slices = Slices::new(128, processes);
            let own = |rank: usize| {
                let slices = slices.of(rank, processes);
                let mut own = values[3 * slices.start..3 * slices.end].to_vec();
                sum_by_rank(&mut own, slices.len());
                own[..3].to_vec()
            };
            let mut lists: Vec<f32> = (0..processes).flat_map(own).collect();
            for rank in 0..processes {
                let mut own: Vec<Vec<f32>> = (0..processes).map(own).collect();
                let mut references: Vec<&mut [f32]> = own.iter_mut().map(|list| &mut list[..]).collect();
                sum_lists(&mut references, rank);
                assert_eq!(own[rank], whole[..3], "rank {rank} of {processes}");
            }
            sum_by_rank(&mut lists, processes);
            assert_eq!(lists[..3], whole[..3], "{processes} processes");
        }
        let in_order = |value: usize| (0..8).map(|slice| values[3 * slice + value]).sum::<f32>();
        assert!((0..3).any(|value| in_order(value) != whole[value]), "the order matters");
    }
}
