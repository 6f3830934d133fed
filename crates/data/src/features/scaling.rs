//! What becomes of features before a head sees them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Features;
use crate::batch::normalize::Normalize;

/// How features are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureScaling {
    /// Every feature has mean 0 and standard deviation 1 over the training rows.
    #[default]
    Standardize,
    /// Every row has length 1.
    Normalize,
    /// As they are.
    None,
}

impl FeatureScaling {
    /// Every way to scale features.
    pub const ALL: [Self; 3] = [Self::Standardize, Self::Normalize, Self::None];

    /// Factor and offset of every feature, from the training rows. A feature that is constant there becomes 0.
    #[must_use]
    pub fn fit(self, train: &Features) -> Normalize {
        let width = train.width();
        if self != Self::Standardize {
            return Normalize { scale: vec![1.0; width], offset: vec![0.0; width] };
        }
        // deviations from the first row, so that large means do not cancel
        let (mut row, mut first) = (vec![0.0; width], vec![0.0; width]);
        if !train.is_empty() {
            train.copy_row(0, &mut first);
        }
        let (mut sums, mut squares) = (vec![0.0f64; width], vec![0.0f64; width]);
        for index in 0..train.len() {
            train.copy_row(index, &mut row);
            for (((x, first), sum), square) in row.iter().zip(&first).zip(&mut sums).zip(&mut squares) {
                let deviation = f64::from(*x) - f64::from(*first);
                *sum += deviation;
                *square += deviation * deviation;
            }
        }
        let n = train.len().max(1) as f64;
        let moments = sums.iter().zip(&squares).zip(&first).map(|((sum, square), first)| {
            let shift = sum / n;
            let mean = f64::from(*first) + shift;
            let deviation = (square / n - shift * shift).max(0.0).sqrt();
            // rounding alone makes a constant feature vary by so much
            let is_constant = deviation <= 1e-6 * (mean.abs() + 1e-30);
            if is_constant { (0.0, 0.0) } else { ((1.0 / deviation) as f32, (-mean / deviation) as f32) }
        });
        let (scale, offset) = moments.unzip();
        Normalize { scale, offset }
    }

    /// Scales a row in place.
    pub fn apply(self, normalize: &Normalize, row: &mut [f32]) {
        match self {
            Self::Standardize => {
                for ((x, scale), offset) in row.iter_mut().zip(&normalize.scale).zip(&normalize.offset) {
                    *x = *x * scale + offset;
                }
            }
            Self::Normalize => {
                let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-12);
                row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
            }
            Self::None => {}
        }
    }
}

impl fmt::Display for FeatureScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standardize => "standardize",
            Self::Normalize => "normalize",
            Self::None => "none",
        })
    }
}

impl FromStr for FeatureScaling {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scaling| scaling.to_string() == name);
        found.ok_or_else(|| "must be standardize, normalize or none".to_owned())
    }
}
