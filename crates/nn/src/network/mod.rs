//! Residual networks as data. Layers, tensors and initial values all follow from a [`Network`]'s description.
//!
//! *Deep residual learning for image recognition*, He et al., CVPR 2016. Networks for small images have three stages
//! and shortcuts without parameters (option A of the paper). Networks for large images are torchvision's, with the
//! stride on the 3 x 3 convolution. Parameters have the names and shapes that PyTorch programs give them.

mod architecture;
mod layers;
mod tensors;

use std::fmt::Display;

pub use architecture::Architecture;
pub(crate) use layers::pooled;
pub use layers::{Layer, ResidualBlock};
use serde::{Deserialize, Serialize};
pub use tensors::Tensor;

use crate::error::NnError;

/// Description of a residual network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Name of the network, usually that of its [`Architecture`].
    pub name: String,
    /// Channels of an image.
    pub channels: usize,
    /// Height and width of an image.
    pub size: [usize; 2],
    /// Number of classes.
    pub classes: usize,
    /// First convolution.
    pub stem: Stem,
    /// Kind of the residual blocks.
    pub block: BlockKind,
    /// Shortcut of blocks whose input and output differ in shape.
    pub shortcut: Shortcut,
    /// Stages, from the stem to the head.
    pub stages: Vec<Stage>,
    /// Last layer, from features to logits.
    pub head: Head,
    /// What comes before the head of a network on features; `None` for a network on images. Such a network has one row of
    /// features per image, as channels of a single pixel, and neither stem nor stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_input: Option<FeatureInput>,
}

/// What comes before the head of a network on features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureInput {
    /// Width of a hidden layer with ReLU; `None` if the head reads the features themselves.
    pub hidden: Option<usize>,
}

/// The first convolution, with its batch norm and ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stem {
    /// Output channels.
    pub width: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Stride of the convolution.
    pub stride: usize,
    /// Whether a 3 x 3 max pool with stride 2 follows.
    pub pool: bool,
}

/// Consecutive blocks of the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Number of blocks.
    pub blocks: usize,
    /// Channels of the blocks' 3 x 3 convolutions.
    pub width: usize,
    /// Stride of the first block; the others have stride 1.
    pub stride: usize,
}

/// The convolutions inside a residual block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockKind {
    /// Two 3 x 3 convolutions.
    Basic,
    /// A 1 x 1, a 3 x 3, and a 1 x 1 convolution with four times the width.
    Bottleneck,
}

/// The shortcut of a block whose input and output differ in shape. All other shortcuts are the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortcut {
    /// Strided pixels of the input, with zero channels added on both sides.
    Padded,
    /// A 1 x 1 convolution with a batch norm.
    Projection,
}

/// The last layer, from features to logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// W f + b.
    Linear,
    /// s (W f + b) with a factor s for every class, the only parameters of the head that are trained: learnable weight
    /// scaling, *Decoupling representation and classifier for long-tailed recognition*, Kang et al., ICLR 2020. As in the
    /// paper's code, the bias is scaled too.
    Lws,
    /// `scale` times the cosine of the angle between the features and a class's weights.
    Cosine {
        /// Factor of the cosines, or its initial value if it is trained.
        scale: f32,
        /// Whether the factor is trained with the weights.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        learned: bool,
    },
}

fn out_of_range(field: &'static str, got: &dyn Display, must: &dyn Display) -> NnError {
    NnError::Description { field, got: got.to_string(), must: must.to_string() }
}

fn check_range(field: &'static str, got: usize, least: usize, most: usize) -> Result<(), NnError> {
    if (least..=most).contains(&got) { Ok(()) } else { Err(out_of_range(field, &got, &format!("{least} to {most}"))) }
}

impl Network {
    /// A network with a linear head, for images with these channels, height and width.
    ///
    /// # Errors
    /// [`NnError::Description`] for numbers of channels, pixels or classes that are out of range.
    pub fn new(architecture: Architecture, channels: usize, size: [usize; 2], classes: usize) -> Result<Self, NnError> {
        let architecture::Layout { stem, block, shortcut, stages } = architecture.layout();
        let (name, head) = (architecture.name().to_owned(), Head::Linear);
        let feature_input = architecture.is_for_features().then(FeatureInput::default);
        let network = Self { name, channels, size, classes, stem, block, shortcut, stages, head, feature_input };
        network.check()?;
        Ok(network)
    }

