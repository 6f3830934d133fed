//! Prediction sets: all classes that an image may well belong to, of which one is the true one with a given probability.
//!
//! # Equation
//! ```text
//! set(x) = { y : p_y(x) >= q_y },   q_y = the k-th smallest p_y of the calibration images of class y,   k = floor(alpha (n_y + 1))
//! ```
//!
//! # Symbols
//! p are probabilities for equally frequent classes, n_y the calibration images of class y, alpha the share of images whose set may miss their
//! class. The most probable class is always in the set, which can only help.
//!
//! A class with at least ceil(1/alpha) - 1 calibration images has k >= 1, and its images get sets that hold it with a probability of at least
//! 1 - alpha ([`Guarantee::Class`]), whatever the shares of the classes. Smaller classes share one threshold; then the promise holds for a
//! random image of all of them together ([`Guarantee::Pooled`]). If even those are too few, the threshold is that of all calibration
//! images ([`Guarantee::All`]).
//!
//! # Paper
//! Vovk, "Conditional Validity of Inductive Conformal Predictors", ACML 2012, <https://arxiv.org/abs/1209.2673>; Sadinle, Lei, Wasserman, "Least
//! Ambiguous Set-Valued Classifiers with Bounded Error Levels", JASA 2019, <https://arxiv.org/abs/1609.00451>.

/// For which images the sets hold the true class with the given probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// For images of the class itself.
    Class,
    /// For images of all classes together that have too few calibration images of their own.
    Pooled,
    /// For images of all classes together.
    All,
}

impl Guarantee {
    /// The word for it in tables and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Pooled => "pooled",
            Self::All => "all",
        }
    }
}

/// Thresholds of the probabilities, by class.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionSets {
    thresholds: Vec<f64>,
    guarantees: Vec<Guarantee>,
}

/// Calibration images that a threshold needs: ceil(1/alpha) - 1.
#[must_use]
pub fn fewest_images(alpha: f64) -> usize {
    // 1/0.1 is 10, not a little more
    ((1.0 / alpha - 1e-9).ceil() as usize).saturating_sub(1)
}

impl PredictionSets {
    /// Sets that miss the class of at most a share `alpha` of the images. `probabilities` has, for every calibration image, its label and the
    /// probability of that label for equally frequent classes. `None` if there are fewer images than [`fewest_images`].
    ///
    /// # Panics
    /// If a label is not one of the classes.
    #[must_use]
    pub fn new(probabilities: &[(u32, f64)], classes: usize, alpha: f64) -> Option<Self> {
        let needed = fewest_images(alpha);
        if probabilities.len() < needed {
            return None;
        }
        let mut by_class = vec![Vec::new(); classes];
        probabilities.iter().for_each(|(label, p)| by_class[*label as usize].push(*p));
        let small = || by_class.iter().filter(|images| images.len() < needed);
        let pooled: Vec<f64> = small().flatten().copied().collect();
        let (shared, guarantee) = match pooled.len() < needed {
            false => (threshold(pooled, alpha), Guarantee::Pooled),
            true => (threshold(probabilities.iter().map(|(_, p)| *p).collect(), alpha), Guarantee::All),
        };
        let of = |images: &Vec<f64>| match images.len() < needed {
            true => (shared, guarantee),
            false => (threshold(images.clone(), alpha), Guarantee::Class),
        };
        let (thresholds, guarantees) = by_class.iter().map(of).unzip();
        Some(Self { thresholds, guarantees })
    }

    /// The promise for each class.
    #[must_use]
    pub fn guarantees(&self) -> &[Guarantee] {
        &self.guarantees
    }

    /// The classes in the set of an image with these probabilities for equally frequent classes, the most probable first.
    #[must_use]
    pub fn set(&self, probabilities: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]).then(a.cmp(b)));
        let most_probable = order.first().copied();
        order.retain(|class| Some(*class) == most_probable || probabilities[*class] >= self.thresholds[*class]);
        order
    }
}

/// The k-th smallest of n numbers, k = floor(alpha (n + 1)), which is at least 1.
fn threshold(mut numbers: Vec<f64>, alpha: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let k = (alpha * (numbers.len() + 1) as f64 + 1e-9).floor() as usize;
    numbers.get(k.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_images_are_needed() {
        assert_eq!([0.1, 0.05, 0.2, 0.5, 0.3, 0.01].map(fewest_images), [9, 19, 4, 1, 3, 99]);
        let images: Vec<(u32, f64)> = (0..8).map(|i| (0, f64::from(i))).collect();
        assert_eq!(PredictionSets::new(&images, 2, 0.1), None);
    }

    #[test]
    fn thresholds_and_promises() {
        let of = |class: u32, n: u32| (1..=n).map(move |i| (class, f64::from(i) / f64::from(n + 1)));
        // 19 images: k = floor(0.1 * 20) = 2; 9 images: k = 1; classes 2 and 3 have 5 each: pooled, k = 1
        let images: Vec<(u32, f64)> = of(0, 19).chain(of(1, 9)).chain(of(2, 5)).chain(of(3, 5)).collect();
        let sets = PredictionSets::new(&images, 4, 0.1).expect("enough images");
        assert_eq!(sets.guarantees, [Guarantee::Class, Guarantee::Class, Guarantee::Pooled, Guarantee::Pooled]);
        assert_eq!(sets.thresholds, [2.0 / 20.0, 1.0 / 10.0, 1.0 / 6.0, 1.0 / 6.0]);
        assert_eq!(sets.set(&[0.05, 0.2, 0.1, 0.65]), [3, 1]);
        assert_eq!(sets.set(&[0.05, 0.05, 0.1, 0.01]), [2], "the most probable class is always there");
        // a class without images and a small one: all images decide for both
        let images: Vec<(u32, f64)> = of(0, 19).chain(of(1, 2)).collect();
        let sets = PredictionSets::new(&images, 3, 0.1).expect("enough images");
        assert_eq!(sets.guarantees, [Guarantee::Class, Guarantee::All, Guarantee::All]);
        assert_eq!(sets.thresholds[1], 0.1, "the second smallest of 21");
    }

    #[test]
    fn sets_cover_new_images_of_every_class() {
        // probabilities of the true class are u^(1/2) in the large class and u^3 in the small one, with u equally spread
        let power = [0.5, 3.0];
        let u = |i: u32, n: u32| (f64::from((i * 7919) % n) + 0.5) / f64::from(n);
        for alpha in [0.05, 0.1, 0.25] {
            let image = |class: usize, n: u32| (0..n).map(move |i| (class as u32, u(i, n).powf(power[class])));
            let images: Vec<(u32, f64)> = image(0, 1009).chain(image(1, 101)).collect();
            let sets = PredictionSets::new(&images, 2, alpha).expect("enough images");
            for (class, (power, threshold)) in power.iter().zip(&sets.thresholds).enumerate() {
                let missed = (0..5003).filter(|i| u(*i, 5003).powf(*power) < *threshold).count();
                let rate = missed as f64 / 5003.0;
                assert!(rate <= alpha + 1e-3 && rate > alpha - 0.012, "class {class}: {rate} of {alpha}");
            }
        }
    }
}
