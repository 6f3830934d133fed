//! `equipoise loss CASE.json`: a criterion on given logits, to check other implementations against.

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::Context;
use equipoise_criterion::{
    Batch, Config, Criterion, DrwConfig, Id, Mixed, Output, Preset, Workspace, without_type_names,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::output::warn;

#[derive(clap::Args)]
#[command(after_long_help = "\
Input:
  {\"method\": ID, \"params\": {..}, \"counts\": [images per class], \"steps\": [STEP, ..]}
  STEP is {\"logits\": [[..], ..], \"labels\": [..]} or {\"end_epoch\": true}.
  Optional: \"preset\" (reference, recommended, paper; params override it; reference if left out),
  \"drw\" {\"start_epoch\", \"beta\", \"reduction\"} for deferred re-weighting, \"expected\" (ignored).
  Optional in a step: \"mixed\" {\"labels\": [..], \"share\": [..]} for mixup, \"examples\" [..] for random draws,
  \"train\": false to evaluate without counting.
Output:
  {\"steps\": [{\"loss\", \"grad\", \"weights\"} or {\"end_epoch\": true, \"state\": {..}}, ..]}

Examples:
  equipoise loss case.json
  echo '{\"method\": \"focal\", \"counts\": [9, 1], \"steps\": [{\"logits\": [[2, -1]], \"labels\": [1]}]}' | equipoise loss -")]
pub(crate) struct Args {
    /// File of the case, or - for standard input
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
    /// Cases may include what they expect; comparing is up to the reader.
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

/// The output.
#[derive(Serialize)]
struct Answer {
    steps: Vec<StepAnswer>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StepAnswer {
    Batch { loss: f64, grad: Vec<Vec<f32>>, weights: Vec<f32> },
    End { end_epoch: bool, state: Value },
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    if args.case.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        let read = std::fs::read(&args.case);
        bytes = read.map_err(|error| Failure::usage(format!("cannot read {}: {error}", args.case.display())))?;
    }
    let case = parse(&bytes)?;
    // cases are checks of published equations, so without a preset their parameters override the printed ones
    let preset = case.preset.unwrap_or(Preset::Printed);
    let config = Config::from_parts(case.method, preset, &case.params, case.drw.clone())?;
    let mut criterion = config.init(&case.counts)?;
    criterion.warnings(|class| class.to_string()).iter().for_each(|warning| warn(warning));
    let mut work = Workspace::new();
    let (mut steps, mut epoch) = (Vec::new(), 0);
    for (number, step) in case.steps.iter().enumerate() {
        let path = format!("steps[{number}]");
        match step {
            Step { end_epoch: Some(true), logits: None, labels: None, mixed: None, examples: None, train: None } => {
                criterion.end_epoch();
                epoch += 1;
                steps.push(StepAnswer::End { end_epoch: true, state: criterion.state_summary() });
            }
            Step { end_epoch: Some(_), .. } => {
                return Err(Failure::usage(format!("{path}.end_epoch must be true and the only field of its step")));
            }
            _ => steps.push(batch(&path, step, epoch, &mut criterion, &mut work)?),
        }
    }
    writeln!(out, "{}", serde_json::to_string(&Answer { steps })?)?;
    Ok(())
}

/// Reads a case. An error names the path of the wrong field.
fn parse(bytes: &[u8]) -> Result<Case, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|error| Failure::Usage(format!("the case is not UTF-8: {error}")))?;
    // serde would also accept a list of the fields' values
    if !text.trim_start().starts_with('{') {
        return Err(Failure::usage("the case is not a JSON object {..}"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let case =
        serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
            "." => Failure::Usage(without_type_names(&error.inner().to_string())),
            path => Failure::Usage(format!("{path}: {}", without_type_names(&error.inner().to_string()))),
        })?;
    json.end().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(case)
}

fn batch(
    path: &str,
    step: &Step,
    epoch: u64,
    criterion: &mut Criterion,
    work: &mut Workspace,
) -> Result<StepAnswer, Failure> {
    let usage = |what: String| Failure::usage(format!("{path}.{what}"));
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
    let output = Output::new(&mut grad, &mut weights);
    let summary = if step.train.unwrap_or(true) {
        criterion.train(&batch, output, work)
    } else {
        criterion.evaluate(&batch, output, work)
    };
    let summary = summary.map_err(|error| usage(error.to_string()))?;
    let grad = grad.chunks(classes).map(<[f32]>::to_vec).collect();
    Ok(StepAnswer::Batch { loss: summary.loss, grad, weights })
}
