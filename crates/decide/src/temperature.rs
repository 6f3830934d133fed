//! Calibration by one temperature.
//!
//! # Equation
//! ```text
//! T = argmin_T  n L(T) + w (1/T - 1 + ln T),   L(T) = sum_c 1/C sum_{i: y_i = c} 1/n_c  -ln softmax(z_i / T + o)_{y_i}
//! n = C^2 / sum_c 1/n_c,   w = 2
//! ```
//!
//! # Symbols
//! z_i are the logits of image i and y_i its class, n_c the images of class c and C the classes that have any. o_c = -ln pi_c, where pi is the
//! prior that the logits assume: the loss is that of probabilities for equally frequent classes, so every class counts as much as any other.
//! n is the number of equally weighted images that would tell as much (Kish's effective sample size); it is the number of images for equally
//! many per class.
//!
//! The second term is a prior of the temperature, 1/T ~ Gamma(1 + w, w), with its mode at T = 1: near there it is w (ln T)^2 / 2, as if ln T
//! had a standard deviation of 1/sqrt(w) = 0.7 around 0. It weighs as much as about w images. Hundreds of images leave little of it, few
//! hardly move T, and images that are all classified correctly do not drive T to 0. The sum is convex in 1/T.
//!
//! # Paper
//! Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, <https://arxiv.org/abs/1706.04599>. Class-balanced
//! weights because the validation images of a long-tailed set are almost all of frequent classes. Effective sample size: Kish, "Survey
//! Sampling", Wiley 1965.
//!
//! # Reduces to
//! The temperature of Guo et al. for equally many images per class, many of them.

use crate::rows::Logits;

/// Smallest and largest temperature that are considered. Networks that were trained with a usual loss have temperatures of 0.5 to 5.
pub const RANGE: [f64; 2] = [0.1, 10.0];

/// Images below which no temperature is fitted. The standard error of ln T is about 1/sqrt(n), that is 22 % of T with 20 images: with fewer,
/// a temperature is as likely to harm as to help.
pub const FEWEST_IMAGES: usize = 20;

/// Weight of the prior, in images.
const PRIOR_WEIGHT: f64 = 2.0;

/// A temperature, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// The minimum of the loss.
    Fitted(f64),
    /// An end of [`RANGE`]: the minimum lies beyond it.
    AtBound(f64),
    /// There are fewer than [`FEWEST_IMAGES`], and the temperature stays 1.
    TooFewImages,
}

impl Fit {
    /// The temperature.
    #[must_use]
    pub fn temperature(self) -> f64 {
        match self {
            Self::Fitted(temperature) | Self::AtBound(temperature) => temperature,
            Self::TooFewImages => 1.0,
        }
    }
}

/// The temperature of logits, unless they are too few.
///
/// `offsets` has a number for each class, or none for zeros. Rows that are not finite are left out.
///
/// # Panics
/// If the offsets are neither empty nor one per class.
#[must_use]
pub fn fit(logits: &Logits<'_>, offsets: &[f64]) -> Fit {
    assert!(offsets.is_empty() || offsets.len() == logits.classes(), "one offset per class");
    match finite_rows(logits).count() < FEWEST_IMAGES {
        true => Fit::TooFewImages,
        false => minimize(logits, offsets, PRIOR_WEIGHT),
    }
}

