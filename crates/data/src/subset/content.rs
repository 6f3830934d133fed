//! Whether the pixels of a split are still the same: a hash of a sample of its images, cheap for a split of any size.

use crate::dataset::{Images, Split};
use crate::hash::Fnv1a;

/// Images of a split that are looked at, evenly spaced.
const SAMPLE: usize = 32;
/// Bytes of a file that are looked at.
const MAX_BYTES: usize = 1 << 20;

/// A hash of some images of a split: of their pixels in memory, or of their files' bytes. A file that cannot be read counts as empty.
#[must_use]
pub fn content_hash(split: &Split) -> u64 {
    let (images, mut hash) = (split.labels.len(), Fnv1a::new());
    let sample = SAMPLE.min(images);
    for number in 0..sample {
        let index = number * images / sample;
        match &split.images {
            Images::Memory(pixels) => hash.add(pixels.image(index)),
            Images::Files(files) => {
                let bytes = std::fs::read(&files[index]).unwrap_or_default();
                hash.add(&bytes[..bytes.len().min(MAX_BYTES)]);
                hash.add(&(bytes.len() as u64).to_le_bytes());
            }
            Images::Features(features) => {
                let mut row = vec![0.0; features.width()];
                features.copy_row(index, &mut row);
                row.iter().for_each(|x| hash.add(&x.to_le_bytes()));
            }
        }
    }
    hash.finish()
}
