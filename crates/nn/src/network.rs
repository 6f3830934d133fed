//! Residual networks as data: everything about a network follows from its description.
//!
//! Deep residual learning for image recognition, He et al., CVPR 2016. Networks for small images have three stages and
//! shortcuts without parameters (option A of the paper); those for large images are torchvision's (the stride is on the 3 x 3
//! convolution). Names and shapes of parameters are those of the usual PyTorch programs.

use std::fmt::Display;

use equipoise_random::{Example, Stream};
use serde::{Deserialize, Serialize};

use crate::error::NnError;

/// Every network that can be named.
pub const NAMES: [&str; 8] =
    ["resnet8", "resnet14", "resnet20", "resnet32", "resnet44", "resnet56", "resnet18", "resnet50"];

/// A residual network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// What it is called.
    pub name: String,
    /// Channels of an image: 1 or 3, or any other number.
    pub channels: usize,
    /// Height and width of an image.
    pub size: [usize; 2],
    /// Number of classes.
    pub classes: usize,
    /// The first convolution.
    pub stem: Stem,
    /// What the stages are made of.
    pub block: Block,
    /// How a block's input gets past it where the shapes differ.
    pub shortcut: Shortcut,
    /// The stages.
    pub stages: Vec<Stage>,
    /// From features to logits.
    pub head: Head,
}

/// The first convolution, with its batch norm and ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stem {
    /// Channels that come out.
    pub width: usize,
    /// Side of its window.
    pub kernel: usize,
    /// From one window to the next.
    pub stride: usize,
    /// Whether a max pool (3 x 3, stride 2) follows.
    pub pool: bool,
}

/// Some blocks of the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// How many.
    pub blocks: usize,
    /// Channels of their 3 x 3 convolutions.
    pub width: usize,
    /// Of the first of them.
    pub stride: usize,
}

/// What is inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    /// Two 3 x 3 convolutions.
    Basic,
    /// 1 x 1, 3 x 3, and 1 x 1 with four times the width.
    Bottleneck,
}

/// A shortcut between different shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortcut {
    /// Every second pixel, with zero channels on both sides.
    Padded,
    /// A 1 x 1 convolution with a batch norm.
    Projection,
}

/// From features to logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// W f + b.
    Linear,
    /// `scale` times the cosine between the features and a class's weights.
    Cosine {
        /// The factor.
        scale: f32,
    },
}

/// A convolution of a network, with the batch norm that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Name of the convolution, without `.weight`.
    pub convolution: String,
    /// Name of its batch norm.
    pub norm: String,
    /// Channels that go in.
    pub inputs: usize,
    /// Channels that come out.
    pub outputs: usize,
    /// Side of the window.
    pub kernel: usize,
    /// From one window to the next.
    pub stride: usize,
    /// Zeros around the input.
    pub pad: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
}

/// The layers of a block, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint {
    /// One after the other.
    pub layers: Vec<usize>,
    /// The shortcut's, if it has one.
    pub projection: Option<usize>,
}

/// A tensor of a network, as PyTorch would show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its shape; convolutions are outputs x inputs x height x width.
    pub shape: Vec<usize>,
}

