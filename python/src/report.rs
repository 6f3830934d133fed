//! The HTML page of some runs.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_report::comparison::Comparison;
use equipoise_report::page::{LiveStatus, PageStatus, page, unfinished_page};
use equipoise_report::run::RecordedRun;
use equipoise_support::with_causes;
use equipoise_train::settings::RecordedSettings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

/// Seconds between two looks of a page at runs that are under way.
const RELOAD: u64 = 10;
/// Seconds without a new page after which it no longer claims that training goes on.
const PATIENCE: u64 = 3600;

/// What a page says: its text, a verdict for each dataset, and why folders were skipped.
type Page = (String, Vec<String>, Vec<String>);

/// A page that is written now.
#[expect(
    clippy::disallowed_methods,
    reason = "Python calls this as a user calls the command line, which may look at a clock"
)]
fn live_status() -> LiveStatus {
    let written = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LiveStatus { reload: RELOAD, written, patience: PATIENCE, resume: None }
}

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
        let mut comparisons = Comparison::all(runs);
        if let Some(label) = &baseline {
            let rebased =
                comparisons.into_iter().map(|comparison| comparison.with_baseline(label)).collect::<Result<_, _>>();
            comparisons = rebased.map_err(|known: Vec<String>| {
                PyValueError::new_err(format!("baseline is '{label}'; the rows are: {}", known.join("; ")))
            })?;
        }
        let html = match live {
            true => unfinished_page(&comparisons, &PageStatus::UnderWay(live_status())),
            false => page(&comparisons),
        };
        let skipped = skipped.iter().map(|error| with_causes(error)).collect();
        Ok((html, comparisons.iter().map(|comparison| comparison.verdict().0).collect(), skipped))
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(report_page, module)?)
}
