//! What criteria do to the logits of a row before the softmax: shifts, factors, margins.

use super::lanes::{Isa, LANES, Simd, dispatch, exp};
use super::softmax::{BLOCK, Place, Row, Sums, Tally, change_of_shift};

/// How a criterion turns logits into what is summed, for rows of one label.
pub(crate) trait Shape {
    /// e^{z'} is multiplied by [`factor`](Self::factor); the sum without factors is kept too.
    const FACTOR: bool = false;
    /// dz'/dz is not 1.
    const SLOPE: bool = false;
    /// The sum of z' is wanted, and targets can be smoothed.
    const SMOOTH: bool = false;
    /// The raw sums need a pass of their own, before z' can be said.
    const APART: bool = false;
    /// softmax(z') is not softmax(z), and the first pass leaves no sum over the raw logits.
    const HIDES_RAW: bool = false;

    /// Told the label's logit before anything else. A shape that adds to or multiplies logits first takes it off all of
    /// them: a softmax does not change by that, and rounding does not depend on how large the logits are.
    fn refer(&mut self, _z: f32) {}
    /// z' of the classes `at..at + LANES`.
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V;
    /// z' of the label.
    fn own(&self, z: f32) -> f64;
    /// Multiplies e^{z'} of the classes `at..at + LANES`; the label's factor is always 1.
    #[inline(always)]
    fn factor<I: Isa>(&self, _at: usize) -> I::V {
        I::splat(1.0)
    }
    /// dz'/dz of the classes `at..at + LANES`.
    #[inline(always)]
    fn slope<I: Isa>(&self, _at: usize) -> I::V {
        I::splat(1.0)
    }
    /// dz'/dz of the label.
    #[inline(always)]
    fn own_slope(&self) -> f32 {
        1.0
    }
    /// Told the raw sums before z' is asked for, where [`APART`](Self::APART) says so.
    fn learn(&mut self, _raw: &Tally) {}
    /// A last word on the sums of the first pass. Classes whose exponential is not what the pass left go to `place.late`.
    fn correct(&mut self, _simd: Simd, _z: &[f32], _label: usize, _place: &mut Place<'_>, _sums: &mut Sums) {}
}

/// z' = z.
pub(crate) struct Plain;

impl Shape for Plain {
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        z
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(z)
    }
}

/// z' = z - z_y, and the sum of z'.
#[derive(Default)]
pub(crate) struct WithMean {
    /// The label's logit.
    base: f32,
}

impl Shape for WithMean {
    const SMOOTH: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        I::sub(z, I::splat(self.base))
    }
    fn refer(&mut self, z: f32) {
        self.base = z;
    }
    fn own(&self, _z: f32) -> f64 {
        0.0
    }
}

/// z'_j = z_j + b_j; minus infinity takes a class out.
pub(crate) struct Bias<'a> {
    bias: &'a [f32],
    own: f32,
    /// The label's logit.
    base: f32,
}

impl<'a> Bias<'a> {
    /// Offsets of all classes, and the label's.
    pub(crate) fn new(bias: &'a [f32], own: f32) -> Self {
        Self { bias, own, base: 0.0 }
    }
}

impl Shape for Bias<'_> {
    const HIDES_RAW: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V {
        I::add(I::sub(z, I::splat(self.base)), I::at(self.bias, at))
    }
    fn refer(&mut self, z: f32) {
        self.base = z;
    }
    fn own(&self, _z: f32) -> f64 {
        self.own.into()
    }
}

/// z'_j = a_j z_j + b_j.
pub(crate) struct Affine<'a> {
    pub(crate) slope: &'a [f32],
    pub(crate) bias: &'a [f32],
    pub(crate) label: usize,
}

