//! Learning curves: loss, accuracies, learning rate and speed by epoch.

use std::collections::BTreeMap;

use equipoise_record::{EpochRecord, Metrics};
use equipoise_support::Examples;

use super::Article;
use super::elements::{evenly_spaced, figure};
use crate::chart::{Area, Axis, Panel, ScaleKind, axis_range, significant, svg};
use crate::escape::{escape, label, put, short, short_name};
use crate::run::RecordedRun;

/// Maximum number of points on a line.
const MAX_POINTS: usize = 400;

/// Values of a variant at an epoch, over seeds.
#[derive(Clone, Copy)]
struct Point {
    epoch: u64,
    mean: f64,
    min: f64,
    max: f64,
}

/// What a chart shows.
struct Curve<'a> {
    /// Title as text.
    title: String,
    /// Title as HTML.
    title_html: String,
    y_title: &'a str,
    y_axis: YAxis,
    /// Points of each variant.
    lines: Vec<Vec<Point>>,
}

/// Shape of a y axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum YAxis {
    /// From 0 to 100.
    Percent,
    /// From 0.
    FromZero,
    /// From 0, or logarithmic if values span more than a factor of ten.
    MaybeLog,
}

/// The section; `None` without epochs.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let comparison = article.comparison;
    let epochs = || comparison.runs.iter().flat_map(|run| &run.epochs);
    // accuracies come from the split that was evaluated more often
    let on_val = epochs().filter(|e| e.val.is_some()).count() > epochs().filter(|e| e.test.is_some()).count();
    // all charts have the same x axis, though not every epoch is evaluated
    let span = (epochs().map(|epoch| epoch.epoch).min()?, epochs().map(|epoch| epoch.epoch).max()?);
    let curves = curves(article, on_val);
    let charts: Vec<String> = curves.iter().filter_map(|curve| chart(article, curve, span)).collect();
    if charts.is_empty() {
        return None;
    }
    let mut html = article.legend();
    let split = if on_val { "validation split" } else { "test set" };
    put!(html, r#"<p class="lead">Accuracies are measured on the {split}. "#);
    if article.has_several_seeds() {
        html.push_str("Lines are means over seeds; bands reach from the lowest to the highest seed. ");
    }
    if comparison.variants.len() > 1 {
        html.push_str("Losses of different criteria are not on the same scale.");
    }
    put!(html, r#"</p><div class="grid">{}</div>"#, charts.concat());
    Some(html)
}

/// All charts of the section, in order.
fn curves<'a>(article: &Article<'_>, on_val: bool) -> Vec<Curve<'a>> {
    let curve = |title: &str, y_title, y_axis, lines| Curve {
        title: title.to_owned(),
        title_html: escape(title),
        y_title,
        y_axis,
        lines,
    };
    let by_epoch = |value: &dyn Fn(&EpochRecord) -> Option<f64>| {
        lines(article, &|run| run.epochs.iter().filter_map(|epoch| Some((epoch.epoch, value(epoch)?))).collect())
    };
    let loss = by_epoch(&|epoch| Some(epoch.loss));
    let overall = by_epoch(&|epoch| evaluated(epoch, on_val)?.top1);
    let mut curves = vec![
        curve("Training loss", "mean over the epoch", YAxis::FromZero, loss),
        curve("Overall accuracy", "accuracy, %", YAxis::Percent, overall),
    ];
    // a single group is all classes
    let groups = article.comparison.groups.iter().enumerate().filter(|_| article.comparison.groups.len() > 1);
    for (index, group) in groups {
        let lines = by_epoch(&|epoch| evaluated(epoch, on_val)?.groups.get(index)?.accuracy);
        let title = format!("Accuracy on {}", short(&group.name, 40));
        let title_html = format!("Accuracy on {}", short_name(&group.name, 40));
        curves.push(Curve { title_html, ..curve(&title, "accuracy, %", YAxis::Percent, lines) });
    }
    let rate = by_epoch(&|epoch| Some(epoch.learning_rate));
    curves.push(curve("Learning rate", "at the last step of the epoch", YAxis::MaybeLog, rate));
    let speed = lines(article, &|run| run.times.iter().map(|time| (time.epoch, time.images_per_second)).collect());
    let unit = match article.comparison.examples() {
        Examples::Images => "images per second",
        Examples::Rows => "rows per second",
    };
    // a run of lbfgs has no steps to measure
    if speed.iter().flatten().any(|point| point.max > 0.0) {
        curves.push(curve("Training speed", unit, YAxis::FromZero, speed));
    }
    curves
}

/// Metrics of an epoch on the validation split or on the test set.
fn evaluated(epoch: &EpochRecord, on_val: bool) -> Option<&Metrics> {
    if on_val { epoch.val.as_ref() } else { epoch.test.as_ref() }
}

