//! How the forward pass of a few images is cut for several threads: into images, rows and channels of the output.
//!
//! An output value is computed the same way in any part, so that the cut, which depends on the number of threads, is not
//! part of the result.

use std::ops::Range;

use super::winograd::TRANSFORM;
use super::winograd_transform::{OUT, POSITIONS};
use super::{Convolution, Geometry, OutputPart, Plan};
use crate::kernel::CHANNELS;

/// Channels that two vectors of the widest kind hold: a panel of packed weights, or several.
const PANEL: usize = 2 * CHANNELS;
/// Pieces for every thread, at most.
const PIECES: usize = 2;
/// Cycles to read a vector of the input, with its batch norm.
const READ: usize = 4;
/// Weights that are read from memory in a cycle.
const WEIGHTS_PER_CYCLE: usize = 4;

/// A forward pass in pieces, numbered row by row, and images before rows before channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Images, rows and channels of the whole.
    pub(super) whole: [usize; 3],
    /// The same of a piece; the last ones may have fewer.
    pub(super) piece: [usize; 3],
}

impl Cut {
    fn counts(&self) -> [usize; 3] {
        [0, 1, 2].map(|side| self.whole[side].div_ceil(self.piece[side]).max(1))
    }

    /// The number of pieces.
    pub(crate) fn pieces(&self) -> usize {
        self.counts().iter().product()
    }

    /// The images of a piece, and what of their output it is.
    pub(crate) fn piece(&self, number: usize) -> (Range<usize>, OutputPart) {
        let [_, rows, channels] = self.counts();
        let at = [number / channels / rows, number / channels % rows, number % channels];
        let [images, rows, channels] = [0, 1, 2].map(|side| {
            let first = at[side] * self.piece[side];
            first..self.whole[side].min(first + self.piece[side])
        });
        (images, OutputPart { rows, channels })
    }
}

impl Convolution {
    /// Cuts the forward pass of some images for this many threads, so that it takes them about the least time.
    pub(crate) fn cut(&self, images: usize, threads: usize) -> Cut {
        let (height, outputs) = (self.geometry.out()[0], self.geometry.outputs);
        let whole = [images, height, outputs];
        let [row_step, channel_step] = self.steps();
        let most = PIECES * threads;
        let mut best = (usize::MAX, Cut { whole, piece: whole });
        for channels in pieces(outputs, channel_step, most) {
            // several images, or rows of one
            let of_images = pieces(images, 1, most).map(|images| [images, height]);
            let of_rows = pieces(height, row_step, most).map(|rows| [1, rows]);
            for [images, rows] in of_images.chain(of_rows) {
                let cut = Cut { whole, piece: [images, rows, channels] };
                let rounds = cut.pieces().div_ceil(threads);
                if cut.pieces() <= most.max(images) {
                    let cycles = rounds * self.cycles(cut.piece);
                    if cycles < best.0 {
                        best = (cycles, cut);
                    }
                }
            }
        }
        best.1
    }

    /// Multiples that pieces have rows and channels of; as many as there are if they cannot be cut.
    pub(super) fn steps(&self) -> [usize; 2] {
        let (height, outputs) = (self.geometry.out()[0], self.geometry.outputs);
        let channels = if outputs.is_multiple_of(PANEL) { PANEL } else { outputs };
        match &self.plan {
            Plan::Winograd(_) => [OUT, channels],
            Plan::Pointwise(plan) if plan.is_tiled() => [1, outputs],
            Plan::Direct(_) | Plan::Pointwise(_) => [1, channels],
            Plan::Tiled(_) => [height, outputs],
        }
    }

    /// About how many cycles of a CPU with vectors of sixteen values a piece takes.
    fn cycles(&self, [images, rows, channels]: [usize; 3]) -> usize {
        let Geometry { inputs, outputs, kernel, stride, size: [_, width], .. } = self.geometry;
        let out_width = self.geometry.out()[1];
        let weights = self.packed() / outputs * channels / WEIGHTS_PER_CYCLE;
        let read = images * ((rows - 1) * stride + kernel) * width * inputs * READ / CHANNELS;
        let work = match &self.plan {
            Plan::Winograd(_) => {
                let tiles = images * rows.div_ceil(OUT) * out_width.div_ceil(OUT);
                tiles * (POSITIONS * inputs * channels + TRANSFORM * (inputs + channels))
            }
            _ => images * rows * out_width * kernel * kernel * inputs * channels,
        };
        weights + read + work / CHANNELS
    }
}

/// Sizes of even pieces of a whole, at most `most` of them, which are multiples of `step` except for the last one.
fn pieces(whole: usize, step: usize, most: usize) -> impl Iterator<Item = usize> {
    let steps = whole.div_ceil(step);
    (1..=most.min(steps)).map(move |number| (steps.div_ceil(number) * step).min(whole))
}
