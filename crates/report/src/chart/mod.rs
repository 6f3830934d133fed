//! Charts as inline SVG: scales, axes with round numbers, lines, bands, bars, markers and steps.
//!
//! Colors, dashes and fonts belong to the page's style sheet; elements only have classes. Charts are drawn about as
//! wide as they are displayed, so that their text has the size of the page's small text.

mod numbers;
mod panel;
mod scale;
mod shapes;
mod text;

use crate::escape::{escape, put};

pub(crate) use numbers::{significant, thousands, tick_label};
pub(crate) use panel::{Area, Axis, Panel};
pub(crate) use scale::{Scale, ScaleKind, axis_range};
pub(crate) use shapes::{marker, step_area, steps};
pub(crate) use text::{fitted, text_width};

/// A coordinate as SVG takes it, with one decimal: finer than a pixel.
pub(crate) fn px(x: f64) -> String {
    let text = format!("{x:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A complete chart. `alt` describes it in words and numbers.
pub(crate) fn svg(class: &str, (width, height): (f64, f64), alt: &str, attributes: &str, body: &str) -> String {
    let (width, height, alt) = (px(width), px(height), escape(alt));
    let mut svg = format!(
        r#"<svg class="chart {class}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{alt}""#
    );
    let space = if attributes.is_empty() { "" } else { " " };
    put!(svg, "{space}{attributes}>{body}</svg>");
    svg
}

#[test]
fn coordinates_have_one_decimal() {
    assert_eq!([px(-0.04), px(1.25), px(3.0)], ["0", "1.2", "3"]);
}
