//! What the engine exchanges with all processes: sums along the tree of `sum_by_rank`, with the same bits in every process, and parameters.
//!
//! A short list travels whole to everyone, who adds up the lists of all. Gradients travel in buckets of several layers, while the
//! engine computes earlier ones: of a bucket, every process gets its own parts from all others and adds them up. Parameters travel in
//! buckets too, from the process that has updated them to all others, while the next forward pass begins. So 2 (n - 1) / n times the
//! bytes of the gradients leave each of n processes, whatever their number. MPI moves buckets on in any of its calls.

use std::collections::VecDeque;
use std::time::Duration;

use equipoise_nn::{NnError, Parts, Peers, Traffic, sum_by_rank, sum_lists};

use crate::comm::{Comm, MpiResult, Request};
use crate::heartbeat::now;

/// Values of a bucket from which on it begins to travel.
const BUCKET: usize = 1 << 16;
/// Time for buckets that are on their way when the engine is dropped.
const LAST: Duration = Duration::from_secs(2);

/// Lists that travel together.
#[derive(Default)]
struct Bucket {
    requests: Vec<Request>,
    /// What leaves, by the process that it goes to.
    outgoing: Vec<Vec<f32>>,
    /// What arrives, by the process that it comes from.
    incoming: Vec<Vec<f32>>,
    /// Values to arrive, and values that have been taken out, by process.
    expected: Vec<usize>,
    taken: Vec<usize>,
    /// Values of all lists, and of those that are done.
    length: usize,
    done: usize,
}

impl Bucket {
    /// An empty bucket with the memory of this one.
    fn emptied(mut self, size: usize) -> Self {
        self.outgoing.resize_with(size, Vec::new);
        self.incoming.resize_with(size, Vec::new);
        self.outgoing.iter_mut().for_each(Vec::clear);
        for numbers in [&mut self.expected, &mut self.taken] {
            numbers.clear();
            numbers.resize(size, 0);
        }
        (self.length, self.done) = (0, 0);
        self
    }

    /// The next values that have come from a process.
    fn take(&mut self, rank: usize, length: usize) -> std::ops::Range<usize> {
        self.taken[rank] += length;
        self.taken[rank] - length..self.taken[rank]
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // MPI still uses the memory of a bucket that is not complete
        let start = now();
        while !self.requests.iter_mut().all(|request| request.test().unwrap_or(true)) {
            if start.elapsed() > LAST {
                std::mem::forget((std::mem::take(&mut self.outgoing), std::mem::take(&mut self.incoming)));
                return;
            }
        }
    }
}

/// Buckets on their way, in the order in which they left: the same in every process.
struct Channel {
    comm: Comm,
    /// Lists that do not travel yet.
    waiting: Bucket,
    traveling: VecDeque<Bucket>,
    /// Earlier buckets, whose memory is used again: every bucket of a step finds that of the step before.
    spare: VecDeque<Bucket>,
    number: u64,
    bytes: u64,
    seconds: f64,
}

impl Channel {
    fn new(comm: Comm) -> Self {
        let waiting = Bucket::default().emptied(comm.size);
        Self { comm, waiting, traveling: VecDeque::new(), spare: VecDeque::new(), number: 0, bytes: 0, seconds: 0.0 }
    }

    /// Counts a list whose values were put into the waiting bucket.
    fn added(&mut self, length: usize) -> MpiResult<()> {
        self.waiting.length += length;
        if self.waiting.length >= BUCKET { self.send() } else { Ok(()) }
    }

    /// Lets the lists that wait travel. `outgoing` of a process that has none of its own is that of the process itself: for all.
    fn send(&mut self) -> MpiResult<()> {
        let (own, size) = (self.comm.rank, self.comm.size);
        let next = self.spare.pop_front().unwrap_or_default().emptied(size);
        let mut bucket = std::mem::replace(&mut self.waiting, next);
        self.number += 1;
        for other in (1..size).map(|distance| (own + distance) % size) {
            let outgoing = if bucket.outgoing[own].is_empty() { other } else { own };
            let (from, to) = (&bucket.outgoing[outgoing], &mut bucket.incoming[other]);
            // memory of a bucket before is as long already
            to.resize(bucket.expected[other], 0.0);
            self.bytes += size_of_val(&from[..]) as u64;
            // SAFETY: both lists are on the heap and stay where they are in `traveling`. They are changed when all requests are complete
            // only; `drop` waits for that too, or leaks them.
            unsafe {
                if !to.is_empty() {
                    bucket.requests.push(self.comm.start_receive(to, other)?);
                }
                if !from.is_empty() {
                    bucket.requests.push(self.comm.start_send(from, other)?);
                }
            }
        }
        self.traveling.push_back(bucket);
        Ok(())
    }

    /// The bucket with the oldest list that is not done, when it is complete.
    fn oldest(&mut self) -> MpiResult<&mut Bucket> {
        if self.traveling.is_empty() {
            self.send()?;
        }
        let bucket = self.traveling.front_mut().ok_or("nothing was begun")?;
        bucket.requests.iter_mut().try_for_each(Request::wait)?;
        bucket.requests.clear();
        Ok(bucket)
    }

