//! The priors of a run: what its logits assume, and what they shall be right for.

use equipoise_criterion::AssumedPrior;
use equipoise_data::batch::sampler::SamplerKind;
use equipoise_decide::prior::{log_shares, offsets};

use crate::error::TrainError;
use crate::evaluate::LogitAdjustment;
use crate::settings::Settings;

/// Shares of the classes where a network is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TargetPrior {
    /// Those that the logits of the run assume: predictions are the largest logits.
    #[default]
    Assumed,
    /// Those of the training images.
    Train,
    /// Equal shares.
    Uniform,
    /// In proportion to these numbers, one per class.
    Shares(Vec<f64>),
}

impl TargetPrior {
    /// What is added to the logits of a run, after the temperature; empty for nothing.
    ///
    /// # Errors
    /// If there is not one share per class, or one of them is not positive.
    pub fn offsets(&self, assumed: &AssumedPrior, counts: &[u64]) -> Result<Vec<f64>, TrainError> {
        let target = match self {
            Self::Assumed => return Ok(Vec::new()),
            Self::Train => train_log_shares(counts),
            Self::Uniform => vec![-(counts.len() as f64).ln(); counts.len()],
            Self::Shares(shares) => {
                let logs = log_shares(shares).filter(|logs| logs.len() == counts.len());
                logs.ok_or_else(|| TrainError::Unusable {
                    what: "the target prior needs a positive share for every class".to_owned(),
                })?
            }
        };
        Ok(offsets(&assumed.log_shares, &target))
    }
}

/// Logarithms of the shares of the training images. A class without images counts as one image.
#[must_use]
pub fn train_log_shares(counts: &[u64]) -> Vec<f64> {
    let counts: Vec<f64> = counts.iter().map(|n| (*n).max(1) as f64).collect();
    log_shares(&counts).unwrap_or_default()
}

/// The prior that the adjusted logits of a run assume. The sampler has a part in it: it decides how often each class is trained on.
///
/// # Errors
/// If the criterion cannot be used with these counts.
pub fn assumed_prior(
    settings: &Settings,
    counts: &[u64],
    adjustment: &LogitAdjustment,
) -> Result<AssumedPrior, TrainError> {
    let drawn = |n: &u64| match settings.data.sampler {
        SamplerKind::Uniform => *n as f64,
        SamplerKind::SquareRoot => (*n as f64).sqrt(),
        // progressive ends like this
        SamplerKind::ClassBalanced | SamplerKind::Progressive => f64::from(u8::from(*n > 0)),
    };
    let drawn: Vec<f64> = counts.iter().map(drawn).collect();
    let prior = settings.criterion.assumed_prior(counts, &drawn)?;
    let offsets: Vec<f64> = adjustment.offsets.iter().map(|offset| f64::from(*offset)).collect();
    Ok(prior.with_offsets(&offsets))
}

#[cfg(test)]
mod tests {
    use equipoise_criterion::{Config, Id};

    use super::*;

    const COUNTS: [u64; 3] = [90, 9, 1];

    fn assumed(id: Id, sampler: SamplerKind, tau: f64) -> AssumedPrior {
        let mut settings = Settings { criterion: Config::from(id.default_config()), ..Settings::default() };
        settings.data.sampler = sampler;
        let adjustment = LogitAdjustment::new(&settings.criterion.method, &COUNTS, tau);
        assumed_prior(&settings, &COUNTS, &adjustment).expect("valid")
    }

    #[test]
    fn offsets_take_the_criterion_into_account() {
        let log = train_log_shares(&COUNTS);
        let third = (1.0f64 / 3.0).ln();
        let close = |got: Vec<f64>, want: Vec<f64>| {
            assert!(
                got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6),
                "{got:?} {want:?}"
            );
        };
        let zeros = vec![0.0; 3];
        let inverse: Vec<f64> = log.iter().map(|l| third - l).collect();
        let forward: Vec<f64> = log.iter().map(|l| l - third).collect();
        let softmax = assumed(Id::Softmax, SamplerKind::Uniform, 0.0);
        close(TargetPrior::Train.offsets(&softmax, &COUNTS).expect("valid"), zeros.clone());
        close(TargetPrior::Uniform.offsets(&softmax, &COUNTS).expect("valid"), inverse.clone());
        // three ways to logits for equal shares
        for balanced in [
            assumed(Id::BalancedSoftmax, SamplerKind::Uniform, 0.0),
            assumed(Id::Softmax, SamplerKind::ClassBalanced, 0.0),
            assumed(Id::Softmax, SamplerKind::Uniform, 1.0),
        ] {
            close(TargetPrior::Uniform.offsets(&balanced, &COUNTS).expect("valid"), zeros.clone());
            close(TargetPrior::Train.offsets(&balanced, &COUNTS).expect("valid"), forward.clone());
            let shares = TargetPrior::Shares(vec![2.0, 1.0, 1.0]);
            let want = [0.5, 0.25, 0.25].map(|share: f64| share.ln() - third).to_vec();
            close(shares.offsets(&balanced, &COUNTS).expect("valid"), want);
        }
        assert_eq!(TargetPrior::Assumed.offsets(&softmax, &COUNTS).expect("valid"), Vec::<f64>::new());
    }

    #[test]
    fn shares_that_cannot_be_used() {
        let softmax = assumed(Id::Softmax, SamplerKind::Uniform, 0.0);
        for shares in [vec![1.0, 1.0], vec![1.0, 0.0, 1.0], vec![1.0, f64::NAN, 1.0]] {
            let error = TargetPrior::Shares(shares).offsets(&softmax, &COUNTS).expect_err("not usable");
            assert_eq!(error.to_string(), "the target prior needs a positive share for every class");
        }
    }
}
