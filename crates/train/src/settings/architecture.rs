//! The networks that settings can name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// ResNet-8 for small images.
    ResNet8,
    /// ResNet-14 for small images.
    ResNet14,
    /// ResNet-20 for small images.
    ResNet20,
    /// ResNet-32 for small images.
    ResNet32,
    /// ResNet-44 for small images.
    ResNet44,
    /// ResNet-56 for small images.
    ResNet56,
    /// ResNet-18 for photographs.
    ResNet18,
    /// ResNet-50 for photographs.
    ResNet50,
}

impl Architecture {
    /// All networks.
    pub const ALL: [Self; 8] = [
        Self::ResNet8,
        Self::ResNet14,
        Self::ResNet20,
        Self::ResNet32,
        Self::ResNet44,
        Self::ResNet56,
        Self::ResNet18,
        Self::ResNet50,
    ];

    /// The name in settings and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResNet8 => "resnet8",
            Self::ResNet14 => "resnet14",
            Self::ResNet20 => "resnet20",
            Self::ResNet32 => "resnet32",
            Self::ResNet44 => "resnet44",
            Self::ResNet56 => "resnet56",
            Self::ResNet18 => "resnet18",
            Self::ResNet50 => "resnet50",
        }
    }

    /// Whether the network is made for small images.
    #[must_use]
    pub const fn is_for_small_images(self) -> bool {
        !matches!(self, Self::ResNet18 | Self::ResNet50)
    }

    /// Height and width of the images that the network usually sees.
    #[must_use]
    pub const fn default_image_size(self) -> usize {
        if self.is_for_small_images() { 32 } else { 224 }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|network| network.name() == name);
        found.ok_or_else(|| format!("unknown network '{name}'; known networks: {}", known()))
    }
}
