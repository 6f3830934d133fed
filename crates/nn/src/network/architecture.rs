//! The architectures that have a name.

use std::fmt;
use std::str::FromStr;

use equipoise_support::nearest;
use serde::{Deserialize, Serialize};

use super::{BlockKind, Shortcut, Stage, Stem};
use crate::error::NnError;

/// A published residual network, by the name under which it is usually known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Architecture {
    /// ResNet-8 for small images.
    ResNet8,
    /// ResNet-14 for small images.
    ResNet14,
    /// ResNet-20 for small images.
    ResNet20,
    /// ResNet-32 for small images.
    ResNet32,
    /// ResNet-32 for small images with twice the channels: 32, 64 and 128.
    ResNet32x2,
    /// ResNet-32 for small images with four times the channels: 64, 128 and 256. Many papers on long-tailed data mean
    /// this network when they write ResNet-32.
    ResNet32x4,
    /// ResNet-44 for small images.
    ResNet44,
    /// ResNet-56 for small images.
    ResNet56,
    /// ResNet-18 for large images, as in torchvision.
    ResNet18,
    /// ResNet-34 for large images, as in torchvision.
    ResNet34,
    /// ResNet-50 for large images, as in torchvision.
    ResNet50,
}

/// The parts of a [`Network`](super::Network) that its architecture decides.
pub(super) struct Layout {
    pub(super) stem: Stem,
    pub(super) block: BlockKind,
    pub(super) shortcut: Shortcut,
    pub(super) stages: Vec<Stage>,
}

impl Architecture {
    /// Every architecture, those for small images first.
    pub const ALL: [Self; 11] = [
        Self::ResNet8,
        Self::ResNet14,
        Self::ResNet20,
        Self::ResNet32,
        Self::ResNet32x2,
        Self::ResNet32x4,
        Self::ResNet44,
        Self::ResNet56,
        Self::ResNet18,
        Self::ResNet34,
        Self::ResNet50,
    ];

    /// The usual name, in lower case: `resnet32`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResNet8 => "resnet8",
            Self::ResNet14 => "resnet14",
            Self::ResNet20 => "resnet20",
            Self::ResNet32 => "resnet32",
            Self::ResNet32x2 => "resnet32x2",
            Self::ResNet32x4 => "resnet32x4",
            Self::ResNet44 => "resnet44",
            Self::ResNet56 => "resnet56",
            Self::ResNet18 => "resnet18",
            Self::ResNet34 => "resnet34",
            Self::ResNet50 => "resnet50",
        }
    }

    /// Whether the architecture is made for images of about 32 x 32 pixels, as in CIFAR, rather than for photographs.
    #[must_use]
    pub fn is_for_small_images(self) -> bool {
        !matches!(self, Self::ResNet18 | Self::ResNet34 | Self::ResNet50)
    }

    /// The height and width of the images that the architecture was published for: 32 or 224.
    #[must_use]
    pub fn default_image_size(self) -> usize {
        if self.is_for_small_images() { 32 } else { 224 }
    }

    pub(super) fn layout(self) -> Layout {
        match self {
            Self::ResNet8 => small(1, 1),
            Self::ResNet14 => small(2, 1),
            Self::ResNet20 => small(3, 1),
            Self::ResNet32 => small(5, 1),
            Self::ResNet32x2 => small(5, 2),
            Self::ResNet32x4 => small(5, 4),
            Self::ResNet44 => small(7, 1),
            Self::ResNet56 => small(9, 1),
            Self::ResNet18 => large(BlockKind::Basic, [2, 2, 2, 2]),
            Self::ResNet34 => large(BlockKind::Basic, [3, 4, 6, 3]),
            Self::ResNet50 => large(BlockKind::Bottleneck, [3, 4, 6, 3]),
        }
    }
}

/// Three stages of 16, 32 and 64 channels times `widen`, with `blocks` blocks each.
fn small(blocks: usize, widen: usize) -> Layout {
    let stage = |width, stride| Stage { blocks, width: width * widen, stride };
    Layout {
        stem: Stem { width: 16 * widen, kernel: 3, stride: 1, pool: false },
        block: BlockKind::Basic,
        shortcut: Shortcut::Padded,
        stages: vec![stage(16, 1), stage(32, 2), stage(64, 2)],
    }
}

/// Four stages of 64 to 512 channels.
fn large(block: BlockKind, blocks: [usize; 4]) -> Layout {
    let stage = |i: usize| Stage { blocks: blocks[i], width: 64 << i, stride: if i == 0 { 1 } else { 2 } };
    Layout {
        stem: Stem { width: 64, kernel: 7, stride: 2, pool: true },
        block,
        shortcut: Shortcut::Projection,
        stages: (0..4).map(stage).collect(),
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Architecture> for &'static str {
    fn from(architecture: Architecture) -> Self {
        architecture.name()
    }
}

impl TryFrom<String> for Architecture {
    type Error = NnError;

    fn try_from(name: String) -> Result<Self, NnError> {
        name.parse()
    }
}

impl FromStr for Architecture {
    type Err = NnError;

    fn from_str(name: &str) -> Result<Self, NnError> {
        let found = Self::ALL.into_iter().find(|architecture| architecture.name() == name);
        found.ok_or_else(|| {
            let nearest = nearest(name, Self::ALL.map(Self::name));
            NnError::UnknownArchitecture { name: name.to_owned(), nearest }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_printed_and_serialized_alike() {
        for architecture in Architecture::ALL {
            let name = architecture.to_string();
            assert_eq!(name.parse(), Ok(architecture));
            let json = serde_json::to_string(&architecture).expect("a name");
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Architecture>(&json).expect("a name"), architecture);
        }
        let error = |name: &str| name.parse::<Architecture>().expect_err("unknown").to_string();
        let known = "resnet8, resnet14, resnet20, resnet32, resnet32x2, resnet32x4, resnet44, resnet56, resnet18, resnet34, resnet50";
        assert_eq!(
            error("resnet-32"),
            format!("unknown model 'resnet-32'; did you mean 'resnet32'? Known models: {known}")
        );
        assert_eq!(error("vit"), format!("unknown model 'vit'. Known models: {known}"));
    }

    #[test]
    fn large_images_are_those_of_torchvision() {
        let large = Architecture::ALL.into_iter().filter(|architecture| !architecture.is_for_small_images());
        assert_eq!(large.collect::<Vec<_>>(), [Architecture::ResNet18, Architecture::ResNet34, Architecture::ResNet50]);
        assert_eq!([Architecture::ResNet32, Architecture::ResNet50].map(Architecture::default_image_size), [32, 224]);
    }
}
