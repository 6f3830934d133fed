//! The order of examples in an epoch.

use equipoise_data::DataError;
use equipoise_data::batch::sampler::{Sampler, Shard};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::errors;

/// The order of examples in every epoch of a run.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(crate) struct SamplerCore {
    sampler: Sampler,
}

#[pymethods]
impl SamplerCore {
    #[new]
    fn new(kind: &str, epochs: u64, labels: PyReadonlyArray1<'_, u32>, classes: usize, seed: u64) -> PyResult<Self> {
        let make = || -> Result<Sampler, DataError> {
            Sampler::new(kind.parse()?, epochs, labels.as_slice().unwrap_or_default(), classes, seed)
        };
        labels.as_slice()?;
        Ok(Self { sampler: make().map_err(|error| errors::data(&error))? })
    }

    /// Number of examples in an epoch.
    fn __len__(&self) -> usize {
        self.sampler.len()
    }

    /// Indices that one of several workers sees in an epoch, from 0.
    fn epoch<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        rank: usize,
        world_size: usize,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let shard = Shard::new(rank, world_size).map_err(|error| errors::data(&error))?;
        let order = py.detach(|| self.sampler.epoch(epoch, shard));
        Ok(PyArray1::from_iter(py, order.into_iter().map(i64::from)))
    }
}
