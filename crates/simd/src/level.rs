//! The levels of instructions, and the tokens that prove them.

use std::fmt;

/// The level that every CPU of the target has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Portable;

/// Proof that this CPU has AVX2 and FMA. Only [`SimdLevel::available`] makes one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that this CPU has AVX-512 F, DQ, BW and VL, and AVX2 and FMA. Only [`SimdLevel::available`] makes one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Avx512(());

/// Proof that this CPU has what [`Avx512`] proves, and AVX512_BF16. Only [`SimdLevel::available`] makes one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Avx512Bf16(());

impl Avx512Bf16 {
    /// The level without bf16.
    #[must_use]
    pub fn avx512(self) -> Avx512 {
        Avx512(())
    }
}

/// A level of instructions that this CPU has, with its proof.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SimdLevel {
    /// What every CPU of the target has.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2(Avx2),
    /// x86-64 with AVX-512 F, DQ, BW and VL.
    Avx512(Avx512),
    /// The same with instructions for bf16.
    Avx512Bf16(Avx512Bf16),
}

impl SimdLevel {
    /// The levels this CPU has, the best one last.
    #[must_use]
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") {
                if has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl") {
                    if has!("avx512bf16") {
                        return &[
                            Self::Portable,
                            Self::Avx2(Avx2(())),
                            Self::Avx512(Avx512(())),
                            Self::Avx512Bf16(Avx512Bf16(())),
                        ];
                    }
                    return &[Self::Portable, Self::Avx2(Avx2(())), Self::Avx512(Avx512(()))];
                }
                return &[Self::Portable, Self::Avx2(Avx2(()))];
            }
        }
        &[Self::Portable]
    }

    /// The best level of this CPU.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }
}

impl Default for SimdLevel {
    /// The best level of this CPU.
    fn default() -> Self {
        Self::best()
    }
}

impl fmt::Debug for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "Portable",
            Self::Avx2(_) => "Avx2",
            Self::Avx512(_) => "Avx512",
            Self::Avx512Bf16(_) => "Avx512Bf16",
        })
    }
}
