//! Shapes: what criteria do to the logits of a row before the softmax (offsets, factors, margins).

use equipoise_simd::{Simd, SimdLevel, dispatch};

use super::lanes::{LANES, exp, lanes_at};
use super::softmax::{BLOCK, Denominator, RowBuffers, RowLanes, Sums, change_of_shift};

/// How a criterion turns logits into what is summed, for rows of one label.
pub(crate) trait Shape {
    /// e^{z'} is multiplied by [`factor`](Self::factor), and the sum without factors is kept too.
    const FACTOR: bool = false;
    /// dz'/dz is not 1.
    const SLOPE: bool = false;
    /// The sum of z' is wanted, and targets can be smoothed.
    const SMOOTH: bool = false;
    /// z' depends on the raw sums, which need a pass of their own.
    const NEEDS_RAW_SUMS: bool = false;
    /// softmax(z') is not softmax(z), and the first pass leaves no sum over the raw logits.
    const HIDES_RAW: bool = false;

    /// Receives the label's logit before anything else. A shape that adds to or multiplies logits first subtracts it
    /// from all of them. That leaves the softmax unchanged and keeps rounding independent of the size of the logits.
    fn set_label_logit(&mut self, _z: f32) {}
    /// z' of the classes `at..at + LANES`.
    fn logit<I: Simd>(&self, simd: I, z: I::V, at: usize) -> I::V;
    /// z' of the label.
    fn label_logit(&self, z: f32) -> f64;
    /// The factors on e^{z'} of the classes `at..at + LANES`. The label's factor is always 1.
    #[inline(always)]
    fn factor<I: Simd>(&self, simd: I, _at: usize) -> I::V {
        simd.splat(1.0)
    }
    /// dz'/dz of the classes `at..at + LANES`.
    #[inline(always)]
    fn slope<I: Simd>(&self, simd: I, _at: usize) -> I::V {
        simd.splat(1.0)
    }
    /// dz'/dz of the label.
    #[inline(always)]
    fn label_slope(&self) -> f32 {
        1.0
    }
    /// Receives the raw sums before z' is asked for, if [`NEEDS_RAW_SUMS`](Self::NEEDS_RAW_SUMS) is set.
    fn set_raw_sums(&mut self, _raw: &Denominator) {}
    /// Corrects the sums of the first pass. Classes whose exponential is not what the pass left go to
    /// `buffers.recomputed`.
    fn correct(
        &mut self,
        _simd: SimdLevel,
        _z: &[f32],
        _label: usize,
        _buffers: &mut RowBuffers<'_>,
        _sums: &mut Sums,
    ) {
    }
}

/// z' = z.
pub(crate) struct Plain;

impl Shape for Plain {
    #[inline(always)]
    fn logit<I: Simd>(&self, _simd: I, z: I::V, _at: usize) -> I::V {
        z
    }
    fn label_logit(&self, z: f32) -> f64 {
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
    fn logit<I: Simd>(&self, simd: I, z: I::V, _at: usize) -> I::V {
        simd.sub(z, simd.splat(self.base))
    }
    fn set_label_logit(&mut self, z: f32) {
        self.base = z;
    }
    fn label_logit(&self, _z: f32) -> f64 {
        0.0
    }
}

/// z'_j = z_j + b_j. An offset of minus infinity drops the class.
pub(crate) struct Bias<'a> {
    bias: &'a [f32],
    label_bias: f32,
    /// The label's logit.
    base: f32,
}

impl<'a> Bias<'a> {
    /// A shape from the offsets of all classes and that of the label.
    pub(crate) fn new(bias: &'a [f32], label_bias: f32) -> Self {
        Self { bias, label_bias, base: 0.0 }
    }
}

