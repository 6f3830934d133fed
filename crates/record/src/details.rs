//! Details of the final evaluation: `details.json`.

use serde::{Deserialize, Serialize};

/// Details of the evaluation that a run's reported metrics come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationDetails {
    /// Epoch of the evaluated weights.
    pub epoch: u64,
    /// The groups, in order.
    pub groups: Vec<GroupMembers>,
    /// Confusion of groups, in images: row = group of the true class, column = group of the predicted class.
    pub confusion: Vec<Vec<u64>>,
    /// The most frequent confusions of two classes, in descending order.
    pub confused: Vec<ConfusedPair>,
    /// Reliability of each group: equal bins of the confidence in (0, 1], each with its upper bound.
    pub reliability: Vec<Vec<ReliabilityBin>>,
    /// The hardest images of the smallest classes: wrong predictions with the highest loss, class by class.
    pub hardest: Vec<HardExample>,
    /// Which test images of each class were predicted correctly.
    #[serde(default)]
    pub correct: Vec<CorrectImages>,
    /// The trade-off between frequent and rare classes; empty in files of older versions.
    #[serde(default)]
    pub sweep: Vec<SweepPoint>,
}

/// Accuracies of predictions that favor rare classes by some strength, in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// 0 predicts for the shares of the training images, 1 for equally frequent classes.
    pub strength: f64,
    /// Accuracy of each group: the mean recall of its classes that have images.
    pub groups: Vec<Option<f64>>,
    /// Top-1 accuracy.
    pub top1: Option<f64>,
    /// Balanced accuracy.
    pub balanced: Option<f64>,
}

/// Which images of a class were predicted correctly, in the order of the dataset: a hexadecimal digit for every four
/// images, the first image in the highest bit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CorrectImages(String);

impl CorrectImages {
    /// The record of some images.
    #[must_use]
    pub fn new(correct: &[bool]) -> Self {
        let digit = |four: &[bool]| {
            let bits = four.iter().zip([8, 4, 2, 1]).map(|(correct, bit)| if *correct { bit } else { 0 });
            char::from_digit(bits.sum(), 16).unwrap_or('0')
        };
        Self(correct.chunks(4).map(digit).collect())
    }

    /// Whether each of `number` images was predicted correctly; `None` if the record is of another number of images.
    #[must_use]
    pub fn images(&self, number: usize) -> Option<Vec<bool>> {
        let digits: Option<Vec<u32>> = self.0.chars().map(|digit| digit.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() == number.div_ceil(4))?;
        let bits = digits.iter().flat_map(|digit| [8, 4, 2, 1].map(|bit| digit & bit != 0));
        Some(bits.take(number).collect())
    }
}

/// The classes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMembers {
    /// Name of the group.
    pub name: String,
    /// Classes of the group, the largest first.
    pub classes: Vec<usize>,
}

/// How many images of one class were predicted as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusedPair {
    /// The true class.
    pub class: u32,
    /// The predicted class.
    pub predicted: u32,
    /// Number of images.
    pub images: u64,
}

/// Predictions of similar confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Number of predictions.
    pub images: u64,
    /// Number of correct predictions.
    pub hits: u64,
    /// Mean confidence; 0 without images.
    pub confidence: f64,
}

/// A test image with a confident wrong prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HardExample {
    /// File name of the image, or its number.
    pub name: String,
    /// The true class.
    pub class: u32,
    /// The predicted class.
    pub predicted: u32,
    /// Probability of the predicted class.
    pub confidence: f64,
    /// Probability of the true class.
    pub true_probability: f64,
    /// Thumbnail: a PNG file in base 64.
    pub thumbnail: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correct_images_are_read_back() {
        for number in 0..19_usize {
            let correct: Vec<bool> = (0..number).map(|i| i * i % 3 == 1).collect();
            let record = CorrectImages::new(&correct);
            assert_eq!(record.images(number), Some(correct));
            assert_eq!(record.images(number + 4), None);
        }
        assert_eq!(CorrectImages::new(&[true, false, false, false, true]), CorrectImages("88".to_owned()));
        assert_eq!(CorrectImages("8x".to_owned()).images(8), None);
    }
}
