//! A criterion with its state, as the Python classes hold it.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use equipoise_criterion::{
    Batch, BatchError, Config, Criterion, DrwConfig, Id, Mixed, Output, Preset, State, Workspace,
};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde_json::Value;

use super::memory::Memory;
use crate::errors::{self, ARRAYS, Names, TENSORS};
use crate::{json, threads};

/// A criterion for one dataset, with what it has counted.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(super) struct CriterionCore {
    counts: Vec<u64>,
    id: Id,
    classes: usize,
    /// The words of the caller for the parts of a batch.
    names: Names,
    tensors: bool,
    inner: Mutex<Inner>,
    /// The process that the criterion was made in.
    process: u32,
}

struct Inner {
    criterion: Criterion,
    workspace: Workspace,
    /// The process and the number of threads that the workspace's pool was made for.
    pool_of: Option<(u32, usize)>,
    epoch: u64,
    labels: Vec<u32>,
    second: Vec<u32>,
    examples: Vec<u64>,
    /// Scratch memory for a gradient that nobody asked for.
    gradient: Vec<f32>,
}

/// The arguments of a batch, checked, with the GIL held.
struct Call {
    logits: Memory<f32>,
    labels: Memory<i64>,
    second: Option<(Memory<i64>, Memory<f32>)>,
    examples: Option<Memory<i64>>,
    grad: Option<Memory<f32>>,
    weights: Memory<f32>,
    losses: Option<Memory<f32>>,
}

// SAFETY: a call only holds addresses; whoever sends it keeps their owners alive until it is back.
unsafe impl Send for Call {}

/// Copies labels as the crate takes them.
fn read_labels(from: &[i64], into: &mut Vec<u32>, name: &str, classes: usize) -> Result<(), String> {
    into.clear();
    into.reserve(from.len());
    for (row, &label) in from.iter().enumerate() {
        match u32::try_from(label) {
            Ok(label) if (label as usize) < classes => into.push(label),
            _ => return Err(errors::label_range(name, row, label, classes)),
        }
    }
    Ok(())
}

/// Why a batch could not be run.
enum Failure {
    Batch(BatchError),
    Argument(String),
}

impl Inner {
    /// Runs a batch. Returns its loss and what the sum over examples was divided by.
    ///
    /// # Safety
    /// The owners of the call's memory are alive, and nothing else uses it.
    unsafe fn run(&mut self, call: &Call, names: Names, count: bool) -> Result<(f64, f64), Failure> {
        let classes = self.criterion.classes();
        // SAFETY: the caller's promise, and `Call::new` has checked that the outputs overlap nothing.
        let (logits, labels, weights) = unsafe { (call.logits.slice(), call.labels.slice(), call.weights.slice_mut()) };
        read_labels(labels, &mut self.labels, names.labels, classes).map_err(Failure::Argument)?;
        let mut share: &[f32] = &[];
        if let Some((second, shares)) = call.second {
            // SAFETY: as above.
            let (second, shares) = unsafe { (second.slice(), shares.slice()) };
            read_labels(second, &mut self.second, names.second, classes).map_err(Failure::Argument)?;
            share = shares;
        }
        self.examples.clear();
        if let Some(examples) = call.examples {
            // SAFETY: as above.
            for (row, &example) in unsafe { examples.slice() }.iter().enumerate() {
                let negative = || Failure::Argument(format!("examples[{row}] is {example}; it must be at least 0"));
                self.examples.push(u64::try_from(example).map_err(|_| negative())?);
            }
        }
        let batch = Batch {
            logits,
            labels: &self.labels,
            mixed: call.second.is_some().then_some(Mixed { labels: &self.second, share }),
            epoch: self.epoch,
            examples: &self.examples,
        };
        let grad = match call.grad {
            // SAFETY: as above.
            Some(grad) => unsafe { grad.slice_mut() },
            None => {
                self.gradient.resize(logits.len(), 0.0);
                &mut self.gradient
            }
        };
        // SAFETY: as above.
        let losses = call.losses.map(|losses| unsafe { losses.slice_mut() });
        let out = Output { losses, ..Output::new(grad, weights) };
        let summary = match count {
            true => self.criterion.train(&batch, out, &mut self.workspace),
            false => self.criterion.evaluate(&batch, out, &mut self.workspace),
        };
        summary.map(|summary| (summary.loss, summary.denominator)).map_err(Failure::Batch)
    }

    fn use_threads(&mut self, py: Python<'_>, threads: usize) -> PyResult<()> {
        let wanted = Some((std::process::id(), threads));
        if self.pool_of != wanted {
            self.workspace.set_pool(threads::pool(py, threads)?);
            self.pool_of = wanted;
        }
        Ok(())
    }
}

