//! Several registers as one vector, so that a sum has the same order at every level.

use crate::{Bf16, Simd, SimdLevel};

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
    const HAS_DOT_BF16: bool = S::HAS_DOT_BF16;

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
        pair_bf16(low, high); dot_bf16(a, b, c);
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const Bf16) -> Self::V {
        // SAFETY: by the contract, there are the values of both halves.
        unsafe { [self.0.load_bf16(from), self.0.load_bf16(from.add(S::WIDTH))] }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, into: *mut Bf16, v: Self::V) {
        // SAFETY: by the contract, there is room for both halves.
        unsafe {
            self.0.store_bf16(into, v[0]);
            self.0.store_bf16(into.add(S::WIDTH), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, low: *const Bf16, high: *const Bf16) -> Self::V {
        // SAFETY: by the contract, there are the values of both halves at both places.
        unsafe { [self.0.load_pairs(low, high), self.0.load_pairs(low.add(S::WIDTH), high.add(S::WIDTH))] }
    }
    #[inline(always)]
    fn above(self, v: Self::V, limit: f32) -> u16 {
        self.0.above(v[0], limit) | self.0.above(v[1], limit) << S::WIDTH
    }
}
