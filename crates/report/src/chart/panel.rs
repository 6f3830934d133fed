//! A plot area with its axes.

use super::{Scale, ScaleKind, marker, px, text_width, tick_label};
use crate::escape::{escape, put};

/// Bounds of a plot, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    /// The quantity, with its unit; may be empty.
    pub(crate) title: &'a str,
    pub(crate) kind: ScaleKind,
    pub(crate) range: (f64, f64),
    /// Maximum number of ticks; 0 for an axis that is not drawn.
    pub(crate) max_ticks: usize,
    /// Whether ticks are whole numbers.
    pub(crate) integers: bool,
}

impl<'a> Axis<'a> {
    /// An axis with up to six ticks.
    pub(crate) fn new(title: &'a str, kind: ScaleKind, range: (f64, f64)) -> Self {
        Self { title, kind, range, max_ticks: 6, integers: false }
    }

    /// A percentage from 0 to 100.
    pub(crate) fn percent(title: &'a str) -> Self {
        Self::new(title, ScaleKind::Linear, (0.0, 100.0))
    }

    /// A range of epochs; a single epoch is in the middle.
    pub(crate) fn epochs(first: f64, last: f64) -> Self {
        let range = if first < last { (first, last) } else { (first - 0.5, last + 0.5) };
        Self { integers: true, ..Self::new("epoch", ScaleKind::Linear, range) }
    }

    /// A linear axis that is not drawn.
    pub(crate) fn hidden(range: (f64, f64)) -> Self {
        Self { max_ticks: 0, ..Self::new("", ScaleKind::Linear, range) }
    }

    fn ticks(&self, scale: &Scale) -> Vec<f64> {
        let mut ticks = if self.max_ticks == 0 { Vec::new() } else { scale.ticks(self.max_ticks) };
        if self.integers {
            ticks.retain(|x| x.fract().abs() < 1e-9);
        }
        ticks
    }

    /// Width of the tick labels, if this is a y axis.
    pub(crate) fn label_width(&self) -> f64 {
        let scale = Scale::new(self.kind, self.range, (100.0, 0.0));
        let widest = self.ticks(&scale).into_iter().map(|x| text_width(&tick_label(x))).fold(0.0, f64::max);
        (widest + 8.0).max(22.0)
    }
}

/// A plot with its axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) area: Area,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    body: String,
}

impl Panel {
    /// A plot with grid lines across, y labels on the left and the y title above them.
    pub(crate) fn new(area: Area, x_axis: Axis<'_>, y_axis: Axis<'_>) -> Self {
        let x = Scale::new(x_axis.kind, x_axis.range, (area.left, area.right));
        let y = Scale::new(y_axis.kind, y_axis.range, (area.bottom, area.top));
        let mut panel = Self { area, x, y, body: String::new() };
        panel.draw_y_axis(&y_axis);
        panel.draw_x_axis(&x_axis);
        panel
    }

    fn draw_y_axis(&mut self, axis: &Axis<'_>) {
        let Area { left, top, right, .. } = self.area;
        let mut lowest_free = f64::INFINITY;
        for number in axis.ticks(&self.y) {
            let y = self.y.position(number);
            // near 0, the ticks of a logarithmic axis may be closer than a line of text
            if y > lowest_free {
                continue;
            }
            lowest_free = y - 11.0;
            put!(self.body, r#"<path class="grid" d="M{} {}H{}"/>"#, px(left), px(y), px(right));
            let (x, y) = (px(left - 6.0), px(y + 3.5));
            put!(self.body, r#"<text class="tick" x="{x}" y="{y}" text-anchor="end">{}</text>"#, tick_label(number));
        }
        if !axis.title.is_empty() {
            put!(self.body, r#"<text class="axis" x="0" y="{}">{}</text>"#, px(top - 12.0), escape(axis.title));
        }
    }

    fn draw_x_axis(&mut self, axis: &Axis<'_>) {
        let Area { left, right, bottom, .. } = self.area;
        if axis.max_ticks > 0 {
            put!(self.body, r#"<path class="base" d="M{} {}H{}"/>"#, px(left), px(bottom), px(right));
        }
        for number in axis.ticks(&self.x) {
            let (x, text) = (self.x.position(number), tick_label(number));
            let (from, to, y) = (px(bottom), px(bottom + 4.0), px(bottom + 16.0));
            put!(self.body, r#"<path class="base" d="M{} {from}V{to}"/>"#, px(x));
            // the last label stays inside the chart
            let middle = px(x.min(right + 10.0 - text_width(&text) / 2.0));
            put!(self.body, r#"<text class="tick" x="{middle}" y="{y}" text-anchor="middle">{text}</text>"#);
        }
        if !axis.title.is_empty() {
            let (middle, y, title) = (px((left + right) / 2.0), px(bottom + 32.0), escape(axis.title));
            put!(self.body, r#"<text class="axis" x="{middle}" y="{y}" text-anchor="middle">{title}</text>"#);
        }
    }

    /// Appends markup.
    pub(crate) fn push(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Draws a line through points.
    pub(crate) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        put!(self.body, r#"<path class="{class}" d="{path}"/>"#);
    }

    /// Path through points.
    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            put!(path, "{command}{} {}", px(self.x.position(*x)), px(self.y.position(*y)));
        }
        path
    }

    /// Fills the band between a lower and an upper line, given as x, low, high.
    pub(crate) fn band(&mut self, points: &[(f64, f64, f64)]) {
        let upper: Vec<(f64, f64)> = points.iter().map(|(x, _, high)| (*x, *high)).collect();
        let lower: Vec<(f64, f64)> = points.iter().rev().map(|(x, low, _)| (*x, *low)).collect();
        let (upper, lower) = (self.path(&upper), self.path(&lower));
        put!(self.body, r#"<path class="band" d="{upper}L{}Z"/>"#, lower.trim_start_matches('M'));
    }

    /// Draws a marker at a point.
    pub(crate) fn dot(&mut self, shape: usize, x: f64, y: f64, radius: f64) {
        let path = marker(shape, self.x.position(x), self.y.position(y), radius);
        put!(self.body, r#"<path class="dot" d="{path}"/>"#);
    }

    /// Opens a group of elements.
    pub(crate) fn open(&mut self, class: &str, attributes: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        put!(self.body, r#"<g class="{class}"{space}{attributes}>"#);
    }

    /// Closes the group.
    pub(crate) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// The plot as a group, with what the page's script needs to know about it.
    pub(crate) fn finish(self) -> String {
        let Area { left, top, right, bottom } = self.area;
        format!(
            r#"<g class="panel" data-area="{} {} {} {}" data-x="{}" data-y="{}">{}</g>"#,
            px(left),
            px(top),
            px(right),
            px(bottom),
            self.x.attribute(),
            self.y.attribute(),
            self.body
        )
    }
}
