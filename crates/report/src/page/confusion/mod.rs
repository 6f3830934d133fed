//! Which groups and classes are confused, and whether confidence tells how often a prediction is correct.

mod calibrated;
mod calibration;
mod decisions;

use std::collections::BTreeMap;

use equipoise_record::EvaluationDetails;

use super::Article;
use super::elements::figure;
use super::words::count;
use crate::escape::{escape, put, short, short_name};

/// Number of confusions between classes shown per variant.
const MAX_PAIRS: usize = 10;

/// The section; `None` if no run has details.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let comparison = article.comparison;
    let fits = |details: &&EvaluationDetails| details.groups.len() == comparison.groups.len();
    let by_variant: Vec<Vec<&EvaluationDetails>> = (0..comparison.variants.len())
        .map(|variant| article.runs(variant).filter_map(|run| run.details.as_ref()).filter(fits).collect())
        .collect();
    if by_variant.iter().all(Vec::is_empty) {
        return None;
    }
    let grid = |table: &dyn Fn(usize, &[&EvaluationDetails]) -> String| {
        let shown = by_variant.iter().enumerate().filter(|(_, details)| !details.is_empty());
        let figures: String = shown
            .map(|(variant, details)| figure("", &figure_title(article, variant), &table(variant, details), ""))
            .collect();
        format!(r#"<div class="grid">{figures}</div>"#)
    };
    let mut html = String::new();
    // a single group is all classes
    if article.comparison.groups.len() > 1 {
        html.push_str(&article.heading(2, "Between groups"));
        html.push_str(&article.comparison.examples().say(
        r#"<p class="lead">Share of a group’s test images (row), in %, that were predicted as a class of each group (column). The
        diagonal includes confusions within a group. All seeds together.</p>"#,
    ));
        html.push_str(&grid(&|variant, details| groups_table(article, variant, details)));
    }
    if by_variant.iter().flatten().any(|details| !details.confused.is_empty()) {
        let examples = article.comparison.examples().many();
        html.push_str(&article.heading(2, "Between classes"));
        put!(
            html,
            r#"<p class="lead">The {MAX_PAIRS} most frequent confusions, in test {examples} of all seeds together. A run records only its most
            frequent ones; those that it did not record count as zero.</p>"#
        );
        html.push_str(&grid(&|_, details| pairs_table(article, details)));
    }
    html.push_str(&calibration::subsection(article, &by_variant));
    html.push_str(&calibrated::subsection(article));
    html.push_str(&decisions::subsection(article));
    Some(html)
}

fn figure_title(article: &Article<'_>, variant: usize) -> String {
    format!(r#"<span class="{}">{}</span>"#, article.style_class(variant), article.variant_name(variant))
}

/// Confusion between groups.
fn groups_table(article: &Article<'_>, variant: usize, details: &[&EvaluationDetails]) -> String {
    let groups = &article.comparison.groups;
    let examples = article.comparison.examples().many();
    let images = |row: usize, column: usize| -> u64 {
        let counts = details.iter().filter_map(|details| details.confusion.get(row)?.get(column));
        counts.fold(0, |sum, n| sum.saturating_add(*n))
    };
    let mut html = format!(r#"<table class="heat" data-variant="{variant}"><thead><tr><td></td>"#);
    for group in groups {
        put!(html, r#"<th scope="col">{}</th>"#, short_name(&group.name, 12));
    }
    html.push_str("</tr></thead><tbody>");
    for (row, group) in groups.iter().enumerate() {
        let all = (0..groups.len()).fold(0u64, |sum, column| sum.saturating_add(images(row, column)));
        put!(html, r#"<tr><th scope="row">{}</th>"#, short_name(&group.name, 14));
        for (column, predicted) in groups.iter().enumerate() {
            if all == 0 {
                html.push_str(r#"<td class="cell m0">n/a</td>"#);
                continue;
            }
            let images = images(row, column);
            let share = images as f64 / all as f64;
            let (group, predicted) = (short(&group.name, 60), short(&predicted.name, 60));
            let tip = format!("{group} predicted as {predicted}\n{} of {} {examples}", count(images), count(all));
            put!(
                html,
                r#"<td class="cell m{}" data-row="{row}" data-column="{column}" data-images="{images}" data-tip="{}">{:.1}</td>"#,
                (share * 10.0).round() as usize,
                escape(&tip),
                100.0 * share
            );
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table>"
}

/// The most frequent confusions between classes.
fn pairs_table(article: &Article<'_>, details: &[&EvaluationDetails]) -> String {
    let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for confused in details.iter().flat_map(|details| &details.confused) {
        let sum = sums.entry((confused.class, confused.predicted)).or_default();
        *sum = sum.saturating_add(confused.images);
    }
    let mut pairs: Vec<((u32, u32), u64)> = sums.into_iter().collect();
    pairs.sort_by_key(|(pair, images)| (std::cmp::Reverse(*images), *pair));
    let head = r#"<table class="pairs"><thead><tr><th scope="col">class</th><th scope="col">predicted as</th><th scope="col" class="num">images</th><th scope="col" class="num">of class</th></tr></thead><tbody>"#;
    let mut html = article.comparison.examples().say(head);
    for ((class, predicted), images) in pairs.into_iter().take(MAX_PAIRS) {
        let test = article.comparison.classes.get(class as usize).map_or(0, |class| class.test);
        let all = test.saturating_mul(details.len() as u64);
        let share = if all > 0 { format!("{:.0} %", 100.0 * images as f64 / all as f64) } else { "n/a".to_owned() };
        put!(html, r#"<tr data-class="{class}" data-predicted="{predicted}">"#);
        for class in [class, predicted] {
            let name = article.class_name(class);
            put!(html, r#"<td data-tip="{}">{}</td>"#, escape(&short(name, 120)), short_name(name, 18));
        }
        put!(html, r#"<td class="num">{}</td><td class="num">{share}</td></tr>"#, count(images));
    }
    html + "</tbody></table>"
}
