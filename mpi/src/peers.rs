//! Sums over all processes, for the engine: along the tree of `sum_by_rank`, with the same bits in every process.
//!
//! A short list travels whole to everyone, who adds up the lists of all. Gradients travel in buckets of several layers, while the
//! engine computes earlier ones: of a bucket, every process adds up one part and sends the sum to the others, so that
//! 2 (n - 1) / n times its bytes leave each of n processes, whatever their number. Buckets make progress whenever the engine
//! sums anything else.

use std::collections::VecDeque;

use equipoise_nn::{NnError, Peers, Traffic, sum_by_rank};

use crate::comm::{Comm, MpiResult, Request};
use crate::heartbeat::now;

/// Values of a bucket from which on it begins to travel.
const BUCKET: usize = 1 << 16;

/// What happens to a bucket.
enum Stage {
    /// Every process gets its part of everyone's.
    Parts(Request),
    /// Every process sends the sum of its part.
    Sums(Request),
    /// The sum is in `from`.
    Done,
}

/// Lists that are being summed together.
struct Bucket {
    stage: Stage,
    /// The lists one after the other, padded to as many values for every process; later the sums.
    from: Vec<f32>,
    /// What arrives.
    to: Vec<f32>,
    /// Values that have been taken out.
    taken: usize,
    /// Values of all lists.
    length: usize,
}

/// The other processes.
pub(crate) struct MpiPeers {
    /// Short lists of the forward and backward pass.
    now: Comm,
    /// The first stage of buckets that travel, and their second stage: each in the order of the buckets, in every process.
    first: Comm,
    second: Comm,
    buckets: VecDeque<Bucket>,
    /// Lists that do not travel yet.
    waiting: Vec<f32>,
    /// Memory of earlier buckets.
    spare: Vec<Vec<f32>>,
    gathered: Vec<f64>,
    traffic: Traffic,
}

impl MpiPeers {
    pub(crate) fn new([now, first, second]: [Comm; 3]) -> Self {
        Self {
            now,
            first,
            second,
            buckets: VecDeque::new(),
            waiting: Vec::new(),
            spare: Vec::new(),
            gathered: Vec::new(),
            traffic: Traffic::default(),
        }
    }

    fn start(&mut self, values: &[f32]) -> MpiResult<()> {
        let length = self.waiting.len() + values.len();
        if self.waiting.capacity() < length {
            let mut larger = self.memory((length + self.first.size).max(2 * BUCKET));
            larger.extend_from_slice(&self.waiting);
            self.spare.push(std::mem::replace(&mut self.waiting, larger));
        }
        self.waiting.extend_from_slice(values);
        if self.waiting.len() >= BUCKET {
            self.send()?;
        }
        self.progress()
    }

    /// Empty memory for some values: the smallest of an earlier bucket, so that every bucket of a step finds its own again.
    fn memory(&mut self, length: usize) -> Vec<f32> {
        let large = self.spare.iter().enumerate().filter(|(_, memory)| memory.capacity() >= length);
        let smallest = large.min_by_key(|(_, memory)| memory.capacity()).map(|(at, _)| at);
        let mut memory = smallest.map_or_else(|| Vec::with_capacity(length), |at| self.spare.swap_remove(at));
        memory.clear();
        memory
    }

    /// Begins to sum the lists that wait.
    fn send(&mut self) -> MpiResult<()> {
        let (size, length) = (self.first.size, self.waiting.len());
        let mut from = std::mem::take(&mut self.waiting);
        from.resize(length.next_multiple_of(size), 0.0);
        let mut to = self.memory(from.len());
        to.resize(from.len(), 0.0);
        // every process sends the parts of others, and then its own sum to everyone
        self.traffic.long += 1;
        self.traffic.long_bytes += (2 * (from.len() / size) * (size - 1) * size_of::<f32>()) as u64;
        // SAFETY: both lists have as many values, for every process. They are on the heap and stay where they are in `buckets`,
        // which touches them only when the request is complete; `drop` waits for that too.
        let stage = Stage::Parts(unsafe { self.first.start_scatter(&from, &mut to)? });
        self.buckets.push_back(Bucket { stage, from, to, taken: 0, length });
        Ok(())
    }

    /// Moves all buckets on that can go on, in their order.
    fn progress(&mut self) -> MpiResult<()> {
        let (size, second) = (self.first.size, self.second);
        for bucket in &mut self.buckets {
            match &mut bucket.stage {
                Stage::Parts(request) => {
                    // the second stages begin in the order of the buckets
                    if !request.test()? {
                        return Ok(());
                    }
                    bucket.add_parts(size, second)?;
                }
                Stage::Sums(request) => {
                    request.test()?;
                }
                Stage::Done => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, values: &mut [f32]) -> MpiResult<()> {
        if !self.waiting.is_empty() {
            self.send()?;
        }
        let (size, second) = (self.first.size, self.second);
        let bucket = self.buckets.front_mut().ok_or("no sum was begun")?;
        if let Stage::Parts(request) = &mut bucket.stage {
            request.wait()?;
            bucket.add_parts(size, second)?;
            self.progress()?;
        }
        let bucket = self.buckets.front_mut().ok_or("no sum was begun")?;
        if let Stage::Sums(request) = &mut bucket.stage {
            request.wait()?;
            bucket.stage = Stage::Done;
        }
        let end = bucket.taken + values.len();
        assert!(end <= bucket.length, "sums end in the order in which they began");
        values.copy_from_slice(&bucket.from[bucket.taken..end]);
        bucket.taken = end;
        if end == bucket.length
            && let Some(mut bucket) = self.buckets.pop_front()
        {
            self.spare.extend([std::mem::take(&mut bucket.from), std::mem::take(&mut bucket.to)]);
        }
        Ok(())
    }
}

impl Bucket {
    /// Adds up this process's part, and begins to send the sum to everyone.
    fn add_parts(&mut self, size: usize, comm: Comm) -> MpiResult<()> {
        sum_by_rank(&mut self.to, size);
        let own = &self.to[..self.to.len() / size];
        // SAFETY: `from` is as long as `own` times the number of processes, and its first stage is complete; both stay where they
        // are, as in `send`.
        self.stage = Stage::Sums(unsafe { comm.start_gather(own, &mut self.from)? });
        Ok(())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // MPI still writes to the memory of a bucket that is not complete
        if let Stage::Parts(request) | Stage::Sums(request) = &mut self.stage {
            let _ = request.wait();
        }
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
        self.progress().map_err(device)?;
        self.traffic.short_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn start_sum(&mut self, values: &[f32]) -> Result<(), NnError> {
        let start = now();
        self.start(values).map_err(device)?;
        self.traffic.long_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn finish_sum(&mut self, values: &mut [f32]) -> Result<(), NnError> {
        let start = now();
        self.finish(values).map_err(device)?;
        self.traffic.long_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
