//! From a magnitude in steps to an operation: what RandAugment, TrivialAugment and AutoAugment share.

use super::ops::AugmentOp;

/// A kind of operation that policies choose from. A magnitude turns it into an [`AugmentOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Saturation,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

impl OpKind {
    /// The fourteen kinds that RandAugment and TrivialAugment draw from, in torchvision's order.
    pub(super) const DRAWN: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Saturation,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];
}

/// `largest * step / steps` to the bit as PyTorch's `linspace` rounds it, because a truncated color depends on it.
fn linspace(largest: f32, step: u8, steps: u8) -> f32 {
    let width = largest / f32::from(steps);
    // the upper half is counted from above
    if step < steps.div_ceil(2) { width * f32::from(step) } else { (-width).mul_add(f32::from(steps - step), largest) }
}

/// The strongest operation of each kind. Weaker ones are proportional to their step.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpRanges {
    /// Steps from no effect to the strongest operation.
    pub(super) steps: u8,
    pub(super) shear: f32,
    /// Pixels to the right and downwards.
    pub(super) translate: [f32; 2],
    /// Degrees.
    pub(super) rotate: f32,
    /// Change of the factor of brightness, saturation, contrast and sharpness.
    pub(super) factor: f32,
    /// Bits that are dropped.
    pub(super) posterize: f32,
}

impl OpRanges {
    /// The operation of a kind at a step; some kinds have no sign, and some no magnitude.
    pub(super) fn op(&self, kind: OpKind, step: u8, negative: bool) -> AugmentOp {
        let magnitude = |largest: f32| linspace(largest, step, self.steps);
        let signed = |largest: f32| if negative { -magnitude(largest) } else { magnitude(largest) };
        // truncated to whole pixels, as in torchvision
        let pixels = |largest: f32| signed(largest) as i32;
        match kind {
            OpKind::Identity => AugmentOp::Identity,
            OpKind::ShearX => AugmentOp::ShearX(signed(self.shear)),
            OpKind::ShearY => AugmentOp::ShearY(signed(self.shear)),
            OpKind::TranslateX => AugmentOp::TranslateX(pixels(self.translate[0])),
            OpKind::TranslateY => AugmentOp::TranslateY(pixels(self.translate[1])),
            OpKind::Rotate => AugmentOp::Rotate(signed(self.rotate)),
            OpKind::Brightness => AugmentOp::Brightness(1.0 + signed(self.factor)),
            OpKind::Saturation => AugmentOp::Saturation(1.0 + signed(self.factor)),
            OpKind::Contrast => AugmentOp::Contrast(1.0 + signed(self.factor)),
            OpKind::Sharpness => AugmentOp::Sharpness(1.0 + signed(self.factor)),
            // halves are rounded to even, as in torchvision
            OpKind::Posterize => AugmentOp::Posterize(
                8 - (self.posterize * f32::from(step) / f32::from(self.steps)).round_ties_even() as u8,
            ),
            // levels are integers, so the threshold is rounded up
            OpKind::Solarize => {
                let (rest, steps) = (u16::from(self.steps - step), u16::from(self.steps));
                AugmentOp::Solarize((255 * rest).div_ceil(steps))
            }
            OpKind::AutoContrast => AugmentOp::AutoContrast,
            OpKind::Equalize => AugmentOp::Equalize,
            OpKind::Invert => AugmentOp::Solarize(0),
        }
    }
}

#[cfg(test)]
mod tests;
