//! The inter-category margin M_{m,n} = gamma ln min(1, S_n / S_m), or two-sided gamma ln(S_n / S_m), and the effective size
//! S it comes from.

use crate::counts::table;
use crate::margin::Form;

/// S = sum_i v_i^alpha over the non-empty regions, at least 1.
pub(super) fn size(values: &[f64], alpha: f64) -> f64 {
    values.iter().filter(|v| **v > 0.0).map(|v| v.powf(alpha)).sum::<f64>().max(1.0)
}

/// The margins between all classes, as one number per class.
#[derive(Clone, Debug)]
pub(super) struct Margins {
    pub(super) form: Form,
    /// gamma ln(S / S_max) of every class, or its exponential.
    pub(super) table: Vec<f32>,
    /// Largest margin: 0, or infinity for two-sided margins.
    pub(super) most: f32,
}

impl Margins {
    pub(super) fn new(sizes: &[f64], gamma: f64, two_sided: bool) -> Self {
        let largest = sizes.iter().copied().fold(1.0, f64::max);
        let level = |size: f64| gamma * (size / largest).ln();
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        // ratios can only be one-sided
        let form = if two_sided { Form::Levels } else { Form::for_span(-level(smallest)) };
        let table = table(sizes.iter().map(|s| form.entry(level(*s))), 0.0);
        Self { form, table, most: if two_sided { f32::INFINITY } else { 0.0 } }
    }

    /// M for a label and a class.
    pub(super) fn margin(&self, label: usize, class: usize) -> f64 {
        self.form.difference(self.table[label], self.table[class]).min(self.most.into())
    }
}
