//! The fused row kernel: cross-entropy of adjusted logits and its gradient in two passes over a row.
//!
//! Every softmax criterion is cross-entropy of z'_j = logit(z_j), optionally with e^{z'_j} multiplied by a factor f_j
//! (a margin), for a label y. The first pass ([`sums`]) leaves the exponentials where the gradient will be and gives the
//! sums that the loss needs; the second ([`gradient`]) scales them to dL/dz. What differs between criteria is a
//! [`Shape`].
//!
//! Three things keep the numbers right where it hurts:
//! - the label's term is kept apart from the others, so that 1 - p_y = others / (others + own) has no cancellation
//!   when p_y -> 1;
//! - exponentials are taken relative to a logit of the row (the largest one so far, block by block), never relative to a
//!   rounded log-sum-exp;
//! - a block of 512 is summed in f32 and the blocks in f64.

use std::ops::Range;

use super::lanes::{Isa, LANES, Lanes, Simd, dispatch, exp, largest, total};

/// Elements between two transfers from f32 to f64 sums.
pub(crate) const BLOCK: usize = 512;

/// Stands for "no class here": smaller than every logit, and finite.
const ABSENT: f32 = f32::MIN;

/// How a criterion turns logits into what is summed, for rows of one label.
pub(crate) trait Shape {
    /// e^{z'} is multiplied by [`factor`](Self::factor); the sum without factors is kept too.
    const FACTOR: bool = false;
    /// dz'/dz is not 1.
    const SLOPE: bool = false;
    /// The sum of the raw logits is wanted, and targets can be smoothed.
    const SMOOTH: bool = false;
    /// The raw sums need a pass of their own, before z' can be said.
    const APART: bool = false;

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

/// z' = z, and the sum of the logits.
pub(crate) struct WithMean;

impl Shape for WithMean {
    const SMOOTH: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        z
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(z)
    }
}

/// z'_j = z_j + b_j; minus infinity takes a class out.
pub(crate) struct Bias<'a> {
    pub(crate) bias: &'a [f32],
    pub(crate) own: f32,
}

impl Shape for Bias<'_> {
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V {
        I::add(z, I::at(self.bias, at))
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(z) + f64::from(self.own)
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
    pub(crate) scale: f32,
    pub(crate) margin: f32,
}

impl Shape for Scaled {
    const SLOPE: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, _at: usize) -> I::V {
        I::mul(z, I::splat(self.scale))
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(self.scale) * (f64::from(z) - f64::from(self.margin))
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
    pub(crate) q: f32,
    pub(crate) ln_eps: f64,
    /// t, once the raw sums are known.
    pub(crate) threshold: f32,
}

impl Boost {
    fn learn(&mut self, raw: &Tally) {
        let lse = f64::from(raw.shift) + raw.sum().ln();
        self.threshold = raw.own.max(lse + self.ln_eps) as f32;
    }

    #[inline(always)]
    fn of<I: Isa>(&self, z: I::V) -> I::V {
        let above = I::max(I::sub(z, I::splat(self.threshold)), I::splat(0.0));
        I::mul(above, I::splat(self.q))
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
        if top <= t {
            return;
        }
        // the shift stays, unless the largest boosted logit there can be would overflow relative to it
        let rise = q * (top - t);
        let shift = if f64::from(rise) <= NARROW { top } else { top + rise };
        let mut others = sums.adjusted.others * change_of_shift(top, shift);
        classes_above(simd, z, label, t, place);
        let (mut block, mut down) = (usize::MAX, 1.0);
        for (x, &j) in place.late.iter_mut().zip(&*place.late_at) {
            if block != j as usize / BLOCK {
                block = j as usize / BLOCK;
                down = change_of_shift(place.shifts[block], shift);
            }
            others -= f64::from(place.exps[j as usize]) * down;
            let zj = f64::from(*x);
            *x = (zj - f64::from(shift) + f64::from(q) * (zj - f64::from(t))) as f32;
        }
        exp_all(simd, place.late);
        for (e, &j) in place.late.iter_mut().zip(&*place.late_at) {
            *e *= self.factor_of(self.ratio[j as usize]);
            others += f64::from(*e);
        }
        // what was taken out can differ from what was put in by a rounding
        let others = others.max(0.0);
        sums.adjusted =
            if shift == top { Tally { others, ..sums.adjusted } } else { Tally::new(shift, sums.adjusted.own, others) };
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

/// z'_j = z_j + min(0, l_j - l_y) (+ boost): the same margin as [`Relative`] for spans beyond [`NARROW`].
pub(crate) struct Wide<'a> {
    /// l_j of every class.
    pub(crate) level: &'a [f32],
    /// l_y.
    pub(crate) own: f32,
    pub(crate) boost: Option<Boost>,
}

impl Shape for Wide<'_> {
    const APART: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: I::V, at: usize) -> I::V {
        let margin = I::min(I::sub(I::at(self.level, at), I::splat(self.own)), I::splat(0.0));
        let z = match self.boost {
            Some(boost) => I::add(z, boost.of::<I>(z)),
            None => z,
        };
        I::add(z, margin)
    }
    fn own(&self, z: f32) -> f64 {
        f64::from(z)
    }
    fn learn(&mut self, raw: &Tally) {
        if let Some(boost) = &mut self.boost {
            boost.learn(raw);
        }
    }
}

