//! Rejecting values that no evaluation can have produced, so that a damaged file never becomes a plausible table.

use equipoise_record::names::{CALIBRATION, DETAILS, METRICS, RESULT};
use equipoise_record::{Calibration, EvaluationDetails, Metrics};

use super::{RecordedRun, ReportError};

impl RecordedRun {
    /// Checks that every metric, probability and count lies in its range.
    pub(super) fn check(&self) -> Result<(), ReportError> {
        let fail = |name: &str, what: String| Err(ReportError::Format { path: self.path.join(name), what });
        let mut results = self.result.iter().flat_map(|result| result.last.iter().chain(&result.best));
        if !results.all(|evaluation| is_plausible(&evaluation.metrics)) {
            return fail(RESULT, "a metric is out of range".to_owned());
        }
        let epoch = self.epochs.iter().find(|epoch| !epoch.val.iter().chain(&epoch.test).all(is_plausible));
        if let Some(epoch) = epoch {
            return fail(METRICS, format!("epoch {}: a metric is out of range", epoch.epoch));
        }
        if !self.calibration.iter().all(is_plausible_calibration) {
            return fail(CALIBRATION, "a probability or count is out of range".to_owned());
        }
        match self.details.iter().all(has_plausible_details) {
            true => Ok(()),
            false => fail(DETAILS, "a probability or count is out of range".to_owned()),
        }
    }
}

fn is_plausible(metrics: &Metrics) -> bool {
    let is_percentage = |x: Option<f64>| x.is_none_or(|x| (0.0..=100.0 + 1e-9).contains(&x));
    let totals = [metrics.top1, metrics.top5, metrics.balanced, metrics.macro_f1, metrics.calibration];
    let groups = metrics.groups.iter().map(|group| group.accuracy);
    metrics.loss.is_none_or(f64::is_finite)
        && metrics.per_class.iter().all(|class| class.hits <= class.test)
        && totals.into_iter().chain(groups).all(is_percentage)
}

fn is_plausible_calibration(calibration: &Calibration) -> bool {
    let is_probability = |x: f64| (0.0..=1.0 + 1e-9).contains(&x);
    let figures = calibration.test.iter().flat_map(|test| [&test.before, &test.after]);
    let sets = calibration.decisions.sets.iter();
    let rejections = calibration.decisions.rejections.iter();
    sets.into_iter()
        .all(|sets| is_probability(sets.alpha) && sets.classes.iter().all(|[images, covered, _]| covered <= images))
        && rejections.into_iter().all(|rejections| {
            let is_possible = |[right, lost, wrong, caught]: &[u64; 4]| lost <= right && caught <= wrong;
            is_probability(rejections.rate) && rejections.classes.iter().all(is_possible)
        })
        && calibration.temperature.is_finite()
        && calibration.temperature > 0.0
        && figures.into_iter().all(|figures| {
            let bins = figures.reliability.iter().flatten();
            bins.into_iter().all(|bin| is_probability(bin.confidence) && bin.hits <= bin.images)
                && figures
                    .classes
                    .iter()
                    .all(|c| is_probability(c.confidence) && c.hits <= c.images && c.loss.is_finite())
        })
}

fn has_plausible_details(details: &EvaluationDetails) -> bool {
    let is_probability = |x: f64| (0.0..=1.0 + 1e-9).contains(&x);
    let is_percentage = |x: &Option<f64>| x.is_none_or(|x| (0.0..=100.0 + 1e-9).contains(&x));
    let sweep = details.sweep.iter().flat_map(|point| point.groups.iter().chain([&point.top1, &point.balanced]));
    sweep.into_iter().all(is_percentage)
        && details
            .hardest
            .iter()
            .all(|image| is_probability(image.confidence) && is_probability(image.true_probability))
        && details.reliability.iter().flatten().all(|bin| is_probability(bin.confidence) && bin.hits <= bin.images)
}
