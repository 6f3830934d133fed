//! Means, spreads and intervals of a handful of runs.

/// A mean, and how far single values are from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation; `None` for a single value.
    pub sd: Option<f64>,
    /// Values behind it.
    pub number: usize,
}

impl Spread {
    /// Of some values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let number = values.len();
        let mean = values.iter().sum::<f64>() / number as f64;
        let squares = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let sd = (number > 1).then(|| (squares / (number - 1) as f64).sqrt());
        (number > 0).then_some(Self { mean, sd, number })
    }
}

/// How two sets of runs differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Mean of the first less mean of the second.
    pub mean: f64,
    /// Half the width of the interval around it; `None` where a single pair of runs allows none.
    pub half: Option<f64>,
    /// Pairs behind it; 0 if the runs have no seeds in common and were not paired.
    pub pairs: usize,
}

impl Difference {
    /// Of runs with these seeds and values. Runs with the same seed are pairs; where fewer than two seeds are shared but both
    /// have two runs or more, they are compared unpaired (Welch). `error` is the share of such intervals that miss the truth.
    #[must_use]
    pub fn of(first: &[(u64, f64)], second: &[(u64, f64)], error: f64) -> Option<Self> {
        let (first, second) = (&once(first), &once(second));
        let other = |seed: u64| second.iter().find(|(s, _)| *s == seed).map(|(_, x)| *x);
        let pairs: Vec<f64> = first.iter().filter_map(|(seed, x)| other(*seed).map(|y| x - y)).collect();
        let all = |runs: &[(u64, f64)]| Spread::of(&runs.iter().map(|(_, x)| *x).collect::<Vec<_>>());
        if pairs.len() < 2
            && let (Some(a), Some(b)) = (all(first), all(second))
            && let (Some(sd_a), Some(sd_b)) = (a.sd, b.sd)
        {
            let (va, vb) = (sd_a.powi(2) / a.number as f64, sd_b.powi(2) / b.number as f64);
            let below = va.powi(2) / (a.number - 1) as f64 + vb.powi(2) / (b.number - 1) as f64;
            let freedom = if below > 0.0 { (va + vb).powi(2) / below } else { (a.number + b.number - 2) as f64 };
            let half = quantile(1.0 - error / 2.0, freedom) * (va + vb).sqrt();
            return Some(Self { mean: a.mean - b.mean, half: Some(half), pairs: 0 });
        }
        if let Some(spread) = Spread::of(&pairs) {
            let n = pairs.len();
            let half = spread.sd.map(|sd| quantile(1.0 - error / 2.0, (n - 1) as f64) * sd / (n as f64).sqrt());
            return Some(Self { mean: spread.mean, half, pairs: n });
        }
        let (a, b) = (all(first)?, all(second)?);
        Some(Self { mean: a.mean - b.mean, half: None, pairs: 0 })
    }

    /// With an interval that is at least so wide to each side.
    #[must_use]
    pub fn at_least(self, half: f64) -> Self {
        Self { half: self.half.map(|own| own.max(half)), ..self }
    }

    /// Whether the interval leaves 0 out, by more than rounding could do.
    #[must_use]
    pub fn distinguishable(&self) -> bool {
        self.half.is_some_and(|half| self.mean.abs() > half + 1e-9)
    }
}

/// A percentage with one decimal. A half goes up whatever its binary form: 97.65 is 97.7, as 97.95 is 98.0.
#[must_use]
pub fn tenths(x: f64) -> String {
    format!("{:.1}", settled(x))
}

/// A number so little away from zero that its decimal halves round one way.
fn settled(x: f64) -> f64 {
    x + f64::copysign(1e-9, x)
}

/// A difference with its sign and one decimal; what rounds to nothing has none.
pub(crate) fn signed(x: f64) -> String {
    let text = format!("{:+.1}", settled(x));
    if matches!(text.as_str(), "-0.0" | "+0.0") { "0.0".to_owned() } else { text }
}

/// The first value of every seed: a second one would be the same run again.
fn once(runs: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let mut kept: Vec<(u64, f64)> = Vec::new();
    for (seed, value) in runs {
        if !kept.iter().any(|(known, _)| known == seed) {
            kept.push((*seed, *value));
        }
    }
    kept
}

