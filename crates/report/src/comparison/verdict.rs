//! The sentences that sum up a comparison. None claims more than the seeds support.

use super::{Class, Comparison, Variant};
use crate::statistics::{Difference, signed, tenths};

/// Test images below which nothing is claimed: the accuracy on 20 images is known to about 22 points.
const FEWEST_IMAGES: u64 = 20;

/// The sentence about the variant furthest ahead of the baseline on the smallest classes, and the sentences about the
/// others.
///
/// Variants are ranked by the lower end of their interval; those without an interval come after those that have one.
pub(super) fn verdict(comparison: &Comparison) -> (String, Vec<String>) {
    if comparison.variants.len() < 2 {
        return (sentence(comparison, 0), Vec::new());
    }
    let groups = comparison.groups.len();
    let has_values = |column: &usize| {
        tested(comparison, *column) >= FEWEST_IMAGES
            && comparison.variants.iter().all(|v| v.cells[*column].spread.is_some())
    };
    let tail = (0..groups).rev().find(has_values).unwrap_or(groups);
    let lead = |variant: usize| match comparison.difference(variant, tail) {
        Some(Difference { mean, half_width: Some(half), .. }) => (1, mean - half),
        Some(Difference { mean, .. }) => (0, mean),
        None => (0, f64::NEG_INFINITY),
    };
    let others = 1..comparison.variants.len();
    let first = others.clone().fold(1, |best, variant| if lead(variant) > lead(best) { variant } else { best });
    let rest = others.filter(|variant| *variant != first).map(|variant| sentence(comparison, variant)).collect();
    (sentence(comparison, first), rest)
}

/// What a variant gains or loses against the baseline on the smallest classes, on the largest, and overall. The
/// baseline's own sentence says what it reaches.
pub(super) fn sentence(comparison: &Comparison, variant: usize) -> String {
    let Some(own) = comparison.variants.get(variant) else { return String::new() };
    if variant == 0 {
        return accuracy_sentence(comparison, own);
    }
    let (groups, baseline) = (comparison.groups.len(), &comparison.variants[0]);
    let images = tested(comparison, groups);
    if (1..FEWEST_IMAGES).contains(&images) {
        return format!(
            "{} cannot be compared with {} on {}: one {} is {} points.",
            own.label,
            baseline.label,
            test_images(comparison, images),
            comparison.examples().one(),
            tenths(100.0 / images as f64)
        );
    }
    // a single group is all classes
    let named = if groups > 1 { 0..groups } else { 0..0 };
    let has_difference = |column: &usize| comparison.difference(variant, *column).is_some();
    let is_comparable = |column: &usize| has_difference(column) && tested(comparison, *column) >= FEWEST_IMAGES;
    let tail = named.clone().rev().find(is_comparable);
    let head = named.clone().find(is_comparable).filter(|head| Some(*head) != tail);
    let differences: Vec<(String, Difference)> = [tail, head, Some(groups)]
        .into_iter()
        .flatten()
        .filter_map(|column| Some((place(comparison, column), comparison.difference(variant, column)?)))
        .collect();
    let sentence = match differences.first() {
        None => format!("{} and {} have no accuracy in common to compare.", own.label, baseline.label),
        Some((_, first)) if first.half_width.is_none() => {
            observation_sentence(own, baseline, &differences, comparison.seeds_word())
        }
        Some(_) => interval_sentence(&own.label, &baseline.label, &differences, comparison.seeds_word()),
    };
    format!("{sentence}{}", untold(comparison, named.filter(has_difference)))
}

/// The groups among these columns with too few test images, as a sentence after another one.
fn untold(comparison: &Comparison, columns: impl Iterator<Item = usize>) -> String {
    let few = columns.map(|column| (column, tested(comparison, column))).filter(|(_, images)| *images < FEWEST_IMAGES);
    let few =
        few.map(|(column, images)| format!("{} on {}", comparison.columns[column], test_images(comparison, images)));
    let few: Vec<String> = few.collect();
    if few.is_empty() { String::new() } else { format!(" Too few for a claim: {}.", listed(&few)) }
}

/// Number of test images in a column.
fn tested(comparison: &Comparison, column: usize) -> u64 {
    let images =
        |classes: &mut dyn Iterator<Item = &Class>| classes.fold(0u64, |sum, class| sum.saturating_add(class.test));
    match comparison.groups.get(column) {
        Some(group) => images(&mut group.classes.iter().filter_map(|class| comparison.classes.get(*class))),
        None => images(&mut comparison.classes.iter()),
    }
}

