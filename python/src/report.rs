//! The HTML page of some runs.

use std::path::PathBuf;

use equipoise_report::comparison::Comparison;
use equipoise_report::page::{live_page, page};
use equipoise_report::run::RecordedRun;
use equipoise_support::with_causes;
use equipoise_train::settings::RecordedSettings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

/// Seconds between two looks of a page at runs that are under way.
const RELOAD: u64 = 10;

/// What a page says: its text, a verdict for each dataset, and why folders were skipped.
type Page = (String, Vec<String>, Vec<String>);

/// Makes the page of runs, and says why folders were skipped.
#[pyfunction]
#[pyo3(signature = (runs, baseline, live))]
fn report_page(py: Python<'_>, runs: Vec<PathBuf>, baseline: Option<String>, live: bool) -> PyResult<Page> {
    if runs.is_empty() {
        return Err(PyValueError::new_err("runs is empty: name at least one run folder"));
    }
    py.detach(|| {
        let (mut runs, skipped) = RecordedRun::all(&runs).map_err(|error| errors::report(&error))?;
        for run in &mut runs {
            let RecordedSettings { resolved, criterion_label } = RecordedSettings::new(&run.config);
            run.criterion_label = criterion_label;
            let _ = resolved.map(|text| run.resolve_settings(&text));
        }
        let mut comparisons = if live { Comparison::all_under_way(runs) } else { Comparison::all(runs) };
        if let Some(label) = &baseline {
            let rebased =
                comparisons.into_iter().map(|comparison| comparison.with_baseline(label)).collect::<Result<_, _>>();
            comparisons = rebased.map_err(|known: Vec<String>| {
                PyValueError::new_err(format!("baseline is '{label}'; the rows are: {}", known.join("; ")))
            })?;
        }
        let html = if live { live_page(&comparisons, RELOAD) } else { page(&comparisons) };
        let skipped = skipped.iter().map(|error| with_causes(error)).collect();
        Ok((html, comparisons.iter().map(|comparison| comparison.verdict().0).collect(), skipped))
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(report_page, module)?)
}
