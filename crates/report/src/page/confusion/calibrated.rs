//! Probabilities before and after calibration.

use equipoise_decide::temperature::{FEWEST_IMAGES, RANGE};
use equipoise_record::{Calibration, ClassProbabilities, ProbabilityFigures, ReliabilityBin, TemperatureFit};

use super::calibration::reliability_diagram;
use crate::escape::{name, put, short_name};
use crate::page::Article;
use crate::page::words::count;
use crate::statistics::tenths;

/// Largest number of classes in the table.
const MAX_CLASSES: usize = 200;

/// The subsection; empty if no run has a calibration.
pub(super) fn subsection(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let fits = |calibration: &&Calibration| {
        calibration.is_fitted()
            && calibration.test.as_ref().is_some_and(|test| {
                [&test.before, &test.after].iter().all(|figures| {
                    figures.classes.len() == comparison.classes.len()
                        && figures.reliability.len() == comparison.groups.len()
                })
            })
    };
    let by_variant: Vec<Vec<&Calibration>> = (0..comparison.variants.len())
        .map(|variant| article.runs(variant).filter_map(|run| run.calibration.as_ref()).filter(fits).collect())
        .collect();
    let unfitted = unfitted(article);
    if by_variant.iter().all(Vec::is_empty) && unfitted.is_empty() {
        return String::new();
    }
    let mut html = article.heading(2, "Calibrated probabilities") + &unfitted;
    if by_variant.iter().all(Vec::is_empty) {
        return html;
    }
    html.push_str(
        r#"<p class="lead">One temperature, fitted on the class-balanced log-loss of images that were not trained on, divides the logits. It does not
        change the predicted classes. The diagrams show the test images with it.</p>"#,
    );
    html.push_str(&totals(article, &by_variant));
    html.push_str(&article.legend());
    html.push_str(r#"<div class="grid">"#);
    for group in 0..comparison.groups.len() {
        let bins: Vec<Vec<&Vec<ReliabilityBin>>> = by_variant
            .iter()
            .map(|runs| runs.iter().filter_map(|run| run.test.as_ref()?.after.reliability.get(group)).collect())
            .collect();
        html.push_str(&reliability_diagram(article, group, &bins));
    }
    html.push_str("</div>");
    html + &classes(article, &by_variant)
}

/// What keeps the probabilities of some runs from being calibrated well.
fn unfitted(article: &Article<'_>) -> String {
    let mut html = String::new();
    for (number, variant) in article.comparison.variants.iter().enumerate() {
        let having = |fit: TemperatureFit| {
            let calibrations = article.runs(number).filter_map(|run| run.calibration.as_ref());
            calibrations.filter(move |calibration| calibration.fit == fit).collect::<Vec<_>>()
        };
        let label = name(&variant.label);
        if let [first, ..] = &having(TemperatureFit::TooFewImages)[..] {
            let (images, source) = (count(first.images.labels.len() as u64), name(&first.source));
            put!(
                html,
                "<p>{label}: no temperature is fitted from {images} images ({source}), it takes {FEWEST_IMAGES}; probabilities are those of \
                 the network.</p>"
            );
        }
        if !having(TemperatureFit::AtBound).is_empty() {
            let [least, most] = RANGE;
            put!(
                html,
                "<p>{label}: the temperature is at an end of its range, {least} to {most}; probabilities remain badly calibrated.</p>"
            );
        }
    }
    html
}

/// Mean of a figure over the runs of a variant.
fn mean(runs: &[&Calibration], value: impl Fn(&Calibration) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The figures before and after, of a run that has them.
fn figures(run: &Calibration) -> [Option<&ProbabilityFigures>; 2] {
    [run.test.as_ref().map(|test| &test.before), run.test.as_ref().map(|test| &test.after)]
}

/// One of the figures about probabilities.
type Figure = fn(&ProbabilityFigures) -> Option<f64>;

fn totals(article: &Article<'_>, by_variant: &[Vec<&Calibration>]) -> String {
    let mut html = r#"<div class="scroll" tabindex="0" role="region" aria-label="Probabilities before and after calibration"><table class="calibration-table"><thead><tr><th scope="col">criterion</th><th scope="col" class="num">temperature</th>"#.to_owned();
    for title in ["cross-entropy", "mean over classes", "ECE, points"] {
        for when in ["before", "after"] {
            put!(html, r#"<th scope="col" class="num">{title}<small>{when}</small></th>"#);
        }
    }
    html.push_str("</tr></thead><tbody>");
    for (variant, runs) in by_variant.iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
        html.push_str(&article.row_start(variant));
        let cell = |value: Option<f64>, decimals: usize| {
            let text = value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.decimals$}"));
            format!(r#"<td class="num">{text}</td>"#)
        };
        html.push_str(&cell(mean(runs, |run| Some(run.temperature)), 3));
        let values: [Figure; 3] = [|f| f.loss, |f| f.balanced_loss, |f| f.calibration];
        for (value, decimals) in values.into_iter().zip([3, 3, 1]) {
            for which in [0, 1] {
                html.push_str(&cell(mean(runs, |run| figures(run)[which].and_then(value)), decimals));
            }
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

/// Accuracy and mean confidence of every class, before and after.
fn classes(article: &Article<'_>, by_variant: &[Vec<&Calibration>]) -> String {
    let comparison = article.comparison;
    let mut html = r#"<details><summary>Every class before and after</summary><div class="scroll tall" tabindex="0" role="region" aria-label="Probabilities of every class"><table><thead><tr><th scope="col">class</th><th scope="col" class="num">test images</th>"#.to_owned();
    let shown: Vec<usize> = (0..by_variant.len()).filter(|variant| !by_variant[*variant].is_empty()).collect();
    for variant in &shown {
        let name = short_name(&comparison.variants[*variant].label, 24);
        for title in ["accuracy, %", "confidence before", "after", "cross-entropy before", "after"] {
            put!(html, r#"<th scope="col" class="num">{name}<small>{title}</small></th>"#);
        }
    }
    html.push_str("</tr></thead><tbody>");
    for (class, _) in comparison.by_size().into_iter().take(MAX_CLASSES) {
        let Some(known) = comparison.classes.get(class) else { continue };
        put!(
            html,
            r#"<tr><th scope="row">{}</th><td class="num">{}</td>"#,
            short_name(&known.name, 60),
            count(known.test)
        );
        for variant in &shown {
            let of = |which: usize, value: &dyn Fn(&ClassProbabilities) -> f64| {
                mean(&by_variant[*variant], |run| {
                    figures(run)[which].map(|f| f.classes[class]).filter(|c| c.images > 0).map(|c| value(&c))
                })
            };
            let accuracy = of(0, &|c| 100.0 * c.hits as f64 / c.images as f64).map(tenths);
            let [before, after] = [0, 1].map(|which| of(which, &|c| 100.0 * c.confidence).map(tenths));
            let [loss, calibrated] = [0, 1].map(|which| of(which, &|c| c.loss).map(|loss| format!("{loss:.3}")));
            for text in [accuracy, before, after, loss, calibrated] {
                put!(html, r#"<td class="num">{}</td>"#, text.unwrap_or_else(|| "n/a".to_owned()));
            }
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    if comparison.classes.len() > MAX_CLASSES {
        put!(
            html,
            r#"<p class="muted">The first {MAX_CLASSES} of {} classes; all are in calibration.json.</p>"#,
            comparison.classes.len()
        );
    }
    html + "</details>"
}
