//! Sums over all processes, for the engine: along the tree of `sum_by_rank`, with the same bits in every process.
//!
//! A short list travels whole to everyone, who adds up the lists of all. Of a long one, every process adds up one part and
//! sends the sum to the others: 2 (n - 1) / n times the list leaves each of n processes, whatever their number. Long sums
//! go on while the engine computes earlier layers, and make progress whenever the engine sums anything else.

use std::collections::VecDeque;

use equipoise_nn::{NnError, Peers, sum_by_rank};

use crate::comm::{Comm, MpiResult, Request};

/// Most values of a list that travels whole.
const SHORT: usize = 2048;

/// What happens to a list.
enum Stage {
    /// It travels whole to everyone.
    Whole(Request),
    /// Every process gets its part of everyone's.
    Parts(Request),
    /// Every process sends the sum of its part.
    Sums(Request),
    /// The sum is in `from`.
    Done,
}

/// A list that is being summed.
struct Sum {
    length: usize,
    stage: Stage,
    /// The list, padded to as many values for every process; later the sum.
    from: Vec<f32>,
    /// What arrives.
    to: Vec<f32>,
}

/// The other processes.
pub(crate) struct MpiPeers {
    /// Short lists of the forward and backward pass.
    now: Comm,
    /// The first stage of sums that go on meanwhile, and their second stage: each in the order of the sums, in every process.
    first: Comm,
    second: Comm,
    sums: VecDeque<Sum>,
    /// Memory of earlier sums.
    spare: Vec<Vec<f32>>,
    gathered: Vec<f64>,
}

impl MpiPeers {
    pub(crate) fn new([now, first, second]: [Comm; 3]) -> Self {
        Self { now, first, second, sums: VecDeque::new(), spare: Vec::new(), gathered: Vec::new() }
    }

    fn memory(&mut self, length: usize) -> Vec<f32> {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.resize(length, 0.0);
        memory
    }

    fn start(&mut self, values: &[f32]) -> MpiResult<()> {
        let size = self.first.size;
        let is_short = values.len() <= SHORT;
        let all = if is_short { values.len() * size } else { values.len().next_multiple_of(size) };
        let mut to = self.memory(all);
        let mut from = self.memory(if is_short { values.len() } else { all });
        from[..values.len()].copy_from_slice(values);
        // SAFETY: the lists have the lengths that are asked for. They are on the heap and stay where they are in `sums`, which
        // touches them only when the request is complete; `drop` waits for that too.
        let stage = unsafe {
            match is_short {
                true => Stage::Whole(self.first.start_gather(&from, &mut to)?),
                false => Stage::Parts(self.first.start_scatter(&from, &mut to)?),
            }
        };
        self.sums.push_back(Sum { length: values.len(), stage, from, to });
        self.progress()
    }

    /// Moves all sums on that can go on, in their order.
    fn progress(&mut self) -> MpiResult<()> {
        let (size, second) = (self.first.size, self.second);
        for sum in &mut self.sums {
            match &mut sum.stage {
                Stage::Parts(request) => {
                    // the second stages begin in the order of the sums
                    if !request.test()? {
                        return Ok(());
                    }
                    sum.add_parts(size, second)?;
                }
                Stage::Whole(request) | Stage::Sums(request) => {
                    request.test()?;
                }
                Stage::Done => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, values: &mut [f32]) -> MpiResult<()> {
        let (size, second) = (self.first.size, self.second);
        let sum = self.sums.front_mut().ok_or("no sum was begun")?;
        if let Stage::Parts(request) = &mut sum.stage {
            request.wait()?;
            sum.add_parts(size, second)?;
        }
        self.progress()?;
        let mut sum = self.sums.pop_front().ok_or("no sum was begun")?;
        match &mut sum.stage {
            Stage::Whole(request) => {
                request.wait()?;
                sum_by_rank(&mut sum.to, size);
                std::mem::swap(&mut sum.from, &mut sum.to);
            }
            Stage::Sums(request) => request.wait()?,
            Stage::Parts(_) | Stage::Done => {}
        }
        assert_eq!(sum.length, values.len(), "sums end in the order in which they began");
        values.copy_from_slice(&sum.from[..sum.length]);
        sum.stage = Stage::Done;
        self.spare.extend([std::mem::take(&mut sum.from), std::mem::take(&mut sum.to)]);
        Ok(())
    }
}

impl Sum {
    /// Adds up this process's part, and begins to send the sum to everyone.
    fn add_parts(&mut self, size: usize, comm: Comm) -> MpiResult<()> {
        sum_by_rank(&mut self.to, size);
        let own = &self.to[..self.to.len() / size];
        // SAFETY: `from` is as long as `own` times the number of processes, and its first stage is complete; both stay where they
        // are, as in `start`.
        self.stage = Stage::Sums(unsafe { comm.start_gather(own, &mut self.from)? });
        Ok(())
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        // MPI still writes to the memory of a sum that is not complete
        if let Stage::Whole(request) | Stage::Parts(request) | Stage::Sums(request) = &mut self.stage {
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
        self.gathered.resize(values.len() * self.now.size, 0.0);
        self.now.gather(values, &mut self.gathered).map_err(device)?;
        sum_by_rank(&mut self.gathered, self.now.size);
        values.copy_from_slice(&self.gathered[..values.len()]);
        self.progress().map_err(device)
    }

    fn start_sum(&mut self, values: &[f32]) -> Result<(), NnError> {
        self.start(values).map_err(device)
    }

    fn finish_sum(&mut self, values: &mut [f32]) -> Result<(), NnError> {
        self.finish(values).map_err(device)
    }
}
