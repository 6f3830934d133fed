//! How the runs were made, so that others can make them again.

use equipoise_record::names::CONFIG;

use super::{Part, colour, count, several, swatch};
use crate::escape::{block, escape, label, name, quoted};
use crate::run::Run;
use crate::svg::{put, rounded};

/// The section.
pub(super) fn section(part: &Part<'_>) -> String {
    let comparison = part.comparison;
    let mut html = part.heading(2, "Repeat it");
    let command = |run: &Run| {
        let config = run.path.join(CONFIG).display().to_string();
        format!("equipoise train --config {}", quoted(&config))
    };
    let commands: Vec<String> = comparison.runs.iter().map(command).collect();
    match commands.as_slice() {
        [one] => put!(html, "<pre class=\"command\"><code>{}</code></pre>", escape(&label(one))),
        several_commands => {
            let lines: Vec<String> = several_commands.iter().map(|command| escape(&label(command))).collect();
            put!(
                html,
                r#"<details><summary>{}, one for each run</summary><pre class="command"><code>{}</code></pre></details>"#,
                several(lines.len(), "command", "commands"),
                lines.join("\n")
            );
        }
    }
    html.push_str(&settings(part));
    html.push_str(&runs(part));
    put!(
        html,
        r#"<details class="files"><summary>{}</summary>"#,
        several(comparison.runs.len(), "settings file", "settings files")
    );
    for run in &comparison.runs {
        let path = run.path.join(CONFIG).display().to_string();
        put!(
            html,
            "<details><summary>{}</summary><pre><code>{}</code></pre></details>",
            name(&path),
            block(&run.config)
        );
    }
    html + "</details>"
}

/// Settings that all variants share, and those that tell them apart.
fn settings(part: &Part<'_>) -> String {
    let comparison = part.comparison;
    let mut names: Vec<&String> =
        comparison.runs.iter().flat_map(|run| run.settings.iter().map(|(name, _)| name)).collect();
    names.sort();
    names.dedup();
    let value =
        |run: &Run, name: &str| run.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let of = |variant: usize, name: &str| part.runs(variant).next().and_then(|run| value(run, name));
    let mut shared = Vec::new();
    let mut apart = Vec::new();
    for setting in names.into_iter().filter(|name| *name != "seed") {
        let values: Vec<Option<String>> = (0..comparison.variants.len()).map(|variant| of(variant, setting)).collect();
        let first = comparison.runs.first().and_then(|run| value(run, setting));
        match comparison.runs.iter().all(|run| value(run, setting) == first) {
            true => shared.push((setting, first.unwrap_or_default())),
            false => apart.push((setting, values)),
        }
    }
    let mut html = part.heading(2, "Settings");
    if !apart.is_empty() {
        html.push_str(r#"<div class="scroll" tabindex="0" role="region" aria-label="Settings that differ"><table class="settings"><caption>Settings that differ</caption><thead><tr><th scope="col">setting</th>"#);
        for (at, variant) in comparison.variants.iter().enumerate() {
            put!(
                html,
                r#"<th scope="col" class="{}">{}{}</th>"#,
                colour(comparison.look(at)),
                swatch(comparison.look(at)),
                name(&variant.label)
            );
        }
        html.push_str("</tr></thead><tbody>");
        for (setting, values) in apart {
            put!(html, r#"<tr><th scope="row"><code>{}</code></th>"#, escape(&label(setting)));
            for value in values {
                match value {
                    Some(value) => put!(html, "<td><code>{}</code></td>", escape(&label(&value))),
                    None => html.push_str(r#"<td class="muted">–</td>"#),
                }
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div>");
    }
    put!(
        html,
        r#"<details><summary>{} that all runs share</summary><dl class="shared">"#,
        several(shared.len(), "setting", "settings")
    );
    for (setting, value) in shared {
        put!(
            html,
            "<div><dt><code>{}</code></dt><dd><code>{}</code></dd></div>",
            escape(&label(setting)),
            escape(&label(&value))
        );
    }
    html + "</dl></details>"
}

fn runs(part: &Part<'_>) -> String {
    let comparison = part.comparison;
    let mut html = part.heading(2, "Runs");
    html.push_str(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs"><thead><tr>"#,
    );
    for (title, class) in [
        ("criterion", ""),
        ("folder", ""),
        ("seed", "num"),
        ("subset", ""),
        ("epochs", "num"),
        ("figures of", ""),
        ("seconds", "num"),
        ("images/s", "num"),
        ("memory, MB", "num"),
        ("machine", ""),
        ("version", ""),
    ] {
        let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
        put!(html, r#"<th scope="col"{class}>{title}</th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for at in 0..comparison.variants.len() {
        for run in part.runs(at) {
            let outcome = run.outcome.as_ref();
            let done = run.epochs.last().map_or(0, |epoch| epoch.epoch);
            let subset = match run.setting("data.subset_file") {
                Some(file) => label(file),
                None => {
                    run.setting("data.subset_seed").map_or_else(String::new, |seed| format!("seed {}", label(seed)))
                }
            };
            html.push_str(&part.row(at));
            let folder = run.path.display().to_string();
            put!(
                html,
                r#"<td class="path">{}</td><td class="num">{}</td><td>{}</td>"#,
                name(&folder),
                run.seed(),
                escape(&subset)
            );
            let early = if outcome.is_some_and(|outcome| outcome.ended_early) { ", ended early" } else { "" };
            let planned = run.planned();
            put!(html, r#"<td class="num">{done} of {planned}{early}</td>"#);
            match outcome {
                None => {
                    html.push_str(
                        r#"<td class="muted">not finished</td><td></td><td></td><td></td><td></td><td></td>"#,
                    );
                }
                Some(outcome) => {
                    let epoch = run
                        .figures(comparison.which)
                        .map_or_else(|| "n/a".to_owned(), |figures| format!("epoch {}", figures.epoch));
                    put!(
                        html,
                        r#"<td>{epoch}</td><td class="num" data-seconds="{}">{}</td>"#,
                        outcome.seconds,
                        rounded(outcome.seconds, 4)
                    );
                    let speed = count(outcome.images_per_second.round().max(0.0) as u64);
                    let memory = outcome.peak_mb.map_or_else(|| "n/a".to_owned(), count);
                    put!(html, r#"<td class="num">{speed}</td><td class="num">{memory}</td>"#);
                    let machine = outcome.machine.as_ref().map_or_else(|| "n/a".to_owned(), |machine| label(machine));
                    put!(html, "<td>{}</td>", escape(&machine));
                    put!(
                        html,
                        "<td>{} <code>{}</code></td>",
                        escape(&label(&outcome.version)),
                        escape(&label(&outcome.commit))
                    );
                }
            }
            html.push_str("</tr>");
        }
    }
    html + "</tbody></table></div>"
}
