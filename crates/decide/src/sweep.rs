//! The trade-off between frequent and rare classes, from one evaluation.
//!
//! # Equation
//! ```text
//! argmax_j  z_j - ln assumed_j + (1 - strength) ln pi_j
//! ```
//!
//! # Symbols
//! z are logits, `assumed` is the prior that they assume, pi the shares of the training images. Strength 0 predicts for the shares of the
//! training images, 1 for equally frequent classes, and more favors rare classes further. For logits of plain cross-entropy it is the tau of
//! post-hoc logit adjustment.
//!
//! # Paper
//! Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, <https://arxiv.org/abs/2007.07314>.

use crate::rows::argmax;

/// The strengths of a sweep.
pub const STRENGTHS: [f64; 13] = [-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0];

/// The offsets of every strength of a sweep, by class.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    offsets: Vec<Vec<f64>>,
}

impl Sweep {
    /// A sweep for logits that assume one prior, of training images with another. Both are logarithms of shares.
    ///
    /// # Panics
    /// If the two have different numbers of classes.
    #[must_use]
    pub fn new(assumed: &[f64], train: &[f64]) -> Self {
        assert_eq!(assumed.len(), train.len(), "priors of the same classes");
        let of = |strength: &f64| train.iter().zip(assumed).map(|(t, a)| (1.0 - strength) * t - a).collect();
        Self { offsets: STRENGTHS.iter().map(of).collect() }
    }

    /// The class that each strength predicts for a row of logits.
    pub fn classes<'a>(&'a self, logits: &'a [f32]) -> impl Iterator<Item = usize> + 'a {
        self.offsets.iter().map(|offsets| argmax(logits.iter().zip(offsets).map(|(z, o)| f64::from(*z) + o)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strengths_favor_rare_classes_more_and_more() {
        let train: Vec<f64> = [0.9f64, 0.09, 0.01].iter().map(|p| p.ln()).collect();
        let logits = [3.0f32, 1.0, -1.0];
        // logits of softmax: strength 0 is their own argmax, and strength s that of z - s ln pi
        let sweep = Sweep::new(&train, &train);
        let got: Vec<usize> = sweep.classes(&logits).collect();
        for (strength, got) in STRENGTHS.iter().zip(&got) {
            let adjusted = logits.iter().zip(&train).map(|(z, l)| f64::from(*z) - strength * l);
            assert_eq!(*got, argmax(adjusted), "{strength}");
        }
        assert!(got.is_sorted() && got[0] == 0 && got[12] == 2);
        // logits for equal shares: strength 1 is their own argmax
        let uniform = Sweep::new(&[(1f64 / 3.0).ln(); 3], &train);
        let one = STRENGTHS.iter().position(|s| *s == 1.0).expect("it is one of them");
        assert_eq!(uniform.classes(&[0.1, 0.3, 0.2]).nth(one), Some(1));
    }
}
