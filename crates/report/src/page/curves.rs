//! How training went: loss, accuracies, learning rate and speed by epoch.

use std::collections::BTreeMap;

use equipoise_record::{EpochRecord, Metrics};

use super::{Part, colour, figure};
use crate::escape::{escape, label, name, short};
use crate::run::Run;
use crate::svg::{Area, Axis, Kind, Panel, ends, put, rounded, svg};

/// Points of a line at most.
const POINTS: usize = 400;

/// A variant's values at an epoch: mean, lowest, highest.
type Point = (u64, f64, f64, f64);

/// The section; none if there is nothing by epoch.
pub(super) fn section(part: &Part<'_>) -> Option<String> {
    let comparison = part.comparison;
    // accuracies come from where there are more of them
    let epochs = || comparison.runs.iter().flat_map(|run| &run.epochs);
    let on_val =
        epochs().filter(|epoch| epoch.val.is_some()).count() > epochs().filter(|epoch| epoch.test.is_some()).count();
    let by_epoch = |of: &dyn Fn(&EpochRecord) -> Option<f64>| {
        let values = |run: &Run| run.epochs.iter().filter_map(|epoch| Some((epoch.epoch, of(epoch)?))).collect();
        lines(part, &values)
    };
    let place = if on_val { "on the validation part" } else { "on the test set" };
    // the same for all charts, though not every epoch is evaluated
    let span = (epochs().map(|epoch| epoch.epoch).min()?, epochs().map(|epoch| epoch.epoch).max()?);
    let chart = |title: &str, y: &str, lines: &[Vec<Point>], shape: Shape| chart(part, title, y, lines, shape, span);
    let mut charts = Vec::new();
    charts.push(chart("Training loss", "mean loss of the epoch", &by_epoch(&|e| Some(e.loss)), Shape::Zero));
    let overall = by_epoch(&|epoch| evaluated(epoch, on_val)?.top1);
    charts.push(chart("Overall accuracy", "accuracy, %", &overall, Shape::Percent));
    for (at, group) in comparison.groups.iter().enumerate() {
        let lines = by_epoch(&|epoch| evaluated(epoch, on_val)?.groups.get(at)?.accuracy);
        let title = format!("Accuracy of {}", short(&group.name, 40));
        charts.push(chart(&title, "accuracy, %", &lines, Shape::Percent));
    }
    charts.push(chart(
        "Learning rate",
        "rate of the epoch’s last step",
        &by_epoch(&|e| Some(e.learning_rate)),
        Shape::Rate,
    ));
    let speed = |run: &Run| run.times.iter().map(|time| (time.epoch, time.images_per_second)).collect();
    charts.push(chart("Speed of training", "images per second", &lines(part, &speed), Shape::Zero));
    let charts: Vec<String> = charts.into_iter().flatten().collect();
    if charts.is_empty() {
        return None;
    }
    let mut html = part.legend();
    put!(html, r#"<p class="lead">Accuracies are {place}. "#);
    if comparison.variants.iter().any(|variant| variant.runs.len() > 1) {
        html.push_str("A line is the mean over seeds, the band around it reaches from the lowest to the highest. ");
    }
    if comparison.variants.len() > 1 {
        html.push_str("Losses of different criteria are not on the same scale.");
    }
    put!(html, r#"</p><div class="grid">{}</div>"#, charts.concat());
    Some(html)
}

/// What an epoch's evaluation found.
fn evaluated(epoch: &EpochRecord, on_val: bool) -> Option<&Metrics> {
    if on_val { epoch.val.as_ref() } else { epoch.test.as_ref() }
}

/// Values of every variant by epoch.
fn lines(part: &Part<'_>, values: &dyn Fn(&Run) -> Vec<(u64, f64)>) -> Vec<Vec<Point>> {
    let line = |variant: usize| {
        let mut by_epoch: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (epoch, value) in part.runs(variant).flat_map(values).filter(|(_, value)| value.is_finite()) {
            by_epoch.entry(epoch).or_default().push(value);
        }
        let point = |(epoch, values): (u64, Vec<f64>)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let (low, high) = values.iter().fold((mean, mean), |(low, high), x| (low.min(*x), high.max(*x)));
            (epoch, mean, low, high)
        };
        let points: Vec<Point> = by_epoch.into_iter().map(point).collect();
        picked(points.len(), POINTS).into_iter().map(|at| points[at]).collect()
    };
    (0..part.comparison.variants.len()).map(line).collect()
}

/// At most so many of a number of places, evenly, with the first and the last.
pub(super) fn picked(number: usize, most: usize) -> Vec<usize> {
    match number <= most {
        true => (0..number).collect(),
        false => (0..most).map(|at| (at * (number - 1) + (most - 1) / 2) / (most - 1)).collect(),
    }
}

/// What a chart's y axis is like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Percent,
    Zero,
    Rate,
}