impl Shape for Bias<'_> {
    const HIDES_RAW: bool = true;
    #[inline(always)]
    fn logit<I: Simd>(&self, simd: I, z: I::V, at: usize) -> I::V {
        simd.add(simd.sub(z, simd.splat(self.base)), lanes_at(simd, self.bias, at))
    }
    fn set_label_logit(&mut self, z: f32) {
        self.base = z;
    }
    fn label_logit(&self, _z: f32) -> f64 {
        self.label_bias.into()
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
    fn logit<I: Simd>(&self, simd: I, z: I::V, at: usize) -> I::V {
        simd.fma(lanes_at(simd, self.slope, at), z, lanes_at(simd, self.bias, at))
    }
    fn label_logit(&self, z: f32) -> f64 {
        f64::from(self.slope[self.label]) * f64::from(z) + f64::from(self.bias[self.label])
    }
    #[inline(always)]
    fn slope<I: Simd>(&self, simd: I, at: usize) -> I::V {
        lanes_at(simd, self.slope, at)
    }
    fn label_slope(&self) -> f32 {
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
    fn logit<I: Simd>(&self, simd: I, z: I::V, _at: usize) -> I::V {
        simd.mul(simd.sub(z, simd.splat(self.base)), simd.splat(self.scale))
    }
    fn set_label_logit(&mut self, z: f32) {
        self.base = z;
    }
    fn label_logit(&self, _z: f32) -> f64 {
        -f64::from(self.scale) * f64::from(self.margin)
    }
    #[inline(always)]
    fn slope<I: Simd>(&self, simd: I, _at: usize) -> I::V {
        simd.splat(self.scale)
    }
    fn label_slope(&self) -> f32 {
        self.scale
    }
}

/// e^{z_j} times min(1, r_j / r_y): a relative margin whose logarithm spans at most [`NARROW`].
pub(crate) struct RatioMargin<'a> {
    /// r_j of every class.
    pub(crate) ratio: &'a [f32],
    /// 1 / r_y.
    pub(crate) inverse: f32,
    /// An addition for classes that score above the label, or none.
    pub(crate) compensation: Option<Compensation>,
}

/// Margins of at most this size (in the logarithm) can multiply e^z: the terms that e^z flushes to 0 are then
/// smaller than any sum by e^(64 - 40).
pub(crate) const NARROW: f64 = 40.0;

/// Adds q max(0, z_j - t), t = max(z_y, lse(z) + ln eps) (the compensation factor of Seesaw).
#[derive(Clone, Copy)]
pub(crate) struct Compensation {
    q: f64,
    ln_eps: f64,
    /// t, once the raw sums are known.
    threshold: f64,
}

impl Compensation {
    pub(crate) fn new(q: f64, eps: f64) -> Self {
        Self { q, ln_eps: eps.ln(), threshold: f64::INFINITY }
    }

    fn set_raw_sums(&mut self, raw: &Denominator) {
        let lse = f64::from(raw.shift) + raw.sum().ln();
        self.threshold = raw.label_logit.max(lse + self.ln_eps);
    }

    /// The addition to logits from which `base` was subtracted.
    #[inline(always)]
    fn of<I: Simd>(&self, simd: I, z: I::V, base: f32) -> I::V {
        let threshold = (self.threshold - f64::from(base)) as f32;
        let above = simd.max(simd.sub(z, simd.splat(threshold)), simd.splat(0.0));
        simd.mul(above, simd.splat(self.q as f32))
    }
}

impl RatioMargin<'_> {
    fn factor_of(&self, ratio: f32) -> f32 {
        f32::min(ratio * self.inverse, 1.0)
    }
}

impl Shape for RatioMargin<'_> {
    const FACTOR: bool = true;
    #[inline(always)]
    fn logit<I: Simd>(&self, _simd: I, z: I::V, _at: usize) -> I::V {
        z
    }
    fn label_logit(&self, z: f32) -> f64 {
        f64::from(z)
    }
    #[inline(always)]
    fn factor<I: Simd>(&self, simd: I, at: usize) -> I::V {
        simd.min(simd.mul(lanes_at(simd, self.ratio, at), simd.splat(self.inverse)), simd.splat(1.0))
    }
    /// Only classes with a score above max(p_y, eps) are raised, at most 1/eps of them: they are looked for in the
    /// blocks whose largest logit says that they are there.
    fn correct(&mut self, simd: SimdLevel, z: &[f32], label: usize, buffers: &mut RowBuffers<'_>, sums: &mut Sums) {
        let Some(compensation) = &mut self.compensation else { return };
        compensation.set_raw_sums(&sums.raw);
        let (top, t, q) = (sums.raw.shift, compensation.threshold, compensation.q);
        if f64::from(top) <= t {
            return;
        }
        // the shift stays, unless the largest raised logit there can be would overflow relative to it
        let rise = q * (f64::from(top) - t);
        let shift = if rise <= NARROW { top } else { (f64::from(top) + rise) as f32 };
        let mut others = sums.adjusted.others * change_of_shift(top, shift);
        // none may be missed by rounding; one that is not above t is not raised
        classes_above(simd, z, label, (t as f32).next_down(), buffers);
        let (mut block, mut down) = (usize::MAX, 1.0);
        for (x, &j) in buffers.recomputed.iter_mut().zip(&*buffers.recomputed_classes) {
            if block != j as usize / BLOCK {
                block = j as usize / BLOCK;
                down = change_of_shift(buffers.shifts[block], shift);
            }
            others -= f64::from(buffers.exps[j as usize]) * down;
            let zj = f64::from(*x);
            *x = (zj - f64::from(shift) + q * (zj - t).max(0.0)) as f32;
        }
        exp_all(simd, buffers.recomputed);
        for (e, &j) in buffers.recomputed.iter_mut().zip(&*buffers.recomputed_classes) {
            *e *= self.factor_of(self.ratio[j as usize]);
            others += f64::from(*e);
        }
        // what was taken out can differ from what was put in by a rounding
        let others = others.max(0.0);
        sums.adjusted = Denominator::new(shift, sums.adjusted.label_logit, others);
    }
}

