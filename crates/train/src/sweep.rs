//! The trade-off between frequent and rare classes of a run, counted over images.

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::sweep::{STRENGTHS, Sweep};
use equipoise_record::SweepPoint;

/// Counts the hits of every strength.
#[derive(Clone, Debug)]
pub struct SweepCounts {
    sweep: Sweep,
    images: Vec<u64>,
    /// Hits by strength and class.
    hits: Vec<Vec<u64>>,
}

impl SweepCounts {
    /// Counts of no images. Priors are logarithms of shares: that of the logits, and that of the training images.
    #[must_use]
    pub fn new(assumed: &[f64], train: &[f64]) -> Self {
        let classes = train.len();
        Self {
            sweep: Sweep::new(assumed, train),
            images: vec![0; classes],
            hits: vec![vec![0; classes]; STRENGTHS.len()],
        }
    }

    /// Bits of the strengths that predict the label of a row.
    pub(crate) fn hits(&self, logits: &[f32], label: usize) -> u16 {
        let hits = self.sweep.classes(logits).map(|class| class == label);
        hits.enumerate().fold(0, |bits, (strength, hit)| bits | (u16::from(hit) << strength))
    }

    /// Counts an image by the bits of [`hits`](Self::hits).
    pub(crate) fn add_hits(&mut self, bits: u16, label: usize) {
        self.images[label] += 1;
        for (strength, hits) in self.hits.iter_mut().enumerate() {
            hits[label] += u64::from(bits >> strength & 1);
        }
    }

    /// Counts an image.
    pub fn add(&mut self, logits: &[f32], label: usize) {
        self.add_hits(self.hits(logits, label), label);
    }

    /// The accuracies, strength by strength; empty without images.
    #[must_use]
    pub fn points(&self, groups: &[ClassGroup]) -> Vec<SweepPoint> {
        let images: u64 = self.images.iter().sum();
        let point = |(strength, hits): (&f64, &Vec<u64>)| {
            let recall =
                |class: usize| (self.images[class] > 0).then(|| 100.0 * hits[class] as f64 / self.images[class] as f64);
            let mean = |classes: &mut dyn Iterator<Item = usize>| {
                let recalls: Vec<f64> = classes.filter_map(recall).collect();
                (!recalls.is_empty()).then(|| recalls.iter().sum::<f64>() / recalls.len() as f64)
            };
            SweepPoint {
                strength: *strength,
                groups: groups.iter().map(|group| mean(&mut group.classes.iter().copied())).collect(),
                top1: Some(100.0 * hits.iter().sum::<u64>() as f64 / images as f64),
                balanced: mean(&mut (0..hits.len())),
            }
        };
        match images {
            0 => Vec::new(),
            _ => STRENGTHS.iter().zip(&self.hits).map(point).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracies_move_from_head_to_tail() {
        let train = [0.9f64.ln(), 0.1f64.ln()];
        let mut counts = SweepCounts::new(&train, &train);
        // logits of softmax; differences of 1 between the classes, ln 9 = 2.2 between their shares
        for (logits, label) in [([3.0, 0.0], 0), ([1.0, 0.0], 0), ([1.0, 0.0], 1), ([0.0, 1.0], 1)] {
            counts.add(&logits, label);
        }
        let group = |name: &str, class| ClassGroup { name: name.to_owned(), classes: vec![class] };
        let points = counts.points(&[group("Many", 0), group("Rare", 1)]);
        let at = |strength: f64| points.iter().find(|point| point.strength == strength).expect("it is swept");
        assert_eq!(at(0.0).groups, [Some(100.0), Some(50.0)]);
        assert_eq!(at(1.0).groups, [Some(50.0), Some(100.0)]);
        assert_eq!(at(3.0).groups, [Some(0.0), Some(100.0)]);
        assert_eq!((at(1.0).top1, at(1.0).balanced), (Some(75.0), Some(75.0)));
        assert!(SweepCounts::new(&train, &train).points(&[]).is_empty());
    }
}
