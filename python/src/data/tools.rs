//! Functions on labels, class counts and datasets.

use std::path::PathBuf;

use equipoise_data::DataError;
use equipoise_data::acquire::catalog::data_root as folder_of_datasets;
use equipoise_data::describe::groups::{ClassGroup, GroupRule};
use equipoise_data::subset::long_tail::LongTail;
use equipoise_train::run::inspection;
use equipoise_train::run::{NoFeedback, RunContext};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use serde_json::{Map, Value};

use super::split::settings_of;
use crate::{errors, json, threads};

/// The indices of a long-tailed subset, class by class in the order they were drawn.
#[pyfunction]
pub(super) fn long_tailed<'py>(
    py: Python<'py>,
    labels: PyReadonlyArray1<'py, u32>,
    classes: usize,
    imbalance: f64,
    profile: &str,
    seed: u32,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let labels = labels.as_slice()?;
    let draw = || -> Result<Vec<u32>, DataError> {
        LongTail { imbalance, profile: profile.parse()?, seed }.draw(labels, classes)
    };
    let indices = py.detach(draw).map_err(|error| errors::data(&error))?;
    Ok(PyArray1::from_iter(py, indices.into_iter().map(i64::from)))
}

/// The groups of classes with these counts, as pairs of a name and labels, the largest class first.
#[pyfunction]
pub(super) fn groups(counts: Vec<u64>, rule: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Vec<usize>)>> {
    let groups = class_groups(rule, &counts)?;
    Ok(groups.into_iter().map(|group| (group.name, group.classes)).collect())
}

/// The groups that a rule, or a mapping from names to labels, makes of classes with these counts. Every class is in one.
pub(crate) fn class_groups(rule: &Bound<'_, PyAny>, counts: &[u64]) -> PyResult<Vec<ClassGroup>> {
    if let Ok(text) = rule.extract::<String>() {
        let rule: GroupRule = text.parse().map_err(|error: DataError| errors::data(&error))?;
        return Ok(rule.groups(counts));
    }
    let Ok(mapping) = rule.cast::<PyMapping>() else {
        let kind = json::type_name(rule);
        let what = "groups must be a rule such as 'rank:4' or a mapping from names to labels, not";
        return Err(PyTypeError::new_err(format!("{what} {kind}")));
    };
    // in the order of the mapping
    let groups: PyResult<Vec<ClassGroup>> = mapping.items()?.iter().map(|item| class_group(&item)).collect();
    let groups = groups?;
    let mut seen = vec![0u8; counts.len()];
    for group in &groups {
        for (index, &label) in group.classes.iter().enumerate() {
            let Some(times) = seen.get_mut(label) else {
                let what = errors::label_range(&group_name(group), index, label as i64, counts.len());
                return Err(PyValueError::new_err(what));
            };
            *times = times.saturating_add(1);
        }
    }
    match seen.iter().position(|times| *times != 1) {
        Some(label) => {
            Err(PyValueError::new_err(format!("groups: class {label} must be in one group, not in {}", seen[label])))
        }
        None => Ok(groups),
    }
}

/// A group from its name and labels.
fn class_group(item: &Bound<'_, PyAny>) -> PyResult<ClassGroup> {
    let (name, labels): (String, Bound<'_, PyAny>) = item.extract()?;
    let labels = json::from_python(&labels, "groups")?;
    let label = |label: &Value| label.as_u64().and_then(|n| usize::try_from(n).ok());
    let classes = labels.as_array().and_then(|labels| labels.iter().map(label).collect::<Option<Vec<usize>>>());
    let invalid = || PyValueError::new_err(format!("groups['{name}']: the labels must be a list of classes"));
    Ok(ClassGroup { classes: classes.ok_or_else(invalid)?, name })
}

fn group_name(group: &ClassGroup) -> String {
    format!("groups['{}']", group.name)
}

/// What `equipoise inspect --json` prints about a dataset.
#[pyfunction]
pub(super) fn inspect(
    py: Python<'_>,
    settings: &Bound<'_, PyAny>,
    data_root: Option<PathBuf>,
    num_threads: usize,
) -> PyResult<String> {
    let settings = settings_of(json::object(settings, "settings")?)?;
    let (pool, data_root) = (threads::pool(py, num_threads)?, folder_of_datasets(data_root.as_deref()));
    let report = py.detach(|| {
        let context = RunContext { data_root: &data_root, pool: &pool, feedback: &NoFeedback, processes: None };
        inspection::inspect(&settings, &context)
    });
    let report = report.map_err(|error| errors::train(&error))?.report;
    serde_json::to_string(&report).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// A JSON object as a TOML table. `null` is left out.
pub(crate) fn toml_table(object: Map<String, Value>) -> PyResult<toml::Table> {
    object
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| Ok((key.clone(), toml_value(&key, value)?)))
        .collect()
}

fn toml_value(key: &str, value: Value) -> PyResult<toml::Value> {
    Ok(match value {
        Value::Null => return Err(PyValueError::new_err(format!("{key}: a list cannot hold None"))),
        Value::Bool(value) => toml::Value::Boolean(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(n), _) => toml::Value::Integer(n),
            (None, Some(n)) if !number.is_u64() => toml::Value::Float(n),
            _ => return Err(PyValueError::new_err(format!("{key} is too large"))),
        },
        Value::String(text) => toml::Value::String(text),
        Value::Array(values) => {
            let values: PyResult<Vec<toml::Value>> = values.into_iter().map(|value| toml_value(key, value)).collect();
            toml::Value::Array(values?)
        }
        Value::Object(object) => toml::Value::Table(toml_table(object)?),
    })
}
