//! Names and shapes of a network's tensors in PyTorch, and their initial values.

use equipoise_random::{Example, Stream};

use super::{Head, Layer, Network, Shortcut};

/// Name and shape of a tensor in PyTorch's state dict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name of the tensor.
    pub name: String,
    /// Shape of the tensor; a convolution's is outputs x inputs x height x width.
    pub shape: Vec<usize>,
}

impl Tensor {
    fn new(name: String, shape: &[usize]) -> Self {
        Self { name, shape: shape.to_vec() }
    }

    /// Number of values.
    #[expect(clippy::len_without_is_empty, reason = "a tensor of a network has values")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Network {
    /// Name of the head in the state dict, without `.weight`.
    #[must_use]
    pub fn head_name(&self) -> &'static str {
        match self.shortcut {
            Shortcut::Padded => "linear",
            Shortcut::Projection => "fc",
        }
    }

    /// The trained tensors: every convolution's weight with the weight and bias of its batch norm, or the weight and bias of
    /// a hidden layer, then the head's weight with its bias and its scale, if it has them.
    #[must_use]
    pub fn parameters(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        for layer in self.layers().0 {
            let Layer { convolution, norm, inputs, outputs, kernel, .. } = layer;
            all.push(Tensor::new(format!("{convolution}.weight"), &[outputs, inputs, kernel, kernel]));
            all.push(Tensor::new(format!("{norm}.weight"), &[outputs]));
            all.push(Tensor::new(format!("{norm}.bias"), &[outputs]));
        }
        if let Some(hidden) = self.hidden() {
            all.push(Tensor::new("hidden.weight".to_owned(), &[hidden, self.channels]));
            all.push(Tensor::new("hidden.bias".to_owned(), &[hidden]));
        }
        let (head, classes) = (self.head_name(), self.classes);
        all.push(Tensor::new(format!("{head}.weight"), &[classes, self.features()]));
        match self.head {
            Head::Linear => all.push(Tensor::new(format!("{head}.bias"), &[classes])),
            Head::Lws => {
                all.push(Tensor::new(format!("{head}.bias"), &[classes]));
                all.push(Tensor::new(format!("{head}.scale"), &[classes]));
            }
            Head::Cosine { learned: true, .. } => all.push(Tensor::new(format!("{head}.scale"), &[1])),
            Head::Cosine { learned: false, .. } => {}
        }
        all
    }

    /// The running mean and variance of every batch norm.
    #[must_use]
    pub fn statistics(&self) -> Vec<Tensor> {
        let of_norm = |layer: Layer| {
            ["running_mean", "running_var"]
                .map(|statistic| Tensor::new(format!("{}.{statistic}", layer.norm), &[layer.outputs]))
        };
        self.layers().0.into_iter().flat_map(of_norm).collect()
    }

    /// Initial value of a trained scale of the head.
    fn initial_scale(&self) -> f32 {
        match self.head {
            Head::Linear | Head::Lws => 1.0,
            Head::Cosine { scale, .. } => scale,
        }
    }

    /// Number of trained values.
    pub(crate) fn parameter_count(&self) -> usize {
        self.parameters().iter().map(Tensor::len).sum()
    }

    /// Initial values of the [`parameters`](Self::parameters): He's normal distribution (fan-in) for weights, 1 and 0
    /// for batch norms, a uniform distribution for the head's bias, and the description's value for a trained scale. They
    /// are a function of the seed. A linear head on features starts at 0: its loss has one minimum, and noise would stay in
    /// directions that the data do not tell about.
    #[must_use]
    pub fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        let values = |(number, tensor): (usize, Tensor)| {
            let draws = Example { seed, epoch: 0, example: number as u64 }.draws(Stream::NetworkInit);
            let head = tensor.name.starts_with(self.head_name());
            if head && self.is_on_features() && self.hidden().is_none() && self.head == Head::Linear {
                return vec![0.0; tensor.len()];
            }
            match (tensor.shape.len(), tensor.name.ends_with(".weight")) {
                (1, false) if tensor.name.ends_with(".scale") => vec![self.initial_scale(); tensor.len()],
                (1, true) => vec![1.0; tensor.len()],
                (1, false) if head => {
                    let bound = 1.0 / (self.features() as f64).sqrt();
                    (0..tensor.len()).map(|i| (bound * (2.0 * draws.unit(i as u64) - 1.0)) as f32).collect()
                }
                (1, false) => vec![0.0; tensor.len()],
                _ => {
                    let fan_in: usize = tensor.shape[1..].iter().product();
                    let deviation = (2.0 / fan_in as f64).sqrt();
                    (0..tensor.len()).map(|i| (deviation * draws.normal(2 * i as u64)) as f32).collect()
                }
            }
        };
        self.parameters().into_iter().enumerate().map(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Architecture;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        use Architecture::{ResNet18, ResNet20, ResNet32, ResNet44, ResNet50, ResNet56};
        let count = |architecture, size, classes| {
            Network::new(architecture, 3, [size, size], classes).expect("valid").parameter_count()
        };
        assert_eq!([10, 100, 200].map(|classes| count(ResNet32, 32, classes)), [464_154, 470_004, 476_504]);
        // two and four times the channels
        let wide = [Architecture::ResNet32x2, Architecture::ResNet32x4];
        assert_eq!(wide.map(|architecture| count(architecture, 32, 10)), [1849898, 7386186]);
        // He et al., table 6, and torchvision
        let small = [ResNet20, ResNet44, ResNet56].map(|architecture| count(architecture, 32, 10));
        assert_eq!(small, [269_722, 658_586, 853_018]);
        assert_eq!([count(ResNet18, 224, 1000), count(ResNet50, 224, 1000)], [11_689_512, 25_557_032]);
    }

    #[test]
    fn names_and_shapes_are_those_of_pytorch() {
        let network = Network::new(Architecture::ResNet50, 3, [224, 224], 7).expect("valid");
        let has = |name: &str, shape: &[usize]| {
            let found = network.parameters().into_iter().find(|tensor| tensor.name == name);
            assert_eq!(found.expect(name).shape, shape, "{name}");
        };
        has("conv1.weight", &[64, 3, 7, 7]);
        has("layer1.0.downsample.0.weight", &[256, 64, 1, 1]);
        has("layer2.0.conv2.weight", &[128, 128, 3, 3]);
        has("layer4.2.bn3.bias", &[2048]);
        has("fc.weight", &[7, 2048]);
        assert!(network.statistics().iter().any(|tensor| tensor.name == "layer3.5.bn2.running_var"));
    }

    #[test]
    fn initial_weights_have_the_variance_of_he() {
        let network = Network::new(Architecture::ResNet20, 3, [32, 32], 10).expect("valid");
        let initial = network.initial_parameters(1);
        for (tensor, values) in network.parameters().iter().zip(&initial) {
            assert_eq!(values.len(), tensor.len());
            if tensor.shape.len() > 1 {
                let fan_in: usize = tensor.shape[1..].iter().product();
                let variance = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64;
                let ratio = variance * fan_in as f64 / 2.0;
                let slack = 6.0 / (values.len() as f64).sqrt();
                assert!((ratio - 1.0).abs() < slack, "{}: {ratio}", tensor.name);
            }
        }
        assert_ne!(initial[0], network.initial_parameters(2)[0]);
        assert_eq!(initial, network.initial_parameters(1));
    }
}
