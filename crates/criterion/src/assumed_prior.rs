//! The prior that the logits of a trained network assume.
//!
//! A network that has learned cross-entropy with class weights w and offsets b, on examples of which class c has the share q_c, has
//! exp(z_c + b_c) in proportion to w_c q_c P(x | c). So softmax(z) is right where class c has a share in proportion to w_c q_c exp(-b_c): the
//! shares of the examples for plain cross-entropy, equal shares for `balanced-softmax`.

use crate::config::Config;
use crate::counts::Counts;
use crate::error::ConfigError;
use crate::method::MethodConfig;

/// What a criterion makes of the shares of the classes among the examples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PriorEffect {
    /// ln w_c - b_c of every class.
    Factors(Vec<f64>),
    /// It has no closed form, and leaves the shares about as they are.
    RoughlyNone,
    /// It has no closed form, and makes the classes about equally frequent.
    RoughlyBalanced,
}

/// The prior that logits assume.
#[derive(Clone, Debug, PartialEq)]
pub struct AssumedPrior {
    /// Logarithm of the share of every class.
    pub log_shares: Vec<f64>,
    /// Whether it follows from the criterion's equation, and is not just near it.
    pub is_exact: bool,
}

impl AssumedPrior {
    /// Shares in proportion to e^log.
    fn normalized(logs: Vec<f64>, is_exact: bool) -> Self {
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = largest + logs.iter().map(|log| (log - largest).exp()).sum::<f64>().ln();
        Self { log_shares: logs.into_iter().map(|log| log - sum).collect(), is_exact }
    }

    /// The prior of logits to which an offset per class is added after training.
    ///
    /// # Panics
    /// If there are offsets, but not one per class.
    #[must_use]
    pub fn with_offsets(self, offsets: &[f64]) -> Self {
        if offsets.is_empty() {
            return self;
        }
        assert_eq!(offsets.len(), self.log_shares.len(), "one offset per class");
        // an image is as likely as before, so what the logit gains the prior gains too
        let logs = self.log_shares.iter().zip(offsets).map(|(log, offset)| log + offset).collect();
        Self::normalized(logs, self.is_exact)
    }
}

impl Config {
    /// The prior that the logits of a network assume which this criterion has trained on a dataset with `counts` images per class.
    /// `drawn` has numbers in proportion to how often each class was drawn; a class that never was counts as one image.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn assumed_prior(&self, counts: &[u64], drawn: &[f64]) -> Result<AssumedPrior, ConfigError> {
        let counts = Counts::new(counts)?;
        let total: f64 = drawn.iter().sum();
        let least = total / counts.total().max(1.0);
        let drawn: Vec<f64> = drawn.iter().map(|n| if *n > 0.0 { n.ln() } else { least.ln() }).collect();
        let (mut logs, mut is_exact) = match self.method.prior_effect(&counts) {
            PriorEffect::Factors(factors) => (drawn.iter().zip(factors).map(|(log, f)| log + f).collect(), true),
            PriorEffect::RoughlyNone => (drawn, false),
            PriorEffect::RoughlyBalanced => (vec![0.0; drawn.len()], false),
        };
        if let Some(drw) = &self.drw {
            // it starts late, and the network may not have followed it all the way
            is_exact = false;
            add_logs(&mut logs, &counts.effective_number(drw.beta));
        }
        Ok(AssumedPrior::normalized(logs, is_exact))
    }
}

/// Adds logarithms of weights. A class without images has weight 0 and stays as it is.
fn add_logs(logs: &mut [f64], weights: &[f64]) {
    logs.iter_mut().zip(weights).for_each(|(log, weight)| *log += log_weight(*weight));
}

/// Logarithm of a class weight; 0 for a class without images.
pub(crate) fn log_weight(weight: f64) -> f64 {
    if weight > 0.0 { weight.ln() } else { 0.0 }
}

