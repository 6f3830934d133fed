//! Which groups and classes are taken for which, and whether confidence says how often a prediction is right.

use std::collections::BTreeMap;

use equipoise_record::{EvaluationDetails, ReliabilityBin};

use super::{Part, colour, count, figure, several, swatch};
use crate::escape::{escape, name, short, short_name};
use crate::svg::{Area, Axis, Kind, Panel, marker, place, put, svg};

/// Confusions between classes of a variant on the page.
const MOST: usize = 10;

/// The section; none if no run has details.
pub(super) fn section(part: &Part<'_>) -> Option<String> {
    let comparison = part.comparison;
    let fits = |details: &&EvaluationDetails| details.groups.len() == comparison.groups.len();
    let by_variant: Vec<Vec<&EvaluationDetails>> = (0..comparison.variants.len())
        .map(|variant| part.runs(variant).filter_map(|run| run.details.as_ref()).filter(fits).collect())
        .collect();
    if by_variant.iter().all(Vec::is_empty) {
        return None;
    }
    let mut html = String::new();
    html.push_str(&part.heading(2, "Between groups"));
    html.push_str(
        r#"<p class="lead">Of the test images of a group (row), the share in % that was predicted to be of a class of a group (column).
        The diagonal has confusions inside a group, too. Summed over seeds.</p><div class="grid">"#,
    );
    for (variant, details) in by_variant.iter().enumerate().filter(|(_, details)| !details.is_empty()) {
        html.push_str(&figure("", &whose(part, variant), &groups(part, variant, details), ""));
    }
    html.push_str("</div>");
    if by_variant.iter().flatten().any(|details| !details.confused.is_empty()) {
        html.push_str(&part.heading(2, "Between classes"));
        put!(
            html,
            r#"<p class="lead">The {MOST} largest confusions, in test images summed over seeds. A run notes only its largest; one that it has
            not noted counts as none.</p><div class="grid">"#
        );
        for (variant, details) in by_variant.iter().enumerate().filter(|(_, details)| !details.is_empty()) {
            html.push_str(&figure("", &whose(part, variant), &pairs(part, details), ""));
        }
        html.push_str("</div>");
    }
    if by_variant.iter().flatten().any(|details| details.reliability.iter().flatten().any(|bin| bin.images > 0)) {
        html.push_str(&part.heading(2, "Calibration"));
        html.push_str(
            r#"<p class="lead">How often predictions of about the same confidence are right. On the diagonal confidence can be taken at its
            word; below it the network is too sure. Larger marks stand for more images; all seeds together. The expected calibration
            error (ECE) is the mean distance from the diagonal, in percentage points.</p>"#,
        );
        html.push_str(&part.legend());
        html.push_str(r#"<div class="grid">"#);
        for group in 0..comparison.groups.len() {
            html.push_str(&reliability(part, group, &by_variant));
        }
        html.push_str("</div>");
    }
    Some(html)
}

fn whose(part: &Part<'_>, variant: usize) -> String {
    let comparison = part.comparison;
    let label = name(&comparison.variants[variant].label);
    format!(r#"<span class="{}">{}{label}</span>"#, colour(comparison.look(variant)), swatch(comparison.look(variant)))
}

fn groups(part: &Part<'_>, variant: usize, details: &[&EvaluationDetails]) -> String {
    let groups = &part.comparison.groups;
    let of = |row: usize, column: usize| -> u64 {
        details
            .iter()
            .filter_map(|details| details.confusion.get(row)?.get(column))
            .fold(0, |sum, n| sum.saturating_add(*n))
    };
    let mut html = format!(r#"<table class="heat" data-variant="{variant}"><thead><tr><td></td>"#);
    for group in groups {
        put!(html, r#"<th scope="col">{}</th>"#, short_name(&group.name, 12));
    }
    html.push_str("</tr></thead><tbody>");
    for (row, group) in groups.iter().enumerate() {
        let all = (0..groups.len()).fold(0u64, |sum, column| sum.saturating_add(of(row, column)));
        put!(html, r#"<tr><th scope="row">{}</th>"#, short_name(&group.name, 14));
        for (column, other) in groups.iter().enumerate() {
            let images = of(row, column);
            if all == 0 {
                html.push_str(r#"<td class="cell m0">n/a</td>"#);
                continue;
            }
            let share = images as f64 / all as f64;
            let step = (share * 10.0).round() as usize;
            let tip = format!(
                "{} taken for {}\n{} of {} images",
                short(&group.name, 60),
                short(&other.name, 60),
                count(images),
                count(all)
            );
            put!(
                html,
                r#"<td class="cell m{step}" data-row="{row}" data-column="{column}" data-images="{images}" data-tip="{}">{:.1}</td>"#,
                escape(&tip),
                100.0 * share
            );
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table>"
}

fn pairs(part: &Part<'_>, details: &[&EvaluationDetails]) -> String {
    let classes = &part.comparison.classes;
    let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for confused in details.iter().flat_map(|details| &details.confused) {
        let sum = sums.entry((confused.class, confused.predicted)).or_default();
        *sum = sum.saturating_add(confused.images);
    }
    let mut largest: Vec<((u32, u32), u64)> = sums.into_iter().collect();
    largest.sort_by_key(|(pair, images)| (std::cmp::Reverse(*images), *pair));
    let known = |class: u32| classes.get(class as usize).map_or("unknown", |class| class.name.as_str());
    let mut html = r#"<table class="pairs"><thead><tr><th scope="col">class</th><th scope="col">taken for</th><th scope="col" class="num">images</th><th scope="col" class="num">of its own</th></tr></thead><tbody>"#.to_owned();
    for ((class, said), images) in largest.into_iter().take(MOST) {
        let all = classes.get(class as usize).map_or(0, |class| class.test).saturating_mul(details.len() as u64);
        let share = if all > 0 { format!("{:.0} %", 100.0 * images as f64 / all as f64) } else { "n/a".to_owned() };
        put!(
            html,
            r#"<tr data-class="{class}" data-said="{said}"><td data-tip="{}">{}</td><td data-tip="{}">{}</td><td class="num">{}</td><td class="num">{share}</td></tr>"#,
            escape(&short(known(class), 120)),
            short_name(known(class), 18),
            escape(&short(known(said), 120)),
            short_name(known(said), 18),
            count(images)
        );
    }
    html + "</tbody></table>"
}

/// Predictions of about the same confidence over several runs.
fn joined(details: &[&EvaluationDetails], group: usize) -> Vec<ReliabilityBin> {
    let mut bins: Vec<ReliabilityBin> = Vec::new();
    for run in details.iter().filter_map(|details| details.reliability.get(group)) {
        bins.resize(bins.len().max(run.len()), ReliabilityBin::default());
        for (sum, bin) in bins.iter_mut().zip(run) {
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

/// Expected calibration error in percent.
fn calibration(bins: &[ReliabilityBin]) -> Option<f64> {
    let all: f64 = bins.iter().map(|bin| bin.images as f64).sum();
    let apart = |bin: &ReliabilityBin| (bin.hits as f64 - bin.confidence * bin.images as f64).abs();
    (all > 0.0).then(|| 100.0 * bins.iter().filter(|bin| bin.images > 0).map(apart).sum::<f64>() / all)
}

fn reliability(part: &Part<'_>, group: usize, by_variant: &[Vec<&EvaluationDetails>]) -> String {
    let comparison = part.comparison;
    let ends = (0.0, 100.0);
    let x = Axis { title: "confidence, %", kind: Kind::Linear, ends, ticks: 6, whole: false };
    let y = Axis { title: "accuracy, %", ..x };
    let area = Area { left: Panel::room(&y), top: 26.0, right: 328.0, bottom: 216.0 };
    let mut panel = Panel::new(area, x, y);
    panel.line("diagonal", &[(0.0, 0.0), (100.0, 100.0)]);
    let all: Vec<(usize, Vec<ReliabilityBin>)> =
        by_variant.iter().map(|details| joined(details, group)).enumerate().collect();
    let most = all.iter().flat_map(|(_, bins)| bins).map(|bin| bin.images).max().unwrap_or(0).max(1) as f64;
    let title = &comparison.groups[group].name;
    let mut alt = vec![format!("Accuracy by confidence of {}", short(title, 60))];
    let mut words = Vec::new();
    for (variant, bins) in &all {
        let Some(error) = calibration(bins) else { continue };
        let images: u64 = bins.iter().fold(0, |sum, bin| sum.saturating_add(bin.images));
        let points: Vec<(f64, f64, u64)> = bins
            .iter()
            .filter(|bin| bin.images > 0)
            .map(|bin| (100.0 * bin.confidence, 100.0 * bin.hits as f64 / bin.images as f64, bin.images))
            .collect();
        let own = &comparison.variants[*variant].label;
        panel.open(
            &format!("dots {}", colour(comparison.look(*variant))),
            &format!(r#"data-variant="{variant}" data-group="{group}" data-ece="{error}""#),
        );
        let line: Vec<(f64, f64)> = points.iter().map(|(x, y, _)| (*x, *y)).collect();
        panel.line("line thin", &line);
        for (x, y, images) in &points {
            let radius = 2.0 + 5.0 * (*images as f64 / most).sqrt();
            let dot = marker(comparison.look(*variant), panel.x.at(*x), panel.y.at(*y), radius);
            let tip = format!(
                "{}\nconfidence {x:.1} %, accuracy {y:.1} %\n{}",
                short(own, 60),
                several(*images as usize, "image", "images")
            );
            panel.raw(&format!(r#"<path class="dot soft" d="{dot}" data-tip="{}"/>"#, escape(&tip)));
        }
        panel.close();
        alt.push(format!("{}: expected calibration error {error:.1} points, {images} images", short(own, 60)));
        words.push(format!(
            r#"<span class="item {}">{}{} {error:.1}</span>"#,
            colour(comparison.look(*variant)),
            swatch(comparison.look(*variant)),
            short_name(own, 24)
        ));
    }
    if words.is_empty() {
        return String::new();
    }
    let at = place(panel.x.at(97.0));
    let under = place(panel.y.at(3.0));
    panel.raw(&format!(
        r#"<text class="said" paint-order="stroke" x="{at}" y="{under}" text-anchor="end">too sure</text>"#
    ));
    let chart = svg(
        "reliability",
        (340.0, 254.0),
        &(alt.join(". ") + "."),
        r#"tabindex="0" data-hover="marks""#,
        &panel.finish(),
    );
    figure("", &short_name(title, 40), &chart, &format!("ECE: {}", words.join(" ")))
}
