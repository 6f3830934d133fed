//! The networks that settings can name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// ResNet-8 for small images.
    Resnet8,
    /// ResNet-14 for small images.
    Resnet14,
    /// ResNet-20 for small images.
    Resnet20,
    /// ResNet-32 for small images.
    Resnet32,
    /// ResNet-44 for small images.
    Resnet44,
    /// ResNet-56 for small images.
    Resnet56,
    /// ResNet-18 for photographs.
    Resnet18,
    /// ResNet-50 for photographs.
    Resnet50,
}

impl Architecture {
    /// All networks.
    pub const ALL: [Self; 8] = [
        Self::Resnet8,
        Self::Resnet14,
        Self::Resnet20,
        Self::Resnet32,
        Self::Resnet44,
        Self::Resnet56,
        Self::Resnet18,
        Self::Resnet50,
    ];

    /// The name in settings and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resnet8 => "resnet8",
            Self::Resnet14 => "resnet14",
            Self::Resnet20 => "resnet20",
            Self::Resnet32 => "resnet32",
            Self::Resnet44 => "resnet44",
            Self::Resnet56 => "resnet56",
            Self::Resnet18 => "resnet18",
            Self::Resnet50 => "resnet50",
        }
    }

    /// Whether the network is made for small images.
    #[must_use]
    pub const fn is_small(self) -> bool {
        !matches!(self, Self::Resnet18 | Self::Resnet50)
    }

    /// Height and width of the images that the network usually sees.
    #[must_use]
    pub const fn default_image_size(self) -> u32 {
        if self.is_small() { 32 } else { 224 }
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
