//! "None of these": images on which the network is less sure than on almost all images that it gets right.
//!
//! # Equation
//! ```text
//! reject x if  max_j z_j < t_g,   g the group of the predicted class
//! t_g = the largest score of group g for which a new image that is classified correctly has max_j z_j < t_g with probability <= rate
//!     = s_k,  s_1 <= .. <= s_n the scores of the correctly classified images of group g,  k = floor(rate (n + 1))
//! ```
//!
//! # Symbols
//! z are logits; a group is one of Many, Medium, Few, Rare. Within a group every class counts the same: images have weights, and
//! the new image that of the smallest class.
//!
//! The probability is over calibration images and the new one together. Over many calibrations head and tail lose at most `rate` of their right
//! answers on average; a single one may lose more, the further from `rate` the fewer images it has: for 5 % and 43 images of three classes,
//! between 0.3 and 11.5 % in 95 of 100 simulated calibrations, and for 1,300 images of two classes between 3.9 and 6.2 %.
//!
//! A group with fewer than ceil(1/rate) - 1 right answers cannot tell where that share ends. It loses nothing that was seen: its threshold is the
//! lowest of its own scores, or that of all images if that is lower still; without right answers nothing is rejected.
//!
//! Logits of rare classes are lower, so one threshold for all would reject most of what is rare. With a threshold per group, head and tail lose
//! the same share of right answers. Wrong answers are rejected more often than that, and so are images of no class at all.
//!
//! # Paper
//! The largest logit as a score: Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022,
//! <https://arxiv.org/abs/1911.11132>.

use crate::sets::fewest_images;

/// What rejection needs to know of a calibration image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Class of the image.
    pub label: u32,
    /// The predicted class.
    pub predicted: u32,
    /// The largest logit.
    pub score: f64,
}

/// Thresholds of the largest logit, by predicted class.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    thresholds: Vec<f64>,
    /// Groups with too few images for a threshold of their own.
    sparse: Vec<bool>,
}

impl Rejection {
    /// Thresholds that reject on average at most a share `rate` of the correctly classified images of every group. `groups` lists the classes of each.
    /// `None` if all groups together have fewer than ceil(1/rate) - 1 such images.
    ///
    /// # Panics
    /// If an image has a class beyond `classes`.
    #[must_use]
    pub fn new(answers: &[Answer], groups: &[Vec<usize>], classes: usize, rate: f64) -> Option<Self> {
        let right: Vec<&Answer> = answers.iter().filter(|answer| answer.label == answer.predicted).collect();
        let needed = fewest_images(rate);
        if right.len() < needed {
            return None;
        }
        let mut counts = vec![0usize; classes];
        right.iter().for_each(|answer| counts[answer.label as usize] += 1);
        let threshold = |in_group: &dyn Fn(usize) -> bool| {
            let members = right.iter().filter(|answer| in_group(answer.label as usize));
            weighted_quantile(members.map(|a| (a.score, 1.0 / counts[a.label as usize] as f64)).collect(), rate)
        };
        let all = threshold(&|_| true);
        let lowest = |group: &[usize]| {
            let own = right.iter().filter(|answer| group.contains(&(answer.label as usize)));
            own.map(|answer| answer.score).reduce(f64::min).unwrap_or(f64::NEG_INFINITY)
        };
        let mut thresholds = vec![all; classes];
        let mut sparse = Vec::new();
        for group in groups {
            let is_sparse = group.iter().map(|class| counts[*class]).sum::<usize>() < needed;
            let own = if is_sparse { all.min(lowest(group)) } else { threshold(&|class| group.contains(&class)) };
            group.iter().for_each(|class| thresholds[*class] = own);
            sparse.push(is_sparse);
        }
        Some(Self { thresholds, sparse })
    }

    /// Whether an image is rejected, by its predicted class and largest logit.
    #[must_use]
    pub fn rejects(&self, predicted: usize, score: f64) -> bool {
        score < self.thresholds[predicted]
    }

    /// Whether each group has too few images for a threshold of its own.
    #[must_use]
    pub fn sparse(&self) -> &[bool] {
        &self.sparse
    }
}

