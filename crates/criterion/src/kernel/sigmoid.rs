//! The sigmoid row kernel: binary cross-entropy of every logit, each with a weight by its gradient norm.
//!
//! L_j = w(g_j) (softplus(z_j) - t_j z_j), dL_j/dz_j = w(g_j) (sigmoid(z_j) - t_j), g_j = abs(sigmoid(z_j) - t_j).
//! The target t is 1 at the label and 0 elsewhere, or the two shares where labels are mixed (the loss is linear in t).

use equipoise_simd::{Simd, SimdLevel, dispatch};

use super::lanes::{LANES, Lanes, exp, ln_1p};
use super::rows::Row;

/// sigmoid(z) and e^-abs(z).
#[inline(always)]
fn scores<I: Simd>(simd: I, z: &Lanes) -> (Lanes, Lanes) {
    let e: Lanes = simd.to_array(exp(simd, simd.load_array(&z.map(|z| -z.abs()))));
    let mut s = e;
    for i in 0..LANES {
        s[i] = if z[i] >= 0.0 { 1.0 } else { e[i] } / (1.0 + e[i]);
    }
    (s, e)
}

/// softplus(z) from e^-abs(z).
fn softplus(z: f32, e: f32) -> f64 {
    f64::from(z.max(0.0)) + f64::from(ln_1p(e))
}

/// One logit with a target that is not 0, in f64: sigmoid(z) - t without cancellation, and its loss.
fn targeted(z: f32, t: f64) -> (f64, f64) {
    let z = f64::from(z);
    let e = (-z.abs()).exp();
    let (up, down) = if z >= 0.0 { (1.0, e) } else { (e, 1.0) };
    (((1.0 - t) * up - t * down) / (1.0 + e), z.max(0.0) + e.ln_1p() - t * z)
}

/// The classes of a row with a target that is not 0, and their targets: the labels' shares, deferred class weights
/// included, so that the row is the sum of its terms.
fn targets(row: &Row) -> ([(usize, f64); 2], usize) {
    let [a, b] = &row.terms;
    if row.count == 1 {
        return ([(a.label, 1.0), (0, 0.0)], 1);
    }
    let total = a.gain + b.gain;
    let (x, y) = if total > 0.0 { (a.gain / total, b.gain / total) } else { (a.share, b.share) };
    if a.label == b.label { ([(a.label, 1.0), (0, 0.0)], 1) } else { ([(a.label, x), (b.label, y)], 2) }
}

#[inline(always)]
fn region(g: f32, bins: usize) -> usize {
    ((g * bins as f32) as usize).min(bins - 1)
}

/// The lanes of a row, the last ones padded with `pad`.
#[inline(always)]
fn lanes(z: &[f32], pad: f32) -> impl Iterator<Item = (Lanes, usize)> {
    let (whole, rest) = z.as_chunks::<LANES>();
    let mut last = [pad; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let tail = (!rest.is_empty()).then_some((last, rest.len()));
    whole.iter().map(|z| (*z, LANES)).chain(tail)
}

#[inline(always)]
fn count_kernel<I: Simd>(simd: I, z: &[f32], row: &Row, counts: &mut [u64]) -> bool {
    let bins = counts.len();
    for (z, width) in lanes(z, 0.0) {
        for &g in &scores(simd, &z).0[..width] {
            counts[region(g, bins)] += 1;
        }
    }
    let finite = z.iter().all(|z| z.is_finite());
    if finite {
        let (targets, n) = targets(row);
        for &(label, t) in &targets[..n] {
            counts[region(scores(simd, &[z[label]; LANES]).0[0], bins)] -= 1;
            counts[region(targeted(z[label], t).0.abs() as f32, bins)] += 1;
        }
    }
    finite
}
dispatch!(fn count_pass(z: &[f32], row: &Row, counts: &mut [u64]) -> bool = count_kernel with Wide);

/// Adds the gradient norms of a row to `counts`. Returns false if a logit is not finite.
pub(crate) fn count(simd: SimdLevel, z: &[f32], row: &Row, counts: &mut [u64]) -> bool {
    count_pass(simd, z, row, counts)
}

#[inline(always)]
fn row_kernel<I: Simd>(simd: I, z: &[f32], row: &mut Row, gains: &[f32], over: f64, into: &mut [f32]) {
    let bins = gains.len();
    let coefficient = row.terms().iter().map(|p| p.coefficient).sum::<f64>() / over;
    let gain = row.terms().iter().map(|p| p.gain).sum::<f64>();
    let scale = coefficient as f32;
    row.finite = z.iter().all(|z| z.is_finite());
    if !row.finite {
        return;
    }
    let weight_at = |g: f32| if bins == 1 { gains[0] } else { gains[region(g, bins)] };
    let (mut loss, mut weight, mut done) = (0f64, 0f64, 0);
    for (z, width) in lanes(z, 0.0) {
        let (s, e) = scores(simd, &z);
        for i in 0..width {
            let w = weight_at(s[i]);
            loss += f64::from(w) * softplus(z[i], e[i]);
            weight += f64::from(w);
            into[done + i] = w * s[i] * scale;
        }
        done += width;
    }
    let (targets, n) = targets(row);
    for &(label, t) in &targets[..n] {
        let (d, l) = targeted(z[label], t);
        let (s, e) = scores(simd, &[z[label]; LANES]);
        let (before, after) = (f64::from(weight_at(s[0])), f64::from(weight_at(d.abs() as f32)));
        // takes out exactly what the loop put in
        loss += after * l - before * softplus(z[label], e[0]);
        weight += after - before;
        into[label] = (after * d * coefficient) as f32;
    }
    row.loss = gain * loss / over;
    row.weight = gain * weight / z.len() as f64;
}
dispatch!(fn row_pass(z: &[f32], row: &mut Row, gains: &[f32], over: f64, into: &mut [f32]) = row_kernel with Wide);

/// Loss, weight and gradient of a row, divided by `over`. `gains` holds a weight per region.
pub(crate) fn row(simd: SimdLevel, z: &[f32], row: &mut Row, gains: &[f32], over: f64, into: &mut [f32]) {
    row_pass(simd, z, row, gains, over, into);
}
