//! `equipoise loss CASE.json`: a criterion on given logits, so that anyone can check another implementation.

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use equipoise_criterion::{Batch, Config, Criterion, DrwConfig, Id, Mixed, Output, Preset, State, Work};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Failure;

#[derive(clap::Args)]
#[command(after_long_help = "\
Input:
  {\"method\": ID, \"params\": {..}, \"counts\": [images per class], \"steps\": [STEP, ..]}
  STEP is {\"logits\": [[..], ..], \"labels\": [..]} or {\"end_epoch\": true}.
  Beside the method: \"preset\" (paper, reference, recommended; params override it),
  \"drw\" {\"start\", \"beta\", \"reduction\"} for deferred re-weighting, \"expected\" (ignored).
  In a step: \"mixed\" {\"labels\": [..], \"share\": [..]} for mixup, \"examples\" [..] for random draws,
  \"train\": false to evaluate without counting.
Output:
  {\"steps\": [{\"loss\", \"grad\", \"weights\"} or {\"end_epoch\": true, \"state\": {..}}, ..]}

Examples:
  equipoise loss case.json
  echo '{\"method\": \"focal\", \"counts\": [9, 1], \"steps\": [{\"logits\": [[2, -1]], \"labels\": [1]}]}' | equipoise loss -")]
pub(crate) struct Args {
    /// The case, or - for standard input
    #[arg(value_name = "CASE.json")]
    case: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    method: Id,
    preset: Option<Preset>,
    #[serde(default)]
    params: Map<String, Value>,
    drw: Option<DrwConfig>,
    counts: Vec<u64>,
    steps: Vec<Step>,
    /// Cases may carry what they expect; comparing is up to the reader.
    #[serde(rename = "expected")]
    _expected: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    end_epoch: Option<bool>,
    logits: Option<Vec<Vec<f32>>>,
    labels: Option<Vec<u32>>,
    mixed: Option<MixedStep>,
    examples: Option<Vec<u64>>,
    train: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MixedStep {
    labels: Vec<u32>,
    share: Vec<f32>,
}

#[derive(Serialize)]
struct Answer {
    steps: Vec<Value>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let mut text = String::new();
    if args.case.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(&args.case).with_context(|| format!("cannot read {}", args.case.display()))?;
    }
    let case = parse(&text)?;
    let mut criterion = criterion(&case)?;
    for warning in criterion.warnings() {
        writeln!(std::io::stderr(), "equipoise: warning: {warning}")?;
    }
    let mut work = Work::new();
    let (mut steps, mut epoch) = (Vec::new(), 0);
    for (number, step) in case.steps.iter().enumerate() {
        let at = format!("steps[{number}]");
        if let Some(end) = step.end_epoch {
            if !end || step.logits.is_some() || step.labels.is_some() {
                let what = "end_epoch stands alone and is true";
                return Err(Failure::Usage(format!("{at}.end_epoch: {what}")));
            }
            criterion.end_epoch();
            epoch += 1;
            steps.push(json!({"end_epoch": true, "state": state(&criterion)}));
        } else {
            steps.push(batch(&at, step, epoch, &mut criterion, &mut work)?);
        }
    }
    serde_json::to_writer(&mut *out, &Answer { steps })?;
    writeln!(out)?;
    Ok(())
}

/// Reads the case; an error names the field by its path.
fn parse(text: &str) -> Result<Case, Failure> {
    let mut json = serde_json::Deserializer::from_str(text);
    let case =
        serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
            "." => Failure::Usage(error.inner().to_string()),
            path => Failure::Usage(format!("{path}: {}", error.inner())),
        })?;
    json.end().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(case)
}

fn criterion(case: &Case) -> Result<Criterion, Failure> {
    let mut params = Map::new();
    if let Some(preset) = case.preset
        && let Value::Object(values) = serde_json::to_value(case.method.preset(preset))?
    {
        params = values;
    }
    params.extend(case.params.clone());
    let params = Value::Object(params);
    let mut track = serde_path_to_error::Track::new();
    let read = serde_path_to_error::Deserializer::new(&params, &mut track);
    let method = case.method.params(read).map_err(|error| {
        let path = track.path().to_string();
        let dot = if path == "." { String::new() } else { format!(".{path}") };
        Failure::Usage(format!("params{dot}: {error}"))
    })?;
    let config = Config { method, drw: case.drw.clone() };
    config.init(&case.counts).map_err(|error| Failure::Usage(error.to_string()))
}

fn batch(at: &str, step: &Step, epoch: u64, criterion: &mut Criterion, work: &mut Work) -> Result<Value, Failure> {
    let usage = |what: String| Failure::Usage(format!("{at}.{what}"));
    let rows = step.logits.as_ref().ok_or_else(|| usage("logits: missing".to_owned()))?;
    let labels = step.labels.as_ref().ok_or_else(|| usage("labels: missing".to_owned()))?;
    let classes = criterion.classes();
    if let Some((row, z)) = rows.iter().enumerate().find(|(_, z)| z.len() != classes) {
        return Err(usage(format!("logits[{row}]: {} numbers for {classes} classes", z.len())));
    }
    if rows.len() != labels.len() {
        return Err(usage(format!("labels: {} for {} rows of logits", labels.len(), rows.len())));
    }
    let logits = rows.concat();
    let batch = Batch {
        logits: &logits,
        labels,
        mixed: step.mixed.as_ref().map(|m| Mixed { labels: &m.labels, share: &m.share }),
        epoch,
        examples: step.examples.as_deref().unwrap_or_default(),
    };
    let (mut grad, mut weights) = (vec![0.0; logits.len()], vec![0.0; labels.len()]);
    let output = Output { grad: &mut grad, weights: &mut weights };
    let summary = if step.train.unwrap_or(true) {
        criterion.train(&batch, output, work)
    } else {
        criterion.evaluate(&batch, output, work)
    };
    let summary = summary.map_err(|error| usage(error.to_string()))?;
    let grad: Vec<&[f32]> = grad.chunks(classes).collect();
    Ok(json!({"loss": summary.loss, "grad": grad, "weights": weights}))
}

/// What the contract shows of a state.
fn state(criterion: &Criterion) -> Value {
    match criterion.state() {
        State::Stateless => json!({}),
        State::Ghm(state) => json!({"mass": state.mass}),
        State::Seesaw(state) => {
            let seen: Vec<u64> = state.before.iter().zip(&state.seen).map(|(a, b)| a + b).collect();
            json!({"seen": seen})
        }
        State::Cwap(state) => {
            let by_class = |table: &[f64]| table.chunks(state.bins).map(<[f64]>::to_vec).collect::<Vec<_>>();
            json!({"sizes": state.sizes, "values": by_class(&state.values), "widths": by_class(&state.filling)})
        }
    }
}
