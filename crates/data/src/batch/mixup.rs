//! Mixup: every image is blended with another one (Zhang et al., "mixup: beyond empirical risk minimization", ICLR 2018).
//!
//! The partner is a position in the order of the epoch, which every worker knows, and is augmented as in its own turn. A
//! criterion takes the labels of the partners and the shares of a batch as the two slices of its `Mixed`.

use equipoise_random::{Draws, Example, Stream};

use super::pixel::PixelValue;
use crate::error::DataError;

/// The distribution of mixup's shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixup {
    alpha: f64,
}

/// The partner of an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixupPartner {
    /// Position of the partner in the order of the epoch. It may be that of the example itself.
    pub position: usize,
    /// Share of the example itself in the blend, in 0..=1; the rest is its partner's.
    pub share: f32,
}

impl Mixup {
    /// Mixup with shares from the distribution Beta(alpha, alpha): near 0 and 1 for a small alpha, uniform for 1, near 1/2 for
    /// a large one.
    ///
    /// # Errors
    /// For an alpha that is not positive or not finite.
    pub fn new(alpha: f64) -> Result<Self, DataError> {
        if alpha > 0.0 && alpha.is_finite() {
            Ok(Self { alpha })
        } else {
            Err(DataError::Parameter { field: "mixup_alpha", got: alpha, want: "more than 0 and finite" })
        }
    }

    /// The partner of an example, at one of `length` positions.
    ///
    /// A share is X / (X + Y) of two draws from Gamma(alpha), each one from Gamma(alpha + 1) (Marsaglia, Tsang, "A simple
    /// method for generating gamma variables", 2000) times U^(1 / alpha). Only the logarithm of Y / X is made, so that a tiny
    /// alpha gives 0 or 1.
    ///
    /// # Panics
    /// If the length is 0.
    #[must_use]
    pub fn draw(&self, example: Example, length: usize) -> MixupPartner {
        assert!(length > 0, "there must be a partner");
        let draws = example.draws(Stream::Mixup);
        let position = (draws.unit(0) * length as f64) as usize;
        // 1 - u is never 0, so the logarithms are finite and their difference is a number
        let log = |position: u64| (1.0 - draws.unit(position)).ln();
        let gammas = log_gamma(draws, 6, self.alpha + 1.0) - log_gamma(draws, 3, self.alpha + 1.0);
        let share = 1.0 / (1.0 + (gammas + (log(2) - log(1)) / self.alpha).exp());
        MixupPartner { position: position.min(length - 1), share: share as f32 }
    }
}

/// The logarithm of a draw from Gamma(shape) for a shape of at least 1, up to a constant that depends on the shape only. Each
/// attempt reads three positions; the next one is six positions on, because two of these generators interleave.
fn log_gamma(draws: Draws, first: u64, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (3.0 * d.sqrt());
    let mut position = first;
    // more than 19 of 20 attempts are accepted
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

/// Blends another image into `own`, which keeps `share` of itself.
///
/// # Panics
/// If the images have different sizes.
pub fn blend<P: PixelValue>(own: &mut [P], other: &[P], share: f32) {
    assert_eq!(own.len(), other.len(), "the images must have one size");
    own.iter_mut().zip(other).for_each(|(own, other)| *own = own.blend(*other, share));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(alpha: f64, number: u64) -> Vec<f64> {
        let mixup = Mixup::new(alpha).expect("valid");
        let mut shares: Vec<f64> = (0..number)
            .map(|i| mixup.draw(Example { seed: 3, epoch: i % 10, example: i / 10 }, 7).share.into())
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
            // the share below a quantile, and above its mirror image
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
            let error = Mixup::new(alpha).expect_err("invalid").to_string();
            assert_eq!(error, format!("mixup_alpha = {alpha}: must be more than 0 and finite"));
        }
    }

    #[test]
    fn partners_are_uniform_and_repeat() {
        let mixup = Mixup::new(1.0).expect("valid");
        let draw = |seed, epoch, example, length| mixup.draw(Example { seed, epoch, example }, length);
        let mut seen = [0; 7];
        (0..7000).for_each(|example| seen[mixup.draw(Example { seed: 1, epoch: 2, example }, 7).position] += 1);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(draw(1, 2, 3, 7), draw(1, 2, 3, 7));
        for other in [draw(0, 2, 3, 7), draw(1, 3, 3, 7), draw(1, 2, 4, 7)] {
            assert_ne!(draw(1, 2, 3, 7).share, other.share);
        }
        assert_eq!(draw(1, 2, 3, 1).position, 0);
    }

    #[test]
    fn blends() {
        let mut own = [1.0, 2.0, -4.0];
        blend(&mut own, &[5.0, 2.0, 0.0], 0.25);
        assert_eq!(own, [4.0, 2.0, -1.0]);
        blend(&mut own, &[7.0, 8.0, 9.0], 1.0);
        assert_eq!(own, [4.0, 2.0, -1.0]);
        blend(&mut own, &[7.0, 8.0, 9.0], 0.0);
        assert_eq!(own, [7.0, 8.0, 9.0]);
    }
}
