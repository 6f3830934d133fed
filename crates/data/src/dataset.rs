//! What flows from readers to everybody else: images, labels, names.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{DataError, Unreadable};
use crate::subset::long_tail;

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

/// Where a part's images are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// Decoded, of one size, in memory.
    Memory(Pixels),
    /// In files, decoded when they are needed.
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

    /// Whether there are none.
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

/// Images with labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The images.
    pub images: Images,
    /// The class of each.
    pub labels: Vec<u32>,
}

/// Something odd that a person should know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Which image or folder: its path, or the part and position.
    pub path: String,
    /// What is odd about it.
    pub what: String,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// What it is called in results.
    pub name: String,
    /// The classes' names, by label.
    pub classes: Vec<String>,
    /// What is trained on, in its original order.
    pub train: Split,
    /// What choices are made on, where the set has such a part.
    pub val: Option<Split>,
    /// What is tested on.
    pub test: Split,
    /// What was odd while reading; nothing is skipped without being named here.
    pub problems: Vec<Problem>,
}

impl Split {
    /// The images at these positions, in that order.
    ///
    /// # Panics
    /// If there is no such image.
    #[must_use]
    pub fn subset(&self, positions: &[u32]) -> Self {
        let images = match &self.images {
            Images::Memory(pixels) => {
                let bytes: Vec<u8> = positions.iter().flat_map(|at| pixels.image(*at as usize)).copied().collect();
                Images::Memory(Pixels { bytes: bytes.into(), ..*pixels })
            }
            Images::Files(files) => Images::Files(positions.iter().map(|at| files[*at as usize].clone()).collect()),
        };
        Self { images, labels: positions.iter().map(|at| self.labels[*at as usize]).collect() }
    }

    /// Everything but these files, and how many of each class are left out.
    #[must_use]
    pub fn without(&self, files: &[Unreadable], classes: usize) -> (Self, Vec<u64>) {
        let gone: HashSet<u32> = files.iter().map(|file| file.at).collect();
        let mut counts = vec![0; classes];
        for at in &gone {
            counts[self.labels[*at as usize] as usize] += 1;
        }
        let rest: Vec<u32> = (0..self.labels.len() as u32).filter(|at| !gone.contains(at)).collect();
        (self.subset(&rest), counts)
    }
}

impl Dataset {
    /// Training images per class.
    ///
    /// # Errors
    /// For a label out of range.
    pub fn counts(&self) -> Result<Vec<u64>, DataError> {
        long_tail::counts(&self.train.labels, self.classes.len())
    }
}
