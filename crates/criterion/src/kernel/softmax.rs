//! The fused row kernel: cross-entropy of adjusted logits and its gradient in two passes over a row.
//!
//! Every softmax criterion is cross-entropy of z'_j = logit(z_j), optionally with e^{z'_j} multiplied by a factor f_j
//! (a margin), for a label y. The first pass ([`sums`]) gives the sums that the loss needs, the second ([`gradient`])
//! writes dL/dz. What differs between criteria is a [`Shape`].
//!
//! Three things keep the numbers right where it hurts:
//! - the label's term is kept apart from the others, so that 1 - p_y = others / (others + own) has no cancellation
//!   when p_y -> 1;
//! - exponentials are taken relative to a logit of the row, never relative to a rounded log-sum-exp;
//! - a block of 512 is summed in f32 and the blocks in f64.

use super::lanes::{Isa, LANES, Lanes, Simd, add, dispatch, exp, fma, larger, largest, load, map, smaller, splat, total, zip};

/// Elements between two transfers from f32 to f64 sums.
pub(crate) const BLOCK: usize = 512;

/// Stands for "no class here": smaller than every logit, and finite.
const ABSENT: f32 = f32::MIN;

/// How a criterion turns logits into what is summed, for rows of one label.
pub(crate) trait Shape {
    /// e^{z'} is multiplied by [`factor`](Self::factor); the sum without factors is kept too.
    const FACTOR: bool = false;
    /// The sum of the raw logits is wanted.
    const MEAN: bool = false;
    /// Largest z' of each block is wanted by [`correct`](Self::correct).
    const MAXIMA: bool = false;
    /// The raw sums need a pass of their own, before z' can be said.
    const APART: bool = false;

    /// z' of the classes `at..at + LANES`.
    fn logit<I: Isa>(&self, z: Lanes, at: usize) -> Lanes;
    /// z' of the label.
    fn own(&self, z: f32) -> f32;
    /// Multiplies e^{z'} of the classes `at..at + LANES`; the label's factor is always 1.
    #[inline(always)]
    fn factor(&self, _at: usize) -> Lanes {
        splat(1.0)
    }
    /// dz'/dz of the classes `at..at + LANES`, or nothing where it is 1.
    #[inline(always)]
    fn slope(&self, _at: usize) -> Option<Lanes> {
        None
    }
    /// dz'/dz of the label.
    #[inline(always)]
    fn own_slope(&self) -> f32 {
        1.0
    }
    /// Added to z' in the second pass only; what it does to the sums is done by [`correct`](Self::correct).
    #[inline(always)]
    fn late<I: Isa>(&self, _z: Lanes) -> Option<Lanes> {
        None
    }
    /// Told the raw sums before z' is asked for, where [`APART`](Self::APART) says so.
    fn learn(&mut self, _raw: &Tally) {}
    /// A last word on the sums of the first pass.
    fn correct(&mut self, _z: &[f32], _label: usize, _maxima: &[f32], _sums: &mut Sums) {}
}

/// z' = z.
pub(crate) struct Plain;

impl Shape for Plain {
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, _at: usize) -> Lanes {
        z
    }
    fn own(&self, z: f32) -> f32 {
        z
    }
}

/// z' = z, and the sum of the logits.
pub(crate) struct WithMean;

impl Shape for WithMean {
    const MEAN: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, _at: usize) -> Lanes {
        z
    }
    fn own(&self, z: f32) -> f32 {
        z
    }
}

/// z'_j = z_j + b_j; minus infinity takes a class out.
pub(crate) struct Bias<'a> {
    pub(crate) bias: &'a [f32],
    pub(crate) own: f32,
}

impl Shape for Bias<'_> {
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, at: usize) -> Lanes {
        add(z, load(&self.bias[at..]))
    }
    fn own(&self, z: f32) -> f32 {
        z + self.own
    }
}

