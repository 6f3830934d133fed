//! What the numbers of a dataset of features are like.

use serde::Serialize;

use crate::dataset::Dataset;
use crate::features::Features;

/// What the training rows of a dataset of features are like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeatureReport {
    /// Number of features in a row.
    pub dimensions: usize,
    /// Length (Euclidean norm) of the shortest, the median and the longest training row.
    pub norms: [f64; 3],
    /// Features that have the same value in all training rows.
    pub constant: usize,
    /// Standard deviation of the feature that varies least and of the one that varies most, without constant ones.
    pub deviations: [f64; 2],
}

impl FeatureReport {
    /// Looks at all training rows; `None` for images, and without rows.
    pub(super) fn of(dataset: &Dataset) -> Option<Self> {
        let features = dataset.train.images.features().filter(|features| !features.is_empty())?;
        let mut norms = norms(features);
        norms.sort_by(f64::total_cmp);
        let deviations = deviations(features);
        let varying = || deviations.iter().copied().filter(|deviation| *deviation > 0.0);
        Some(Self {
            dimensions: features.width(),
            norms: [norms[0], norms[norms.len() / 2], norms[norms.len() - 1]],
            constant: deviations.len() - varying().count(),
            deviations: [varying().fold(f64::INFINITY, f64::min).min(f64::MAX), varying().fold(0.0, f64::max)],
        })
    }

    /// What follows for training.
    pub(super) fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let [shortest, _, longest] = self.norms;
        if shortest == 0.0 {
            advice.push(
                "A row of zeros says nothing about its example: look at how these features were made.".to_owned(),
            );
        }
        if self.constant > 0 {
            let (features, say) = if self.constant == 1 { ("feature is", "says") } else { ("features are", "say") };
            advice.push(format!("{} {features} the same in all training rows and {say} nothing.", self.constant));
        }
        if longest > 0.0 && (longest - shortest) / longest < 1e-3 {
            advice.push(
                "All rows are equally long, as those of CLIP and of sentence encoders are: try `--model cosine` too."
                    .to_owned(),
            );
        }
        let [least, most] = self.deviations;
        if most > 100.0 * least {
            advice.push(format!(
                "Features vary by {least:.2e} to {most:.2e}: leave `data.scaling` at `standardize`, or the largest decide alone."
            ));
        }
        advice
    }
}

fn norms(features: &Features) -> Vec<f64> {
    let mut row = vec![0.0; features.width()];
    let norm = |index: usize| {
        features.copy_row(index, &mut row);
        row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
    };
    (0..features.len()).map(norm).collect()
}

/// Standard deviation of every feature; 0 for a constant one.
fn deviations(features: &Features) -> Vec<f64> {
    let normalize = crate::features::scaling::FeatureScaling::Standardize.fit(features);
    normalize.scale().iter().map(|scale| if *scale > 0.0 { 1.0 / f64::from(*scale) } else { 0.0 }).collect()
}
