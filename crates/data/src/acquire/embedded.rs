//! `fashion-mini`: a long-tailed cut of Fashion-MNIST, built into the program for a first run without a download.
//!
//! 1,485 training images (600 in the largest class, 6 in the smallest) and 1,000 test images of 28 x 28, made by
//! `tools/make_fashion_mini.py`. The license of the images is in `embedded/LICENSE`.

use std::path::Path;

use flate2::read::GzDecoder;

use crate::dataset::{Dataset, Images, Split};
use crate::error::DataError;
use crate::read::format::idx;
use crate::subset::grouping::FileGroups;

/// Class names of Fashion-MNIST.
pub(super) const FASHION_NAMES: [&str; 10] =
    ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];

macro_rules! file {
    ($name:literal) => {
        ($name, &include_bytes!(concat!("../../embedded/", $name))[..])
    };
}

/// Unpacks the embedded dataset.
///
/// # Errors
/// None in a build that passes its tests: the embedded bytes are read like any others.
pub fn fashion_mini() -> Result<Dataset, DataError> {
    let split = |images: (&str, &[u8]), labels: (&str, &[u8])| {
        Ok(Split {
            images: Images::Memory(idx::images(Path::new(images.0), &mut GzDecoder::new(images.1))?),
            labels: idx::labels(Path::new(labels.0), &mut GzDecoder::new(labels.1))?,
        })
    };
    Ok(Dataset {
        name: "fashion-mini".to_owned(),
        classes: FASHION_NAMES.map(str::to_owned).to_vec(),
        train: split(file!("train-images-idx3-ubyte.gz"), file!("train-labels-idx1-ubyte.gz"))?,
        val: None,
        test: split(file!("t10k-images-idx3-ubyte.gz"), file!("t10k-labels-idx1-ubyte.gz"))?,
        groups: FileGroups::default(),
        problems: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::class_counts;
    use crate::hash::fnv1a;

    /// The counts that the script prints, and exactly its bytes (`--check` compares them with the original dataset).
    #[test]
    fn the_embedded_dataset_is_what_the_script_makes() {
        let dataset = fashion_mini().expect("good");
        assert_eq!(dataset.counts().expect("labels"), [600, 359, 215, 129, 77, 46, 27, 16, 10, 6]);
        assert_eq!(class_counts(&dataset.test.labels, 10).expect("labels"), [100; 10]);
        let [train, test] = [&dataset.train, &dataset.test].map(|split| split.images.pixels().expect("in memory"));
        for (pixels, split) in [(train, &dataset.train), (test, &dataset.test)] {
            assert_eq!((pixels.channels, pixels.height, pixels.width), (1, 28, 28));
            assert_eq!(pixels.len(), split.labels.len());
        }
        let labels = |split: &Split| split.labels.iter().map(|label| *label as u8).collect::<Vec<u8>>();
        let hashes = [&train.bytes[..], &labels(&dataset.train), &test.bytes, &labels(&dataset.test)].map(fnv1a);
        // as the script prints them
        let want = [
            15_633_225_453_556_108_024,
            3_309_760_378_494_151_385,
            3_438_920_989_822_068_648,
            15_715_625_687_124_078_819,
        ];
        assert_eq!(hashes, want);
    }
}