/// z'_j = a_j z_j + b_j.
pub(crate) struct Affine<'a> {
    pub(crate) slope: &'a [f32],
    pub(crate) bias: &'a [f32],
    pub(crate) label: usize,
}

impl Shape for Affine<'_> {
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, at: usize) -> Lanes {
        let (a, b) = (load(&self.slope[at..]), load(&self.bias[at..]));
        let mut out = z;
        for i in 0..LANES {
            out[i] = fma::<I>(a[i], z[i], b[i]);
        }
        out
    }
    fn own(&self, z: f32) -> f32 {
        self.slope[self.label] * z + self.bias[self.label]
    }
    #[inline(always)]
    fn slope(&self, at: usize) -> Option<Lanes> {
        Some(load(&self.slope[at..]))
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
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, _at: usize) -> Lanes {
        let s = self.scale;
        map(z, |z| s * z)
    }
    fn own(&self, z: f32) -> f32 {
        self.scale * (z - self.margin)
    }
    #[inline(always)]
    fn slope(&self, _at: usize) -> Option<Lanes> {
        Some(splat(self.scale))
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
/// smaller than any sum by e^(87 - 40).
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
        self.threshold = raw.own.max((lse + self.ln_eps) as f32);
    }

    #[inline(always)]
    fn of<I: Isa>(&self, z: Lanes) -> Lanes {
        let (q, t) = (self.q, self.threshold);
        map(z, |z| q * larger(z - t, 0.0))
    }
}

impl Relative<'_> {
    #[inline(always)]
    fn factor_of(&self, ratio: f32) -> f32 {
        smaller(ratio * self.inverse, 1.0)
    }
}

impl Shape for Relative<'_> {
    const FACTOR: bool = true;
    const MAXIMA: bool = true;
    #[inline(always)]
    fn logit<I: Isa>(&self, z: Lanes, _at: usize) -> Lanes {
        z
    }
    fn own(&self, z: f32) -> f32 {
        z
    }
    #[inline(always)]
    fn factor(&self, at: usize) -> Lanes {
        map(load(&self.ratio[at..]), |r| self.factor_of(r))
    }
    #[inline(always)]
    fn late<I: Isa>(&self, z: Lanes) -> Option<Lanes> {
        self.boost.map(|b| b.of::<I>(z))
    }
    /// Only classes with a score above max(p_y, eps) are boosted, at most 1/eps of them: they are looked for in the
    /// blocks whose largest logit says that they are there.
    fn correct(&mut self, z: &[f32], label: usize, maxima: &[f32], sums: &mut Sums) {
        let Some(mut boost) = self.boost else { return };
        boost.learn(&sums.raw);
        self.boost = Some(boost);
        let (t, q) = (boost.threshold, boost.q);
        let top = sums.raw.shift;
        if top <= t {
            return;
        }
        // the largest boosted logit there can be: nothing overflows relative to it
        let shift = top + q * (top - t);
        let mut change = 0f64;
        for (block, _) in maxima.iter().enumerate().filter(|(_, max)| **max > t) {
            let start = block * BLOCK;
            for (j, &zj) in z.iter().enumerate().skip(start).take(BLOCK).filter(|(j, zj)| **zj > t && *j != label) {
                // in f32, as the second pass will see it
                let boosted = (zj + q * (zj - t)) - shift;
                let plain = f64::from(zj) - f64::from(shift);
                change += f64::from(self.factor_of(self.ratio[j])) * (f64::from(boosted).exp() - plain.exp());
            }
        }
        let down = (f64::from(top) - f64::from(shift)).exp();
        sums.adjusted = Tally { shift, own: sums.adjusted.own, others: sums.adjusted.others * down + change };
    }
}

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
    fn logit<I: Isa>(&self, z: Lanes, at: usize) -> Lanes {
        let own = self.own;
        let margin = map(load(&self.level[at..]), |l| smaller(l - own, 0.0));
        let z = match self.boost {
            Some(boost) => add(z, boost.of::<I>(z)),
            None => z,
        };
        add(z, margin)
    }
    fn own(&self, z: f32) -> f32 {
        z
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
    pub(crate) own: f32,
    /// Sum of e^{z'_j - shift} over the other classes.
    pub(crate) others: f64,
}

