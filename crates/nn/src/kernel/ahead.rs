//! Memory that is needed soon, asked for while the CPU computes.
//!
//! Activations of a batch are larger than the caches. What is read in order a CPU asks for by itself, but only while it reads: in
//! the phases that compute, memory would be idle. So the kernels ask for the next images in small portions, spread over all of
//! their work: a CPU can wait for few lines at a time, and what it needs at once must not queue behind what it needs later.

use std::cell::Cell;
use std::ops::Range;

use crate::isa::Isa;

/// Values in a cache line.
const LINE: usize = 16;
/// What is done, in parts of the whole: 2^40 of them, of which 2^20 count for a stream's lines.
const WHOLE: u64 = 1 << 40;

/// A stretch of memory.
struct Stream {
    from: *const f32,
    lines: usize,
    asked: Cell<usize>,
}

/// What is asked for while some work is done.
pub(crate) struct Ahead {
    streams: [Stream; 6],
    number: usize,
    /// Of a unit of work, in parts of the whole.
    share: u64,
    done: Cell<u64>,
}

impl Ahead {
    /// Nothing yet; `work` is how much will be done.
    pub(crate) fn new(work: usize) -> Self {
        let streams = [const { Stream { from: std::ptr::null(), lines: 0, asked: Cell::new(0) } }; 6];
        Self { streams, number: 0, share: WHOLE / work.max(1) as u64, done: Cell::new(0) }
    }

    /// Adds some images of `one` value each, of a stream that starts at `from`. Addresses need not be good for anything.
    pub(crate) fn add(&mut self, from: *const f32, images: &Range<usize>, one: usize) {
        if self.number < self.streams.len() && !images.is_empty() {
            let (from, lines) = (from.wrapping_add(images.start * one), images.len() * one / LINE);
            self.streams[self.number] = Stream { from, lines, asked: Cell::new(0) };
            self.number += 1;
        }
    }

    /// Asks for what belongs to some work, which is about to be done.
    #[inline(always)]
    pub(crate) fn during<I: Isa>(&self, work: usize) {
        if self.number == 0 {
            return;
        }
        let done = (self.done.get() + work as u64 * self.share).min(WHOLE);
        self.done.set(done);
        for stream in &self.streams[..self.number] {
            let until = ((stream.lines as u64 * (done >> 20)) >> 20) as usize;
            for line in stream.asked.get()..until {
                I::prefetch(stream.from.wrapping_add(line * LINE));
            }
            stream.asked.set(until);
        }
    }
}
