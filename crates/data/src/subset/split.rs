//! Test and validation splits, for datasets that do not come with them.
//!
//! There is one rule for both: in every class, the images with the smallest random keys are held out. The fraction of a class
//! is rounded to the nearest image, and no class loses its last image. A test split takes at least one image of every class
//! that has two; a validation split may take none of a small class, unless a least number is given, of which a class gives
//! at most half of its images. Beside a long-tailed subset of a larger dataset, a validation split can be balanced instead.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use equipoise_random::{Example, Stream};

use super::grouping::{FileGroups, held_out_groups};
use crate::dataset::{Images, Split, class_counts, indices_by_class};
use crate::error::DataError;
use crate::hash::fnv1a;
use crate::read::options::ReadOptions;

/// How a dataset without a test split is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitRule {
    /// Fraction of every class that becomes the test split, at least 0 and less than 1. At 0 everything is for training.
    pub test_fraction: f64,
    /// Seed of the choice of images.
    pub seed: u64,
}

impl Default for SplitRule {
    /// A fifth of every class.
    fn default() -> Self {
        Self { test_fraction: 0.2, seed: 0 }
    }
}

impl SplitRule {
    /// Checks that the fraction leaves images for training.
    ///
    /// # Errors
    /// If it is not at least 0 and less than 1.
    pub fn check(&self) -> Result<(), DataError> {
        let fraction = self.test_fraction;
        if (0.0..1.0).contains(&fraction) { Ok(()) } else { Err(DataError::TestFraction { fraction }) }
    }
}

/// Which images of a class are held out, given the random key of each; ties go to the smaller index.
fn held_out(keys: &[u64], fraction: f64, at_least: usize) -> Vec<bool> {
    let images = keys.len();
    let wanted = (images as f64 * fraction).round() as usize;
    let number = wanted.max(at_least).min(images.saturating_sub(1));
    let mut order: Vec<usize> = (0..images).collect();
    order.sort_by_key(|index| keys[*index]);
    let mut chosen = vec![false; images];
    order.into_iter().take(number).for_each(|index| chosen[index] = true);
    chosen
}

/// Image files by class name.
pub(crate) type ClassFiles = BTreeMap<String, Vec<PathBuf>>;

/// A split of these files, labeled by the position of their class in `names`.
pub(crate) fn labeled(files: &ClassFiles, names: &[String]) -> Split {
    let (mut paths, mut labels) = (Vec::new(), Vec::new());
    for (label, name) in names.iter().enumerate() {
        for path in files.get(name).into_iter().flatten() {
            paths.push(path.clone());
            labels.push(label as u32);
        }
    }
    Split { images: Images::Files(paths), labels }
}

/// Splits files into training and test, without those that are left out; groups stay together. The key of a file depends on its path below `root`
/// and on nothing else, so that other files or classes do not change where it goes.
pub(crate) fn split_files(
    root: &Path,
    files: ClassFiles,
    options: &ReadOptions,
    (names, groups): (&[String], &FileGroups),
) -> Result<(Split, Split), DataError> {
    let rule = options.split;
    rule.check()?;
    let draw = |example: u64| Example { seed: rule.seed, epoch: 0, example }.draws(Stream::TestSplit).at(0);
    let at_least = usize::from(rule.test_fraction > 0.0);
    let mut files = files;
    for paths in files.values_mut() {
        paths.retain(|path| !options.left_out.contains(path));
        paths.sort();
    }
    if !groups.is_empty() {
        if rule.test_fraction > 0.0 {
            groups.check_number()?;
        }
        let all = labeled(&files, names);
        let Images::Files(paths) = &all.images else { return Ok((all.subset(&[]), all)) };
        let of = (&all.labels[..], &groups.of(paths)[..]);
        let held = held_out_groups(of, names.len(), (rule.test_fraction, at_least), &draw);
        return Ok(all.divided(&held));
    }
    let key = |path: &PathBuf| draw(fnv1a(path.strip_prefix(root).unwrap_or(path).as_os_str().as_encoded_bytes()));
    let (mut train, mut test) = (ClassFiles::new(), ClassFiles::new());
    for (name, paths) in files {
        let keys: Vec<u64> = paths.iter().map(key).collect();
        let mut chosen = held_out(&keys, rule.test_fraction, at_least).into_iter();
        let (held, rest) = paths.into_iter().partition(|_| chosen.next() == Some(true));
        test.insert(name.clone(), held);
        train.insert(name, rest);
    }
    Ok((labeled(&train, names), labeled(&test, names)))
}

