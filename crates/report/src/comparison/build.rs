//! From runs to comparisons: runs on the same data belong together, runs that differ only in their seeds are one
//! variant.

use equipoise_record::{BaselineResult, ClassCounts, GroupMembers, Metrics};

use super::labels::{self, Labels};
use super::{Baseline, Cell, Class, Comparison, Variant, significance, styles};
use crate::run::setting_keys as keys;
use crate::run::{RecordedRun, ReportedEpoch};
use crate::statistics::{Spread, tenths};

/// Names of groups and their numbers of classes.
type GroupSizes = Vec<(String, usize)>;

/// Compares runs: one comparison for each dataset among them, in the order of the runs. Runs that have not finished are
/// left out beside others that have.
pub(super) fn by_dataset(runs: Vec<RecordedRun>) -> Vec<Comparison> {
    type Key = (String, Vec<Class>, GroupSizes);
    let mut datasets: Vec<(Key, Vec<RecordedRun>)> = Vec::new();
    for run in runs {
        let Some(evaluation) = run.evaluation(ReportedEpoch::Last) else { continue };
        let class = |class: &ClassCounts| Class { name: class.name.clone(), train: class.train, test: class.test };
        let classes = evaluation.metrics.per_class.iter().map(class).collect();
        let groups = evaluation.metrics.groups.iter().map(|group| (group.name.clone(), group.classes)).collect();
        let key: Key = (run.dataset().to_owned(), classes, groups);
        match datasets.iter_mut().find(|(known, _)| *known == key) {
            Some((_, runs)) => runs.push(run),
            None => datasets.push((key, vec![run])),
        }
    }
    let of_dataset = |((_, classes, groups), runs): (Key, Vec<RecordedRun>)| {
        by_network(runs).into_iter().map(move |runs| build(classes.clone(), &groups, runs))
    };
    datasets.into_iter().flat_map(of_dataset).collect()
}

/// Runs that can be compared: of several criteria with several networks, those with the same network. Otherwise a difference
/// would be the network's and the criterion's together.
fn by_network(runs: Vec<RecordedRun>) -> Vec<Vec<RecordedRun>> {
    if runs.windows(2).all(|pair| pair[0].criterion() == pair[1].criterion()) {
        return vec![runs];
    }
    let mut networks: Vec<Vec<RecordedRun>> = Vec::new();
    for run in runs {
        match networks.iter_mut().find(|runs| runs[0].setting(keys::MODEL) == run.setting(keys::MODEL)) {
            Some(runs) => runs.push(run),
            None => networks.push(vec![run]),
        }
    }
    networks
}

fn build(classes: Vec<Class>, groups: &GroupSizes, runs: Vec<RecordedRun>) -> Comparison {
    let mut notes = Vec::new();
    let runs = finished_or_all(runs, &mut notes);
    let Labels { labels, shared } = labels::of(&runs);
    let epoch = match runs.iter().all(|run| run.has_best_epoch(false)) {
        true => ReportedEpoch::Best,
        false => ReportedEpoch::Last,
    };
    let columns = columns(groups, &runs, epoch);
    let members = members(&classes, groups, &runs);
    let resolution = significance::resolution(&classes, &members, columns.len());
    let mut variants: Vec<Variant> = Vec::new();
    for label in ordered(&labels, &runs) {
        let mut own: Vec<usize> = (0..runs.len()).filter(|run| labels[*run] == *label).collect();
        own.sort_by_key(|run| runs[*run].seed());
        let all = own.len();
        // a second run with the same seed is the same run again
        own.dedup_by_key(|run| runs[*run].seed());
        if own.len() < all {
            notes.push(format!("{label}: some seeds occur more than once; only the first run of each counts."));
        }
        let Some(&first) = own.first() else { continue };
        let cells = |epoch| cells(&runs, &own, epoch, groups.len(), columns.len());
        variants.push(Variant {
            label: label.clone(),
            criterion: runs[first].criterion().to_owned(),
            cells: cells(epoch),
            optimistic: own.iter().all(|run| runs[*run].has_best_epoch(true)).then(|| cells(ReportedEpoch::Best)),
            runs: own,
            style: 0,
        });
    }
    styles::assign(&mut variants);
    let dataset = dataset_title(&runs);
    if classes.iter().all(|class| class.test == 0) {
        let has_val = runs.iter().any(|run| run.epochs.iter().any(|epoch| epoch.val.is_some()));
        notes.push(match has_val {
            true => "There are no test images: accuracy is known on the validation split only.".to_owned(),
            false => {
                "There are no test images: the runs were trained on everything, and nothing is measured.".to_owned()
            }
        });
    }
    notes.extend(held_out(&runs, &variants, epoch));
    notes.extend(warnings(&runs));
    let baselines = baselines(&runs, &classes, &members, columns.len());
    let groups = members;
    let mut comparison =
        Comparison { dataset, runs, variants, baselines, classes, groups, columns, epoch, shared, notes, resolution };
    significance::mark_best(&mut comparison);
    comparison
}

