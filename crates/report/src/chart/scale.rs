//! Scales from numbers to coordinates, and the round numbers on them.

use super::numbers::significant;

/// How a scale maps numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleKind {
    /// In proportion to x.
    Linear,
    /// In proportion to ln x.
    Log,
    /// In proportion to ln(1 + x): a logarithm that includes 0.
    Log1p,
}

impl ScaleKind {
    /// Name that the page's script uses.
    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
            Self::Log1p => "log1p",
        }
    }

    fn apply(self, x: f64) -> f64 {
        match self {
            Self::Linear => x,
            Self::Log => x.max(1e-300).ln(),
            Self::Log1p => x.max(0.0).ln_1p(),
        }
    }
}

/// A mapping of the numbers from `low` to `high` to the coordinates from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    pub(crate) fn new(kind: ScaleKind, (low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self { kind, low, high, from, to }
    }

    /// Coordinate of a number. Numbers outside of the scale are placed at its ends, NaN at the start.
    pub(crate) fn position(&self, x: f64) -> f64 {
        let (low, high) = (self.kind.apply(self.low), self.kind.apply(self.high));
        let share = if high > low { (self.kind.apply(x) - low) / (high - low) } else { 0.5 };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.from + share * (self.to - self.from)
    }

    /// Round numbers on the scale, at most `max`, but at least two where the scale has them.
    pub(crate) fn ticks(&self, max: usize) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => {
                let step = round_step(self.high - self.low, max);
                let first = (self.low / step - 1e-9).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).take(100).map(|k| without_noise(k as f64 * step)).collect()
            }
            ScaleKind::Log => self.log_ticks(max),
            ScaleKind::Log1p => {
                let last = self.high.max(1.0).log10().floor() as i32;
                let decades = thinned((0..=last).map(|k| 10f64.powi(k)).collect(), max.saturating_sub(1));
                std::iter::once(0.0).chain(decades).filter(|x| *x <= self.high).collect()
            }
        }
    }

    /// Powers of ten; on a scale with fewer than three of them also numbers between.
    fn log_ticks(&self, max: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let is_inside = |x: &f64| (self.low * 0.999..=self.high * 1.001).contains(x);
        let multiples = |factors: &[f64]| -> Vec<f64> {
            let all = (first..=last).flat_map(|k| factors.iter().map(move |f| without_noise(f * 10f64.powi(k))));
            all.filter(is_inside).collect()
        };
        let decades = multiples(&[1.0]);
        if decades.len() >= 3 {
            return thinned(decades, max);
        }
        let candidates = [multiples(&[1.0, 2.0, 5.0]), multiples(&[1.0, 3.0]), decades];
        candidates.into_iter().find(|ticks| ticks.len() <= max).unwrap_or_default()
    }

    /// The scale as the page's script reads it.
    pub(super) fn attribute(&self) -> String {
        format!("{} {} {}", self.kind.name(), self.low, self.high)
    }
}

/// Every n-th tick, so that at most `max` are left.
fn thinned(ticks: Vec<f64>, max: usize) -> Vec<f64> {
    let every = ticks.len().div_ceil(max.max(1)).max(1);
    ticks.into_iter().step_by(every).collect()
}

/// Removes noise of binary fractions: 0.3 rather than 0.30000000000000004.
fn without_noise(x: f64) -> f64 {
    significant(x, 12)
}

