//! The histogram of the gradient norms of every class, with uniform or adaptive regions (URA, AURA).
//!
//! An epoch counts integers into the current regions. When it ends, the densities v = k / (N d) become the frozen snapshot
//! that the next epoch looks up. With adaptive regions, the regions of the next epoch follow from them.

use serde::{Deserialize, Serialize};

use super::Regions;
use super::inter::LEAST_LIVE_SIZE;
use super::intra::Scale;
use crate::counts::Counts;
use crate::error::StateError;
use crate::kernel::rows::{LabelTerm, Row, Workspace};
use crate::state::{check_length, check_values};

/// The region that holds g. Regions are [lo, hi), the last one closed.
pub(super) fn region(widths: &[f64], g: f64) -> usize {
    let mut edge = 0.0;
    for (i, width) in widths.iter().enumerate() {
        edge += width;
        if g < edge {
            return i;
        }
    }
    widths.len() - 1
}

/// The widths of a class's regions before the first epoch.
fn first_widths(bins: usize, regions: Regions) -> impl Iterator<Item = f64> + Clone {
    let n = bins as f64;
    (0..bins).map(move |i| match regions {
        Regions::Adaptive | Regions::Uniform => 1.0 / n,
        Regions::Squared => (2 * i + 1) as f64 / (n * n),
    })
}

/// AURA: the fuller a region was, the narrower it becomes. d_i = 1 / ln(e + v_i), scaled to the sum 1.
fn cut(values: &[f64], widths: &mut [f64]) {
    for (width, v) in widths.iter_mut().zip(values) {
        *width = 1.0 / (std::f64::consts::E + v).ln();
    }
    let sum: f64 = widths.iter().sum();
    widths.iter_mut().for_each(|width| *width /= sum);
}

/// Counts by class and region, and the snapshot of the previous epoch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub(super) bins: usize,
    /// Examples per class and region in this epoch.
    counts: Vec<u64>,
    /// Widths of the regions that are being filled.
    filling: Vec<f64>,
    /// Densities v of the snapshot.
    pub(super) values: Vec<f64>,
    /// Widths d of the snapshot's regions.
    pub(super) widths: Vec<f64>,
}

impl Histogram {
    /// The histogram before the first epoch: every class is spread evenly over its regions, v = n / N.
    pub(super) fn new(counts: &Counts, bins: usize, regions: Regions) -> Self {
        let cells = counts.classes() * bins;
        let widths: Vec<f64> = first_widths(bins, regions).cycle().take(cells).collect();
        let values = counts.iter().flat_map(|n| std::iter::repeat_n(n / bins as f64, bins)).collect();
        Self { bins, counts: vec![0; cells], filling: widths.clone(), values, widths }
    }

    /// Densities and widths of every class in the snapshot.
    pub(super) fn classes(&self) -> impl Iterator<Item = (&[f64], &[f64])> {
        self.values.chunks_exact(self.bins).zip(self.widths.chunks_exact(self.bins))
    }

    /// The region that an example with this gradient norm is counted in.
    pub(super) fn filling(&self, class: usize, g: f64) -> usize {
        region(&self.filling[class * self.bins..][..self.bins], g)
    }

    /// Widths of the regions that are being filled, class after class.
    pub(super) fn filling_widths(&self) -> &[f64] {
        &self.filling
    }

    pub(super) fn count(&mut self, class: usize, region: usize) {
        self.counts[class * self.bins + region] += 1;
    }

    /// Freezes what was counted. A class that was not seen keeps its snapshot and its regions.
    pub(super) fn end_epoch(&mut self, adaptive: bool) {
        let bins = self.bins;
        for at in (0..self.counts.len()).step_by(bins) {
            let cells = at..at + bins;
            if self.counts[cells.clone()].iter().all(|k| *k == 0) {
                continue;
            }
            for i in cells.clone() {
                self.widths[i] = self.filling[i];
                self.values[i] = self.counts[i] as f64 / (bins as f64 * self.filling[i]);
                self.counts[i] = 0;
            }
            if adaptive {
                cut(&self.values[cells.clone()], &mut self.filling[cells]);
            }
        }
    }

