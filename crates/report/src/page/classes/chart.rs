//! The chart of classes: accuracy above, training images below.

use equipoise_support::Examples;

use super::columns::{Column, mean};
use crate::chart::{Area, Axis, Panel, Scale, ScaleKind, fitted, marker, px, significant, svg, text_width, tick_label};
use crate::comparison::ClassAccuracy;
use crate::escape::{escape, label, put, short};
use crate::page::Article;
use crate::page::words::{count, exact, plural};
use crate::statistics::tenths;

/// Top of the shaded bands behind groups.
const BANDS_TOP: f64 = 24.0;
/// Top of the accuracy plot.
const ACCURACY_TOP: f64 = 42.0;
/// Space between the two plots.
const GAP: f64 = 34.0;

/// The chart, `width` pixels wide.
pub(super) fn chart(
    article: &Article<'_>,
    columns: &[Column],
    accuracies: &[Vec<Option<ClassAccuracy>>],
    width: f64,
) -> String {
    let chart = ClassChart::new(article, columns, accuracies, width);
    let (images, depth) = chart.images_panel();
    let body = format!("{}{}{images}{}", chart.group_bands(), chart.accuracy_panel(), chart.hover_columns());
    let height = chart.images_area.bottom + depth.max(10.0) + 4.0;
    svg("classes", (width, height), &chart.alt(), r#"tabindex="0" data-hover="columns""#, &body)
}

/// What the parts of the chart share.
struct ClassChart<'a> {
    article: &'a Article<'a>,
    columns: &'a [Column],
    accuracies: &'a [Vec<Option<ClassAccuracy>>],
    width: f64,
    /// Whether every column is a single class.
    is_single: bool,
    /// Width of a column.
    step: f64,
    accuracy_axis: Axis<'static>,
    accuracy_area: Area,
    images_axis: Axis<'static>,
    images_area: Area,
}

impl<'a> ClassChart<'a> {
    fn new(
        article: &'a Article<'a>,
        columns: &'a [Column],
        accuracies: &'a [Vec<Option<ClassAccuracy>>],
        width: f64,
    ) -> Self {
        let accuracy_axis = Axis::percent("");
        let (low, high) = columns
            .iter()
            .map(|column| train_images(article, column))
            .filter(|n| *n > 0.0)
            .fold((f64::MAX, 1.0f64), |(low, high), n| (low.min(n), high.max(n)));
        // the axis starts low enough for the smallest class to have a visible bar
        let decade = 10f64.powf(low.min(high).max(0.1).log10().floor());
        let low = if low < decade * 1.5 { decade / 2.0 } else { decade };
        let title = match article.comparison.examples() {
            Examples::Images => "training images",
            Examples::Rows => "training rows",
        };
        let images_axis = Axis { max_ticks: 5, ..Axis::new(title, ScaleKind::Log, (low, high * 1.05)) };
        let left = accuracy_axis.label_width().max(images_axis.label_width());
        let (accuracy_height, images_height) = if width < 500.0 { (150.0, 80.0) } else { (230.0, 110.0) };
        let right = width - 6.0;
        let accuracy_area = Area { left, top: ACCURACY_TOP, right, bottom: ACCURACY_TOP + accuracy_height };
        let top = accuracy_area.bottom + GAP;
        Self {
            article,
            columns,
            accuracies,
            width,
            is_single: columns.iter().all(|column| column.classes.len() == 1),
            step: (right - left) / columns.len() as f64,
            accuracy_axis,
            accuracy_area,
            images_axis,
            images_area: Area { left, top, right, bottom: top + images_height },
        }
    }

