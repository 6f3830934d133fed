//! The arithmetic of the CPU engine, on plain memory: image after image, row after row, pixel after pixel, with the
//! channels of a pixel side by side.
//!
//! Inside the engine the channels of a pixel are padded with zeros to a multiple of 16, except those of the caller's
//! images.
//!
//! In the contracts of the unsafe functions, a pointer is *valid for n values* if n f32 from it on belong to one
//! allocation, are initialized where they are read, and are used by no other thread meanwhile where they are written.

pub(crate) mod convolution;
pub(crate) mod fused_norm;
pub(crate) mod gemm;
pub(crate) mod prefetch;
pub(crate) mod rounding;
pub(crate) mod tile_product;
pub(crate) mod value;

/// Channels are stored in multiples of this.
pub(crate) const CHANNELS: usize = 16;

/// The number of channels that are stored for `channels`.
pub(crate) fn stored(channels: usize) -> usize {
    channels.next_multiple_of(CHANNELS)
}
