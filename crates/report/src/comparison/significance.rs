//! Which differences can be told from noise.

use equipoise_record::GroupMembers;

use super::{Cell, Class, Variant};
use crate::statistics::Difference;

/// Probability that a confidence interval misses the true difference.
pub(super) const ERROR: f64 = 0.05;

/// Difference between two cells, with an interval that is never narrower than the test set can resolve.
pub(super) fn difference(own: &Cell, other: &Cell, error: f64, resolution: f64) -> Option<Difference> {
    Some(Difference::of(&own.values, &other.values, error)?.at_least(resolution))
}

/// The accuracy that one test image is worth in each column, in percentage points.
pub(super) fn resolution(classes: &[Class], groups: &[GroupMembers], columns: usize) -> Vec<f64> {
    // a mean over classes: the class with the fewest test images decides
    let of_mean = |members: &mut dyn Iterator<Item = &Class>| {
        let tests: Vec<u64> = members.map(|class| class.test).filter(|test| *test > 0).collect();
        let fewest = tests.iter().min().copied().unwrap_or(1);
        100.0 / (tests.len().max(1) as f64 * fewest as f64)
    };
    let groups = groups.iter().map(|group| of_mean(&mut group.classes.iter().filter_map(|class| classes.get(*class))));
    let total: u64 = classes.iter().fold(0, |total, class| total.saturating_add(class.test));
    let overall_and_balanced = [100.0 / total.max(1) as f64, of_mean(&mut classes.iter())];
    groups.chain(overall_and_balanced).take(columns).collect()
}

/// Marks the highest cell of each column if it is distinguishable from every other, with the error probability divided among
/// the comparisons (Bonferroni).
pub(super) fn mark_best(variants: &mut [Variant], resolution: &[f64]) {
    let others = variants.len().saturating_sub(1).max(1);
    let columns = variants.first().map_or(0, |variant| variant.cells.len());
    for (column, resolution) in resolution.iter().enumerate().take(columns) {
        let mean = |variant: &Variant| variant.cells[column].spread.map_or(f64::NEG_INFINITY, |spread| spread.mean);
        let Some(best) = (0..variants.len()).max_by(|a, b| mean(&variants[*a]).total_cmp(&mean(&variants[*b]))) else {
            continue;
        };
        let is_ahead = (0..variants.len()).filter(|other| *other != best).all(|other| {
            let (own, other) = (&variants[best].cells[column], &variants[other].cells[column]);
            let difference = difference(own, other, ERROR / others as f64, *resolution);
            other.spread.is_none() || difference.is_some_and(|d| d.mean > 0.0 && d.distinguishable())
        });
        let is_alone = variants.iter().filter(|variant| variant.cells[column].spread.is_some()).count() < 2;
        variants[best].cells[column].bold = is_ahead && !is_alone;
    }
}
