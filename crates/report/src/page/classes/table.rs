//! The table of all classes. Of many classes, the page has only the first rows; the script makes the others from JSON.

use serde_json::{Value, json};

use super::Accuracies;
use crate::comparison::{ClassAccuracy, captions};
use crate::escape::{self, escape, label, put, short, short_name};
use crate::page::Article;
use crate::page::elements::{copy_buttons, copy_table};
use crate::page::words::{count, exact, json_number, signed};
use crate::statistics::tenths;
use crate::table::Table;

/// Up to this number of classes, each has a row on the page.
const MAX_ROWS: usize = 200;
/// Number of rows shown at a time if there are more classes.
const ROWS_AT_A_TIME: usize = 100;
/// Size limit of the CSV, and of all names together, in bytes.
const MAX_TEXT_BYTES: usize = 1_000_000;

/// The table; `order` lists classes and their groups.
pub(super) fn table(article: &Article<'_>, order: &[(usize, Option<usize>)], accuracies: &Accuracies) -> String {
    let has_many = order.len() > MAX_ROWS;
    let id = format!("{}-class-table", article.id);
    let mut html = format!(
        r#"<div class="tools needs-script"><label class="search">Find a class <input type="search" id="{id}-find" autocomplete="off" spellcheck="false"/></label><span class="found muted" id="{id}-found" role="status"></span></div>"#
    );
    let hint = match has_many {
        true => format!(" (the first {ROWS_AT_A_TIME} of {})", count(order.len() as u64)),
        false => String::new(),
    };
    html.push_str(r#"<div class="scroll tall" tabindex="0" role="region" aria-label="All classes">"#);
    put!(
        html,
        r#"<table class="class-table" id="{id}" data-columns="{}"><caption class="visually-hidden">{}{hint}</caption>"#,
        accuracies.len(),
        captions::capitalized(&captions::classes(article.comparison))
    );
    html.push_str(&head(article));
    html.push_str("<tbody>");
    for (class, group) in order.iter().take(if has_many { ROWS_AT_A_TIME } else { MAX_ROWS }) {
        html.push_str(&row(article, *class, *group, accuracies));
    }
    html.push_str("</tbody></table></div>");
    let table = Table::classes(article.comparison);
    if !has_many {
        return html + &copy_table(article, "class-table", &table);
    }
    let csv = table.csv();
    match csv.len() <= MAX_TEXT_BYTES {
        true => html.push_str(&copy_buttons(&id, &label(&table.title), &[("CSV", csv)])),
        false => html
            .push_str(r#"<p class="muted">As CSV: <code>equipoise report RUN --format csv --table classes</code></p>"#),
    }
    let data = escape::json(&data(article, order, accuracies));
    put!(html, r#"<script type="application/json" nonce="equipoise" id="{id}-data">{data}</script>"#);
    html
}

fn head(article: &Article<'_>) -> String {
    let variants = &article.comparison.variants;
    let mut html = "<thead><tr>".to_owned();
    let mut column = |title: &str, subtitle: &str, is_number: bool| {
        let class = if is_number { " class=\"num\"" } else { "" };
        put!(
            html,
            r#"<th scope="col"{class}><button type="button" class="sort">{title}</button><small>{subtitle}</small></th>"#
        );
    };
    column("class", "", false);
    column("group", "", false);
    let examples = article.comparison.examples().many();
    column("train", examples, true);
    column("test", examples, true);
    for variant in variants {
        column(&short_name(&variant.label, 40), "accuracy, % (95 % interval)", true);
    }
    for variant in variants.iter().skip(1) {
        column(&short_name(&variant.label, 40), "difference, points", true);
    }
    html + "</tr></thead>"
}

fn row(article: &Article<'_>, index: usize, group: Option<usize>, accuracies: &Accuracies) -> String {
    let comparison = article.comparison;
    let class = &comparison.classes[index];
    let group = group.map_or("", |group| comparison.groups[group].name.as_str());
    let mut html = format!(
        r#"<tr data-class="{index}"><th scope="row" data-value="{}">{}</th><td>{}</td>"#,
        escape(&label(&class.name)),
        short_name(&class.name, 60),
        short_name(group, 40)
    );
    for images in [class.train, class.test] {
        put!(html, r#"<td class="num" data-value="{images}">{}</td>"#, count(images));
    }
    let mut number = |value: Option<f64>, format: &dyn Fn(f64) -> String| {
        let text = value.map_or_else(|| "n/a".to_owned(), format);
        put!(html, r#"<td class="num" data-value="{}">{text}</td>"#, exact(value));
    };
    for accuracies in accuracies {
        let accuracy = accuracies[index];
        let interval = accuracy.and_then(|accuracy| accuracy.interval).map_or_else(String::new, interval);
        number(accuracy.map(|accuracy| accuracy.mean), &|mean| tenths(mean) + &interval);
    }
    for own in accuracies.iter().skip(1) {
        let difference = own[index].zip(accuracies[0][index]).map(|(own, baseline)| own.mean - baseline.mean);
        number(difference, &signed);
    }
    html + "</tr>"
}

/// An interval below its rate.
fn interval([low, high]: [f64; 2]) -> String {
    format!(r#"<small class="interval">{}–{}</small>"#, tenths(low), tenths(high))
}

/// All classes as the script reads them.
fn data(article: &Article<'_>, order: &[(usize, Option<usize>)], accuracies: &Accuracies) -> Value {
    let comparison = article.comparison;
    // thousands of very long names would make a very large page
    let letters: usize = comparison.classes.iter().map(|class| class.name.len()).sum();
    let max_name = if letters > MAX_TEXT_BYTES { 24 } else { usize::MAX };
    let hundredths = |x: Option<f64>| x.map_or(Value::Null, |x| json_number((x * 100.0).round() / 100.0));
    let classes = || order.iter().map(|(class, _)| &comparison.classes[*class]);
    let values = accuracies
        .iter()
        .map(|of| order.iter().map(|(class, _)| hundredths(of[*class].map(|a| a.mean))).collect::<Value>());
    let bounds = |end: usize| {
        let bound =
            |accuracy: Option<ClassAccuracy>| hundredths(accuracy.and_then(|a| a.interval).map(|bounds| bounds[end]));
        let of = |of: &Vec<Option<ClassAccuracy>>| order.iter().map(|(class, _)| bound(of[*class])).collect::<Value>();
        accuracies.iter().map(of).collect::<Vec<_>>()
    };
    json!({
        "rows": ROWS_AT_A_TIME,
        "low": bounds(0),
        "high": bounds(1),
        "groups": comparison.groups.iter().map(|group| label(&group.name)).collect::<Vec<_>>(),
        "names": classes().map(|class| short(&class.name, max_name)).collect::<Vec<_>>(),
        "group": order.iter().map(|(_, group)| group.map_or(-1, |group| group as i64)).collect::<Vec<_>>(),
        "train": classes().map(|class| class.train).collect::<Vec<_>>(),
        "test": classes().map(|class| class.test).collect::<Vec<_>>(),
        "values": values.collect::<Vec<_>>(),
    })
}
