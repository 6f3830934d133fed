//! The fused row kernel: cross-entropy of adjusted logits and its gradient in two passes over a row.
//!
//! Every softmax criterion is cross-entropy of z'_j = logit(z_j), optionally with e^{z'_j} multiplied by a factor f_j
//! (a margin), for a label y. The first pass ([`sums`]) leaves the exponentials where the gradient will be and gives
//! the sums that the loss needs; the second ([`gradient`]) scales them to dL/dz. What differs between criteria is a
//! [`Shape`].
//!
//! Three things keep the numbers accurate:
//! - the label's term is kept apart from the others, so that 1 - p_y = others / (others + label) has no cancellation
//!   when p_y -> 1;
//! - exponentials are taken relative to a logit of the row (the largest one so far, block by block), never relative to a
//!   rounded log-sum-exp;
//! - a block of 512 is summed in f32 and the blocks in f64.

use std::ops::Range;

use equipoise_simd::{Simd, SimdLevel, dispatch};

use super::lanes::{LANES, Lanes, exp, largest, total};
use super::shape::{Plain, Shape};

/// Elements between two transfers from f32 to f64 sums.
pub(crate) const BLOCK: usize = 512;

/// Stands for "no class here": whatever a shape makes of it (also NaN), its exponential is 0.
const ABSENT: f32 = f32::NEG_INFINITY;

/// The denominator of a softmax, with the label's term kept apart: e^{label_logit - shift} + others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Denominator {
    /// The number that exponents are relative to.
    pub(crate) shift: f32,
    /// z' of the label.
    pub(crate) label_logit: f64,
    /// e^{label_logit - shift}.
    label_exp: f64,
    /// Sum of e^{z'_j - shift} over the other classes.
    pub(crate) others: f64,
}

/// e^{from - to}.
pub(crate) fn change_of_shift(from: f32, to: f32) -> f64 {
    if from == to { 1.0 } else { (f64::from(from) - f64::from(to)).exp() }
}

impl Denominator {
    pub(crate) fn new(shift: f32, label_logit: f64, others: f64) -> Self {
        Self { shift, label_logit, label_exp: (label_logit - f64::from(shift)).exp(), others }
    }

    /// The whole sum, e^{lse - shift}.
    pub(crate) fn sum(&self) -> f64 {
        self.label_exp + self.others
    }

    /// 1 - p_y, without cancellation.
    pub(crate) fn one_minus_p(&self) -> f64 {
        self.others / self.sum()
    }

    /// -log p_y.
    pub(crate) fn cross_entropy(&self) -> f64 {
        let ratio = self.others / self.label_exp;
        if ratio < 0.1 {
            ratio.ln_1p()
        } else if self.label_exp > 1e-30 {
            // the same, and faster
            (1.0 + ratio).ln()
        } else {
            self.others.ln() + (f64::from(self.shift) - self.label_logit)
        }
    }
}

/// What the first pass finds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// The sum over the raw logits. Where a shape has [`HIDES_RAW`](Shape::HIDES_RAW), only if it was asked for.
    pub(crate) raw: Denominator,
    /// The sum over z' with its factors.
    pub(crate) adjusted: Denominator,
    /// Sum of z' (with `SMOOTH`).
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

/// The memory that the first pass over a row writes.
pub(crate) struct RowBuffers<'a> {
    /// The largest z' of every block.
    pub(crate) maxima: &'a mut [f32],
    /// The number that the exponentials of every block are relative to.
    pub(crate) shifts: &'a mut [f32],
    /// The exponentials. The label's is 0.
    pub(crate) exps: &'a mut [f32],
    /// Exponentials that replace those in `exps`, relative to the row's shift.
    pub(crate) recomputed: &'a mut Vec<f32>,
    /// The classes of the exponentials in `recomputed`.
    pub(crate) recomputed_classes: &'a mut Vec<u32>,
}

/// A row in whole lanes, without its label.
pub(crate) struct RowLanes<'a> {
    whole: &'a [Lanes],
    /// What lies behind the last whole lanes, padded.
    rest: Lanes,
    label: usize,
    /// The lanes that held the label.
    around: Lanes,
    /// The logits in `rest` and `around` are finite, the label's too.
    finite: bool,
}

impl<'a> RowLanes<'a> {
    #[inline(always)]
    pub(crate) fn new(z: &'a [f32], label: usize) -> Self {
        let (whole, tail) = z.as_chunks::<LANES>();
        let mut rest = [ABSENT; LANES];
        rest[..tail.len()].copy_from_slice(tail);
        let mut around = *whole.get(label / LANES).unwrap_or(&rest);
        let finite = tail.iter().chain(whole.get(label / LANES).into_iter().flatten()).all(|z| z.is_finite());
        around[label % LANES] = ABSENT;
        Self { whole, rest, label: label / LANES, around, finite }
    }

    /// The k-th lanes.
    #[inline(always)]
    pub(crate) fn at(&self, k: usize) -> &Lanes {
        if k == self.label { &self.around } else { self.whole.get(k).unwrap_or(&self.rest) }
    }

