//! The content of event files: an epoch's scalars by group, and histograms of gradient norms and weights.

use equipoise_record::{EpochRecord, EpochTime, GradientNorms, Metrics, NormView};

use super::{EventWriter, HistogramBin};

/// Number of bins in a histogram of weights.
const WEIGHT_BINS: usize = 30;

impl EventWriter {
    /// Adds an epoch with its gradient norms and its duration, as far as they are known. `now` is used where no time
    /// was recorded, in seconds since 1970.
    pub fn epoch(&mut self, epoch: &EpochRecord, norms: Option<&GradientNorms>, time: Option<&EpochTime>, now: f64) {
        let (step, at) = (epoch.epoch, time.map_or(now, |time| time.ended_at));
        let mut scalars =
            vec![("training/loss".to_owned(), epoch.loss), ("training/learning rate".to_owned(), epoch.learning_rate)];
        if let Some(time) = time {
            scalars.push(("training/images per second".to_owned(), time.images_per_second));
        }
        for (split, metrics) in [("test", &epoch.test), ("validation", &epoch.val)] {
            let Some(metrics) = metrics else { continue };
            scalars.extend(metric_scalars(metrics).into_iter().map(|(name, value)| (format!("{split}/{name}"), value)));
        }
        self.scalars(at, step, scalars);
        for (view, name) in norms.iter().flat_map(|norms| named(&norms.views)) {
            self.histogram(at, step, &format!("gradient norm/{name}"), &norm_bins(view));
            self.histogram(at, step, &format!("weight/{name}"), &weight_bins(view));
        }
    }
}

/// Metrics that have a value, by name. All but the loss are percentages.
fn metric_scalars(metrics: &Metrics) -> Vec<(String, f64)> {
    let totals = [
        ("overall", metrics.top1),
        ("balanced", metrics.balanced),
        ("calibration error", metrics.calibration),
        ("loss", metrics.loss),
    ];
    let totals = totals.into_iter().map(|(name, value)| (name.to_owned(), value));
    let groups = metrics.groups.iter().map(|group| (group.name.clone(), group.accuracy));
    groups.chain(totals).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Views with their names: from the largest class to the smallest, then all classes.
fn named(views: &[NormView]) -> impl Iterator<Item = (&NormView, &'static str)> {
    let classes = views.iter().filter(|view| view.class.is_some()).count();
    views.iter().enumerate().map(move |(index, view)| {
        let name = match (view.class, index) {
            (None, _) => "all",
            (_, 0) => "head",
            (_, index) if index + 1 == classes => "tail",
            _ => "middle",
        };
        (view, name)
    })
}

/// Examples by gradient norm.
fn norm_bins(view: &NormView) -> Vec<HistogramBin> {
    let width = 1.0 / view.counts.len().max(1) as f64;
    let bin = |(index, count): (usize, &u64)| HistogramBin {
        left: index as f64 * width,
        right: (index + 1) as f64 * width,
        count: *count as f64,
    };
    view.counts.iter().enumerate().map(bin).collect()
}

/// Examples by weight. Each example counts with the mean weight of its bin of gradient norms.
fn weight_bins(view: &NormView) -> Vec<HistogramBin> {
    let weighted = view.counts.iter().zip(&view.weights);
    let weighted: Vec<(f64, f64)> = weighted.filter_map(|(n, w)| Some((f64::from((*w)?), *n as f64))).collect();
    if weighted.is_empty() {
        return Vec::new();
    }
    let (low, high) =
        weighted.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (w, _)| (low.min(*w), high.max(*w)));
    let width = ((high - low) / WEIGHT_BINS as f64).max(f64::MIN_POSITIVE);
    let bin = |index: usize| HistogramBin {
        left: low + index as f64 * width,
        right: low + (index + 1) as f64 * width,
        count: 0.0,
    };
    let mut bins: Vec<HistogramBin> = (0..WEIGHT_BINS).map(bin).collect();
    for (weight, count) in weighted {
        let index = (((weight - low) / width) as usize).min(WEIGHT_BINS - 1);
        bins[index].count += count;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(class: Option<u32>, counts: &[u64], weights: &[Option<f32>]) -> NormView {
        NormView { class, counts: counts.to_vec(), weights: weights.to_vec(), regions: None }
    }

    #[test]
    fn bins_by_hand() {
        let view = view(Some(3), &[2, 0, 6, 1], &[Some(1.0), None, Some(2.0), Some(31.0)]);
        let norms = norm_bins(&view);
        assert_eq!(norms[2], HistogramBin { left: 0.5, right: 0.75, count: 6.0 });
        let weights = weight_bins(&view);
        assert_eq!(weights.len(), WEIGHT_BINS);
        // bins of width 1 from 1 to 31
        assert_eq!(weights[0], HistogramBin { left: 1.0, right: 2.0, count: 2.0 });
        assert_eq!(weights[1], HistogramBin { left: 2.0, right: 3.0, count: 6.0 });
        assert_eq!(weights[29], HistogramBin { left: 30.0, right: 31.0, count: 1.0 });
        assert_eq!(weights.iter().map(|bin| bin.count).sum::<f64>(), 9.0);
    }

    #[test]
    fn equal_weights_and_no_weights() {
        let equal = weight_bins(&view(None, &[4, 5], &[Some(1.0), Some(1.0)]));
        assert_eq!(equal.iter().map(|bin| bin.count).sum::<f64>(), 9.0);
        assert!(weight_bins(&view(None, &[0, 0], &[None, None])).is_empty());
    }

    #[test]
    fn views_are_named_by_size() {
        let views =
            |n: u32| -> Vec<NormView> { (0..n).map(Some).chain([None]).map(|class| view(class, &[], &[])).collect() };
        let names = |n: u32| named(&views(n)).map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(3), ["head", "middle", "tail", "all"]);
        assert_eq!(names(2), ["head", "tail", "all"]);
        assert_eq!(names(1), ["head", "all"]);
    }
}
