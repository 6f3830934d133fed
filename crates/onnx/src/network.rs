//! The layers of a network as a graph.

use equipoise_nn::network::{Head, Layer, Network, ResidualBlock};

use crate::message::{Attribute, Graph, file};
use crate::{IR_VERSION, OPSET};

/// Added to the variances of batch norms, as in PyTorch.
const EPSILON: f64 = 1e-5;

/// A trained network and what becomes of its inputs and outputs.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// The network.
    pub network: &'a Network,
    /// Values of the network's parameters, in its order.
    pub parameters: &'a [Vec<f32>],
    /// Values of the network's running means and variances, in its order.
    pub statistics: &'a [Vec<f32>],
    /// Mean of the pixels by channel, in 0..=1.
    pub mean: &'a [f32],
    /// Standard deviation of the pixels by channel, in 0..=1.
    pub std: &'a [f32],
    /// How a head scales its features; `None` for a network on images.
    pub features: Option<FeatureScale<'a>>,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Added to the logits after the factor; empty for nothing.
    pub logit_offsets: &'a [f32],
    /// Temperature of the probabilities.
    pub temperature: f32,
    /// Facts about the network: names and values.
    pub metadata: &'a [(&'static str, String)],
    /// Version of the program that writes the file.
    pub version: &'a str,
}

/// How a head on features scales them.
#[derive(Clone, Copy, Debug)]
pub enum FeatureScale<'a> {
    /// By a factor and an offset for each.
    Affine {
        /// The factors.
        scale: &'a [f32],
        /// The offsets.
        offset: &'a [f32],
    },
    /// To length 1.
    UnitLength,
    /// Not at all.
    Nothing,
}

/// The bytes of an ONNX file.
///
/// Its input `images` is batch x channels x height x width, with pixels in 0..=1; they are normalized inside. Its outputs are
/// `logits`, with factor and offsets, and `probabilities`, both batch x classes, and the `features` that the head reads. The input
/// of a head on features is `features`, batch x features, which are scaled inside.
///
/// # Panics
/// If the values do not have the network's shapes.
#[must_use]
pub fn write(model: &Model<'_>) -> Vec<u8> {
    file(graph(model), IR_VERSION, OPSET, ["equipoise", model.version], model.metadata)
}

fn graph(model: &Model<'_>) -> Graph {
    let mut graph = Graph { name: model.network.name.clone(), ..Graph::default() };
    if model.network.is_on_features() {
        graph.input("features", &[model.network.channels], "features of an image, as its backbone computes them");
        feature_head(&mut graph, model, "features", "");
        return graph;
    }
    let mut builder = Builder { graph, model, prefix: "" };
    let features = builder.backbone();
    builder.head(&features);
    let network = model.network;
    builder.graph.output("features", &[network.features()], "features, the input of the head");
    builder.graph
}

/// Adds a head on features, which are the value `input`. The names of all its nodes but `logits` and `probabilities` start with `prefix`.
pub(crate) fn feature_head(graph: &mut Graph, model: &Model<'_>, input: &str, prefix: &str) {
    let mut builder = Builder { graph: std::mem::take(graph), model, prefix };
    let scaled = builder.scaled_features(input);
    let hidden = builder.hidden(&scaled);
    builder.head(&hidden);
    *graph = builder.graph;
}

struct Builder<'a> {
    graph: Graph,
    model: &'a Model<'a>,
    /// Start of the names of the head's nodes.
    prefix: &'a str,
}