    pub(super) fn state(&self, averages: Option<&Averages>) -> CwapState {
        CwapState {
            bins: self.bins,
            counts: self.counts.clone(),
            filling: self.filling.clone(),
            values: self.values.clone(),
            widths: self.widths.clone(),
            average: averages.map(Averages::state),
        }
    }

    /// The histogram of a state, if it fits.
    pub(super) fn restored(&self, state: &CwapState) -> Result<Self, StateError> {
        let cells = self.counts.len();
        check_length("bins", state.bins, self.bins)?;
        check_length("counts", state.counts.len(), cells)?;
        let floats = [("filling", &state.filling), ("values", &state.values), ("widths", &state.widths)];
        for (field, values) in floats {
            check_length(field, values.len(), cells)?;
        }
        check_widths("filling", &state.filling, self.bins)?;
        check_widths("widths", &state.widths, self.bins)?;
        check_densities("values", &state.values)?;
        let (counts, filling) = (state.counts.clone(), state.filling.clone());
        let (values, widths) = (state.values.clone(), state.widths.clone());
        Ok(Self { bins: self.bins, counts, filling, values, widths })
    }
}

fn check_densities(field: &'static str, values: &[f64]) -> Result<(), StateError> {
    check_values(field, values, |v| (0.0..=1e30).contains(&v), "from 0 to 1e30")
}

fn check_widths(field: &'static str, widths: &[f64], bins: usize) -> Result<(), StateError> {
    check_values(field, widths, |d| d > 0.0 && d <= 1.0, "more than 0 and at most 1")?;
    let whole = |class: &[f64]| (class.iter().sum::<f64>() - 1.0).abs() < 1e-6;
    match widths.chunks_exact(bins).position(|class| !whole(class)) {
        Some(class) => {
            Err(StateError::Value { field, index: class * bins, want: "the first of widths that add up to 1" })
        }
        None => Ok(()),
    }
}

/// What `cwap` has counted. Tables hold `bins` numbers per class, class after class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CwapState {
    /// Number of regions per class.
    pub bins: usize,
    /// Examples per class and region in this epoch.
    pub counts: Vec<u64>,
    /// Widths of the regions that are being filled.
    pub filling: Vec<f64>,
    /// Densities v of the previous epoch.
    pub values: Vec<f64>,
    /// Widths d of the regions of the previous epoch.
    pub widths: Vec<f64>,
    /// The moving averages, with `memory: ema` or `live`.
    pub average: Option<AverageState>,
}

/// The moving averages of `memory: ema` and `live`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AverageState {
    /// Densities per class and region.
    pub values: Vec<f64>,
    /// Widths of the regions.
    pub widths: Vec<f64>,
    /// Number of batches counted.
    pub batches: u64,
    /// The batch after which the densities of each class were what they are here. They fade from then on with `memory: live`.
    pub updated: Vec<u64>,
}

impl CwapState {
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), StateError> {
        if self.average.is_some() || other.average.is_some() {
            return Err(StateError::MovingAverage("cwap"));
        }
        check_length("bins", other.bins, self.bins)?;
        check_length("counts", other.counts.len(), self.counts.len())?;
        let same =
            |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
        if !same(&self.filling, &other.filling) {
            return Err(StateError::DifferentStart { field: "filling" });
        }
        if !same(&self.values, &other.values) || !same(&self.widths, &other.widths) {
            return Err(StateError::DifferentStart { field: "values" });
        }
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a = a.saturating_add(*b);
        }
        Ok(())
    }
}

/// Densities as a moving average over batches, as in GHM and in the authors' early code. A batch is counted, then used.
///
/// With `memory: ema`, classes absent from a batch keep their densities; margins still follow from the counts of the epoch, as
/// such averages say nothing about the sizes of classes. With `memory: live`, the densities of all classes fade with every
/// batch. This is computed when a class is next needed, so a batch costs no more than the classes in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Averages {
    bins: usize,
    pub(super) values: Vec<f64>,
    pub(super) widths: Vec<f64>,
    /// Number of batches counted.
    batches: u64,
    /// The batch after which the densities of each class were as they are in `values`.
    updated: Vec<u64>,
    /// What `memory: live` adds.
    live: Option<LiveSizes>,
}

