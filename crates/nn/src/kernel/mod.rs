//! The arithmetic: everything here works on plain memory, image after image, row after row, pixel after pixel, with the channels
//! of a pixel side by side.
//!
//! Inside the engine the channels of a pixel are padded with zeros to a multiple of 16, except those of the caller's images.

pub(crate) mod convolution;
pub(crate) mod fused_norm;
pub(crate) mod gemm;
pub(crate) mod prefetch;
pub(crate) mod winograd;

/// Channels are stored in multiples of this.
pub(crate) const CHANNELS: usize = 16;

/// A number of channels as it is stored.
pub(crate) fn stored(channels: usize) -> usize {
    channels.next_multiple_of(CHANNELS)
}