/// The number below which Student's t with so many degrees of freedom lies with this probability, which is at least 1/2.
#[must_use]
pub fn quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while below(high, freedom) < probability && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if below(middle, freedom) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Probability that Student's t is less than t, for t >= 0.
fn below(t: f64, freedom: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // the fraction converges fast on this side of the mean only
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    // Lentz's method
    let safe = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / safe(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            value *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * value
}

/// ln of the gamma function for x > 0: Stirling's series after raising x.
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let s = 1.0 / (x * x);
    let series = (1.0 / 12.0 - s * (1.0 / 360.0 - s * (1.0 / 1260.0 - s * (1.0 / 1680.0 - s / 1188.0)))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got}, not {want}");
    }

    /// Halves go away from zero, though some are a little less in binary.
    #[test]
    fn decimal_halves() {
        for (x, want) in [(97.65, "97.7"), (97.95, "98.0"), (16.95, "17.0"), (97.649, "97.6"), (0.0, "0.0")] {
            assert_eq!(tenths(x), want);
        }
        assert_eq!([signed(-0.35), signed(0.45), signed(-0.04)], ["-0.4", "+0.5", "0.0"]);
    }

    /// From printed tables of Student's distribution.
    #[test]
    fn quantiles_of_student() {
        for (probability, freedom, want) in [
            (0.975, 1.0, 12.706_205),
            (0.975, 2.0, 4.302_653),
            (0.975, 4.0, 2.776_445),
            (0.975, 9.0, 2.262_157),
            (0.975, 30.0, 2.042_272),
            (0.995, 2.0, 9.924_843),
            (0.95, 5.0, 2.015_048),
            (0.975, 1e6, 1.959_966),
        ] {
            near(quantile(probability, freedom), want, 2e-6);
        }
        near(quantile(0.5, 3.0), 0.0, 1e-9);
        // tan(pi (p - 1/2)) for one degree of freedom
        near(quantile(0.9, 1.0), (std::f64::consts::PI * 0.4).tan(), 1e-9);
    }

    #[test]
    fn gamma_of_integers_and_halves() {
        for (x, want) in [(1.0, 0.0), (2.0, 0.0), (5.0, 24f64.ln()), (0.5, std::f64::consts::PI.sqrt().ln())] {
            near(ln_gamma(x), want, 1e-12);
        }
    }

    #[test]
    fn spread_by_hand() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0]), Some(Spread { mean: 3.0, sd: None, number: 1 }));
        assert_eq!(Spread::of(&[1.0, 2.0, 6.0]), Some(Spread { mean: 3.0, sd: Some(7f64.sqrt()), number: 3 }));
    }

    #[test]
    fn runs_with_the_same_seed_are_pairs() {
        let first = [(0, 50.0), (1, 60.0), (2, 70.0)];
        let second = [(2, 66.0), (0, 45.0), (1, 54.0), (9, 0.0)];
        let difference = Difference::of(&first, &second, 0.05).expect("three pairs");
        // 5, 6, 4: mean 5, sd 1
        near(difference.mean, 5.0, 1e-12);
        near(difference.half.expect("an interval"), 4.302_653 / 3f64.sqrt(), 1e-5);
        assert_eq!(difference.pairs, 3);
        assert!(difference.distinguishable());
        // the same runs unpaired could not tell
        let moved = [(10, 66.0), (11, 45.0), (12, 54.0)];
        let welch = Difference::of(&first, &moved, 0.05).expect("both have a spread");
        near(welch.mean, 5.0, 1e-12);
        assert_eq!(welch.pairs, 0);
        // SciPy: ttest_ind(first, moved, equal_var=False).confidence_interval() is 5 -+ 23.309627758300486
        near(welch.half.expect("an interval"), 23.309_627_758_3, 1e-9);
        assert!(!welch.distinguishable());
    }

    #[test]
    fn single_runs_allow_no_interval() {
        let one = Difference::of(&[(0, 3.0)], &[(0, 1.0)], 0.05).expect("a pair");
        assert_eq!(one, Difference { mean: 2.0, half: None, pairs: 1 });
        let apart = Difference::of(&[(0, 3.0)], &[(1, 1.0)], 0.05).expect("a difference");
        assert_eq!(apart, Difference { mean: 2.0, half: None, pairs: 0 });
        assert!(!one.distinguishable() && !apart.distinguishable());
        assert_eq!(Difference::of(&[], &[(1, 1.0)], 0.05), None);
        // one seed twice is one seed
        let twice = Difference::of(&[(0, 3.0), (0, 3.0)], &[(0, 1.0)], 0.05).expect("a pair");
        assert_eq!(twice, one);
        // equal runs differ by nothing, for sure; which is no difference
        let same = Difference::of(&[(0, 1.0), (1, 2.0)], &[(0, 1.0), (1, 2.0)], 0.05).expect("two pairs");
        assert_eq!((same.mean, same.half, same.distinguishable()), (0.0, Some(0.0), false));
    }
}