impl CriterionCore {
    /// Locks the state. Waits without the GIL while another thread uses it.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.process != std::process::id() => Err(PyRuntimeError::new_err(
                "the criterion was in use when this process was forked; make a new one in the child process",
            )),
            Err(TryLockError::WouldBlock) => {
                // a guard cannot cross `detach`, so this waits for its turn and tries again
                py.detach(|| drop(self.inner.lock().unwrap_or_else(PoisonError::into_inner)));
                self.lock(py)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the Python method")]
    fn call(
        &self,
        logits: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        second: Option<&Bound<'_, PyAny>>,
        share: Option<&Bound<'_, PyAny>>,
        examples: Option<&Bound<'_, PyAny>>,
        grad: Option<&Bound<'_, PyAny>>,
        weights: &Bound<'_, PyAny>,
        losses: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let names = self.names;
        let logits = Memory::<f32>::of(logits, "logits")?.matrix("logits", self.classes)?;
        let rows = logits.rows();
        let labels = Memory::<i64>::of(labels, names.labels)?.vector(names.labels, rows)?;
        let second = match (second, share) {
            (Some(second), Some(share)) => Some((
                Memory::<i64>::of(second, names.second)?.vector(names.second, rows)?,
                Memory::<f32>::of(share, names.share)?.vector(names.share, rows)?,
            )),
            (None, None) => None,
            _ => return Err(PyTypeError::new_err("second labels and shares come together")),
        };
        let output = |object: &Bound<'_, PyAny>, name: &str| Memory::<f32>::of_output(object, name);
        let vector = |object: &Bound<'_, PyAny>, name: &str| output(object, name)?.vector(name, rows);
        let examples = examples.map(|object| Memory::<i64>::of(object, "examples")?.vector("examples", rows));
        let grad = grad.map(|object| output(object, "grad")?.matrix("grad", self.classes)).transpose()?;
        if let Some(grad) = grad.filter(|grad| grad.rows() != rows) {
            return Err(PyValueError::new_err(format!("grad has {} rows for {rows} rows of logits", grad.rows())));
        }
        let weights = vector(weights, "weights")?;
        let losses = losses.map(|object| vector(object, "losses")).transpose()?;
        let call = Call { logits, labels, second, examples: examples.transpose()?, grad, weights, losses };
        if call.outputs_overlap() {
            return Err(PyValueError::new_err("grad, weights and losses must have memory of their own"));
        }
        Ok(call)
    }
}

impl Call {
    fn outputs_overlap(&self) -> bool {
        let outputs: Vec<Memory<f32>> = [self.grad, Some(self.weights), self.losses].into_iter().flatten().collect();
        outputs.iter().enumerate().any(|(i, out)| {
            out.overlaps(&self.logits)
                || out.overlaps(&self.labels)
                || self.second.is_some_and(|(second, share)| out.overlaps(&second) || out.overlaps(&share))
                || self.examples.is_some_and(|examples| out.overlaps(&examples))
                || outputs[..i].iter().any(|other| out.overlaps(other))
        })
    }
}

fn parse_preset(name: &str) -> PyResult<Preset> {
    let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    found.ok_or_else(|| {
        let known = Preset::ALL.map(|preset| format!("'{}'", preset.name())).join(", ");
        PyValueError::new_err(format!("preset is '{name}'; it must be one of {known}"))
    })
}

#[pymethods]
impl CriterionCore {
    /// Builds a criterion. `counts` are int64, `tensors` chooses the words of error messages.
    #[new]
    #[pyo3(signature = (method, counts, preset, params, drw, tensors))]
    fn new(
        method: &str,
        counts: &Bound<'_, PyAny>,
        preset: &str,
        params: &Bound<'_, PyDict>,
        drw: Option<&Bound<'_, PyAny>>,
        tensors: bool,
    ) -> PyResult<Self> {
        let id: Id = method.parse().map_err(|error| errors::config(&error))?;
        let numbers = Memory::<i64>::of(counts, "counts")?;
        let numbers = numbers.vector("counts", numbers.rows())?;
        // SAFETY: `counts` is alive, and the GIL is held.
        let numbers = unsafe { numbers.slice() };
        let negative = |class: usize, count: i64| {
            PyValueError::new_err(format!("counts[{class}] is {count}; a class cannot have fewer than 0 images"))
        };
        let counts: PyResult<Vec<u64>> =
            numbers.iter().enumerate().map(|(i, n)| u64::try_from(*n).map_err(|_| negative(i, *n))).collect();
        let counts = counts?;
        let drw = match drw {
            None => None,
            Some(drw) => Some(read_drw(drw)?),
        };
        let params = json::object(params.as_any(), "params")?;
        let config = Config::from_parts(id, parse_preset(preset)?, &params, drw).map_err(|e| errors::config(&e))?;
        let criterion = config.init(&counts).map_err(|error| errors::config(&error))?;
        let inner = Inner {
            criterion,
            workspace: Workspace::new(),
            pool_of: None,
            epoch: 0,
            labels: Vec::new(),
            second: Vec::new(),
            examples: Vec::new(),
            gradient: Vec::new(),
        };
        let names = if tensors { TENSORS } else { ARRAYS };
        let classes = counts.len();
        Ok(Self { counts, id, classes, names, tensors, inner: Mutex::new(inner), process: std::process::id() })
    }

