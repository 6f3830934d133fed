//! `equipoise criteria`: what there is, from the one text that each method's file carries.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use equipoise_criterion::{Id, Page, Preset};
use serde_json::{Map, Value, json};

use crate::Failure;

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise criteria
  equipoise criteria cwap
  equipoise criteria seesaw --json")]
pub(crate) struct Args {
    /// Explain this one
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a Markdown page per criterion into this folder, and a table of all
    #[arg(long, value_name = "DIR", conflicts_with_all = ["name", "json"])]
    docs: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let one = args.name.as_ref().map(|name| name.parse::<Id>());
    let one = one.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    match (one, &args.docs) {
        (_, Some(dir)) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            let pages = Id::ALL.iter().map(|id| (format!("{id}.md"), markdown(*id)));
            for (name, text) in pages.chain([("README.md".to_owned(), index())]) {
                let path = dir.join(name);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
            writeln!(out, "{} pages are in {}", Id::ALL.len() + 1, dir.display())?;
        }
        (Some(id), None) if args.json => writeln!(out, "{:#}", object(id))?,
        (Some(id), None) => out.write_all(text(id).as_bytes())?,
        (None, None) if args.json => {
            let all: Vec<Value> = Id::ALL.iter().map(|id| object(*id)).collect();
            writeln!(out, "{:#}", Value::Array(all))?;
        }
        (None, None) => {
            for id in Id::ALL {
                let page = id.page();
                writeln!(out, "{id:<23}{:<24}{}", short(&page), defaults(*id).join(", "))?;
                writeln!(out, "    {}", page.idea)?;
            }
            writeln!(out, "\n`equipoise criteria NAME` shows a criterion's equation and how to choose its parameters.")?;
        }
    }
    Ok(())
}

/// A criterion's parameters in a preset.
fn values(id: Id, preset: Preset) -> Map<String, Value> {
    match serde_json::to_value(id.preset(preset)) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// "name=default" of every parameter.
fn defaults(id: Id) -> Vec<String> {
    let values = values(id, Preset::Reference);
    id.fields().iter().map(|field| format!("{}={}", field.name, plain(&values[field.name]))).collect()
}

/// A parameter's value as a person writes it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

/// The paper in few words: what its section has before the colon.
fn short(page: &Page) -> &str {
    page.section("Paper").split_once(": ").map_or("", |(short, _)| short)
}

/// Presets that differ from the default, with what they change.
fn presets(id: Id) -> Vec<(&'static str, Map<String, Value>)> {
    let default = values(id, Preset::Reference);
    [("paper", Preset::Paper), ("recommended", Preset::Recommended)]
        .into_iter()
        .map(|(name, preset)| {
            let changed = values(id, preset).into_iter().filter(|(key, value)| default[key] != *value).collect();
            (name, changed)
        })
        .filter(|(_, changed): &(_, Map<_, _>)| !changed.is_empty())
        .collect()
}

fn object(id: Id) -> Value {
    let page = id.page();
    let values = values(id, Preset::Reference);
    let parameters: Vec<Value> = id
        .fields()
        .iter()
        .map(|field| json!({"name": field.name, "default": values[field.name], "doc": field.doc.trim()}))
        .collect();
    let sections: Map<String, Value> =
        page.sections.iter().map(|s| (s.heading.to_lowercase().replace(' ', "_"), json!(s.text))).collect();
    let presets: Map<String, Value> = presets(id).into_iter().map(|(name, p)| (name.to_owned(), p.into())).collect();
    json!({
        "id": id, "idea": page.idea, "paper": short(&page), "parameters": parameters, "presets": presets, "page": sections,
    })
}

/// A criterion's page for a terminal.
fn text(id: Id) -> String {
    let page = id.page();
    let mut text = format!("{id}: {}\n", page.idea);
    for section in &page.sections {
        let _ = writeln!(text, "\n{}", section.heading);
        for line in section.text.lines().filter(|line| !line.starts_with("```")) {
            let _ = writeln!(text, "  {}", line.replace(['`', '<', '>'], ""));
        }
        if section.heading == "Equation" {
            text.push_str(&parameters(id));
        }
    }
    text
}

/// The parameters for a terminal.
fn parameters(id: Id) -> String {
    if id.fields().is_empty() {
        return String::new();
    }
    let mut text = "\nParameters\n".to_owned();
    for (field, default) in id.fields().iter().zip(defaults(id)) {
        let _ = writeln!(text, "  {default:<22}{}", field.doc.trim());
    }
    for (name, changed) in presets(id) {
        let changed: Vec<String> = changed.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
        let _ = writeln!(text, "  preset {name}: {}", changed.join(", "));
    }
    text
}

/// Where a page of `docs/` says it comes from.
const MADE: &str = "<!-- made by `equipoise criteria --docs docs/criteria` from the header of the method's source file -->\n";

/// A criterion's page for `docs/`.
fn markdown(id: Id) -> String {
    let page = id.page();
    let mut text = format!("{MADE}# {id}\n\n{}\n", sentence(&page.idea));
    for section in &page.sections {
        let _ = write!(text, "\n## {}\n{}\n", section.heading, section.text);
        if section.heading == "Equation" && !id.fields().is_empty() {
            text.push_str("\n## Parameters\n| name | default | meaning |\n|---|---|---|\n");
            let values = values(id, Preset::Reference);
            for field in id.fields() {
                let _ = writeln!(text, "| `{}` | {} | {} |", field.name, plain(&values[field.name]), field.doc.trim());
            }
            for (name, changed) in presets(id) {
                let changed: Vec<String> = changed.iter().map(|(key, v)| format!("`{key}: {}`", plain(v))).collect();
                let _ = writeln!(text, "\nPreset `{name}`: {}.", changed.join(", "));
            }
        }
    }
    text
}

/// The table of all criteria for `docs/`.
fn index() -> String {
    let mut text = format!("{MADE}# Criteria\n\n| id | idea | paper | parameters |\n|---|---|---|---|\n");
    for id in Id::ALL {
        let page = id.page();
        let (idea, paper) = (page.idea.trim_end_matches('.'), short(&page));
        let _ = writeln!(text, "| [{id}]({id}.md) | {idea} | {paper} | {} |", defaults(*id).join(", "));
    }
    text
}

fn sentence(idea: &str) -> String {
    let mut letters = idea.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
