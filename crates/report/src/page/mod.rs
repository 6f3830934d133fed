//! Comparisons as one HTML page that needs nothing else: no network, no other file.
//!
//! The page is XML, too. Everything on it is there without its script, which adds what moves: values under the pointer, epochs
//! one after another, sorting, searching, copying. Numbers from results stand in `data-` attributes with all their digits.

mod classes;
mod confusion;
mod curves;
mod figures;
mod hardest;
mod made;
mod norms;

use serde_json::Value;

use crate::comparison::{Comparison, LOOKS};
use crate::escape::{escape, label, name, short};
use crate::run::Run;
use crate::statistics;
use crate::svg::{grouped, marker, put};

/// A comparison on its way to the page.
struct Part<'a> {
    comparison: &'a Comparison,
    /// What the ids of its elements begin with.
    id: String,
    /// Level of its title.
    level: usize,
}

impl Part<'_> {
    /// A heading so far below the comparison's title.
    fn heading(&self, below: usize, title: &str) -> String {
        let level = (self.level + below).min(6);
        format!(r#"<h{level} class="h{}">{}</h{level}>"#, below + 1, escape(title))
    }

    /// Which lines and marks are whose; the script puts one in front of the others.
    fn legend(&self) -> String {
        let mut html = r#"<ul class="legend">"#.to_owned();
        for (at, variant) in self.comparison.variants.iter().enumerate() {
            put!(
                html,
                r#"<li class="{}"><button type="button" class="pick" data-pick="{at}">{}{}</button></li>"#,
                colour(self.comparison.look(at)),
                swatch(self.comparison.look(at)),
                name(&variant.label)
            );
        }
        html + "</ul>"
    }

    /// The beginning of a table's row about a variant.
    fn row(&self, variant: usize) -> String {
        let look = self.comparison.look(variant);
        let label = name(&self.comparison.variants[variant].label);
        format!(r#"<tr class="{}"><th scope="row">{}{label}</th>"#, colour(look), swatch(look))
    }

    /// A variant's runs.
    fn runs(&self, variant: usize) -> impl Iterator<Item = &Run> {
        self.comparison.variants[variant].runs.iter().map(|at| &self.comparison.runs[*at])
    }
}

/// Class of what has a look.
fn colour(look: usize) -> String {
    format!("v{}", look % LOOKS)
}

/// A line and mark of a look.
fn swatch(look: usize) -> String {
    let dot = marker(look, 14.0, 6.0, 3.5);
    format!(
        r#"<svg class="swatch" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true"><path class="line" d="M1 6H27"/><path class="dot" d="{dot}"/></svg>"#
    )
}

/// A number with its sign, as it is printed.
fn signed(x: f64) -> String {
    statistics::signed(x).replace('-', "−")
}

/// A number in an attribute, with all its digits.
fn exact(x: Option<f64>) -> String {
    x.map_or_else(|| "n/a".to_owned(), |x| x.to_string())
}

/// A whole number for people.
fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// `1 class`, `2 classes`.
fn several(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { many })
}

/// `a, b and c`, cut where it gets long.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    // names with commas of their own
    let between = if names.iter().any(|name| name.contains(", ")) { "; " } else { ", " };
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] if names.len() <= MOST && between == ", " => {
            format!("{} and {last}", first.join(between))
        }
        names if names.len() <= MOST => names.join(between),
        names => format!("{} and {} more", names[..MOST - 1].join(between), names.len() - MOST + 1),
    }
}

/// A value of JSON in a sentence: `multi-step, warmup 1`.
fn phrase(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Object(fields) => {
            let name = fields.get("name").and_then(|name| name.as_str()).map(str::to_owned);
            let rest = fields.iter().filter(|(key, value)| *key != "name" && !value.is_null());
            let rest = rest.map(|(key, value)| format!("{} {}", key.replace('_', " "), phrase(value)));
            name.into_iter().chain(rest).collect::<Vec<_>>().join(", ")
        }
        serde_json::Value::Array(values) => {
            let each = |value: &serde_json::Value| match value.is_object() {
                true => format!("({})", phrase(value)),
                false => phrase(value),
            };
            values.iter().map(each).collect::<Vec<_>>().join(" ")
        }
        value => value.to_string(),
    }
}

