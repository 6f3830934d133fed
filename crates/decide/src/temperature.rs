//! Calibration by one temperature.
//!
//! # Equation
//! ```text
//! T = argmin_T  sum_c 1/C sum_{i: y_i = c} 1/n_c  -ln softmax(z_i / T + o)_{y_i}
//! ```
//!
//! # Symbols
//! z_i are the logits of image i and y_i its class, n_c the images of class c and C the classes that have any. o_c = -ln pi_c, where pi is the
//! prior that the logits assume: the loss is that of probabilities for equally frequent classes, so every class counts as much as any other.
//!
//! # Paper
//! Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, <https://arxiv.org/abs/1706.04599>. Class-balanced
//! weights because the validation images of a long-tailed set are almost all of frequent classes.
//!
//! # Reduces to
//! The temperature of Guo et al. for equally many images per class.

use crate::rows::Logits;

/// Smallest and largest temperature that are considered.
pub const RANGE: [f64; 2] = [0.01, 100.0];

/// The temperature that minimizes the class-balanced log-loss. 1 without rows; an end of [`RANGE`] if the best one lies beyond it, as for
/// rows that are all classified correctly.
///
/// `offsets` has a number for each class, or none for zeros. Rows that are not finite are left out.
///
/// # Panics
/// If the offsets are neither empty nor one per class.
#[must_use]
pub fn fit(logits: &Logits<'_>, offsets: &[f64]) -> f64 {
    assert!(offsets.is_empty() || offsets.len() == logits.classes(), "one offset per class");
    if logits.rows().next().is_none() {
        return 1.0;
    }
    // the loss is convex in 1/T: its slope has one change of sign, which halving finds
    let [mut cold, mut hot] = RANGE.map(f64::ln);
    for _ in 0..60 {
        let middle = 0.5 * (cold + hot);
        match slope(logits, offsets, (-middle).exp()) > 0.0 {
            true => cold = middle,
            false => hot = middle,
        }
    }
    (0.5 * (cold + hot)).exp()
}

/// Derivative of the class-balanced log-loss by 1/T: the mean of `E_p[z] - z_y`.
fn slope(logits: &Logits<'_>, offsets: &[f64], inverse: f64) -> f64 {
    let mut sums = vec![(0.0, 0u64); logits.classes()];
    let mut powers = vec![0.0; logits.classes()];
    for (row, label) in logits.rows().filter(|(row, _)| row.iter().all(|z| z.is_finite())) {
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
    sums.iter().filter(|(_, images)| *images > 0).map(|(sum, images)| sum / *images as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_classes_have_a_closed_form() {
        // logit differences are +-d, and a share q of the images is on the right side: softmax(d / T) = q
        for (d, hits, images) in [(3.0f32, 8u32, 10u32), (0.5, 3, 4), (7.0, 19, 20)] {
            let mut values = Vec::new();
            let mut labels = Vec::new();
            for label in 0..2u32 {
                for i in 0..images {
                    let right = i < hits;
                    values.extend(if right == (label == 0) { [d, 0.0] } else { [0.0, d] });
                    labels.push(label);
                }
            }
            let q = f64::from(hits) / f64::from(images);
            let want = f64::from(d) / (q / (1.0 - q)).ln();
            let got = fit(&Logits::new(&values, &labels, 2), &[]);
            assert!((got / want - 1.0).abs() < 1e-9, "{got} instead of {want}");
        }
    }

    #[test]
    fn every_class_counts_the_same() {
        let values = [2.0f32, 0.0, 0.0, 2.0, 0.0, 2.0, 2.0, 0.0];
        let labels = [0u32, 0, 1, 1];
        let once = fit(&Logits::new(&values, &labels, 2), &[]);
        // a hundred copies of the images of the first class change nothing
        let many: Vec<f32> = values[..4].repeat(100).into_iter().chain(values[4..].to_vec()).collect();
        let many_labels: Vec<u32> = [vec![0; 200], vec![1; 2]].concat();
        let again = fit(&Logits::new(&many, &many_labels, 2), &[]);
        assert!((once / again - 1.0).abs() < 1e-9);
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(fit(&Logits::new(&[], &[], 3), &[]), 1.0);
        let [least, most] = RANGE;
        let right = fit(&Logits::new(&[1.0, 0.0, 0.0, 1.0], &[0, 1], 2), &[]);
        let wrong = fit(&Logits::new(&[0.0, 1.0, 1.0, 0.0], &[0, 1], 2), &[]);
        assert!((right / least - 1.0).abs() < 1e-9 && (wrong / most - 1.0).abs() < 1e-9);
        // rows that are not finite do not matter
        let finite = fit(&Logits::new(&[f32::NAN, 0.0, 1.0, 0.0, 0.0, 1.0], &[1, 0, 1], 2), &[]);
        assert_eq!(finite, right);
    }
}