fn finite_rows<'a>(logits: &Logits<'a>) -> impl Iterator<Item = (&'a [f32], usize)> + use<'a> {
    logits.rows().filter(|(row, _)| row.iter().all(|z| z.is_finite()))
}

/// The temperature with a prior of some weight, for at least one finite row.
fn minimize(logits: &Logits<'_>, offsets: &[f64], prior_weight: f64) -> Fit {
    // the derivative of prior and loss by 1/T; both are convex in 1/T, so that it has one change of sign, which halving finds
    let relative_weight = prior_weight / effective_images(logits);
    let derivative = |log: f64| slope(logits, offsets, (-log).exp()) + relative_weight * (1.0 - log.exp());
    let [mut cold, mut hot] = RANGE.map(f64::ln);
    if derivative(cold) <= 0.0 {
        return Fit::AtBound(RANGE[0]);
    }
    if derivative(hot) >= 0.0 {
        return Fit::AtBound(RANGE[1]);
    }
    for _ in 0..60 {
        let middle = 0.5 * (cold + hot);
        match derivative(middle) > 0.0 {
            true => cold = middle,
            false => hot = middle,
        }
    }
    Fit::Fitted((0.5 * (cold + hot)).exp())
}

/// Kish's effective number of images when every class has the same weight.
fn effective_images(logits: &Logits<'_>) -> f64 {
    let mut counts = vec![0u64; logits.classes()];
    finite_rows(logits).for_each(|(_, label)| counts[label] += 1);
    let counts: Vec<f64> = counts.into_iter().filter(|n| *n > 0).map(|n| n as f64).collect();
    (counts.len() as f64).powi(2) / counts.iter().map(|n| 1.0 / n).sum::<f64>()
}

/// Derivative of the class-balanced log-loss by 1/T: the mean over classes of the mean of `E_p[z] - z_y`.
fn slope(logits: &Logits<'_>, offsets: &[f64], inverse: f64) -> f64 {
    let mut sums = vec![(0.0, 0u64); logits.classes()];
    let mut powers = vec![0.0; logits.classes()];
    for (row, label) in finite_rows(logits) {
        for (class, (power, z)) in powers.iter_mut().zip(row).enumerate() {
            *power = inverse * f64::from(*z) + offsets.get(class).copied().unwrap_or(0.0);
        }
        let largest = powers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut mass, mut mean) = (0.0, 0.0);
        for (power, z) in powers.iter().zip(row) {
            let p = (power - largest).exp();
            mass += p;
            mean += p * f64::from(*z);
        }
        let (sum, images) = &mut sums[label];
        *sum += mean / mass - f64::from(row[label]);
        *images += 1;
    }
    let means: Vec<f64> = sums.iter().filter(|(_, n)| *n > 0).map(|(sum, n)| sum / *n as f64).collect();
    means.iter().sum::<f64>() / means.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The temperature of maximum likelihood.
    fn without_prior(logits: &Logits<'_>) -> f64 {
        minimize(logits, &[], 0.0).temperature()
    }

    /// Two classes with logit differences of +-d, of which `hits` of `images` are on the right side.
    fn two_classes(d: f32, hits: usize, images: usize) -> (Vec<f32>, Vec<u32>) {
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for label in 0..2u32 {
            for i in 0..images {
                values.extend(if (i < hits) == (label == 0) { [d, 0.0] } else { [0.0, d] });
                labels.push(label);
            }
        }
        (values, labels)
    }

    #[test]
    fn two_classes_have_a_closed_form() {
        for (d, hits, images) in [(3.0f32, 8, 10), (0.5, 3, 4), (7.0, 19, 20)] {
            let (values, labels) = two_classes(d, hits, images);
            let logits = Logits::new(&values, &labels, 2);
            // without a prior, softmax(d / T) = q
            let q = hits as f64 / images as f64;
            let want = f64::from(d) / (q / (1.0 - q)).ln();
            let got = without_prior(&logits);
            assert!((got / want - 1.0).abs() < 1e-9, "{got} instead of {want}");
            // with it, n d (softmax(d / T) - q) = w (T - 1)
            let Fit::Fitted(t) = minimize(&logits, &[], PRIOR_WEIGHT) else { panic!("inside of the range") };
            let (n, d) = (labels.len() as f64, f64::from(d));
            let softmax = 1.0 / (1.0 + (-d / t).exp());
            assert!((n * d * (softmax - q) - PRIOR_WEIGHT * (t - 1.0)).abs() < 1e-9, "{t}");
            assert!((t - 1.0).abs() < (got - 1.0).abs() && (t > 1.0) == (got > 1.0), "{t} is between 1 and {got}");
        }
    }

    #[test]
    fn the_prior_fades_with_the_images() {
        let relative = |images: usize| {
            let (values, labels) = two_classes(6.0, images * 9 / 10, images);
            let logits = Logits::new(&values, &labels, 2);
            (fit(&logits, &[]).temperature() / without_prior(&logits) - 1.0).abs()
        };
        let few = relative(10);
        assert!(few < 0.15 && relative(250) < 0.01 && relative(5000) < 5e-4, "{few}, {}", relative(250));
        // in proportion to 1/n
        assert!((relative(1000) / relative(5000) - 5.0).abs() < 0.05);
    }

    #[test]
    fn every_class_counts_the_same() {
        let values = [2.0f32, 0.0, 0.0, 2.0, 0.0, 2.0, 2.0, 0.0];
        let labels = [0u32, 0, 1, 1];
        let once = without_prior(&Logits::new(&values, &labels, 2));
        // a hundred copies of the images of the first class change nothing
        let many: Vec<f32> = values[..4].repeat(100).into_iter().chain(values[4..].to_vec()).collect();
        let many_labels: Vec<u32> = [vec![0; 200], vec![1; 2]].concat();
        let logits = Logits::new(&many, &many_labels, 2);
        assert!((once / without_prior(&logits) - 1.0).abs() < 1e-9);
        // and tell little, as long as there are two of the other class
        assert!((effective_images(&logits) - 4.0 / (1.0 / 200.0 + 1.0 / 2.0)).abs() < 1e-12);
        let (values, labels) = two_classes(1.0, 3, 7);
        assert!((effective_images(&Logits::new(&values, &labels, 2)) - 14.0).abs() < 1e-12);
    }

    #[test]
    fn few_images_are_not_fitted() {
        assert_eq!(fit(&Logits::new(&[], &[], 3), &[]), Fit::TooFewImages);
        let (values, labels) = two_classes(4.0, 7, 10);
        assert!(matches!(fit(&Logits::new(&values, &labels, 2), &[]), Fit::Fitted(_)));
        assert_eq!(fit(&Logits::new(&values[2..], &labels[1..], 2), &[]), Fit::TooFewImages);
        // rows that are not finite do not count
        let mut broken = values.clone();
        broken[5] = f32::NAN;
        assert_eq!(fit(&Logits::new(&broken, &labels, 2), &[]), Fit::TooFewImages);
        assert_eq!(Fit::TooFewImages.temperature(), 1.0);
    }

    #[test]
    fn images_that_are_all_right_or_all_wrong() {
        // right: d n (1 - softmax(d / T)) = w (1 - T) has a solution that falls slowly with n
        let right = |n: usize| {
            let (values, labels) = two_classes(3.0, n, n);
            fit(&Logits::new(&values, &labels, 2), &[]).temperature()
        };
        let temperatures = [10, 100, 1000].map(right);
        assert!(temperatures.is_sorted_by(|a, b| a > b), "{temperatures:?}");
        assert!(temperatures[0] < 0.9 && temperatures[2] > 0.3, "{temperatures:?}");
        // without a prior it would be as low as the range allows
        let (values, labels) = two_classes(3.0, 10, 10);
        let logits = Logits::new(&values, &labels, 2);
        assert_eq!(minimize(&logits, &[], 0.0), Fit::AtBound(RANGE[0]));
        // wrong: the loss is lowest for T without bounds
        let (values, labels) = two_classes(3.0, 0, 100);
        assert_eq!(fit(&Logits::new(&values, &labels, 2), &[]), Fit::AtBound(RANGE[1]));
    }
}
