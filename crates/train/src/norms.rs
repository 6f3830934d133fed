//! The gradient norms that a run's examples have while they are trained on, whatever the criterion: what the method of the
//! paper is made from, kept to be looked at.

use equipoise_criterion::Criterion;
use equipoise_record::{Norms, Regions, View};
use serde::{Deserialize, Serialize};

/// Bins of the gradient norm: a multiple of the paper's 30 regions.
const BINS: usize = 120;
/// One in the fixed point of weights. Sums are integers, so that the number of workers does not change a bit.
const ONE: f64 = (1u64 << 20) as f64;

/// What an epoch has counted so far. A view is a class that is looked at, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Examples, view after view, bin after bin; then the sums of their weights, in fixed point.
    cells: Vec<u64>,
}

/// Looks at a run's gradient norms.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    /// The largest class, a middle one and the smallest one that has images; fewer if these are the same.
    classes: Vec<u32>,
    pub(crate) tally: Tally,
}

impl Observer {
    /// For a training set with these images per class.
    pub(crate) fn new(counts: &[u64]) -> Self {
        let mut order: Vec<u32> = (0..counts.len() as u32).filter(|class| counts[*class as usize] > 0).collect();
        order.sort_by_key(|class| (std::cmp::Reverse(counts[*class as usize]), *class));
        let (middle, last) = (order.len() / 2, order.len().saturating_sub(1));
        let mut places = vec![0, middle, last];
        places.dedup();
        let classes: Vec<u32> = places.into_iter().filter_map(|at| order.get(at).copied()).collect();
        let tally = Tally { cells: vec![0; 2 * BINS * (classes.len() + 1)] };
        Self { classes, tally }
    }

    /// Counts the gradient norms of a batch's examples, with their labels and weights.
    pub(crate) fn add(&mut self, norms: &[f32], labels: &[u32], weights: &[f32]) {
        let half = self.tally.cells.len() / 2;
        for ((norm, &label), weight) in norms.iter().zip(labels).zip(weights) {
            let bin = ((norm * BINS as f32) as usize).min(BINS - 1);
            let weight = (f64::from(*weight) * ONE) as u64;
            let own = self.classes.iter().position(|class| *class == label);
            for view in own.into_iter().chain([self.classes.len()]) {
                let at = view * BINS + bin;
                self.tally.cells[at] += 1;
                self.tally.cells[half + at] = self.tally.cells[half + at].saturating_add(weight);
            }
        }
    }

    /// All counts, to be summed over workers.
    pub(crate) fn cells(&mut self) -> &mut [u64] {
        &mut self.tally.cells
    }

    /// Takes the counts of a checkpoint, if it has them.
    pub(crate) fn restore(&mut self, tally: Option<&Tally>) {
        self.clear();
        if let Some(tally) = tally.filter(|tally| tally.cells.len() == self.tally.cells.len()) {
            self.tally.clone_from(tally);
        }
    }

    fn clear(&mut self) {
        self.tally.cells.fill(0);
    }

    /// What the epoch that has just ended was like; the next one is counted from 0. The criterion has ended it, too.
    pub(crate) fn end_epoch(&mut self, epoch: u64, criterion: &Criterion) -> Norms {
        let half = self.tally.cells.len() / 2;
        let (counts, weights) = self.tally.cells.split_at(half);
        let views = counts.chunks_exact(BINS).zip(weights.chunks_exact(BINS)).enumerate();
        let views = views.map(|(view, (counts, weights))| {
            let class = self.classes.get(view).copied();
            let mean = |(k, sum): (&u64, &u64)| (*k > 0).then(|| (*sum as f64 / ONE / *k as f64) as f32);
            let regions = class.and_then(|class| criterion.class_histogram(class as usize)).map(|histogram| Regions {
                size: histogram.effective_size,
                widths: histogram.widths,
                values: histogram.densities,
                weights: histogram.weights,
            });
            View { class, counts: counts.to_vec(), weights: counts.iter().zip(weights).map(mean).collect(), regions }
        });
        let views = views.collect();
        let margin = |label: &u32, class: &u32| criterion.margin(*label as usize, *class as usize);
        let row = |label: &u32| self.classes.iter().map(|class| margin(label, class)).collect::<Option<Vec<f64>>>();
        let margins = self.classes.iter().map(row).collect::<Option<Vec<_>>>().unwrap_or_default();
        self.clear();
        Norms { epoch, views, margins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_criterion::{Config, Id, Preset};

    fn criterion(id: Id, counts: &[u64]) -> Criterion {
        Config::from(id.preset(Preset::Reference)).init(counts).expect("valid")
    }

    #[test]
    fn head_middle_and_tail_are_different_classes_with_images() {
        let classes = |counts: &[u64]| Observer::new(counts).classes;
        assert_eq!(classes(&[5, 50, 0, 9, 7]), [1, 4, 0]);
        assert_eq!(classes(&[5, 50]), [1, 0]);
        assert_eq!(classes(&[5, 0]), [0]);
        assert_eq!(classes(&[3, 3, 3, 3]), [0, 2, 3]);
    }

    #[test]
    fn examples_are_counted_by_class_and_in_all() {
        let mut observer = Observer::new(&[100, 10, 1]);
        observer.add(&[2.0 / 3.0, 2.0 / 3.0, 0.0], &[0, 2, 1], &[0.5, 3.0, 1.0]);
        let norms = observer.end_epoch(7, &criterion(Id::Softmax, &[100, 10, 1]));
        assert_eq!((norms.epoch, norms.views.len(), norms.margins.len()), (7, 4, 0));
        let found = |view: &View| -> Vec<(usize, u64, Option<f32>)> {
            let cells = view.counts.iter().zip(&view.weights).enumerate();
            cells.filter(|(_, (k, _))| **k > 0).map(|(bin, (k, w))| (bin, *k, *w)).collect()
        };
        let at = 2 * BINS / 3;
        assert_eq!(norms.views.iter().map(|view| view.class).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), None]);
        assert_eq!(found(&norms.views[0]), [(at, 1, Some(0.5))]);
        assert_eq!(found(&norms.views[1]), [(0, 1, Some(1.0))]);
        assert_eq!(found(&norms.views[2]), [(at, 1, Some(3.0))]);
        assert_eq!(found(&norms.views[3]), [(0, 1, Some(1.0)), (at, 2, Some(1.75))]);
        assert!(norms.views.iter().all(|view| view.regions.is_none()));
        let empty = observer.end_epoch(8, &criterion(Id::Softmax, &[100, 10, 1]));
        assert!(empty.views.iter().all(|view| view.counts.iter().sum::<u64>() == 0));
    }

    #[test]
    fn cwap_shows_its_regions_and_margins() {
        let counts = [400, 40, 4];
        let mut observer = Observer::new(&counts);
        let norms = observer.end_epoch(1, &criterion(Id::Cwap, &counts));
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
