//! Threads for work that comes in short pieces, thousands of them a second.
//!
//! A training step is a chain of parallel loops of 10 to 1000 microseconds each. General-purpose pools put their threads to
//! sleep between two of them, and waking one costs as much as such a loop; here a thread waits awake for a while before it
//! sleeps. The thread that calls takes part in the work, and never waits for one that has not woken up in time.
//!
//! What a piece of work computes must not depend on which thread does it; then nothing depends on their number.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Rounds of waiting awake: some hundred microseconds, depending on the CPU.
const AWAKE: u32 = 20_000;

/// A handle to a group of threads; clones share them. They end with the last handle.
#[derive(Clone)]
pub struct Pool {
    threads: Option<Arc<Threads>>,
}

/// A loop to be run, as the threads see it.
type Body = dyn Fn(usize) + Sync;

/// A counter with a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

/// What the threads share.
struct Shared {
    /// Bit 63: a loop is open to join. Bits 32..63: its number. Bits 0..32: threads that have joined it.
    state: AtomicU64,
    /// The open loop's body. Written only while no loop is open and nobody has joined; read only by those who joined.
    body: UnsafeCell<Option<*const Body>>,
    /// The open loop's length.
    tasks: AtomicUsize,
    /// Whether threads go through their tasks backwards.
    backwards: AtomicBool,
    /// How many tasks of every thread's part are taken.
    next: Vec<Taken>,
    /// What the first task that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Threads that sleep, or are about to.
    sleeping: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
}

// SAFETY: `body` is the only field that is not `Sync` and `Send` by itself; the protocol above it keeps writing and reading
// apart, and what it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

struct Threads {
    shared: Arc<Shared>,
    /// Held by whoever runs a loop.
    gate: Mutex<()>,
    handles: Vec<JoinHandle<()>>,
}

const OPEN: u64 = 1 << 63;
const NUMBER: u64 = 0x7fff_ffff << 32;
const JOINED: u64 = 0xffff_ffff;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // nothing that these mutexes guard can be left half done
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Waits for a loop with another number than `last` and joins it; `None` when the pool ends.
    fn join(&self, last: u64) -> Option<u64> {
        let fresh = |state: u64| state & OPEN != 0 && state & NUMBER != last;
        let mut rounds = 0u32;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if fresh(state) {
                if self.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Some(state & NUMBER);
                }
                continue;
            }
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            rounds += 1;
            if rounds < AWAKE {
                std::hint::spin_loop();
                continue;
            }
            rounds = 0;
            self.sleeping.fetch_add(1, Ordering::SeqCst);
            let mut guard = lock(&self.sleep);
            while !fresh(self.state.load(Ordering::SeqCst)) && !self.stop.load(Ordering::SeqCst) {
                guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            drop(guard);
            self.sleeping.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn wake_all(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// Takes tasks until there are none left: first those of one's own part, which one had the last time too and whose
    /// memory may still be near, then what others have left.
    fn take_part(&self, own: usize, body: &(dyn Fn(usize) + Sync)) {
        let (tasks, backwards) = (self.tasks.load(Ordering::Relaxed), self.backwards.load(Ordering::Relaxed));
        let parts = self.next.len();
        for part in (own..parts).chain(0..own) {
            let (first, last) = (tasks * part / parts, tasks * (part + 1) / parts);
            loop {
                let taken = self.next[part].0.fetch_add(1, Ordering::Relaxed);
                if taken >= last - first {
                    break;
                }
                let task = if backwards { last - 1 - taken } else { first + taken };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(task))) {
                    lock(&self.panic).get_or_insert(panic);
                    self.next.iter().for_each(|next| {
                        next.0.fetch_max(tasks, Ordering::Relaxed);
                    });
                }
            }
        }
    }

    fn work(&self, own: usize) {
        let mut last = 0;
        while let Some(number) = self.join(last) {
            last = number;
            // SAFETY: we joined the loop while it was open, so `body` was written before and is not written again until we
            // have left, and what it points to lives as long: `Pool::run` waits for us.
            if let Some(body) = unsafe { *self.body.get() } {
                // SAFETY: as above.
                self.take_part(own, unsafe { &*body });
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Pool {
    /// This many threads, the calling one included; 0 means one per core.
    ///
    /// # Errors
    /// The system's, if it does not give a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            n => n,
        };
        if threads == 1 {
            return Ok(Self::single());
        }
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            body: UnsafeCell::new(None),
            tasks: AtomicUsize::new(0),
            backwards: AtomicBool::new(false),
            next: (0..threads).map(|_| Taken::default()).collect(),
            panic: Mutex::new(None),
            sleeping: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut pool = Threads { shared, gate: Mutex::new(()), handles: Vec::new() };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(format!("equipoise-{number}"));
            pool.handles.push(builder.spawn(move || shared.work(number))?);
        }
        Ok(Self { threads: Some(Arc::new(pool)) })
    }

    /// The calling thread alone.
    #[must_use]
    pub const fn single() -> Self {
        Self { threads: None }
    }

    /// Number of threads, the calling one included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, |threads| threads.handles.len() + 1)
    }

    /// Calls `body` once with every number below `tasks`, on all threads, and returns when all calls have.
    ///
    /// A call from within a loop of the same pool, or while another thread runs one, does its tasks by itself.
    ///
    /// # Panics
    /// With what the first task that panicked said, once all threads have left the loop; tasks that had not started
    /// then are not run.
    pub fn run(&self, tasks: usize, body: impl Fn(usize) + Sync) {
        self.sweep(tasks, false, body);
    }

    /// As [`run`](Self::run), with every thread's tasks from the first to the last, or backwards: whoever goes over the same
    /// memory again does well to start where he ended.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn sweep(&self, tasks: usize, backwards: bool, body: impl Fn(usize) + Sync) {
        let alone = || match backwards {
            false => (0..tasks).for_each(&body),
            true => (0..tasks).rev().for_each(&body),
        };
        let Some(threads) = self.threads.as_ref().filter(|_| tasks > 1) else { return alone() };
        let Ok(gate) = threads.gate.try_lock() else { return alone() };
        let shared = &*threads.shared;
        let body: &(dyn Fn(usize) + Sync) = &body;
        // SAFETY: only the lifetime changes. The loop is closed and everybody has left it before this function returns,
        // also when a task panics, so nobody uses the pointer after `body` is gone.
        let erased = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), *const Body>(body) };
        // SAFETY: we hold the gate and the last loop is closed and left, so nobody reads `body` now.
        unsafe { *shared.body.get() = Some(erased) };
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.backwards.store(backwards, Ordering::Relaxed);
        shared.next.iter().for_each(|next| next.0.store(0, Ordering::Relaxed));
        let number = shared.state.load(Ordering::Relaxed).wrapping_add(1 << 32) & NUMBER;
        shared.state.store(OPEN | number, Ordering::SeqCst);
        shared.wake_all();
        shared.take_part(0, body);
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut rounds = 0u32;
        while shared.state.load(Ordering::Acquire) & JOINED != 0 {
            // whoever is still in has a task to finish, or its core was taken away
            rounds += 1;
            if rounds < AWAKE { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = lock(&shared.panic).take();
        if let Some(panic) = panic {
            drop(gate);
            resume_unwind(panic);
        }
    }

    /// Calls `body` once with every item and its number, on all threads.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn each<T: Send>(&self, items: &mut [T], body: impl Fn(usize, &mut T) + Sync) {
        let first = Items(items.as_mut_ptr());
        self.run(items.len(), |task| {
            let first = &first;
            // SAFETY: `run` calls with every number below the length once, so no two calls get the same item, and `items`
            // is borrowed until all calls have returned.
            body(task, unsafe { &mut *first.0.add(task) });
        });
    }
}

