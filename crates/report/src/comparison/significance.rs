//! Which differences can be told from noise.

use equipoise_record::GroupMembers;

use super::{Class, Comparison, Variant};
use crate::comparison::sampling::TestImages;
use crate::statistics::Difference;

/// Probability that a confidence interval misses the true difference.
pub(super) const ERROR: f64 = 0.05;

/// Difference between two variants in a column. Its interval covers other seeds and other test images, and is never
/// narrower than the test set can resolve.
pub(super) fn difference(
    comparison: &Comparison,
    own: &Variant,
    other: &Variant,
    column: usize,
    error: f64,
) -> Option<Difference> {
    let difference = Difference::of(&own.cells[column].values, &other.cells[column].values, error)?;
    if difference.half_width.is_none() {
        return Some(difference);
    }
    let Comparison { runs, epoch, classes, groups, resolution, .. } = comparison;
    let images = TestImages { runs, epoch: *epoch, classes, groups };
    let standard_error = images.standard_error(own, other, column);
    Some(difference.with_error(standard_error, error).at_least(resolution[column]))
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

/// Marks the highest cell of each column if it is distinguishable from every other, with the error probability divided
/// among the comparisons (Bonferroni).
pub(super) fn mark_best(comparison: &mut Comparison) {
    let best: Vec<Option<usize>> = (0..comparison.columns.len()).map(|column| best(comparison, column)).collect();
    for (column, best) in best.into_iter().enumerate() {
        if let Some(best) = best {
            comparison.variants[best].cells[column].bold = true;
        }
    }
}

/// The variant that is ahead of all others in a column.
fn best(comparison: &Comparison, column: usize) -> Option<usize> {
    let variants = &comparison.variants;
    let mean = |variant: usize| variants[variant].cells[column].spread.map(|spread| spread.mean);
    let measured: Vec<usize> = (0..variants.len()).filter(|variant| mean(*variant).is_some()).collect();
    let best =
        measured.iter().copied().max_by(|a, b| f64::total_cmp(&mean(*a).unwrap_or(0.0), &mean(*b).unwrap_or(0.0)))?;
    let error = ERROR / variants.len().saturating_sub(1).max(1) as f64;
    let is_ahead = measured.iter().filter(|other| **other != best).all(|other| {
        let difference = difference(comparison, &variants[best], &variants[*other], column, error);
        difference.is_some_and(|d| d.mean > 0.0 && d.distinguishable())
    });
    (is_ahead && measured.len() > 1).then_some(best)
}
