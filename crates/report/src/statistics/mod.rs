//! Means, standard deviations and confidence intervals of a handful of runs, and how they are rounded.

mod student;
#[cfg(test)]
mod tests;

/// Fewest runs that allow an interval: two that happen to agree would seem certain.
pub const FEWEST_RUNS: usize = 3;

/// Degrees of freedom with which Student's distribution is the normal one.
const NORMAL: f64 = 1e6;

/// Mean and standard deviation of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation; `None` for a single value.
    pub sd: Option<f64>,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// Mean and standard deviation of some values; `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let sd = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        (count > 0).then_some(Self { mean, sd, count })
    }

    /// Mean and standard deviation of values that come with their seeds.
    pub(crate) fn over_seeds(values: &[(u64, f64)]) -> Option<Self> {
        Self::of(&values.iter().map(|(_, x)| *x).collect::<Vec<_>>())
    }
}

/// Difference between the means of two sets of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Mean of the first set minus mean of the second.
    pub mean: f64,
    /// Half the width of the confidence interval around the mean; `None` with fewer than three pairs of runs, or three
    /// runs on each side that are not paired.
    pub half_width: Option<f64>,
    /// Number of pairs of runs with the same seed; 0 if the runs were not paired.
    pub pairs: usize,
}

impl Difference {
    /// Compares runs, given as seeds and values. Runs with the same seed are paired. If fewer than three seeds are
    /// shared but both sets have at least three runs, they are compared without pairing (Welch). `error` is the
    /// probability that an interval misses the true difference.
    #[must_use]
    pub fn of(first: &[(u64, f64)], second: &[(u64, f64)], error: f64) -> Option<Self> {
        let (first, second) = (&first_per_seed(first), &first_per_seed(second));
        let partner = |seed: u64| second.iter().find(|(s, _)| *s == seed).map(|(_, x)| *x);
        let pairs: Vec<f64> = first.iter().filter_map(|(seed, x)| partner(*seed).map(|y| x - y)).collect();
        if pairs.len() < FEWEST_RUNS
            && let (Some(a), Some(b)) = (Spread::over_seeds(first), Spread::over_seeds(second))
            && let Some(unpaired) = Self::welch(a, b, error)
        {
            return Some(unpaired);
        }
        if let Some(spread) = Spread::of(&pairs) {
            let n = pairs.len();
            let sd = spread.sd.filter(|_| n >= FEWEST_RUNS);
            let half = sd.map(|sd| student::quantile(1.0 - error / 2.0, (n - 1) as f64) * sd / (n as f64).sqrt());
            return Some(Self { mean: spread.mean, half_width: half, pairs: n });
        }
        let (a, b) = (Spread::over_seeds(first)?, Spread::over_seeds(second)?);
        Some(Self { mean: a.mean - b.mean, half_width: None, pairs: 0 })
    }

    /// Welch's interval for two independent sets; `None` if one has too few values.
    fn welch(a: Spread, b: Spread, error: f64) -> Option<Self> {
        if a.count.min(b.count) < FEWEST_RUNS {
            return None;
        }
        let (sd_a, sd_b) = (a.sd?, b.sd?);
        let (va, vb) = (sd_a.powi(2) / a.count as f64, sd_b.powi(2) / b.count as f64);
        let below = va.powi(2) / (a.count - 1) as f64 + vb.powi(2) / (b.count - 1) as f64;
        let freedom = if below > 0.0 { (va + vb).powi(2) / below } else { (a.count + b.count - 2) as f64 };
        let half = student::quantile(1.0 - error / 2.0, freedom) * (va + vb).sqrt();
        Some(Self { mean: a.mean - b.mean, half_width: Some(half), pairs: 0 })
    }

    /// Widens the interval by an independent error with this standard error, normally distributed.
    #[must_use]
    pub fn with_error(self, standard_error: f64, error: f64) -> Self {
        let own = student::quantile(1.0 - error / 2.0, NORMAL) * standard_error;
        Self { half_width: self.half_width.map(|half| half.hypot(own)), ..self }
    }

    /// Widens the interval to at least `half` on each side.
    #[must_use]
    pub fn at_least(self, half: f64) -> Self {
        Self { half_width: self.half_width.map(|own| own.max(half)), ..self }
    }

    /// Whether the interval excludes 0 by more than rounding could.
    #[must_use]
    pub fn distinguishable(&self) -> bool {
        self.half_width.is_some_and(|half| self.mean.abs() > half + 1e-9)
    }
}

/// A percentage with one decimal. Halves round away from zero whatever their binary form: 97.65 is 97.7, as 97.95 is
/// 98.0.
#[must_use]
pub fn tenths(x: f64) -> String {
    format!("{:.1}", nudge_from_zero(x))
}

/// A difference with its sign and one decimal; 0.0 has no sign.
pub(crate) fn signed(x: f64) -> String {
    let text = format!("{:+.1}", nudge_from_zero(x));
    if matches!(text.as_str(), "-0.0" | "+0.0") { "0.0".to_owned() } else { text }
}

/// Moves a number away from zero by so little that only decimal halves are affected.
fn nudge_from_zero(x: f64) -> f64 {
    x + f64::copysign(1e-9, x)
}

/// Keeps the first value of every seed: a second run with the same seed adds no information.
fn first_per_seed(runs: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let mut kept: Vec<(u64, f64)> = Vec::new();
    for (seed, value) in runs {
        if !kept.iter().any(|(known, _)| known == seed) {
            kept.push((*seed, *value));
        }
    }
    kept
}
