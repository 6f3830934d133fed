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
    let at = suggested.and_then(|rate| Some((rate, loss_at(points, rate)?)));
    if let Some((rate, loss)) = at {
        panel.dot(0, rate, loss, 4.0);
    }
    panel.close();
    let mut alt =
        format!("Smoothed loss by learning rate, from {} to {}", significant(*first, 2), significant(*last, 2));
    if let Some(rate) = suggested {
        put!(alt, "; suggested: {}", significant(rate, 2));
    }
    let chart = svg("curve", (720.0, 368.0), &alt, "", &panel.finish());
    let caption = if at.is_some() { "The marker is the suggested learning rate." } else { "" };
    figure("", "Loss by learning rate", &chart, caption)
}

/// The loss at a learning rate, on the line between the points around it; `None` outside of them.
fn loss_at(points: &[(f64, f64)], rate: f64) -> Option<f64> {
    let pair = points.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&rate))?;
    let [(low, before), (high, after)] = [pair[0], pair[1]];
    let share = (rate / low).ln() / (high / low).ln();
    Some(before + share * (after - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_on_the_line() {
        let points = [(0.001, 3.0), (0.1, 1.0), (10.0, 5.0)];
        assert!((loss_at(&points, 0.01).expect("inside") - 2.0).abs() < 1e-12);
        assert_eq!(loss_at(&points, 0.1), Some(1.0));
        assert_eq!(loss_at(&points, 1e-4), None);
        // the dot is at 0.01, half-way between the first two points, and not at the next point
        let page = chart(&points, Some(0.01));
        assert!(page.contains("The marker is the suggested learning rate."));
        assert!(!chart(&points, Some(1e-5)).contains("The marker"));
    }
}
