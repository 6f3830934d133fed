//! TrivialAugment: one operation per image, of a random magnitude (Müller, Hutter, "TrivialAugment: Tuning-free Yet
//! State-of-the-Art Data Augmentation", ICCV 2021).
//!
//! The operations and the 31 magnitudes are those of its wide search space, as in torchvision's `TrivialAugmentWide`.

use equipoise_random::{Example, Stream};

use super::op_ranges::{OpKind, OpRanges};
use super::ops::AugmentOp;
use super::random_ops::OPERATIONS;

/// Translation is in pixels, whatever the size of the image.
pub(super) const RANGES: OpRanges =
    OpRanges { steps: 30, shear: 0.99, translate: [32.0; 2], rotate: 135.0, factor: 0.99, posterize: 6.0 };

/// The operation for an example.
pub(super) fn draw(example: Example) -> AugmentOp {
    let draws = example.draws(Stream::ColorAndShape);
    let below = |position: u64, n: usize| (draws.unit(position) * n as f64) as usize;
    let kind = OpKind::DRAWN[below(OPERATIONS, OpKind::DRAWN.len())];
    let step = below(OPERATIONS + 1, usize::from(RANGES.steps) + 1) as u8;
    RANGES.op(kind, step, draws.at(OPERATIONS + 2) & 1 == 1)
}