/// What the variants reach on images that were held out of training, by which settings are chosen.
fn held_out(runs: &[RecordedRun], variants: &[Variant], epoch: ReportedEpoch) -> Option<String> {
    let balanced = |run: &usize| runs[*run].evaluation(epoch)?.val_balanced;
    let figure = |variant: &Variant| {
        let spread = Spread::of(&variant.runs.iter().filter_map(balanced).collect::<Vec<_>>())?;
        let sd = spread.sd.map_or_else(String::new, |sd| format!(" ± {}", tenths(sd)));
        Some((variant.label.clone(), format!("{}{sd}", tenths(spread.mean))))
    };
    let figures: Vec<_> = variants.iter().filter_map(figure).collect();
    match figures.as_slice() {
        [] => None,
        [(_, figure)] => Some(format!("Balanced accuracy on the validation split: {figure} %.")),
        figures => {
            let figures: Vec<String> = figures.iter().map(|(label, figure)| format!("{label} {figure}")).collect();
            let figures = figures.join("; ");
            Some(format!("Balanced accuracy on the validation split, by which to choose: {figures}."))
        }
    }
}

/// What the runs warn of: once if all say the same, else with their names.
fn warnings(runs: &[RecordedRun]) -> Vec<String> {
    let of = |run: &RecordedRun| run.result.as_ref().map_or_else(Vec::new, |result| result.warnings.clone());
    let is_common = |warning: &String| runs.len() > 1 && runs.iter().all(|run| of(run).contains(warning));
    let mut notes: Vec<String> = Vec::new();
    for run in runs {
        for warning in of(run) {
            let note = match is_common(&warning) || runs.len() == 1 {
                true => format!("{}.", super::captions::capitalized(&warning)),
                false => format!("{}: {warning}.", run.folder_name()),
            };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Accuracies of the classifiers without training that were recorded beside a run, if they are of the same test images.
fn baselines(runs: &[RecordedRun], classes: &[Class], groups: &[GroupMembers], columns: usize) -> Vec<Baseline> {
    let recorded = runs.iter().map(|run| &run.baselines).find(|baselines| !baselines.is_empty());
    let is_same = |result: &&BaselineResult| {
        result.correct.len() == classes.len()
            && result.examples.len() == classes.len()
            && result.examples.iter().zip(classes).all(|(examples, class)| *examples == class.test)
    };
    let of = |result: &BaselineResult| {
        let share = |class: usize| {
            let (correct, examples) = (result.correct[class], result.examples[class]);
            (examples > 0).then(|| 100.0 * correct as f64 / examples as f64)
        };
        let mean = |of: &mut dyn Iterator<Item = usize>| {
            let values: Vec<f64> = of.filter_map(share).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let group =
            |group: &GroupMembers| mean(&mut group.classes.iter().copied().filter(|class| *class < classes.len()));
        let (correct, examples) = (result.correct.iter().sum::<u64>(), result.examples.iter().sum::<u64>());
        let overall = (examples > 0).then(|| 100.0 * correct as f64 / examples as f64);
        let balanced = mean(&mut (0..classes.len()));
        let values = groups.iter().map(group).chain([overall, balanced]).take(columns);
        let cells = values.map(|value| Cell::new(value.map(|value| (0, value)).into_iter().collect())).collect();
        Baseline { label: result.name.clone(), cells }
    };
    recorded.into_iter().flatten().filter(is_same).map(of).collect()
}

/// The finished runs, or all of them if none has finished.
fn finished_or_all(runs: Vec<RecordedRun>, notes: &mut Vec<String>) -> Vec<RecordedRun> {
    let (finished, unfinished): (Vec<RecordedRun>, Vec<RecordedRun>) =
        runs.into_iter().partition(|run| run.result.is_some());
    let progress = |run: &RecordedRun| format!("epoch {} of {}", run.finished_epochs(), run.planned_epochs());
    if finished.is_empty() {
        let note = |run: &RecordedRun| format!("{} has not finished: {}.", run.folder_name(), progress(run));
        notes.extend(unfinished.iter().map(note));
        return unfinished;
    }
    if !unfinished.is_empty() {
        let names = unfinished.iter().map(|run| format!("{} ({})", run.folder_name(), progress(run)));
        notes.push(format!("Left out because they have not finished: {}.", names.collect::<Vec<_>>().join(", ")));
    }
    finished
}

/// Every label once: in the order in which the user of the comparison named the criteria, else softmax first and then in the order of
/// criteria; then by name.
fn ordered<'a>(labels: &'a [String], runs: &[RecordedRun]) -> Vec<&'a String> {
    let mut order: Vec<(&String, &str)> = Vec::new();
    for (label, run) in labels.iter().zip(runs) {
        if !order.iter().any(|(known, _)| *known == label) {
            order.push((label, run.criterion()));
        }
    }
    let is_one_comparison = runs.windows(2).all(|pair| pair[0].criteria == pair[1].criteria);
    let named = runs.first().map_or(&[][..], |run| &run.criteria).iter().filter(|_| is_one_comparison);
    let named: Vec<&str> = named.map(String::as_str).collect();
    let place = |criterion: &str| named.iter().position(|other| *other == criterion).unwrap_or(named.len());
    order.sort_by_key(|(label, criterion)| {
        (place(criterion), !styles::is_baseline(criterion), styles::rank(criterion), *label)
    });
    order.into_iter().map(|(label, _)| label).collect()
}

/// Names of the columns: groups, `overall` and, where it differs, `balanced`.
fn columns(groups: &GroupSizes, runs: &[RecordedRun], epoch: ReportedEpoch) -> Vec<String> {
    let differs = |metrics: &Metrics| match (metrics.top1, metrics.balanced) {
        (Some(a), Some(b)) => (a - b).abs() > 1e-6,
        _ => false,
    };
    let has_balanced = runs.iter().filter_map(|run| run.evaluation(epoch)).any(|e| differs(&e.metrics));
    let names = groups.iter().map(|(name, _)| name.clone()).chain(["overall".to_owned()]);
    names.chain(has_balanced.then(|| "balanced".to_owned())).collect()
}

/// Accuracies of a variant's runs by column: `groups` of them are groups, then come overall and balanced.
fn cells(runs: &[RecordedRun], own: &[usize], epoch: ReportedEpoch, groups: usize, columns: usize) -> Vec<Cell> {
    let evaluations: Vec<_> = own.iter().map(|run| (runs[*run].seed(), runs[*run].evaluation(epoch))).collect();
    let cell = |column: usize| {
        let value = |metrics: &Metrics| match column.checked_sub(groups) {
            None => metrics.groups.get(column).and_then(|group| group.accuracy),
            Some(0) => metrics.top1,
            Some(_) => metrics.balanced,
        };
        let values =
            evaluations.iter().filter_map(|(seed, evaluation)| Some((*seed, value(&evaluation.as_ref()?.metrics)?)));
        Cell::new(values.collect())
    };
    (0..columns).map(cell).collect()
}

/// The dataset, with its imbalance factor if it has one.
fn dataset_title(runs: &[RecordedRun]) -> String {
    let Some(run) = runs.first() else { return String::new() };
    match run.setting(keys::IMBALANCE) {
        Some(factor) => format!("{}, imbalance {}", run.dataset(), factor.strip_suffix(".0").unwrap_or(factor)),
        None => run.dataset().to_owned(),
    }
}

/// Classes of each group: as a run recorded them, otherwise by size, which is how every grouping rule orders them.
fn members(classes: &[Class], groups: &GroupSizes, runs: &[RecordedRun]) -> Vec<GroupMembers> {
    let fits = |recorded: &&Vec<GroupMembers>| {
        let sizes = recorded.iter().map(|group| (group.name.clone(), group.classes.len()));
        sizes.eq(groups.iter().cloned()) && recorded.iter().flat_map(|g| &g.classes).all(|c| *c < classes.len())
    };
    let mut recorded = runs.iter().filter_map(|run| run.details.as_ref()).map(|details| &details.groups);
    if let Some(recorded) = recorded.find(fits) {
        return recorded.clone();
    }
    let mut order: Vec<usize> = (0..classes.len()).collect();
    order.sort_by_key(|class| (std::cmp::Reverse(classes[*class].train), *class));
    let mut order = order.into_iter();
    groups
        .iter()
        .map(|(name, size)| GroupMembers { name: name.clone(), classes: order.by_ref().take(*size).collect() })
        .collect()
}