/// `1 test image`, `2 test images`.
fn test_images(comparison: &Comparison, number: u64) -> String {
    comparison.examples().counted(number, "test")
}

/// `on Rare`, or `overall`.
fn place(comparison: &Comparison, column: usize) -> String {
    match column == comparison.groups.len() {
        true => "overall".to_owned(),
        false => format!("on {}", comparison.columns[column]),
    }
}

/// The sentence for differences without an interval: what is seen, not what is proved.
fn observation_sentence(
    own: &Variant,
    baseline: &Variant,
    differences: &[(String, Difference)],
    seeds: &str,
) -> String {
    let seed = seeds.strip_suffix('s').unwrap_or(seeds);
    let part = |(index, (place, d)): (usize, &(String, Difference))| {
        let (than, to) = match index {
            0 => (format!(" than {}", baseline.label), format!(" to {}", baseline.label)),
            _ => (String::new(), String::new()),
        };
        let direction = if d.mean < 0.0 { "lower" } else { "higher" };
        match d.mean.abs() < 0.05 {
            true => format!("equal{to} {place}"),
            false => format!("{} points {direction}{than} {place}", tenths(d.mean.abs())),
        }
    };
    let parts: Vec<String> = differences.iter().enumerate().map(part).collect();
    let start = match (differences[0].1.pairs, own.runs.len(), baseline.runs.len()) {
        (1, 1, 1) => "In one run each".to_owned(),
        (1, ..) => format!("On the only {seed} that both have"),
        (2, ..) => format!("On two {seeds}"),
        (_, own, other) => format!("In {own} against {other} runs without a common {seed}"),
    };
    let few = match differences[0].1.pairs {
        1 => format!("one {seed}"),
        2 => format!("two {seeds}"),
        _ => "so few runs".to_owned(),
    };
    format!("{start}, {} is {}; {few} cannot tell how much of that is chance.", own.label, listed(&parts))
}

/// The sentence for differences with an interval.
fn interval_sentence(name: &str, baseline: &str, differences: &[(String, Difference)], seeds: &str) -> String {
    let (mut clear, mut unclear) = (Vec::new(), Vec::new());
    for (place, d) in differences {
        let half = tenths(d.half_width.unwrap_or(f64::INFINITY));
        if d.distinguishable() {
            let verb = if d.mean < 0.0 { "loses" } else { "gains" };
            clear.push(format!("{verb} {} ± {half} points {place}", tenths(d.mean.abs())));
        } else {
            unclear.push(format!("{place} ({} ± {half})", signed(d.mean)));
        }
    }
    let seeds = match differences[0].1.pairs {
        0 => "runs not paired by seed".to_owned(),
        n => format!("{n} {seeds}"),
    };
    let (clear_list, unclear_list) = (listed(&clear), listed(&unclear));
    match (clear.len(), unclear.len()) {
        (0, _) => format!("{name} is not distinguishable from {baseline} {unclear_list}; {seeds}."),
        (_, 0) => format!("Compared with {baseline}, {name} {clear_list}; {seeds}."),
        _ => format!(
            "Compared with {baseline}, {name} {clear_list}, and is not distinguishable from it {unclear_list}; \
             {seeds}."
        ),
    }
}

/// The accuracy of one variant, without a comparison.
fn accuracy_sentence(comparison: &Comparison, variant: &Variant) -> String {
    let Variant { label, cells, runs, .. } = variant;
    let groups = comparison.groups.len();
    let named = if groups > 1 { 0..groups } else { 0..0 };
    let measured = named.filter(|column| cells[*column].spread.is_some());
    let by_group: Vec<String> = measured
        .clone()
        .filter(|column| tested(comparison, *column) >= FEWEST_IMAGES)
        .map(|column| format!("{} {}", cells[column].text(), place(comparison, column)))
        .collect();
    let runs = match runs.len() {
        1 => "one run".to_owned(),
        n => format!("{n} {}", comparison.seeds_word()),
    };
    let overall = cells[groups].text();
    let images = tested(comparison, groups);
    if images == 0 {
        return format!("{label} was trained without test images, so that nothing is measured; {runs}.");
    }
    if (1..FEWEST_IMAGES).contains(&images) {
        return format!(
            "{label} reaches {overall} % on {}, too few for a claim; {runs}.",
            test_images(comparison, images)
        );
    }
    let untold = untold(comparison, measured);
    match by_group.is_empty() {
        true => format!("{label} reaches {overall} % overall; {runs}.{untold}"),
        false => format!("{label} reaches {overall} % overall: {}; {runs}.{untold}", listed(&by_group)),
    }
}

/// `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
