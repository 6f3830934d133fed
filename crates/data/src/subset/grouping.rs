//! Images that belong together, such as the frames of a video or the photographs of a patient: a split takes all of them or
//! none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use regex_lite::Regex;

use crate::error::DataError;
use crate::hash::fnv1a;

/// What tells which images belong together: a column of a list, or a regular expression on the path of an image. Paths belong
/// together if the first capture group matches the same text in both, or the whole expression if it has no group.
#[derive(Clone, Debug)]
pub struct GroupBy {
    text: String,
    pattern: Regex,
}

impl GroupBy {
    /// From the name of a column, or a regular expression.
    ///
    /// # Errors
    /// If the text is no regular expression.
    pub fn new(text: &str) -> Result<Self, DataError> {
        let invalid = |error: regex_lite::Error| DataError::GroupBy { text: text.to_owned(), what: error.to_string() };
        Ok(Self { text: text.to_owned(), pattern: Regex::new(text).map_err(invalid)? })
    }

    /// The text that the value was made of.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text in a path that names the group of an image.
    fn of<'a>(&self, path: &'a str) -> Option<&'a str> {
        let found = self.pattern.captures(path)?;
        found.get(1).or(found.get(0)).map(|group| group.as_str())
    }
}

/// The group of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileGroup {
    key: u64,
    /// Whether a column or the path names the group; otherwise the image stands alone.
    is_named: bool,
}

/// The groups of image files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileGroups {
    /// What tells which images belong together.
    by: String,
    groups: HashMap<PathBuf, FileGroup>,
}

impl FileGroups {
    /// No groups yet, for groups by a column of a list.
    pub(crate) fn by_column(by: Option<&GroupBy>) -> Self {
        Self { by: by.map(|by| by.text.clone()).unwrap_or_default(), groups: HashMap::new() }
    }

    /// Groups files by their paths below a folder; `files` are these folders with their files. A path that does not match is a group of
    /// its own. `columns` are those of the list that names the files, for the error.
    pub(crate) fn by_path<'a>(
        files: impl Iterator<Item = (&'a Path, &'a PathBuf)>,
        by: Option<&GroupBy>,
        columns: &[String],
    ) -> Result<Self, DataError> {
        let mut groups = Self::by_column(by);
        let Some(by) = by else { return Ok(groups) };
        let mut unmatched = None;
        for (root, file) in files {
            let below = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
            groups.insert(file.clone(), by.of(&below), &below);
            if by.of(&below).is_none() {
                unmatched = Some(below.into_owned());
            }
        }
        groups.check_paths(unmatched.as_deref(), columns)?;
        Ok(groups)
    }

    /// Adds a file by the name of its group. Without a name it is a group of its own, which `path` tells apart from others.
    pub(crate) fn insert(&mut self, file: PathBuf, group: Option<&str>, path: &str) {
        let group = group.filter(|group| !group.is_empty());
        let key = fnv1a(group.unwrap_or(path).as_bytes());
        self.groups.insert(file, FileGroup { key, is_named: group.is_some() });
    }

    /// Numbers of images with a group, and of all.
    fn matched(&self) -> (usize, usize) {
        (self.groups.values().filter(|group| group.is_named).count(), self.groups.len())
    }

    /// Refuses an expression that fits less than half of the paths: that is rarely what was meant.
    fn check_paths(&self, unmatched: Option<&str>, columns: &[String]) -> Result<(), DataError> {
        let (matched, images) = self.matched();
        let Some(example) = unmatched.filter(|_| 2 * matched < images) else { return Ok(()) };
        let column = match columns {
            [] => String::new(),
            columns => format!("there is no such column (the columns are `{}`), and ", columns.join(" | ")),
        };
        let what = match matched {
            0 => format!("{column}it matches no path, such as {example}"),
            _ => format!("{column}it matches {matched} of {images} paths, and not {example}"),
        };
        Err(DataError::GroupBy { text: self.by.clone(), what })
    }

    /// Refuses a column that is empty for more than half of the images.
    pub(crate) fn check_column(&self) -> Result<(), DataError> {
        let (matched, images) = self.matched();
        if 2 * matched >= images {
            return Ok(());
        }
        let what = format!("only {matched} of {images} images have a value in this column");
        Err(DataError::GroupBy { text: self.by.clone(), what })
    }

    /// Refuses groups that cannot be split.
    pub(crate) fn check_number(&self) -> Result<(), DataError> {
        let mut keys = self.groups.values().map(|group| group.key);
        let Some(first) = keys.next().filter(|_| self.groups.len() > 1) else { return Ok(()) };
        if keys.any(|key| key != first) {
            return Ok(());
        }
        let example = self.groups.keys().min().map(|file| file.display().to_string()).unwrap_or_default();
        let what = format!(
            "all {} images are one group, such as {example}: nothing would be left for testing",
            self.groups.len()
        );
        Err(DataError::GroupBy { text: self.by.clone(), what })
    }

    /// Adds the groups of another dataset.
    pub fn extend(&mut self, other: Self) {
        self.groups.extend(other.groups);
    }

    /// The column or expression that tells which images belong together.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Whether there are no groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of every file.
    pub(crate) fn of(&self, files: &[PathBuf]) -> Vec<u64> {
        let of = |file: &PathBuf| self.groups.get(file).map(|group| group.key);
        files.iter().map(|file| of(file).unwrap_or_else(|| fnv1a(file.as_os_str().as_encoded_bytes()))).collect()
    }

    /// The group of a file, if a column or its path names one.
    pub(crate) fn named(&self, file: &Path) -> Option<u64> {
        self.groups.get(file).filter(|group| group.is_named).map(|group| group.key)
    }
}