/// Points of every variant.
fn lines(article: &Article<'_>, values: &dyn Fn(&RecordedRun) -> Vec<(u64, f64)>) -> Vec<Vec<Point>> {
    let line = |variant: usize| {
        let mut by_epoch: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (epoch, value) in article.runs(variant).flat_map(values).filter(|(_, value)| value.is_finite()) {
            by_epoch.entry(epoch).or_default().push(value);
        }
        let point = |(epoch, values): (u64, Vec<f64>)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let (min, max) = values.iter().fold((mean, mean), |(min, max), x| (min.min(*x), max.max(*x)));
            Point { epoch, mean, min, max }
        };
        let points: Vec<Point> = by_epoch.into_iter().map(point).collect();
        evenly_spaced(points.len(), MAX_POINTS).into_iter().map(|index| points[index]).collect()
    };
    (0..article.comparison.variants.len()).map(line).collect()
}

/// A chart of the epochs in `span`; `None` without points.
fn chart(article: &Article<'_>, curve: &Curve<'_>, (first, last): (u64, u64)) -> Option<String> {
    curve.lines.iter().flatten().next()?;
    let numbers = || curve.lines.iter().flatten().flat_map(|point| [point.mean, point.min, point.max]);
    let positive = numbers().filter(|x| *x > 0.0);
    let (min, max) = positive.fold((f64::MAX, 0.0f64), |(min, max), x| (min.min(x), max.max(x)));
    let is_log = curve.y_axis == YAxis::MaybeLog && max > 10.0 * min * 1.000_001;
    let kind = if is_log { ScaleKind::Log } else { ScaleKind::Linear };
    let y_title = if is_log { format!("{} (log scale)", curve.y_title) } else { curve.y_title.to_owned() };
    let y = match curve.y_axis {
        YAxis::Percent => Axis::percent(&y_title),
        YAxis::FromZero | YAxis::MaybeLog => Axis::new(&y_title, kind, axis_range(kind, numbers(), !is_log)),
    };
    let x = Axis::epochs(first as f64, last as f64);
    let area = Area { left: y.label_width(), top: 26.0, right: 328.0, bottom: 170.0 };
    let mut panel = Panel::new(area, x, y);
    let mut alt = vec![format!("{} by epoch", curve.title)];
    for (variant, points) in curve.lines.iter().enumerate() {
        alt.extend(draw_line(&mut panel, article, variant, points, curve));
    }
    let alt = alt.join(". ") + ". Arrow keys move through the epochs.";
    let chart = svg("curve", (340.0, 208.0), &alt, r#"tabindex="0" data-hover="lines""#, &panel.finish());
    Some(figure("", &curve.title_html, &chart, ""))
}

/// Draws the line of a variant with its band and some markers. Returns where it starts and ends, in words.
fn draw_line(
    panel: &mut Panel,
    article: &Article<'_>,
    variant: usize,
    points: &[Point],
    curve: &Curve<'_>,
) -> Option<String> {
    let (first, last) = (points.first()?, points.last()?);
    let known = &article.comparison.variants[variant];
    let has_band = points.iter().any(|point| point.min < point.max);
    let classes = format!("series {}", article.style_class(variant));
    panel.open(&classes, &series_attributes(variant, &known.label, points, has_band));
    if has_band {
        let band: Vec<_> = points.iter().map(|point| (point.epoch as f64, point.min, point.max)).collect();
        panel.band(&band);
    }
    let line: Vec<(f64, f64)> = points.iter().map(|point| (point.epoch as f64, point.mean)).collect();
    panel.line("line", &line);
    // a few markers tell lines apart where colors do not
    let every = points.len().div_ceil(8).max(1);
    let variants = curve.lines.len().max(1);
    let shift = if points.len() > 8 { (variant * every / variants).min(points.len() - 1) } else { 0 };
    for (x, mean) in line.iter().skip(shift).step_by(every) {
        panel.dot(known.style, *x, *mean, 2.8);
    }
    panel.close();
    let value = |point: &Point| match curve.y_axis {
        YAxis::Percent => format!("{:.1} at epoch {}", point.mean, point.epoch),
        YAxis::FromZero | YAxis::MaybeLog => format!("{} at epoch {}", significant(point.mean, 3), point.epoch),
    };
    let label = short(&known.label, 60);
    Some(match first.epoch == last.epoch {
        true => format!("{label}: {}", value(first)),
        false => format!("{label}: {}, {}", value(first), value(last)),
    })
}

/// What the script reads of a line.
fn series_attributes(variant: usize, name: &str, points: &[Point], has_band: bool) -> String {
    let join = |text: &dyn Fn(&Point) -> String| points.iter().map(text).collect::<Vec<_>>().join(" ");
    let mut attributes = format!(
        r#"data-variant="{variant}" data-label="{}" data-first="{}" data-last="{}" data-xs="{}" data-ys="{}""#,
        escape(&label(name)),
        points[0].mean,
        points[points.len() - 1].mean,
        join(&|point| point.epoch.to_string()),
        join(&|point| significant(point.mean, 5).to_string()),
    );
    if has_band {
        let ranges = join(&|point| format!("{}:{}", significant(point.min, 4), significant(point.max, 4)));
        put!(attributes, r#" data-ranges="{ranges}""#);
    }
    attributes
}
