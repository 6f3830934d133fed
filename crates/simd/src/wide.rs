//! Several registers as one vector, so that a sum has the same order at every level.

use crate::{Simd, SimdLevel};

/// N registers of a level as one vector.
#[derive(Clone, Copy)]
pub struct Wide<S, const N: usize>(pub S);

/// Functions of [`Simd`] by register.
macro_rules! by_register {
    ($($name:ident($($arg:ident),*) $(with $scalar:ident)?;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self::V,)* $($scalar: f32)?) -> Self::V {
            let mut out = [self.0.splat(0.0); N];
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.0.$name($($arg[i],)* $($scalar)?);
            }
            out
        }
    )*};
}

// SAFETY: a value holds a token of its level, and a vector is an array of the level's vectors.
unsafe impl<S: Simd, const N: usize> Simd for Wide<S, N> {
    type V = [S::V; N];
    const REGISTERS: usize = S::REGISTERS / N;

    #[inline(always)]
    fn level(self) -> SimdLevel {
        self.0.level()
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [self.0.splat(x); N]
    }
    by_register! {
        add(a, b); sub(a, b); mul(a, b); fma(a, b, c); fnma(a, b, c);
        max(a, b); min(a, b); where_positive(by, v);
        ldexp_above(p, n, x) with limit;
    }
    #[inline(always)]
    fn above(self, v: Self::V, limit: f32) -> u16 {
        let mut mask = 0;
        for (i, v) in v.iter().enumerate() {
            mask |= self.0.above(*v, limit) << (i * S::WIDTH);
        }
        mask
    }
}
