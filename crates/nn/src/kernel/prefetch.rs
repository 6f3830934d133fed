//! Prefetching: the memory of the next images is requested while the CPU computes on these.
//!
//! The activations of a batch are larger than the caches. The CPU prefetches sequential reads by itself, but only while
//! it reads; memory would be idle in the phases that compute. The kernels therefore request the next images a few lines
//! at a time, spread over all of their work: a CPU can wait for few lines at once, and what it needs now must not queue
//! behind what it needs later.

use std::cell::Cell;
use std::ops::Range;

use equipoise_simd::prefetch_line;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines of a stream that are requested at a time.
const BURST: usize = 2;
const MAX_STREAMS: usize = 6;

/// A stretch of memory that is requested from its beginning to its end.
#[derive(Clone, Copy)]
struct Stream {
    /// Where the first line would be, if there were no `turn`.
    from: *const u8,
    /// The line from which on the stream continues at `rest`, as if it had begun there.
    turn: usize,
    rest: *const u8,
    lines: usize,
}

/// A schedule that requests a few cache lines of every stream at regular intervals of work.
///
/// The work is that of a group of images. A stream is requested some way ahead of its use: what the group itself will
/// still need, and then the beginning of the next group.
pub(crate) struct Prefetch {
    streams: [Stream; MAX_STREAMS],
    count: usize,
    /// The images that are worked on, and the next ones.
    images: Range<usize>,
    next_images: Range<usize>,
    total_work: usize,
    /// Lines of the longest stream.
    lines: usize,
    next_line: Cell<usize>,
    /// Work until the next lines are due.
    countdown: Cell<isize>,
    /// Work between two requests.
    interval: isize,
}

impl Prefetch {
    /// A schedule without streams for the work on a group of images, in approximate CPU cycles.
    pub(crate) fn new(total_work: usize, images: &Range<usize>, next_images: &Range<usize>) -> Self {
        let none = Stream { from: std::ptr::null(), turn: 0, rest: std::ptr::null(), lines: 0 };
        Self {
            streams: [none; MAX_STREAMS],
            count: 0,
            images: images.clone(),
            next_images: next_images.clone(),
            total_work,
            lines: 0,
            next_line: Cell::new(0),
            countdown: Cell::new(isize::MAX),
            interval: isize::MAX,
        }
    }

    /// Adds a stream of images with `image_len` values each. It is requested `ahead` of its use, a share of the group's
    /// work between 0 and 1. Any address is allowed.
    pub(crate) fn add<T>(&mut self, base: *const T, image_len: usize, ahead: f32) {
        let (base, image_len) = (base.cast::<u8>(), image_len * size_of::<T>());
        let whole = self.images.len() * image_len / LINE;
        let shift = ((whole as f32 * ahead) as usize).min(whole);
        let turn = whole - shift;
        let lines = whole.min(turn + self.next_images.len() * image_len / LINE);
        if self.count < MAX_STREAMS && lines > 0 {
            let from = base.wrapping_add(self.images.start * image_len + shift * LINE);
            let rest = base.wrapping_add(self.next_images.start * image_len).wrapping_sub(turn * LINE);
            self.streams[self.count] = Stream { from, turn, rest, lines };
            self.count += 1;
            self.lines = self.lines.max(lines);
            self.interval = (self.total_work * BURST / self.lines).max(1) as isize;
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
            for stream in &self.streams[..self.count] {
                if line < stream.lines {
                    let from = if line < stream.turn { stream.from } else { stream.rest };
                    for next in line..line + BURST {
                        prefetch_line(from.wrapping_add(next * LINE));
                    }
                }
            }
            line += BURST;
            countdown += self.interval;
        }
        self.next_line.set(line);
        self.countdown.set(if line < self.lines { countdown } else { isize::MAX });
    }
}
