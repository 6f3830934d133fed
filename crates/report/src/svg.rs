//! Charts as inline SVG: scales, axes with round numbers, lines, bands, bars, dots, steps.
//!
//! Colours, dashes and fonts are the page's: marks have classes. A text of a chart is as large as the page's small text, because
//! charts are drawn about as wide as they are shown.

use std::fmt::Write;

use crate::escape::{escape, label, short};

/// Writes to a `String`, which does not fail.
macro_rules! put {
    ($to:expr, $($what:tt)*) => {{
        let _ = std::fmt::Write::write_fmt(&mut $to, format_args!($($what)*));
    }};
}
pub(crate) use put;

/// A place as SVG takes it: a tenth is finer than a pixel.
pub(crate) fn place(x: f64) -> String {
    let text = format!("{x:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A number in about so many digits, without zeros that say nothing.
pub(crate) fn rounded(x: f64, digits: usize) -> f64 {
    format!("{x:.*e}", digits.saturating_sub(1)).parse().unwrap_or(x)
}

/// How wide a text of 11 pixels is at most in the fonts that systems have.
pub(crate) fn width(text: &str) -> f64 {
    let wide = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 3.9,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '&' | '…' => 10.8,
        ' ' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' => 4.9,
        '<' | '>' | '=' | '+' | '#' | '~' | '−' => 9.3,
        c if c.is_uppercase() => 8.4,
        c if u32::from(c) < 0x1100 => 6.9,
        _ => 12.0,
    };
    text.chars().map(wide).sum()
}

/// A name, cut to so many pixels.
pub(crate) fn fitted(name: &str, room: f64) -> String {
    let whole = label(name);
    let most = whole.chars().count();
    let cuts = (1..=most).rev().map(|most| short(name, most));
    cuts.into_iter().find(|text| width(text) <= room).unwrap_or_default()
}

/// How numbers become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In proportion.
    Linear,
    /// In proportion to the logarithm.
    Log,
    /// In proportion to ln(1 + x): a logarithm that has a place for 0.
    LogPlus,
}

impl Kind {
    /// As the script knows it.
    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
            Self::LogPlus => "log1p",
        }
    }

    fn of(self, x: f64) -> f64 {
        match self {
            Self::Linear => x,
            Self::Log => x.max(1e-300).ln(),
            Self::LogPlus => x.max(0.0).ln_1p(),
        }
    }
}

/// Numbers from `low` to `high`, at places from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) kind: Kind,
    pub(crate) low: f64,
    pub(crate) high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale. What is outside of it is shown at its ends.
    pub(crate) fn new(kind: Kind, (low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self { kind, low, high, from, to }
    }

    /// A number's place.
    pub(crate) fn at(&self, x: f64) -> f64 {
        let (low, high) = (self.kind.of(self.low), self.kind.of(self.high));
        let share = if high > low { (self.kind.of(x) - low) / (high - low) } else { 0.5 };
        // NaN is nowhere: at the beginning
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }

    /// Round numbers on it, at most so many (but at least two on a scale that has them).
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        match self.kind {
            Kind::Linear => {
                let step = step(self.high - self.low, most);
                let first = (self.low / step - 1e-9).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).take(100).map(|k| tidy(k as f64 * step)).collect()
            }
            Kind::Log => {
                let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                let inside = |x: &f64| (self.low * 0.999..=self.high * 1.001).contains(x);
                let with = |factors: &[f64]| -> Vec<f64> {
                    let all = (first..=last).flat_map(|k| factors.iter().map(move |f| tidy(f * 10f64.powi(k))));
                    all.filter(inside).collect()
                };
                let decades = with(&[1.0]);
                if decades.len() < 3 {
                    return [with(&[1.0, 2.0, 5.0]), with(&[1.0, 3.0]), decades]
                        .into_iter()
                        .find(|ticks| ticks.len() <= most)
                        .unwrap_or_default();
                }
                thinned(decades, most)
            }
            Kind::LogPlus => {
                let last = self.high.max(1.0).log10().floor() as i32;
                let decades = thinned((0..=last).map(|k| 10f64.powi(k)).collect(), most.saturating_sub(1));
                std::iter::once(0.0).chain(decades).filter(|x| *x <= self.high).collect()
            }
        }
    }

    /// As the script reads it.
    fn attribute(&self) -> String {
        format!("{} {} {}", self.kind.name(), self.low, self.high)
    }
}

/// Every so many of some ticks, so that they are few enough.
fn thinned(ticks: Vec<f64>, most: usize) -> Vec<f64> {
    let every = ticks.len().div_ceil(most.max(1)).max(1);
    ticks.into_iter().step_by(every).collect()
}

/// 0.3 rather than 0.30000000000000004.
fn tidy(x: f64) -> f64 {
    rounded(x, 12)
}

