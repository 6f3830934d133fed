//! The convolutions of a network, and the residual blocks that they form.

use super::{BlockKind, Network, Shortcut, Stem};

/// A convolution with the batch norm that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Name of the convolution in a state dict, without `.weight`.
    pub convolution: String,
    /// Name of the batch norm in a state dict.
    pub norm: String,
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Stride, in both directions.
    pub stride: usize,
    /// Zero padding on every side.
    pub pad: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
}

impl Layer {
    /// Height and width of the output.
    #[must_use]
    pub fn out(&self) -> [usize; 2] {
        self.size.map(|side| (side + 2 * self.pad - self.kernel) / self.stride + 1)
    }
}

/// A residual block: its layers, as indices into the network's list of layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidualBlock {
    /// The layers between the block's input and the sum at its end, in order.
    pub layers: Vec<usize>,
    /// The layer on the shortcut, if it is a [projection](Shortcut::Projection).
    pub projection: Option<usize>,
}

impl ResidualBlock {
    /// The block's first layer.
    #[must_use]
    pub fn first(&self) -> usize {
        self.layers[0]
    }

    /// The block's last layer, whose output meets the shortcut.
    #[must_use]
    pub fn last(&self) -> usize {
        self.layers[self.layers.len() - 1]
    }
}

/// Height and width after the stem's max pool.
pub(crate) fn pooled(size: [usize; 2]) -> [usize; 2] {
    size.map(|side| (side - 1) / 2 + 1)
}

/// Lists layers and blocks from the image to the features.
struct Builder<'a> {
    network: &'a Network,
    layers: Vec<Layer>,
    blocks: Vec<ResidualBlock>,
    /// Channels, and height and width, of what the next layer reads.
    channels: usize,
    size: [usize; 2],
}

impl Builder<'_> {
    fn stem(&mut self) {
        let Stem { width, kernel, stride, pool } = self.network.stem;
        self.push("conv1".to_owned(), "bn1".to_owned(), [kernel, width, stride]);
        if pool {
            self.size = pooled(self.size);
        }
    }

    fn block(&mut self, prefix: &str, width: usize, stride: usize) {
        let (inputs, size) = (self.channels, self.size);
        let outputs = width * self.network.expansion();
        let convolutions: &[[usize; 3]] = match self.network.block {
            BlockKind::Basic => &[[3, width, stride], [3, width, 1]],
            BlockKind::Bottleneck => &[[1, width, 1], [3, width, stride], [1, outputs, 1]],
        };
        let first = self.layers.len();
        for (i, convolution) in convolutions.iter().enumerate() {
            self.push(format!("{prefix}.conv{}", i + 1), format!("{prefix}.bn{}", i + 1), *convolution);
        }
        let mut block = ResidualBlock { layers: (first..self.layers.len()).collect(), projection: None };
        if self.network.shortcut == Shortcut::Projection && (stride != 1 || inputs != outputs) {
            block.projection = Some(self.layers.len());
            (self.channels, self.size) = (inputs, size);
            self.push(format!("{prefix}.downsample.0"), format!("{prefix}.downsample.1"), [1, outputs, stride]);
        }
        self.blocks.push(block);
    }

    /// Adds a layer that reads the output of the one before it.
    fn push(&mut self, convolution: String, norm: String, [kernel, outputs, stride]: [usize; 3]) {
        let (inputs, size, pad) = (self.channels, self.size, kernel / 2);
        let layer = Layer { convolution, norm, inputs, outputs, kernel, stride, pad, size };
        (self.channels, self.size) = (outputs, layer.out());
        self.layers.push(layer);
    }
}

impl Network {
    /// All layers in the order of the state dict, and the blocks that they form. The first layer is the stem's; a head on
    /// features has none.
    #[must_use]
    pub fn layers(&self) -> (Vec<Layer>, Vec<ResidualBlock>) {
        let (layers, blocks) = (Vec::new(), Vec::new());
        if self.is_on_features() {
            return (layers, blocks);
        }
        let mut builder = Builder { network: self, layers, blocks, channels: self.channels, size: self.size };
        builder.stem();
        for (s, stage) in self.stages.iter().enumerate() {
            for b in 0..stage.blocks {
                let stride = if b == 0 { stage.stride } else { 1 };
                builder.block(&format!("layer{}.{b}", s + 1), stage.width, stride);
            }
        }
        (builder.layers, builder.blocks)
    }

    /// Multiply-adds of the convolutions, the hidden layer and the head in one image's forward pass.
    #[must_use]
    pub fn multiply_adds(&self) -> u64 {
        let layer = |layer: &Layer| {
            let [height, width] = layer.out();
            (layer.inputs * layer.outputs * layer.kernel * layer.kernel * height * width) as u64
        };
        let hidden = self.hidden().map_or(0, |hidden| self.channels * hidden);
        self.layers().0.iter().map(layer).sum::<u64>() + (hidden + self.features() * self.classes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Architecture;

    #[test]
    fn multiply_adds_are_the_published_ones() {
        let network = Network::new(Architecture::ResNet32, 3, [32, 32], 10).expect("valid");
        assert!((network.multiply_adds() as f64 / 68.9e6 - 1.0).abs() < 0.01, "{}", network.multiply_adds());
        let network = Network::new(Architecture::ResNet50, 3, [224, 224], 1000).expect("valid");
        assert!((network.multiply_adds() as f64 / 4.09e9 - 1.0).abs() < 0.01, "{}", network.multiply_adds());
    }
}
