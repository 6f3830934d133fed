//! What a pixel of a batch is: a normalized `f32`, or its level as a `u8`, to be normalized where the network runs.

use super::normalize::Normalize;

mod private {
    /// Batches have two types of pixels, and no others.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u8 {}
}

/// A pixel of a batch. `f32` is normalized. `u8` is the level in 0..=255 after all augmentation: its normalized value is that
/// of the `f32` batch, up to the rounding of a resized or blended pixel to 8 bits.
pub trait PixelValue: private::Sealed + Copy + Default + Send + Sync + 'static {
    /// Converts the levels of a channel.
    fn from_level(normalize: &Normalize, channel: usize) -> impl Fn(u8) -> Self;

    /// Converts resized pixels, which are between two levels, by channel.
    fn from_resized(normalize: &Normalize) -> impl Fn(usize, f32) -> Self;

    /// Black, the color of padding.
    fn black(normalize: &Normalize, channel: usize) -> Self;

    /// The mean of a channel, the color of cutout.
    fn mean(normalize: &Normalize, channel: usize) -> Self;

    /// Converts an image of 8 bits, channel after channel of `plane` pixels.
    fn fill(normalize: &Normalize, plane: usize, from: &[u8], to: &mut [Self]);

    /// A mixture of two pixels; `share` is that of the first.
    fn blend(self, other: Self, share: f32) -> Self;

    /// The values themselves, if they can be features.
    fn as_features(values: &mut [Self]) -> Option<&mut [f32]>;
}

impl PixelValue for f32 {
    #[inline(always)]
    fn from_level(normalize: &Normalize, channel: usize) -> impl Fn(u8) -> Self {
        let (scale, offset) = (normalize.scale[channel], normalize.offset[channel]);
        move |level| Self::from(level) * scale + offset
    }

    #[inline(always)]
    fn from_resized(normalize: &Normalize) -> impl Fn(usize, f32) -> Self {
        let Normalize { scale, offset } = normalize;
        move |channel, x| x * scale[channel] + offset[channel]
    }

    fn black(normalize: &Normalize, channel: usize) -> Self {
        normalize.offset[channel]
    }

    fn mean(_: &Normalize, _: usize) -> Self {
        0.0
    }

    fn fill(normalize: &Normalize, plane: usize, from: &[u8], to: &mut [Self]) {
        normalize.fill(plane, from, to);
    }

    #[inline(always)]
    fn blend(self, other: Self, share: f32) -> Self {
        share * self + (1.0 - share) * other
    }

    fn as_features(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
}

impl PixelValue for u8 {
    #[inline(always)]
    fn from_level(_: &Normalize, _: usize) -> impl Fn(u8) -> Self {
        |level| level
    }

    #[inline(always)]
    fn from_resized(_: &Normalize) -> impl Fn(usize, f32) -> Self {
        |_, x| (x + 0.5) as Self
    }

    fn black(_: &Normalize, _: usize) -> Self {
        0
    }

    fn mean(normalize: &Normalize, channel: usize) -> Self {
        normalize.level(channel, 0.0)
    }

    fn fill(_: &Normalize, _: usize, from: &[u8], to: &mut [Self]) {
        to.copy_from_slice(from);
    }

    #[inline(always)]
    fn blend(self, other: Self, share: f32) -> Self {
        (share * f32::from(self) + (1.0 - share) * f32::from(other) + 0.5) as Self
    }

    fn as_features(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}
