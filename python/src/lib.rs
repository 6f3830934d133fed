//! The Python module `equipoise._equipoise`: the crates behind the package `equipoise`.
//!
//! One folder or file per part of the package, each with a `register` that adds its classes and functions to the module.
//! Errors of the crates become Python exceptions that name the argument; nothing here panics on bad input.

mod criterion;
mod data;
mod errors;
mod json;
mod metrics;
mod record;
mod report;
mod threads;
mod trainer;

use pyo3::prelude::*;

#[pymodule]
fn _equipoise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    criterion::register(module)?;
    trainer::register(module)?;
    data::register(module)?;
    metrics::register(module)?;
    record::register(module)?;
    report::register(module)?;
    Ok(())
}
