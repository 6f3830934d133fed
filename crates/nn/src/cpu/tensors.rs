//! Tensors in and out: between the engine's flat, padded buffers and PyTorch's layout.

use super::CpuOf;
use super::plan::Layer;
use crate::engine::TensorKind;
use crate::error::NnError;
use crate::kernel::convolution::Geometry;
use crate::kernel::value::Activation;
use crate::network::Head;

/// Where a tensor is inside a flat buffer.
struct TensorLayout {
    start: usize,
    /// Taps, inputs and outputs.
    shape: [usize; 3],
    /// Inputs and outputs with their padding.
    padded: [usize; 2],
}

impl TensorLayout {
    fn vector(start: usize, length: usize) -> Self {
        Self { start, shape: [1, 1, length], padded: [1, length] }
    }

    /// Indices of the values in PyTorch's order: outputs, inputs, taps.
    fn indices(&self) -> impl Iterator<Item = usize> {
        let ([taps, inputs, outputs], [padded_inputs, padded_outputs], start) = (self.shape, self.padded, self.start);
        (0..outputs).flat_map(move |o| {
            (0..inputs)
                .flat_map(move |i| (0..taps).map(move |tap| start + (tap * padded_inputs + i) * padded_outputs + o))
        })
    }
}

impl<T: Activation> CpuOf<T> {
    pub(super) fn copy_tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        self.check_gathered(kind)?;
        let flat = match (kind, &self.ema) {
            (TensorKind::Parameters, _) => &self.parameters,
            (TensorKind::Gradients, _) => &self.gradients,
            (TensorKind::Momentum, _) => &self.momentum,
            (TensorKind::SecondMoment, _) => match &self.second_moment {
                Some(second_moment) => second_moment,
                None => return Ok(Vec::new()),
            },
            (TensorKind::Statistics, _) => &self.statistics,
            (TensorKind::EmaParameters, Some(ema)) => &ema.parameters,
            (TensorKind::EmaStatistics, Some(ema)) => &ema.statistics,
            (TensorKind::EmaParameters | TensorKind::EmaStatistics, None) => return Ok(Vec::new()),
        };
        Ok(self.layouts(kind).iter().map(|layout| layout.indices().map(|at| flat[at]).collect()).collect())
    }

    pub(super) fn replace_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        self.check_tensors(kind, values)?;
        self.finish_parameters()?;
        let layouts = self.layouts(kind);
        if kind == TensorKind::SecondMoment {
            self.second_moment_start();
        }
        let flat = match kind {
            TensorKind::Parameters => &mut self.parameters,
            TensorKind::Gradients => &mut self.gradients,
            TensorKind::Momentum => &mut self.momentum,
            TensorKind::SecondMoment => self.second_moment.as_mut().expect("it was started above"),
            TensorKind::Statistics => &mut self.statistics,
            TensorKind::EmaParameters => &mut self.ema.as_mut().ok_or(NnError::NoEma)?.parameters,
            TensorKind::EmaStatistics => &mut self.ema.as_mut().ok_or(NnError::NoEma)?.statistics,
        };
        for (layout, values) in layouts.iter().zip(values) {
            for (at, value) in layout.indices().zip(values) {
                flat[at] = *value;
            }
        }
        // the activations of the last pass belong to the old values
        self.trained_images = None;
        if kind == TensorKind::Parameters {
            self.ascended = false;
            self.pack();
        }
        Ok(())
    }

    fn check_tensors(&self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        let tensors = if kind.is_statistics() { self.network.statistics() } else { self.network.parameters() };
        if values.len() != tensors.len() {
            return Err(NnError::Length { what: "tensors", got: values.len(), want: tensors.len() });
        }
        for (tensor, values) in tensors.into_iter().zip(values) {
            if values.len() != tensor.len() {
                return Err(NnError::Shape { name: tensor.name, got: vec![values.len()], want: tensor.shape });
            }
        }
        Ok(())
    }

    /// The layouts of the network's parameters or statistics, in their order.
    fn layouts(&self, kind: TensorKind) -> Vec<TensorLayout> {
        let of_layer = |layer: &Layer<T>| {
            let [inputs, outputs] = layer.unpadded;
            if kind.is_statistics() {
                return [&layer.mean, &layer.variance].map(|range| TensorLayout::vector(range.start, outputs)).into();
            }
            let geometry = layer.convolution.geometry;
            vec![
                TensorLayout {
                    start: layer.weight.start,
                    shape: [geometry.kernel * geometry.kernel, inputs, outputs],
                    padded: [geometry.inputs, geometry.outputs],
                },
                TensorLayout::vector(layer.gamma.start, outputs),
                TensorLayout::vector(layer.beta.start, outputs),
            ]
        };
        let mut layouts: Vec<TensorLayout> = self.layers.iter().flat_map(of_layer).collect();
        if !kind.is_statistics() {
            if let Some(hidden) = &self.hidden {
                let Geometry { inputs, outputs, .. } = hidden.convolution.geometry;
                let [features, width] = [self.network.channels, self.network.features()];
                let (shape, padded) = ([1, features, width], [inputs, outputs]);
                layouts.push(TensorLayout { start: hidden.weight.start, shape, padded });
                layouts.push(TensorLayout::vector(hidden.bias.start, width));
            }
            layouts.extend(self.head_layouts());
        }
        layouts
    }

    fn head_layouts(&self) -> Vec<TensorLayout> {
        let head = &self.head;
        let Geometry { inputs, outputs, .. } = head.convolution.geometry;
        let (features, classes) = (self.network.features(), self.network.classes);
        let weight =
            TensorLayout { start: head.weight.start, shape: [1, features, classes], padded: [inputs, outputs] };
        match self.network.head {
            Head::Linear => vec![weight, TensorLayout::vector(head.bias.start, classes)],
            Head::Lws => {
                let [bias, scale] = [&head.bias, &head.scale].map(|range| TensorLayout::vector(range.start, classes));
                vec![weight, bias, scale]
            }
            Head::Cosine { learned: true, .. } => vec![weight, TensorLayout::vector(head.scale.start, 1)],
            Head::Cosine { learned: false, .. } => vec![weight],
        }
    }
}
