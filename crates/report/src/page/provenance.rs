//! Where the numbers come from: commands, settings, runs and configuration files, so that others can reproduce them.

use equipoise_record::RunResult;
use equipoise_record::names::CONFIG;

use super::Article;
use super::words::{count, plural};
use crate::chart::significant;
use crate::comparison::captions;
use crate::escape::{block, escape, label, name, put, quoted};
use crate::run::setting_keys as keys;
use crate::run::{RecordedRun, setting_keys_of};

/// The section.
pub(super) fn section(article: &Article<'_>) -> String {
    format!("{}{}{}{}", commands(article), settings(article), runs(article), configurations(article))
}

/// A command per run.
fn commands(article: &Article<'_>) -> String {
    let command = |run: &RecordedRun| {
        let config = run.path.join(CONFIG).display().to_string();
        let own = run.setting(keys::COMMAND).map(ToOwned::to_owned);
        escape(&label(&own.unwrap_or_else(|| format!("equipoise train --config {}", quoted(&config)))))
    };
    let commands: Vec<String> = article.comparison.runs.iter().map(command).collect();
    let block = format!("<pre class=\"command\"><code>{}</code></pre>", commands.join("\n"));
    let mut html = article.heading(2, "Commands");
    match commands.len() {
        1 => html.push_str(&block),
        several => put!(
            html,
            "<details><summary>{}, one per run</summary>{block}</details>",
            plural(several, "command", "commands")
        ),
    }
    html
}

/// Settings that differ between variants, and those that all runs share.
fn settings(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let keys = setting_keys_of(&comparison.runs).into_iter().filter(|key| ![keys::SEED, keys::COMMAND].contains(key));
    let is_shared = |key: &&str| {
        let mut values = comparison.runs.iter().map(|run| run.toml_value(key));
        let first = values.next().flatten();
        values.all(|value| value == first)
    };
    let (shared, differing): (Vec<&str>, Vec<&str>) = keys.partition(is_shared);
    let mut html = article.heading(2, "Settings");
    if !differing.is_empty() {
        html.push_str(&differing_settings(article, &differing));
    }
    let number = plural(shared.len(), "setting", "settings");
    put!(html, r#"<details><summary>{number} shared by all runs</summary><dl class="shared">"#);
    for key in shared {
        let value = comparison.runs.first().and_then(|run| run.toml_value(key)).unwrap_or_default();
        let (key, value) = (escape(&label(key)), escape(&label(value)));
        put!(html, "<div><dt><code>{key}</code></dt><dd><code>{value}</code></dd></div>");
    }
    html + "</dl></details>"
}

/// A table of settings with a column per variant.
fn differing_settings(article: &Article<'_>, keys: &[&str]) -> String {
    let variants = article.comparison.variants.len();
    let caption = captions::capitalized(captions::SETTINGS);
    let mut html = format!(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table class="settings"><caption>{caption}</caption><thead><tr><th scope="col">setting</th>"#
    );
    for variant in 0..variants {
        let (class, label) = (article.style_class(variant), article.variant_name(variant));
        put!(html, r#"<th scope="col" class="{class}">{label}</th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for key in keys {
        put!(html, r#"<tr><th scope="row"><code>{}</code></th>"#, escape(&label(key)));
        for variant in 0..variants {
            match article.runs(variant).next().and_then(|run| run.toml_value(key)) {
                Some(value) => put!(html, "<td><code>{}</code></td>", escape(&label(value))),
                None => html.push_str(r#"<td class="muted">–</td>"#),
            }
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

/// Titles of the table of runs, and whether a column holds numbers.
const RUN_COLUMNS: [(&str, bool); 11] = [
    ("criterion", false),
    ("folder", false),
    ("seed", true),
    ("subset", false),
    ("epochs", true),
    ("reported", false),
    ("seconds", true),
    ("images/s", true),
    ("peak memory, MiB", true),
    ("machine", false),
    ("version", false),
];

/// A table with a row per run.
fn runs(article: &Article<'_>) -> String {
    let mut html = article.heading(2, "Runs");
    html.push_str(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs"><thead><tr>"#,
    );
    for (title, is_number) in RUN_COLUMNS {
        let class = if is_number { r#" class="num""# } else { "" };
        put!(html, r#"<th scope="col"{class}>{}</th>"#, article.comparison.examples().say(title));
    }
    html.push_str("</tr></thead><tbody>");
    for variant in 0..article.comparison.variants.len() {
        for run in article.runs(variant) {
            put!(html, "{}{}</tr>", article.row_start(variant), run_cells(article, run));
        }
    }
    html + "</tbody></table></div>"
}

/// Cells of a run, after its criterion.
fn run_cells(article: &Article<'_>, run: &RecordedRun) -> String {
    let subset = match (run.setting(keys::SUBSET_FILE), run.setting(keys::SUBSET_SEED)) {
        (Some(file), _) => label(file),
        (None, Some(seed)) => format!("seed {}", label(seed)),
        (None, None) => String::new(),
    };
    let mut html = format!(
        r#"<td class="path">{}</td><td class="num">{}</td><td>{}</td>"#,
        name(&run.path.display().to_string()),
        run.seed(),
        escape(&subset)
    );
    let early = if run.result.as_ref().is_some_and(|result| result.stopped_early) { ", stopped early" } else { "" };
    put!(html, r#"<td class="num">{} of {}{early}</td>"#, run.finished_epochs(), run.planned_epochs());
    match &run.result {
        None => html.push_str(r#"<td class="muted">not finished</td><td></td><td></td><td></td><td></td><td></td>"#),
        Some(result) => {
            let epoch = run.evaluation(article.comparison.epoch);
            let epoch = epoch.map_or_else(|| "n/a".to_owned(), |evaluation| format!("epoch {}", evaluation.epoch));
            put!(html, "<td>{epoch}</td>{}", result_cells(result));
        }
    }
    html
}

/// Cells of a finished run: time, speed, memory, machine and version.
fn result_cells(result: &RunResult) -> String {
    let mut html =
        format!(r#"<td class="num" data-seconds="{}">{}</td>"#, result.seconds, significant(result.seconds, 4));
    // a run of lbfgs has no steps to measure
    let speed = match result.images_per_second > 0.0 {
        true => count(result.images_per_second.round() as u64),
        false => "n/a".to_owned(),
    };
    let memory = result.peak_mb.map_or_else(|| "n/a".to_owned(), count);
    put!(html, r#"<td class="num">{speed}</td><td class="num">{memory}</td>"#);
    let machine = result.machine.as_ref().map_or_else(|| "n/a".to_owned(), |machine| label(machine));
    let (version, commit) = (escape(&label(&result.version)), escape(&label(&result.commit)));
    put!(html, "<td>{}</td><td>{version} <code>{commit}</code></td>", escape(&machine));
    html
}

/// The configuration files themselves.
fn configurations(article: &Article<'_>) -> String {
    let runs = &article.comparison.runs;
    let number = plural(runs.len(), "configuration file", "configuration files");
    let mut html = format!(r#"<details class="files"><summary>{number}</summary>"#);
    for run in runs {
        let (path, config) = (run.path.join(CONFIG).display().to_string(), block(&run.config));
        put!(html, "<details><summary>{}</summary><pre><code>{config}</code></pre></details>", name(&path));
    }
    html + "</details>"
}