#[inline(always)]
fn classes_above_kernel<I: Simd>(simd: I, z: &[f32], label: usize, t: f32, buffers: &mut RowBuffers<'_>) {
    let row = RowLanes::new(z, label);
    for (number, _) in buffers.maxima.iter().enumerate().filter(|(_, max)| **max > t) {
        let start = number * (BLOCK / LANES);
        for k in start..(start + BLOCK / LANES).min(z.len().div_ceil(LANES)) {
            let mut mask = simd.above(simd.load_array(row.at(k)), t);
            while mask != 0 {
                let j = k * LANES + mask.trailing_zeros() as usize;
                buffers.recomputed_classes.push(j as u32);
                buffers.recomputed.push(z[j]);
                mask &= mask - 1;
            }
        }
    }
}
dispatch!(fn classes_above(z: &[f32], label: usize, t: f32, buffers: &mut RowBuffers<'_>) = classes_above_kernel with Wide);

#[inline(always)]
fn exp_all_kernel<I: Simd>(simd: I, values: &mut [f32]) {
    let (whole, rest) = values.as_chunks_mut::<LANES>();
    for x in whole {
        *x = simd.to_array(exp(simd, simd.load_array(x)));
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    rest.copy_from_slice(&simd.to_array::<LANES>(exp(simd, simd.load_array(&last)))[..rest.len()]);
}
dispatch!(fn exp_all(values: &mut [f32]) = exp_all_kernel with Wide);

/// z'_j = z_j + min(most, l_j - l_y) (+ compensation): with `most` 0 the same margin as [`RatioMargin`] for spans
/// beyond [`NARROW`].
pub(crate) struct LevelMargin<'a> {
    /// l_j of every class.
    level: &'a [f32],
    /// l_y.
    label_level: f32,
    most: f32,
    compensation: Option<Compensation>,
    /// The label's logit.
    base: f32,
}

impl<'a> LevelMargin<'a> {
    pub(crate) fn new(level: &'a [f32], label: usize, most: f32, compensation: Option<Compensation>) -> Self {
        Self { level, label_level: level[label], most, compensation, base: 0.0 }
    }
}

impl Shape for LevelMargin<'_> {
    const NEEDS_RAW_SUMS: bool = true;
    #[inline(always)]
    fn logit<I: Simd>(&self, simd: I, z: I::V, at: usize) -> I::V {
        let margin =
            simd.min(simd.sub(lanes_at(simd, self.level, at), simd.splat(self.label_level)), simd.splat(self.most));
        let z = simd.sub(z, simd.splat(self.base));
        let z = match self.compensation {
            Some(compensation) => simd.add(z, compensation.of(simd, z, self.base)),
            None => z,
        };
        simd.add(z, margin)
    }
    fn set_label_logit(&mut self, z: f32) {
        self.base = z;
    }
    fn label_logit(&self, _z: f32) -> f64 {
        0.0
    }
    fn set_raw_sums(&mut self, raw: &Denominator) {
        if let Some(compensation) = &mut self.compensation {
            compensation.set_raw_sums(raw);
        }
    }
}
