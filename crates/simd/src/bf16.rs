//! bf16: the upper half of an f32, with its range and eight significant bits.
//!
//! Values are rounded to the nearest, ties to even; NaN stays NaN; numbers too small for a normal f32 become zero, as the
//! instructions of AVX512_BF16 have it.

/// A bf16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// Rounds a number.
    #[inline(always)]
    #[must_use]
    pub fn from_f32(x: f32) -> Self {
        Self((round(x.to_bits()) >> 16) as u16)
    }

    /// The number, exactly.
    #[inline(always)]
    #[must_use]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// The bits of an f32 rounded to bf16; the lower half is 0.
#[inline(always)]
pub(crate) fn round(bits: u32) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let rounded = if magnitude > 0x7f80_0000 { bits | 0x0040_0000 } else { rounded };
    flush(rounded & 0xffff_0000, magnitude)
}

/// `bits`, or a zero of the same sign if a number of this magnitude is too small to be normal.
#[inline(always)]
pub(crate) fn flush(bits: u32, magnitude: u32) -> u32 {
    if magnitude < 0x0080_0000 { bits & 0x8000_0000 } else { bits }
}
