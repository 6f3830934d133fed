//! AutoAugment with the policy found for CIFAR-10 (Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data",
//! CVPR 2019): one of 25 sub-policies per image, each of two operations with a probability and a magnitude.
//!
//! The search saw a part of CIFAR-10's training images, so results on CIFAR-10 owe something to it. The magnitudes are
//! torchvision's, in 10 steps; there and here, the sign of an operation is random.

use equipoise_random::{Example, Stream};

use super::op_ranges::OpKind::{
    self, AutoContrast, Brightness, Contrast, Equalize, Invert, Posterize, Rotate, Saturation, Sharpness, ShearY,
    Solarize, TranslateX, TranslateY,
};
use super::op_ranges::OpRanges;
use super::ops::AugmentOp;
use super::random_ops::OPERATIONS;

/// An operation, its probability in tenths and its magnitude.
pub(super) type Step = (OpKind, u8, u8);

/// The sub-policies of the paper's appendix. Kinds without a magnitude have 0.
pub(super) const CIFAR10: [[Step; 2]; 25] = [
    [(Invert, 1, 0), (Contrast, 2, 6)],
    [(Rotate, 7, 2), (TranslateX, 3, 9)],
    [(Sharpness, 8, 1), (Sharpness, 9, 3)],
    [(ShearY, 5, 8), (TranslateY, 7, 9)],
    [(AutoContrast, 5, 0), (Equalize, 9, 0)],
    [(ShearY, 2, 7), (Posterize, 3, 7)],
    [(Saturation, 4, 3), (Brightness, 6, 7)],
    [(Sharpness, 3, 9), (Brightness, 7, 9)],
    [(Equalize, 6, 0), (Equalize, 5, 0)],
    [(Contrast, 6, 7), (Sharpness, 6, 5)],
    [(Saturation, 7, 7), (TranslateX, 5, 8)],
    [(Equalize, 3, 0), (AutoContrast, 4, 0)],
    [(TranslateY, 4, 3), (Sharpness, 2, 6)],
    [(Brightness, 9, 6), (Saturation, 2, 8)],
    [(Solarize, 5, 2), (Invert, 0, 0)],
    [(Equalize, 2, 0), (AutoContrast, 6, 0)],
    [(Equalize, 2, 0), (Equalize, 6, 0)],
    [(Saturation, 9, 9), (Equalize, 6, 0)],
    [(AutoContrast, 8, 0), (Solarize, 2, 8)],
    [(Brightness, 1, 3), (Saturation, 7, 0)],
    [(Solarize, 4, 5), (AutoContrast, 9, 0)],
    [(TranslateY, 9, 9), (TranslateY, 7, 9)],
    [(AutoContrast, 9, 0), (Solarize, 8, 3)],
    [(Equalize, 8, 0), (Invert, 1, 0)],
    [(TranslateY, 7, 9), (AutoContrast, 9, 0)],
];

/// Magnitudes for images of this size.
pub(super) fn ranges(height: usize, width: usize) -> OpRanges {
    let translate = [width, height].map(|side| 150.0 / 331.0 * side as f32);
    OpRanges { steps: 9, shear: 0.3, translate, rotate: 30.0, factor: 0.9, posterize: 4.0 }
}

/// The operations for an example of this size, in this order: none, one or two.
pub(super) fn draw(example: Example, height: usize, width: usize) -> impl Iterator<Item = AugmentOp> {
    let draws = example.draws(Stream::ColorAndShape);
    let sub_policy = CIFAR10[(draws.unit(OPERATIONS) * CIFAR10.len() as f64) as usize];
    let ranges = ranges(height, width);
    sub_policy.into_iter().enumerate().filter_map(move |(k, (kind, tenths, step))| {
        let position = OPERATIONS + 1 + 2 * k as u64;
        let applied = draws.unit(position) * 10.0 < f64::from(tenths);
        applied.then(|| ranges.op(kind, step, draws.at(position + 1) & 1 == 1))
    })
}
