//! Histograms of the gradient norms that a run's examples have in training, for every criterion: what the paper's method is
//! built on, recorded for the report.

use equipoise_criterion::{Criterion, Mixed};
use equipoise_record::{GradientNorms, NormRegions, NormView};
use serde::{Deserialize, Serialize};

/// Bins of the gradient norm: a multiple of the paper's 30 regions.
const BINS: usize = 120;
/// The number one in the fixed point of weights. Sums are integers, so that they do not depend on the order.
const ONE: f64 = (1u64 << 20) as f64;

/// Counts of the epoch so far: a histogram for each view. A view is one class, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NormHistogram {
    /// Examples of each view and bin; then, in the same order, the sums of their weights in fixed point.
    cells: Vec<u64>,
}

/// Records the gradient norms of a run.
#[derive(Clone, Debug)]
pub(crate) struct NormRecorder {
    /// The largest class, a middle one and the smallest one that has images; fewer if these coincide.
    classes: Vec<u32>,
    histogram: NormHistogram,
}

impl NormRecorder {
    /// A recorder for a training split with these images per class.
    pub(crate) fn new(counts: &[u64]) -> Self {
        let mut order: Vec<u32> = (0..counts.len() as u32).filter(|class| counts[*class as usize] > 0).collect();
        order.sort_by_key(|class| (std::cmp::Reverse(counts[*class as usize]), *class));
        let (middle, last) = (order.len() / 2, order.len().saturating_sub(1));
        let mut ranks = vec![0, middle, last];
        ranks.dedup();
        let classes: Vec<u32> = ranks.into_iter().filter_map(|rank| order.get(rank).copied()).collect();
        let histogram = NormHistogram { cells: vec![0; 2 * BINS * (classes.len() + 1)] };
        Self { classes, histogram }
    }

    /// Counts the gradient norms of a batch's examples, with their labels and weights. Mixtures of two images are not counted.
    pub(crate) fn add(&mut self, norms: &[f32], labels: &[u32], weights: &[f32], mixed: Option<Mixed<'_>>) {
        let (counts, sums) = self.histogram.halves();
        for (row, ((norm, &label), weight)) in norms.iter().zip(labels).zip(weights).enumerate() {
            if mixed.is_some_and(|mixed| mixed.is_mixture(row)) {
                continue;
            }
            let bin = ((norm * BINS as f32) as usize).min(BINS - 1);
            let weight = (f64::from(*weight) * ONE) as u64;
            let class_view = self.classes.iter().position(|class| *class == label);
            for view in class_view.into_iter().chain([self.classes.len()]) {
                let cell = view * BINS + bin;
                counts[cell] += 1;
                sums[cell] = sums[cell].saturating_add(weight);
            }
        }
    }

    /// The counts of the epoch so far.
    pub(crate) fn histogram(&self) -> &NormHistogram {
        &self.histogram
    }

    /// Continues from the counts of a checkpoint, unless they are for other classes.
    pub(crate) fn restore(&mut self, histogram: &NormHistogram) {
        self.histogram.cells.fill(0);
        if histogram.cells.len() == self.histogram.cells.len() {
            self.histogram.clone_from(histogram);
        }
    }

    /// The gradient norms of the epoch, which the criterion has already ended. Starts the next epoch from 0.
    pub(crate) fn end_epoch(&mut self, epoch: u64, criterion: &Criterion) -> GradientNorms {
        let views = self.views(criterion);
        self.histogram.cells.fill(0);
        GradientNorms { epoch, views, margins: self.margins(criterion) }
    }

    fn views(&mut self, criterion: &Criterion) -> Vec<NormView> {
        let (counts, sums) = self.histogram.halves();
        let views = counts.chunks_exact(BINS).zip(sums.chunks_exact(BINS)).enumerate();
        let views = views.map(|(view, (counts, sums))| {
            let class = self.classes.get(view).copied();
            let mean = |(n, sum): (&u64, &u64)| (*n > 0).then(|| (*sum as f64 / ONE / *n as f64) as f32);
            let regions =
                class.and_then(|class| criterion.class_histogram(class as usize)).map(|histogram| NormRegions {
                    size: histogram.effective_size,
                    widths: histogram.widths,
                    densities: histogram.densities,
                    weights: histogram.weights,
                });
            NormView { class, counts: counts.to_vec(), weights: counts.iter().zip(sums).map(mean).collect(), regions }
        });
        views.collect()
    }

