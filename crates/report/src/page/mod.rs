//! Comparisons as one self-contained HTML page that needs neither the network nor other files.
//!
//! The page is also well-formed XML. Everything on it is there without its script, which adds interaction: values under
//! the pointer, stepping through epochs, sorting, searching, copying. Numbers from results stand in `data-` attributes
//! with all their digits. [`page`] puts articles together, one per comparison; an article has a file per section.

mod accuracy;
mod article;
mod classes;
mod confusion;
mod curves;
mod elements;
mod gradient_norms;
mod hardest_images;
mod label_errors;
mod provenance;
mod rate_range;
mod status;
mod trade_off;
mod training_images;
mod words;

use article::Article;
pub use label_errors::{SuspectImage, SuspectList, label_errors_page};
pub use rate_range::rate_range_page;
pub use status::{LiveStatus, PageStatus};

use crate::comparison::Comparison;
use crate::escape::{escape, label, name, put, short};

const STYLE_SHEET: &str = include_str!("style.css");

/// The script, cut by concern; all parts share one function scope.
const SCRIPT: &str = concat!(
    "(function () {\n'use strict';\n",
    include_str!("script/base.js"),
    include_str!("script/tooltip.js"),
    include_str!("script/charts.js"),
    include_str!("script/controls.js"),
    include_str!("script/class_table.js"),
    include_str!("script/gradient_norms.js"),
    include_str!("script/live.js"),
    "}());\n",
);

/// Renders the page.
#[must_use]
pub fn page(comparisons: &[Comparison]) -> String {
    document(&title(comparisons), "", &body(comparisons))
}

/// Renders the page of runs that have not all finished: it says so. While they are under way it reloads itself, and stops when it has
/// not been written for too long.
#[must_use]
pub fn unfinished_page(comparisons: &[Comparison], status: &PageStatus) -> String {
    document(&title(comparisons), &status.head(), &(status.notice() + &body(comparisons)))
}

fn body(comparisons: &[Comparison]) -> String {
    let mut body = String::new();
    if comparisons.len() != 1 {
        body.push_str(&contents(comparisons));
    }
    for (index, comparison) in comparisons.iter().enumerate() {
        let level = if comparisons.len() > 1 { 2 } else { 1 };
        body.push_str(&Article { comparison, id: format!("c{index}"), level }.html());
    }
    body
}

fn title(comparisons: &[Comparison]) -> String {
    let datasets: Vec<String> = comparisons.iter().map(|comparison| label(&comparison.dataset)).collect();
    match datasets.is_empty() {
        true => "Equipoise report".to_owned(),
        false => format!("{} – Equipoise report", short(&words::listed(&datasets), 120)),
    }
}

/// Heading and table of contents of a page with several comparisons, or none.
fn contents(comparisons: &[Comparison]) -> String {
    let mut html = r#"<header class="opening"><h1 class="h1">Report</h1>"#.to_owned();
    if comparisons.is_empty() {
        return html + r#"<p class="lead">There are no runs to show.</p></header>"#;
    }
    html.push_str(r#"<nav class="contents" aria-label="Comparisons"><ol>"#);
    for (index, comparison) in comparisons.iter().enumerate() {
        let (dataset, subject) = (name(&comparison.dataset), escape(&article::subject(comparison)));
        put!(html, r##"<li><a href="#c{index}">{dataset}</a> <span class="muted">{subject}</span></li>"##);
    }
    html + "</ol></nav></header>"
}

/// The document around the body. `head` is more markup of its head.
fn document(title: &str, head: &str, body: &str) -> String {
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'nonce-equipoise'; base-uri 'none'; form-action 'none'"/>
{head}<title>{}</title>
<style>
{STYLE_SHEET}</style>
</head>
<body>
<p class="brand">Equipoise <span class="muted">report</span></p>
<main>
{body}
</main>
<p id="announcer" class="visually-hidden" aria-live="polite"></p>
<script nonce="equipoise">//<![CDATA[
{SCRIPT}//]]></script>
</body>
</html>
"#,
        escape(title)
    )
}
