//! A run's epochs as TensorBoard shows them: scalars by group, histograms of gradient norms and weights.

use equipoise_record::{EpochRecord, EpochTime, GradientNorms, Metrics, NormView};

use crate::tensorboard::{Bucket, Events};

/// Bars of a histogram of weights.
const BARS: usize = 30;

/// Adds an epoch, and what is known beside its metrics. `now` is the time where none was noted, in seconds since 1970.
pub fn add(
    events: &mut Events,
    epoch: &EpochRecord,
    norms: Option<&GradientNorms>,
    time: Option<&EpochTime>,
    now: f64,
) {
    let (step, at) = (epoch.epoch, time.map_or(now, |time| time.ended_at));
    let mut scalars =
        vec![("training/loss".to_owned(), epoch.loss), ("training/learning rate".to_owned(), epoch.learning_rate)];
    if let Some(time) = time {
        scalars.push(("training/images per second".to_owned(), time.images_per_second));
    }
    for (part, metrics) in [("test", &epoch.test), ("validation", &epoch.val)] {
        let Some(metrics) = metrics else { continue };
        scalars.extend(figures(metrics).into_iter().map(|(name, value)| (format!("{part}/{name}"), value)));
    }
    events.scalars(at, step, scalars);
    for (view, name) in norms.iter().flat_map(|norms| named(&norms.views)) {
        events.histogram(at, step, &format!("gradient norm/{name}"), &norms_of(view));
        events.histogram(at, step, &format!("weight/{name}"), &weights_of(view));
    }
}

/// What an evaluation found, as far as it is there; in percent, but for the loss.
fn figures(metrics: &Metrics) -> Vec<(String, f64)> {
    let whole = [
        ("overall", metrics.top1),
        ("balanced", metrics.balanced),
        ("calibration error", metrics.calibration),
        ("loss", metrics.loss),
    ];
    let whole = whole.into_iter().map(|(name, value)| (name.to_owned(), value));
    let groups = metrics.groups.iter().map(|group| (group.name.clone(), group.accuracy));
    groups.chain(whole).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Views with their names: from the largest class to the smallest, then all.
pub fn named(views: &[NormView]) -> impl Iterator<Item = (&NormView, &'static str)> {
    let classes = views.iter().filter(|view| view.class.is_some()).count();
    views.iter().enumerate().map(move |(number, view)| {
        let name = match (view.class, number) {
            (None, _) => "all",
            (_, 0) => "head",
            (_, number) if number + 1 == classes => "tail",
            _ => "middle",
        };
        (view, name)
    })
}

fn norms_of(view: &NormView) -> Vec<Bucket> {
    let width = 1.0 / view.counts.len().max(1) as f64;
    let bar = |(bin, count): (usize, &u64)| Bucket {
        left: bin as f64 * width,
        right: (bin + 1) as f64 * width,
        count: *count as f64,
    };
    view.counts.iter().enumerate().map(bar).collect()
}

/// Examples by weight. Those of a bin of gradient norms all count with their mean.
fn weights_of(view: &NormView) -> Vec<Bucket> {
    let seen = view.counts.iter().zip(&view.weights);
    let seen: Vec<(f64, f64)> = seen.filter_map(|(k, w)| Some((f64::from((*w)?), *k as f64))).collect();
    let (low, high) =
        seen.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (w, _)| (low.min(*w), high.max(*w)));
    if seen.is_empty() {
        return Vec::new();
    }
    let width = ((high - low) / BARS as f64).max(f64::MIN_POSITIVE);
    let mut bars: Vec<Bucket> = (0..BARS)
        .map(|bar| Bucket { left: low + bar as f64 * width, right: low + (bar + 1) as f64 * width, count: 0.0 })
        .collect();
    for (weight, count) in seen {
        let bar = (((weight - low) / width) as usize).min(BARS - 1);
        bars[bar].count += count;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(class: Option<u32>, counts: &[u64], weights: &[Option<f32>]) -> NormView {
        NormView { class, counts: counts.to_vec(), weights: weights.to_vec(), regions: None }
    }

    #[test]
    fn bars_by_hand() {
        let view = view(Some(3), &[2, 0, 6, 1], &[Some(1.0), None, Some(2.0), Some(31.0)]);
        let norms = norms_of(&view);
        assert_eq!(norms[2], Bucket { left: 0.5, right: 0.75, count: 6.0 });
        let weights = weights_of(&view);
        assert_eq!(weights.len(), BARS);
        // bars of width 1 from 1 to 31
        assert_eq!(weights[0], Bucket { left: 1.0, right: 2.0, count: 2.0 });
        assert_eq!(weights[1], Bucket { left: 2.0, right: 3.0, count: 6.0 });
        assert_eq!(weights[29], Bucket { left: 30.0, right: 31.0, count: 1.0 });
        assert_eq!(weights.iter().map(|bar| bar.count).sum::<f64>(), 9.0);
    }

    #[test]
    fn all_alike_or_nothing_at_all() {
        let alike = weights_of(&view(None, &[4, 5], &[Some(1.0), Some(1.0)]));
        assert_eq!(alike.iter().map(|bar| bar.count).sum::<f64>(), 9.0);
        assert!(weights_of(&view(None, &[0, 0], &[None, None])).is_empty());
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
