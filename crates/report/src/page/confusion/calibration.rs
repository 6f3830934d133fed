//! Reliability diagrams by group.

use equipoise_record::{EvaluationDetails, ReliabilityBin};

use crate::chart::{Area, Axis, Panel, marker, px, svg};
use crate::escape::{escape, put, short, short_name};
use crate::page::Article;
use crate::page::elements::figure;
use crate::page::words::plural;

/// The subsection; empty without predictions.
pub(super) fn subsection(article: &Article<'_>, by_variant: &[Vec<&EvaluationDetails>]) -> String {
    if by_variant.iter().flatten().all(|details| details.reliability.iter().flatten().all(|bin| bin.images == 0)) {
        return String::new();
    }
    let mut html = article.heading(2, "Calibration");
    html.push_str(&article.comparison.examples().say(
        r#"<p class="lead">How often predictions of similar confidence are correct. On the diagonal, confidence equals accuracy;
        below it, the model is overconfident. Larger markers stand for more images; all seeds together. The expected calibration
        error (ECE) is the mean distance from the diagonal, in percentage points.</p>"#,
    ));
    html.push_str(&article.legend());
    html.push_str(r#"<div class="grid">"#);
    for group in 0..article.comparison.groups.len() {
        let bins: Vec<Vec<&Vec<ReliabilityBin>>> = by_variant
            .iter()
            .map(|runs| runs.iter().filter_map(|details| details.reliability.get(group)).collect())
            .collect();
        html.push_str(&reliability_diagram(article, group, &bins));
    }
    html + "</div>"
}

/// Bins of several runs, merged.
fn merged(runs: &[&Vec<ReliabilityBin>]) -> Vec<ReliabilityBin> {
    let mut bins: Vec<ReliabilityBin> = Vec::new();
    for run in runs {
        bins.resize(bins.len().max(run.len()), ReliabilityBin::default());
        for (sum, bin) in bins.iter_mut().zip(*run) {
            let images = sum.images.saturating_add(bin.images);
            if images > 0 {
                let confidence = sum.confidence * sum.images as f64 + bin.confidence * bin.images as f64;
                *sum = ReliabilityBin {
                    images,
                    hits: sum.hits.saturating_add(bin.hits),
                    confidence: confidence / images as f64,
                };
            }
        }
    }
    bins
}

/// Expected calibration error, in percent; `None` without images.
fn calibration_error(bins: &[ReliabilityBin]) -> Option<f64> {
    let all: f64 = bins.iter().map(|bin| bin.images as f64).sum();
    let distance = |bin: &ReliabilityBin| (bin.hits as f64 - bin.confidence * bin.images as f64).abs();
    (all > 0.0).then(|| 100.0 * bins.iter().filter(|bin| bin.images > 0).map(distance).sum::<f64>() / all)
}

/// Accuracy by confidence of one group, from the bins of every run of every variant; empty without images.
pub(super) fn reliability_diagram(
    article: &Article<'_>,
    group: usize,
    by_variant: &[Vec<&Vec<ReliabilityBin>>],
) -> String {
    let comparison = article.comparison;
    let examples = comparison.examples().many();
    let y = Axis::percent("accuracy, %");
    let area = Area { left: y.label_width(), top: 26.0, right: 328.0, bottom: 216.0 };
    let mut panel = Panel::new(area, Axis::percent("confidence, %"), y);
    panel.line("diagonal", &[(0.0, 0.0), (100.0, 100.0)]);
    let bins: Vec<Vec<ReliabilityBin>> = by_variant.iter().map(|runs| merged(runs)).collect();
    let largest = bins.iter().flatten().map(|bin| bin.images).max().unwrap_or(0).max(1);
    let title = &comparison.groups[group].name;
    let mut alt = vec![format!("Accuracy by confidence on {}", short(title, 60))];
    let mut errors = Vec::new();
    for (variant, bins) in bins.iter().enumerate() {
        let Some(error) = calibration_error(bins) else { continue };
        let attributes = format!(r#"data-variant="{variant}" data-group="{group}" data-ece="{error}""#);
        panel.open(&format!("dots {}", article.style_class(variant)), &attributes);
        draw_bins(&mut panel, article, variant, bins, largest);
        panel.close();
        let label = &comparison.variants[variant].label;
        let images = bins.iter().fold(0u64, |sum, bin| sum.saturating_add(bin.images));
        alt.push(format!("{}: expected calibration error {error:.1} points, {images} {examples}", short(label, 60)));
        errors.push(format!(
            r#"<span class="item {}">{}{} {error:.1}</span>"#,
            article.style_class(variant),
            article.swatch(variant),
            short_name(label, 24)
        ));
    }
    if errors.is_empty() {
        return String::new();
    }
    let (x, y) = (px(panel.x.position(97.0)), px(panel.y.position(3.0)));
    panel.push(&format!(
        r#"<text class="annotation" paint-order="stroke" x="{x}" y="{y}" text-anchor="end">overconfident</text>"#
    ));
    let (alt, attributes) = (alt.join(". ") + ".", r#"tabindex="0" data-hover="marks""#);
    let chart = svg("reliability", (340.0, 254.0), &alt, attributes, &panel.finish());
    figure("", &short_name(title, 40), &chart, &format!("ECE: {}", errors.join(" ")))
}

/// A marker per bin, its area in proportion to the number of images.
fn draw_bins(panel: &mut Panel, article: &Article<'_>, variant: usize, bins: &[ReliabilityBin], largest: u64) {
    let bins = || bins.iter().filter(|bin| bin.images > 0);
    let point = |bin: &ReliabilityBin| (100.0 * bin.confidence, 100.0 * bin.hits as f64 / bin.images as f64);
    panel.line("line thin", &bins().map(point).collect::<Vec<_>>());
    let mut markup = String::new();
    for bin in bins() {
        let (confidence, accuracy) = point(bin);
        let radius = 2.0 + 5.0 * (bin.images as f64 / largest as f64).sqrt();
        let (x, y) = (panel.x.position(confidence), panel.y.position(accuracy));
        let tip = format!(
            "{}\nconfidence {confidence:.1} %, accuracy {accuracy:.1} %\n{}",
            short(&article.comparison.variants[variant].label, 60),
            plural(bin.images as usize, article.comparison.examples().one(), article.comparison.examples().many())
        );
        let dot = marker(article.comparison.style(variant), x, y, radius);
        put!(markup, r#"<path class="dot soft" d="{dot}" data-tip="{}"/>"#, escape(&tip));
    }
    panel.push(&markup);
}
