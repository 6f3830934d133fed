//! Images and accuracy by class: a chart in order of size, and a table to search.

use serde_json::{Value, json};

use super::{Part, colour, count, exact, figure, figures, several, signed};
use crate::comparison::Recall;
use crate::escape::{self, escape, label, short, short_name};
use crate::statistics::tenths;
use crate::svg::{Area, Axis, Kind, Panel, Scale, fitted, place, put, rounded, svg, tick, width};
use crate::table::Table;

/// Classes that each have a column of their own, in a chart that is wide and one that is narrow.
const SINGLE: (usize, usize) = (40, 24);
/// Columns of classes of about the same size, if there are more.
const BINS: (usize, usize) = (60, 24);
/// Classes that the table has as rows; those of more are rows only while they are looked at.
const ROWS: usize = 200;
/// Bytes that the table of thousands of classes may take as text.
const LARGEST_TEXT: usize = 1_000_000;
/// Rows of such a table.
const SHOWN: usize = 100;

/// Classes in a column of the chart.
struct Column {
    classes: Vec<usize>,
    group: Option<usize>,
    /// Rank of its first class, from 1.
    rank: usize,
}

/// The section; none without classes.
pub(super) fn section(part: &Part<'_>) -> Option<String> {
    let comparison = part.comparison;
    let order = comparison.by_size();
    if order.is_empty() {
        return None;
    }
    let recalls: Vec<Vec<Option<Recall>>> = (0..comparison.variants.len()).map(|v| comparison.recalls(v)).collect();
    let mut html = part.legend();
    for (class, wide, single, bins) in [("for-wide", 1040.0, SINGLE.0, BINS.0), ("for-narrow", 340.0, SINGLE.1, BINS.1)]
    {
        let columns = columns(&order, single, bins);
        let words = words(part, &columns, order.len());
        // a few classes need no wide columns
        let wide = (120.0 * columns.len() as f64).clamp(520f64.min(wide), wide);
        html.push_str(&figure(&format!("plain {class}"), "", &chart(part, &columns, &recalls, wide), &words));
    }
    html.push_str(&part.heading(2, "Every class"));
    html.push_str(&table(part, &order, &recalls));
    Some(html)
}

fn words(part: &Part<'_>, columns: &[Column], classes: usize) -> String {
    let mut words = match columns.len() == classes {
        true => "A column is a class, the largest on the left.".to_owned(),
        false => format!(
            "{} in {} columns: a column has the mean of classes next to each other in size, the largest on the left.",
            several(classes, "class", "classes"),
            columns.len()
        ),
    };
    words.push_str(" Above: accuracy on the test set, mean over seeds");
    if columns.len() == classes && part.comparison.variants.iter().any(|variant| variant.runs.len() > 1) {
        words.push_str(", with a line from the lowest to the highest");
    }
    words.push_str(". Below: training images, on a logarithmic axis.");
    words
}

/// Classes by column: one each, or bins that do not reach over the end of a group.
fn columns(order: &[(usize, Option<usize>)], single: usize, most: usize) -> Vec<Column> {
    let alone = |(at, (class, group)): (usize, &(usize, Option<usize>))| Column {
        classes: vec![*class],
        group: *group,
        rank: at + 1,
    };
    if order.len() <= single {
        return order.iter().enumerate().map(alone).collect();
    }
    let mut parts: Vec<&[(usize, Option<usize>)]> = order.chunk_by(|a, b| a.1 == b.1).collect();
    if parts.len() > most / 2 {
        parts = vec![order];
    }
    let mut columns = Vec::new();
    let mut rank = 1;
    let free = most - parts.len();
    for part in parts {
        let bins = (1 + free * part.len() / order.len()).min(part.len());
        for bin in 0..bins {
            let classes = &part[bin * part.len() / bins..(bin + 1) * part.len() / bins];
            columns.push(Column { classes: classes.iter().map(|(class, _)| *class).collect(), group: part[0].1, rank });
            rank += classes.len();
        }
    }
    columns
}

/// Mean over classes of what they have.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, number) = values.fold((0.0, 0usize), |(sum, number), x| (sum + x, number + 1));
    (number > 0).then(|| sum / number as f64)
}