impl Shape for Affine<'_> {
    const SLOPE: bool = true;
    const HIDES_RAW: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V {
        I::fma(I::at(self.slope, at), z, I::at(self.bias, at))
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(self.slope[self.label]) * f64::from(z) + f64::from(self.bias[self.label])
    }
    #[inline(always)]
    fn slope<I: Isa>(&self, at: usize) -> I::V {
        I::at(self.slope, at)
    }
    fn own_slope(&self) -> f32 {
        self.slope[self.label]
    }
}

/// z'_j = s (z_j - m [j = y]).
pub(crate) struct Scaled {
    scale: f32,
    margin: f32,
    /// The label's logit.
    base: f32,
}

impl Scaled {
    pub(crate) fn new(scale: f32, margin: f32) -> Self {
        Self { scale, margin, base: 0.0 }
    }
}

impl Shape for Scaled {
    const SLOPE: bool = true;
    const HIDES_RAW: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        I::mul(I::sub(z, I::splat(self.base)), I::splat(self.scale))
    }
    fn refer(&mut self, z: f32) {
        self.base = z;
    }
    fn own(&self, _z: f32) -> f64 {
        -f64::from(self.scale) * f64::from(self.margin)
    }
    #[inline(always)]
    fn slope<I: Isa>(&self, _at: usize) -> I::V {
        I::splat(self.scale)
    }
    fn own_slope(&self) -> f32 {
        self.scale
    }
}

/// e^{z_j} times min(1, r_j / r_y): a relative margin whose logarithm spans at most [`NARROW`].
pub(crate) struct Relative<'a> {
    /// r_j of every class.
    pub(crate) ratio: &'a [f32],
    /// 1 / r_y.
    pub(crate) inverse: f32,
    /// An addition for classes that score above the label, or none.
    pub(crate) boost: Option<Boost>,
}

/// Margins of at most this size (in the logarithm) can multiply e^z: the terms that e^z flushes to 0 are then
/// smaller than any sum by e^(64 - 40).
pub(crate) const NARROW: f64 = 40.0;

/// Adds q max(0, z_j - t), t = max(z_y, lse(z) + ln eps) (the compensation factor of Seesaw).
#[derive(Clone, Copy)]
pub(crate) struct Boost {
    q: f64,
    ln_eps: f64,
    /// t, once the raw sums are known.
    threshold: f64,
}

impl Boost {
    pub(crate) fn new(q: f64, eps: f64) -> Self {
        Self { q, ln_eps: eps.ln(), threshold: f64::INFINITY }
    }

    fn learn(&mut self, raw: &Tally) {
        let lse = f64::from(raw.shift) + raw.sum().ln();
        self.threshold = raw.own.max(lse + self.ln_eps);
    }

    /// For logits from which `base` was taken off.
    #[inline(always)]
    fn of<I: Isa>(&self, z: I::V, base: f32) -> I::V {
        let threshold = (self.threshold - f64::from(base)) as f32;
        let above = I::max(I::sub(z, I::splat(threshold)), I::splat(0.0));
        I::mul(above, I::splat(self.q as f32))
    }
}

impl Relative<'_> {
    fn factor_of(&self, ratio: f32) -> f32 {
        f32::min(ratio * self.inverse, 1.0)
    }
}

