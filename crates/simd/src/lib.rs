//! Which vector instructions this CPU has.

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimdLevel {
    /// What every CPU of the target has.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, DQ, BW and VL.
    Avx512,
}

impl Default for SimdLevel {
    /// The best level of this CPU.
    fn default() -> Self {
        Self::best()
    }
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
                    return &[Self::Portable, Self::Avx2, Self::Avx512];
                }
                return &[Self::Portable, Self::Avx2];
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
