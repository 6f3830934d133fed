//! The trainer of the crates on an engine and workers that are Python objects: `equipoise.torch.train`.
//!
//! Memory is passed as addresses and lengths. Python reads or writes it during the call and keeps nothing of it.

mod engine;
mod workers;

use std::ffi::OsString;

use equipoise::launch::{Amp, Launch, TorchArgs, launch};
use equipoise_criterion::Pool;
use equipoise_data::batch::sampler::Shard;
use equipoise_nn::network::Architecture;
use equipoise_nn::{Cpu, CpuOptions, Engine, Network, NnError, Optimizer, TensorKind};
use equipoise_train::TrainError;
use equipoise_train::workers::SingleProcess;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use self::engine::PythonEngine;
use self::workers::PythonWorkers;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TrainOptions>()?;
    module.add_class::<CpuEngine>()?;
    module.add_function(wrap_pyfunction!(network, module)?)
}

/// The parsed options of a training.
#[pyclass(frozen, module = "equipoise._equipoise")]
struct TrainOptions {
    args: TorchArgs,
}

#[pymethods]
impl TrainOptions {
    /// Parses arguments. Returns the options and 0, or `None` and the exit code after help or an error was printed.
    #[staticmethod]
    fn parse(py: Python<'_>, arguments: Vec<OsString>, is_first: bool) -> (Option<Self>, u8) {
        match py.detach(|| TorchArgs::parse_arguments(arguments, is_first)) {
            Ok(args) => (Some(Self { args }), 0),
            Err(code) => (None, code),
        }
    }

    #[getter]
    fn device(&self) -> Option<&str> {
        self.args.device.as_deref()
    }

    #[getter]
    fn amp(&self) -> &'static str {
        match self.args.amp {
            Amp::None => "none",
            Amp::Bf16 => "bf16",
            Amp::Fp16 => "fp16",
        }
    }

    #[getter]
    fn compile(&self) -> bool {
        self.args.compile
    }

    #[getter]
    fn sync_bn(&self) -> bool {
        self.args.sync_bn
    }

    #[getter]
    fn channels_last(&self) -> bool {
        !self.args.no_channels_last
    }

    #[getter]
    fn threads(&self) -> Option<usize> {
        self.args.threads()
    }

    /// Trains, and returns the exit code. `make_engine` makes an engine of the JSON of a network.
    fn train(
        &self,
        py: Python<'_>,
        threads: usize,
        is_restart: bool,
        workers: Bound<'_, PyAny>,
        make_engine: Py<PyAny>,
    ) -> PyResult<u8> {
        let (rank, size) = (workers.getattr("rank")?.extract()?, workers.getattr("size")?.extract()?);
        let shard = Shard::new(rank, size).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let workers = PythonWorkers::new(workers.unbind(), shard);
        let start = Launch { threads, is_restart };
        Ok(py.detach(|| {
            launch(&self.args, start, workers, |network, _, seed| {
                if network.is_on_features() {
                    let what = "torch trains networks on images; `equipoise train` trains heads on features".to_owned();
                    return Err(TrainError::Unusable { what });
                }
                Ok(PythonEngine::new(&make_engine, network, seed)?)
            })
        }))
    }

    /// Trains on the engine of the crates, as `equipoise train` does, and returns the exit code.
    fn train_without_torch(&self, py: Python<'_>, threads: usize) -> u8 {
        let start = Launch { threads, is_restart: false };
        py.detach(|| {
            launch(&self.args, start, SingleProcess, |network, batch_size, seed| {
                let pool = Pool::new(threads).map_err(|error| NnError::Device { what: error.to_string() })?;
                Ok(Cpu::new(network, batch_size, seed, pool)?)
            })
        })
    }
}

/// The description of a network as JSON: layers and tensors follow from it.
#[pyfunction]
fn network(name: &str, channels: usize, height: usize, width: usize, classes: usize) -> PyResult<String> {
    let network = name
        .parse::<Architecture>()
        .and_then(|architecture| Network::new(architecture, channels, [height, width], classes))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    engine::description(&network).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The engine of the crates, as a reference for others.
#[pyclass(unsendable, module = "equipoise._equipoise")]
struct CpuEngine {
    engine: Cpu,
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl CpuEngine {
    /// An engine for a network of `network`, with initial weights of a seed. The convolution is `winograd`, as in every
    /// training, or `direct`.
    #[new]
    #[pyo3(signature = (description, batch_size, seed, threads, convolution="winograd"))]
    fn new(description: &str, batch_size: usize, seed: u64, threads: usize, convolution: &str) -> PyResult<Self> {
        let network = engine::network_of(description).map_err(failed)?;
        let algorithm = convolution.parse().map_err(PyValueError::new_err)?;
        let pool = Pool::without_spinning(threads).map_err(failed)?;
        let options = CpuOptions { algorithm, ..CpuOptions::default() };
        let engine = Cpu::with_options(network, batch_size, seed, pool, options).map_err(failed)?;
        Ok(Self { engine })
    }

    /// Logits of a batch, row after row.
    fn forward<'py>(
        &mut self,
        py: Python<'py>,
        images: PyReadonlyArray1<'_, f32>,
        train: bool,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let logits = self.engine.forward(images.as_slice()?, train).map_err(failed)?;
        Ok(PyArray1::from_slice(py, logits))
    }

    /// Gradients of all parameters.
    fn backward(&mut self, gradient: PyReadonlyArray1<'_, f32>) -> PyResult<()> {
        self.engine.backward(gradient.as_slice()?).map_err(failed)
    }

    /// A step of SGD.
    fn sgd(&mut self, learning_rate: f32, momentum: f32, weight_decay: f32) -> PyResult<f64> {
        self.engine.step(&Optimizer::sgd(learning_rate, momentum, weight_decay)).map_err(failed)
    }

    /// Replaces the parameters.
    fn set_parameters(&mut self, values: Vec<PyReadonlyArray1<'_, f32>>) -> PyResult<()> {
        let values: PyResult<Vec<Vec<f32>>> = values.iter().map(|value| Ok(value.as_slice()?.to_vec())).collect();
        self.engine.set_tensors(TensorKind::Parameters, &values?).map_err(failed)
    }

    /// Values of the parameters, one array per tensor.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyArray1<f32>>>> {
        let tensors = self.engine.tensors(TensorKind::Parameters).map_err(failed)?;
        Ok(tensors.into_iter().map(|values| PyArray1::from_vec(py, values)).collect())
    }
}