/// Which images are held out, given the class and the group of each.
///
/// Groups are taken in the order of their random keys, as long as more than half of a group's images are still needed in their
/// classes. A class that none of these has gets the smallest group that has it. No class loses its last image.
pub(super) fn held_out_groups(
    (labels, groups): (&[u32], &[u64]),
    classes: usize,
    (fraction, at_least): (f64, usize),
    key: &dyn Fn(u64) -> u64,
) -> Vec<bool> {
    let mut images = vec![0usize; classes];
    let mut members: BTreeMap<u64, BTreeMap<usize, usize>> = BTreeMap::new();
    for (label, group) in labels.iter().zip(groups) {
        images[*label as usize] += 1;
        *members.entry(*group).or_default().entry(*label as usize).or_default() += 1;
    }
    let number = |images: &usize| {
        let wanted = (*images as f64 * fraction).round() as usize;
        wanted.max(at_least.min(images / 2)).min(images.saturating_sub(1))
    };
    let wanted: Vec<usize> = images.iter().map(number).collect();
    let mut order: Vec<(&u64, &BTreeMap<usize, usize>)> = members.iter().collect();
    order.sort_by_key(|(group, _)| (key(**group), **group));
    let mut held = vec![0usize; classes];
    let mut chosen: HashSet<u64> = HashSet::new();
    let mut take = |group: u64, counts: &BTreeMap<usize, usize>, held: &mut [usize]| {
        if counts.iter().all(|(class, number)| held[*class] + number < images[*class]) && chosen.insert(group) {
            counts.iter().for_each(|(class, number)| held[*class] += number);
        }
    };
    for (group, counts) in &order {
        let needed = |(class, number): (&usize, &usize)| (*number).min(wanted[*class].saturating_sub(held[*class]));
        let needed: usize = counts.iter().map(needed).sum();
        if 2 * needed > counts.values().sum() {
            take(**group, counts, &mut held);
        }
    }
    for class in (0..classes).filter(|class| wanted[*class] > 0) {
        let mut having: Vec<_> = order.iter().filter(|(_, counts)| counts.contains_key(&class)).collect();
        having.sort_by_key(|(_, counts)| counts.values().sum::<usize>());
        for (group, counts) in having {
            if held[class] == 0 {
                take(**group, counts, &mut held);
            }
        }
    }
    groups.iter().map(|group| chosen.contains(group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups stay together, every class is held out from, and none loses all of its images.
    #[test]
    fn groups_are_taken_whole() {
        // class 0: twenty groups of five; class 1: four groups of two; class 2: one group; group 7 has classes 0 and 1
        let mut labels = Vec::new();
        let mut groups = Vec::new();
        let mut add = |label: u32, group: u64, number: usize| {
            labels.extend(vec![label; number]);
            groups.extend(vec![group; number]);
        };
        (0..20).for_each(|group| add(0, group, 5));
        (20..24).for_each(|group| add(1, group, 2));
        add(1, 7, 1);
        add(2, 30, 9);
        for seed in 0..50u64 {
            let key = |group: u64| fnv1a(&(group * 1000 + seed).to_le_bytes());
            let held = held_out_groups((&labels, &groups), 3, (0.2, 1), &key);
            let of = |class: u32| labels.iter().zip(&held).filter(|(label, held)| **label == class && **held).count();
            for group in &groups {
                let sides: HashSet<bool> =
                    groups.iter().zip(&held).filter(|(g, _)| *g == group).map(|(_, h)| *h).collect();
                assert_eq!(sides.len(), 1, "group {group} is on both sides");
            }
            assert!((15..=25).contains(&of(0)), "{}", of(0));
            assert!((1..=4).contains(&of(1)), "{}", of(1));
            assert_eq!(of(2), 0, "its only group is needed for training");
        }
        let none = held_out_groups((&labels, &groups), 3, (0.0, 0), &|group| group);
        assert!(none.iter().all(|held| !held));
    }

    #[test]
    fn groups_by_path() {
        let files = ["r/a/t1_0.png", "r/a/t1_1.png", "r/b/t2_0.png", "r/b/x.png"].map(PathBuf::from);
        let by = |text: &str| {
            let files = files.iter().map(|file| (Path::new("r"), file));
            FileGroups::by_path(files, Some(&GroupBy::new(text)?), &[])
        };
        let groups = by(r"(t\d+)_").expect("matches");
        assert_eq!(groups.of(&files)[0], groups.of(&files)[1]);
        assert_eq!(groups.of(&files).iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(files.iter().filter(|file| groups.named(file).is_some()).count(), 3);
        let refused = |text: &str| by(text).expect_err("refused").to_string();
        assert!(refused("patient").ends_with("it matches no path, such as b/x.png"), "{}", refused("patient"));
        assert!(refused("t1_0").ends_with("it matches 1 of 4 paths, and not b/x.png"), "{}", refused("t1_0"));
        by(r"(t)\d").expect("matches").check_number().expect("x.png stands alone");
        let one = by("p").expect("matches").check_number().expect_err("one group").to_string();
        assert!(one.contains("all 4 images are one group, such as r/a/t1_0.png"), "{one}");
        assert!(by("(").is_err());
    }
}