/// The sizes S of classes whose histograms fade.
#[derive(Clone, Debug, PartialEq)]
struct LiveSizes {
    alpha: f64,
    /// ln sum_i k_i^alpha of every class after batch `updated`, for k the examples left in each region.
    logs: Vec<f64>,
}

/// ln sum_i k_i^alpha for k the examples in each region.
fn log_size(values: &[f64], widths: &[f64], alpha: f64) -> f64 {
    let bins = values.len() as f64;
    let examples = values.iter().zip(widths).map(|(v, d)| v * bins * d);
    examples.filter(|k| *k > 0.0).map(|k| k.powf(alpha)).sum::<f64>().ln()
}

/// momentum^batches
fn power(momentum: f64, batches: u64) -> f64 {
    momentum.powi(batches.min(i32::MAX as u64) as i32)
}

impl LiveSizes {
    /// The logarithm of a size after it has faded for some batches.
    fn faded(&self, log: f64, batches: u64, momentum: f64) -> f64 {
        let fading = if batches == 0 { 0.0 } else { self.alpha * momentum.ln() * batches as f64 };
        // an empty histogram that does not fade: the largest of both, so never NaN
        f64::max(log + fading, LEAST_LIVE_SIZE.ln())
    }
}

impl Averages {
    /// Averages before the first batch. `alpha` is the exponent of the sizes with `memory: live`, otherwise `None`.
    pub(super) fn new(classes: usize, bins: usize, regions: Regions, alpha: Option<f64>) -> Self {
        let live = alpha.map(|alpha| LiveSizes { alpha, logs: vec![f64::NEG_INFINITY; classes] });
        let widths = first_widths(bins, regions).cycle().take(classes * bins).collect();
        Self { bins, values: vec![0.0; classes * bins], widths, batches: 0, updated: vec![0; classes], live }
    }

    pub(super) fn state(&self) -> AverageState {
        let Self { values, widths, batches, updated, .. } = self.clone();
        AverageState { values, widths, batches, updated }
    }

    /// The averages of a state, if they fit.
    pub(super) fn restored(&self, state: &AverageState) -> Result<Self, StateError> {
        check_length("average.values", state.values.len(), self.values.len())?;
        check_length("average.widths", state.widths.len(), self.widths.len())?;
        check_length("average.updated", state.updated.len(), self.updated.len())?;
        check_densities("average.values", &state.values)?;
        check_widths("average.widths", &state.widths, self.bins)?;
        if let Some(index) = state.updated.iter().position(|batch| *batch > state.batches) {
            return Err(StateError::Value { field: "average.updated", index, want: "at most the number of batches" });
        }
        let AverageState { values, widths, batches, updated } = state.clone();
        let mut averages = Self { bins: self.bins, values, widths, batches, updated, live: self.live.clone() };
        averages.rebuild_sizes();
        Ok(averages)
    }

    /// Recomputes the sizes from the densities.
    fn rebuild_sizes(&mut self) {
        if let Some(LiveSizes { alpha, logs }) = &mut self.live {
            let classes = self.values.chunks_exact(self.bins).zip(self.widths.chunks_exact(self.bins));
            logs.clear();
            logs.extend(classes.map(|(values, widths)| log_size(values, widths, *alpha)));
        }
    }

    /// ln S of a class now.
    pub(super) fn log_size(&self, class: usize, momentum: f64) -> f64 {
        let live = self.live.as_ref();
        live.map_or(0.0, |live| live.faded(live.logs[class], self.batches - self.updated[class], momentum))
    }

    /// ln S of every class now.
    pub(super) fn log_sizes(&self, momentum: f64) -> impl Iterator<Item = f64> {
        (0..self.updated.len()).map(move |class| self.log_size(class, momentum))
    }