/// Splits rows of features into training and test as files are split. The key of a row depends on its name, or on its number.
pub(crate) fn split_rows(
    all: &Split,
    options: &ReadOptions,
    (classes, groups): (usize, &FileGroups),
) -> Result<(Split, Split), DataError> {
    let rule = options.split;
    rule.check()?;
    let draw = |example: u64| Example { seed: rule.seed, epoch: 0, example }.draws(Stream::TestSplit).at(0);
    let at_least = usize::from(rule.test_fraction > 0.0);
    let paths = all.images.paths();
    if let (Some(paths), false) = (&paths, groups.is_empty()) {
        let of = (&all.labels[..], &groups.of(paths)[..]);
        return Ok(all.divided(&held_out_groups(of, classes, (rule.test_fraction, at_least), &draw)));
    }
    let key = |index: &u32| match &paths {
        Some(paths) => draw(fnv1a(paths[*index as usize].as_os_str().as_encoded_bytes())),
        None => draw(u64::from(*index)),
    };
    let mut held = vec![false; all.labels.len()];
    for indices in indices_by_class(&all.labels, classes)? {
        let keys: Vec<u64> = indices.iter().map(key).collect();
        for (index, chosen) in indices.iter().zip(held_out(&keys, rule.test_fraction, at_least)) {
            held[*index as usize] = chosen;
        }
    }
    Ok(all.divided(&held))
}

/// How a validation split is taken out of a training split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValidationRule {
    /// Fraction of every class that is held out, at least 0 and less than 1.
    pub fraction: f64,
    /// Least number of images of every class that are held out, or half of the class if that is less.
    pub at_least: u32,
    /// Seed of the choice of images.
    pub seed: u64,
}

/// Takes a validation split out of a training split: what remains for training, and what is held out.
///
/// # Errors
/// For a label out of range.
pub fn split_validation(
    train: &Split,
    (classes, groups): (usize, &FileGroups),
    rule: ValidationRule,
) -> Result<(Split, Split), DataError> {
    let ValidationRule { fraction, at_least, seed } = rule;
    let draw = |example: u64| Example { seed, epoch: 0, example }.draws(Stream::ValidationSplit).at(0);
    if let (Some(files), false) = (train.images.paths(), groups.is_empty()) {
        class_counts(&train.labels, classes)?;
        let of = (&train.labels[..], &groups.of(&files)[..]);
        return Ok(train.divided(&held_out_groups(of, classes, (fraction, at_least as usize), &draw)));
    }
    let key = |index: &u32| draw(u64::from(*index));
    let mut chosen = vec![false; train.labels.len()];
    for indices in indices_by_class(&train.labels, classes)? {
        let keys: Vec<u64> = indices.iter().map(key).collect();
        let at_least = (at_least as usize).min(indices.len() / 2);
        for (index, held) in indices.iter().zip(held_out(&keys, fraction, at_least)) {
            chosen[*index as usize] = held;
        }
    }
    Ok(train.divided(&chosen))
}

/// Chooses a validation split of `per_class` images of every class beside a subset of a training split: first images that the subset
/// leaves out, then its own, of which a class gives at most half. Those are removed from the subset.
///
/// # Errors
/// For a label out of range.
pub fn validation_beside(
    labels: &[u32],
    classes: usize,
    subset: &mut Vec<u32>,
    (per_class, seed): (u32, u64),
) -> Result<Vec<u32>, DataError> {
    let mut used = vec![false; labels.len()];
    subset.iter().for_each(|index| used[*index as usize] = true);
    let mut held = Vec::new();
    for mut indices in indices_by_class(labels, classes)? {
        let of_subset = indices.iter().filter(|index| used[**index as usize]).count();
        let draw = |example: u64| Example { seed, epoch: 0, example }.draws(Stream::ValidationSplit).at(0);
        indices.sort_by_key(|index| (used[*index as usize], draw(u64::from(*index)), *index));
        indices.truncate((per_class as usize).min(indices.len() - of_subset.div_ceil(2)));
        held.append(&mut indices);
    }
    held.iter().for_each(|index| used[*index as usize] = false);
    subset.retain(|index| used[*index as usize]);
    Ok(held)
}

