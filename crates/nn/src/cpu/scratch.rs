//! The tasks of a pass, and the scratch memory that each of them works in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

use crate::buffer::Buffer;
use crate::kernel::CHANNELS;
use crate::kernel::convolution::{Scratch, ScratchSize, SliceGradients};
use crate::kernel::fused_norm::{OutputGradient, Sink, Source};
use crate::kernel::value::Activation;

/// A pointer, or a value made of pointers, that all tasks of a loop use.
#[derive(Clone, Copy)]
pub(super) struct Shared<T>(T);

/// What [`Shared`] may hold.
///
/// # Safety
/// The type must be plain data: copying it from another thread touches nothing behind its pointers. Reading or writing
/// behind them is `unsafe`, and whoever does it must know that no other task writes there.
pub(super) unsafe trait TaskPointer: Copy {}
// SAFETY: raw pointers are plain data.
unsafe impl<T> TaskPointer for *const T {}
// SAFETY: raw pointers are plain data.
unsafe impl<T> TaskPointer for *mut T {}
// SAFETY: raw pointers and numbers.
unsafe impl<T: Activation> TaskPointer for Source<T> {}
// SAFETY: raw pointers and numbers.
unsafe impl<T: Activation> TaskPointer for Sink<T> {}
// SAFETY: raw pointers.
unsafe impl<T: Activation> TaskPointer for OutputGradient<T> {}
// SAFETY: raw pointers and a number.
unsafe impl TaskPointer for SliceGradients {}

// SAFETY: a shared reference only gives a copy of the value, which `TaskPointer` allows from any thread.
unsafe impl<T: TaskPointer> Sync for Shared<T> {}

impl<T: TaskPointer> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    /// The value. It is a method, so that closures capture the `Shared` and not the pointer inside.
    pub(super) fn get(&self) -> T {
        self.0
    }
}

/// Number of parts of a thread's scratch memory: six for the kernels, six for an evaluation.
const PARTS: usize = 12;

/// Scratch memory of one thread, in one stretch of large pages: a transform writes to dozens of places far apart, more
/// than the CPU caches addresses of small pages.
pub(super) struct ThreadScratch {
    memory: Buffer,
    /// Where the parts begin.
    starts: [usize; PARTS],
}

/// Where an evaluation keeps the activations of its few images.
#[derive(Clone, Copy)]
pub(super) struct EvaluationScratch<T> {
    /// The inputs of a block and of the next one, in turn.
    pub(super) block_inputs: [*mut T; 2],
    /// The outputs of layers inside a block, in turn.
    pub(super) inner: [*mut T; 2],
    /// The output of a block's last layer.
    pub(super) last: *mut T,
    /// The output of a block's projection.
    pub(super) projection: *mut T,
}

impl ThreadScratch {
    /// Scratch for kernels of this size, and for evaluations that keep `activation` values of a layer at most.
    pub(super) fn new(size: &ScratchSize, activation: usize) -> Self {
        let &ScratchSize { input, v, m, gradient, du, sums } = size;
        let mut lengths = [activation; PARTS];
        lengths[..6].copy_from_slice(&[input, v, m, gradient, du, sums]);
        let (mut starts, mut length) = ([0; PARTS], 0);
        for (start, part) in starts.iter_mut().zip(lengths) {
            *start = length;
            length += part.next_multiple_of(CHANNELS);
        }
        Self { memory: Buffer::in_pages(length), starts }
    }

    fn parts(&mut self) -> [*mut f32; PARTS] {
        let memory = self.memory.as_mut_ptr();
        // SAFETY: `new` allocated at least the sum of all parts, so that every start lies inside the memory or at its
        // end.
        self.starts.map(|start| unsafe { memory.add(start) })
    }

    /// The kernels' parts.
    pub(super) fn kernel(&mut self) -> Scratch {
        let [input, v, m, gradient, du, sums, ..] = self.parts();
        Scratch { input, v, m, gradient, du, sums }
    }

    /// The parts of an evaluation, which do not overlap the kernels'.
    pub(super) fn evaluation<T: Activation>(&mut self) -> EvaluationScratch<T> {
        let [.., input, next_input, inner, next_inner, last, projection] = self.parts().map(<*mut f32>::cast);
        EvaluationScratch { block_inputs: [input, next_input], inner: [inner, next_inner], last, projection }
    }
}

/// Runs the tasks of a pass on all threads, each with scratch memory.
pub(super) struct Tasks {
    pub(super) pool: Pool,
    pub(super) simd: SimdLevel,
    /// One for every thread.
    scratch: Vec<Mutex<ThreadScratch>>,
    /// Direction of the next pass. Every pass over the batch runs opposite to the one before, because what was used
    /// last is still in the cache.
    backwards: AtomicBool,
}

impl Tasks {
    pub(super) fn new(pool: Pool, simd: SimdLevel, size: &ScratchSize, activation: usize) -> Self {
        let scratch = (0..pool.threads()).map(|_| Mutex::new(ThreadScratch::new(size, activation))).collect();
        Self { pool, simd, scratch, backwards: AtomicBool::new(false) }
    }

    /// Runs `body` with the number of every task, the number of the task that this thread will probably run next, and
    /// scratch that no other running task has.
    pub(super) fn run(&self, tasks: usize, body: impl Fn(usize, Option<usize>, &Scratch) + Sync) {
        self.run_with_thread_scratch(tasks, |task, next, scratch| body(task, next, &scratch.kernel()));
    }

    /// As [`run`](Self::run), with all of the thread's scratch.
    pub(super) fn run_with_thread_scratch(
        &self,
        tasks: usize,
        body: impl Fn(usize, Option<usize>, &mut ThreadScratch) + Sync,
    ) {
        let backwards = self.backwards.fetch_xor(true, Ordering::Relaxed);
        self.pool.sweep(tasks, backwards, |task| {
            let mut scratch = self.free_scratch(task * self.scratch.len() / tasks);
            let next = if backwards { task.checked_sub(1) } else { Some(task + 1).filter(|next| *next < tasks) };
            body(task, next, &mut scratch);
        });
    }

    /// Scratch that no running task has: number `own` if possible, which is in the cache of the thread that runs this part
    /// of the tasks.
    fn free_scratch(&self, own: usize) -> MutexGuard<'_, ThreadScratch> {
        loop {
            for scratch in self.scratch[own..].iter().chain(&self.scratch[..own]) {
                match scratch.try_lock() {
                    Ok(scratch) => return scratch,
                    Err(TryLockError::Poisoned(_)) => panic!("a task of this engine has panicked before"),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }
}