/// Sum over a row, the label kept apart: e^{own - shift} + others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// What the exponents are relative to.
    pub(crate) shift: f32,
    /// z' of the label.
    pub(crate) own: f64,
    /// e^{own - shift}.
    own_exp: f64,
    /// Sum of e^{z'_j - shift} over the other classes.
    pub(crate) others: f64,
}

/// e^{from - to}.
fn change_of_shift(from: f32, to: f32) -> f64 {
    if from == to { 1.0 } else { (f64::from(from) - f64::from(to)).exp() }
}

impl Tally {
    fn new(shift: f32, own: f64, others: f64) -> Self {
        Self { shift, own, own_exp: (own - f64::from(shift)).exp(), others }
    }

    /// The whole sum, e^{lse - shift}.
    pub(crate) fn sum(&self) -> f64 {
        self.own_exp + self.others
    }

    /// 1 - p_y, without cancellation.
    pub(crate) fn miss(&self) -> f64 {
        self.others / self.sum()
    }

    /// -log p_y.
    pub(crate) fn cross_entropy(&self) -> f64 {
        let ratio = self.others / self.own_exp;
        if ratio < 0.1 {
            ratio.ln_1p()
        } else if self.own_exp > 1e-30 {
            // the same, and faster
            (1.0 + ratio).ln()
        } else {
            self.others.ln() + (f64::from(self.shift) - self.own)
        }
    }
}

/// What the first pass finds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Of the logits as they came.
    pub(crate) raw: Tally,
    /// Of z' and its factors.
    pub(crate) adjusted: Tally,
    /// Sum of the logits (with `SMOOTH`).
    pub(crate) logits: f64,
    /// No logit was infinite or NaN, and no z' overflowed.
    pub(crate) finite: bool,
}

/// What the second pass writes: scale * (softmax(z') - target), the target 1 - smooth at the label + smooth / C
/// everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slope {
    pub(crate) scale: f64,
    pub(crate) smooth: f64,
}

/// Where a row's first pass writes.
pub(crate) struct Place<'a> {
    /// The largest z' of every block.
    pub(crate) maxima: &'a mut [f32],
    /// What the exponentials of every block are relative to.
    pub(crate) shifts: &'a mut [f32],
    /// The exponentials; the label's place holds 0.
    pub(crate) exps: &'a mut [f32],
    /// Exponentials that take the place of what is in `exps`, relative to the row's shift.
    pub(crate) late: &'a mut Vec<f32>,
    /// Their classes.
    pub(crate) late_at: &'a mut Vec<u32>,
}

/// A row in whole lanes, the label taken out.
struct Row<'a> {
    whole: &'a [Lanes],
    /// What lies behind the last whole lanes, padded.
    rest: Lanes,
    label: usize,
    /// The lanes that held the label.
    around: Lanes,
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn new(z: &'a [f32], label: usize) -> Self {
        let (whole, tail) = z.as_chunks::<LANES>();
        let mut rest = [ABSENT; LANES];
        rest[..tail.len()].copy_from_slice(tail);
        let mut around = *whole.get(label / LANES).unwrap_or(&rest);
        around[label % LANES] = ABSENT;
        Self { whole, rest, label: label / LANES, around }
    }

    /// The k-th lanes.
    #[inline(always)]
    fn at(&self, k: usize) -> &Lanes {
        if k == self.label { &self.around } else { self.whole.get(k).unwrap_or(&self.rest) }
    }

    /// Some of the lanes in up to four runs, each with the number of its first lanes: before the label, around it, behind
    /// it, and the row's end. Runs are plain slices, which loops go through without looking left and right.
    #[inline(always)]
    fn runs(&self, lanes: Range<usize>) -> [(usize, &[Lanes]); 4] {
        let end = lanes.end.min(self.whole.len());
        let label = self.label.clamp(lanes.start, end);
        let around = label..(label + usize::from(label == self.label)).min(end);
        let rest = if lanes.end > end { std::slice::from_ref(self.at(end)) } else { &[] };
        let own = if around.is_empty() { &[][..] } else { std::slice::from_ref(&self.around) };
        [
            (lanes.start, &self.whole[lanes.start..label]),
            (label, own),
            (around.end, &self.whole[around.end..end]),
            (end, rest),
        ]
    }
}

