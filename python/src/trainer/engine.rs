//! An engine that is a Python object with torch modules.

use equipoise_nn::{Engine, Network, NnError, Optimizer, TensorKind, UpdateRule};
use pyo3::prelude::*;
use serde_json::{Value, json};

/// An engine that a Python object computes.
pub(super) struct PythonEngine {
    object: Py<PyAny>,
    network: Network,
    logits: Vec<f32>,
}

/// The description of a network for Python: the network, its layers, and names and shapes of its tensors.
pub(super) fn description(network: &Network) -> serde_json::Result<String> {
    let (layers, blocks) = network.layers();
    let layer = |layer: &equipoise_nn::network::Layer| {
        json!({
            "convolution": layer.convolution, "norm": layer.norm, "inputs": layer.inputs, "outputs": layer.outputs,
            "kernel": layer.kernel, "stride": layer.stride, "pad": layer.pad,
        })
    };
    let block =
        |block: &equipoise_nn::network::ResidualBlock| json!({"layers": block.layers, "projection": block.projection});
    let names = |tensors: Vec<equipoise_nn::network::Tensor>| {
        tensors.into_iter().map(|tensor| json!({"name": tensor.name, "shape": tensor.shape})).collect::<Vec<Value>>()
    };
    serde_json::to_string(&json!({
        "network": network,
        "head": network.head_name(),
        "features": network.features(),
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
        "blocks": blocks.iter().map(block).collect::<Vec<_>>(),
        "parameters": names(network.parameters()),
        "statistics": names(network.statistics()),
    }))
}

/// The network of a description.
pub(super) fn network_of(description: &str) -> serde_json::Result<Network> {
    let mut description: Value = serde_json::from_str(description)?;
    serde_json::from_value(description["network"].take())
}

/// An exception in a sentence.
pub(super) fn describe(py: Python<'_>, error: &PyErr) -> String {
    let text = error.value(py).to_string();
    let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
    let text = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("").trim().to_owned();
    if text.is_empty() { name } else { format!("{name}: {text}") }
}

fn device(py: Python<'_>, error: &PyErr) -> NnError {
    NnError::Device { what: describe(py, error) }
}

fn name(kind: TensorKind) -> &'static str {
    match kind {
        TensorKind::Parameters => "parameters",
        TensorKind::Gradients => "gradients",
        TensorKind::Momentum => "momentum",
        TensorKind::SecondMoment => "second_moment",
        TensorKind::Statistics => "statistics",
        TensorKind::EmaParameters => "ema_parameters",
        TensorKind::EmaStatistics => "ema_statistics",
    }
}

/// Copies values at an address.
///
/// # Safety
/// `length` values are at the address.
unsafe fn copy(at: usize, length: usize, to: &mut Vec<f32>) {
    to.clear();
    if length > 0 {
        // SAFETY: the caller vouches for the values.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(at as *const f32, length) });
    }
}

impl PythonEngine {
    /// An engine for a network with the initial weights of a seed.
    pub(super) fn new(make: &Py<PyAny>, network: Network, seed: u64) -> Result<Self, NnError> {
        let text = description(&network).map_err(|error| NnError::Device { what: error.to_string() })?;
        let object = Python::attach(|py| make.call1(py, (text,)).map_err(|error| device(py, &error)))?;
        let mut engine = Self { object, network, logits: Vec::new() };
        engine.set_tensors(TensorKind::Parameters, &engine.network.initial_parameters(seed))?;
        Ok(engine)
    }

    /// Calls a method of the object.
    fn call<T>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, NnError> {
        Python::attach(|py| f(self.object.bind(py)).map_err(|error| device(py, &error)))
    }

    /// Number of images in a batch of pixels.
    fn count(&self, images: &[f32]) -> Result<usize, NnError> {
        let Network { channels, size: [height, width], .. } = self.network;
        let length = channels * height * width;
        if let Some(at) = images.iter().position(|x| !x.is_finite()) {
            return Err(NnError::NotFinite { image: at / length, value: images[at] });
        }
        match images.len() % length {
            0 if !images.is_empty() => Ok(images.len() / length),
            0 => Err(NnError::BatchSize { got: 0, most: usize::MAX }),
            _ => Err(NnError::Images { got: images.len(), channels, height, width }),
        }
    }
}

