//! One layer of SIMD for all kernels.
//!
//! A kernel is a function that is generic over a [`Simd`] token, `#[inline(always)]` and called through [`dispatch!`],
//! which compiles it once per level inside a function that has the level's instructions. A token proves that the CPU
//! has its level: it can only be made by detection, so that the arithmetic of [`Simd`] is safe to call. Kernels use no
//! closures around vectors, because a compiler may leave a closure outside the function that has the instructions.
//!
//! Every lane is computed in the same order at all levels, so that all levels with fused multiply-add give the same
//! bits.

mod bf16;
mod dispatch;
mod level;
mod portable;
mod prefetch;
mod tiles;
mod vector;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use bf16::Bf16;
pub use level::{Avx2, Avx512, Avx512Bf16, Portable, SimdLevel};
pub use portable::FUSED;
pub use prefetch::{finish_streaming, prefetch, prefetch_line};
pub use tiles::{Amx, AmxTiles, TILE, TILE_BYTES, Tiles, VectorTiles};
pub use vector::Simd;
pub use wide::Wide;