impl Shape for Relative<'_> {
    const FACTOR: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        z
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(z)
    }
    #[inline(always)]
    fn factor<I: Isa>(&self, at: usize) -> I::V {
        I::min(I::mul(I::at(self.ratio, at), I::splat(self.inverse)), I::splat(1.0))
    }
    /// Only classes with a score above max(p_y, eps) are boosted, at most 1/eps of them: they are looked for in the
    /// blocks whose largest logit says that they are there.
    fn correct(&mut self, simd: Simd, z: &[f32], label: usize, place: &mut Place<'_>, sums: &mut Sums) {
        let Some(boost) = &mut self.boost else { return };
        boost.learn(&sums.raw);
        let (top, t, q) = (sums.raw.shift, boost.threshold, boost.q);
        if f64::from(top) <= t {
            return;
        }
        // the shift stays, unless the largest boosted logit there can be would overflow relative to it
        let rise = q * (f64::from(top) - t);
        let shift = if rise <= NARROW { top } else { (f64::from(top) + rise) as f32 };
        let mut others = sums.adjusted.others * change_of_shift(top, shift);
        // none may be missed by rounding; one that is not above t is not raised
        classes_above(simd, z, label, (t as f32).next_down(), place);
        let (mut block, mut down) = (usize::MAX, 1.0);
        for (x, &j) in place.late.iter_mut().zip(&*place.late_at) {
            if block != j as usize / BLOCK {
                block = j as usize / BLOCK;
                down = change_of_shift(place.shifts[block], shift);
            }
            others -= f64::from(place.exps[j as usize]) * down;
            let zj = f64::from(*x);
            *x = (zj - f64::from(shift) + q * (zj - t).max(0.0)) as f32;
        }
        exp_all(simd, place.late);
        for (e, &j) in place.late.iter_mut().zip(&*place.late_at) {
            *e *= self.factor_of(self.ratio[j as usize]);
            others += f64::from(*e);
        }
        // what was taken out can differ from what was put in by a rounding
        let others = others.max(0.0);
        sums.adjusted = Tally::new(shift, sums.adjusted.own, others);
    }
}

#[inline(always)]
fn classes_above_kernel<I: Isa>(z: &[f32], label: usize, t: f32, place: &mut Place<'_>) {
    let row = Row::new(z, label);
    for (number, _) in place.maxima.iter().enumerate().filter(|(_, max)| **max > t) {
        let start = number * (BLOCK / LANES);
        for k in start..(start + BLOCK / LANES).min(z.len().div_ceil(LANES)) {
            let mut mask = I::above(I::load(row.at(k)), t);
            while mask != 0 {
                let j = k * LANES + mask.trailing_zeros() as usize;
                place.late_at.push(j as u32);
                place.late.push(z[j]);
                mask &= mask - 1;
            }
        }
    }
}
dispatch!(fn classes_above(z: &[f32], label: usize, t: f32, place: &mut Place<'_>) = classes_above_kernel);

#[inline(always)]
fn exp_all_kernel<I: Isa>(values: &mut [f32]) {
    let (whole, rest) = values.as_chunks_mut::<LANES>();
    for x in whole {
        I::store(exp::<I>(I::load(x)), x);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    rest.copy_from_slice(&I::array(exp::<I>(I::load(&last)))[..rest.len()]);
}
dispatch!(fn exp_all(values: &mut [f32]) = exp_all_kernel);

/// z'_j = z_j + min(most, l_j - l_y) (+ boost): with `most` 0 the same margin as [`Relative`] for spans beyond [`NARROW`].
pub(crate) struct Wide<'a> {
    /// l_j of every class.
    level: &'a [f32],
    /// l_y.
    own: f32,
    most: f32,
    boost: Option<Boost>,
    /// The label's logit.
    base: f32,
}

impl<'a> Wide<'a> {
    pub(crate) fn new(level: &'a [f32], label: usize, most: f32, boost: Option<Boost>) -> Self {
        Self { level, own: level[label], most, boost, base: 0.0 }
    }
}

impl Shape for Wide<'_> {
    const APART: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V {
        let margin = I::min(I::sub(I::at(self.level, at), I::splat(self.own)), I::splat(self.most));
        let z = I::sub(z, I::splat(self.base));
        let z = match self.boost {
            Some(boost) => I::add(z, boost.of::<I>(z, self.base)),
            None => z,
        };
        I::add(z, margin)
    }
    fn refer(&mut self, z: f32) {
        self.base = z;
    }
    fn own(&self, _z: f32) -> f64 {
        0.0
    }
    fn learn(&mut self, raw: &Tally) {
        if let Some(boost) = &mut self.boost {
            boost.learn(raw);
        }
    }
}
