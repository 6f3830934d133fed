//! Labels that are probably wrong, from predictions of networks that never saw the images.
//!
//! # Equation
//! ```text
//! score_i = ln p_{y_i}(x_i),   p = softmax(z - ln assumed + ln pi / 2)
//! ```
//!
//! # Symbols
//! z are out-of-fold logits, `assumed` is the prior that they assume, and pi the shares of the labels. The lowest score comes first. For the
//! shares of the labels every image of a rare class would look wrong; for equal shares many wrong labels of rare classes would look right, because a
//! few wrong images make up much of a rare class. The square root of the shares lies between the two. The caller passes both terms as offsets.
//!
//! # Paper
//! Northcutt, Jiang, Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021, <https://arxiv.org/abs/1911.00068>, whose
//! self-confidence this is; the prior is ours.

use crate::rows::{Logits, argmax, log_softmax};

/// A label with what a network thinks of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suspect {
    /// Number of the row.
    pub row: usize,
    /// The label.
    pub label: usize,
    /// The most probable class other than the label.
    pub suggested: usize,
    /// Probability of the label.
    pub label_probability: f64,
    /// Probability of the suggested class.
    pub suggested_probability: f64,
    /// Logarithm of the probability of the label.
    pub score: f64,
    /// Rank among the images with the same label, from 1.
    pub rank_in_class: usize,
}

impl Suspect {
    /// Whether another class is more probable than the label.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        self.suggested_probability > self.label_probability
    }
}

/// All labels, the most suspicious first; equal scores by row. `offsets` are added to the logits, one per class, or none. Rows that are
/// not finite are left out.
///
/// # Panics
/// If the offsets are neither empty nor one per class, or there are fewer than two classes.
#[must_use]
pub fn rank(logits: &Logits<'_>, offsets: &[f64]) -> Vec<Suspect> {
    let classes = logits.classes();
    assert!(classes > 1 && (offsets.is_empty() || offsets.len() == classes), "one offset per class");
    let offset = |class: usize| offsets.get(class).copied().unwrap_or(0.0);
    let judge = |(row, (values, label)): (usize, (&[f32], usize))| {
        let sums: Vec<f64> = values.iter().enumerate().map(|(class, z)| f64::from(*z) + offset(class)).collect();
        let logs = log_softmax(&sums);
        let others = logs.iter().enumerate().map(|(class, p)| if class == label { f64::NEG_INFINITY } else { *p });
        let suggested = argmax(others);
        Suspect {
            row,
            label,
            suggested,
            label_probability: logs[label].exp(),
            suggested_probability: logs[suggested].exp(),
            score: logs[label],
            rank_in_class: 0,
        }
    };
    let finite = logits.rows().enumerate().filter(|(_, (values, _))| values.iter().all(|z| z.is_finite()));
    let mut suspects: Vec<Suspect> = finite.map(judge).collect();
    suspects.sort_by(|a, b| a.score.total_cmp(&b.score).then(a.row.cmp(&b.row)));
    let mut ranks = vec![0; classes];
    for suspect in &mut suspects {
        ranks[suspect.label] += 1;
        suspect.rank_in_class = ranks[suspect.label];
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_probable_labels_come_first() {
        let values = [2.0f32, 0.0, 0.0, /**/ 0.0, 3.0, 0.0, /**/ 0.0, 0.0, 1.0, /**/ f32::NAN, 0.0, 0.0];
        let suspects = rank(&Logits::new(&values, &[0, 0, 1, 0], 3), &[]);
        let rows: Vec<_> = suspects.iter().map(|s| (s.row, s.label, s.suggested, s.rank_in_class)).collect();
        assert_eq!(rows, [(1, 0, 1, 1), (2, 1, 2, 1), (0, 0, 1, 2)]);
        assert!(suspects[..2].iter().all(Suspect::is_doubted) && !suspects[2].is_doubted());
        assert!((suspects[0].score + (3f64.exp() + 2.0).ln()).abs() < 1e-9);
        let e = 1f64.exp();
        assert!((suspects[1].suggested_probability - e / (e + 2.0)).abs() < 1e-9);
        assert!((suspects[1].label_probability - 1.0 / (e + 2.0)).abs() < 1e-9);
    }

    #[test]
    fn rare_classes_are_judged_for_equal_shares() {
        // logits with a prior of 99 to 1: an image that is a little more like the rare class
        let prior = [0.99f64.ln(), 0.01f64.ln()];
        let values = [prior[0] as f32, (prior[1] + 0.5) as f32];
        let alone = rank(&Logits::new(&values, &[1], 2), &[]);
        assert!(alone[0].score < -4.0 && alone[0].is_doubted(), "without the prior it looks wrong");
        let adjusted = rank(&Logits::new(&values, &[1], 2), &prior.map(|l| -l));
        assert!((adjusted[0].score + (1.0 + (-0.5f64).exp()).ln()).abs() < 1e-6 && !adjusted[0].is_doubted());
    }
}
