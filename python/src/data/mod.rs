//! Data: long-tailed subsets, groups, samplers, reports on datasets, and batches from the Rust reader.
//!
//! [`tools`] has the plain functions, [`sampler`] the order of an epoch, [`split`] the images of a split, [`stream`] the
//! batches of an epoch from threads.

mod sampler;
mod split;
mod stream;
mod tools;

use pyo3::prelude::*;

pub(crate) use split::SplitCore;
pub(crate) use tools::{class_groups, toml_table};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<sampler::SamplerCore>()?;
    module.add_class::<split::SplitCore>()?;
    module.add_class::<stream::BatchStream>()?;
    module.add_function(wrap_pyfunction!(tools::long_tailed, module)?)?;
    module.add_function(wrap_pyfunction!(tools::groups, module)?)?;
    module.add_function(wrap_pyfunction!(tools::inspect, module)?)?;
    Ok(())
}
