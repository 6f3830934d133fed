//! Memory that is needed soon, asked for while the CPU computes.
//!
//! Activations of a batch are larger than the caches. What is read in order a CPU asks for by itself, but only while it reads: in
//! the phases that compute, memory would be idle. So the kernels ask for the next images in small portions, spread over all of
//! their work: a CPU can wait for few lines at a time, and what it needs at once must not queue behind what it needs later.

use std::cell::Cell;
use std::ops::Range;

/// Values in a cache line.
const LINE: usize = 16;
/// Streams at most.
const STREAMS: usize = 6;

/// What is asked for while some work is done: a line of every stream at a time.
pub(crate) struct Prefetch {
    /// Where the streams start, and how many lines each has.
    streams: [(*const f32, usize); STREAMS],
    number: usize,
    work: usize,
    /// The longest stream's lines.
    lines: usize,
    /// The line that comes next.
    next: Cell<usize>,
    /// Work before it is asked for.
    left: Cell<isize>,
    /// Work from one line to the next.
    pause: isize,
}

impl Prefetch {
    /// Nothing yet; `work` is how much will be done.
    pub(crate) fn new(work: usize) -> Self {
        let streams = [(std::ptr::null(), 0); STREAMS];
        let (next, left) = (Cell::new(0), Cell::new(isize::MAX));
        Self { streams, number: 0, work, lines: 0, next, left, pause: isize::MAX }
    }

    /// Adds some images of `one` value each, of a stream that starts at `from`. Addresses need not be good for anything.
    pub(crate) fn add(&mut self, from: *const f32, images: &Range<usize>, one: usize) {
        let (from, lines) = (from.wrapping_add(images.start * one), images.len() * one / LINE);
        if self.number < STREAMS && lines > 0 {
            self.streams[self.number] = (from, lines);
            self.number += 1;
            self.lines = self.lines.max(lines);
            self.pause = (self.work / self.lines).max(1) as isize;
            self.left.set(self.pause);
        }
    }

    /// Asks for what belongs to some work, which is about to be done.
    #[inline(always)]
    pub(crate) fn during(&self, work: usize) {
        let left = self.left.get().wrapping_sub(work as isize);
        self.left.set(left);
        if left <= 0 {
            self.ask();
        }
    }

    /// Asks for the lines that are due.
    #[inline(never)]
    fn ask(&self) {
        let (mut line, mut left) = (self.next.get(), self.left.get());
        while left <= 0 && line < self.lines {
            for &(from, lines) in &self.streams[..self.number] {
                if line < lines {
                    prefetch(from.wrapping_add(line * LINE));
                }
            }
            line += 1;
            left += self.pause;
        }
        self.next.set(line);
        self.left.set(if line < self.lines { left } else { isize::MAX });
    }
}

/// Asks for the cache line at an address, into the second nearest cache.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
