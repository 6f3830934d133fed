//! The list of criteria with their documentation and parameters.

use equipoise_criterion::{Id, Preset};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::Value;

use crate::json::to_python;

/// Every criterion: `id`, `idea`, `sections` (heading to text), `parameters` (name to `doc` and its value in the
/// `presets`) and `has_state`. Everything is in the order of the documentation.
#[pyfunction]
pub(super) fn criteria(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for id in Id::ALL {
        list.append(entry(py, *id)?)?;
    }
    Ok(list)
}

fn entry(py: Python<'_>, id: Id) -> PyResult<Bound<'_, PyDict>> {
    let documentation = id.documentation();
    let entry = PyDict::new(py);
    entry.set_item("id", id.name())?;
    entry.set_item("idea", documentation.idea)?;
    entry.set_item("has_state", id.has_state())?;
    let parameters = PyDict::new(py);
    for field in id.fields() {
        let presets = PyDict::new(py);
        for preset in Preset::ALL {
            presets.set_item(preset.name(), to_python(py, &values(id, preset)?[field.name])?)?;
        }
        let parameter = PyDict::new(py);
        parameter.set_item("doc", field.doc.trim())?;
        parameter.set_item("presets", presets)?;
        parameters.set_item(field.name, parameter)?;
    }
    entry.set_item("parameters", parameters)?;
    let sections = PyDict::new(py);
    for section in documentation.sections {
        sections.set_item(section.heading, section.text)?;
    }
    entry.set_item("sections", sections)?;
    Ok(entry)
}

fn values(id: Id, preset: Preset) -> PyResult<Value> {
    serde_json::to_value(id.preset(preset)).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