fn chart(
    part: &Part<'_>,
    title: &str,
    y_title: &str,
    lines: &[Vec<Point>],
    shape: Shape,
    span: (u64, u64),
) -> Option<String> {
    let all = || lines.iter().flatten();
    let (first, last) = span;
    all().next()?;
    let numbers = || all().flat_map(|(_, mean, low, high)| [*mean, *low, *high]);
    let positive = numbers().filter(|x| *x > 0.0);
    let (least, most) = positive.fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    let kind = if shape == Shape::Rate && most > 10.0 * least * 1.000_001 { Kind::Log } else { Kind::Linear };
    let y_ends = match shape {
        Shape::Percent => (0.0, 100.0),
        Shape::Zero | Shape::Rate => ends(kind, numbers(), kind == Kind::Linear),
    };
    let y_title = if kind == Kind::Log { format!("{y_title}, log axis") } else { y_title.to_owned() };
    let y = Axis { title: &y_title, kind, ends: y_ends, ticks: 6, whole: false };
    let (start, end) =
        if first == last { (first as f64 - 0.5, last as f64 + 0.5) } else { (first as f64, last as f64) };
    let x = Axis { title: "epoch", kind: Kind::Linear, ends: (start, end), ticks: 6, whole: true };
    let area = Area { left: Panel::room(&y), top: 26.0, right: 328.0, bottom: 170.0 };
    let mut panel = Panel::new(area, x, y);
    let mut alt = vec![format!("{title} by epoch")];
    for (variant, points) in lines.iter().enumerate() {
        let (Some(from), Some(to)) = (points.first(), points.last()) else { continue };
        let known = &part.comparison.variants[variant];
        let join = |of: &dyn Fn(&Point) -> String| points.iter().map(of).collect::<Vec<_>>().join(" ");
        let banded = points.iter().any(|(_, _, low, high)| low < high);
        let mut data = format!(
            r#"data-variant="{variant}" data-label="{}" data-first="{}" data-last="{}" data-xs="{}" data-ys="{}""#,
            escape(&label(&known.label)),
            from.1,
            to.1,
            join(&|point| point.0.to_string()),
            join(&|point| rounded(point.1, 5).to_string()),
        );
        if banded {
            let ranges = join(&|point| format!("{}:{}", rounded(point.2, 4), rounded(point.3, 4)));
            put!(data, r#" data-ranges="{ranges}""#);
        }
        panel.open(&format!("series {}", colour(known.look)), &data);
        if banded {
            let band: Vec<(f64, f64, f64)> = points.iter().map(|(x, _, low, high)| (*x as f64, *low, *high)).collect();
            panel.band(&band);
        }
        let line: Vec<(f64, f64)> = points.iter().map(|(x, mean, ..)| (*x as f64, *mean)).collect();
        panel.line("line", &line);
        // marks tell lines apart where colours do not; a few do
        let every = points.len().div_ceil(8).max(1);
        let shift = if points.len() > 8 { (variant * every / lines.len().max(1)).min(points.len() - 1) } else { 0 };
        for (x, mean) in line.iter().skip(shift).step_by(every) {
            panel.dot(known.look, *x, *mean, 2.8);
        }
        panel.close();
        let decimals =
            if shape == Shape::Percent { |x: f64| format!("{x:.1}") } else { |x: f64| rounded(x, 3).to_string() };
        let label = short(&known.label, 60);
        alt.push(match from.0 == to.0 {
            true => format!("{label}: {} at epoch {}", decimals(from.1), from.0),
            false => format!("{label}: {} at epoch {}, {} at epoch {}", decimals(from.1), from.0, decimals(to.1), to.0),
        });
    }
    let alt = alt.join(". ") + ". Arrow keys move through the epochs.";
    let chart = svg("curve", (340.0, 208.0), &alt, r#"tabindex="0" data-hover="lines""#, &panel.finish());
    let title = match title.strip_prefix("Accuracy of ") {
        Some(group) => format!("Accuracy of {}", name(group)),
        None => escape(title),
    };
    Some(figure("", &title, &chart, ""))
}

#[cfg(test)]
mod tests {
    use super::picked;

    #[test]
    fn first_and_last_are_picked() {
        assert_eq!(picked(3, 5), [0, 1, 2]);
        assert_eq!(picked(9, 3), [0, 4, 8]);
        for number in [31, 100, 1000] {
            let places = picked(number, 30);
            assert_eq!((places.len(), places[0], places[29]), (30, 0, number - 1));
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
        }
        assert!(picked(0, 3).is_empty());
    }
}
