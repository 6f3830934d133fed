//! Training images as the network sees them: `samples.json`.

use serde::{Deserialize, Serialize};

/// Some training images of every group of classes, as they are and augmented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainingSamples {
    /// The groups, in order.
    pub groups: Vec<SampleGroup>,
}

/// Training images of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleGroup {
    /// Name of the group.
    pub name: String,
    /// The images.
    pub images: Vec<SampleImage>,
}

/// A training image and its augmented versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleImage {
    /// Class of the image.
    pub class: u32,
    /// The image and its versions, one below the other: a JPEG file in base 64.
    pub strip: String,
    /// For every version that is mixed with another image, the other class and its share.
    pub mixed_with: Vec<String>,
}