impl Tally {
    fn own_exp(&self) -> f64 {
        (f64::from(self.own) - f64::from(self.shift)).exp()
    }

    /// The whole sum, e^{lse - shift}.
    pub(crate) fn sum(&self) -> f64 {
        self.own_exp() + self.others
    }

    /// 1 - p_y, without cancellation.
    pub(crate) fn miss(&self) -> f64 {
        self.others / self.sum()
    }

    /// -log p_y.
    pub(crate) fn cross_entropy(&self) -> f64 {
        let own = self.own_exp();
        if own > 1e-30 {
            (self.others / own).ln_1p()
        } else {
            self.others.ln() + (f64::from(self.shift) - f64::from(self.own))
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
    /// Sum of the logits (with `MEAN`).
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

/// Room for the block that holds the label or the row's end.
#[derive(Debug)]
pub(crate) struct Edge([f32; BLOCK]);

impl Edge {
    pub(crate) const fn new() -> Self {
        Self([ABSENT; BLOCK])
    }

    /// The block in whole lanes, without the label.
    #[inline(always)]
    fn fill(&mut self, block: &[f32], label: Option<usize>) -> &[Lanes] {
        let whole = block.len().next_multiple_of(LANES);
        self.0[..block.len()].copy_from_slice(block);
        self.0[block.len()..whole].fill(ABSENT);
        if let Some(label) = label {
            self.0[label] = ABSENT;
        }
        self.0[..whole].as_chunks().0
    }
}

#[inline(always)]
fn sums_kernel<I: Isa, S: Shape>(shape: &S, z: &[f32], label: usize, edge: &mut Edge, maxima: &mut [f32]) -> Sums {
    let own = shape.own(z[label]);
    let mut shift = own;
    let (mut adjusted, mut raw, mut logits) = (0f64, 0f64, f64::from(z[label]));
    // z * 0 is NaN for infinite and NaN z, and stays so
    let mut odd = splat(z[label] * 0.0);
    for (number, block) in z.chunks(BLOCK).enumerate() {
        let start = number * BLOCK;
        let inside = label.checked_sub(start).filter(|&l| l < block.len());
        let lanes = if block.len() == BLOCK && inside.is_none() {
            block.as_chunks().0
        } else {
            edge.fill(block, inside)
        };
        let mut top = splat(f32::NEG_INFINITY);
        for (k, &z) in lanes.iter().enumerate() {
            top = zip(shape.logit::<I>(z, start + k * LANES), top, larger);
            for i in 0..LANES {
                odd[i] = fma::<I>(z[i], 0.0, odd[i]);
            }
        }
        let top = largest(top);
        if S::MAXIMA {
            maxima[number] = top;
        }
        if top > shift {
            let down = (f64::from(shift) - f64::from(top)).exp();
            (adjusted, raw, shift) = (adjusted * down, raw * down, top);
        }
        let (mut a, mut r, mut m) = (splat(0.0), splat(0.0), splat(0.0));
        for (k, &z) in lanes.iter().enumerate() {
            let at = start + k * LANES;
            let e = exp::<I>(map(shape.logit::<I>(z, at), |x| x - shift));
            if S::FACTOR {
                let f = shape.factor(at);
                for i in 0..LANES {
                    a[i] = fma::<I>(e[i], f[i], a[i]);
                }
                r = add(r, e);
            } else {
                a = add(a, e);
            }
            if S::MEAN {
                m = add(m, map(z, |z| if z == ABSENT { 0.0 } else { z }));
            }
        }
        adjusted += total(a);
        raw += total(r);
        logits += total(m);
    }
    let adjusted = Tally { shift, own, others: adjusted };
    let raw = if S::FACTOR { Tally { others: raw, ..adjusted } } else { adjusted };
    let finite = shift.is_finite() && own.is_finite() && odd.iter().all(|x| *x == 0.0);
    Sums { raw, adjusted, logits, finite }
}
dispatch!(fn sums_pass<S: Shape>(shape: &S, z: &[f32], label: usize, edge: &mut Edge, maxima: &mut [f32]) -> Sums = sums_kernel);

/// The first pass: the sums of a row. `maxima` has room for one number per block.
pub(crate) fn sums<S: Shape>(
    simd: Simd,
    shape: &mut S,
    z: &[f32],
    label: usize,
    edge: &mut Edge,
    maxima: &mut [f32],
) -> Sums {
    let mut sums = if S::APART {
        let raw = sums_pass(simd, &Plain, z, label, edge, maxima);
        shape.learn(&raw.raw);
        Sums { raw: raw.raw, ..sums_pass(simd, shape, z, label, edge, maxima) }
    } else {
        sums_pass(simd, shape, z, label, edge, maxima)
    };
    if sums.finite {
        shape.correct(z, label, maxima, &mut sums);
        sums.finite = sums.adjusted.shift.is_finite();
    }
    sums
}

#[inline(always)]
fn gradient_kernel<I: Isa, S: Shape, A: Store>(
    shape: &S,
    z: &[f32],
    label: usize,
    sums: &Sums,
    slope: Slope,
    into: &mut [f32],
) {
    let tally = &sums.adjusted;
    let shift = tally.shift;
    let scale = (slope.scale / tally.sum()) as f32;
    let uniform = (slope.scale * slope.smooth / z.len() as f64) as f32;
    let value = |z: Lanes, at: usize| {
        let mut x = shape.logit::<I>(z, at);
        if let Some(late) = shape.late::<I>(z) {
            x = add(x, late);
        }
        let mut g = exp::<I>(map(x, |x| x - shift));
        if S::FACTOR {
            g = zip(g, shape.factor(at), |g, f| g * f);
        }
        let slopes = shape.slope(at);
        for i in 0..LANES {
            g[i] = fma::<I>(g[i], scale, -uniform);
            if let Some(slopes) = slopes {
                g[i] *= slopes[i];
            }
        }
        g
    };
    let before = into[label];
    let (rows, z_rest) = z.as_chunks::<LANES>();
    let (outs, out_rest) = into.as_chunks_mut::<LANES>();
    for (k, (z, out)) in rows.iter().zip(outs).enumerate() {
        A::store(out, &value(*z, k * LANES));
    }
    if !z_rest.is_empty() {
        let mut last = splat(ABSENT);
        last[..z_rest.len()].copy_from_slice(z_rest);
        A::store(out_rest, &value(last, rows.len() * LANES)[..z_rest.len()]);
    }
    let own = slope.scale * (slope.smooth - tally.miss()) - f64::from(uniform);
    into[label] = before;
    A::store(&mut into[label..=label], &[own as f32 * shape.own_slope()]);
}

/// How the second pass leaves its numbers.
pub(crate) trait Store {
    fn store(into: &mut [f32], values: &[f32]);
}

/// Overwrites.
pub(crate) struct Set;
impl Store for Set {
    #[inline(always)]
    fn store(into: &mut [f32], values: &[f32]) {
        into.copy_from_slice(values);
    }
}

/// Adds to what is there.
pub(crate) struct Add;
impl Store for Add {
    #[inline(always)]
    fn store(into: &mut [f32], values: &[f32]) {
        for (x, v) in into.iter_mut().zip(values) {
            *x += v;
        }
    }
}

dispatch!(pub(crate) fn gradient<S: Shape, A: Store>(
    shape: &S, z: &[f32], label: usize, sums: &Sums, slope: Slope, into: &mut [f32],
) = gradient_kernel);
