//! Gradient norms by epoch, what a criterion makes of them, and its margins (the method's Figure 2).
//!
//! Charts of the last epoch are drawn here; the script draws those of other epochs into the same frames.

use equipoise_record::{GradientNorms, NormRegions, NormView};
use serde_json::{Value, json};

use super::classes::number;
use super::curves::picked;
use super::{Part, colour, count, figure, swatch};
use crate::escape::{self, escape, label, name, short, short_name};
use crate::svg::{Area, Axis, Kind, Panel, Scale, ends, place, put, rounded, step_area, steps, svg, tick};

/// Epochs of a variant on the page at most.
const FRAMES: usize = 30;
/// Epochs of all variants together.
const ALL_FRAMES: usize = 120;
/// Regions of a class, where a criterion has none of its own.
const REGIONS: usize = 30;

/// A variant's norms.
struct Shown<'a> {
    variant: usize,
    /// Of the variant.
    look: usize,
    seed: u64,
    norms: &'a [GradientNorms],
    /// Epochs on the page: places in `norms`.
    frames: Vec<usize>,
}

impl Shown<'_> {
    fn last(&self) -> &GradientNorms {
        &self.norms[self.norms.len() - 1]
    }

    /// A view in every epoch on the page.
    fn view(&self, at: usize) -> impl Iterator<Item = &NormView> {
        self.frames.iter().filter_map(move |frame| self.norms[*frame].views.get(at))
    }

    /// Places of the views of a single class: rows and columns of the margins.
    fn singles(&self) -> Vec<usize> {
        let views = &self.last().views;
        (0..views.len()).filter(|at| views[*at].class.is_some()).collect()
    }
}