impl Builder<'_> {
    /// From images to features; returns the name of the features.
    fn backbone(&mut self) -> String {
        let network = self.model.network;
        let (layers, blocks) = network.layers();
        let images = self.normalized_images();
        let stem = self.convolution(&layers, 0, &images);
        let mut x = self.graph.node("Relu", "relu1", &[&stem], []);
        if network.stem.pool {
            let attributes = [
                Attribute::Integers("kernel_shape", vec![3, 3]),
                Attribute::Integers("strides", vec![2, 2]),
                Attribute::Integers("pads", vec![1, 1, 1, 1]),
            ];
            x = self.graph.node("MaxPool", "maxpool", &[&x], attributes);
        }
        for block in &blocks {
            x = self.block(&layers, block, &x);
        }
        let pooled = self.graph.node("GlobalAveragePool", "avgpool", &[&x], []);
        self.graph.node("Flatten", "features", &[&pooled], [Attribute::Integer("axis", 1)])
    }

    fn normalized_images(&mut self) -> String {
        let Model { network, mean, std, .. } = self.model;
        let (channels, [height, width]) = (network.channels, network.size);
        self.graph.input("images", &[channels, height, width], "pixels in 0 to 1");
        let mean = self.graph.floats("mean", &[1, channels, 1, 1], mean.iter().copied());
        let std = self.graph.floats("std", &[1, channels, 1, 1], std.iter().copied());
        let centered = self.graph.node("Sub", "images.centered", &["images", &mean], []);
        self.graph.node("Div", "images.normalized", &[&centered, &std], [])
    }

    /// A convolution with its batch norm folded in.
    fn convolution(&mut self, layers: &[Layer], number: usize, input: &str) -> String {
        let (layer, model) = (&layers[number], self.model);
        let values = &model.parameters[3 * number..][..3];
        let statistics = &model.statistics[2 * number..][..2];
        let factor = |c: usize| f64::from(values[1][c]) / (f64::from(statistics[1][c]) + EPSILON).sqrt();
        let fan_in = layer.inputs * layer.kernel * layer.kernel;
        let weight = values[0].iter().enumerate().map(|(i, w)| (f64::from(*w) * factor(i / fan_in)) as f32);
        let bias =
            (0..layer.outputs).map(|c| (f64::from(values[2][c]) - f64::from(statistics[0][c]) * factor(c)) as f32);
        let name = &layer.convolution;
        let shape = [layer.outputs, layer.inputs, layer.kernel, layer.kernel];
        let weight = self.graph.floats(&format!("{name}.weight"), &shape, weight);
        let bias = self.graph.floats(&format!("{name}.bias"), &[layer.outputs], bias);
        let attributes = [
            Attribute::Integers("kernel_shape", vec![layer.kernel; 2]),
            Attribute::Integers("strides", vec![layer.stride; 2]),
            Attribute::Integers("pads", vec![layer.pad; 4]),
        ];
        self.graph.node("Conv", name, &[input, &weight, &bias], attributes)
    }

    fn block(&mut self, layers: &[Layer], block: &ResidualBlock, input: &str) -> String {
        let mut x = input.to_owned();
        for number in &block.layers {
            x = self.convolution(layers, *number, &x);
            if *number != block.last() {
                x = self.graph.node("Relu", &format!("{x}.relu"), &[&x], []);
            }
        }
        let (first, last) = (&layers[block.first()], &layers[block.last()]);
        let stride: usize = block.layers.iter().map(|number| layers[*number].stride).product();
        let shortcut = match block.projection {
            Some(projection) => self.convolution(layers, projection, input),
            None => self.padded_shortcut(&last.convolution, input, stride, last.outputs - first.inputs),
        };
        let sum = self.graph.node("Add", &format!("{x}.sum"), &[&x, &shortcut], []);
        self.graph.node("Relu", &format!("{sum}.relu"), &[&sum], [])
    }

    /// A shortcut without parameters: every `stride`-th pixel, and zero channels on both sides.
    fn padded_shortcut(&mut self, name: &str, input: &str, stride: usize, channels: usize) -> String {
        let mut x = input.to_owned();
        if stride > 1 {
            let step = stride as i64;
            let starts = self.graph.integers(&format!("{name}.shortcut.starts"), &[0, 0]);
            let ends = self.graph.integers(&format!("{name}.shortcut.ends"), &[i64::MAX, i64::MAX]);
            let axes = self.graph.integers(&format!("{name}.shortcut.axes"), &[2, 3]);
            let steps = self.graph.integers(&format!("{name}.shortcut.steps"), &[step, step]);
            let inputs = [&x, starts.as_str(), &ends, &axes, &steps];
            x = self.graph.node("Slice", &format!("{name}.shortcut.pixels"), &inputs, []);
        }
        if channels > 0 {
            let side = (channels / 2) as i64;
            let pads = self.graph.integers(&format!("{name}.shortcut.pads"), &[0, side, 0, 0, 0, side, 0, 0]);
            x = self.graph.node("Pad", &format!("{name}.shortcut.padded"), &[&x, &pads], []);
        }
        x
    }

    /// Features as the head was trained on them.
    fn scaled_features(&mut self, input: &str) -> String {
        let (width, prefix) = (self.model.network.channels, self.prefix);
        match self.model.features {
            Some(FeatureScale::Affine { scale, offset }) => {
                let scale = self.graph.floats(&format!("{prefix}scale"), &[1, width], scale.iter().copied());
                let offset = self.graph.floats(&format!("{prefix}offset"), &[1, width], offset.iter().copied());
                let scaled = self.graph.node("Mul", &format!("{prefix}features.times"), &[input, &scale], []);
                self.graph.node("Add", &format!("{prefix}features.scaled"), &[&scaled, &offset], [])
            }
            Some(FeatureScale::UnitLength) => self.unit_length(input, &format!("{prefix}features.scaled")),
            Some(FeatureScale::Nothing) | None => input.to_owned(),
        }
    }

    /// The hidden layer of a head on features, if it has one.
    fn hidden(&mut self, input: &str) -> String {
        let Model { network, parameters, .. } = self.model;
        let (width, prefix) = (network.features(), self.prefix);
        if parameters.len() < 2 || network.feature_input.is_none_or(|input| input.hidden.is_none()) {
            return input.to_owned();
        }
        let weight = self.graph.floats(
            &format!("{prefix}hidden.weight"),
            &[width, network.channels],
            parameters[0].iter().copied(),
        );
        let bias = self.graph.floats(&format!("{prefix}hidden.bias"), &[width], parameters[1].iter().copied());
        let transposed = [Attribute::Integer("transB", 1)];
        let sum = self.graph.node("Gemm", &format!("{prefix}hidden"), &[input, &weight, &bias], transposed);
        self.graph.node("Relu", &format!("{prefix}hidden.relu"), &[&sum], [])
    }

    /// From features to logits and probabilities.
    fn head(&mut self, features: &str) {
        let network = self.model.network;
        let head = format!("{}{}", self.prefix, network.head_name());
        let input = match network.head {
            Head::Linear | Head::Lws => features.to_owned(),
            Head::Cosine { .. } => self.unit_length(features, &format!("{}features.normalized", self.prefix)),
        };
        let (weight, bias) = self.head_values();
        let weight = self.graph.floats(&format!("{head}.weight"), &[network.classes, network.features()], weight);
        let bias = self.graph.floats(&format!("{head}.bias"), &[network.classes], bias);
        let transposed = [Attribute::Integer("transB", 1)];
        let logits = self.graph.node("Gemm", "logits", &[&input, &weight, &bias], transposed);
        let temperature = self.graph.floats(&format!("{}temperature", self.prefix), &[], [self.model.temperature]);
        let scaled = self.graph.node("Div", &format!("{}logits.scaled", self.prefix), &[&logits, &temperature], []);
        self.graph.node("Softmax", "probabilities", &[&scaled], [Attribute::Integer("axis", 1)]);
        self.graph.output("logits", &[network.classes], "logits, after any adjustment");
        self.graph.output("probabilities", &[network.classes], "probabilities of the classes");
    }

    /// Features divided by their length.
    fn unit_length(&mut self, features: &str, name: &str) -> String {
        // ReduceL2 has its axes elsewhere in newer versions of the operators
        let squares = self.graph.node("Mul", &format!("{name}.squares"), &[features, features], []);
        let axes = self.graph.integers(&format!("{name}.axes"), &[1]);
        let keep = [Attribute::Integer("keepdims", 1)];
        let sum = self.graph.node("ReduceSum", &format!("{name}.sum"), &[&squares, &axes], keep);
        let length = self.graph.node("Sqrt", &format!("{name}.length"), &[&sum], []);
        let least = self.graph.floats(&format!("{name}.least_length"), &[], [1e-12]);
        let length = self.graph.node("Max", &format!("{name}.safe_length"), &[&length, &least], []);
        self.graph.node("Div", name, &[features, &length], [])
    }

    /// Weights and biases of the head, with all factors and offsets folded in.
    fn head_values(&self) -> (Vec<f32>, Vec<f32>) {
        let Model { network, parameters, logit_scale, logit_offsets, .. } = self.model;
        let (features, scale) = (network.features(), f64::from(*logit_scale));
        let hidden = if network.feature_input.is_some_and(|input| input.hidden.is_some()) { 2 } else { 0 };
        let values = &parameters[3 * network.layers().0.len() + hidden..];
        let zeros = vec![0.0; network.classes];
        let row = |class: usize| values[0][class * features..][..features].iter().map(|w| f64::from(*w));
        let length = |class: usize| row(class).map(|w| w * w).sum::<f64>().sqrt().max(1e-12);
        let factor = |class: usize| match network.head {
            Head::Linear => scale,
            Head::Lws => scale * f64::from(values[2][class]),
            Head::Cosine { learned: true, .. } => scale * f64::from(values[1][0]) / length(class),
            Head::Cosine { scale: own, .. } => scale * f64::from(own) / length(class),
        };
        let biases = if matches!(network.head, Head::Cosine { .. }) { &zeros } else { &values[1] };
        let offset = |class: usize| logit_offsets.get(class).copied().unwrap_or(0.0);
        let bias = |class: usize| (f64::from(biases[class]) * factor(class) + f64::from(offset(class))) as f32;
        let weight = (0..network.classes).flat_map(|class| {
            let factor = factor(class);
            row(class).map(move |w| (w * factor) as f32)
        });
        (weight.collect(), (0..network.classes).map(bias).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use equipoise_nn::network::Architecture;

    use super::*;
    use crate::message::Value;

    /// A network whose parameters are all `fill` and whose running variances are 1 - epsilon.
    fn graph(architecture: Architecture, head: Head, fill: f32, logit_offsets: &[f32]) -> Graph {
        let network = Network::new(architecture, 3, [33, 33], 4).expect("valid").with_head(head);
        let parameters: Vec<Vec<f32>> = network.parameters().iter().map(|tensor| vec![fill; tensor.len()]).collect();
        let statistics = network.statistics().into_iter().map(|tensor| match tensor.name.ends_with("var") {
            true => vec![(1.0 - EPSILON) as f32; tensor.len()],
            false => vec![0.25; tensor.len()],
        });
        super::graph(&Model {
            network: &network,
            parameters: &parameters,
            statistics: &statistics.collect::<Vec<_>>(),
            mean: &[0.5; 3],
            std: &[0.25; 3],
            features: None,
            logit_scale: 2.0,
            logit_offsets,
            temperature: 1.5,
            metadata: &[],
            version: "1",
        })
    }

    fn floats(graph: &Graph, name: &str) -> Vec<f32> {
        let constant = graph.constants.iter().find(|constant| constant.name == name).expect(name);
        let bytes = constant.bytes.chunks_exact(4);
        bytes.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect()
    }

    #[test]
    fn every_value_is_defined_once_and_before_it_is_used() {
        for architecture in [Architecture::ResNet8, Architecture::ResNet18, Architecture::ResNet50] {
            let graph = graph(architecture, Head::Cosine { scale: 16.0, learned: true }, 0.1, &[]);
            let mut known: HashSet<&str> = HashSet::from(["images"]);
            for constant in &graph.constants {
                assert!(known.insert(&constant.name), "{} twice", constant.name);
                let size = if constant.data_type == crate::message::FLOAT { 4 } else { 8 };
                assert_eq!(constant.bytes.len(), size * constant.shape.iter().product::<usize>(), "{}", constant.name);
            }
            for node in &graph.nodes {
                assert!(node.inputs.iter().all(|input| known.contains(input.as_str())), "{}", node.name);
                assert!(known.insert(&node.name), "{} twice", node.name);
            }
            assert!(graph.outputs.iter().all(|output| known.contains(output.name.as_str())));
        }
    }

    #[test]
    fn inputs_and_outputs() {
        let graph = graph(Architecture::ResNet8, Head::Linear, 0.1, &[]);
        let describe = |value: &Value| (value.name.clone(), value.shape.clone());
        let inputs: Vec<_> = graph.inputs.iter().map(describe).collect();
        let outputs: Vec<_> = graph.outputs.iter().map(describe).collect();
        let named = |name: &str, shape: &[usize]| (name.to_owned(), shape.to_vec());
        assert_eq!(inputs, [named("images", &[3, 33, 33])]);
        assert_eq!(outputs, [named("logits", &[4]), named("probabilities", &[4]), named("features", &[64])]);
    }

    #[test]
    fn batch_norms_factors_and_offsets_are_folded() {
        let offsets = [1.0, 2.0, 3.0, 4.0];
        let linear = graph(Architecture::ResNet8, Head::Linear, 0.5, &offsets);
        // gamma 0.5 over a deviation of 1; beta 0.5 minus the mean of 0.25 times gamma
        assert!(floats(&linear, "conv1.weight").iter().all(|w| (w - 0.25).abs() < 1e-6));
        assert!(floats(&linear, "conv1.bias").iter().all(|b| (b - 0.375).abs() < 1e-6));
        assert!(floats(&linear, "linear.weight").iter().all(|w| *w == 1.0));
        assert_eq!(floats(&linear, "linear.bias"), [2.0, 3.0, 4.0, 5.0]);
        let lws = graph(Architecture::ResNet8, Head::Lws, 0.5, &offsets);
        assert!(floats(&lws, "linear.weight").iter().all(|w| *w == 0.5));
        assert_eq!(floats(&lws, "linear.bias"), [1.5, 2.5, 3.5, 4.5]);
        // 64 equal weights of length 1, times the scale of 16 and the factor of 2
        let cosine = graph(Architecture::ResNet8, Head::Cosine { scale: 16.0, learned: false }, 0.5, &[]);
        assert!(floats(&cosine, "linear.weight").iter().all(|w| (w - 4.0).abs() < 1e-6));
        assert_eq!(floats(&cosine, "linear.bias"), [0.0; 4]);
    }
}
