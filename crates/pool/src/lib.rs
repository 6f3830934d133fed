//! A thread pool for short parallel loops, thousands of them a second.
//!
//! A training step is a chain of parallel loops of 10 to 1000 microseconds each. General-purpose pools put their
//! threads to sleep between two loops, and waking one costs as much as such a loop; here a thread spins for a while
//! before it sleeps. The calling thread takes part in the work and never waits for a thread that has not woken up in
//! time.
//!
//! If what a task computes does not depend on the thread that runs it, no result depends on the number of threads.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Rounds of spinning before a thread sleeps: some hundred microseconds, depending on the CPU.
const SPINS: u32 = if cfg!(miri) { 10 } else { 20_000 };

/// A handle to a group of threads. Clones share the threads, which end with the last handle.
#[derive(Clone)]
pub struct Pool {
    threads: Option<Arc<Threads>>,
}

/// The body of a loop.
type Body = dyn Fn(usize) + Sync;

/// The body of the open loop.
///
/// It is written only by the thread that holds the gate, while no loop is open and no thread has joined one; it is read
/// only by threads that have joined the open loop.
struct BodyCell(UnsafeCell<Option<*const Body>>);

// SAFETY: writing and reading never meet, as the type says: opening a loop (a store to `Shared::state`) comes after the
// write, joining it (an exchange of `Shared::state`) before a read, and leaving it (a subtraction that the writer waits
// for) after. The body itself is `Sync`.
unsafe impl Sync for BodyCell {}
// SAFETY: the cell holds a pointer to a body that is `Sync`, so that any thread may use it.
unsafe impl Send for BodyCell {}

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

/// The state that all threads share.
struct Shared {
    /// Bit 63: a loop is open to join. Bits 32..63: its number. Bits 0..32: threads that have joined it.
    state: AtomicU64,
    body: BodyCell,
    /// The number of tasks of the open loop.
    tasks: AtomicUsize,
    /// Whether threads go through their tasks from the last to the first.
    backwards: AtomicBool,
    /// The number of tasks that are taken from every thread's part.
    next: Vec<Taken>,
    /// The payload of the first task that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The number of threads that sleep or are about to.
    sleeping: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    /// Rounds of spinning before a thread sleeps.
    spins: u32,
}

struct Threads {
    shared: Arc<Shared>,
    /// Held by the thread that runs a loop.
    gate: Mutex<()>,
    handles: Vec<JoinHandle<()>>,
}

