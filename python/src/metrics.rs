//! Metrics of an evaluation: the counts, the sums that processes add up, and the details of a report.

use std::sync::{Mutex, MutexGuard, PoisonError};

use equipoise_data::describe::groups::ClassGroup;
use equipoise_train::details::DetailsCollector;
use equipoise_train::evaluate::EvaluatedBatch;
use equipoise_train::metrics::{EvaluationCounts, EvaluationSums};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use crate::data::{SplitCore, class_groups};
use crate::errors::label_range;

/// Counts of an evaluation.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(crate) struct EvaluationCore {
    counts: Vec<u64>,
    names: Vec<String>,
    groups: Vec<ClassGroup>,
    inner: Mutex<Inner>,
}

#[derive(Clone)]
struct Inner {
    counts: EvaluationCounts,
    details: DetailsCollector,
    /// Images so far.
    images: usize,
}

impl EvaluationCore {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self) -> Inner {
        let classes = self.counts.len();
        let details = DetailsCollector::new(&self.groups, classes);
        Inner { counts: EvaluationCounts::new(classes), details, images: 0 }
    }

    fn check<'a>(&self, logits: &'a PyReadonlyArray2<'_, f32>, labels: &[u32]) -> PyResult<&'a [f32]> {
        let (shape, classes) = (logits.shape(), self.counts.len());
        if shape[1] != classes {
            let what = format!("logits has {} columns; there are {classes} classes", shape[1]);
            return Err(PyValueError::new_err(what));
        }
        if shape[0] != labels.len() {
            let what = format!("labels: the length is {}; it must be {}, as logits has rows", labels.len(), shape[0]);
            return Err(PyValueError::new_err(what));
        }
        match labels.iter().position(|label| *label as usize >= classes) {
            Some(row) => Err(PyValueError::new_err(label_range("labels", row, labels[row].into(), classes))),
            None => Ok(logits.as_slice()?),
        }
    }
}

#[pymethods]
impl EvaluationCore {
    #[new]
    fn new(counts: Vec<u64>, names: Vec<String>, groups: &Bound<'_, PyAny>) -> PyResult<Self> {
        if u32::try_from(counts.len()).is_err() || counts.is_empty() {
            return Err(PyValueError::new_err(format!("counts: {} classes cannot be used", counts.len())));
        }
        if names.len() != counts.len() {
            let what = format!("classes has {} names; counts has {} classes", names.len(), counts.len());
            return Err(PyValueError::new_err(what));
        }
        let groups = class_groups(groups, &counts)?;
        let details = DetailsCollector::new(&groups, counts.len());
        let inner = Inner { counts: EvaluationCounts::new(counts.len()), details, images: 0 };
        Ok(Self { counts, names, groups, inner: Mutex::new(inner) })
    }

    /// Counts a batch.
    fn add(
        &self,
        py: Python<'_>,
        logits: PyReadonlyArray2<'_, f32>,
        labels: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<()> {
        let labels = labels.as_slice()?;
        let logits = self.check(&logits, labels)?;
        py.detach(|| {
            let mut inner = self.inner();
            let first = inner.images;
            inner.counts.add(logits, labels);
            inner.details.add(&EvaluatedBatch { first, labels, logits, done: first + labels.len() });
            inner.images += labels.len();
        });
        Ok(())
    }

    /// The sums of a batch as integers. Nothing is counted.
    fn sums_of<'py>(
        &self,
        py: Python<'py>,
        logits: PyReadonlyArray2<'py, f32>,
        labels: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let labels = labels.as_slice()?;
        let logits = self.check(&logits, labels)?;
        let integers = py.detach(|| {
            let mut sums = EvaluationSums::new(self.counts.len());
            sums.add(logits, labels);
            sums.to_integers()
        });
        Ok(PyArray1::from_vec(py, integers))
    }

    /// Number of integers in the sums.
    #[getter]
    fn integers(&self) -> usize {
        EvaluationSums::integers(self.counts.len())
    }

    /// The sums of all batches as integers.
    fn sums<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_vec(py, self.inner().counts.sums().to_integers())
    }

    /// The metrics in JSON.
    fn metrics(&self) -> PyResult<String> {
        text(&self.inner().counts.metrics(&self.counts, &self.groups, &self.names))
    }

    /// The metrics of sums in JSON.
    fn metrics_of(&self, sums: PyReadonlyArray1<'_, i64>) -> PyResult<String> {
        let sums = EvaluationSums::from_integers(self.counts.len(), sums.as_slice()?)
            .ok_or_else(|| PyValueError::new_err("sums: these are not the sums of an evaluation of these classes"))?;
        text(&sums.metrics(&self.counts, &self.groups, &self.names))
    }

    /// Details of the evaluation in JSON. A dataset gives names and thumbnails of images.
    #[pyo3(signature = (epoch, dataset=None))]
    fn details(&self, py: Python<'_>, epoch: u64, dataset: Option<Py<SplitCore>>) -> PyResult<String> {
        let describe = |index: u32| match &dataset {
            Some(dataset) => dataset.get().describe(index),
            None => (format!("number {index}"), None),
        };
        let details = py.detach(|| {
            let inner = self.inner();
            inner.details.finish(epoch, &inner.counts, &describe)
        });
        text(&details)
    }

    /// Forgets all batches.
    fn reset(&self) {
        *self.inner() = self.empty();
    }

    /// Number of images so far.
    #[getter]
    fn images(&self) -> usize {
        self.inner().images
    }

    /// Names of the groups and their classes.
    #[getter]
    fn groups(&self) -> Vec<(String, Vec<usize>)> {
        self.groups.iter().map(|group| (group.name.clone(), group.classes.clone())).collect()
    }

    /// Another one with the same counts.
    fn copy(&self) -> Self {
        Self {
            counts: self.counts.clone(),
            names: self.names.clone(),
            groups: self.groups.clone(),
            inner: Mutex::new(self.inner().clone()),
        }
    }
}

/// A record as JSON.
fn text<T: Serialize>(record: &T) -> PyResult<String> {
    serde_json::to_string(record).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EvaluationCore>()
}
