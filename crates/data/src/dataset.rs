//! What the readers produce and everything else consumes: images, labels, class names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::DataError;
use crate::features::Features;
use crate::subset::grouping::FileGroups;

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
    /// Rows of features in place of images.
    Features(Features),
}

impl Images {
    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(pixels) => pixels.len(),
            Self::Files(files) => files.len(),
            Self::Features(features) => features.len(),
        }
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file of an image, if the images are files, or what a row of features is of.
    #[must_use]
    pub fn file(&self, index: usize) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::Files(files) => files.get(index).map(PathBuf::as_path),
            Self::Features(features) => features.name(index),
        }
    }

    /// The name of an image: its file, or what a row of features is of, or where it is; none for images in memory.
    ///
    /// # Panics
    /// If the index is out of range.
    #[must_use]
    pub fn name(&self, index: usize) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Files(files) => Some(files[index].display().to_string()),
            Self::Features(features) => Some(features.row_name(index)),
        }
    }

    /// The files of all images, or what all rows of features are of.
    pub(crate) fn paths(&self) -> Option<Cow<'_, [PathBuf]>> {
        match self {
            Self::Memory(_) => None,
            Self::Files(files) => Some(files.into()),
            Self::Features(features) => (0..features.len())
                .map(|row| features.name(row).map(Path::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(Cow::from),
        }
    }

    /// The features, if these are no images.
    #[must_use]
    pub fn features(&self) -> Option<&Features> {
        match self {
            Self::Features(features) => Some(features),
            Self::Memory(_) | Self::Files(_) => None,
        }
    }

    /// The pixels, if they are in memory.
    #[must_use]
    pub fn pixels(&self) -> Option<&Pixels> {
        match self {
            Self::Memory(pixels) => Some(pixels),
            Self::Files(_) | Self::Features(_) => None,
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

impl Problem {
    /// Whether a problem says which images are for testing, which is more than a file that is left out.
    #[must_use]
    pub fn is_about_splits(what: &str) -> bool {
        what.contains("for testing")
    }
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
    /// Images that belong together; empty if each stands alone.
    pub groups: FileGroups,
    /// What was odd while reading. Nothing is skipped without being named here.
    pub problems: Vec<Problem>,
}

impl Split {
    fn leave_out(&mut self, left_out: &HashSet<PathBuf>) {
        if let Images::Files(files) = &mut self.images {
            let kept: Vec<bool> = files.iter().map(|file| !left_out.contains(file)).collect();
            let mut keep = kept.iter();
            files.retain(|_| keep.next() == Some(&true));
            let mut keep = kept.iter();
            self.labels.retain(|_| keep.next() == Some(&true));
        }
    }

    /// All images of several splits, one split after the other; `None` if there is no split, or images in memory differ in
    /// shape.
    #[must_use]
    pub fn joined(splits: Vec<Self>) -> Option<Self> {
        let mut splits = splits.into_iter();
        let mut all = splits.next()?;
        for split in splits {
            match (&mut all.images, split.images) {
                (Images::Files(files), Images::Files(more)) => files.extend(more),
                (Images::Features(features), Images::Features(more)) => {
                    if !features.append(&more) {
                        return None;
                    }
                }
                (Images::Memory(pixels), Images::Memory(more))
                    if (pixels.channels, pixels.height, pixels.width) == (more.channels, more.height, more.width) =>
                {
                    pixels.bytes.to_mut().extend_from_slice(&more.bytes);
                }
                _ => return None,
            }
            all.labels.extend(split.labels);
        }
        Some(all)
    }

    /// The same images with the labels of other classes, which are told by their names. Numbers are the same with and without
    /// leading zeros.
    ///
    /// # Errors
    /// Returns the name of a class that has images here and is not one of the other classes.
    pub fn relabeled(mut self, classes: &[String], others: &[String]) -> Result<Self, String> {
        let number =
            |name: &String| name.parse::<u64>().ok().filter(|_| name.bytes().all(|byte| byte.is_ascii_digit()));
        let same_number = |name: &String| {
            let wanted = number(name)?;
            let mut found = others.iter().enumerate().filter(|(_, other)| number(other) == Some(wanted));
            found.next().filter(|_| found.next().is_none()).map(|(label, _)| label)
        };
        let position = |name: &String| others.iter().position(|other| other == name).or_else(|| same_number(name));
        let label = |name: &String| position(name).map(|label| label as u32);
        let labels: Vec<Option<u32>> = classes.iter().map(label).collect();
        for label in &mut self.labels {
            let class = *label as usize;
            *label = labels[class].ok_or_else(|| classes[class].clone())?;
        }
        Ok(self)
    }

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
            Images::Features(features) => Images::Features(features.subset(indices)),
        };
        Self { images, labels: indices.iter().map(|index| self.labels[*index as usize]).collect() }
    }
}

impl Dataset {
    /// Takes files out of all splits.
    pub fn leave_out(&mut self, files: &HashSet<PathBuf>) {
        if !files.is_empty() {
            for split in [Some(&mut self.train), self.val.as_mut(), Some(&mut self.test)].into_iter().flatten() {
                split.leave_out(files);
            }
        }
    }

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