    /// The same head on features with another hidden layer.
    #[must_use]
    pub fn with_hidden(self, hidden: Option<usize>) -> Self {
        Self { feature_input: self.feature_input.map(|_| FeatureInput { hidden }), ..self }
    }

    /// Whether this is a head on features rather than a network on images.
    #[must_use]
    pub fn is_on_features(&self) -> bool {
        self.feature_input.is_some()
    }

    /// Width of the hidden layer of a head on features.
    pub(crate) fn hidden(&self) -> Option<usize> {
        self.feature_input.and_then(|input| input.hidden)
    }

    /// The same network with another head.
    #[must_use]
    pub fn with_head(self, head: Head) -> Self {
        Self { head, ..self }
    }

    /// Checks that every number of the description is in range.
    ///
    /// # Errors
    /// [`NnError::Description`] names the field that is not.
    pub fn check(&self) -> Result<(), NnError> {
        const MOST: usize = 1 << 16;
        check_range("classes", self.classes, 1, 1 << 24)?;
        if let Some(FeatureInput { hidden }) = self.feature_input {
            check_range("features", self.channels, 1, MOST)?;
            check_range("hidden", hidden.unwrap_or(1), 1, MOST)?;
            check_range("height", self.size[0], 1, 1)?;
            check_range("width", self.size[1], 1, 1)?;
            return self.check_head();
        }
        check_range("channels", self.channels, 1, 1024)?;
        check_range("height", self.size[0], 1, MOST)?;
        check_range("width", self.size[1], 1, MOST)?;
        check_range("stem.width", self.stem.width, 1, MOST)?;
        check_range("stem.kernel", self.stem.kernel, 1, 31)?;
        if self.stem.kernel.is_multiple_of(2) {
            return Err(out_of_range("stem.kernel", &self.stem.kernel, &"odd"));
        }
        check_range("stem.stride", self.stem.stride, 1, 8)?;
        check_range("stages", self.stages.len(), 1, 64)?;
        let mut before = self.stem.width;
        for stage in &self.stages {
            check_range("stage.blocks", stage.blocks, 1, 1024)?;
            check_range("stage.width", stage.width, 1, MOST)?;
            check_range("stage.stride", stage.stride, 1, 8)?;
            let after = stage.width * self.expansion();
            if self.shortcut == Shortcut::Padded && (after < before || !(after - before).is_multiple_of(2)) {
                let must = format!("{before} plus an even number, because the shortcut adds zeros on both sides");
                return Err(out_of_range("stage.width", &stage.width, &must));
            }
            before = after;
        }
        self.check_head()
    }

    fn check_head(&self) -> Result<(), NnError> {
        match self.head {
            Head::Cosine { scale, .. } if !(scale.is_finite() && scale > 0.0) => {
                Err(out_of_range("head.scale", &scale, &"finite and more than 0"))
            }
            _ => Ok(()),
        }
    }

    /// Output channels of a block over its width.
    fn expansion(&self) -> usize {
        match self.block {
            BlockKind::Basic => 1,
            BlockKind::Bottleneck => 4,
        }
    }

    /// Number of features, which is the number of the head's inputs.
    #[must_use]
    pub fn features(&self) -> usize {
        if let Some(FeatureInput { hidden }) = self.feature_input {
            return hidden.unwrap_or(self.channels);
        }
        self.stages.last().map_or(self.stem.width, |stage| stage.width * self.expansion())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_out_of_range_are_refused() {
        let new = |channels, size, classes| Network::new(Architecture::ResNet8, channels, size, classes);
        let refused = |channels, size, classes| new(channels, size, classes).expect_err("refused").to_string();
        assert_eq!(refused(0, [32, 32], 10), "channels = 0: must be 1 to 1024");
        assert_eq!(refused(3, [0, 32], 10), "height = 0: must be 1 to 65536");
        assert_eq!(refused(3, [32, 32], 0), "classes = 0: must be 1 to 16777216");
        let network = new(3, [32, 32], 10).expect("valid");
        let cosine = network.clone().with_head(Head::Cosine { scale: f32::NAN, learned: false });
        assert_eq!(
            cosine.check().expect_err("refused").to_string(),
            "head.scale = NaN: must be finite and more than 0"
        );
        let mut narrow = network;
        narrow.stages[1].width = 15;
        assert!(narrow.check().expect_err("refused").to_string().starts_with("stage.width = 15: must be 16 plus"));
    }
}
