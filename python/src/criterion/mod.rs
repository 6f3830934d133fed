//! The criteria: `equipoise.Criterion` for NumPy arrays and `equipoise.torch.Criterion` for tensors share this code.
//!
//! [`core`] holds a criterion and runs batches, [`memory`] finds the numbers of arrays and tensors, [`targets`] reads
//! dense targets, [`catalog`] lists the criteria with their documentation.

mod catalog;
mod core;
mod memory;
mod targets;

use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<core::CriterionCore>()?;
    module.add_function(wrap_pyfunction!(catalog::criteria, module)?)?;
    module.add_function(wrap_pyfunction!(targets::two_hot, module)?)?;
    Ok(())
}
