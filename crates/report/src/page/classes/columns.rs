//! The columns of the class chart: single classes, or bins of classes of similar size.

use crate::comparison::ClassAccuracy;

/// Classes that share a column.
pub(super) struct Column {
    pub(super) classes: Vec<usize>,
    pub(super) group: Option<usize>,
    /// Rank of the first class by size, from 1.
    pub(super) rank: usize,
}

impl Column {
    /// Mean accuracy of a variant over the column's classes that have test images, and the means of its lowest and
    /// highest seeds.
    pub(super) fn accuracy(&self, accuracies: &[Option<ClassAccuracy>]) -> Option<ClassAccuracy> {
        let over_classes =
            |part: fn(ClassAccuracy) -> f64| mean(self.classes.iter().filter_map(|class| accuracies[*class]).map(part));
        Some(ClassAccuracy {
            mean: over_classes(|a| a.mean)?,
            min: over_classes(|a| a.min)?,
            max: over_classes(|a| a.max)?,
            interval: None,
        })
    }
}

/// Arithmetic mean; `None` without values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Distributes classes, given in order of size with their groups: one per column up to `max_single` classes, otherwise
/// at most `max_bins` bins, none of which spans two groups.
pub(super) fn columns(order: &[(usize, Option<usize>)], max_single: usize, max_bins: usize) -> Vec<Column> {
    if order.len() <= max_single {
        let single = |(index, (class, group)): (usize, &(usize, Option<usize>))| Column {
            classes: vec![*class],
            group: *group,
            rank: index + 1,
        };
        return order.iter().enumerate().map(single).collect();
    }
    let mut groups: Vec<&[(usize, Option<usize>)]> = order.chunk_by(|a, b| a.1 == b.1).collect();
    if groups.len() > max_bins / 2 {
        groups = vec![order];
    }
    let mut columns = Vec::new();
    let mut rank = 1;
    let spare = max_bins - groups.len();
    for group in groups {
        let bins = (1 + spare * group.len() / order.len()).min(group.len());
        for bin in 0..bins {
            let classes = &group[bin * group.len() / bins..(bin + 1) * group.len() / bins];
            columns.push(Column {
                classes: classes.iter().map(|(class, _)| *class).collect(),
                group: group[0].1,
                rank,
            });
            rank += classes.len();
        }
    }
    columns
}