fn chart(part: &Part<'_>, columns: &[Column], recalls: &[Vec<Option<Recall>>], wide: f64) -> String {
    let comparison = part.comparison;
    let singles = columns.iter().all(|column| column.classes.len() == 1);
    let narrow = wide < 500.0;
    let train = |column: &Column| {
        mean(column.classes.iter().map(|class| comparison.classes[*class].train as f64)).unwrap_or(0.0)
    };
    let (low, high) = columns
        .iter()
        .map(train)
        .filter(|n| *n > 0.0)
        .fold((f64::MAX, 1.0f64), |(low, high), n| (low.min(n), high.max(n)));
    // a bar of the smallest class is one that can be seen
    let decade = 10f64.powf(low.min(high).max(0.1).log10().floor());
    let low = if low < decade * 1.5 { decade / 2.0 } else { decade };
    let accuracy = Axis { title: "", kind: Kind::Linear, ends: (0.0, 100.0), ticks: 6, whole: false };
    let images = Axis { title: "training images", kind: Kind::Log, ends: (low, high * 1.05), ticks: 5, whole: false };
    let left = Panel::room(&accuracy).max(Panel::room(&images));
    let (tall, bars) = if narrow { (150.0, 80.0) } else { (230.0, 110.0) };
    let right = wide - 6.0;
    let upper = Area { left, top: 42.0, right, bottom: 42.0 + tall };
    let lower = Area { left, top: upper.bottom + 34.0, right, bottom: upper.bottom + 34.0 + bars };
    let step = (right - left) / columns.len() as f64;
    let no_axis = Axis { title: "", kind: Kind::Linear, ends: (0.0, columns.len() as f64), ticks: 0, whole: true };

    let mut bands = r#"<text class="axis" x="0" y="12">accuracy, %</text>"#.to_owned();
    let mut at = 0;
    for (number, run) in columns.chunk_by(|a, b| a.group == b.group).enumerate() {
        let (from, to) = (left + step * at as f64, left + step * (at + run.len()) as f64);
        let odd = if number % 2 == 0 { "even" } else { "odd" };
        let (x, room) = (place(from), place(to - from));
        put!(
            bands,
            r#"<rect class="group {odd}" x="{x}" y="24" width="{room}" height="{}"/>"#,
            place(lower.bottom - 24.0)
        );
        if let Some(group) = run[0].group {
            let title = &comparison.groups[group].name;
            // bold is wider
            let title = escape(&fitted(title, (to - from - 1.0) / 1.05));
            if title != "…" {
                let middle = place((from + to) / 2.0);
                put!(bands, r#"<text class="group" x="{middle}" y="37" text-anchor="middle">{title}</text>"#);
            }
        }
        at += run.len();
    }

    let mut above = Panel::new(upper, no_axis, accuracy);
    let lanes = recalls.len() as f64;
    for (variant, recalls) in recalls.iter().enumerate() {
        // side by side within a column, so that none hides another
        let aside = if step > 12.0 {
            ((variant as f64 + 0.5) / lanes - 0.5) * (step * 0.5).min(4.0 + 4.0 * lanes)
        } else {
            0.0
        };
        let value = |column: &Column| {
            let all = || column.classes.iter().filter_map(|class| recalls[*class]);
            let mean = |of: fn(Recall) -> f64| mean(all().map(of));
            Some((mean(|r| r.mean)?, mean(|r| r.low)?, mean(|r| r.high)?))
        };
        let points: Vec<Option<(f64, f64, f64, f64)>> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                value(column).map(|(mean, low, high)| (left + step * (at as f64 + 0.5) + aside, mean, low, high))
            })
            .collect();
        above.open(&colour(comparison.look(variant)), &format!(r#"data-variant="{variant}""#));
        let mut path = String::new();
        let mut whiskers = String::new();
        let mut pen = 'M';
        for point in &points {
            let Some((x, mean, low, high)) = point else {
                pen = 'M';
                continue;
            };
            put!(path, "{pen}{} {}", place(*x), place(above.y.at(*mean)));
            pen = 'L';
            if singles && high > low {
                put!(whiskers, "M{} {}V{}", place(*x), place(above.y.at(*low)), place(above.y.at(*high)));
            }
        }
        if !whiskers.is_empty() {
            above.raw(&format!(r#"<path class="whisker" d="{whiskers}"/>"#));
        }
        above.raw(&format!(r#"<path class="line thin{}" d="{path}"/>"#, if lanes > 4.0 { " faint" } else { "" }));
        let radius = if step < 12.0 { 2.2 } else { 3.2 };
        let dots: String = points
            .iter()
            .flatten()
            .map(|(x, mean, ..)| crate::svg::marker(comparison.look(variant), *x, above.y.at(*mean), radius))
            .collect();
        above.raw(&format!(r#"<path class="dot" d="{dots}"/>"#));
        above.close();
    }

    let mut below = Panel::new(lower, no_axis, images);
    below.raw(&format!(r#"<path class="base" d="M{} {y}H{}"/>"#, place(left), place(right), y = place(lower.bottom)));
    let upright = singles && step < 17.0;
    let mut deepest: f64 = 0.0;
    let longest = columns.iter().filter_map(|c| c.classes.first()).map(|c| width(&label(&comparison.classes[*c].name)));
    let straight = longest.fold(0.0, f64::max).min(74.0) <= step - 4.0;
    for (at, column) in columns.iter().enumerate() {
        let (x, middle) = (left + step * at as f64, left + step * (at as f64 + 0.5));
        let n = train(column);
        if n > 0.0 {
            let top = below.y.at(n);
            let gap = (step * 0.12).min(3.0);
            below.raw(&format!(
                r#"<rect class="bar" x="{}" y="{}" width="{}" height="{}"/>"#,
                place(x + gap),
                place(top),
                place((step - 2.0 * gap).max(0.5)),
                place(lower.bottom - top)
            ));
        }
        if singles {
            let title = &comparison.classes[column.classes[0]].name;
            let y = lower.bottom + 14.0;
            let text = if straight {
                deepest = deepest.max(16.0);
                let cut = fitted(title, step - 4.0);
                format!(
                    r#"<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>"#,
                    place(middle),
                    place(y),
                    escape(&cut)
                )
            } else {
                let turn = if upright { -90 } else { -45 };
                // a label at the left end would begin outside of the chart
                let cut = fitted(title, if upright { 100.0 } else { ((middle - 8.0) / 0.71).min(100.0) });
                let slope = if upright { 1.0 } else { 0.75 };
                deepest = deepest.max(12.0 + width(&cut) * slope);
                let (x, y) = if upright { (middle + 3.5, lower.bottom + 8.0) } else { (middle + 4.0, y - 3.0) };
                let (x, y) = (place(x), place(y));
                format!(
                    r#"<text class="name" x="{x}" y="{y}" text-anchor="end" transform="rotate({turn} {x} {y})">{}</text>"#,
                    escape(&cut)
                )
            };
            below.raw(&text);
        }
    }
    if !singles {
        deepest = 34.0;
        let ranks = Scale::new(Kind::Linear, (0.0, comparison.classes.len() as f64), (0.0, 1.0));
        for rank in ranks.ticks(if narrow { 5 } else { 11 }).into_iter().map(|rank| rank.max(1.0)) {
            let at = columns.partition_point(|column| column.rank as f64 <= rank).max(1) - 1;
            let inside = (rank - columns[at].rank as f64) / columns[at].classes.len().max(1) as f64;
            let middle = left + step * (at as f64 + inside);
            let text = tick(rank);
            let anchor = if middle + width(&text) / 2.0 > wide { "end" } else { "middle" };
            let (x, from, y) = (place(middle), place(lower.bottom), place(lower.bottom + 16.0));
            below.raw(&format!(r#"<path class="base" d="M{x} {from}v4"/>"#));
            below.raw(&format!(r#"<text class="tick" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#));
        }
        let (middle, y) = (place((left + right) / 2.0), place(lower.bottom + 32.0));
        below.raw(&format!(r#"<text class="axis" x="{middle}" y="{y}" text-anchor="middle">class, by size</text>"#));
    }

    let mut hits = String::new();
    for (at, column) in columns.iter().enumerate() {
        let mut tip = Vec::new();
        let means: Vec<Option<f64>> = recalls
            .iter()
            .map(|recalls| mean(column.classes.iter().filter_map(|c| recalls[*c]).map(|r| r.mean)))
            .collect();
        match column.classes[..] {
            [class] => {
                let known = &comparison.classes[class];
                tip.push(short(&known.name, 120));
                tip.push(format!("{} training, {} test images", count(known.train), count(known.test)));
            }
            _ => {
                let last = column.rank + column.classes.len() - 1;
                tip.push(format!("classes {} to {} by size", count(column.rank as u64), count(last as u64)));
                tip.push(format!("{} training images on average", tick(rounded(train(column), 4))));
            }
        }
        if let Some(group) = column.group {
            tip.push(short(&comparison.groups[group].name, 60));
        }
        for ((variant, recalls), mean) in comparison.variants.iter().zip(recalls).zip(&means) {
            let text = match (column.classes.as_slice(), mean) {
                (_, None) => "no test images".to_owned(),
                ([class], Some(mean)) if variant.runs.len() > 1 => {
                    let (low, high) = recalls[*class].map_or((*mean, *mean), |r| (r.low, r.high));
                    format!("{} % ({}–{})", tenths(*mean), tenths(low), tenths(high))
                }
                (_, Some(mean)) => format!("{} %", tenths(*mean)),
            };
            tip.push(format!("{}: {text}", short(&variant.label, 60)));
        }
        let classes = if singles {
            format!(
                r#" data-class="{}" data-train="{}""#,
                column.classes[0], comparison.classes[column.classes[0]].train
            )
        } else {
            String::new()
        };
        let means: Vec<String> = means.into_iter().map(exact).collect();
        put!(
            hits,
            r#"<g class="col"{classes} data-means="{}" data-tip="{}"><rect class="hit" x="{}" y="24" width="{}" height="{}"/></g>"#,
            means.join(" "),
            escape(&tip.join("\n")),
            place(left + step * at as f64),
            place(step),
            place(lower.bottom - 24.0)
        );
    }
    let mut alt = format!(
        "Accuracy and training images of {}, in order of size. ",
        several(comparison.classes.len(), "class", "classes")
    );
    for (variant, recalls) in comparison.variants.iter().zip(recalls) {
        let value = |column: Option<&Column>| mean(column?.classes.iter().filter_map(|c| recalls[*c]).map(|r| r.mean));
        if let (Some(first), Some(last)) = (value(columns.first()), value(columns.last())) {
            put!(
                alt,
                "{}: {} % at the largest, {} % at the smallest. ",
                short(&variant.label, 60),
                tenths(first),
                tenths(last)
            );
        }
    }
    let (most, least) =
        (comparison.classes.iter().map(|c| c.train).max(), comparison.classes.iter().map(|c| c.train).min());
    put!(alt, "{} to {} training images.", count(most.unwrap_or(0)), count(least.unwrap_or(0)));
    let body = format!("{bands}{}{}{hits}", above.finish(), below.finish());
    let tall = lower.bottom + deepest.max(10.0) + 4.0;
    svg("classes", (wide, tall), &alt, r#"tabindex="0" data-hover="columns""#, &body)
}

fn table(part: &Part<'_>, order: &[(usize, Option<usize>)], recalls: &[Vec<Option<Recall>>]) -> String {
    let comparison = part.comparison;
    let many = order.len() > ROWS;
    let id = format!("{}-every", part.id);
    let mut html = format!(
        r#"<div class="tools needs-script"><label class="search">Find a class <input type="search" id="{id}-find" autocomplete="off" spellcheck="false"/></label><span class="found muted" id="{id}-found" role="status"></span></div>"#
    );
    let (title, hint) = (
        "Every class",
        if many { format!(" (the first {SHOWN} of {})", count(order.len() as u64)) } else { String::new() },
    );
    put!(html, r#"<div class="scroll tall" tabindex="0" role="region" aria-label="{title}">"#);
    put!(
        html,
        r#"<table class="every" id="{id}" data-columns="{}"><caption class="unseen">Accuracy by class{hint}</caption><thead><tr>"#,
        recalls.len()
    );
    let mut head = |title: &str, under: &str, class: &str| {
        let num = if class.is_empty() { "" } else { " class=\"num\"" };
        put!(
            html,
            r#"<th scope="col"{num}><button type="button" class="sort">{title}</button><small>{under}</small></th>"#
        );
    };
    head("class", "", "");
    head("group", "", "");
    head("train", "images", "num");
    head("test", "images", "num");
    for variant in &comparison.variants {
        head(&short_name(&variant.label, 40), "accuracy, %", "num");
    }
    for variant in comparison.variants.iter().skip(1) {
        head(&short_name(&variant.label, 40), "change, points", "num");
    }
    html.push_str("</tr></thead><tbody>");
    for (class, group) in order.iter().take(if many { SHOWN } else { ROWS }) {
        let known = &comparison.classes[*class];
        let group = group.map_or("", |group| comparison.groups[group].name.as_str());
        put!(
            html,
            r#"<tr data-class="{class}"><th scope="row" data-value="{}">{}</th><td>{}</td>"#,
            escape(&label(&known.name)),
            short_name(&known.name, 60),
            short_name(group, 40)
        );
        put!(html, r#"<td class="num" data-value="{}">{}</td>"#, known.train, count(known.train));
        put!(html, r#"<td class="num" data-value="{}">{}</td>"#, known.test, count(known.test));
        for recalls in recalls {
            let recall = recalls[*class].map(|recall| recall.mean);
            let text = recall.map_or_else(|| "n/a".to_owned(), tenths);
            put!(html, r#"<td class="num" data-value="{}">{text}</td>"#, exact(recall));
        }
        for own in recalls.iter().skip(1) {
            let change = own[*class].zip(recalls[0][*class]).map(|(own, baseline)| own.mean - baseline.mean);
            let text = change.map_or_else(|| "n/a".to_owned(), signed);
            put!(html, r#"<td class="num" data-value="{}">{text}</td>"#, exact(change));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    let table = Table::classes(comparison);
    if !many {
        html.push_str(&figures::copies(part, "every", &table));
        return html;
    }
    let csv = table.csv();
    match csv.len() <= LARGEST_TEXT {
        true => html.push_str(&figures::buttons(&id, &label(&table.title), &[("CSV", csv)])),
        false => html
            .push_str(r#"<p class="muted">As CSV: <code>equipoise report RUN --format csv --table classes</code></p>"#),
    }
    // thousands of very long names would make a very large page
    let letters: usize = comparison.classes.iter().map(|class| class.name.len()).sum();
    let longest = if letters > LARGEST_TEXT { 24 } else { usize::MAX };
    let tenth = |x: Option<f64>| x.map_or(Value::Null, |x| number((x * 100.0).round() / 100.0));
    let column = |recalls: &Vec<Option<Recall>>| -> Value {
        order.iter().map(|(class, _)| tenth(recalls[*class].map(|r| r.mean))).collect()
    };
    let data = json!({
        "shown": SHOWN,
        "groups": comparison.groups.iter().map(|group| label(&group.name)).collect::<Vec<_>>(),
        "names": order.iter().map(|(class, _)| short(&comparison.classes[*class].name, longest)).collect::<Vec<_>>(),
        "group": order.iter().map(|(_, group)| group.map_or(-1, |group| group as i64)).collect::<Vec<_>>(),
        "train": order.iter().map(|(class, _)| comparison.classes[*class].train).collect::<Vec<_>>(),
        "test": order.iter().map(|(class, _)| comparison.classes[*class].test).collect::<Vec<_>>(),
        "values": recalls.iter().map(column).collect::<Vec<_>>(),
    });
    put!(html, r#"<script type="application/json" nonce="equipoise" id="{id}-data">{}</script>"#, escape::json(&data));
    html
}

/// A number without `.0`.
pub(super) fn number(x: f64) -> Value {
    match x.fract() == 0.0 && x.abs() < 1e15 {
        true => json!(x as i64),
        false => json!(x),
    }
}
