//! The interval of a rate: Wilson's score interval.
//!
//! # Equation
//! ```text
//! (p + z^2/2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2/n),   p = hits / n,   z = 1.959964
//! ```
//!
//! Unlike p +- z sqrt(p (1 - p) / n) it is never empty at 0 or n hits and never leaves 0..=1, which is where the figures of rare classes are.
//!
//! # Paper
//! Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the American Statistical Association, 1927.

/// Quantile of the normal distribution at 97.5 %.
const Z: f64 = 1.959_963_984_540_054;

/// The interval that holds the true rate with a confidence of 95 %; `None` without trials.
///
/// # Panics
/// If there are more hits than trials.
#[must_use]
pub fn interval(hits: u64, trials: u64) -> Option<[f64; 2]> {
    assert!(hits <= trials, "{hits} hits of {trials}");
    interval_of_mean(hits as f64 / trials.max(1) as f64, trials)
}

/// The interval of a mean rate over several classifiers that were all tried on the same examples: more classifiers are not more trials, so
/// that the hits are their mean and need not be a whole number. `None` without trials.
///
/// # Panics
/// If the rate is not between 0 and 1.
#[must_use]
pub fn interval_of_mean(rate: f64, trials: u64) -> Option<[f64; 2]> {
    assert!((0.0..=1.0).contains(&rate), "a rate of {rate}");
    if trials == 0 {
        return None;
    }
    let (n, z2, p) = (trials as f64, Z * Z, rate);
    let center = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    // exact at the ends, where rounding would leave a crumb
    let low = if p == 0.0 { 0.0 } else { (center - half) / scale };
    let high = if p == 1.0 { 1.0 } else { (center + half) / scale };
    Some([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_forms_and_limits() {
        assert_eq!(interval(0, 0), None);
        let z2 = Z * Z;
        for n in [1u64, 5, 100] {
            // with no hit, the upper bound is z^2 / (n + z^2)
            let [low, high] = interval(0, n).expect("trials");
            assert!(low == 0.0 && (high - z2 / (n as f64 + z2)).abs() < 1e-12);
            let [low, high] = interval(n, n).expect("trials");
            assert!(high == 1.0 && (low - n as f64 / (n as f64 + z2)).abs() < 1e-12);
        }
        let [low, high] = interval(50, 100).expect("trials");
        assert!((low + high - 1.0).abs() < 1e-12, "symmetric at one half");
        // the bounds are where the score test just accepts: |p - q| = z sqrt(q (1 - q) / n)
        for (hits, n) in [(3u64, 10u64), (17, 40), (81, 263)] {
            let p = hits as f64 / n as f64;
            for q in interval(hits, n).expect("trials") {
                assert!(((p - q).abs() - Z * (q * (1.0 - q) / n as f64).sqrt()).abs() < 1e-12, "{hits} of {n}");
            }
        }
    }

    #[test]
    fn means_need_not_be_whole_hits() {
        // 13 and 11 hits of 3 x 5: the score test accepts both bounds, which lie on either side of those of 4 of 5
        let [[low, high], [below, above], [lower, upper]] =
            [13.0 / 15.0, 12.0 / 15.0, 11.0 / 15.0].map(|rate| interval_of_mean(rate, 5).expect("trials"));
        assert!(low > below && below > lower && high > above && above > upper);
        assert_eq!(interval(4, 5), Some([below, above]));
        for (rate, q) in [(13.0 / 15.0, low), (13.0 / 15.0, high), (11.0 / 15.0, lower), (11.0 / 15.0, upper)] {
            assert!(((rate - q).abs() - Z * (q * (1.0 - q) / 5.0).sqrt()).abs() < 1e-12);
        }
        assert_eq!(interval_of_mean(0.5, 0), None);
    }

    #[test]
    #[should_panic(expected = "a rate of 1.5")]
    fn rates_beyond_one() {
        let _ = interval_of_mean(1.5, 2);
    }

    #[test]
    fn published_example() {
        // Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 1998, table I, method 3
        for (hits, n, want) in [(81, 263, [0.2553, 0.3662]), (15, 148, [0.0624, 0.1605]), (0, 20, [0.0, 0.1611])] {
            let got = interval(hits, n).expect("trials");
            assert!(got.iter().zip(want).all(|(got, want): (&f64, f64)| (got - want).abs() < 5e-5), "{got:?}");
        }
    }

    #[test]
    #[should_panic(expected = "3 hits of 2")]
    fn more_hits_than_trials() {
        let _ = interval(3, 2);
    }
}
