//! The page of a learning-rate range test.

use super::document;
use super::elements::figure;
use crate::chart::{Area, Axis, Panel, ScaleKind, axis_range, significant, svg};
use crate::escape::{escape, put};

/// Renders the page of a range test: the loss, smoothed, by learning rate, and the rate that it suggests. `about` says
/// what was trained.
#[must_use]
pub fn rate_range_page(about: &str, points: &[(f64, f64)], suggested: Option<f64>) -> String {
    let sentence = match suggested {
        Some(rate) => format!(
            "The loss is smallest at a learning rate of {}. A tenth of it, {}, is a good start.",
            significant(10.0 * rate, 2),
            significant(rate, 2)
        ),
        None => "The loss never fell: try smaller learning rates.".to_owned(),
    };
    let mut body = r#"<header class="opening"><h1 class="h1">Learning-rate range test</h1>"#.to_owned();
    put!(body, r#"<p class="lead">{} {}</p></header>"#, escape(about), escape(&sentence));
    body.push_str(&chart(points, suggested));
    document("Learning-rate range test – Equipoise", "", &body)
}

fn chart(points: &[(f64, f64)], suggested: Option<f64>) -> String {
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else { return String::new() };
    let losses = || points.iter().map(|(_, loss)| *loss);
    let x = Axis::new("learning rate (log scale)", ScaleKind::Log, (*first, *last));
    let y = Axis::new("loss, smoothed", ScaleKind::Linear, axis_range(ScaleKind::Linear, losses(), true));
    let area = Area { left: y.label_width(), top: 26.0, right: 708.0, bottom: 330.0 };
    let mut panel = Panel::new(area, x, y);
    panel.open("series v0", "");
    panel.line("line", points);
    let at = suggested.and_then(|rate| points.iter().find(|(other, _)| *other >= rate));
    if let Some((rate, loss)) = at {
        panel.dot(0, *rate, *loss, 4.0);
    }
    panel.close();
    let mut alt =
        format!("Smoothed loss by learning rate, from {} to {}", significant(*first, 2), significant(*last, 2));
    if let Some(rate) = suggested {
        put!(alt, "; suggested: {}", significant(rate, 2));
    }
    let chart = svg("curve", (720.0, 368.0), &alt, "", &panel.finish());
    figure("", "Loss by learning rate", &chart, "The marker is the suggested learning rate.")
}
