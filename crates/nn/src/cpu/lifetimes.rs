//! Places in one stretch of memory for tensors that are needed at different times.
//!
//! Tensors whose times do not meet may have the same place. The largest are placed first, each at the first place that is free
//! whenever it is needed.

use std::ops::Range;

/// Places begin at multiples of so many bytes: a cache line.
const LINE: u64 = 64;

/// A tensor that needs memory for a while.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) bytes: u64,
    /// The steps in which it is needed.
    pub(super) steps: Vec<Range<usize>>,
}

impl Tensor {
    /// Whether both tensors are needed at the same time.
    fn meets(&self, other: &Self) -> bool {
        let meet = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        self.steps.iter().any(|a| other.steps.iter().any(|b| meet(a, b)))
    }

    /// The number of steps in which it is needed.
    fn duration(&self) -> usize {
        self.steps.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Where tensors are.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// Where each of them begins, in bytes.
    pub(super) starts: Vec<u64>,
    /// Where the last one ends.
    pub(super) bytes: u64,
}

/// Finds places for all tensors: tries two orders and takes the placement that needs less memory.
pub(super) fn place(tensors: &[Tensor]) -> Placement {
    let by_size = place_in_order(tensors, |tensor| tensor.bytes);
    let by_need = place_in_order(tensors, |tensor| tensor.bytes.saturating_mul(tensor.duration() as u64));
    if by_need.bytes < by_size.bytes { by_need } else { by_size }
}

/// Finds places one by one, for the tensors of the highest rank first.
fn place_in_order(tensors: &[Tensor], rank: impl Fn(&Tensor) -> u64) -> Placement {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(rank(&tensors[*number])));
    let mut placement = Placement { starts: vec![0; tensors.len()], bytes: 0 };
    let mut placed: Vec<usize> = Vec::new();
    for number in order {
        let tensor = &tensors[number];
        // those in its way come in the order of their places
        let mut start = 0;
        for other in placed.iter().filter(|other| tensors[**other].meets(tensor)) {
            let taken = placement.starts[*other]..placement.starts[*other] + tensors[*other].bytes;
            if start + tensor.bytes <= taken.start {
                break;
            }
            start = start.max(taken.end.next_multiple_of(LINE));
        }
        placement.starts[number] = start;
        placement.bytes = placement.bytes.max(start + tensor.bytes);
        let at = placed.partition_point(|other| placement.starts[*other] <= start);
        placed.insert(at, number);
    }
    placement
}

/// The most bytes that are needed at the same time: no placement takes fewer.
pub(super) fn most_bytes(tensors: &[Tensor]) -> u64 {
    let end = tensors.iter().flat_map(|tensor| &tensor.steps).map(|steps| steps.end).max().unwrap_or(0);
    let at = |step: usize| {
        let needed = tensors.iter().filter(|tensor| tensor.steps.iter().any(|steps| steps.contains(&step)));
        needed.fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes))
    };
    (0..end).map(at).max().unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "many tensors are needed in one range of steps")]
mod tests {
    use std::cell::Cell;

    use equipoise_random::Draws;

    use super::*;

    fn tensor(bytes: u64, steps: &[Range<usize>]) -> Tensor {
        Tensor { bytes, steps: steps.to_vec() }
    }

    /// Checks that tensors that meet have places of their own, and returns all bytes.
    fn checked(tensors: &[Tensor]) -> u64 {
        let Placement { starts, bytes } = place(tensors);
        assert_eq!(starts.len(), tensors.len());
        for (i, (a, start)) in tensors.iter().zip(&starts).enumerate() {
            assert!(start.is_multiple_of(LINE) && start + a.bytes <= bytes, "{a:?} at {start} of {bytes}");
            for (b, other) in tensors.iter().zip(&starts).take(i) {
                let apart = start + a.bytes <= *other || other + b.bytes <= *start;
                assert!(apart || !a.meets(b), "{a:?} at {start}, {b:?} at {other}");
            }
        }
        assert!(bytes >= most_bytes(tensors));
        bytes
    }

    #[test]
    fn tensors_take_each_others_places() {
        assert_eq!(checked(&[]), 0);
        // one after the other, and at the same time
        assert_eq!(checked(&[tensor(640, &[0..2]), tensor(128, &[2..3]), tensor(64, &[3..9])]), 640);
        assert_eq!(checked(&[tensor(640, &[0..3]), tensor(128, &[2..3]), tensor(64, &[2..9])]), 832);
        // a tensor that is not needed in between makes room
        assert_eq!(checked(&[tensor(640, &[0..1, 5..6]), tensor(640, &[1..5])]), 640);
        // a gap between two others
        let gap = [tensor(640, &[0..9]), tensor(320, &[0..2]), tensor(256, &[0..9]), tensor(320, &[3..4])];
        assert_eq!(checked(&gap), most_bytes(&gap));
        // a tensor without values, and one that is never needed
        assert_eq!(checked(&[tensor(0, &[0..9]), tensor(64, &[]), tensor(64, &[0..9])]), 64);
    }

    #[test]
    fn random_tensors_do_not_overlap() {
        for seed in 0..200 {
            let (draws, position) = (Draws::new(seed, 0, 0), Cell::new(0));
            let below = |most: u64| draws.at(position.replace(position.get() + 1)) % most;
            let steps = || {
                let start = below(40) as usize;
                start..start + below(12) as usize
            };
            let tensor = || Tensor { bytes: below(5000), steps: (0..below(4)).map(|_| steps()).collect() };
            let tensors: Vec<Tensor> = (0..=below(60)).map(|_| tensor()).collect();
            checked(&tensors);
        }
    }
}