    /// Some of the lanes in four runs, each with the number of its first lanes: before the label, around it, behind it,
    /// and the row's end; any may be empty. Runs are plain slices, so loops over them have no branches.
    #[inline(always)]
    fn runs(&self, lanes: Range<usize>) -> [(usize, &[Lanes]); 4] {
        let end = lanes.end.min(self.whole.len());
        let label = self.label.clamp(lanes.start, end);
        let around = label..(label + usize::from(label == self.label)).min(end);
        let rest = if lanes.end > end { std::slice::from_ref(self.at(end)) } else { &[] };
        let label_run = if around.is_empty() { &[][..] } else { std::slice::from_ref(&self.around) };
        [
            (lanes.start, &self.whole[lanes.start..label]),
            (label, label_run),
            (around.end, &self.whole[around.end..end]),
            (end, rest),
        ]
    }
}

/// The largest z' of a run of lanes from number `k` on.
#[inline(always)]
fn top_of<I: Simd, S: Shape>(simd: I, shape: &S, k: usize, run: &[Lanes], top: I::V) -> I::V {
    run.iter()
        .enumerate()
        .fold(top, |top, (i, z)| simd.max(shape.logit(simd, simd.load_array(z), (k + i) * LANES), top))
}

/// The same, and `odd` becomes NaN if a logit is not finite.
#[inline(always)]
fn checked_top_of<I: Simd, S: Shape>(
    simd: I,
    shape: &S,
    mut k: usize,
    run: &[Lanes],
    top: I::V,
    odd: &mut I::V,
) -> I::V {
    // four at a time, as one comparison must wait for the one before
    const AT_ONCE: usize = 4;
    let mut tops = [top; AT_ONCE];
    let mut odds = [*odd; AT_ONCE];
    let (fours, rest) = run.as_chunks::<AT_ONCE>();
    for four in fours {
        for i in 0..AT_ONCE {
            let z = simd.load_array(&four[i]);
            tops[i] = simd.max(shape.logit(simd, z, (k + i) * LANES), tops[i]);
            // z * 0 is NaN for infinite and NaN z, and stays so
            odds[i] = simd.fma(z, simd.splat(0.0), odds[i]);
        }
        k += AT_ONCE;
    }
    for (i, z) in rest.iter().enumerate() {
        let z = simd.load_array(z);
        tops[0] = simd.max(shape.logit(simd, z, (k + i) * LANES), tops[0]);
        odds[0] = simd.fma(z, simd.splat(0.0), odds[0]);
    }
    *odd = simd.add(simd.add(odds[0], odds[1]), simd.add(odds[2], odds[3]));
    simd.max(simd.max(tops[0], tops[1]), simd.max(tops[2], tops[3]))
}

#[inline(always)]
fn sums_kernel<I: Simd, S: Shape>(simd: I, shape: &S, z: &[f32], label: usize, buffers: &mut RowBuffers<'_>) -> Sums {
    let row = RowLanes::new(z, label);
    let label_logit = shape.label_logit(z[label]);
    let mut shift = label_logit as f32;
    let (mut adjusted, mut raw, mut logits) = (0f64, 0f64, label_logit);
    let mut odd = simd.splat(0.0);
    for (number, exps) in buffers.exps.chunks_mut(BLOCK).enumerate() {
        let start = number * (BLOCK / LANES);
        let end = start + exps.len().div_ceil(LANES);
        let runs = row.runs(start..end);
        let [before, around, behind, end_run] = runs;
        let top = simd.splat(f32::NEG_INFINITY);
        let top = checked_top_of(simd, shape, before.0, before.1, top, &mut odd);
        let top = checked_top_of(simd, shape, behind.0, behind.1, top, &mut odd);
        let top = top_of(simd, shape, around.0, around.1, top);
        let top = largest(simd, top_of(simd, shape, end_run.0, end_run.1, top));
        if top > shift {
            let down = change_of_shift(shift, top);
            (adjusted, raw, shift) = (adjusted * down, raw * down, top);
        }
        buffers.maxima[number] = top;
        buffers.shifts[number] = shift;
        let mut block_sums = [simd.splat(0.0); 3];
        let (outs, rest) = exps.as_chunks_mut::<LANES>();
        for (first, run) in runs {
            let outs = outs.get_mut(first - start..).unwrap_or_default();
            for ((k, z), out) in run.iter().enumerate().zip(outs) {
                *out = simd.to_array(exps_of(simd, shape, z, (first + k) * LANES, shift, &mut block_sums));
            }
        }
        if !rest.is_empty() {
            let k = end - 1;
            let e = simd.to_array::<LANES>(exps_of(simd, shape, row.at(k), k * LANES, shift, &mut block_sums));
            rest.copy_from_slice(&e[..rest.len()]);
        }
        adjusted += total(simd, block_sums[0]);
        if S::FACTOR {
            raw += total(simd, block_sums[1]);
        }
        if S::SMOOTH {
            logits += total(simd, block_sums[2]);
        }
    }
    let adjusted = Denominator::new(shift, label_logit, adjusted);
    let raw = if S::FACTOR { Denominator { others: raw, ..adjusted } } else { adjusted };
    let odd = simd.to_array::<LANES>(odd).iter().any(|x| *x != 0.0);
    let finite = row.finite && !odd && shift.is_finite() && (label_logit as f32).is_finite();
    Sums { raw, adjusted, logits, finite }
}