impl MethodConfig {
    fn prior_effect(&self, counts: &Counts) -> PriorEffect {
        let weights = |weights: Vec<f64>| PriorEffect::Factors(weights.into_iter().map(log_weight).collect());
        let offset = |tau: f64| PriorEffect::Factors(counts.log_prior().map(|log| -tau * log).collect());
        match self {
            Self::Softmax(_) => PriorEffect::Factors(vec![0.0; counts.classes()]),
            Self::ClassBalanced(config) => weights(counts.inverse_power(config.power)),
            Self::EffectiveNumber(config) => weights(counts.effective_number(config.beta)),
            Self::BalancedSoftmax(_) => offset(1.0),
            Self::LogitAdjusted(config) => offset(config.tau),
            Self::Focal(_) | Self::Ghm(_) | Self::Ldam(_) | Self::LabelAwareSmoothing(_) => PriorEffect::RoughlyNone,
            Self::Equalization(_) | Self::Seesaw(_) | Self::Cwap(_) | Self::Vs(_) | Self::Cdt(_) => {
                PriorEffect::RoughlyBalanced
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drw::DrwConfig;
    use crate::method::{BalancedSoftmaxConfig, ClassBalancedConfig, Id, LogitAdjustedConfig, Reduction};

    const COUNTS: [u64; 3] = [90, 9, 1];

    fn prior(method: MethodConfig, drawn: [f64; 3]) -> Vec<f64> {
        let prior = Config::from(method).assumed_prior(&COUNTS, &drawn).expect("valid");
        prior.log_shares.iter().map(|log| log.exp()).collect()
    }

    fn close(got: &[f64], want: [f64; 3]) {
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?} instead of {want:?}");
    }

    #[test]
    fn closed_forms() {
        let drawn = [90.0, 9.0, 1.0];
        let (train, uniform) = ([0.9, 0.09, 0.01], [1.0 / 3.0; 3]);
        close(&prior(Id::Softmax.default_config(), drawn), train);
        close(&prior(MethodConfig::BalancedSoftmax(BalancedSoftmaxConfig::default()), drawn), uniform);
        let inverse = ClassBalancedConfig { power: 1.0, reduction: Reduction::Weights };
        close(&prior(MethodConfig::ClassBalanced(inverse), drawn), uniform);
        let adjusted = |tau| prior(MethodConfig::LogitAdjusted(LogitAdjustedConfig { tau }), drawn);
        close(&adjusted(0.0), train);
        close(&adjusted(1.0), uniform);
        let roots = [0.9f64.sqrt(), 0.3, 0.1];
        close(&adjusted(0.5), roots.map(|root| root / roots.iter().sum::<f64>()));
        // a class-balanced sampler: plain cross-entropy assumes equal shares, and margins of the counts correct once too often
        close(&prior(Id::Softmax.default_config(), [1.0; 3]), uniform);
        let inverse = [1.0 / 0.9, 1.0 / 0.09, 100.0];
        let over = prior(MethodConfig::BalancedSoftmax(BalancedSoftmaxConfig::default()), [1.0; 3]);
        close(&over, inverse.map(|x| x / inverse.iter().sum::<f64>()));
    }

    #[test]
    fn adjusting_logits_moves_the_prior() {
        let softmax =
            Config::from(Id::Softmax.default_config()).assumed_prior(&COUNTS, &[90.0, 9.0, 1.0]).expect("valid");
        let offsets = softmax.log_shares.iter().map(|log| -log).collect::<Vec<_>>();
        let uniform: Vec<f64> = softmax.clone().with_offsets(&offsets).log_shares.iter().map(|log| log.exp()).collect();
        close(&uniform, [1.0 / 3.0; 3]);
        assert_eq!(softmax.clone().with_offsets(&[]), softmax);
    }

    #[test]
    fn every_criterion_has_one() {
        for id in Id::ALL {
            let config = Config { method: id.default_config(), drw: Some(DrwConfig::new(1)) };
            let prior = config.assumed_prior(&[90, 9, 0], &[90.0, 9.0, 0.0]).expect("valid");
            let sum: f64 = prior.log_shares.iter().map(|log| log.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-12 && !prior.is_exact, "{id}");
        }
        let exact =
            |id: Id| Config::from(id.default_config()).assumed_prior(&COUNTS, &[1.0; 3]).expect("valid").is_exact;
        assert!(exact(Id::Softmax) && exact(Id::EffectiveNumber) && !exact(Id::Cwap) && !exact(Id::Focal));
    }
}
