//! `equipoise criteria`: the criteria, from the documentation at the top of each method's source file.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use equipoise_criterion::{Documentation, DrwConfig, Field, Id, Preset};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise criteria
  equipoise criteria cwap
  equipoise criteria seesaw --json")]
pub(crate) struct Args {
    /// Criterion to explain
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a Markdown page per criterion and a table of all criteria to this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["name", "json"])]
    docs: Option<PathBuf>,
}

/// A criterion, or deferred re-weighting, which is a schedule on top of criteria.
struct Topic {
    name: &'static str,
    page: Documentation,
    fields: &'static [Field],
    /// Default values. A required parameter has none.
    values: Map<String, Value>,
    /// The other presets, with the parameters they change.
    presets: Vec<(&'static str, Map<String, Value>)>,
}

impl Topic {
    fn of(id: Id) -> Self {
        let of = |preset| match serde_json::to_value(id.preset(preset)) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        let values = of(Preset::default());
        let mut presets = Vec::new();
        for preset in Preset::ALL {
            let changed: Map<_, _> = of(preset).into_iter().filter(|(key, value)| values[key] != *value).collect();
            if !changed.is_empty() {
                presets.push((preset.name(), changed));
            }
        }
        Self { name: id.name(), page: id.documentation(), fields: id.fields(), values, presets }
    }

    fn drw() -> Self {
        let mut values = match serde_json::to_value(DrwConfig::new(0)) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        values.remove("start_epoch");
        Self { name: "drw", page: DrwConfig::documentation(), fields: DrwConfig::FIELDS, values, presets: Vec::new() }
    }

    fn all() -> impl Iterator<Item = Self> {
        Id::ALL.iter().map(|id| Self::of(*id)).chain([Self::drw()])
    }

    fn named(name: &str) -> Result<Self, Failure> {
        if name == "drw" {
            return Ok(Self::drw());
        }
        Ok(Self::of(name.parse::<Id>()?))
    }

    /// The default of a parameter, for people.
    fn default(&self, field: &Field) -> String {
        self.values.get(field.name).map_or_else(|| "(required)".to_owned(), plain)
    }

    /// `name=default` of every parameter.
    fn defaults(&self) -> impl Iterator<Item = String> {
        self.fields.iter().map(|field| format!("{}={}", field.name, self.default(field)))
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let one = args.name.as_deref().map(Topic::named).transpose()?;
    match (one, &args.docs) {
        (_, Some(dir)) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            let pages = Topic::all().map(|topic| (format!("{}.md", topic.name), markdown(&topic)));
            let mut number = 0;
            for (name, text) in pages.chain([("README.md".to_owned(), index())]) {
                let path = dir.join(name);
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                number += 1;
            }
            writeln!(out, "{number} pages written to {}", dir.display())?;
        }
        (Some(topic), None) if args.json => writeln!(out, "{:#}", object(&topic))?,
        (Some(topic), None) => out.write_all(text(&topic).as_bytes())?,
        (None, None) if args.json => {
            let all: Vec<Value> = Topic::all().map(|topic| object(&topic)).collect();
            writeln!(out, "{:#}", Value::Array(all))?;
        }
        (None, None) => {
            for topic in Topic::all() {
                writeln!(out, "{:<23}{}", topic.name, topic.page.idea)?;
                let mut about = vec![short(&topic.page).to_owned()];
                about.extend(topic.defaults());
                out.write_all(wrapped(&about.join(", "), &" ".repeat(23)).as_bytes())?;
            }
            writeln!(
                out,
                "\n`equipoise criteria NAME` shows a criterion's equation and how to choose its parameters."
            )?;
        }
    }
    Ok(())
}

/// The value of a parameter, for people.
fn plain(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Null => "none".to_owned(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |x| x.to_string()),
        other => other.to_string(),
    }
}

/// The paper in a few words: the start of its section, up to the colon.
fn short(page: &Documentation) -> &str {
    page.section("Paper").split_once(": ").map_or("", |(short, _)| short)
}

