//! The intra-category weight W_{c,i}, a decreasing function of how full region i of class c was.

use super::Normalize;

/// How densities are turned into weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) alpha: f64,
    pub(super) prior: f64,
    pub(super) normalize: Normalize,
    /// With moving averages: what one example leaves in its region when it is counted. Without a prior, no region counts as
    /// holding less; otherwise the weight of a region that only decays would grow without bound.
    pub(super) one: Option<f64>,
    /// Whether examples easier than the class's median get the median's weight.
    pub(super) hard: bool,
}

impl Scale {
    /// Writes the weight W of every region of a class with these densities v and widths d. Without examples all are 1.
    pub(super) fn weights(&self, values: &[f64], widths: &[f64], into: &mut [f64]) {
        let bins = values.len() as f64;
        // v is examples / (N d)
        let examples = |i: usize| values[i] * bins * widths[i];
        let total: f64 = (0..values.len()).map(examples).sum();
        if total == 0.0 {
            into.fill(1.0);
            return;
        }
        let smooth = |i: usize| values[i] + self.prior * total / bins;
        // an empty region counts as if it held one example
        let one = |i: usize| self.one.unwrap_or(1.0) / (bins * widths[i]);
        let held = |i: usize| match smooth(i) {
            v if self.one.is_some() && self.prior == 0.0 => v.max(one(i)),
            v if v > 0.0 => v,
            _ => one(i),
        };
        for (i, w) in into.iter_mut().enumerate() {
            *w = held(i).powf(-self.alpha);
        }
        if self.hard {
            let mut easier = 0.0;
            let past_half = |i: &usize| {
                easier += examples(*i);
                2.0 * easier >= total
            };
            let median = (0..values.len()).find(past_half).unwrap_or(0);
            let weight = into[median];
            into[..median].fill(weight);
        }
        let scale = match self.normalize {
            Normalize::ClassMean => total / (0..values.len()).map(|i| examples(i) * into[i]).sum::<f64>(),
            Normalize::ClassGradient => {
                // a region's examples are taken to lie at its middle
                let (mut low, mut before, mut after) = (0.0, 0.0, 0.0);
                for (i, width) in widths.iter().enumerate() {
                    let norms = examples(i) * (low + width / 2.0);
                    (low, before, after) = (low + width, before + norms, after + norms * into[i]);
                }
                before / after
            }
            Normalize::BatchPower => 1.0,
            Normalize::ValidBins | Normalize::BatchMean | Normalize::None => {
                let filled = (0..values.len()).filter(|i| smooth(*i) > 0.0);
                let (size, valid) = filled.fold((0.0, 0.0), |(s, n), i| (s + smooth(i).powf(self.alpha), n + 1.0));
                if self.normalize == Normalize::ValidBins { size / f64::max(valid, 1.0) } else { size }
            }
        };
        into.iter_mut().for_each(|w| *w *= scale);
    }
}

/// Writes the weight 1 + kappa (u - 1/2) of every region of a class, where u is the share of the class's examples that lie in
/// easier regions, plus half of those in the same one. The mean over the class's examples is 1. Without examples all are 1.
pub(super) fn quantile_weights(values: &[f64], widths: &[f64], kappa: f64, into: &mut [f64]) {
    let bins = values.len() as f64;
    let examples = |i: usize| values[i] * bins * widths[i];
    let total: f64 = (0..values.len()).map(examples).sum();
    if total == 0.0 {
        into.fill(1.0);
        return;
    }
    let mut easier = 0.0;
    for (i, weight) in into.iter_mut().enumerate() {
        let here = examples(i) / total;
        *weight = 1.0 + kappa * (easier + here / 2.0 - 0.5);
        easier += here;
    }
}
