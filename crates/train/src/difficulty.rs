//! Difficulty sets augmentation: the magnitude of RandAugment is the level of an image's class.
//!
//! Every class has a level from 0 to 10. After an epoch, the level of a class rises by one if more than 60 % of its images,
//! augmented at this level, had a gradient norm below 0.5: the network gives them more than half of the probability, so they are
//! easy and can bear more. Otherwise it falls by one. The gradient norm is 1 - p_y of the criterion's adjusted logits, those
//! that the loss is made of.
//!
//! Akin to CUDA (Ahn et al., "CUDA: Curriculum of Data Augmentation for Long-tailed Recognition", ICLR 2023), which measures with
//! extra passes over the images; here every training step is the measurement.

use equipoise_criterion::Mixed;
use serde::{Deserialize, Serialize};

/// The highest level.
pub(crate) const MAX_LEVEL: u8 = 10;
/// An example with a smaller gradient norm is easy.
const EASY_NORM: f32 = 0.5;

/// The levels of all classes, and what the current epoch has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Difficulty {
    /// Level of each class. Levels change between epochs only.
    levels: Vec<u8>,
    /// Easy examples of each class in the epoch so far; then, in the same order, all examples.
    counts: Vec<u64>,
}

impl Difficulty {
    /// All classes at level 0.
    pub(crate) fn new(classes: usize) -> Self {
        Self { levels: vec![0; classes], counts: vec![0; 2 * classes] }
    }

    /// Level of each class.
    pub(crate) fn levels(&self) -> &[u8] {
        &self.levels
    }

    /// Counts a batch's examples by their gradient norms. Mixtures of two images are not counted.
    pub(crate) fn add(&mut self, norms: &[f32], labels: &[u32], mixed: Option<Mixed<'_>>) {
        let (easy, all) = self.counts.split_at_mut(self.levels.len());
        for (row, (norm, label)) in norms.iter().zip(labels).enumerate() {
            if mixed.is_some_and(|mixed| mixed.is_mixture(row)) {
                continue;
            }
            all[*label as usize] += 1;
            easy[*label as usize] += u64::from(*norm < EASY_NORM);
        }
    }

    /// Moves the levels and starts the next epoch. Classes without examples keep their level.
    pub(crate) fn end_epoch(&mut self) {
        let (easy, all) = self.counts.split_at(self.levels.len());
        for (level, (easy, all)) in self.levels.iter_mut().zip(easy.iter().zip(all)) {
            if *all > 0 {
                // more than 60 %, in integers
                let rises = 5 * easy > 3 * all;
                *level = if rises { (*level + 1).min(MAX_LEVEL) } else { level.saturating_sub(1) };
            }
        }
        self.counts.fill(0);
    }

    /// Whether a saved state fits a dataset with this number of classes.
    pub(crate) fn fits(&self, classes: usize) -> bool {
        self.levels.len() == classes
            && self.counts.len() == 2 * classes
            && self.levels.iter().all(|level| *level <= MAX_LEVEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_above_60_percent_and_fall_otherwise() {
        let mut difficulty = Difficulty::new(3);
        let mut epoch = |easy: usize| {
            // ten examples of class 0, none of class 1, a hard one of class 2
            let norms: Vec<f32> = (0..11).map(|row| if row < easy { 0.49 } else { 0.5 }).collect();
            difficulty.add(&norms, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], None);
            difficulty.end_epoch();
            difficulty.levels().to_vec()
        };
        assert_eq!(epoch(7), [1, 0, 0]);
        assert_eq!(epoch(10), [2, 0, 0]);
        // exactly 60 % is not enough
        assert_eq!(epoch(6), [1, 0, 0]);
        assert_eq!(epoch(0), [0, 0, 0]);
        assert_eq!(epoch(0), [0, 0, 0]);
        let last = (0..20).map(|_| epoch(8)).last();
        assert_eq!(last, Some(vec![10, 0, 0]));
    }

    #[test]
    fn mixtures_are_not_counted() {
        let mut difficulty = Difficulty::new(2);
        let mixed = Mixed { labels: &[1, 1, 1], share: &[1.0, 0.5, 0.0] };
        difficulty.add(&[0.1, 0.1, 0.1], &[0, 0, 0], Some(mixed));
        assert_eq!(difficulty.counts, [1, 0, 1, 0]);
        // a class whose images were all mixtures stays where it is
        difficulty.end_epoch();
        assert_eq!((difficulty.levels(), &difficulty.counts[..]), (&[1, 0][..], &[0; 4][..]));
    }

    #[test]
    fn a_state_comes_back() {
        let mut difficulty = Difficulty::new(2);
        difficulty.add(&[0.1, 0.7], &[0, 1], None);
        let text = serde_json::to_string(&difficulty).expect("JSON");
        assert_eq!(serde_json::from_str::<Difficulty>(&text).expect("its own"), difficulty);
        assert!(difficulty.fits(2) && !difficulty.fits(3));
    }
}
