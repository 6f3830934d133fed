//! Details of an evaluation beyond its metrics: confusions, calibration by group, the hardest images.

use std::collections::BTreeMap;

use equipoise_data::describe::groups::ClassGroup;
use equipoise_record::{ConfusedPair, CorrectImages, EvaluationDetails, GroupMembers, HardExample, ReliabilityBin};

use crate::evaluate::EvaluatedBatch;
use crate::metrics::{EvaluationCounts, Outcome, Prediction, group_of_classes, reliability};

/// Largest number of confused pairs that are listed.
const MAX_CONFUSED: usize = 200;
/// Number of classes whose hardest images are listed, the smallest ones.
const HARD_CLASSES: usize = 8;
/// Number of hardest images per class.
const HARD_IMAGES: usize = 3;

/// Collects details batch by batch.
#[derive(Clone)]
pub struct DetailsCollector {
    groups: Vec<ClassGroup>,
    /// Group of each class.
    group: Vec<usize>,
    /// Calibration bins of each group; `confidence` is a sum until the end.
    reliability: Vec<Vec<ReliabilityBin>>,
    /// The hardest images so far of each listed class, the hardest first.
    hardest: BTreeMap<u32, Vec<HardImage>>,
    /// Whether each image of each class was predicted correctly.
    correct: Vec<Vec<bool>>,
}

/// An image with a wrong prediction.
#[derive(Clone, Copy)]
struct HardImage {
    index: u32,
    prediction: Prediction,
}

impl DetailsCollector {
    /// A collector for this many classes in groups that hold each of them once.
    ///
    /// # Panics
    /// If a group has a class that does not exist.
    #[must_use]
    pub fn new(groups: &[ClassGroup], classes: usize) -> Self {
        let group = group_of_classes(groups, classes);
        let last = groups.iter().rev().find(|group| !group.classes.is_empty());
        let smallest = last.into_iter().flat_map(|group| group.classes.iter().rev()).take(HARD_CLASSES);
        let hardest = smallest.map(|class| (*class as u32, Vec::new())).collect();
        let reliability = vec![reliability::empty_bins(); groups.len()];
        let correct = vec![Vec::new(); classes];
        Self { groups: groups.to_vec(), group, reliability, hardest, correct }
    }

    /// Adds a batch.
    ///
    /// # Panics
    /// If a label is not a class.
    pub fn add(&mut self, batch: &EvaluatedBatch<'_>) {
        self.add_outcomes(batch.first, batch.outcomes(), batch.labels);
    }

    /// Adds images with these outcomes; `first` is the index of the first of them.
    pub(crate) fn add_outcomes(&mut self, first: usize, outcomes: impl Iterator<Item = Outcome>, labels: &[u32]) {
        for (row, (outcome, &label)) in outcomes.zip(labels).enumerate() {
            let (index, prediction) = (first + row, outcome.prediction);
            let correct = prediction.as_ref().is_some_and(|prediction| prediction.class == label as usize);
            self.correct[label as usize].push(correct);
            let Some(prediction) = prediction else { continue };
            reliability::add(&mut self.reliability[self.group[label as usize]], &prediction, label);
            if let Some(hardest) = self.hardest.get_mut(&label).filter(|_| !correct) {
                let rank = hardest.partition_point(|other| other.prediction.loss >= prediction.loss);
                hardest.insert(rank, HardImage { index: index as u32, prediction });
                hardest.truncate(HARD_IMAGES);
            }
        }
    }

    /// The details, after the last batch. `describe` gives the name of an image, and its thumbnail if there is one.
    #[must_use]
    pub fn finish(
        &self,
        epoch: u64,
        counts: &EvaluationCounts,
        describe: &dyn Fn(u32) -> (String, Option<String>),
    ) -> EvaluationDetails {
        let members = self.groups.iter();
        let members = members.map(|group| GroupMembers { name: group.name.clone(), classes: group.classes.clone() });
        let (confusion, confused) = self.confusions(counts);
        EvaluationDetails {
            epoch,
            groups: members.collect(),
            confusion,
            confused,
            reliability: self.reliability.iter().map(|bins| reliability::means(bins)).collect(),
            hardest: self.hard_examples(describe),
            correct: self.correct.iter().map(|images| CorrectImages::new(images)).collect(),
            sweep: Vec::new(),
        }
    }

    /// Confusion of groups, and the most frequent confusions of classes.
    fn confusions(&self, counts: &EvaluationCounts) -> (Vec<Vec<u64>>, Vec<ConfusedPair>) {
        let groups = self.groups.len();
        let mut confusion = vec![vec![0; groups]; groups];
        let mut confused = Vec::new();
        for (&(class, predicted), &images) in counts.confusion() {
            confusion[self.group[class as usize]][self.group[predicted as usize]] += images;
            if class != predicted {
                confused.push(ConfusedPair { class, predicted, images });
            }
        }
        // stable: pairs with equal counts stay in the order of the classes
        confused.sort_by_key(|pair| std::cmp::Reverse(pair.images));
        confused.truncate(MAX_CONFUSED);
        (confusion, confused)
    }

    /// The hardest images, class by class.
    fn hard_examples(&self, describe: &dyn Fn(u32) -> (String, Option<String>)) -> Vec<HardExample> {
        let images = self.hardest.iter().flat_map(|(class, images)| images.iter().map(move |image| (*class, image)));
        let example = |(class, image): (u32, &HardImage)| {
            let (name, thumbnail) = describe(image.index);
            HardExample {
                name,
                class,
                predicted: image.prediction.class as u32,
                confidence: image.prediction.confidence,
                true_probability: (-image.prediction.loss).exp(),
                thumbnail,
            }
        };
        images.map(example).collect()
    }
}