/// The smallest of 1, 2 and 5 times a power of ten that cuts a span into fewer than so many parts.
fn step(span: f64, most: usize) -> f64 {
    let span = if span.is_finite() && span > 0.0 { span } else { 1.0 };
    let rough = span / (most.max(2) - 1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Ends of an axis that has these numbers on it.
pub(crate) fn ends(kind: Kind, numbers: impl IntoIterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    // no chart is about larger numbers, and an axis to the end of all numbers has no ticks
    let usable = |x: &f64| x.abs() <= 1e100 && (kind != Kind::Log || *x >= 1e-100);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for x in numbers.into_iter().filter(usable) {
        (low, high) = (low.min(x), high.max(x));
    }
    if low > high {
        return if kind == Kind::Log { (0.1, 10.0) } else { (0.0, 1.0) };
    }
    match kind {
        Kind::Log => {
            let floor = |x: f64| 10f64.powf((x.log10() + 1e-9).floor());
            let (below, above) = (floor(low), floor(high));
            let under = [5.0, 2.0, 1.0].into_iter().map(|f| f * below).find(|x| *x <= low * 1.000_001);
            let over = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * above).find(|x| *x >= high * 0.999_999);
            let (low, high) = (tidy(under.unwrap_or(below)), tidy(over.unwrap_or(high)));
            if low < high { (low, high) } else { (tidy(low / 2.0), tidy(high * 2.0)) }
        }
        Kind::LogPlus => (0.0, high.max(1.0)),
        Kind::Linear => {
            if from_zero {
                (low, high) = (low.min(0.0), high.max(0.0));
            }
            let step = step(high - low, 5);
            let (low, mut high) = (tidy((low / step + 1e-9).floor() * step), tidy((high / step - 1e-9).ceil() * step));
            if low >= high {
                high = low + step;
            }
            (low, high)
        }
    }
}

/// A tick's number: `0.25`, `1,500`, `20k`, `1e-4`.
pub(crate) fn tick(x: f64) -> String {
    let size = x.abs();
    let plain = |x: f64| {
        let text = format!("{x:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let text = match size {
        0.0 => "0".to_owned(),
        size if size >= 1e6 => format!("{}M", plain(rounded(x / 1e6, 4))),
        size if size >= 1e4 => format!("{}k", plain(rounded(x / 1e3, 4))),
        size if size < 1e-3 => format!("{:e}", rounded(x, 2)),
        _ => grouped(&plain(rounded(x, 5))),
    };
    text.replace('-', "−")
}

/// Thousands apart.
pub(crate) fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(whole.len() - whole.trim_start_matches('-').len());
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// A part of a chart, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

/// A plot with its axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) area: Area,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    body: String,
}

/// What an axis says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    /// What is measured, with its unit.
    pub(crate) title: &'a str,
    pub(crate) kind: Kind,
    pub(crate) ends: (f64, f64),
    /// Most ticks there may be.
    pub(crate) ticks: usize,
    /// Whether there is nothing between whole numbers.
    pub(crate) whole: bool,
}

impl Axis<'_> {
    fn ticks(&self, scale: &Scale) -> Vec<f64> {
        let mut ticks = if self.ticks == 0 { Vec::new() } else { scale.ticks(self.ticks) };
        if self.whole {
            ticks.retain(|x| x.fract().abs() < 1e-9);
        }
        ticks
    }
}