impl Split {
    /// What remains, and what is held out.
    pub(super) fn divided(&self, held: &[bool]) -> (Self, Self) {
        let (held, rest): (Vec<u32>, Vec<u32>) = (0..self.labels.len() as u32).partition(|index| held[*index as usize]);
        (self.subset(&rest), self.subset(&held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Pixels;

    fn split(labels: &[u32]) -> Split {
        let bytes: Vec<u8> = (0..labels.len() as u8).collect();
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: bytes.into() };
        Split { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    #[test]
    fn a_validation_split_beside_a_subset_takes_what_it_leaves_out_first() {
        // 20, 20, 6 and 1 images, of which the subset has the first 18, 5, 6 and 1
        let sizes = [(20, 18), (20, 5), (6, 6), (1, 1)];
        let labels: Vec<u32> = (0..4).flat_map(|class: u32| vec![class; sizes[class as usize].0]).collect();
        let first = [0, 20, 40, 46];
        let all: Vec<u32> = (0..4).flat_map(|class| first[class]..first[class] + sizes[class].1).collect();
        let take = |per_class, seed| {
            let mut subset = all.clone();
            let held = validation_beside(&labels, 4, &mut subset, (per_class, seed)).expect("valid labels");
            (subset, held)
        };
        let of_class =
            |indices: &[u32]| [0, 1, 2, 3].map(|c| indices.iter().filter(|i| labels[**i as usize] == c).count());
        let (subset, held) = take(5, 7);
        assert_eq!((of_class(&held), of_class(&subset)), ([5, 5, 3, 0], [15, 5, 3, 1]));
        assert!(held.iter().all(|index| !subset.contains(index)));
        assert!([18, 19].iter().all(|index| held.contains(index)), "what the subset leaves out comes first");
        assert!(held.iter().filter(|index| labels[**index as usize] == 1).all(|index| *index >= 25));
        assert!(subset.is_sorted(), "the order of the subset stays");
        assert_eq!(take(5, 7), (subset, held.clone()));
        assert_ne!(take(5, 8).1, held);
        assert_eq!(take(0, 7), (all.clone(), vec![]));
        let out_of_range = validation_beside(&[9], 4, &mut vec![], (1, 0));
        assert!(out_of_range.is_err());
    }

    #[test]
    fn a_fraction_of_every_class_is_held_out_for_validation() {
        let labels: Vec<u32> = [vec![0; 20], vec![1; 10], vec![2; 1], vec![4; 3]].concat();
        let alone = FileGroups::default();
        let rule = |at_least, seed| ValidationRule { fraction: 0.2, at_least, seed };
        let take = |seed| split_validation(&split(&labels), (5, &alone), rule(0, seed)).expect("valid labels");
        let (train, val) = take(7);
        let counts = |split: &Split| class_counts(&split.labels, 5).expect("valid labels");
        assert_eq!((counts(&train), counts(&val)), (vec![16, 8, 1, 0, 2], vec![4, 2, 0, 0, 1]));
        // nothing is lost, nothing is in both
        let mut all: Vec<u8> =
            [&train, &val].iter().flat_map(|s| s.images.pixels().expect("in memory").bytes.to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..34).collect::<Vec<u8>>());
        assert_eq!(take(7), (train.clone(), val));
        assert_ne!(take(8).0, train);
        // at least five of the class of ten; half of the class of three, which is less
        let (_, more) = split_validation(&split(&labels), (5, &alone), rule(5, 7)).expect("valid labels");
        assert_eq!(counts(&more), [5, 5, 0, 0, 1]);
        let (_, large) = split_validation(&split(&[0; 100]), (1, &alone), rule(5, 7)).expect("valid labels");
        assert_eq!(large.labels.len(), 20, "the fraction, where it is more");
        let out_of_range = split_validation(&split(&[9]), (5, &alone), rule(0, 0));
        assert!(matches!(out_of_range, Err(DataError::LabelRange { label: 9, .. })));
    }

    #[test]
    fn how_many_images_are_held_out() {
        let number = |images: usize, fraction: f64, at_least: usize| {
            held_out(&vec![0; images], fraction, at_least).iter().filter(|held| **held).count()
        };
        // a test split has an image of every class of two or more, and never all of them
        let tested = [0, 1, 2, 3, 10, 12].map(|images| number(images, 0.2, 1));
        assert_eq!(tested, [0, 0, 1, 1, 2, 2]);
        assert_eq!((number(10, 0.99, 1), number(2, 0.99, 0)), (9, 1));
        let validated = [0, 1, 2, 3, 10, 13].map(|images| number(images, 0.2, 0));
        assert_eq!(validated, [0, 0, 0, 1, 2, 3]);
    }

    /// The images of a published split: these must never change.
    #[test]
    fn splits_keep_their_images() {
        let files = |class: &str| (0..10).map(|i| PathBuf::from(format!("/data/{class}/{i}.png"))).collect();
        let tree = ClassFiles::from([("a".to_owned(), files("a")), ("b".to_owned(), files("b"))]);
        let names = ["a", "b"].map(str::to_owned);
        let rule = SplitRule { test_fraction: 0.3, seed: 5 };
        let (_, test) =
            split_files(Path::new("/data"), tree, &rule.into(), (&names, &FileGroups::default())).expect("valid");
        let Images::Files(test) = test.images else { panic!("not files") };
        let chosen: Vec<String> = test.iter().map(|p| p.display().to_string()).collect();
        assert_eq!(chosen, TEST_FILES.map(|file| format!("/data/{file}")));
        let rule = ValidationRule { fraction: 0.2, at_least: 0, seed: 5 };
        let (_, val) = split_validation(&split(&[0; 20]), (1, &FileGroups::default()), rule).expect("valid");
        assert_eq!(val.images.pixels().expect("in memory").bytes[..], VAL_IMAGES);
    }

    const TEST_FILES: [&str; 6] = ["a/1.png", "a/4.png", "a/7.png", "b/3.png", "b/5.png", "b/7.png"];
    const VAL_IMAGES: [u8; 4] = [0, 7, 9, 14];
}