/// The page.
#[must_use]
pub fn page(comparisons: &[Comparison]) -> String {
    let titles: Vec<String> = comparisons.iter().map(|comparison| label(&comparison.dataset)).collect();
    let several_parts = comparisons.len() > 1;
    let mut body = String::new();
    let nothing = if comparisons.is_empty() { r#"<p class="lead">There are no runs to show.</p>"# } else { "" };
    if several_parts || comparisons.is_empty() {
        put!(body, r#"<header class="opening"><h1 class="h1">Report</h1>{nothing}"#);
        if several_parts {
            body.push_str(r#"<nav class="contents" aria-label="Comparisons"><ol>"#);
            for (at, comparison) in comparisons.iter().enumerate() {
                let what = escape(&subject(comparison));
                put!(
                    body,
                    r##"<li><a href="#c{at}">{}</a> <span class="muted">{what}</span></li>"##,
                    name(&comparison.dataset)
                );
            }
            body.push_str("</ol></nav>");
        }
        body.push_str("</header>");
    }
    for (at, comparison) in comparisons.iter().enumerate() {
        body.push_str(&article(&Part { comparison, id: format!("c{at}"), level: 1 + usize::from(several_parts) }));
    }
    let title = match titles.is_empty() {
        true => "Equipoise report".to_owned(),
        false => format!("{} – Equipoise report", short(&listed(&titles), 120)),
    };
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'nonce-equipoise'; base-uri 'none'; form-action 'none'"/>
<title>{}</title>
<style>
{}</style>
</head>
<body>
<p class="brand">Equipoise <span class="muted">report</span></p>
<main>
{body}
</main>
<p id="heard" class="unseen" aria-live="polite"></p>
<script nonce="equipoise">//<![CDATA[
{}//]]></script>
</body>
</html>
"#,
        escape(&title),
        include_str!("../page.css"),
        include_str!("../page.js"),
    )
}

/// What is compared.
fn subject(comparison: &Comparison) -> String {
    let labels: Vec<String> = comparison.variants.iter().map(|variant| short(&variant.label, 60)).collect();
    listed(&labels)
}

/// What all runs have in common, in a line.
fn context(comparison: &Comparison) -> String {
    let shared = |name: &str| {
        let mut values = comparison.runs.iter().map(|run| run.setting(name));
        let first = values.next()??;
        values.all(|value| value == Some(first)).then(|| label(first))
    };
    let mut parts: Vec<String> = shared("model.name").into_iter().collect();
    parts.extend(
        shared("epochs").map(|epochs| if epochs == "1" { "1 epoch".to_owned() } else { format!("{epochs} epochs") }),
    );
    let seeds: Vec<usize> = comparison.variants.iter().map(|variant| variant.runs.len()).collect();
    let (least, most) = (seeds.iter().min().copied().unwrap_or(0), seeds.iter().max().copied().unwrap_or(0));
    parts.push(match least == most {
        true => several(most, "seed", "seeds"),
        false => format!("{least} to {most} seeds"),
    });
    parts.extend(shared("batch_size").map(|batch| format!("batches of {batch}")));
    let mut schedules = comparison.runs.iter().filter_map(|run| run.outcome.as_ref()).map(|outcome| &outcome.schedule);
    if let Some(first) = schedules.next()
        && schedules.all(|schedule| schedule == first)
        && !first.is_null()
    {
        parts.push(label(&schedule(first)));
    }
    let (train, test) = comparison.classes.iter().fold((0u64, 0u64), |(train, test), class| {
        (train.saturating_add(class.train), test.saturating_add(class.test))
    });
    let classes = several(comparison.classes.len(), "class", "classes");
    parts.push(format!("{classes}, {} training and {} test images", count(train), count(test)));
    parts.join(" · ")
}

/// How the learning rate changes, in words.
fn schedule(schedule: &Value) -> String {
    let (Some("multi-step"), Some(drops)) = (schedule["name"].as_str(), schedule["drops"].as_array()) else {
        return format!("schedule {}", phrase(schedule));
    };
    let warmup = schedule["warmup"].as_u64().unwrap_or(0);
    let mut words = vec![format!("{} of warm-up", several(warmup as usize, "epoch", "epochs"))];
    let drop = |drop: &Value| format!("rate × {} from epoch {} on", phrase(&drop["factor"]), phrase(&drop["from"]));
    words.extend(drops.iter().map(drop));
    words.join(", ")
}

/// All there is about a comparison.
fn article(part: &Part<'_>) -> String {
    let Part { comparison, id, level } = part;
    let sections = [
        ("result", "Result", Some(figures::section(part))),
        ("classes", "Classes", classes::section(part)),
        ("curves", "Learning curves", curves::section(part)),
        ("norms", "Gradient norms", norms::section(part)),
        ("confusion", "Confusion and calibration", confusion::section(part)),
        ("hardest", "Hardest images", hardest::section(part)),
        ("made", "How it was made", Some(made::section(part))),
    ];
    let sections: Vec<(&str, &str, String)> =
        sections.into_iter().filter_map(|(at, title, html)| Some((at, title, html?))).collect();
    let mut html = format!(r#"<article id="{id}"><header class="opening">"#);
    put!(html, r#"<h{level} class="h1">{}</h{level}>"#, name(&comparison.dataset));
    put!(html, r#"<p class="subject">{}</p>"#, escape(&subject(comparison)));
    put!(html, r#"<p class="context">{}</p>"#, escape(&context(comparison)));
    let (verdict, others) = comparison.verdict();
    // signs as they are printed
    let sentence = |text: &str| escape(&label(text).replace("(-", "(−").replace(" ± ", "\u{a0}±\u{a0}"));
    put!(html, r#"<p class="verdict">{}</p>"#, sentence(&verdict));
    if !others.is_empty() {
        html.push_str(r#"<ul class="others">"#);
        for other in others {
            put!(html, "<li>{}</li>", sentence(&other));
        }
        html.push_str("</ul>");
    }
    for note in &comparison.notes {
        put!(html, r#"<p class="note">{}</p>"#, escape(&label(note)));
    }
    put!(html, r#"<nav class="sections" aria-label="Sections of {}"><ul>"#, escape(&label(&comparison.dataset)));
    for (at, title, _) in &sections {
        put!(html, r##"<li><a href="#{id}-{at}">{title}</a></li>"##);
    }
    html.push_str("</ul></nav></header>");
    for (at, title, inside) in sections {
        put!(html, "\n<section id=\"{id}-{at}\">{}{inside}</section>", part.heading(1, title));
    }
    html.push_str("\n</article>");
    html
}

/// A figure: a chart under its title, and words below.
fn figure(class: &str, title: &str, chart: &str, words: &str) -> String {
    let mut html = format!(r#"<figure class="{class}">"#);
    if !title.is_empty() {
        put!(html, r#"<figcaption class="title">{title}</figcaption>"#);
    }
    html.push_str(chart);
    if !words.is_empty() {
        put!(html, r#"<p class="words">{words}</p>"#);
    }
    html + "</figure>"
}
