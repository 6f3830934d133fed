//! How much of a difference is due to the choice of test images.
//!
//! Test images are a sample of each class. Where runs recorded which images they got right, both variants are compared
//! image by image; otherwise an upper bound follows from their accuracies.

use equipoise_record::GroupMembers;

use super::{Class, Variant};
use crate::run::{RecordedRun, ReportedEpoch};

/// The runs of a comparison, as far as their test images matter.
pub(super) struct TestImages<'a> {
    pub(super) runs: &'a [RecordedRun],
    pub(super) epoch: ReportedEpoch,
    pub(super) classes: &'a [Class],
    pub(super) groups: &'a [GroupMembers],
}

/// How often the runs of a variant got the test images of a class right.
struct ClassHits {
    /// By image, the share of runs that got it right; `None` if a run did not record it.
    by_image: Option<Vec<f64>>,
    /// Share of the images, over all runs.
    recall: f64,
}

impl TestImages<'_> {
    /// Standard error of the difference between two variants in a column, in percentage points.
    pub(super) fn standard_error(&self, first: &Variant, second: &Variant, column: usize) -> f64 {
        let everyone: Vec<usize> = (0..self.classes.len()).collect();
        let members = self.groups.get(column).map_or(&everyone, |group| &group.classes);
        let tested = || members.iter().copied().filter(|class| self.classes[*class].test > 0);
        // overall, every image counts the same; in groups and in the balanced accuracy, every class does
        let is_overall = column == self.groups.len();
        let weight = |class: usize| if is_overall { self.classes[class].test as f64 } else { 1.0 };
        let total: f64 = tested().map(weight).sum();
        let variance = |class: usize| weight(class).powi(2) * self.class_variance(first, second, class);
        100.0 * tested().map(variance).sum::<f64>().sqrt() / total.max(1.0)
    }

    /// Variance of the difference between two variants in the recall of a class.
    fn class_variance(&self, first: &Variant, second: &Variant, class: usize) -> f64 {
        let (a, b) = (self.hits(first, class), self.hits(second, class));
        let images = self.classes[class].test as f64;
        match (a.by_image, b.by_image) {
            (Some(a), Some(b)) if a.len() > 1 => {
                let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
                let mean = differences.iter().sum::<f64>() / images;
                differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (images - 1.0) / images
            }
            // as if both had been tested on images of their own; pulled toward 1/2, so that few images never seem
            // certain
            _ => [a.recall, b.recall]
                .map(|p| (p * images + 1.0) / (images + 2.0))
                .map(|p| p * (1.0 - p) / images)
                .iter()
                .sum(),
        }
    }

    fn hits(&self, variant: &Variant, class: usize) -> ClassHits {
        let runs = || variant.runs.iter().map(|run| &self.runs[*run]);
        let recalls = runs().filter_map(|run| run.evaluation(self.epoch)?.metrics.per_class.get(class)?.recall());
        let recalls: Vec<f64> = recalls.collect();
        let recall = recalls.iter().sum::<f64>() / recalls.len().max(1) as f64;
        let mut sums = vec![0.0; self.classes[class].test as usize];
        let mut add = |run: &RecordedRun| {
            let epoch = run.evaluation(self.epoch).map(|evaluation| evaluation.epoch);
            let details = run.details.as_ref().filter(|details| Some(details.epoch) == epoch)?;
            let correct = details.correct.get(class)?.images(sums.len())?;
            sums.iter_mut().zip(correct).for_each(|(sum, correct)| *sum += f64::from(u8::from(correct)));
            Some(())
        };
        let all = runs().all(|run| add(run).is_some());
        let number = variant.runs.len().max(1) as f64;
        ClassHits { by_image: all.then(|| sums.iter().map(|sum| sum / number).collect()), recall }
    }
}