/// The largest score at or below which lies at most a share `rate` of the weight, that of a further image included. The lowest score if there is
/// none.
fn weighted_quantile(mut scores: Vec<(f64, f64)>, rate: f64) -> f64 {
    scores.sort_by(|a, b| a.0.total_cmp(&b.0));
    let heaviest = scores.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
    let allowed = rate * (scores.iter().map(|(_, weight)| weight).sum::<f64>() + heaviest) * (1.0 + 1e-12);
    let mut weight = 0.0;
    let mut threshold = scores.first().map_or(f64::NEG_INFINITY, |(lowest, _)| *lowest);
    for (score, own) in &scores {
        weight += own;
        if weight > allowed {
            break;
        }
        threshold = *score;
    }
    threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(label: u32, predicted: u32, scores: impl Iterator<Item = u32>) -> Vec<Answer> {
        scores.map(|score| Answer { label, predicted, score: f64::from(score) }).collect()
    }

    #[test]
    fn head_and_tail_lose_the_same_share() {
        // the head scores 100..200, the tail 0..20; some images of the tail are taken for the head
        let mut all = answers(0, 0, 100..200);
        all.extend(answers(1, 1, 0..20));
        all.extend(answers(1, 0, 50..60));
        let rejection = Rejection::new(&all, &[vec![0], vec![1]], 2, 0.1).expect("enough images");
        assert_eq!(rejection.thresholds, [109.0, 1.0]);
        assert_eq!(rejection.sparse(), [false, false]);
        let rejected = |label: u32, right: bool| {
            let of = |a: &&Answer| a.label == label && (a.label == a.predicted) == right;
            let images: Vec<&Answer> = all.iter().filter(of).collect();
            let n = images.iter().filter(|a| rejection.rejects(a.predicted as usize, a.score)).count();
            (n, images.len())
        };
        assert_eq!((rejected(0, true), rejected(1, true), rejected(1, false)), ((9, 100), (1, 20), (10, 10)));
    }

    #[test]
    fn classes_of_a_group_count_the_same() {
        // 90 images of one class score high, 10 of another low: half of the weight is low
        let mut all = answers(0, 0, 100..190);
        all.extend(answers(1, 1, 0..10));
        let rejection = Rejection::new(&all, &[vec![0, 1]], 2, 0.5).expect("enough images");
        assert_eq!(rejection.thresholds, [103.0, 103.0]);
        let rejection = Rejection::new(&all, &[vec![0, 1]], 2, 0.2).expect("enough images");
        assert_eq!(rejection.thresholds, [3.0, 3.0]);
    }

    #[test]
    fn new_images_are_rejected_at_most_as_often_as_asked() {
        // 21 images: with one of them new and the others for calibration, in turn
        let rate = 0.1;
        let lost = |left: u32| {
            let others = answers(0, 0, (0..21).filter(|score| *score != left));
            Rejection::new(&others, &[vec![0]], 1, rate).expect("enough images").rejects(0, f64::from(left))
        };
        assert_eq!((0..21).filter(|left| lost(*left)).count(), 2, "two are at most a tenth of 21; three would be more");
    }

    #[test]
    fn small_groups_lose_nothing_that_was_seen() {
        let mut all = answers(0, 0, 100..200);
        all.extend(answers(1, 1, 0..5));
        let rejection = Rejection::new(&all, &[vec![0], vec![1]], 2, 0.1).expect("enough images");
        assert_eq!(rejection.sparse(), [false, true]);
        assert_eq!(rejection.thresholds, [109.0, 0.0], "its own lowest score");
        let nothing = Rejection::new(&answers(0, 0, 100..200), &[vec![0], vec![1]], 2, 0.1).expect("enough images");
        assert!(!nothing.rejects(1, -1e9), "no image of the group was seen");
        assert_eq!(Rejection::new(&answers(0, 0, 0..8), &[vec![0]], 1, 0.1), None);
        assert_eq!(Rejection::new(&answers(0, 1, 0..80), &[vec![0, 1]], 2, 0.1), None, "wrong answers do not count");
    }
}
