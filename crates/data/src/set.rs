//! What flows from readers to everybody else: images, labels, names.

use std::borrow::Cow;

use crate::error::DataError;
use crate::longtail;

/// Decoded images of one size, 8 bits, channel after channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Image after image.
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

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One image: its channels, each row after row.
    ///
    /// # Panics
    /// If there is no such image.
    #[must_use]
    pub fn image(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.stride()..][..self.stride()]
    }
}

/// Images with labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The images.
    pub pixels: Pixels,
    /// The class of each.
    pub labels: Vec<u32>,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// What it is called in results.
    pub name: String,
    /// The classes' names, by label.
    pub classes: Vec<String>,
    /// What is trained on, in its original order.
    pub train: Part,
    /// What is tested on.
    pub test: Part,
}

impl Part {
    /// The images at these positions, in that order.
    ///
    /// # Panics
    /// If there is no such image.
    #[must_use]
    pub fn subset(&self, positions: &[u32]) -> Self {
        let image = |at: &u32| self.pixels.image(*at as usize);
        let bytes: Vec<u8> = positions.iter().flat_map(image).copied().collect();
        let labels = positions.iter().map(|at| self.labels[*at as usize]).collect();
        Self { pixels: Pixels { bytes: bytes.into(), ..self.pixels }, labels }
    }
}

impl DataSet {
    /// Training images per class.
    ///
    /// # Errors
    /// For a label out of range.
    pub fn counts(&self) -> Result<Vec<u64>, DataError> {
        longtail::counts(&self.train.labels, self.classes.len())
    }
}