    /// The x axis: columns, without ticks.
    fn x_axis(&self) -> Axis<'static> {
        Axis::hidden((0.0, self.columns.len() as f64))
    }

    /// Left end of a column, which may be a fraction.
    fn x(&self, column: f64) -> f64 {
        self.images_area.left + self.step * column
    }

    /// Bands behind the columns of each group, with the names of groups.
    fn group_bands(&self) -> String {
        let mut html = r#"<text class="axis" x="0" y="12">accuracy, %</text>"#.to_owned();
        let mut first = 0;
        for (index, group) in self.columns.chunk_by(|a, b| a.group == b.group).enumerate() {
            let (from, to) = (self.x(first as f64), self.x((first + group.len()) as f64));
            let parity = if index % 2 == 0 { "even" } else { "odd" };
            let (x, y, width) = (px(from), px(BANDS_TOP), px(to - from));
            let height = px(self.images_area.bottom - BANDS_TOP);
            put!(html, r#"<rect class="group {parity}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#);
            if let Some(group) = group[0].group {
                // bold text is wider
                let name = fitted(&self.article.comparison.groups[group].name, (to - from - 1.0) / 1.05);
                if name != "…" {
                    let (middle, name) = (px((from + to) / 2.0), escape(&name));
                    put!(html, r#"<text class="group" x="{middle}" y="37" text-anchor="middle">{name}</text>"#);
                }
            }
            first += group.len();
        }
        html
    }

    /// A line with markers per variant.
    fn accuracy_panel(&self) -> String {
        let mut panel = Panel::new(self.accuracy_area, self.x_axis(), self.accuracy_axis);
        for variant in 0..self.accuracies.len() {
            panel.open(&self.article.style_class(variant), &format!(r#"data-variant="{variant}""#));
            self.draw_variant(&mut panel, variant);
            panel.close();
        }
        panel.finish()
    }

    fn draw_variant(&self, panel: &mut Panel, variant: usize) {
        let lanes = self.accuracies.len() as f64;
        // variants stand side by side within a column, so that none hides another
        let offset = match self.step > 12.0 {
            true => ((variant as f64 + 0.5) / lanes - 0.5) * (self.step * 0.5).min(4.0 + 4.0 * lanes),
            false => 0.0,
        };
        let (mut line, mut whiskers, mut dots) = (String::new(), String::new(), String::new());
        let mut command = 'M';
        let radius = if self.step < 12.0 { 2.2 } else { 3.2 };
        for (index, column) in self.columns.iter().enumerate() {
            let Some(accuracy) = column.accuracy(&self.accuracies[variant]) else {
                command = 'M';
                continue;
            };
            let (x, y) = (self.x(index as f64 + 0.5) + offset, panel.y.position(accuracy.mean));
            put!(line, "{command}{} {}", px(x), px(y));
            command = 'L';
            dots.push_str(&marker(self.article.comparison.style(variant), x, y, radius));
            if self.is_single && accuracy.max > accuracy.min {
                let (low, high) = (panel.y.position(accuracy.min), panel.y.position(accuracy.max));
                put!(whiskers, "M{} {}V{}", px(x), px(low), px(high));
            }
        }
        if !whiskers.is_empty() {
            panel.push(&format!(r#"<path class="whisker" d="{whiskers}"/>"#));
        }
        let faint = if lanes > 4.0 { " faint" } else { "" };
        panel.push(&format!(r#"<path class="line thin{faint}" d="{line}"/><path class="dot" d="{dots}"/>"#));
    }

    /// Bars of training images, and the space that the labels below them need.
    fn images_panel(&self) -> (String, f64) {
        let Area { left, right, bottom, .. } = self.images_area;
        let mut panel = Panel::new(self.images_area, self.x_axis(), self.images_axis);
        panel.push(&format!(r#"<path class="base" d="M{} {}H{}"/>"#, px(left), px(bottom), px(right)));
        let gap = (self.step * 0.12).min(3.0);
        for (index, column) in self.columns.iter().enumerate() {
            let n = train_images(self.article, column);
            if n > 0.0 {
                let top = panel.y.position(n);
                panel.push(&format!(
                    r#"<rect class="bar" x="{}" y="{}" width="{}" height="{}"/>"#,
                    px(self.x(index as f64) + gap),
                    px(top),
                    px((self.step - 2.0 * gap).max(0.5)),
                    px(bottom - top)
                ));
            }
        }
        let (labels, depth) = if self.is_single { self.class_names() } else { self.rank_axis() };
        panel.push(&labels);
        (panel.finish(), depth)
    }

    /// Names of single classes, turned if they do not fit beside each other.
    fn class_names(&self) -> (String, f64) {
        let names = || self.columns.iter().map(|column| &self.article.comparison.classes[column.classes[0]].name);
        let longest = names().map(|name| text_width(&label(name))).fold(0.0, f64::max);
        let is_horizontal = longest.min(74.0) <= self.step - 4.0;
        let is_vertical = self.step < 17.0;
        let bottom = self.images_area.bottom;
        let (mut html, mut depth) = (String::new(), 0f64);
        for (index, name) in names().enumerate() {
            let middle = self.x(index as f64 + 0.5);
            if is_horizontal {
                depth = 16.0;
                let (x, y, text) = (px(middle), px(bottom + 14.0), escape(&fitted(name, self.step - 4.0)));
                put!(html, r#"<text class="name" x="{x}" y="{y}" text-anchor="middle">{text}</text>"#);
                continue;
            }
            let (x, y, angle, slope, max_width) = match is_vertical {
                true => (middle + 3.5, bottom + 8.0, -90, 1.0, 100.0),
                // a slanted label at the left end must not start outside of the chart
                false => (middle + 4.0, bottom + 11.0, -45, 0.75, ((middle - 8.0) / 0.71).min(100.0)),
            };
            let text = fitted(name, max_width);
            depth = depth.max(12.0 + text_width(&text) * slope);
            let (x, y, text) = (px(x), px(y), escape(&text));
            put!(
                html,
                r#"<text class="name" x="{x}" y="{y}" text-anchor="end" transform="rotate({angle} {x} {y})">{text}</text>"#
            );
        }
        (html, depth)
    }

    /// An axis of ranks, for bins.
    fn rank_axis(&self) -> (String, f64) {
        let Area { left, right, bottom, .. } = self.images_area;
        let classes = self.article.comparison.classes.len() as f64;
        let ranks = Scale::new(ScaleKind::Linear, (0.0, classes), (0.0, 1.0));
        let mut html = String::new();
        for rank in ranks.ticks(if self.width < 500.0 { 5 } else { 11 }).into_iter().map(|rank| rank.max(1.0)) {
            let index = self.columns.partition_point(|column| column.rank as f64 <= rank).max(1) - 1;
            let column = &self.columns[index];
            let inside = (rank - column.rank as f64) / column.classes.len().max(1) as f64;
            let x = self.x(index as f64 + inside);
            let text = tick_label(rank);
            let anchor = if x + text_width(&text) / 2.0 > self.width { "end" } else { "middle" };
            let (x, from, y) = (px(x), px(bottom), px(bottom + 16.0));
            put!(html, r#"<path class="base" d="M{x} {from}v4"/>"#);
            put!(html, r#"<text class="tick" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#);
        }
        let (middle, y) = (px((left + right) / 2.0), px(bottom + 32.0));
        put!(html, r#"<text class="axis" x="{middle}" y="{y}" text-anchor="middle">rank of the class by size</text>"#);
        (html, 34.0)
    }

    /// Transparent columns with tooltips.
    fn hover_columns(&self) -> String {
        let mut html = String::new();
        for (index, column) in self.columns.iter().enumerate() {
            let class = match column.classes[..] {
                [class] if self.is_single => {
                    format!(r#" data-class="{class}" data-train="{}""#, self.article.comparison.classes[class].train)
                }
                _ => String::new(),
            };
            let means = self.accuracies.iter().map(|accuracies| exact(column.accuracy(accuracies).map(|a| a.mean)));
            put!(
                html,
                r#"<g class="col"{class} data-means="{}" data-tip="{}"><rect class="hit" x="{}" y="{}" width="{}" height="{}"/></g>"#,
                means.collect::<Vec<_>>().join(" "),
                escape(&self.tip(column)),
                px(self.x(index as f64)),
                px(BANDS_TOP),
                px(self.step),
                px(self.images_area.bottom - BANDS_TOP)
            );
        }
        html
    }

    fn tip(&self, column: &Column) -> String {
        let comparison = self.article.comparison;
        let examples = comparison.examples().many();
        let mut lines = match column.classes[..] {
            [class] => {
                let class = &comparison.classes[class];
                let images = format!("{} training, {} test {examples}", count(class.train), count(class.test));
                vec![short(&class.name, 120), images]
            }
            _ => {
                let last = column.rank + column.classes.len() - 1;
                let images = tick_label(significant(train_images(self.article, column), 4));
                vec![
                    format!("classes {} to {} by size", count(column.rank as u64), count(last as u64)),
                    format!("{images} training {examples} on average"),
                ]
            }
        };
        lines.extend(column.group.map(|group| short(&comparison.groups[group].name, 60)));
        for (variant, accuracies) in comparison.variants.iter().zip(self.accuracies) {
            let text = match column.accuracy(accuracies) {
                None => format!("no test {examples}"),
                Some(ClassAccuracy { mean, min, max, .. }) if column.classes.len() == 1 && variant.runs.len() > 1 => {
                    format!("{} % ({}–{})", tenths(mean), tenths(min), tenths(max))
                }
                Some(accuracy) => format!("{} %", tenths(accuracy.mean)),
            };
            lines.push(format!("{}: {text}", short(&variant.label, 60)));
        }
        lines.join("\n")
    }

    /// The chart in words.
    fn alt(&self) -> String {
        let comparison = self.article.comparison;
        let classes = plural(comparison.classes.len(), "class", "classes");
        let examples = comparison.examples().many();
        let mut alt = format!("Accuracy and training {examples} of {classes}, in order of size. ");
        for (variant, accuracies) in comparison.variants.iter().zip(self.accuracies) {
            let mean = |column: Option<&Column>| column?.accuracy(accuracies).map(|accuracy| accuracy.mean);
            if let (Some(first), Some(last)) = (mean(self.columns.first()), mean(self.columns.last())) {
                let (variant, first, last) = (short(&variant.label, 60), tenths(first), tenths(last));
                put!(alt, "{variant}: {first} % on the largest, {last} % on the smallest. ");
            }
        }
        let train = || comparison.classes.iter().map(|class| class.train);
        let (most, fewest) = (count(train().max().unwrap_or(0)), count(train().min().unwrap_or(0)));
        put!(alt, "{most} to {fewest} training {examples}.");
        alt
    }
}

/// Mean number of training images of a column's classes.
fn train_images(article: &Article<'_>, column: &Column) -> f64 {
    mean(column.classes.iter().map(|class| article.comparison.classes[*class].train as f64)).unwrap_or(0.0)
}