impl Tensor {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn out_of_range(field: &'static str, got: &dyn Display, must: &dyn Display) -> NnError {
    NnError::Description { field, got: got.to_string(), must: must.to_string() }
}

impl Network {
    /// A network by its name, for images of these channels and size.
    ///
    /// # Errors
    /// For an unknown name, no classes, or images that do not fit.
    pub fn named(name: &str, channels: usize, size: [usize; 2], classes: usize) -> Result<Self, NnError> {
        let stage = |blocks, width, stride| Stage { blocks, width, stride };
        let small = |blocks: usize| {
            let stem = Stem { width: 16, kernel: 3, stride: 1, pool: false };
            let stages = vec![stage(blocks, 16, 1), stage(blocks, 32, 2), stage(blocks, 64, 2)];
            (stem, Block::Basic, Shortcut::Padded, stages)
        };
        let large = |block: Block, blocks: [usize; 4]| {
            let stem = Stem { width: 64, kernel: 7, stride: 2, pool: true };
            let stages = (0..4).map(|i| stage(blocks[i], 64 << i, if i == 0 { 1 } else { 2 })).collect();
            (stem, block, Shortcut::Projection, stages)
        };
        let (stem, block, shortcut, stages) = match name {
            "resnet8" => small(1),
            "resnet14" => small(2),
            "resnet20" => small(3),
            "resnet32" => small(5),
            "resnet44" => small(7),
            "resnet56" => small(9),
            "resnet18" => large(Block::Basic, [2, 2, 2, 2]),
            "resnet50" => large(Block::Bottleneck, [3, 4, 6, 3]),
            _ => return Err(NnError::Unknown { name: name.to_owned() }),
        };
        let head = Head::Linear;
        let network = Self { name: name.to_owned(), channels, size, classes, stem, block, shortcut, stages, head };
        network.check()?;
        Ok(network)
    }

    /// With another head.
    #[must_use]
    pub fn with_head(self, head: Head) -> Self {
        Self { head, ..self }
    }

    /// Whether the description makes sense.
    ///
    /// # Errors
    /// Names what does not.
    pub fn check(&self) -> Result<(), NnError> {
        const MOST: usize = 1 << 16;
        let range = |field, got: usize, least: usize, most: usize| match got {
            got if (least..=most).contains(&got) => Ok(()),
            got => Err(out_of_range(field, &got, &format!("{least} to {most}"))),
        };
        range("channels", self.channels, 1, 1024)?;
        range("classes", self.classes, 1, 1 << 24)?;
        range("height", self.size[0], 1, MOST)?;
        range("width", self.size[1], 1, MOST)?;
        range("stem.width", self.stem.width, 1, MOST)?;
        range("stem.kernel", self.stem.kernel, 1, 31)?;
        if self.stem.kernel.is_multiple_of(2) {
            return Err(out_of_range("stem.kernel", &self.stem.kernel, &"odd"));
        }
        range("stem.stride", self.stem.stride, 1, 8)?;
        range("stages", self.stages.len(), 1, 64)?;
        let mut before = self.stem.width;
        for stage in &self.stages {
            range("stage.blocks", stage.blocks, 1, 1024)?;
            range("stage.width", stage.width, 1, MOST)?;
            range("stage.stride", stage.stride, 1, 8)?;
            let after = stage.width * self.expansion();
            if self.shortcut == Shortcut::Padded && (after < before || !(after - before).is_multiple_of(2)) {
                let must = format!("{before} plus an even number: its shortcut adds zeros on both sides");
                return Err(out_of_range("stage.width", &stage.width, &must));
            }
            before = after;
        }
        if let Head::Cosine { scale } = self.head
            && !(scale.is_finite() && scale > 0.0)
        {
            return Err(out_of_range("head.scale", &scale, &"finite and more than 0"));
        }
        Ok(())
    }

    fn expansion(&self) -> usize {
        match self.block {
            Block::Basic => 1,
            Block::Bottleneck => 4,
        }
    }

    /// Number of features that the head sees.
    #[must_use]
    pub fn features(&self) -> usize {
        self.stages.last().map_or(self.stem.width, |stage| stage.width * self.expansion())
    }