/// The section; none if no run has norms.
pub(super) fn section(part: &Part<'_>) -> Option<String> {
    let comparison = part.comparison;
    let with = (0..comparison.variants.len()).filter_map(|variant| {
        // mixed examples are counted nowhere
        let seen = |view: &NormView| view.counts.iter().any(|count| *count > 0);
        let run = part.runs(variant).find(|run| run.norms.iter().any(|norms| norms.views.iter().any(seen)))?;
        Some((variant, run))
    });
    let with: Vec<_> = with.collect();
    let most = (ALL_FRAMES / with.len().max(1)).clamp(8, FRAMES);
    let shown = |(variant, run): (usize, &'_ crate::run::Run)| (variant, run.seed(), picked(run.norms.len(), most));
    let parts: Vec<Shown<'_>> = with
        .iter()
        .map(|(at, run)| {
            let (variant, seed, frames) = shown((*at, run));
            Shown { variant, look: comparison.look(variant), seed, norms: &run.norms, frames }
        })
        .collect();
    // the one that the page is about: it has regions
    let first =
        parts.iter().position(|shown| shown.last().views.iter().any(|view| view.regions.is_some())).unwrap_or(0);
    if parts.is_empty() {
        return None;
    }
    let id = format!("{}-live", part.id);
    let mut html = r#"<p class="lead">The gradient norm g = 1 − p of an example says how hard it is: near 0 it is learned, near 1 it is
        still predicted wrongly. Large classes soon have little but easy examples while small ones keep hard ones."#
        .to_owned();
    let cut = parts.iter().any(|shown| shown.last().views.iter().any(|view| view.regions.is_some()));
    if cut {
        html.push_str(
            " <code>cwap</code> counts them class by class, in regions that it cuts finer where there are more examples: ticks \
             above the chart are regions of the same width (URA), ticks below it the regions as they are cut (AURA). Crowded \
             regions get smaller weights, classes with fewer effective examples larger margins.",
        );
    }
    if parts.len() < comparison.variants.len() {
        html.push_str(
            " Criteria whose examples were all mixed (mixup), or whose runs have noted no norms, are not shown.",
        );
    }
    html.push_str("</p>");
    html.push_str(r#"<ul class="legend keys">"#);
    let key = |mark: &str, words: &str| {
        format!(
            r#"<li><svg class="swatch norms {}" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true">{mark}</svg>{words}</li>"#,
            colour(parts[first].look)
        )
    };
    html.push_str(&key(r#"<path class="area" d="M0 12V6H7V2H14V7H21V9H28V12Z"/>"#, "examples of the epoch by g"));
    html.push_str(&key(
        r#"<path class="had" d="M2 6H9M14 6h0M19 6H26"/>"#,
        "mean weight that they had; 1 is no change",
    ));
    if cut {
        html.push_str(&key(
            r#"<path class="density" d="M0 10H7V3H14V6H21V10H28"/>"#,
            "by region: density v; weight W of the next epoch",
        ));
    }
    html.push_str("</ul>");
    put!(html, r#"<div class="live" id="{id}"><div class="tools needs-script">"#);
    if parts.len() > 1 {
        html.push_str(r#"<fieldset class="choose"><legend class="unseen">Criterion</legend>"#);
        for (at, shown) in parts.iter().enumerate() {
            let checked = if at == first { r#" checked="checked""# } else { "" };
            put!(
                html,
                r#"<label class="{}"><input type="radio" name="{id}-which" value="{at}"{checked}/>{}{}</label>"#,
                colour(shown.look),
                swatch(shown.look),
                short_name(&comparison.variants[shown.variant].label, 40)
            );
        }
        html.push_str("</fieldset>");
    }
    let (end, last) = (parts[first].frames.len() - 1, parts[first].last().epoch);
    put!(
        html,
        r#"<div class="player"><button type="button" class="play" aria-label="Play">Play</button><label class="slide"><span class="unseen">Epoch</span><input type="range" min="0" max="{end}" value="{end}" step="1" aria-valuetext="epoch {last}"/></label><output class="now">epoch {last}</output></div></div>"#
    );
    for (at, shown) in parts.iter().enumerate() {
        put!(html, r#"<div class="of" data-at="{at}">{}</div>"#, frames(part, shown));
    }
    let data = json!({ "first": first, "parts": parts.iter().map(embedded).collect::<Vec<_>>() });
    put!(
        html,
        r#"<script type="application/json" nonce="equipoise" id="{id}-data">{}</script></div>"#,
        escape::json(&data)
    );
    Some(html)
}

/// Charts of a variant, as the last epoch has them.
fn frames(part: &Part<'_>, shown: &Shown<'_>) -> String {
    let comparison = part.comparison;
    let variant = &comparison.variants[shown.variant];
    let last = shown.last();
    let mut html = format!(
        r#"<p class="whose {}">{}{} <span class="muted">seed {}, <span class="epoch">epoch {}</span></span></p><div class="grid">"#,
        colour(shown.look),
        swatch(shown.look),
        name(&variant.label),
        shown.seed,
        last.epoch
    );
    let singles = shown.singles();
    for (at, view) in last.views.iter().enumerate() {
        let (which, class) = match view.class {
            None => ("All classes", None),
            Some(class) => {
                let which = match singles.iter().position(|single| *single == at) {
                    Some(0) => "Largest class",
                    Some(place) if place + 1 == singles.len() => "Smallest class",
                    _ => "Middle class",
                };
                (which, comparison.classes.get(class as usize))
            }
        };
        let title = match class {
            Some(class) => format!(
                r#"{which}: {} <span class="muted">{} images</span>"#,
                short_name(&class.name, 24),
                count(class.train)
            ),
            None => which.to_owned(),
        };
        let alt = class.map_or_else(|| which.to_owned(), |class| format!("{which}, {}", short(&class.name, 60)));
        html.push_str(&figure(&format!("norms {}", colour(shown.look)), &title, &panel(shown, at, view, &alt), ""));
    }
    html.push_str(&margins(part, shown));
    html + "</div>"
}

/// Regions that a view's histogram is drawn for.
fn regions(view: &NormView) -> usize {
    view.regions.as_ref().map(|regions| regions.densities.len()).filter(|n| *n > 0).unwrap_or(REGIONS)
}

/// Examples per region of the same width, by bin.
fn density(view: &NormView) -> Vec<f64> {
    let scale = view.counts.len() as f64 / regions(view) as f64;
    view.counts.iter().map(|n| *n as f64 * scale).collect()
}

/// Edges of regions of some widths, from 0 to 1.
fn edges(widths: &[f64]) -> Vec<f64> {
    let mut at = 0.0;
    let ends = widths.iter().map(|width| {
        at += width;
        at
    });
    std::iter::once(0.0).chain(ends).collect()
}

/// How many examples, and how many of them are hard.
fn note(view: &NormView) -> String {
    let all: u64 = view.counts.iter().fold(0, |sum, n| sum.saturating_add(*n));
    let hard: u64 = view.counts.iter().skip(view.counts.len() / 2).fold(0, |sum, n| sum.saturating_add(*n));
    let share = if all > 0 { 100.0 * hard as f64 / all as f64 } else { 0.0 };
    format!("{} examples, {share:.0} % with g ≥ 0.5", count(all))
}

/// Marks at the edges of regions.
fn ruler(x: &Scale, edges: &[f64], top: f64) -> String {
    let mut path = String::new();
    for edge in edges {
        put!(path, "M{} {}v5", place(x.at(*edge)), place(top));
    }
    path
}

fn panel(shown: &Shown<'_>, at: usize, view: &NormView, alt: &str) -> String {
    let numbers = shown.view(at).flat_map(|view| {
        let found = view.regions.iter().flat_map(|regions| regions.densities.iter().copied());
        density(view).into_iter().chain(found).collect::<Vec<_>>()
    });
    let top = ends(Kind::LogPlus, numbers, true).1 * 1.05;
    let weights = shown.view(at).flat_map(|view| {
        let own = view.weights.iter().flatten().map(|weight| f64::from(*weight));
        own.chain(view.regions.iter().flat_map(|regions| regions.weights.iter().copied())).collect::<Vec<_>>()
    });
    let ratio = ends(Kind::Log, weights.filter(|weight| *weight > 0.0).chain([0.5, 2.0]), false);
    let title = format!("examples per 1/{} of g, log(1 + n) axis", regions(view));
    let upper = Axis { title: "", kind: Kind::LogPlus, ends: (0.0, top), ticks: 5, whole: false };
    let lower = Axis { title: "weight, log axis", kind: Kind::Log, ends: ratio, ticks: 4, whole: false };
    let left = Panel::room(&upper).max(Panel::room(&lower)).max(34.0);
    let x = Axis { title: "gradient norm g = 1 − p", kind: Kind::Linear, ends: (0.0, 1.0), ticks: 6, whole: false };
    let bare = Axis { title: "", ticks: 0, ..x };
    let mut above = Panel::new(Area { left, top: 50.0, right: 328.0, bottom: 152.0 }, bare, upper);
    above.raw(&format!(r#"<text class="axis" x="0" y="14">{title}</text>"#));
    let found: Option<&NormRegions> = view.regions.as_ref();
    let (scale_x, scale_y) = (above.x, above.y);
    above.raw(&format!(r#"<path class="area" d="{}"/>"#, step_area(&scale_x, &scale_y, &density(view))));
    above.raw(&format!(r#"<path class="base" d="M{} 152H328"/>"#, place(left)));
    above.raw(&format!(
        r#"<text class="said" paint-order="stroke" x="328" y="62" text-anchor="end">{}</text>"#,
        escape(&note(view))
    ));
    // whether any epoch has regions, so that the script finds a place for them
    if shown.view(at).any(|view| view.regions.is_some()) {
        let number = regions(view);
        let uniform: Vec<f64> = (0..=number).map(|k| k as f64 / number as f64).collect();
        let cut = found.map_or_else(Vec::new, |regions| edges(&regions.widths));
        let values: Vec<Option<f64>> =
            found.map_or_else(Vec::new, |regions| regions.densities.iter().copied().map(Some).collect());
        above.raw(&format!(r#"<path class="density" d="{}"/>"#, steps(&scale_x, &scale_y, &cut, &values)));
        above.raw(&format!(r#"<path class="ura" d="{}"/>"#, ruler(&scale_x, &uniform, 36.0)));
        above.raw(&format!(r#"<path class="aura" d="{}"/>"#, ruler(&scale_x, &cut, 160.0)));
        above.raw(r#"<text class="said" paint-order="stroke" x="0" y="42">URA</text><text class="said" paint-order="stroke" x="0" y="168">AURA</text>"#);
    }
    let mut below = Panel::new(Area { left, top: 206.0, right: 328.0, bottom: 272.0 }, x, lower);
    let one = place(below.y.at(1.0));
    below.raw(&format!(r#"<path class="one" d="M{} {one}H328"/>"#, place(left)));
    let (scale_x, scale_y) = (below.x, below.y);
    let bins: Vec<f64> = (0..=view.weights.len()).map(|k| k as f64 / view.weights.len().max(1) as f64).collect();
    let had: Vec<Option<f64>> = view.weights.iter().map(|weight| weight.map(f64::from)).collect();
    if shown.view(at).any(|view| view.regions.is_some()) {
        let cut = found.map_or_else(Vec::new, |regions| edges(&regions.widths));
        let next: Vec<Option<f64>> =
            found.map_or_else(Vec::new, |regions| regions.weights.iter().copied().map(Some).collect());
        below.raw(&format!(r#"<path class="next" d="{}"/>"#, steps(&scale_x, &scale_y, &cut, &next)));
    }
    below.raw(&format!(r#"<path class="had" d="{}"/>"#, steps(&scale_x, &scale_y, &bins, &had)));
    let alt = format!(
        "{alt}: gradient norms after epoch {}: {}. Arrow keys move through the bins.",
        shown.last().epoch,
        note(view)
    );
    let data = format!(r#"tabindex="0" data-view="{at}""#);
    svg("norms", (340.0, 310.0), &alt, &data, &(above.finish() + &below.finish()))
}

/// Margins between the classes of the views, and the largest of them by epoch.
fn margins(part: &Part<'_>, shown: &Shown<'_>) -> String {
    let comparison = part.comparison;
    let singles = shown.singles();
    let last = shown.last();
    let size = last.margins.len().min(singles.len());
    if size == 0 {
        return String::new();
    }
    let names: Vec<&str> = singles
        .iter()
        .map(|at| {
            last.views[*at]
                .class
                .and_then(|class| comparison.classes.get(class as usize))
                .map_or("", |class| class.name.as_str())
        })
        .collect();
    let of = |norms: &GradientNorms, row: usize, column: usize| {
        norms.margins.get(row).and_then(|row| row.get(column)).copied()
    };
    let largest =
        shown.norms.iter().flat_map(|norms| norms.margins.iter().flatten()).fold(0.0f64, |most, m| most.max(m.abs()));
    let mut table = format!(r#"<table class="heat margins" data-largest="{largest}"><thead><tr><td></td>"#);
    for name in &names[..size] {
        put!(table, r#"<th scope="col">{}</th>"#, short_name(name, 14));
    }
    table.push_str("</tr></thead><tbody>");
    for (row, name) in names.iter().enumerate().take(size) {
        put!(table, r#"<tr><th scope="row">{}</th>"#, short_name(name, 14));
        for column in 0..size {
            let margin = of(last, row, column);
            let step =
                margin.map_or(0, |m| if largest > 0.0 { (10.0 * m.abs() / largest).round() as usize } else { 0 });
            let text = margin
                .map_or_else(|| "n/a".to_owned(), |m| format!("{m:.2}").replace("-0.00", "0.00").replace('-', "−"));
            put!(table, r#"<td class="cell m{step}" data-value="{}">{text}</td>"#, exact(margin));
        }
        table.push_str("</tr>");
    }
    table.push_str("</tbody></table>");
    let words = "Added to the logit of a class (column) for an example of another (row), for the next epoch. Below 0 the class may \
                 score that much higher before the example counts against it, above 0 it must stay that much lower.";
    let mut html = figure("", "Margins M", &table, words);
    let line: Vec<(f64, f64)> = shown
        .norms
        .iter()
        .filter_map(|norms| Some((norms.epoch as f64, of(norms, 0, size - 1)?)))
        .filter(|(_, m)| m.is_finite())
        .collect();
    let (Some(from), Some(to)) = (line.first(), line.last()) else { return html };
    let y = Axis {
        title: "margin, in logits",
        kind: Kind::Linear,
        ends: ends(Kind::Linear, line.iter().map(|p| p.1), true),
        ticks: 6,
        whole: false,
    };
    let (start, end) = if from.0 < to.0 { (from.0, to.0) } else { (from.0 - 0.5, from.0 + 0.5) };
    let x = Axis { title: "epoch", kind: Kind::Linear, ends: (start, end), ticks: 6, whole: true };
    let area = Area { left: Panel::room(&y), top: 26.0, right: 328.0, bottom: 170.0 };
    let mut chart = Panel::new(area, x, y);
    let join =
        |of: &dyn Fn(&(f64, f64)) -> f64| line.iter().map(|point| of(point).to_string()).collect::<Vec<_>>().join(" ");
    let data = format!(
        r#"data-variant="{}" data-label="margin" data-first="{}" data-last="{}" data-xs="{}" data-ys="{}""#,
        shown.variant,
        from.1,
        to.1,
        join(&|point| point.0),
        join(&|point| rounded(point.1, 4))
    );
    let at = place(chart.x.at(to.0));
    chart.raw(&format!(r#"<path class="cursor" d="M{at} 26V170"/>"#));
    chart.open(&format!("series {}", colour(shown.look)), &data);
    let pick: Vec<(f64, f64)> = picked(line.len(), 400).into_iter().map(|at| line[at]).collect();
    chart.line("line", &pick);
    chart.close();
    let (head, tail) = (label(names[0]), label(names[size - 1]));
    let alt = format!(
        "Margin on the logit of {} for a label of {}: {} at epoch {}, {} at epoch {}. Arrow keys move through the epochs.",
        short(&tail, 60),
        short(&head, 60),
        tick(rounded(from.1, 3)),
        from.0,
        tick(rounded(to.1, 3)),
        to.0
    );
    let title = format!("Margin on {} for {}", short_name(&tail, 16), short_name(&head, 16));
    html.push_str(&figure(
        "",
        &title,
        &svg("curve margin", (340.0, 208.0), &alt, r#"tabindex="0" data-hover="lines""#, &chart.finish()),
        "",
    ));
    html
}

fn exact(x: Option<f64>) -> String {
    super::exact(x)
}

/// What the script draws from.
fn embedded(shown: &Shown<'_>) -> Value {
    let three = |x: f64| number(rounded(x, 3));
    let view = |view: &NormView| {
        let weights: Vec<f64> =
            view.weights.iter().map(|weight| weight.map_or(0.0, |w| rounded(f64::from(w), 3))).collect();
        let mut there = weights.iter().copied().filter(|weight| *weight > 0.0);
        let first = there.next();
        let mut value = json!({ "c": view.counts });
        // all the same, as of a criterion without weights: once is enough
        value["w"] = match first {
            Some(first) if there.all(|weight| weight == first) => three(first),
            _ => weights.into_iter().map(number).collect(),
        };
        if let Some(regions) = &view.regions {
            let list = |values: &[f64]| -> Value { values.iter().map(|x| three(*x)).collect() };
            value["d"] = regions.widths.iter().map(|x| number(rounded(*x, 4))).collect();
            value["v"] = list(&regions.densities);
            value["W"] = list(&regions.weights);
        }
        value
    };
    let frame = |at: &usize| {
        let norms = &shown.norms[*at];
        let margins: Vec<Vec<f64>> =
            norms.margins.iter().map(|row| row.iter().map(|m| rounded(*m, 3)).collect()).collect();
        json!({ "e": norms.epoch, "views": norms.views.iter().map(view).collect::<Vec<_>>(), "m": margins })
    };
    shown.frames.iter().map(frame).collect()
}