    /// ln S of every class once the batch in `workspace` is counted.
    pub(super) fn log_sizes_with(&self, workspace: &Workspace, momentum: f64) -> impl Iterator<Item = f64> {
        let mut counted = workspace.classes.iter().zip(workspace.mass.chunks_exact(self.bins)).peekable();
        (0..self.updated.len()).map(move |class| {
            let Some(live) = &self.live else { return 0.0 };
            match counted.next_if(|(c, _)| **c as usize == class) {
                Some((_, values)) => {
                    let widths = &self.widths[class * self.bins..][..self.bins];
                    live.faded(log_size(values, widths, live.alpha), 0, momentum)
                }
                None => live.faded(live.logs[class], self.batches + 1 - self.updated[class], momentum),
            }
        })
    }

    /// What is left of a class's densities when the next batch is counted, apart from that batch.
    fn left(&self, class: usize, momentum: f64) -> f64 {
        power(momentum, if self.live.is_some() { self.batches + 1 - self.updated[class] } else { 1 })
    }

    /// What is left of a class's densities now, if they are live.
    pub(super) fn left_now(&self, class: usize, momentum: f64) -> f64 {
        power(momentum, self.batches - self.updated[class])
    }

    /// Computes the densities of the batch's classes once it is counted: `workspace.classes` lists the classes in order,
    /// `workspace.mass` holds their densities.
    pub(super) fn absorb(&self, workspace: &mut Workspace, momentum: f64, norm: impl Fn(&LabelTerm) -> f64) {
        let bins = self.bins;
        workspace.classes.clear();
        workspace.classes.extend(workspace.rows.iter().flat_map(Row::terms).map(|term| term.label as u32));
        workspace.classes.sort_unstable();
        workspace.classes.dedup();
        // examples per class and region in this batch; mixed ones are not counted
        workspace.gains.clear();
        workspace.gains.resize(workspace.classes.len() * bins, 0.0);
        for row in workspace.rows.iter().filter(|row| row.count == 1) {
            let (k, widths) = self.find(&workspace.classes, row.terms[0].label);
            workspace.gains[k * bins + region(widths, norm(&row.terms[0]))] += 1.0;
        }
        workspace.mass.clear();
        for (&class, counts) in workspace.classes.iter().zip(workspace.gains.chunks_exact(bins)) {
            let at = class as usize * bins;
            let (values, widths) = (&self.values[at..at + bins], &self.widths[at..at + bins]);
            if self.live.is_none() && counts.iter().all(|k| *k == 0.0) {
                workspace.mass.extend_from_slice(values);
                continue;
            }
            let left = self.left(class as usize, momentum);
            let density = counts.iter().zip(widths).map(|(k, d)| k / (bins as f64 * d));
            workspace.mass.extend(values.iter().zip(density).map(|(v, now)| left * v + (1.0 - momentum) * now));
        }
    }

    /// Sets the weight of every term from the densities in `workspace`.
    pub(super) fn weigh(&self, workspace: &mut Workspace, scale: &Scale, norm: impl Fn(&LabelTerm) -> f64) {
        let bins = self.bins;
        for (k, &class) in workspace.classes.iter().enumerate() {
            let cells = k * bins..(k + 1) * bins;
            let widths = &self.widths[class as usize * bins..][..bins];
            scale.weights(&workspace.mass[cells.clone()], widths, &mut workspace.gains[cells]);
        }
        for term in workspace.rows.iter_mut().flat_map(Row::terms_mut) {
            let (k, widths) = self.find(&workspace.classes, term.label);
            term.weighted.weight = workspace.gains[k * bins + region(widths, norm(term))];
        }
    }

    /// The position of a class in the batch's list, and the widths of its regions.
    fn find(&self, classes: &[u32], class: usize) -> (usize, &[f64]) {
        let k = classes.partition_point(|c| (*c as usize) < class);
        (k, &self.widths[class * self.bins..][..self.bins])
    }

