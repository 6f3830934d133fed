//! The tables of a comparison.

use super::{Entry, Table};
use crate::comparison::{Cell, Comparison, captions};
use crate::run::RecordedRun;
use crate::run::setting_keys as keys;

impl Table {
    /// Accuracy of each variant by group and overall.
    #[must_use]
    pub fn groups(comparison: &Comparison) -> Self {
        let title = captions::titled(comparison, &captions::groups(comparison));
        let rows = comparison.variants.iter().map(|variant| (&variant.label, variant.runs.len(), &variant.cells[..]));
        let baselines = comparison.baselines.iter().map(|baseline| (&baseline.label, 1, &baseline.cells[..]));
        Self::of_cells(comparison, title, rows.chain(baselines))
    }

    /// Accuracy of each variant at its best epoch; `None` unless best epochs were selected on the test set.
    #[must_use]
    pub fn optimistic(comparison: &Comparison) -> Option<Self> {
        let title = captions::titled(comparison, &captions::optimistic());
        let rows: Vec<(&String, usize, &[Cell])> = comparison
            .variants
            .iter()
            .filter_map(|variant| Some((&variant.label, variant.runs.len(), variant.optimistic.as_deref()?)))
            .collect();
        (!rows.is_empty()).then(|| Self::of_cells(comparison, title, rows))
    }

    /// Rows of labels, numbers of seeds and cells.
    fn of_cells<'a>(
        comparison: &Comparison,
        title: String,
        rows: impl IntoIterator<Item = (&'a String, usize, &'a [Cell])>,
    ) -> Self {
        let row = |(label, seeds, cells): (&String, usize, &[Cell])| {
            let start = [Entry::Text(label.clone()), Entry::Count(seeds as u64)];
            start.into_iter().chain(cells[comparison.shown_columns()].iter().map(Entry::from_cell)).collect()
        };
        let rows = rows.into_iter().map(row).collect();
        let names = comparison.columns[comparison.shown_columns()].iter();
        Self { title, columns: columns(["criterion", comparison.seeds_word()], names), rows }
    }

    /// Difference of every other variant from the baseline; `None` if there are no others.
    #[must_use]
    pub fn differences(comparison: &Comparison) -> Option<Self> {
        let (baseline, others) = comparison.variants.split_first().filter(|(_, others)| !others.is_empty())?;
        let title = captions::titled(comparison, &captions::differences(&baseline.label));
        let row = |(variant, label): (usize, &String)| {
            let differences = comparison.shown_columns().map(|column| comparison.difference(variant, column));
            let differences: Vec<_> = differences.collect();
            let pairs = differences.iter().flatten().map(|d| d.pairs as u64).max().unwrap_or(0);
            let start = [Entry::Text(label.clone()), Entry::Count(pairs)];
            let entries = differences.into_iter().map(|difference| match difference {
                None => Entry::Missing,
                Some(d) => Entry::Difference {
                    mean: d.mean,
                    half_width: d.half_width,
                    clear: d.half_width.is_none() || d.distinguishable(),
                },
            });
            start.into_iter().chain(entries).collect()
        };
        let rows = (1..).zip(others.iter().map(|variant| &variant.label)).map(row).collect();
        let names = comparison.columns[comparison.shown_columns()].iter();
        Some(Self { title, columns: columns(["criterion", "pairs"], names), rows })
    }

    /// Accuracy of each variant by class, the largest class first.
    #[must_use]
    pub fn classes(comparison: &Comparison) -> Self {
        let title = captions::titled(comparison, &captions::classes(comparison));
        let labels = comparison.variants.iter().map(|variant| &variant.label);
        let examples = comparison.examples().many();
        let columns = columns(["class", "group", &format!("training {examples}"), &format!("test {examples}")], labels);
        let accuracies: Vec<_> =
            (0..comparison.variants.len()).map(|variant| comparison.class_accuracies(variant)).collect();
        let row = |(index, group): (usize, Option<usize>)| {
            let class = &comparison.classes[index];
            let group = group.map_or("", |group| comparison.groups[group].name.as_str());
            let mut row = vec![Entry::Text(class.name.clone()), Entry::Text(group.to_owned())];
            row.extend([Entry::Count(class.train), Entry::Count(class.test)]);
            row.extend(accuracies.iter().map(|accuracies| Entry::rate(accuracies[index])));
            row
        };
        let rows = comparison.by_size().into_iter().map(row).collect();
        Self { title, columns, rows }
    }

    /// One row per run: its accuracy, speed, duration and commit.
    #[must_use]
    pub fn runs(comparison: &Comparison) -> Self {
        let title = captions::titled(comparison, &captions::runs(comparison));
        let columns = ["criterion", "seed", "epochs", "precision", "overall", "images/s", "seconds", "commit"];
        let columns = columns.map(|column| comparison.examples().say(column)).to_vec();
        let rounded = |x: f64| Entry::Count(x.round().max(0.0) as u64);
        let row = |label: &String, run: &RecordedRun| {
            let overall = run.evaluation(comparison.epoch).and_then(|evaluation| evaluation.metrics.top1);
            let mut row =
                vec![Entry::Text(label.clone()), Entry::Count(run.seed()), Entry::Count(run.planned_epochs())];
            row.push(Entry::Text(run.setting(keys::PRECISION).unwrap_or("f32").to_owned()));
            row.push(Entry::single(overall));
            row.extend(match &run.result {
                None => [Entry::Missing, Entry::Missing, Entry::Text("not finished".to_owned())],
                Some(result) => {
                    let speed = result.images_per_second;
                    [
                        if speed > 0.0 { rounded(speed) } else { Entry::Missing },
                        rounded(result.seconds),
                        Entry::Text(result.commit.clone()),
                    ]
                }
            });
            row
        };
        let rows = comparison
            .variants
            .iter()
            .flat_map(|variant| variant.runs.iter().map(|&run| row(&variant.label, &comparison.runs[run])));
        Self { title, columns, rows: rows.collect() }
    }
}

/// Names of columns: fixed ones, then those of the comparison.
fn columns<'a, const N: usize>(fixed: [&str; N], names: impl Iterator<Item = &'a String>) -> Vec<String> {
    fixed.into_iter().map(str::to_owned).chain(names.cloned()).collect()
}
