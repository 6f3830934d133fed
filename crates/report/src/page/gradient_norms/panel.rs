//! The chart of one view: examples by gradient norm above, their weights below.

use equipoise_record::{NormRegions, NormView};

use super::VariantNorms;
use crate::chart::{Area, Axis, Panel, Scale, ScaleKind, axis_range, px, step_area, steps, svg};
use crate::escape::{escape, put};
use crate::page::words::count;

/// Number of regions that counts are scaled to if a criterion has none.
const DEFAULT_REGIONS: usize = 30;

/// Right end of both plots.
const RIGHT: f64 = 328.0;

/// The chart of a view; `alt` names its classes.
pub(super) fn chart(shown: &VariantNorms<'_>, index: usize, view: &NormView, alt: &str) -> String {
    let (examples_axis, weight_axis) = (examples_axis(shown, index), weight_axis(shown, index));
    let left = examples_axis.label_width().max(weight_axis.label_width()).max(34.0);
    // the script needs frames for regions if any epoch has some
    let has_regions = shown.view(index).any(|view| view.regions.is_some());
    let examples = examples_panel(view, examples_axis, left, has_regions);
    let weights = weights_panel(view, weight_axis, left, has_regions);
    let alt = format!(
        "{alt}: gradient norms after epoch {}: {}. Arrow keys move through the bins.",
        shown.last().epoch,
        summary(view)
    );
    svg("norms", (340.0, 310.0), &alt, &format!(r#"tabindex="0" data-view="{index}""#), &(examples + &weights))
}

/// An axis for the examples of all epochs on the page.
fn examples_axis(shown: &VariantNorms<'_>, index: usize) -> Axis<'static> {
    let numbers = shown.view(index).flat_map(|view| {
        let densities = view.regions.iter().flat_map(|regions| regions.densities.iter().copied());
        examples_per_region(view).into_iter().chain(densities).collect::<Vec<_>>()
    });
    let high = axis_range(ScaleKind::Log1p, numbers, true).1 * 1.05;
    Axis { max_ticks: 5, ..Axis::new("", ScaleKind::Log1p, (0.0, high)) }
}

/// An axis for the weights of all epochs on the page.
fn weight_axis(shown: &VariantNorms<'_>, index: usize) -> Axis<'static> {
    let weights = shown.view(index).flat_map(|view| {
        let applied = view.weights.iter().flatten().map(|weight| f64::from(*weight));
        applied.chain(view.regions.iter().flat_map(|regions| regions.weights.iter().copied())).collect::<Vec<_>>()
    });
    let range = axis_range(ScaleKind::Log, weights.filter(|weight| *weight > 0.0).chain([0.5, 2.0]), false);
    Axis { max_ticks: 4, ..Axis::new("weight (log scale)", ScaleKind::Log, range) }
}

fn examples_panel(view: &NormView, axis: Axis<'_>, left: f64, has_regions: bool) -> String {
    let area = Area { left, top: 50.0, right: RIGHT, bottom: 152.0 };
    let mut panel = Panel::new(area, Axis::hidden((0.0, 1.0)), axis);
    let (x, y) = (panel.x, panel.y);
    let regions = region_count(view);
    let examples = step_area(&x, &y, &examples_per_region(view));
    panel.push(&format!(r#"<text class="axis" x="0" y="14">examples per 1/{regions} of g, log(1 + n) scale</text>"#));
    panel.push(&format!(r#"<path class="area" d="{examples}"/>"#));
    panel.push(&format!(r#"<path class="base" d="M{} {}H{}"/>"#, px(left), px(area.bottom), px(RIGHT)));
    panel.push(&annotation(RIGHT, 62.0, r#" text-anchor="end""#, &summary(view)));
    if has_regions {
        let uniform: Vec<f64> = (0..=regions).map(|k| k as f64 / regions as f64).collect();
        let (edges, density) = region_steps(view, |regions| &regions.densities);
        panel.push(&format!(r#"<path class="density" d="{}"/>"#, steps(&x, &y, &edges, &density)));
        panel.push(&format!(r#"<path class="ura" d="{}"/>"#, ruler(&x, &uniform, 36.0)));
        panel.push(&format!(r#"<path class="aura" d="{}"/>"#, ruler(&x, &edges, 160.0)));
        panel.push(&annotation(0.0, 42.0, "", "URA"));
        panel.push(&annotation(0.0, 168.0, "", "AURA"));
    }
    panel.finish()
}

fn weights_panel(view: &NormView, axis: Axis<'_>, left: f64, has_regions: bool) -> String {
    let area = Area { left, top: 206.0, right: RIGHT, bottom: 272.0 };
    let mut panel = Panel::new(area, Axis::new("gradient norm g = 1 − p", ScaleKind::Linear, (0.0, 1.0)), axis);
    let (x, y) = (panel.x, panel.y);
    panel.push(&format!(r#"<path class="unit-weight" d="M{} {}H{}"/>"#, px(left), px(y.position(1.0)), px(RIGHT)));
    if has_regions {
        let (edges, weights) = region_steps(view, |regions| &regions.weights);
        panel.push(&format!(r#"<path class="next-weight" d="{}"/>"#, steps(&x, &y, &edges, &weights)));
    }
    let bins = view.weights.len();
    let edges: Vec<f64> = (0..=bins).map(|k| k as f64 / bins.max(1) as f64).collect();
    let applied: Vec<Option<f64>> = view.weights.iter().map(|weight| weight.map(f64::from)).collect();
    panel.push(&format!(r#"<path class="applied" d="{}"/>"#, steps(&x, &y, &edges, &applied)));
    panel.finish()
}

/// Number of regions that a histogram is drawn for.
fn region_count(view: &NormView) -> usize {
    view.regions.as_ref().map(|regions| regions.densities.len()).filter(|n| *n > 0).unwrap_or(DEFAULT_REGIONS)
}

/// Examples by bin, scaled to regions of equal width.
fn examples_per_region(view: &NormView) -> Vec<f64> {
    let scale = view.counts.len() as f64 / region_count(view) as f64;
    view.counts.iter().map(|n| *n as f64 * scale).collect()
}

/// Edges of a view's regions from 0 to 1, and their values; both empty without regions.
fn region_steps(view: &NormView, values: fn(&NormRegions) -> &Vec<f64>) -> (Vec<f64>, Vec<Option<f64>>) {
    let Some(regions) = &view.regions else { return (Vec::new(), Vec::new()) };
    let mut edge = 0.0;
    let ends = regions.widths.iter().map(|width| {
        edge += width;
        edge
    });
    (std::iter::once(0.0).chain(ends).collect(), values(regions).iter().copied().map(Some).collect())
}

/// Number of examples, and the share of hard ones.
fn summary(view: &NormView) -> String {
    let sum = |counts: &[u64]| counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let (all, hard) = (sum(&view.counts), sum(&view.counts[view.counts.len() / 2..]));
    let share = if all > 0 { 100.0 * hard as f64 / all as f64 } else { 0.0 };
    format!("{} examples, {share:.0} % with g ≥ 0.5", count(all))
}

/// Ticks at the edges of regions.
fn ruler(x: &Scale, edges: &[f64], top: f64) -> String {
    let mut path = String::new();
    for edge in edges {
        put!(path, "M{} {}v5", px(x.position(*edge)), px(top));
    }
    path
}

/// Small text over the chart.
fn annotation(x: f64, y: f64, attributes: &str, text: &str) -> String {
    let (x, y, text) = (px(x), px(y), escape(text));
    format!(r#"<text class="annotation" paint-order="stroke" x="{x}" y="{y}"{attributes}>{text}</text>"#)
}