    /// The criterion's id.
    #[getter]
    fn method(&self) -> &'static str {
        self.id.name()
    }

    /// The number of classes.
    #[getter]
    fn classes(&self) -> usize {
        self.classes
    }

    /// Whether the loss depends on other rows of the batch or on earlier batches.
    #[getter]
    fn has_state(&self) -> bool {
        self.id.has_state()
    }

    /// The training images per class.
    #[getter]
    fn counts(&self) -> Vec<u64> {
        self.counts.clone()
    }

    /// The epoch, counted from 0.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.epoch)
    }

    /// Sets the epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.lock(py)?.epoch = epoch;
        Ok(())
    }

    /// The criterion in a table: its name, preset and changed parameters.
    fn label(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.lock(py)?.criterion.config().method.label())
    }

    /// Every parameter with its value, and `drw`.
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let config = serde_json::to_value(self.lock(py)?.criterion.config()).map_err(unexpected)?;
        json::to_python(py, &config)
    }

    /// Warnings about the counts.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.lock(py)?.criterion.warnings(|class| class.to_string()))
    }

    /// Computes loss, gradient and weights into the given arrays or tensors, and counts the batch if `count` is set.
    /// Returns the loss and what the sum over examples was divided by.
    #[pyo3(signature = (logits, labels, second, share, examples, grad, weights, losses, count, threads))]
    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the Python method")]
    fn run(
        &self,
        py: Python<'_>,
        logits: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyAny>,
        second: Option<&Bound<'_, PyAny>>,
        share: Option<&Bound<'_, PyAny>>,
        examples: Option<&Bound<'_, PyAny>>,
        grad: Option<&Bound<'_, PyAny>>,
        weights: &Bound<'_, PyAny>,
        losses: Option<&Bound<'_, PyAny>>,
        count: bool,
        threads: usize,
    ) -> PyResult<(f64, f64)> {
        let call = self.call(logits, labels, second, share, examples, grad, weights, losses)?;
        let mut inner = self.lock(py)?;
        inner.use_threads(py, threads)?;
        let (inner, names) = (&mut *inner, self.names);
        let result = py.detach(move || {
            let call = call;
            // SAFETY: the arguments of this function keep the memory alive until it returns.
            unsafe { inner.run(&call, names, count) }
        });
        result.map_err(|failure| match failure {
            Failure::Batch(error) => errors::batch(&error, names),
            Failure::Argument(message) => PyValueError::new_err(message),
        })
    }

    /// Counts the batch that `run` has just seen without counting.
    fn observe(&self, py: Python<'_>) -> PyResult<()> {
        let inner = &mut *self.lock(py)?;
        inner.criterion.observe(&mut inner.workspace).map_err(|error| errors::batch(&error, self.names))
    }

    /// Ends an epoch.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<()> {
        let inner = &mut *self.lock(py)?;
        inner.criterion.end_epoch();
        inner.epoch += 1;
        Ok(())
    }

    /// Everything that was counted, and the epoch: a dictionary of numbers and arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.lock(py)?;
        let mut state = serde_json::to_value(inner.criterion.state()).map_err(unexpected)?;
        if let Value::Object(fields) = &mut state {
            fields.insert("epoch".to_owned(), inner.epoch.into());
        }
        drop(inner);
        json::to_python(py, &state)
    }

    /// Puts a state back.
    fn restore(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut fields = json::object(state, "state")?;
        let epoch = fields.remove("epoch").and_then(|epoch| epoch.as_u64());
        let epoch = epoch.ok_or_else(|| PyValueError::new_err("state: 'epoch' is missing or not a whole number"))?;
        let state: State = serde_json::from_value(Value::Object(fields)).map_err(|error| {
            PyValueError::new_err(format!("state: {}", equipoise_criterion::without_type_names(&error.to_string())))
        })?;
        let inner = &mut *self.lock(py)?;
        inner.criterion.restore(&state).map_err(|error| errors::state(&error, self.id))?;
        inner.epoch = epoch;
        Ok(())
    }

    /// What was counted, as `equipoise loss` prints it.
    fn state_summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let summary = self.lock(py)?.criterion.state_summary();
        json::to_python(py, &summary)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, core) = (slf.py(), slf.get());
        let config = serde_json::to_value(core.lock(py)?.criterion.config()).map_err(unexpected)?;
        let counts: Vec<i64> = core.counts.iter().map(|n| *n as i64).collect();
        let arguments = (
            core.id.name(),
            numpy::PyArray1::from_vec(py, counts),
            Preset::default().name(),
            json::to_python(py, &config["params"])?,
            json::to_python(py, &config["drw"])?,
            core.tensors,
        );
        (slf.get_type(), arguments, core.state(py)?).into_pyobject(py)
    }

    fn __setstate__(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.restore(py, state)
    }
}

fn unexpected(error: serde_json::Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn read_drw(drw: &Bound<'_, PyAny>) -> PyResult<DrwConfig> {
    // a number alone is the first epoch with class weights
    if let Ok(start) = drw.extract::<u64>() {
        return Ok(DrwConfig::new(start));
    }
    let fields = Value::Object(json::object(drw, "drw")?);
    serde_json::from_value(fields).map_err(|error| {
        PyValueError::new_err(format!("drw: {}", equipoise_criterion::without_type_names(&error.to_string())))
    })
}
