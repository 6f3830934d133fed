//! Margins between the classes of the views: all of them at one epoch, and the largest by epoch.

use equipoise_record::GradientNorms;

use super::VariantNorms;
use crate::chart::{Area, Axis, Panel, ScaleKind, axis_range, px, significant, svg, tick_label};
use crate::escape::{label, put, short, short_name};
use crate::page::Article;
use crate::page::elements::{evenly_spaced, figure, style_class};
use crate::page::words::exact;

/// Maximum number of points of the curve.
const MAX_POINTS: usize = 400;

/// Both figures; empty if the criterion has no margins.
pub(super) fn margins(article: &Article<'_>, shown: &VariantNorms<'_>) -> String {
    let last = shown.last();
    let class_name = |view: usize| {
        let class = last.views[view].class.and_then(|class| article.comparison.classes.get(class as usize));
        class.map_or("", |class| class.name.as_str())
    };
    let mut names: Vec<&str> = shown.single_class_views().into_iter().map(class_name).collect();
    names.truncate(last.margins.len());
    match names[..] {
        [] => String::new(),
        [head, .., tail] => matrix(shown, &names) + &curve(shown, head, tail, names.len() - 1),
        [only] => matrix(shown, &names) + &curve(shown, only, only, 0),
    }
}

fn margin(norms: &GradientNorms, row: usize, column: usize) -> Option<f64> {
    norms.margins.get(row).and_then(|row| row.get(column)).copied()
}

/// All margins at the last epoch.
fn matrix(shown: &VariantNorms<'_>, names: &[&str]) -> String {
    let largest =
        shown.norms.iter().flat_map(|norms| norms.margins.iter().flatten()).fold(0.0f64, |max, m| max.max(m.abs()));
    let mut table = format!(r#"<table class="heat margins" data-largest="{largest}"><thead><tr><td></td>"#);
    for name in names {
        put!(table, r#"<th scope="col">{}</th>"#, short_name(name, 14));
    }
    table.push_str("</tr></thead><tbody>");
    for (row, name) in names.iter().enumerate() {
        put!(table, r#"<tr><th scope="row">{}</th>"#, short_name(name, 14));
        for column in 0..names.len() {
            let margin = margin(shown.last(), row, column);
            let shade = |m: f64| if largest > 0.0 { (10.0 * m.abs() / largest).round() as usize } else { 0 };
            let text = |m: f64| format!("{m:.2}").replace("-0.00", "0.00").replace('-', "−");
            put!(
                table,
                r#"<td class="cell m{}" data-value="{}">{}</td>"#,
                margin.map_or(0, shade),
                exact(margin),
                margin.map_or_else(|| "n/a".to_owned(), text)
            );
        }
        table.push_str("</tr>");
    }
    table.push_str("</tbody></table>");
    let explanation = "Added to the logit of a class (column) for an example of another class (row) in the next epoch. With a \
                       negative margin the class may score that much higher before the example counts against it; with a \
                       positive one it must stay that much lower.";
    figure("", "Margins M", &table, explanation)
}

/// The margin of the first row and last column, by epoch.
fn curve(shown: &VariantNorms<'_>, head: &str, tail: &str, column: usize) -> String {
    let points: Vec<(f64, f64)> = shown
        .norms
        .iter()
        .filter_map(|norms| Some((norms.epoch as f64, margin(norms, 0, column)?)))
        .filter(|(_, m)| m.is_finite())
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let range = axis_range(ScaleKind::Linear, points.iter().map(|point| point.1), true);
    let y = Axis::new("margin, in logits", ScaleKind::Linear, range);
    let area = Area { left: y.label_width(), top: 26.0, right: 328.0, bottom: 170.0 };
    let mut panel = Panel::new(area, Axis::epochs(first.0, last.0), y);
    let x = px(panel.x.position(last.0));
    panel.push(&format!(r#"<path class="cursor" d="M{x} {}V{}"/>"#, px(area.top), px(area.bottom)));
    let join =
        |value: fn(&(f64, f64)) -> f64| points.iter().map(|p| value(p).to_string()).collect::<Vec<_>>().join(" ");
    let data = format!(
        r#"data-variant="{}" data-label="margin" data-first="{}" data-last="{}" data-xs="{}" data-ys="{}""#,
        shown.variant,
        first.1,
        last.1,
        join(|point| point.0),
        join(|point| significant(point.1, 4))
    );
    panel.open(&format!("series {}", style_class(shown.style)), &data);
    let drawn: Vec<(f64, f64)> = evenly_spaced(points.len(), MAX_POINTS).into_iter().map(|i| points[i]).collect();
    panel.line("line", &drawn);
    panel.close();
    let (head, tail) = (label(head), label(tail));
    let alt = format!(
        "Margin on the logit of {} for examples of {}: {} at epoch {}, {} at epoch {}. Arrow keys move through the epochs.",
        short(&tail, 60),
        short(&head, 60),
        tick_label(significant(first.1, 3)),
        first.0,
        tick_label(significant(last.1, 3)),
        last.0
    );
    let title = format!("Margin on {} for examples of {}", short_name(&tail, 16), short_name(&head, 16));
    let chart = svg("curve margin", (340.0, 208.0), &alt, r#"tabindex="0" data-hover="lines""#, &panel.finish());
    figure("", &title, &chart, "")
}