impl Engine for PythonEngine {
    fn network(&self) -> &Network {
        &self.network
    }

    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        let (number, at) = (self.count(images)?, images.as_ptr() as usize);
        let mut logits = std::mem::take(&mut self.logits);
        self.call(|object| {
            let (from, length): (usize, usize) = object.call_method1("forward", (at, number, train))?.extract()?;
            // SAFETY: Python returns the address and the length of a tensor that it keeps until its next pass.
            unsafe { copy(from, length, &mut logits) };
            Ok(())
        })?;
        self.logits = logits;
        let want = number * self.network.classes;
        match self.logits.len() == want {
            true => Ok(&self.logits),
            false => Err(NnError::Length { what: "logits", got: self.logits.len(), want }),
        }
    }

    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        let (at, length) = (gradient.as_ptr() as usize, gradient.len());
        self.call(|object| object.call_method1("backward", (at, length)).map(drop))
    }

    fn forward_without_images(&mut self) -> Result<(), NnError> {
        self.call(|object| object.call_method0("forward_without_images").map(drop))
    }

    fn backward_without_images(&mut self) -> Result<(), NnError> {
        self.call(|object| object.call_method0("backward_without_images").map(drop))
    }

    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError> {
        self.call(|object| object.call_method1("freeze_backbone", (frozen,)).map(drop))
    }

    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError> {
        self.call(|object| object.call_method1("freeze_batch_norm", (frozen,)).map(drop))
    }

    /// The backward pass sums them.
    fn gradients(&mut self) -> Option<&mut [f32]> {
        None
    }

    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        let Optimizer { rule, learning_rate, backbone_factor, layer_decay, weight_decay, clip_grad_norm } = *optimizer;
        let rates = (learning_rate, backbone_factor, layer_decay, weight_decay, clip_grad_norm);
        self.call(|object| {
            let norm = match rule {
                UpdateRule::Sgd { momentum, nesterov } => object.call_method1("step_sgd", (rates, momentum, nesterov)),
                UpdateRule::AdamW { betas, epsilon, step } => {
                    object.call_method1("step_adamw", (rates, (betas[0], betas[1]), epsilon, step))
                }
            };
            norm?.extract()
        })
    }

    fn ascend(&mut self, rho: f32) -> Result<f64, NnError> {
        self.call(|object| object.call_method1("ascend", (rho,))?.extract())
    }

    fn start_second_moment(&mut self) -> Result<(), NnError> {
        self.call(|object| object.call_method0("start_second_moment").map(drop))
    }

    fn start_ema(&mut self) -> Result<(), NnError> {
        self.call(|object| object.call_method0("start_ema").map(drop))
    }

    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        self.call(|object| object.call_method1("update_ema", (decay,)).map(drop))
    }

    fn swap_ema(&mut self) -> Result<(), NnError> {
        self.call(|object| object.call_method0("swap_ema").map(drop))
    }

    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError> {
        let (number, at) = (self.count(images)?, images.as_ptr() as usize);
        self.call(|object| object.call_method1("estimate_statistics", (at, number, share)).map(drop))
    }

    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        self.call(|object| {
            // the tensors live as long as the list
            let tensors = object.call_method1("tensors", (name(kind),))?;
            let mut all = Vec::new();
            for tensor in tensors.try_iter()? {
                let tensor = tensor?;
                let at: usize = tensor.call_method0("data_ptr")?.extract()?;
                let length: usize = tensor.call_method0("numel")?.extract()?;
                let mut values = Vec::new();
                // SAFETY: a contiguous tensor of 32-bit floats on the CPU, which lives in the list.
                unsafe { copy(at, length, &mut values) };
                all.push(values);
            }
            Ok(all)
        })
    }

    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        let statistics = matches!(kind, TensorKind::Statistics | TensorKind::EmaStatistics);
        let tensors = if statistics { self.network.statistics() } else { self.network.parameters() };
        if values.len() != tensors.len() {
            return Err(NnError::Length { what: "tensors", got: values.len(), want: tensors.len() });
        }
        for (tensor, values) in tensors.into_iter().zip(values) {
            if values.len() != tensor.len() {
                return Err(NnError::Shape { name: tensor.name, got: vec![values.len()], want: tensor.shape });
            }
        }
        let addresses: Vec<(usize, usize)> = values.iter().map(|x| (x.as_ptr() as usize, x.len())).collect();
        self.call(|object| object.call_method1("set_tensors", (name(kind), addresses)).map(drop))
    }
}
