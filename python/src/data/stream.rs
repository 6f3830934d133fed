//! The batches of an epoch, prepared by threads while Python computes.
//!
//! One thread goes through the epoch and prepares each batch on a pool of its own. It is ahead by a few batches at most, and
//! ends when nobody waits for them. No thread touches Python.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equipoise_data::batch::pixel::PixelValue;
use equipoise_data::batch::sampler::Shard;
use equipoise_pool::Pool;
use equipoise_train::TrainError;
use equipoise_train::batches::{EpochBatches, TrainBatch, nth_batch};
use numpy::PyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::split::{Dtype, SplitShared, array};
use crate::errors;

/// What a stream does.
pub(super) struct StreamPlan {
    pub(super) order: Vec<u32>,
    /// All images of the epoch, from which partners of mixtures are drawn.
    pub(super) partners: Vec<u32>,
    /// Level of each class, for RandAugment by difficulty.
    pub(super) levels: Vec<u8>,
    pub(super) batch_size: usize,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) epochs: u64,
    /// Threads that prepare a batch; 0 for one per core.
    pub(super) threads: usize,
    /// Batches that are prepared ahead.
    pub(super) prefetch: usize,
    pub(super) dtype: Dtype,
}

/// A batch of either type.
enum Ready {
    U8(TrainBatch<u8>),
    F32(TrainBatch<f32>),
}

/// Whether the program has been interrupted is asked this often.
const PATIENCE: Duration = Duration::from_millis(100);

/// The batches of an epoch, in order.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(crate) struct BatchStream {
    inner: Mutex<Inner>,
    shape: (usize, usize, usize),
    process: u32,
}

struct Inner {
    batches: Option<Receiver<Result<Ready, TrainError>>>,
    /// Batches that have not been delivered.
    left: usize,
}

impl BatchStream {
    pub(super) fn start(shared: Arc<SplitShared>, plan: StreamPlan) -> PyResult<Self> {
        let (left, shape) = (plan.order.len().div_ceil(plan.batch_size), shared.data.split.loader.shape());
        let (send, batches) = sync_channel(plan.prefetch);
        let started = std::thread::Builder::new().name("equipoise-loader".to_owned()).spawn(move || match plan.dtype {
            Dtype::U8 => prepare_all(&shared, &plan, &send, Ready::U8),
            Dtype::F32 => prepare_all(&shared, &plan, &send, Ready::F32),
        });
        started.map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
        let inner = Mutex::new(Inner { batches: Some(batches), left });
        Ok(Self { inner, shape, process: std::process::id() })
    }
}

/// Prepares one batch after the other until all are done, one fails, or nobody receives them.
fn prepare_all<P: PixelValue>(
    shared: &SplitShared,
    plan: &StreamPlan,
    send: &SyncSender<Result<Ready, TrainError>>,
    ready: fn(TrainBatch<P>) -> Ready,
) {
    let pool = match Pool::without_spinning(plan.threads) {
        Ok(pool) => pool,
        Err(error) => {
            let _ = send.send(Err(TrainError::Unusable { what: format!("cannot start threads: {error}") }));
            return;
        }
    };
    let epoch = EpochBatches {
        train: &shared.data.split,
        mixing: shared.mixing.clone().filter(|mixing| mixing.is_active(plan.epoch, plan.epochs)),
        order: Vec::new(),
        partners: plan.partners.clone(),
        levels: plan.levels.clone(),
        batch_size: plan.batch_size,
        shard: Shard::WHOLE,
        slices: None,
        pool,
        seed: plan.seed,
        epoch: plan.epoch,
    };
    for indices in (0..).map_while(|step| nth_batch(&plan.order, plan.batch_size, step)) {
        let mut batch = TrainBatch::default();
        let result = epoch.prepare(&mut batch, indices).map(|()| ready(batch));
        let failed = result.is_err();
        if send.send(result).is_err() || failed {
            return;
        }
    }
}

#[pymethods]
impl BatchStream {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// The next batch: images, labels, partners' labels and shares or `None`, indices.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "the loader's threads belong to another process: iterate anew after a fork",
            ));
        }
        loop {
            let waited = py.detach(|| {
                let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                if inner.left == 0 {
                    inner.batches = None;
                }
                let received = inner.batches.as_ref()?.recv_timeout(PATIENCE);
                match received {
                    Ok(Ok(_)) => inner.left -= 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => inner.batches = None,
                }
                Some(received)
            });
            match waited {
                None => return Ok(None),
                Some(Ok(Ok(Ready::U8(batch)))) => return self.arrays(py, batch).map(Some),
                Some(Ok(Ok(Ready::F32(batch)))) => return self.arrays(py, batch).map(Some),
                Some(Ok(Err(error))) => return Err(errors::train(&error)),
                Some(Err(RecvTimeoutError::Timeout)) => py.check_signals()?,
                Some(Err(RecvTimeoutError::Disconnected)) => {
                    return Err(PyRuntimeError::new_err("the thread that prepares batches has ended early"));
                }
            }
        }
    }

    /// Ends the threads. The batch under way is the last.
    fn close(&self) {
        if self.process == std::process::id() {
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).batches = None;
        }
    }
}

impl BatchStream {
    fn arrays<'py, P: PixelValue + numpy::Element>(
        &self,
        py: Python<'py>,
        batch: TrainBatch<P>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (channels, height, width) = self.shape;
        let shape = [batch.len(), channels, height, width];
        let wide = |numbers: &[u32]| PyArray1::from_iter(py, numbers.iter().map(|n| i64::from(*n)));
        let mixed = batch.mixed().map(|mixed| (wide(mixed.labels), PyArray1::from_slice(py, mixed.share)));
        let (labels, indices) = (wide(&batch.labels), wide(&batch.indices));
        let images = array(py, batch.images, shape)?;
        Ok((images, labels, mixed, indices).into_pyobject(py)?.into_any())
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        // in a forked child nobody is at the other end, and its locks may never be released
        if self.process != std::process::id()
            && let Some(batches) = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).batches.take()
        {
            std::mem::forget(batches);
        }
    }
}