impl Panel {
    /// A plot with a y axis: lines across it, numbers on its left, and the title above them.
    ///
    /// An x axis without ticks (0) is not drawn.
    pub(crate) fn new(area: Area, x_axis: Axis<'_>, y_axis: Axis<'_>) -> Self {
        let Area { left, top, right, bottom } = area;
        let x = Scale::new(x_axis.kind, x_axis.ends, (left, right));
        let y = Scale::new(y_axis.kind, y_axis.ends, (bottom, top));
        let mut body = String::new();
        let (start, end) = (place(left), place(right));
        let mut free = f64::INFINITY;
        for number in y_axis.ticks(&y) {
            // near 0 a logarithm's numbers may be closer than their digits are high
            if y.at(number) > free {
                continue;
            }
            free = y.at(number) - 11.0;
            let at = place(y.at(number));
            put!(body, r#"<path class="grid" d="M{start} {at}H{end}"/>"#);
            let (text, at) = (place(left - 6.0), place(y.at(number) + 3.5));
            put!(body, r#"<text class="tick" x="{text}" y="{at}" text-anchor="end">{}</text>"#, tick(number));
        }
        if !y_axis.title.is_empty() {
            put!(body, r#"<text class="axis" x="0" y="{}">{}</text>"#, place(top - 12.0), escape(y_axis.title));
        }
        if x_axis.ticks > 0 {
            put!(body, r#"<path class="base" d="M{start} {}H{end}"/>"#, place(bottom));
            for number in x_axis.ticks(&x) {
                let (at, text) = (x.at(number), tick(number));
                let (from, to, under) = (place(bottom), place(bottom + 4.0), place(bottom + 16.0));
                put!(body, r#"<path class="base" d="M{} {from}V{to}"/>"#, place(at));
                let half = width(&text) / 2.0;
                // the last number does not stick out
                let middle = place(at.min(right + 10.0 - half));
                put!(body, r#"<text class="tick" x="{middle}" y="{under}" text-anchor="middle">{text}</text>"#);
            }
        }
        if !x_axis.title.is_empty() {
            let (middle, under) = (place((left + right) / 2.0), place(bottom + 32.0));
            put!(
                body,
                r#"<text class="axis" x="{middle}" y="{under}" text-anchor="middle">{}</text>"#,
                escape(x_axis.title)
            );
        }
        Self { area, x, y, body }
    }

    /// Room that the numbers of a y axis take.
    pub(crate) fn room(axis: &Axis<'_>) -> f64 {
        let scale = Scale::new(axis.kind, axis.ends, (100.0, 0.0));
        let widest = axis.ticks(&scale).into_iter().map(|x| width(&tick(x))).fold(0.0, f64::max);
        (widest + 8.0).max(22.0)
    }

    /// Markup of the caller's own.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// A line through points.
    pub(crate) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        put!(self.body, r#"<path class="{class}" d="{path}"/>"#);
    }

    /// The path through points.
    pub(crate) fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            put!(path, "{letter}{} {}", place(self.x.at(*x)), place(self.y.at(*y)));
        }
        path
    }

    /// What lies between two lines: x, low, high.
    pub(crate) fn band(&mut self, points: &[(f64, f64, f64)]) {
        let above: Vec<(f64, f64)> = points.iter().map(|(x, _, high)| (*x, *high)).collect();
        let below: Vec<(f64, f64)> = points.iter().rev().map(|(x, low, _)| (*x, *low)).collect();
        let (above, below) = (self.path(&above), self.path(&below));
        put!(self.body, r#"<path class="band" d="{above}L{}Z"/>"#, below.trim_start_matches('M'));
    }

    /// A point's mark.
    pub(crate) fn dot(&mut self, shape: usize, x: f64, y: f64, radius: f64) {
        let path = marker(shape, self.x.at(x), self.y.at(y), radius);
        put!(self.body, r#"<path class="dot" d="{path}"/>"#);
    }

    /// Opens a group of marks.
    pub(crate) fn open(&mut self, class: &str, attributes: &str) {
        let space = if attributes.is_empty() { "" } else { " " };
        put!(self.body, r#"<g class="{class}"{space}{attributes}>"#);
    }

    /// Closes it.
    pub(crate) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// The plot in a group, with what the script has to know of it.
    pub(crate) fn finish(self) -> String {
        let Area { left, top, right, bottom } = self.area;
        format!(
            r#"<g class="panel" data-area="{} {} {} {}" data-x="{}" data-y="{}">{}</g>"#,
            place(left),
            place(top),
            place(right),
            place(bottom),
            self.x.attribute(),
            self.y.attribute(),
            self.body
        )
    }
}

/// Steps over regions between edges, as a path; what has no value is left out.
pub(crate) fn steps(x: &Scale, y: &Scale, edges: &[f64], values: &[Option<f64>]) -> String {
    let mut path = String::new();
    let mut pen = false;
    for (value, ends) in values.iter().zip(edges.windows(2)) {
        let Some(value) = value else {
            pen = false;
            continue;
        };
        let (from, to, at) = (place(x.at(ends[0])), place(x.at(ends[1])), place(y.at(*value)));
        match pen {
            true => put!(path, "V{at}H{to}"),
            false => put!(path, "M{from} {at}H{to}"),
        }
        pen = true;
    }
    path
}

/// The area under steps over regions of the same width on [0, 1].
pub(crate) fn step_area(x: &Scale, y: &Scale, values: &[f64]) -> String {
    let mut path = format!("M{} {}", place(x.at(0.0)), place(y.at(0.0)));
    for (at, value) in values.iter().enumerate() {
        let end = (at + 1) as f64 / values.len() as f64;
        put!(path, "V{}H{}", place(y.at(*value)), place(x.at(end)));
    }
    put!(path, "V{}Z", place(y.at(0.0)));
    path
}

/// A mark around a place: circle, square, triangle, diamond, triangle upside down, cross.
pub(crate) fn marker(shape: usize, x: f64, y: f64, r: f64) -> String {
    let points = |points: &[(f64, f64)]| {
        let mut path = String::new();
        for (at, (dx, dy)) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            put!(path, "{letter}{} {}", place(x + dx * r), place(y + dy * r));
        }
        path + "Z"
    };
    match shape % 6 {
        0 => {
            let (from, r, wide) = (place(x - r), place(r), place(2.0 * r));
            format!("M{from} {}a{r} {r} 0 1 0 {wide} 0a{r} {r} 0 1 0 -{wide} 0Z", place(y))
        }
        1 => points(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => points(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        3 => points(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => points(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
        _ => {
            let (a, b) = (0.4, 1.2);
            points(&[
                (-a, -b),
                (a, -b),
                (a, -a),
                (b, -a),
                (b, a),
                (a, a),
                (a, b),
                (-a, b),
                (-a, a),
                (-b, a),
                (-b, -a),
                (-a, -a),
            ])
        }
    }
}

/// A whole chart. `alt` says in words and numbers what it shows.
pub(crate) fn svg(class: &str, (wide, high): (f64, f64), alt: &str, attributes: &str, body: &str) -> String {
    let mut svg = String::new();
    let (wide, high) = (place(wide), place(high));
    let _ = write!(
        svg,
        r#"<svg class="chart {class}" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="{}""#,
        escape(alt)
    );
    let space = if attributes.is_empty() { "" } else { " " };
    put!(svg, "{space}{attributes}>{body}</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let linear = |low, high| Scale::new(Kind::Linear, (low, high), (0.0, 100.0)).ticks(6);
        assert_eq!(linear(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(1.0, 30.0), [10.0, 20.0, 30.0]);
        assert_eq!(linear(0.0, 0.3), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(linear(5.0, 5.0).len(), 1);
        let log = |low, high| Scale::new(Kind::Log, (low, high), (0.0, 100.0)).ticks(5);
        assert_eq!(log(0.001, 10.0), [0.001, 0.01, 0.1, 1.0, 10.0]);
        assert_eq!(log(0.1, 1.0), [0.1, 0.2, 0.5, 1.0]);
        assert_eq!(log(1.0, 1e9), [1.0, 100.0, 1e4, 1e6, 1e8]);
        assert_eq!(Scale::new(Kind::LogPlus, (0.0, 700.0), (0.0, 1.0)).ticks(5), [0.0, 1.0, 10.0, 100.0]);
    }

    #[test]
    fn ends_are_round_and_hold_everything() {
        assert_eq!(ends(Kind::Linear, [0.2, 2.31], true), (0.0, 3.0));
        assert_eq!(ends(Kind::Linear, [], true), (0.0, 1.0));
        assert_eq!(ends(Kind::Linear, [f64::NAN, 4.0], false), (4.0, 4.5));
        assert_eq!(ends(Kind::Log, [0.0, 0.001, 0.07], false), (0.001, 0.1));
        assert_eq!(ends(Kind::Log, [f64::MAX, 1.0, 1e-300, f64::INFINITY, 10.0], false), (1.0, 10.0));
        assert_eq!(ends(Kind::Log, [1.0], false), (0.5, 2.0));
        assert_eq!(ends(Kind::Log, [3.0, 110.0], false), (2.0, 200.0));
        assert_eq!(ends(Kind::LogPlus, [5.0], false), (0.0, 5.0));
    }

    #[test]
    fn places() {
        let scale = Scale::new(Kind::Log, (1.0, 100.0), (10.0, 110.0));
        assert_eq!([1.0, 10.0, 100.0, 1e9, 0.0].map(|x| scale.at(x).round()), [10.0, 60.0, 110.0, 110.0, 10.0]);
        assert_eq!(scale.at(f64::NAN), 10.0);
        assert_eq!(Scale::new(Kind::Linear, (3.0, 3.0), (0.0, 10.0)).at(3.0), 5.0);
        assert_eq!([place(-0.04), place(1.25), place(3.0)], ["0", "1.2", "3"]);
    }

    #[test]
    fn numbers_of_ticks() {
        let texts = [0.0, 0.25, 1500.0, 20_000.0, 2.5e6, 1e-4, -3.0].map(tick);
        assert_eq!(texts, ["0", "0.25", "1,500", "20k", "2.5M", "1e−4", "−3"]);
        assert_eq!([grouped("1234567.5"), grouped("-100"), grouped("-1000")], ["1,234,567.5", "-100", "-1,000"]);
    }

    #[test]
    fn steps_leave_gaps() {
        let scale = Scale::new(Kind::Linear, (0.0, 1.0), (0.0, 10.0));
        let path = steps(&scale, &scale, &[0.0, 0.2, 0.4, 0.6, 1.0], &[Some(0.5), Some(1.0), None, Some(0.0)]);
        assert_eq!(path, "M0 5H2V10H4M6 0H10");
        assert_eq!(step_area(&scale, &scale, &[0.5, 1.0]), "M0 0V5H5V10H10V0Z");
    }
}