/// The smallest of 1, 2 and 5 times a power of ten that divides a span into fewer than `max` parts.
fn round_step(span: f64, max: usize) -> f64 {
    let span = if span.is_finite() && span > 0.0 { span } else { 1.0 };
    let rough = span / (max.max(2) - 1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Round ends for an axis that shows these numbers.
pub(crate) fn axis_range(kind: ScaleKind, numbers: impl IntoIterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    // an axis up to the largest float would have no ticks
    let is_usable = |x: &f64| x.abs() <= 1e100 && (kind != ScaleKind::Log || *x >= 1e-100);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for x in numbers.into_iter().filter(is_usable) {
        (low, high) = (low.min(x), high.max(x));
    }
    if low > high {
        return if kind == ScaleKind::Log { (0.1, 10.0) } else { (0.0, 1.0) };
    }
    match kind {
        ScaleKind::Log => log_range(low, high),
        ScaleKind::Log1p => (0.0, high.max(1.0)),
        ScaleKind::Linear if from_zero => linear_range(low.min(0.0), high.max(0.0)),
        ScaleKind::Linear => linear_range(low, high),
    }
}

fn log_range(low: f64, high: f64) -> (f64, f64) {
    let decade = |x: f64| 10f64.powf((x.log10() + 1e-9).floor());
    let (below, above) = (decade(low), decade(high));
    let under = [5.0, 2.0, 1.0].into_iter().map(|f| f * below).find(|x| *x <= low * 1.000_001);
    let over = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * above).find(|x| *x >= high * 0.999_999);
    let (low, high) = (without_noise(under.unwrap_or(below)), without_noise(over.unwrap_or(high)));
    if low < high { (low, high) } else { (without_noise(low / 2.0), without_noise(high * 2.0)) }
}

fn linear_range(low: f64, high: f64) -> (f64, f64) {
    let step = round_step(high - low, 5);
    let (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
    let (low, high) = (without_noise(low), without_noise(high));
    if low < high { (low, high) } else { (low, low + step) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let linear = |low, high| Scale::new(ScaleKind::Linear, (low, high), (0.0, 100.0)).ticks(6);
        assert_eq!(linear(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(1.0, 30.0), [10.0, 20.0, 30.0]);
        assert_eq!(linear(0.0, 0.3), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(linear(5.0, 5.0).len(), 1);
        let log = |low, high| Scale::new(ScaleKind::Log, (low, high), (0.0, 100.0)).ticks(5);
        assert_eq!(log(0.001, 10.0), [0.001, 0.01, 0.1, 1.0, 10.0]);
        assert_eq!(log(0.1, 1.0), [0.1, 0.2, 0.5, 1.0]);
        assert_eq!(log(1.0, 1e9), [1.0, 100.0, 1e4, 1e6, 1e8]);
        assert_eq!(Scale::new(ScaleKind::Log1p, (0.0, 700.0), (0.0, 1.0)).ticks(5), [0.0, 1.0, 10.0, 100.0]);
    }

    #[test]
    fn ranges_are_round_and_hold_everything() {
        assert_eq!(axis_range(ScaleKind::Linear, [0.2, 2.31], true), (0.0, 3.0));
        assert_eq!(axis_range(ScaleKind::Linear, [], true), (0.0, 1.0));
        assert_eq!(axis_range(ScaleKind::Linear, [f64::NAN, 4.0], false), (4.0, 4.5));
        assert_eq!(axis_range(ScaleKind::Log, [0.0, 0.001, 0.07], false), (0.001, 0.1));
        assert_eq!(axis_range(ScaleKind::Log, [f64::MAX, 1.0, 1e-300, f64::INFINITY, 10.0], false), (1.0, 10.0));
        assert_eq!(axis_range(ScaleKind::Log, [1.0], false), (0.5, 2.0));
        assert_eq!(axis_range(ScaleKind::Log, [3.0, 110.0], false), (2.0, 200.0));
        assert_eq!(axis_range(ScaleKind::Log1p, [5.0], false), (0.0, 5.0));
    }

    #[test]
    fn numbers_outside_are_placed_at_the_ends() {
        let scale = Scale::new(ScaleKind::Log, (1.0, 100.0), (10.0, 110.0));
        assert_eq!([1.0, 10.0, 100.0, 1e9, 0.0].map(|x| scale.position(x).round()), [10.0, 60.0, 110.0, 110.0, 10.0]);
        assert_eq!(scale.position(f64::NAN), 10.0);
        assert_eq!(Scale::new(ScaleKind::Linear, (3.0, 3.0), (0.0, 10.0)).position(3.0), 5.0);
    }
}