/// The largest z' of a run of lanes from number `k` on; `odd` becomes NaN if a logit is not finite.
#[inline(always)]
fn top_of<I: Isa, S: Shape>(shape: &S, mut k: usize, run: &[Lanes], top: &mut I::V, odd: &mut I::V) {
    // four at a time, as one comparison must wait for the one before
    const AT_ONCE: usize = 4;
    let mut tops = [*top; AT_ONCE];
    let mut odds = [*odd; AT_ONCE];
    let (fours, rest) = run.as_chunks::<AT_ONCE>();
    for four in fours {
        for i in 0..AT_ONCE {
            let z = I::load(&four[i]);
            tops[i] = I::max(shape.logit::<I>(z, (k + i) * LANES), tops[i]);
            // z * 0 is NaN for infinite and NaN z, and stays so
            odds[i] = I::fma(z, I::splat(0.0), odds[i]);
        }
        k += AT_ONCE;
    }
    for (i, z) in rest.iter().enumerate() {
        let z = I::load(z);
        tops[0] = I::max(shape.logit::<I>(z, (k + i) * LANES), tops[0]);
        odds[0] = I::fma(z, I::splat(0.0), odds[0]);
    }
    *top = I::max(I::max(tops[0], tops[1]), I::max(tops[2], tops[3]));
    *odd = I::add(I::add(odds[0], odds[1]), I::add(odds[2], odds[3]));
}

#[inline(always)]
fn sums_kernel<I: Isa, S: Shape>(shape: &S, z: &[f32], label: usize, place: &mut Place<'_>) -> Sums {
    let row = Row::new(z, label);
    let own = shape.own(z[label]);
    let mut shift = own as f32;
    let (mut adjusted, mut raw, mut logits) = (0f64, 0f64, f64::from(z[label]));
    let mut odd = I::splat(z[label] * 0.0);
    for (number, exps) in place.exps.chunks_mut(BLOCK).enumerate() {
        let start = number * (BLOCK / LANES);
        let end = start + exps.len().div_ceil(LANES);
        let runs = row.runs(start..end);
        let mut top = I::splat(f32::NEG_INFINITY);
        for (k, run) in runs {
            top_of::<I, S>(shape, k, run, &mut top, &mut odd);
        }
        let top = largest::<I>(top);
        if top > shift {
            let down = change_of_shift(shift, top);
            (adjusted, raw, shift) = (adjusted * down, raw * down, top);
        }
        place.maxima[number] = top;
        place.shifts[number] = shift;
        let mut block_sums = [I::splat(0.0); 3];
        let (outs, rest) = exps.as_chunks_mut::<LANES>();
        for (first, run) in runs {
            let outs = outs.get_mut(first - start..).unwrap_or_default();
            for ((k, z), out) in run.iter().enumerate().zip(outs) {
                I::store(exps_of::<I, S>(shape, z, (first + k) * LANES, shift, &mut block_sums), out);
            }
        }
        if !rest.is_empty() {
            let k = end - 1;
            let e = I::array(exps_of::<I, S>(shape, row.at(k), k * LANES, shift, &mut block_sums));
            rest.copy_from_slice(&e[..rest.len()]);
        }
        adjusted += total::<I>(block_sums[0]);
        if S::FACTOR {
            raw += total::<I>(block_sums[1]);
        }
        if S::SMOOTH {
            logits += total::<I>(block_sums[2]);
        }
    }
    let adjusted = Tally::new(shift, own, adjusted);
    let raw = if S::FACTOR { Tally { others: raw, ..adjusted } } else { adjusted };
    let finite = shift.is_finite() && (own as f32).is_finite() && I::array(odd).iter().all(|x| *x == 0.0);
    Sums { raw, adjusted, logits, finite }
}

