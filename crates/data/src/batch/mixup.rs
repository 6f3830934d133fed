//! Mixup: every image shown with a share of another (Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018).
//!
//! With whom an example is mixed, and how much, is a function of (seed, epoch, example). The partner is a place in the order of
//! the epoch, which every worker can make, and is shown as it would be in its own place. A criterion takes the labels of the
//! partners and the shares of a batch as the two slices of its `Mixed`.

use equipoise_random::{Draws, Example, Stream};

use crate::error::DataError;

/// How images are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    alpha: f64,
}

/// With whom an example is mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partner {
    /// Its place in the order of the epoch. It may be the example's own.
    pub place: usize,
    /// How much of the mixture is the example itself, in 0..=1; the rest is its partner.
    pub share: f32,
}

impl Mix {
    /// Shares from the distribution Beta(alpha, alpha): near 0 and 1 where alpha is small, even at 1, near 1/2 where it is
    /// large.
    ///
    /// # Errors
    /// For an alpha that is not positive or not finite.
    pub fn new(alpha: f64) -> Result<Self, DataError> {
        if alpha > 0.0 && alpha.is_finite() {
            Ok(Self { alpha })
        } else {
            Err(DataError::Parameter { field: "mix.alpha", got: alpha, want: "more than 0 and finite" })
        }
    }

    /// The partner of an example in an epoch, one of `among` places.
    ///
    /// A share is X / (X + Y) of two draws from Gamma(alpha), each one from Gamma(alpha + 1) (Marsaglia, Tsang, "A simple
    /// method for generating gamma variables", 2000) times U^(1 / alpha). Only the logarithm of Y / X is made, so that a tiny
    /// alpha gives 0 or 1.
    ///
    /// # Panics
    /// If there are no places.
    #[must_use]
    pub fn draw(&self, example: Example, among: usize) -> Partner {
        assert!(among > 0, "a place to choose");
        let draws = example.draws(Stream::Mixup);
        let place = (draws.unit(0) * among as f64) as usize;
        // one minus: never 0, so that the logarithms are finite and their difference is a number
        let log = |position: u64| (1.0 - draws.unit(position)).ln();
        let gammas = log_gamma(draws, 6, self.alpha + 1.0) - log_gamma(draws, 3, self.alpha + 1.0);
        let share = 1.0 / (1.0 + (gammas + (log(2) - log(1)) / self.alpha).exp());
        Partner { place: place.min(among - 1), share: share as f32 }
    }
}

/// The logarithm of a draw from Gamma(shape) of at least 1, up to a number that depends on the shape only; from three positions
/// of every six.
fn log_gamma(draws: Draws, first: u64, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (3.0 * d.sqrt());
    let mut position = first;
    // more than nineteen of twenty tries are taken
    loop {
        let normal = draws.normal(position);
        let root = 1.0 + c * normal;
        if root > 0.0 {
            let (v, log) = (root * root * root, 3.0 * root.ln());
            if (1.0 - draws.unit(position + 2)).ln() < normal * normal / 2.0 + d * (1.0 - v + log) {
                return log;
            }
        }
        position += 6;
    }
}

/// Makes `own` the mixture of itself, by its share, and another image.
///
/// # Panics
/// If they have different sizes.
pub fn blend(own: &mut [f32], other: &[f32], share: f32) {
    assert_eq!(own.len(), other.len(), "images of one size");
    let rest = 1.0 - share;
    own.iter_mut().zip(other).for_each(|(own, other)| *own = share * *own + rest * other);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(alpha: f64, number: u64) -> Vec<f64> {
        let mix = Mix::new(alpha).expect("valid");
        let mut shares: Vec<f64> = (0..number)
            .map(|i| mix.draw(Example { seed: 3, epoch: i % 10, example: i / 10 }, 7).share.into())
            .collect();
        shares.sort_by(f64::total_cmp);
        shares
    }

    /// Quantiles of Beta(alpha, alpha) at 0.1 and 0.25: by numerical integration for 0.2; u for 1; the roots of
    /// 3 x^2 - 2 x^3 = u for 2.
    #[test]
    fn shares_are_beta() {
        for (alpha, tenth, quarter) in
            [(0.2, 0.000_247_765, 0.023_814_7), (1.0, 0.1, 0.25), (2.0, 0.195_800, 0.326_352)]
        {
            const N: usize = 100_000;
            let shares = shares(alpha, N as u64);
            let mean = shares.iter().sum::<f64>() / N as f64;
            let variance = shares.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / N as f64;
            let want = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.005, "alpha {alpha}: mean {mean}");
            assert!((variance / want - 1.0).abs() < 0.02, "alpha {alpha}: variance {variance}, not {want}");
            // how many lie below a quantile, and above its mirror image
            for (u, quantile) in [(0.1, tenth), (0.25, quarter), (0.5, 0.5)] {
                let below = shares.partition_point(|x| *x < quantile) as f64 / N as f64;
                let above = 1.0 - shares.partition_point(|x| *x < 1.0 - quantile) as f64 / N as f64;
                assert!((below - u).abs() < 0.006 && (above - u).abs() < 0.006, "alpha {alpha}: {below}, {above}: {u}");
            }
        }
    }

    #[test]
    fn any_alpha_gives_a_share() {
        for alpha in [f64::from_bits(1), 1e-300, 1e-9] {
            let shares = shares(alpha, 1000);
            assert!(shares.iter().all(|x| *x == 0.0 || *x == 1.0), "alpha {alpha}");
            assert!((400..600).contains(&shares.partition_point(|x| *x < 0.5)), "alpha {alpha}");
        }
        for alpha in [1e9, 1e15, 1e300, f64::MAX] {
            assert!(shares(alpha, 1000).iter().all(|x| (x - 0.5).abs() < 1e-3), "alpha {alpha}");
        }
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Mix::new(alpha).expect_err("wrong").to_string();
            assert_eq!(error, format!("mix.alpha = {alpha}: must be more than 0 and finite"));
        }
    }

    #[test]
    fn partners_are_any_of_the_places_and_repeat() {
        let mix = Mix::new(1.0).expect("valid");
        let draw = |seed, epoch, example, among| mix.draw(Example { seed, epoch, example }, among);
        let mut seen = [0; 7];
        (0..7000).for_each(|example| seen[mix.draw(Example { seed: 1, epoch: 2, example }, 7).place] += 1);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(draw(1, 2, 3, 7), draw(1, 2, 3, 7));
        for other in [draw(0, 2, 3, 7), draw(1, 3, 3, 7), draw(1, 2, 4, 7)] {
            assert_ne!(draw(1, 2, 3, 7).share, other.share);
        }
        assert_eq!(draw(1, 2, 3, 1).place, 0);
    }

    #[test]
    fn mixtures() {
        let mut own = [1.0, 2.0, -4.0];
        blend(&mut own, &[5.0, 2.0, 0.0], 0.25);
        assert_eq!(own, [4.0, 2.0, -1.0]);
        blend(&mut own, &[7.0, 8.0, 9.0], 1.0);
        assert_eq!(own, [4.0, 2.0, -1.0]);
        blend(&mut own, &[7.0, 8.0, 9.0], 0.0);
        assert_eq!(own, [7.0, 8.0, 9.0]);
    }
}
