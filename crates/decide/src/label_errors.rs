//! Labels that are probably wrong, from predictions of networks that never saw the images.
//!
//! # Equation
//! ```text
//! q_i       = p_{y_i}(x_i),   p = softmax(z + ln pi)
//! w_i       = q_i / (q_i + epsilon / C)
//! p-value_i = (sum of w_j over the images j with label y_i and q_j < q_i, plus w_i / 2) / (sum of w_j over the images with label y_i)
//! ```
//!
//! # Symbols
//! z are out-of-fold logits for equal shares of the classes, pi the shares of the labels, and C is the number of classes. w is the probability
//! that a label is right, if about a share epsilon = 0.15 of the labels were drawn at random. Sums of w are expected numbers of right labels, so
//! that the p-value is the expected share of the right labels of a class that look at least as wrong, as in conformal prediction. The lowest comes first.
//! A list that ends anywhere then has about the same share of the right labels of every class; ordered by q it would have more of rare classes,
//! which are less probable and harder to learn. A smaller epsilon makes these shares more equal and finds fewer wrong labels, because a few of
//! them make up much of a rare class.
//!
//! Probabilities that are shown are for shares half-way between those of the labels and equal ones, `softmax(z + ln pi / 2)`: for the shares of the
//! labels every image of a rare class would be doubted, for equal shares few wrong labels of rare classes would.
//!
//! # Paper
//! Northcutt, Jiang, Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels", JAIR 2021, <https://arxiv.org/abs/1911.00068>, whose
//! self-confidence q is. Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005, for p-values by class. Their combination is ours.

use crate::rows::{Logits, argmax, log_softmax};

/// Share of labels that are assumed to be drawn at random.
const RANDOM_SHARE: f64 = 0.15;

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
    /// Expected share of the right labels of this class that look at least as wrong, between 0 and 1.
    pub p_value: f64,
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