    /// All layers, and how they form blocks; the first layer is the stem.
    #[must_use]
    pub fn layers(&self) -> (Vec<Layer>, Vec<Joint>) {
        let Stem { width, kernel, stride, pool } = self.stem;
        let stem = Layer {
            convolution: "conv1".to_owned(),
            norm: "bn1".to_owned(),
            inputs: self.channels,
            outputs: width,
            kernel,
            stride,
            pad: kernel / 2,
            size: self.size,
        };
        let mut size = stem.out();
        if pool {
            size = pooled(size);
        }
        let (mut layers, mut joints) = (vec![stem], Vec::new());
        let mut inputs = width;
        for (s, stage) in self.stages.iter().enumerate() {
            let outputs = stage.width * self.expansion();
            for b in 0..stage.blocks {
                let stride = if b == 0 { stage.stride } else { 1 };
                let prefix = format!("layer{}.{b}", s + 1);
                let plan: &[(usize, usize, usize)] = match self.block {
                    Block::Basic => &[(3, stage.width, stride), (3, stage.width, 1)],
                    Block::Bottleneck => &[(1, stage.width, 1), (3, stage.width, stride), (1, outputs, 1)],
                };
                let (first, mut from, mut at) = (layers.len(), inputs, size);
                for (i, (kernel, width, stride)) in plan.iter().enumerate() {
                    let layer = Layer {
                        convolution: format!("{prefix}.conv{}", i + 1),
                        norm: format!("{prefix}.bn{}", i + 1),
                        inputs: from,
                        outputs: *width,
                        kernel: *kernel,
                        stride: *stride,
                        pad: kernel / 2,
                        size: at,
                    };
                    (from, at) = (*width, layer.out());
                    layers.push(layer);
                }
                let mut joint = Joint { layers: (first..layers.len()).collect(), projection: None };
                if self.shortcut == Shortcut::Projection && (stride != 1 || inputs != outputs) {
                    joint.projection = Some(layers.len());
                    layers.push(Layer {
                        convolution: format!("{prefix}.downsample.0"),
                        norm: format!("{prefix}.downsample.1"),
                        inputs,
                        outputs,
                        kernel: 1,
                        stride,
                        pad: 0,
                        size,
                    });
                }
                joints.push(joint);
                (inputs, size) = (outputs, at);
            }
        }
        (layers, joints)
    }

    /// Name of the head's tensors, without `.weight`.
    #[must_use]
    pub fn head_name(&self) -> &'static str {
        match self.shortcut {
            Shortcut::Padded => "linear",
            Shortcut::Projection => "fc",
        }
    }

    /// The trained tensors: weights, then each batch norm's weight and bias.
    #[must_use]
    pub fn parameters(&self) -> Vec<Tensor> {
        let tensor = |name: String, shape: &[usize]| Tensor { name, shape: shape.to_vec() };
        let mut all = Vec::new();
        for layer in self.layers().0 {
            let Layer { convolution, norm, inputs, outputs, kernel, .. } = layer;
            all.push(tensor(format!("{convolution}.weight"), &[outputs, inputs, kernel, kernel]));
            all.push(tensor(format!("{norm}.weight"), &[outputs]));
            all.push(tensor(format!("{norm}.bias"), &[outputs]));
        }
        all.push(tensor(format!("{}.weight", self.head_name()), &[self.classes, self.features()]));
        if self.head == Head::Linear {
            all.push(tensor(format!("{}.bias", self.head_name()), &[self.classes]));
        }
        all
    }

    /// The batch norms' running means and variances.
    #[must_use]
    pub fn statistics(&self) -> Vec<Tensor> {
        let each = |layer: Layer| {
            ["running_mean", "running_var"]
                .map(|what| Tensor { name: format!("{}.{what}", layer.norm), shape: vec![layer.outputs] })
        };
        self.layers().0.into_iter().flat_map(each).collect()
    }

