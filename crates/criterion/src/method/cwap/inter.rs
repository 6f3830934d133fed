//! The inter-category margin M_{m,n}, and the effective size S it comes from.

use super::MarginKind;
use crate::counts::table;
use crate::kernel::lanes::LANES;
use crate::kernel::shape::NARROW;
use crate::margin::{Form, Rows, unbiased};

/// S = sum_i v_i^alpha over the non-empty regions, at least 1.
pub(super) fn size(values: &[f64], alpha: f64) -> f64 {
    values.iter().filter(|v| **v > 0.0).map(|v| v.powf(alpha)).sum::<f64>().max(1.0)
}

/// Smallest size of a class whose histogram fades.
pub(super) const LEAST_LIVE_SIZE: f64 = 1e-6;

/// More examples than any batch holds, for a bound on the sizes of live histograms.
const MOST_PER_BATCH: f64 = 1e7;

/// The margins between all classes, as one number per class.
#[derive(Clone, Debug)]
pub(super) struct Margins {
    pub(super) rows: Rows,
    form: Form,
    /// Factor of ln S.
    gamma: f64,
    /// gamma ln S of every class up to a common term, or its exponential.
    pub(super) table: Vec<f32>,
}

impl Margins {
    /// Margins from the sizes of all classes, at least 1 each.
    pub(super) fn new(sizes: &[f64], gamma: f64, kind: MarginKind) -> Self {
        let largest = sizes.iter().copied().fold(1.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let mut margins = Self::empty(gamma * (largest / smallest).ln(), gamma, kind);
        margins.table = table(sizes.iter().map(|s| margins.entry((s / largest).ln())), 0.0);
        margins
    }

    /// Margins from the logarithms of the sizes of live histograms, which change with every batch.
    pub(super) fn live(log_sizes: impl Iterator<Item = f64>, gamma: f64, kind: MarginKind, alpha: f64) -> Self {
        // the largest size there can be, one example per region or all in one
        let most = f64::max(1.0, alpha) * MOST_PER_BATCH.ln();
        let mut margins = Self::empty(gamma * (most - LEAST_LIVE_SIZE.ln()), gamma, kind);
        let mut table = Vec::new();
        margins.fill(log_sizes, &mut table);
        margins.table = table;
        margins
    }

    fn empty(span: f64, gamma: f64, kind: MarginKind) -> Self {
        let (form, rows, gamma) = match (kind, Form::for_span(span)) {
            (MarginKind::Unbiased, _) => (Form::Ratios, Rows::Unbiased, 1.0),
            (MarginKind::OneSided, Form::Ratios) => (Form::Ratios, Rows::Ratios, gamma),
            (MarginKind::OneSided, Form::Levels) => (Form::Levels, Rows::Levels { most: 0.0 }, gamma),
            // ratios can only be one-sided
            (MarginKind::TwoSided, _) => (Form::Levels, Rows::Levels { most: f32::INFINITY }, gamma),
        };
        Self { rows, form, gamma, table: Vec::new() }
    }

    /// The table entry of a class.
    fn entry(&self, log_size: f64) -> f64 {
        let level = self.gamma * log_size;
        match self.rows {
            // beyond this a class has no influence anyway
            Rows::Unbiased => level.clamp(-NARROW, NARROW).exp(),
            Rows::Ratios | Rows::Levels { .. } => self.form.entry(level),
        }
    }

    /// Writes the table that these logarithms of sizes lead to.
    pub(super) fn fill(&self, log_sizes: impl Iterator<Item = f64>, table: &mut Vec<f32>) {
        let least_size = LEAST_LIVE_SIZE.ln();
        let least = self.entry(least_size) as f32;
        table.clear();
        table.extend(log_sizes.map(|log| if log > least_size { self.entry(log) as f32 } else { least }));
        table.resize(table.len().next_multiple_of(LANES), 0.0);
    }

    /// M for a label and a class.
    pub(super) fn margin(&self, label: usize, class: usize) -> f64 {
        let difference = self.form.difference(self.table[label], self.table[class]);
        match self.rows {
            Rows::Ratios => difference.min(0.0),
            Rows::Levels { most } => difference.min(most.into()),
            Rows::Unbiased => f64::from(unbiased(difference.min(0.0).exp() as f32)).ln(),
        }
    }
}
