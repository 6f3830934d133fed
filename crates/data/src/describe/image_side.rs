//! How large the images of a dataset usually are.

use crate::dataset::{Images, Split};
use crate::read::decode::dimensions;

/// Files whose headers are read.
const SAMPLE: usize = 200;

/// The usual shorter side of a split's images in pixels: the median over a sample of files that are evenly spaced in the
/// split; `None` if no image can be read.
#[must_use]
pub fn usual_image_side(split: &Split) -> Option<u32> {
    match &split.images {
        Images::Memory(pixels) => Some(pixels.height.min(pixels.width) as u32).filter(|_| !pixels.is_empty()),
        Images::Files(files) => {
            let sample = files.iter().step_by(files.len().div_ceil(SAMPLE).max(1));
            let sides = sample.filter_map(|file| dimensions(file)).map(|(width, height)| width.min(height));
            median(sides.collect())
        }
        Images::Features(_) => None,
    }
}

/// The lower median.
fn median(mut values: Vec<u32>) -> Option<u32> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![7]), Some(7));
        assert_eq!(median(vec![9, 1]), Some(1));
        assert_eq!(median(vec![500, 32, 33, 31, 32]), Some(32));
    }
}
