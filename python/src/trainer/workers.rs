//! Workers that are a Python object over `torch.distributed`.

use equipoise_data::batch::sampler::Shard;
use equipoise_train::workers::{Workers, WorkersError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::engine::describe;

/// Workers that a Python object reaches.
pub(super) struct PythonWorkers {
    object: Py<PyAny>,
    shard: Shard,
}

impl PythonWorkers {
    pub(super) fn new(object: Py<PyAny>, shard: Shard) -> Self {
        Self { object, shard }
    }

    /// Calls a method of the object.
    fn call<T>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, WorkersError> {
        Python::attach(|py| f(self.object.bind(py)).map_err(|error| WorkersError { what: describe(py, &error) }))
    }
}

impl Workers for PythonWorkers {
    fn shard(&self) -> Shard {
        self.shard
    }

    fn max(&mut self, own: u64) -> Result<u64, WorkersError> {
        // torch has no unsigned numbers of 64 bits
        let number = i64::try_from(own).unwrap_or(i64::MAX);
        let largest: i64 = self.call(|object| object.call_method1("max", (number,))?.extract())?;
        Ok(if largest == i64::MAX { u64::MAX } else { largest as u64 })
    }

    fn gather(&mut self, own: &[f32], lengths: &[usize], all: &mut Vec<f32>) -> Result<(), WorkersError> {
        all.clear();
        all.resize(lengths.iter().sum(), 0.0);
        let (from, to) = (own.as_ptr() as usize, all.as_mut_ptr() as usize);
        let lengths = lengths.to_vec();
        self.call(|object| object.call_method1("gather", (from, lengths, to)).map(drop))
    }

    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorkersError> {
        self.call(|object| {
            let all = object.call_method1("exchange", (PyBytes::new(object.py(), own),))?;
            let all = all.cast_into::<PyList>()?;
            all.iter().map(|message| Ok(message.cast_into::<PyBytes>()?.as_bytes().to_vec())).collect()
        })
    }

    fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), WorkersError> {
        *message = self.call(|object| {
            let received = object.call_method1("broadcast", (PyBytes::new(object.py(), message),))?;
            Ok(received.cast_into::<PyBytes>()?.as_bytes().to_vec())
        })?;
        Ok(())
    }

    fn sum(&mut self, values: &mut [f32]) -> Result<(), WorkersError> {
        let (at, length) = (values.as_mut_ptr() as usize, values.len());
        self.call(|object| object.call_method1("sum", (at, length)).map(drop))
    }
}