/// All labels, the most suspicious first. The logits are for equal shares of the classes; `log_shares` are the logarithms of the shares of the
/// labels. Rows that are not finite are left out.
///
/// # Panics
/// Unless there is a share for every class, and there are two classes or more.
#[must_use]
pub fn rank(logits: &Logits<'_>, log_shares: &[f64]) -> Vec<Suspect> {
    let classes = logits.classes();
    assert!(classes > 1 && log_shares.len() == classes, "a share for every class");
    let log_probabilities = |values: &[f32], strength: f64| {
        let sums = values.iter().zip(log_shares).map(|(z, share)| f64::from(*z) + strength * share);
        log_softmax(&sums.collect::<Vec<_>>())
    };
    let judge = |(row, (values, label)): (usize, (&[f32], usize))| {
        let shown = log_probabilities(values, 0.5);
        let others = shown.iter().enumerate().map(|(class, p)| if class == label { f64::NEG_INFINITY } else { *p });
        let suggested = argmax(others);
        let suspect = Suspect {
            row,
            label,
            suggested,
            label_probability: shown[label].exp(),
            suggested_probability: shown[suggested].exp(),
            p_value: 0.0,
            rank_in_class: 0,
        };
        (log_probabilities(values, 1.0)[label], suspect)
    };
    let finite = logits.rows().enumerate().filter(|(_, (values, _))| values.iter().all(|z| z.is_finite()));
    let mut judged: Vec<(f64, Suspect)> = finite.map(judge).collect();
    judged.sort_by(|(a, one), (b, other)| a.total_cmp(b).then(one.row.cmp(&other.row)));
    let is_right = |log: f64| log.exp() / (log.exp() + RANDOM_SHARE / classes as f64);
    let mut right = vec![0.0; classes];
    judged.iter().for_each(|(log, suspect)| right[suspect.label] += is_right(*log));
    let (mut sums, mut ranks) = (vec![0.0; classes], vec![0; classes]);
    for (log, suspect) in &mut judged {
        let (class, own) = (suspect.label, is_right(*log));
        suspect.p_value = (sums[class] + own / 2.0) / right[class].max(f64::MIN_POSITIVE);
        sums[class] += own;
        ranks[class] += 1;
        suspect.rank_in_class = ranks[class];
    }
    // stable: equal p-values keep the order of their probabilities
    judged.sort_by(|(_, one), (_, other)| one.p_value.total_cmp(&other.p_value));
    judged.into_iter().map(|(_, suspect)| suspect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_probable_labels_come_first() {
        let values = [2.0f32, 0.0, 0.0, /**/ 0.0, 3.0, 0.0, /**/ 0.0, 0.0, 1.0, /**/ f32::NAN, 0.0, 0.0];
        let suspects = rank(&Logits::new(&values, &[0, 0, 1, 0], 3), &[0.0; 3]);
        let rows: Vec<_> = suspects.iter().map(|s| (s.row, s.label, s.suggested, s.rank_in_class)).collect();
        assert_eq!(rows, [(1, 0, 1, 1), (2, 1, 2, 1), (0, 0, 1, 2)]);
        assert!(suspects[..2].iter().all(Suspect::is_doubted) && !suspects[2].is_doubted());
        let e = 1f64.exp();
        let [low, high] = [1.0 / (e.powi(3) + 2.0), e * e / (e * e + 2.0)].map(|q| q / (q + RANDOM_SHARE / 3.0));
        let want = [low / 2.0 / (low + high), 0.5, (low + high / 2.0) / (low + high)];
        for (suspect, want) in suspects.iter().zip(want) {
            assert!((suspect.p_value - want).abs() < 1e-9, "{suspect:?}: {want}");
        }
        assert!((suspects[1].suggested_probability - e / (e + 2.0)).abs() < 1e-9);
        assert!((suspects[1].label_probability - 1.0 / (e + 2.0)).abs() < 1e-9);
    }

    #[test]
    fn rare_classes_are_judged_between_their_share_and_an_equal_one() {
        // shares of 99 to 1: an image that is as much like the one as like the other class, and a little more
        let shares = [0.99f64.ln(), 0.01f64.ln()];
        let of = |logit: f32| rank(&Logits::new(&[0.0, logit], &[1], 2), &shares)[0];
        let odds = |logit: f64| (logit + 0.5 * (shares[1] - shares[0])).exp();
        for logit in [2.0f32, 2.5] {
            let suspect = of(logit);
            let want = odds(f64::from(logit));
            assert!((suspect.label_probability - want / (1.0 + want)).abs() < 1e-9);
            assert_eq!(suspect.is_doubted(), logit < 2.2, "{suspect:?}");
        }
    }

    /// Labels as the networks expect them, all right: the list begins with as large a share of the rare class as of the other.
    #[test]
    fn rare_classes_are_not_listed_more_often() {
        let shares = [0.9f64.ln(), 0.1f64.ln()];
        let (mut values, mut labels, mut logit) = (Vec::new(), Vec::new(), -8.0f32);
        while logit < 3.0 {
            // of 200 images with these logits, as many have label 1 as it is probable
            let odds = (f64::from(logit) + shares[1] - shares[0]).exp();
            let rare = (200.0 * odds / (1.0 + odds)).round() as usize;
            values.extend([0.0, logit].repeat(200));
            labels.extend((0..200).map(|image| u32::from(image < rare)));
            logit += 0.05;
        }
        let suspects = rank(&Logits::new(&values, &labels, 2), &shares);
        let share = |list: &[Suspect], label: u32| {
            let listed = list[..list.len() / 20].iter().filter(|suspect| suspect.label == label as usize).count();
            listed as f64 / labels.iter().filter(|other| **other == label).count() as f64
        };
        let [frequent, rare] = [0, 1].map(|label| share(&suspects, label));
        assert!(rare < 2.5 * frequent, "{rare} of the rare class, {frequent} of the other");
        let probability = |suspect: &Suspect| {
            let sums = [shares[0], f64::from(values[2 * suspect.row + 1]) + shares[1]];
            log_softmax(&sums)[suspect.label]
        };
        let mut by_probability = suspects.clone();
        by_probability.sort_by(|a, b| probability(a).total_cmp(&probability(b)));
        let [frequent, rare] = [0, 1].map(|label| share(&by_probability, label));
        assert!(rare > 5.0 * frequent, "by probability {rare} and {frequent}");
    }
}