/// e^{z' - shift} times its factor, added to the sums: adjusted, raw and of the logits.
#[inline(always)]
fn exps_of<I: Isa, S: Shape>(shape: &S, z: &Lanes, at: usize, shift: f32, sums: &mut [I::V; 3]) -> I::V {
    let z = I::load(z);
    let mut e = exp::<I>(I::sub(shape.logit::<I>(z, at), I::splat(shift)));
    if S::FACTOR {
        sums[1] = I::add(sums[1], e);
        e = I::mul(e, shape.factor::<I>(at));
    }
    if S::SMOOTH {
        // the label and what lies behind the row's end are as good as minus infinity
        let known = I::array(z).map(|z| if z > ABSENT { z } else { 0.0 });
        sums[2] = I::add(sums[2], I::load(&known));
    }
    sums[0] = I::add(sums[0], e);
    e
}
dispatch!(fn sums_pass<S: Shape>(shape: &S, z: &[f32], label: usize, place: &mut Place<'_>) -> Sums = sums_kernel);

/// The first pass: the sums of a row, and its exponentials.
pub(crate) fn sums<S: Shape>(simd: Simd, shape: &mut S, z: &[f32], label: usize, place: &mut Place<'_>) -> Sums {
    let mut sums = if S::APART {
        let raw = sums_pass(simd, &Plain, z, label, place).raw;
        shape.learn(&raw);
        Sums { raw, ..sums_pass(simd, shape, z, label, place) }
    } else {
        sums_pass(simd, shape, z, label, place)
    };
    place.late.clear();
    place.late_at.clear();
    if sums.finite {
        shape.correct(simd, z, label, place, &mut sums);
        sums.finite = sums.adjusted.shift.is_finite();
    }
    sums
}

#[inline(always)]
fn scale_kernel<I: Isa, S: Shape>(shape: &S, sums: &Sums, scale: f64, uniform: f32, place: &mut Place<'_>) {
    for (number, (block, shift)) in place.exps.chunks_mut(BLOCK).zip(&*place.shifts).enumerate() {
        let scale = (scale * change_of_shift(*shift, sums.adjusted.shift)) as f32;
        let start = number * BLOCK;
        let (outs, rest) = block.as_chunks_mut::<LANES>();
        let full = outs.len();
        for (k, out) in outs.iter_mut().enumerate() {
            I::store(scaled::<I, S>(shape, out, start + k * LANES, scale, uniform), out);
        }
        if !rest.is_empty() {
            let mut e = [0.0; LANES];
            e[..rest.len()].copy_from_slice(rest);
            let g = I::array(scaled::<I, S>(shape, &e, start + full * LANES, scale, uniform));
            rest.copy_from_slice(&g[..rest.len()]);
        }
    }
}

#[inline(always)]
fn scaled<I: Isa, S: Shape>(shape: &S, e: &Lanes, at: usize, scale: f32, uniform: f32) -> I::V {
    let mut g = I::mul(I::load(e), I::splat(scale));
    if S::SMOOTH {
        g = I::sub(g, I::splat(uniform));
    }
    if S::SLOPE {
        g = I::mul(g, shape.slope::<I>(at));
    }
    g
}
dispatch!(fn scale_pass<S: Shape>(shape: &S, sums: &Sums, scale: f64, uniform: f32, place: &mut Place<'_>) = scale_kernel);

/// The second pass: from the exponentials in `place` to the gradient there.
pub(crate) fn gradient<S: Shape>(
    simd: Simd,
    shape: &S,
    z: &[f32],
    label: usize,
    sums: &Sums,
    slope: Slope,
    place: &mut Place<'_>,
) {
    let tally = &sums.adjusted;
    let scale = slope.scale / tally.sum();
    let uniform = slope.scale * slope.smooth / z.len() as f64;
    scale_pass(simd, shape, sums, scale, uniform as f32, place);
    for (e, &j) in place.late.iter().zip(&*place.late_at) {
        place.exps[j as usize] = (f64::from(*e) * scale) as f32;
    }
    // the label's own, without cancellation
    let own = slope.scale * (slope.smooth - tally.miss()) - uniform;
    place.exps[label] = (own * f64::from(shape.own_slope())) as f32;
}
