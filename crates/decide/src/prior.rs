//! Predictions for other shares of the classes than the training images have.
//!
//! # Equation
//! ```text
//! p(y | x, target) = softmax(z / T - ln assumed + ln target)_y
//! ```
//!
//! # Symbols
//! z are logits, T is the temperature that calibrates them, `assumed` the prior for which softmax(z / T) is right, and `target` the shares of
//! the classes where the network is used. Logits of plain cross-entropy assume the shares of the training images; those of `balanced-softmax`
//! assume equal shares.
//!
//! # Paper
//! Saerens, Latinne, Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori Probabilities", Neural Computation 2002.
//!
//! # Reduces to
//! softmax(z / T) where target = assumed; argmax z + ln target for logits that assume equal shares, at T = 1.

/// Logarithms of shares in proportion to some positive numbers; `None` if one of them is not positive and finite.
#[must_use]
pub fn log_shares(numbers: &[f64]) -> Option<Vec<f64>> {
    let total: f64 = numbers.iter().sum();
    let valid = total.is_finite() && numbers.iter().all(|n| *n > 0.0 && n.is_finite());
    valid.then(|| numbers.iter().map(|n| (n / total).ln()).collect())
}

/// Offsets ln target - ln assumed, by class, for logits that assume one prior and shall be right for another. Both are logarithms of shares.
///
/// # Panics
/// If the two have different numbers of classes.
#[must_use]
pub fn offsets(assumed: &[f64], target: &[f64]) -> Vec<f64> {
    assert_eq!(assumed.len(), target.len(), "priors of the same classes");
    target.iter().zip(assumed).map(|(target, assumed)| target - assumed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::log_softmax;

    #[test]
    fn bayes_rule() {
        // likelihoods of an image under three classes
        let likelihood = [0.2f64, 0.5, 0.1];
        let posterior = |prior: &[f64; 3]| {
            let joint: Vec<f64> = likelihood.iter().zip(prior).map(|(l, p)| l * p).collect();
            let all: f64 = joint.iter().sum();
            joint.iter().map(|j| j / all).collect::<Vec<_>>()
        };
        let (train, target) = ([0.9, 0.09, 0.01], [0.2, 0.3, 0.5]);
        let (train_logs, target_logs) =
            (log_shares(&[900.0, 90.0, 10.0]).expect("shares"), log_shares(&target).expect("shares"));
        let logits: Vec<f64> = posterior(&train).iter().map(|p| p.ln() + 5.0).collect();
        let moved = |to: &[f64]| {
            let offsets = offsets(&train_logs, to);
            let sums: Vec<f64> = logits.iter().zip(offsets).map(|(z, o)| z + o).collect();
            log_softmax(&sums)
        };
        for (to, want) in [(&target_logs, posterior(&target)), (&train_logs, posterior(&train))] {
            assert!(moved(to).iter().zip(want).all(|(got, want)| (got.exp() - want).abs() < 1e-12));
        }
    }

    #[test]
    fn shares_are_positive() {
        assert_eq!(log_shares(&[1.0, 0.0]), None);
        assert_eq!(log_shares(&[1.0, f64::NAN]), None);
        assert_eq!(log_shares(&[1.0, f64::INFINITY]), None);
        assert_eq!(log_shares(&[1.0, -1.0]), None);
        assert_eq!(log_shares(&[2.0, 2.0]), Some(vec![0.5f64.ln(); 2]));
    }
}