    /// Number of trained values.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters().iter().map(Tensor::len).sum()
    }

    /// Multiply-adds of one image's forward pass, of the convolutions and the head.
    #[must_use]
    pub fn multiply_adds(&self) -> u64 {
        let layer = |layer: &Layer| {
            let [height, width] = layer.out();
            (layer.inputs * layer.outputs * layer.kernel * layer.kernel * height * width) as u64
        };
        self.layers().0.iter().map(layer).sum::<u64>() + (self.features() * self.classes) as u64
    }

    /// Values to start from, for each of the [`parameters`](Self::parameters): He's normal (fan-in) for weights, 1 and 0 for
    /// batch norms, a uniform bias. A function of the seed.
    #[must_use]
    pub fn initial(&self, seed: u64) -> Vec<Vec<f32>> {
        let each = |(number, tensor): (usize, Tensor)| {
            let draws = Example { seed, epoch: 0, example: number as u64 }.draws(Stream::NetworkInit);
            let head = tensor.name.starts_with(self.head_name());
            match (tensor.shape.len(), tensor.name.ends_with(".weight")) {
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
        self.parameters().into_iter().enumerate().map(each).collect()
    }
}

impl Layer {
    /// Height and width of the output.
    #[must_use]
    pub fn out(&self) -> [usize; 2] {
        self.size.map(|side| (side + 2 * self.pad - self.kernel) / self.stride + 1)
    }
}

/// A side after the stem's max pool.
pub(crate) fn pooled(size: [usize; 2]) -> [usize; 2] {
    size.map(|side| (side - 1) / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_the_published_ones() {
        let count =
            |name, size, classes| Network::named(name, 3, [size, size], classes).expect("known").parameter_count();
        assert_eq!([10, 100, 200].map(|classes| count("resnet32", 32, classes)), [464_154, 470_004, 476_504]);
        // He et al., table 6, and torchvision
        let small = ["resnet20", "resnet44", "resnet56"].map(|name| count(name, 32, 10));
        assert_eq!(small, [269_722, 658_586, 853_018]);
        assert_eq!([count("resnet18", 224, 1000), count("resnet50", 224, 1000)], [11_689_512, 25_557_032]);
    }

    #[test]
    fn multiply_adds_are_the_published_ones() {
        let network = Network::named("resnet32", 3, [32, 32], 10).expect("known");
        assert!((network.multiply_adds() as f64 / 68.9e6 - 1.0).abs() < 0.01, "{}", network.multiply_adds());
        let network = Network::named("resnet50", 3, [224, 224], 1000).expect("known");
        assert!((network.multiply_adds() as f64 / 4.09e9 - 1.0).abs() < 0.01, "{}", network.multiply_adds());
    }

    #[test]
    fn names_and_shapes_are_those_of_pytorch() {
        let network = Network::named("resnet50", 3, [224, 224], 7).expect("known");
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
    fn what_makes_no_sense_is_refused() {
        let refused =
            |name, channels, size, classes| Network::named(name, channels, size, classes).expect_err("refused");
        assert!(refused("resnet31", 3, [32, 32], 10).to_string().starts_with("model `resnet31`: known are resnet8,"));
        assert_eq!(refused("resnet8", 0, [32, 32], 10).to_string(), "channels = 0: must be 1 to 1024");
        assert_eq!(refused("resnet8", 3, [0, 32], 10).to_string(), "height = 0: must be 1 to 65536");
        assert_eq!(refused("resnet8", 3, [32, 32], 0).to_string(), "classes = 0: must be 1 to 16777216");
        let network = Network::named("resnet8", 3, [32, 32], 10).expect("known");
        let cosine = network.clone().with_head(Head::Cosine { scale: f32::NAN });
        assert_eq!(
            cosine.check().expect_err("refused").to_string(),
            "head.scale = NaN: must be finite and more than 0"
        );
        let mut narrow = network;
        narrow.stages[1].width = 15;
        assert!(narrow.check().expect_err("refused").to_string().starts_with("stage.width = 15: must be 16 plus"));
    }

    #[test]
    fn weights_start_with_the_right_spread() {
        let network = Network::named("resnet20", 3, [32, 32], 10).expect("known");
        let initial = network.initial(1);
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
        assert_ne!(initial[0], network.initial(2)[0]);
        assert_eq!(initial, network.initial(1));
    }
}