    /// Keeps the densities of `workspace` and returns how many more regions are non-empty now.
    pub(super) fn put(&mut self, workspace: &Workspace) -> i64 {
        let mut more = 0;
        self.batches += 1;
        for (&class, values) in workspace.classes.iter().zip(workspace.mass.chunks_exact(self.bins)) {
            self.updated[class as usize] = self.batches;
            if let Some(live) = &mut self.live {
                let widths = &self.widths[class as usize * self.bins..][..self.bins];
                live.logs[class as usize] = log_size(values, widths, live.alpha);
            }
            for (old, new) in self.values[class as usize * self.bins..].iter_mut().zip(values) {
                more += i64::from(*new > 0.0) - i64::from(*old > 0.0);
                *old = *new;
            }
        }
        more
    }

    /// Lets the densities of all classes fade to what they are now, with `memory: live`.
    fn fade_all(&mut self, momentum: f64) {
        if self.live.is_none() {
            return;
        }
        for (values, updated) in self.values.chunks_exact_mut(self.bins).zip(&mut self.updated) {
            let left = power(momentum, self.batches - *updated);
            values.iter_mut().for_each(|v| *v *= left);
            *updated = self.batches;
        }
    }

    /// AURA between epochs: examples move from old regions to new ones by overlap.
    pub(super) fn recut(&mut self, momentum: f64) {
        let bins = self.bins;
        self.fade_all(momentum);
        let mut cut_widths = vec![0.0; bins];
        for (values, widths) in self.values.chunks_exact_mut(bins).zip(self.widths.chunks_exact_mut(bins)) {
            if values.iter().all(|v| *v == 0.0) {
                continue;
            }
            cut(values, &mut cut_widths);
            let new = overlap(values, widths, &cut_widths);
            values.copy_from_slice(&new);
            widths.copy_from_slice(&cut_widths);
        }
        self.rebuild_sizes();
    }
}

/// Densities over regions of widths `to` of a distribution that is even within each region of widths `from`.
fn overlap(values: &[f64], from: &[f64], to: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; to.len()];
    let (mut i, mut j, mut position) = (0, 0, 0.0);
    let (mut end_i, mut end_j) = (from[0], to[0]);
    loop {
        let end = f64::min(end_i, end_j);
        // v d is the region's share of the examples over N, so a piece of it carries v times its length
        out[j] += values[i] * f64::max(end - position, 0.0);
        position = end;
        if end_i <= end_j {
            i += 1;
            if i == from.len() {
                break;
            }
            end_i += from[i];
        } else {
            j += 1;
            if j == to.len() {
                // rounding left a sliver of the last regions: it belongs to the last one
                j -= 1;
                end_j = f64::INFINITY;
            } else {
                end_j += to[j];
            }
        }
    }
    out.iter_mut().zip(to).for_each(|(v, d)| *v /= d);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_half_open_and_the_last_one_closed() {
        let widths = [0.25, 0.25, 0.5];
        let cases = [(0.0, 0), (0.2499, 0), (0.25, 1), (0.4999, 1), (0.5, 2), (1.0, 2), (1.5, 2)];
        for (g, want) in cases {
            assert_eq!(region(&widths, g), want, "g = {g}");
        }
    }

    #[test]
    fn a_full_region_becomes_narrow_and_widths_add_up_to_one() {
        let mut widths = [0.0; 3];
        cut(&[0.0, 10.0, 1000.0], &mut widths);
        assert!(widths[0] > widths[1] && widths[1] > widths[2]);
        assert!((widths.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        // 1 / ln(e + v): 1, 0.393..., 0.1447...
        let ratio = (std::f64::consts::E + 10.0).ln();
        assert!((widths[0] / widths[1] - ratio).abs() < 1e-12);
    }

    #[test]
    fn overlap_keeps_the_examples() {
        let (from, to) = ([0.5, 0.25, 0.25], [0.1, 0.6, 0.3]);
        let values = [2.0, 8.0, 4.0];
        let new = overlap(&values, &from, &to);
        // 0.1 x 2; 0.4 x 2 + 0.2 x 8; 0.05 x 8 + 0.25 x 4, each over its width
        let want = [2.0, (0.8 + 1.6) / 0.6, (0.4 + 1.0) / 0.3];
        for (got, want) in new.iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{new:?}");
        }
        assert_eq!(overlap(&values, &from, &from), values);
    }
}