/// e^{z' - shift} times its factor, added to the sums: adjusted, raw and of z'.
#[inline(always)]
fn exps_of<I: Simd, S: Shape>(simd: I, shape: &S, z: &Lanes, at: usize, shift: f32, sums: &mut [I::V; 3]) -> I::V {
    let x = shape.logit(simd, simd.load_array(z), at);
    let mut e = exp(simd, simd.sub(x, simd.splat(shift)));
    if S::FACTOR {
        sums[1] = simd.add(sums[1], e);
        e = simd.mul(e, shape.factor(simd, at));
    }
    if S::SMOOTH {
        // the label and the padding are minus infinity, which the sum must not contain
        let known = simd.to_array::<LANES>(x).map(|x| if x > ABSENT { x } else { 0.0 });
        sums[2] = simd.add(sums[2], simd.load_array(&known));
    }
    sums[0] = simd.add(sums[0], e);
    e
}
dispatch!(fn sums_pass<S: Shape>(shape: &S, z: &[f32], label: usize, buffers: &mut RowBuffers<'_>) -> Sums = sums_kernel with Wide);

/// The first pass: the sums of a row, and its exponentials. `raw_sums` asks for the sums of the raw logits even where
/// the shape does not need them.
pub(crate) fn sums<S: Shape>(
    simd: SimdLevel,
    shape: &mut S,
    z: &[f32],
    label: usize,
    raw_sums: bool,
    buffers: &mut RowBuffers<'_>,
) -> Sums {
    shape.set_label_logit(z[label]);
    let mut sums = if S::NEEDS_RAW_SUMS || (S::HIDES_RAW && raw_sums) {
        let raw = sums_pass(simd, &Plain, z, label, buffers).raw;
        shape.set_raw_sums(&raw);
        Sums { raw, ..sums_pass(simd, shape, z, label, buffers) }
    } else {
        sums_pass(simd, shape, z, label, buffers)
    };
    buffers.recomputed.clear();
    buffers.recomputed_classes.clear();
    if sums.finite {
        shape.correct(simd, z, label, buffers, &mut sums);
        sums.finite = sums.adjusted.shift.is_finite();
    }
    sums
}

#[inline(always)]
fn scale_kernel<I: Simd, S: Shape>(
    simd: I,
    shape: &S,
    sums: &Sums,
    scale: f64,
    uniform: f32,
    buffers: &mut RowBuffers<'_>,
) {
    for (number, (block, shift)) in buffers.exps.chunks_mut(BLOCK).zip(&*buffers.shifts).enumerate() {
        let scale = (scale * change_of_shift(*shift, sums.adjusted.shift)) as f32;
        let start = number * BLOCK;
        let (outs, rest) = block.as_chunks_mut::<LANES>();
        let full = outs.len();
        for (k, out) in outs.iter_mut().enumerate() {
            *out = simd.to_array(scaled(simd, shape, out, start + k * LANES, scale, uniform));
        }
        if !rest.is_empty() {
            let mut e = [0.0; LANES];
            e[..rest.len()].copy_from_slice(rest);
            let g = simd.to_array::<LANES>(scaled(simd, shape, &e, start + full * LANES, scale, uniform));
            rest.copy_from_slice(&g[..rest.len()]);
        }
    }
}

#[inline(always)]
fn scaled<I: Simd, S: Shape>(simd: I, shape: &S, e: &Lanes, at: usize, scale: f32, uniform: f32) -> I::V {
    let mut g = simd.mul(simd.load_array(e), simd.splat(scale));
    if S::SMOOTH {
        g = simd.sub(g, simd.splat(uniform));
    }
    if S::SLOPE {
        g = simd.mul(g, shape.slope(simd, at));
    }
    g
}
dispatch!(fn scale_pass<S: Shape>(shape: &S, sums: &Sums, scale: f64, uniform: f32, buffers: &mut RowBuffers<'_>) = scale_kernel with Wide);

/// The second pass: from the exponentials in `buffers` to the gradient there.
pub(crate) fn gradient<S: Shape>(
    simd: SimdLevel,
    shape: &S,
    z: &[f32],
    label: usize,
    sums: &Sums,
    slope: Slope,
    buffers: &mut RowBuffers<'_>,
) {
    let denominator = &sums.adjusted;
    let scale = slope.scale / denominator.sum();
    let uniform = slope.scale * slope.smooth / z.len() as f64;
    scale_pass(simd, shape, sums, scale, uniform as f32, buffers);
    for (e, &j) in buffers.recomputed.iter().zip(&*buffers.recomputed_classes) {
        buffers.exps[j as usize] = (f64::from(*e) * scale) as f32;
    }
    // without cancellation
    let label_gradient = slope.scale * (slope.smooth - denominator.one_minus_p()) - uniform;
    buffers.exps[label] = (label_gradient * f64::from(shape.label_slope())) as f32;
}