const OPEN: u64 = 1 << 63;
const NUMBER: u64 = 0x7fff_ffff << 32;
const JOINED: u64 = 0xffff_ffff;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // a panic cannot leave what these mutexes guard in a bad state
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Waits for a loop with a number other than `last` and joins it; returns its number, or `None` when the pool ends.
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
            if rounds < self.spins {
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

    /// Runs tasks until none is left: first those of the thread's own part, whose memory may still be in its cache from
    /// the last loop, then those of the other parts.
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

    /// Joins loop after loop until the pool ends.
    fn work(&self, own: usize) {
        let mut last = 0;
        while let Some(number) = self.join(last) {
            last = number;
            // SAFETY: this thread joined the loop while it was open, so `body` was written before and is not written
            // again until this thread has left.
            if let Some(body) = unsafe { *self.body.0.get() } {
                // SAFETY: `Pool::sweep` returns, and ends the body's borrow, only after this thread has left the loop.
                self.take_part(own, unsafe { &*body });
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Pool {
    /// Starts a pool of this many threads, the calling one included; 0 means one per core.
    ///
    /// # Errors
    /// Returns the system's error if a thread cannot be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::start(threads, SPINS)
    }

    /// Starts a pool whose threads sleep as soon as a loop is over. A loop costs more to start, but the cores are free
    /// for the threads of another library between two loops.
    ///
    /// # Errors
    /// Returns the system's error if a thread cannot be started.
    pub fn without_spinning(threads: usize) -> std::io::Result<Self> {
        Self::start(threads, 0)
    }

    fn start(threads: usize, spins: u32) -> std::io::Result<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            n => n,
        };
        if threads == 1 {
            return Ok(Self::single());
        }
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            body: BodyCell(UnsafeCell::new(None)),
            tasks: AtomicUsize::new(0),
            backwards: AtomicBool::new(false),
            next: (0..threads).map(|_| Taken::default()).collect(),
            panic: Mutex::new(None),
            sleeping: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            spins,
        });
        let mut pool = Threads { shared, gate: Mutex::new(()), handles: Vec::new() };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = std::thread::Builder::new().name(format!("equipoise-{number}"));
            pool.handles.push(builder.spawn(move || shared.work(number))?);
        }
        Ok(Self { threads: Some(Arc::new(pool)) })
    }

    /// A pool of the calling thread alone.
    #[must_use]
    pub const fn single() -> Self {
        Self { threads: None }
    }

    /// The number of threads, the calling one included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, |threads| threads.handles.len() + 1)
    }

    /// Calls `body` once with every number below `tasks`, on all threads, and returns when all calls have.
    ///
    /// A call from within a loop of the same pool, or while another thread runs one, runs its tasks on the calling
    /// thread.
    ///
    /// # Panics
    /// Resumes the panic of the first task that panicked, once all threads have left the loop; tasks that have not
    /// started by then are not run.
    pub fn run(&self, tasks: usize, body: impl Fn(usize) + Sync) {
        self.sweep(tasks, false, body);
    }

    /// Does what [`run`](Self::run) does, with every thread's tasks from the first to the last, or backwards. A loop
    /// over the same memory as the last one should go the other way, because it begins with what is still in the cache.
    ///
    /// # Panics
    /// Panics as [`run`](Self::run) does.
    pub fn sweep(&self, tasks: usize, backwards: bool, body: impl Fn(usize) + Sync) {
        let alone = || match backwards {
            false => (0..tasks).for_each(&body),
            true => (0..tasks).rev().for_each(&body),
        };
        let Some(threads) = self.threads.as_ref().filter(|_| tasks > 1) else { return alone() };
        let Ok(gate) = threads.gate.try_lock() else { return alone() };
        let shared = &*threads.shared;
        let body: &(dyn Fn(usize) + Sync) = &body;
        // SAFETY: only the lifetime changes. This function returns, also when a task panics, after the loop is closed
        // and every thread has left it, so that no thread uses the pointer after `body` is gone.
        let erased = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), *const Body>(body) };
        // SAFETY: this thread holds the gate, and the last loop was closed and left before its gate was released, so
        // that no thread reads or writes `body` now.
        unsafe { *shared.body.0.get() = Some(erased) };
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
            // a thread that is still inside finishes a task, or has lost its core
            rounds += 1;
            if rounds < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = lock(&shared.panic).take();
        if let Some(panic) = panic {
            drop(gate);
            resume_unwind(panic);
        }
    }

    /// Calls `body` once with every item and its index, on all threads.
    ///
    /// # Panics
    /// Panics as [`run`](Self::run) does.
    pub fn each<T: Send>(&self, items: &mut [T], body: impl Fn(usize, &mut T) + Sync) {
        let first = Items(items.as_mut_ptr());
        self.run(items.len(), |task| {
            let first = &first;
            // SAFETY: `run` calls this once with every number below the length, so that no two calls get the same item,
            // and `items` is borrowed until all calls have returned.
            body(task, unsafe { &mut *first.0.add(task) });
        });
    }
}

/// A pointer to the first of the items that a loop hands out one by one.
struct Items<T>(*mut T);

// SAFETY: threads share the pointer to reach different items, each of which is `Send` and used by one thread only.
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
            // a thread never ends with a panic, because the panics of tasks are caught
            let _ = handle.join();
        }
    }
}
