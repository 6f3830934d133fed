//! Several registers as one vector, so that a sum has the same order at every level.

use crate::{Simd, SimdLevel};

/// Two vectors of `S` as one.
#[derive(Clone, Copy)]
pub struct Wide<S>(pub S);

/// Functions of [`Simd`] by half. Constant indices, unlike loops, keep the halves in registers.
macro_rules! by_half {
    ($($name:ident($($arg:ident),*) $(with $scalar:ident)?;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self::V,)* $($scalar: f32)?) -> Self::V {
            [self.0.$name($($arg[0],)* $($scalar)?), self.0.$name($($arg[1],)* $($scalar)?)]
        }
    )*};
}

// SAFETY: a value holds a token of its level, and a vector is an array of the level's vectors.
unsafe impl<S: Simd> Simd for Wide<S> {
    type V = [S::V; 2];
    const REGISTERS: usize = S::REGISTERS / 2;

    #[inline(always)]
    fn level(self) -> SimdLevel {
        self.0.level()
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [self.0.splat(x); 2]
    }
    by_half! {
        add(a, b); sub(a, b); mul(a, b); fma(a, b, c); fnma(a, b, c);
        max(a, b); min(a, b); where_positive(by, v);
        ldexp_above(p, n, x) with limit;
    }
    #[inline(always)]
    fn above(self, v: Self::V, limit: f32) -> u16 {
        self.0.above(v[0], limit) | self.0.above(v[1], limit) << S::WIDTH
    }
}
