//! The portable level: plain Rust, from which the compiler makes 128-bit vectors (SSE2, NEON).

use crate::bf16::{flush, round};
use crate::{Bf16, Portable, Simd, SimdLevel};

/// Whether the portable level fuses multiply-add: only where the target's baseline has the instruction, because
/// `mul_add` is a slow library call elsewhere.
pub const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

type V = [f32; 4];

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> V {
    [f(0), f(1), f(2), f(3)]
}

#[inline(always)]
fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// c plus the products of two pairs of bf16 numbers.
#[inline(always)]
fn dot(a: f32, b: f32, c: f32) -> f32 {
    let [a, b] = [a.to_bits(), b.to_bits()];
    let flushed = |sum: f32| f32::from_bits(flush(sum.to_bits(), sum.abs().to_bits()));
    let upper = flushed(fused(f32::from_bits(a & 0xffff_0000), f32::from_bits(b & 0xffff_0000), c));
    flushed(fused(f32::from_bits(a << 16), f32::from_bits(b << 16), upper))
}

/// c plus the product of two bf16 numbers, rounded once.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    // a product of normal numbers is exact unless it overflows; then both factors are at least 1, and scaling is exact
    const SMALL: f32 = 1.0 / (1u64 << 32) as f32;
    const LARGE: f32 = (1u64 << 32) as f32;
    let product = a * b;
    if product.is_infinite() { ((a * SMALL) * b + c * SMALL) * LARGE } else { product + c }
}

/// Functions of [`Simd`] by lane.
macro_rules! lanewise {
    ($($name:ident($($arg:ident: $type:ty),*) = |$i:ident| $lane:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> V {
            each(|$i| $lane)
        }
    )*};
}

// SAFETY: every CPU of the target has the instructions, and a vector is an array of f32.
unsafe impl Simd for Portable {
    type V = V;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn level(self) -> SimdLevel {
        SimdLevel::Portable
    }
    lanewise! {
        splat(x: f32) = |_i| x;
        add(a: V, b: V) = |i| a[i] + b[i];
        sub(a: V, b: V) = |i| a[i] - b[i];
        mul(a: V, b: V) = |i| a[i] * b[i];
        fma(a: V, b: V, c: V) = |i| mul_add(a[i], b[i], c[i]);
        fnma(a: V, b: V, c: V) = |i| mul_add(-a[i], b[i], c[i]);
        max(a: V, b: V) = |i| if a[i] > b[i] { a[i] } else { b[i] };
        min(a: V, b: V) = |i| if a[i] < b[i] { a[i] } else { b[i] };
        where_positive(by: V, v: V) = |i| if by[i] > 0.0 { v[i] } else { 0.0 };
        ldexp_above(p: V, n: V, x: V, limit: f32) = |i| {
            let raised = p[i].to_bits().wrapping_add(n[i].to_bits() << 23);
            f32::from_bits(if x[i] > limit { raised } else { 0 })
        };
        pair_bf16(low: V, high: V) = |i| f32::from_bits(round(low[i].to_bits()) >> 16 | round(high[i].to_bits()));
        dot_bf16(a: V, b: V, c: V) = |i| dot(a[i], b[i], c[i]);
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const Bf16) -> V {
        // SAFETY: by the contract, there are four values.
        each(|i| unsafe { *from.add(i) }.to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16(self, into: *mut Bf16, v: V) {
        for (i, x) in v.into_iter().enumerate() {
            // SAFETY: by the contract, there is room for four values.
            unsafe { *into.add(i) = Bf16::from_f32(x) };
        }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, low: *const Bf16, high: *const Bf16) -> V {
        // SAFETY: by the contract, there are four values at both places.
        let pair = |i: usize| unsafe { u32::from((*low.add(i)).0) | u32::from((*high.add(i)).0) << 16 };
        each(|i| f32::from_bits(pair(i)))
    }
    #[inline(always)]
    fn above(self, v: V, limit: f32) -> u16 {
        let bit = |i: usize| u16::from(v[i] > limit) << i;
        bit(0) | bit(1) | bit(2) | bit(3)
    }
}