/// The first of the items that a loop hands out one by one.
struct Items<T>(*mut T);

// SAFETY: every item is used by one thread at a time, and may be sent to it.
unsafe impl<T: Send> Sync for Items<T> {}

impl Default for Pool {
    /// The calling thread alone.
    fn default() -> Self {
        Self::single()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        for handle in self.handles.drain(..) {
            // a thread cannot end with a panic: tasks' panics are caught
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads).expect("threads");
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 7, 1000] {
                let mut items = vec![0u32; tasks];
                pool.each(&mut items, |task, item| *item += 1 + task as u32);
                assert!(items.iter().enumerate().all(|(i, x)| *x == 1 + i as u32), "{threads} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn alone_and_in_parts_tasks_go_up_or_down() {
        for threads in [1, 3] {
            let pool = Pool::new(threads).expect("threads");
            for backwards in [false, true] {
                let order = Mutex::new(Vec::new());
                pool.sweep(30, backwards, |task| lock(&order).push(task));
                let order = order.into_inner().expect("no panic");
                for part in 0..threads {
                    let own = order.iter().filter(|task| **task * threads / 30 == part);
                    let sorted = if backwards { own.is_sorted_by(|a, b| a > b) } else { own.is_sorted() };
                    // another thread may have overtaken one that was about to note its task
                    assert!(sorted || threads > 1, "{order:?}");
                }
                assert_eq!(order.len(), 30);
            }
        }
    }

    #[test]
    fn a_hundred_thousand_short_loops() {
        let pool = Pool::new(3).expect("threads");
        let sum = AtomicUsize::new(0);
        for _ in 0..100_000 {
            pool.run(4, |task| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.load(Ordering::Relaxed), 600_000);
    }

    #[test]
    fn threads_that_went_to_sleep_wake_up_again() {
        let pool = Pool::new(2).expect("threads");
        for _ in 0..20 {
            while pool.threads.as_ref().is_some_and(|t| t.shared.sleeping.load(Ordering::SeqCst) == 0) {
                std::thread::yield_now();
            }
            // two tasks that wait for each other: the sleeper has to come
            let met = AtomicUsize::new(0);
            pool.run(2, |_| {
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_loop_inside_a_loop_and_a_second_caller_do_their_own_work() {
        let pool = Pool::new(2).expect("threads");
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, |_| {
                            pool.run(5, |task| {
                                sum.fetch_add(task, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 2 * 100 * 4 * 10);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2).expect("threads");
        for bad in 0..8 {
            let caught = catch_unwind(AssertUnwindSafe(|| pool.run(8, |task| assert!(task != bad, "task {task}"))));
            let said = *caught.expect_err("a panic").downcast::<String>().expect("a message");
            assert_eq!(said, format!("task {bad}"));
            pool.run(8, |_| {});
        }
    }
}
