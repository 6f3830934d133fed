//! What the readers produce and everything else consumes: images, labels, class names.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::DataError;

/// Decoded 8-bit images of one size, planar: image after image, channel after channel, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// 1 (gray) or 3 (red, green, blue).
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// The images.
    pub bytes: Cow<'static, [u8]>,
}

impl Pixels {
    /// Bytes of one image.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.stride().max(1)
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One image, channel after channel.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn image(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.stride()..][..self.stride()]
    }
}

/// The images of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// Decoded, all of one size, in memory.
    Memory(Pixels),
    /// Image files, decoded when they are needed.
    Files(Vec<PathBuf>),
}

impl Images {
    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(pixels) => pixels.len(),
            Self::Files(files) => files.len(),
        }
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pixels, if they are in memory.
    #[must_use]
    pub fn pixels(&self) -> Option<&Pixels> {
        match self {
            Self::Memory(pixels) => Some(pixels),
            Self::Files(_) => None,
        }
    }
}

/// Images with labels: the training, validation or test split of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The images.
    pub images: Images,
    /// The class of each image.
    pub labels: Vec<u32>,
}

/// Something odd about a dataset that its user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The image or folder: its path, or its split and index.
    pub path: String,
    /// What is odd about it.
    pub what: String,
}

/// An image dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Name of the dataset in results.
    pub name: String,
    /// Class names, by label.
    pub classes: Vec<String>,
    /// Training split, in its original order.
    pub train: Split,
    /// Validation split, if the dataset has one.
    pub val: Option<Split>,
    /// Test split.
    pub test: Split,
    /// What was odd while reading. Nothing is skipped without being named here.
    pub problems: Vec<Problem>,
}

impl Split {
    /// The images at these indices, in this order.
    ///
    /// # Panics
    /// If an index is out of range.
    #[must_use]
    pub fn subset(&self, indices: &[u32]) -> Self {
        let images = match &self.images {
            Images::Memory(pixels) => {
                let bytes: Vec<u8> = indices.iter().flat_map(|index| pixels.image(*index as usize)).copied().collect();
                Images::Memory(Pixels { bytes: bytes.into(), ..*pixels })
            }
            Images::Files(files) => Images::Files(indices.iter().map(|index| files[*index as usize].clone()).collect()),
        };
        Self { images, labels: indices.iter().map(|index| self.labels[*index as usize]).collect() }
    }
}

impl Dataset {
    /// Training images per class.
    ///
    /// # Errors
    /// For a label out of range.
    pub fn counts(&self) -> Result<Vec<u64>, DataError> {
        class_counts(&self.train.labels, self.classes.len())
    }
}

/// Number of images per class.
///
/// # Errors
/// For a label out of range.
pub fn class_counts(labels: &[u32], classes: usize) -> Result<Vec<u64>, DataError> {
    let mut counts = vec![0; classes];
    for (index, &label) in labels.iter().enumerate() {
        let count = counts.get_mut(label as usize);
        *count.ok_or(DataError::LabelRange { index, label: label.into(), classes })? += 1;
    }
    Ok(counts)
}

/// The indices of every class, ascending.
///
/// # Errors
/// For a label out of range, or more than 2^32 images.
pub(crate) fn indices_by_class(labels: &[u32], classes: usize) -> Result<Vec<Vec<u32>>, DataError> {
    let mut indices = vec![Vec::new(); classes];
    for (index, &label) in labels.iter().enumerate() {
        let class = indices.get_mut(label as usize);
        let class = class.ok_or(DataError::LabelRange { index, label: label.into(), classes })?;
        class.push(u32::try_from(index).map_err(|_| DataError::TooManyImages { images: labels.len() })?);
    }
    Ok(indices)
}
