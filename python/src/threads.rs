//! The threads behind calls from Python: one pool per number of threads, shared by everything in the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use equipoise_criterion::Pool;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The pools of this process. They are never dropped: a forked child must not wait for threads that it does not have.
static POOLS: Mutex<BTreeMap<(u32, usize), Pool>> = Mutex::new(BTreeMap::new());

/// The pool of this many threads, the calling one included; 0 means one per core. Its threads sleep between two calls,
/// so that they never compete with the threads of another library.
///
/// The caller holds the GIL (`_py`), so that no fork can happen while the list is locked.
pub(crate) fn pool(_py: Python<'_>, threads: usize) -> PyResult<Pool> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    // the threads of a parent process do not exist in its forked child
    let key = (std::process::id(), threads);
    if let Some(pool) = pools.get(&key) {
        return Ok(pool.clone());
    }
    let pool = Pool::without_spinning(threads)
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start {threads} threads: {error}")))?;
    pools.insert(key, pool.clone());
    Ok(pool)
}
