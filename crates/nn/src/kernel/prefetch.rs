//! Prefetching: the memory of the next images is requested while the CPU computes on these.
//!
//! The activations of a batch are larger than the caches. The CPU prefetches sequential reads by itself, but only while
//! it reads; memory would be idle in the phases that compute. The kernels therefore request the next images a few lines
//! at a time, spread over all of their work: a CPU can wait for few lines at once, and what it needs now must not queue
//! behind what it needs later.

use std::cell::Cell;
use std::ops::Range;

/// Values in a cache line.
const LINE: usize = 16;
const MAX_STREAMS: usize = 6;

/// A schedule that requests one cache line of every stream at regular intervals of work.
pub(crate) struct Prefetch {
    /// Where every stream starts, and its number of lines.
    streams: [(*const f32, usize); MAX_STREAMS],
    count: usize,
    total_work: usize,
    /// Lines of the longest stream.
    lines: usize,
    next_line: Cell<usize>,
    /// Work until the next line is due.
    countdown: Cell<isize>,
    /// Work between two lines.
    interval: isize,
}

impl Prefetch {
    /// A schedule without streams for `total_work`, in approximate CPU cycles.
    pub(crate) fn new(total_work: usize) -> Self {
        let streams = [(std::ptr::null(), 0); MAX_STREAMS];
        let (next_line, countdown) = (Cell::new(0), Cell::new(isize::MAX));
        Self { streams, count: 0, total_work, lines: 0, next_line, countdown, interval: isize::MAX }
    }

    /// Adds the `images` of a stream that starts at `from`, with `image_len` values each. Any address is allowed.
    pub(crate) fn add(&mut self, from: *const f32, images: &Range<usize>, image_len: usize) {
        let (from, lines) = (from.wrapping_add(images.start * image_len), images.len() * image_len / LINE);
        if self.count < MAX_STREAMS && lines > 0 {
            self.streams[self.count] = (from, lines);
            self.count += 1;
            self.lines = self.lines.max(lines);
            self.interval = (self.total_work / self.lines).max(1) as isize;
            self.countdown.set(self.interval);
        }
    }

    /// Requests the lines that fall into the `work` that is about to be done.
    #[inline(always)]
    pub(crate) fn during(&self, work: usize) {
        let countdown = self.countdown.get().wrapping_sub(work as isize);
        self.countdown.set(countdown);
        if countdown <= 0 {
            self.request();
        }
    }

    /// Requests the lines that are due.
    #[inline(never)]
    fn request(&self) {
        let (mut line, mut countdown) = (self.next_line.get(), self.countdown.get());
        while countdown <= 0 && line < self.lines {
            for &(from, lines) in &self.streams[..self.count] {
                if line < lines {
                    prefetch_line(from.wrapping_add(line * LINE));
                }
            }
            line += 1;
            countdown += self.interval;
        }
        self.next_line.set(line);
        self.countdown.set(if line < self.lines { countdown } else { isize::MAX });
    }
}

/// Requests the cache line at an address into the second-level cache.
#[inline(always)]
fn prefetch_line(address: *const f32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that every x86-64 has; it reads nothing and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