fn object(topic: &Topic) -> Value {
    let default = |field: &Field| topic.values.get(field.name).cloned().unwrap_or_default();
    let parameters: Vec<Value> = topic
        .fields
        .iter()
        .map(|field| json!({"name": field.name, "default": default(field), "doc": field.doc.trim()}))
        .collect();
    let heading = |text: &str| text.to_lowercase().replace(' ', "_");
    let sections: Map<String, Value> =
        topic.page.sections.iter().map(|s| (heading(&s.heading), json!(s.text))).collect();
    let presets: Map<String, Value> =
        topic.presets.iter().map(|(name, changed)| ((*name).to_owned(), changed.clone().into())).collect();
    json!({
        "id": topic.name, "idea": topic.page.idea, "paper": short(&topic.page), "parameters": parameters,
        "presets": presets, "sections": sections,
    })
}

/// The page of a criterion for a terminal.
fn text(topic: &Topic) -> String {
    let mut text = format!("{}: {}\n", topic.name, topic.page.idea);
    for section in &topic.page.sections {
        let _ = writeln!(text, "\n{}", section.heading);
        for (i, block) in section.text.split("```").enumerate() {
            if i % 2 == 1 {
                for line in block.lines().skip(1) {
                    let _ = writeln!(text, "  {line}");
                }
            } else {
                let plain = block.replace('`', "").replace("<http", "http").replace(">.", ".");
                text.push_str(&wrapped(&plain, "  "));
            }
        }
        if section.heading == "Equation" {
            text.push_str(&parameters(topic));
        }
    }
    text
}

/// Indented lines of at most `WIDTH` columns.
fn wrapped(words: &str, indent: &str) -> String {
    const WIDTH: usize = 100;
    let (mut text, mut line) = (String::new(), String::new());
    for word in words.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}

/// The parameters of a criterion for a terminal.
fn parameters(topic: &Topic) -> String {
    if topic.fields.is_empty() {
        return String::new();
    }
    let mut text = "\nParameters\n".to_owned();
    let defaults: Vec<String> = topic.defaults().collect();
    let width = 2 + defaults.iter().map(String::len).max().unwrap_or(0);
    for (field, default) in topic.fields.iter().zip(defaults) {
        let doc = wrapped(field.doc.trim(), &" ".repeat(2 + width));
        let _ = write!(text, "  {default:<width$}{}", doc.trim_start());
    }
    for (name, changed) in &topic.presets {
        let changed: Vec<String> = changed.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect();
        let _ = writeln!(text, "  preset {name}: {}", changed.join(", "));
    }
    text
}

/// The first line of a page in `docs/`.
const MADE: &str =
    "<!-- made by `equipoise criteria --docs docs/criteria` from the header of the method's source file -->\n";

/// The page of a criterion for `docs/`.
fn markdown(topic: &Topic) -> String {
    let mut text = format!("{MADE}# {}\n\n{}\n", topic.name, sentence(&topic.page.idea));
    for section in &topic.page.sections {
        let _ = write!(text, "\n## {}\n{}\n", section.heading, section.text);
        if section.heading == "Equation" && !topic.fields.is_empty() {
            text.push_str("\n## Parameters\n| name | default | meaning |\n|---|---|---|\n");
            for field in topic.fields {
                let _ = writeln!(text, "| `{}` | {} | {} |", field.name, topic.default(field), field.doc.trim());
            }
            for (name, changed) in &topic.presets {
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
    for topic in Topic::all() {
        let (name, idea, paper) = (topic.name, topic.page.idea.trim_end_matches('.'), short(&topic.page));
        let parameters: Vec<String> = topic.defaults().collect();
        let _ = writeln!(text, "| [{name}]({name}.md) | {idea} | {paper} | {} |", parameters.join(", "));
    }
    text
}

fn sentence(idea: &str) -> String {
    let mut letters = idea.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