    /// Counts a list that is done.
    fn finished(&mut self, length: usize) {
        if let Some(bucket) = self.traveling.front_mut() {
            bucket.done += length;
            assert!(bucket.done <= bucket.length, "lists end in the order in which they began");
            if bucket.done == bucket.length {
                self.spare.extend(self.traveling.pop_front());
            }
        }
    }
}

/// The other processes.
pub(crate) struct MpiPeers {
    /// Short lists of the forward and backward pass.
    now: Comm,
    sums: Channel,
    gathers: Channel,
    gathered: Vec<f64>,
    traffic: Traffic,
}

impl MpiPeers {
    pub(crate) fn new([now, sums, gathers]: [Comm; 3]) -> Self {
        let [sums, gathers] = [sums, gathers].map(Channel::new);
        Self { now, sums, gathers, gathered: Vec::new(), traffic: Traffic::default() }
    }

    fn begin_sum(&mut self, parts: Parts, first: usize, values: &[f32]) -> MpiResult<()> {
        let (rank, size) = (self.now.rank, self.now.size);
        for (owner, part) in parts.cut(first..first + values.len(), size) {
            if owner == rank {
                (0..size)
                    .filter(|other| *other != rank)
                    .for_each(|other| self.sums.waiting.expected[other] += part.len());
            } else {
                self.sums.waiting.outgoing[owner].extend_from_slice(&values[part.start - first..part.end - first]);
            }
        }
        self.sums.added(values.len())
    }

    fn end_sum(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> MpiResult<()> {
        let (rank, size) = (self.now.rank, self.now.size);
        let bucket = self.sums.oldest()?;
        for (_, part) in parts.cut(first..first + values.len(), size).filter(|(owner, _)| *owner == rank) {
            let taken: Vec<_> = (0..size).map(|other| bucket.take(other, part.len())).collect();
            let own = &mut values[part.start - first..part.end - first];
            let mut lists: Vec<&mut [f32]> = Vec::with_capacity(size);
            let (before, after) = bucket.incoming.split_at_mut(rank);
            lists.extend(before.iter_mut().zip(&taken).map(|(list, taken)| &mut list[taken.clone()]));
            lists.push(own);
            let after = after.iter_mut().zip(&taken[rank..]).skip(1);
            lists.extend(after.map(|(list, taken)| &mut list[taken.clone()]));
            sum_lists(&mut lists, rank);
        }
        self.sums.finished(values.len());
        Ok(())
    }

    fn begin_gather(&mut self, parts: Parts, first: usize, values: &[f32]) -> MpiResult<()> {
        let bucket = &mut self.gathers.waiting;
        for (owner, part) in parts.cut(first..first + values.len(), self.now.size) {
            if owner == self.now.rank {
                bucket.outgoing[owner].extend_from_slice(&values[part.start - first..part.end - first]);
            } else {
                bucket.expected[owner] += part.len();
            }
        }
        self.gathers.added(values.len())
    }

    fn end_gather(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> MpiResult<()> {
        let (rank, size) = (self.now.rank, self.now.size);
        let bucket = self.gathers.oldest()?;
        for (owner, part) in parts.cut(first..first + values.len(), size).filter(|(owner, _)| *owner != rank) {
            let taken = bucket.take(owner, part.len());
            values[part.start - first..part.end - first].copy_from_slice(&bucket.incoming[owner][taken]);
        }
        self.gathers.finished(values.len());
        Ok(())
    }
}

fn device(what: String) -> NnError {
    NnError::Device { what: format!("the other processes cannot be reached: {what}") }
}

impl Peers for MpiPeers {
    fn rank(&self) -> usize {
        self.now.rank
    }

    fn size(&self) -> usize {
        self.now.size
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), NnError> {
        let start = now();
        self.traffic.short += 1;
        self.traffic.short_bytes += (size_of_val(values) * (self.now.size - 1)) as u64;
        self.gathered.resize(values.len() * self.now.size, 0.0);
        self.now.gather(values, &mut self.gathered).map_err(device)?;
        sum_by_rank(&mut self.gathered, self.now.size);
        values.copy_from_slice(&self.gathered[..values.len()]);
        self.traffic.short_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn start_sum(&mut self, parts: Parts, first: usize, values: &[f32]) -> Result<(), NnError> {
        let start = now();
        self.begin_sum(parts, first, values).map_err(device)?;
        self.sums.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish_sum(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> Result<(), NnError> {
        let start = now();
        self.end_sum(parts, first, values).map_err(device)?;
        self.sums.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn start_gather(&mut self, parts: Parts, first: usize, values: &[f32]) -> Result<(), NnError> {
        let start = now();
        self.begin_gather(parts, first, values).map_err(device)?;
        self.gathers.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish_gather(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> Result<(), NnError> {
        let start = now();
        self.end_gather(parts, first, values).map_err(device)?;
        self.gathers.seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        let Self { sums, gathers, .. } = self;
        Traffic {
            sums: sums.number,
            sum_bytes: sums.bytes,
            sum_seconds: sums.seconds,
            gathers: gathers.number,
            gather_bytes: gathers.bytes,
            gather_seconds: gathers.seconds,
            ..self.traffic
        }
    }
}
