//! How images that belong together were split, for people.

use std::collections::HashMap;
use std::path::Path;

use crate::dataset::{Dataset, Images, Split};

/// How images that belong together were split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGroups {
    /// One line: how many groups there are, and where they are.
    pub summary: String,
    /// What is probably not meant.
    pub warnings: Vec<String>,
}

/// A group of images.
struct Group<'a> {
    /// Number of images in each split.
    images: [usize; 3],
    /// The first image in each split.
    first: [Option<&'a Path>; 3],
    /// Whether a column or the path names the group.
    is_named: bool,
}

/// What the images of each split are for.
const PURPOSES: [&str; 3] = ["training", "validation", "testing"];

impl ImageGroups {
    /// The groups of a dataset, split as it is; `None` unless a column or an expression groups its images.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Option<Self> {
        if dataset.groups.is_empty() || dataset.groups.by().is_empty() {
            return None;
        }
        let groups = groups(dataset);
        let by = dataset.groups.by();
        let thing = if matches!(dataset.train.images, Images::Features(_)) { "row" } else { "image" };
        let images: usize = groups.iter().flat_map(|group| group.images).sum();
        let largest = groups.iter().map(|group| group.images.iter().sum()).max().unwrap_or(0);
        let part = |(split, purpose): (usize, &&str)| {
            let groups: Vec<usize> =
                groups.iter().map(|group| group.images[split]).filter(|images| *images > 0).collect();
            let images: usize = groups.iter().sum();
            (images > 0).then(|| format!("{} ({}) for {purpose}", groups.len(), counted(images, thing)))
        };
        let parts: Vec<String> = PURPOSES.iter().enumerate().filter_map(part).collect();
        let summary = format!(
            "group-by `{by}`: {} in {} of up to {largest}; {}",
            counted(images, thing),
            counted(groups.len(), "group"),
            parts.join(", ")
        );
        let mut warnings = Vec::new();
        warnings.extend(unnamed(&groups, images, thing));
        warnings.extend(alone(&groups, thing));
        warnings.extend(divided(&groups));
        Some(Self { summary, warnings: warnings.into_iter().map(|what| format!("group-by `{by}`: {what}")).collect() })
    }
}

/// The groups in the splits of a dataset, in the order of their first images.
fn groups(dataset: &Dataset) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut named: HashMap<u64, usize> = HashMap::new();
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    for (number, split) in splits.into_iter().enumerate() {
        let Some(Split { images, labels }) = split else { continue };
        for file in (0..labels.len()).filter_map(|index| images.file(index)) {
            let key = dataset.groups.named(file);
            let new = groups.len();
            let index = key.map_or(new, |key| *named.entry(key).or_insert(new));
            if index == new {
                groups.push(Group { images: [0; 3], first: [None; 3], is_named: key.is_some() });
            }
            groups[index].images[number] += 1;
            groups[index].first[number].get_or_insert(file);
        }
    }
    groups
}

/// Images without a group.
fn unnamed(groups: &[Group<'_>], images: usize, thing: &str) -> Option<String> {
    let mut alone = groups.iter().filter(|group| !group.is_named);
    let first = alone.next()?.first.iter().flatten().next()?;
    let (number, stand) = match 1 + alone.count() {
        1 => (1, "has no group and stands alone"),
        number => (number, "have no group and stand alone"),
    };
    Some(format!("{number} of {} {stand}, such as {}", counted(images, thing), first.display()))
}

/// Groups of one image each keep nothing together.
fn alone(groups: &[Group<'_>], thing: &str) -> Option<String> {
    let is_single = |group: &Group<'_>| group.images.iter().sum::<usize>() == 1;
    let first = groups.iter().find(|group| group.is_named)?.first.iter().flatten().next()?;
    let all = groups.iter().all(is_single);
    all.then(|| {
        format!("every {thing} is a group of its own, such as {}, so nothing is kept together", first.display())
    })
}

/// Groups that the dataset itself has in two splits.
fn divided(groups: &[Group<'_>]) -> Vec<String> {
    let pairs = [(0, 2), (0, 1), (1, 2)];
    let warning = |(one, other): (usize, usize)| {
        let mut both = groups.iter().filter_map(|group| Some((group.first[one]?, group.first[other]?)));
        let (first, second) = both.next()?;
        let (groups, verb) = match 1 + both.count() {
            1 => ("1 group".to_owned(), "is"),
            number => (format!("{number} groups"), "are"),
        };
        Some(format!(
            "{groups} {verb} in {} and {}, such as that of {} and {}: results will look better than they are",
            PURPOSES[one],
            PURPOSES[other],
            first.display(),
            second.display()
        ))
    };
    pairs.into_iter().filter_map(warning).collect()
}

fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