    /// Margins between the recorded classes; empty if the criterion has none.
    fn margins(&self, criterion: &Criterion) -> Vec<Vec<f64>> {
        let margin = |label: &u32, class: &u32| criterion.margin(*label as usize, *class as usize);
        let row = |label: &u32| self.classes.iter().map(|class| margin(label, class)).collect::<Option<Vec<f64>>>();
        self.classes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}

impl NormHistogram {
    /// Counts, and sums of the weights.
    fn halves(&mut self) -> (&mut [u64], &mut [u64]) {
        let half = self.cells.len() / 2;
        self.cells.split_at_mut(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_criterion::{Config, Id, Preset};

    fn criterion(id: Id, counts: &[u64]) -> Criterion {
        Config::from(id.preset(Preset::Printed)).init(counts).expect("valid")
    }

    #[test]
    fn the_recorded_classes_are_distinct_and_have_images() {
        let classes = |counts: &[u64]| NormRecorder::new(counts).classes;
        assert_eq!(classes(&[5, 50, 0, 9, 7]), [1, 4, 0]);
        assert_eq!(classes(&[5, 50]), [1, 0]);
        assert_eq!(classes(&[5, 0]), [0]);
        assert_eq!(classes(&[3, 3, 3, 3]), [0, 2, 3]);
    }

    #[test]
    fn examples_are_counted_by_class_and_in_all() {
        let mut recorder = NormRecorder::new(&[100, 10, 1]);
        let mixed = Mixed { labels: &[0, 0, 0, 1, 1], share: &[1.0, 1.0, 1.0, 0.5, 0.0] };
        recorder.add(&[2.0 / 3.0, 2.0 / 3.0, 0.0, 0.5, 0.5], &[0, 2, 1, 0, 0], &[0.5, 3.0, 1.0, 1.0, 1.0], Some(mixed));
        let norms = recorder.end_epoch(7, &criterion(Id::Softmax, &[100, 10, 1]));
        assert_eq!((norms.epoch, norms.views.len(), norms.margins.len()), (7, 4, 0));
        let nonempty = |view: &NormView| -> Vec<(usize, u64, Option<f32>)> {
            let cells = view.counts.iter().zip(&view.weights).enumerate();
            cells.filter(|(_, (k, _))| **k > 0).map(|(bin, (k, w))| (bin, *k, *w)).collect()
        };
        let bin = 2 * BINS / 3;
        assert_eq!(norms.views.iter().map(|view| view.class).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), None]);
        assert_eq!(nonempty(&norms.views[0]), [(bin, 1, Some(0.5))]);
        assert_eq!(nonempty(&norms.views[1]), [(0, 1, Some(1.0))]);
        assert_eq!(nonempty(&norms.views[2]), [(bin, 1, Some(3.0))]);
        assert_eq!(nonempty(&norms.views[3]), [(0, 1, Some(1.0)), (bin, 2, Some(1.75))]);
        assert!(norms.views.iter().all(|view| view.regions.is_none()));
        let empty = recorder.end_epoch(8, &criterion(Id::Softmax, &[100, 10, 1]));
        assert!(empty.views.iter().all(|view| view.counts.iter().sum::<u64>() == 0));
    }

    #[test]
    fn cwap_reports_its_regions_and_margins() {
        let counts = [400, 40, 4];
        let mut recorder = NormRecorder::new(&counts);
        let norms = recorder.end_epoch(1, &criterion(Id::Cwap, &counts));
        let sizes: Vec<f64> = norms.views.iter().filter_map(|view| Some(view.regions.as_ref()?.size)).collect();
        assert_eq!(sizes.len(), 3);
        // gamma ln min(1, S_n / S_m)
        let margin = |m: usize, n: usize| 0.8 * (sizes[n] / sizes[m]).min(1.0).ln();
        for (m, row) in norms.margins.iter().enumerate() {
            for (n, got) in row.iter().enumerate() {
                assert!((got - margin(m, n)).abs() < 1e-6, "{m} {n}: {got}");
            }
        }
        assert!(norms.margins[0][2] < -2.0 && norms.margins[2][0] == 0.0);
    }
}
