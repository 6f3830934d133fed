//! The folds of a cross-validation: every image is held out once.
//!
//! The images of a class are dealt out to the folds in a random order, and the next class goes on where the last one ended: a fold has as many
//! images of a class as any other, give or take one, and as many in all. Images that belong together go to one fold, the one that lacks
//! them most.

use std::collections::BTreeMap;

use equipoise_random::{Example, Stream};

use super::grouping::FileGroups;
use crate::dataset::{Images, Split};

/// One fold of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldRule {
    /// Number of folds.
    pub folds: u32,
    /// The fold that is held out, from 0.
    pub fold: u32,
    /// Seed of the order in which images are dealt out.
    pub seed: u64,
}

/// Divides images into those to train on and those of a fold, each in their order.
#[must_use]
pub fn split_fold(images: &Split, groups: &FileGroups, rule: FoldRule) -> (Split, Split) {
    let held: Vec<bool> = folds(images, groups, rule).iter().map(|fold| *fold == rule.fold).collect();
    images.divided(&held)
}

/// The fold of every image, from 0, whichever fold the rule holds out.
#[must_use]
pub fn folds(images: &Split, groups: &FileGroups, rule: FoldRule) -> Vec<u32> {
    let key = |example: u64| Example { seed: rule.seed, epoch: 0, example }.draws(Stream::Folds).at(0);
    match (&images.images, groups.is_empty()) {
        (Images::Files(files), false) => folds_of_groups((&images.labels, &groups.of(files)), rule.folds, &key),
        _ => folds_of_images(&images.labels, rule.folds, &key),
    }
}

/// The fold of every image.
fn folds_of_images(labels: &[u32], folds: u32, key: &dyn Fn(u64) -> u64) -> Vec<u32> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|index| (labels[*index], key(*index as u64), *index));
    let mut fold = vec![0; labels.len()];
    for (position, index) in order.into_iter().enumerate() {
        fold[index] = (position % folds.max(1) as usize) as u32;
    }
    fold
}

/// The fold of every image of groups that stay together: the largest groups first, each to the fold with the fewest images of its classes.
fn folds_of_groups((labels, groups): (&[u32], &[u64]), folds: u32, key: &dyn Fn(u64) -> u64) -> Vec<u32> {
    let mut members: BTreeMap<u64, BTreeMap<u32, usize>> = BTreeMap::new();
    for (label, group) in labels.iter().zip(groups) {
        *members.entry(*group).or_default().entry(*label).or_default() += 1;
    }
    let mut order: Vec<(&u64, &BTreeMap<u32, usize>)> = members.iter().collect();
    order.sort_by_key(|(group, counts)| (std::cmp::Reverse(counts.values().sum::<usize>()), key(**group), **group));
    let mut counts = vec![(BTreeMap::<u32, usize>::new(), 0usize); folds.max(1) as usize];
    let mut fold_of: BTreeMap<u64, u32> = BTreeMap::new();
    for (group, own) in order {
        let load = |fold: &usize| {
            let (by_class, total) = &counts[*fold];
            let same: usize = own.iter().map(|(class, n)| n * by_class.get(class).copied().unwrap_or(0)).sum();
            (same, *total, *fold)
        };
        let fold = (0..counts.len()).min_by_key(load).unwrap_or(0);
        let (by_class, total) = &mut counts[fold];
        for (class, n) in own {
            *by_class.entry(*class).or_default() += n;
            *total += n;
        }
        fold_of.insert(*group, fold as u32);
    }
    groups.iter().map(|group| fold_of[group]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Pixels;

    fn key(seed: u64) -> impl Fn(u64) -> u64 {
        move |example| Example { seed, epoch: 0, example }.draws(Stream::Folds).at(0)
    }

    #[test]
    fn every_image_is_held_out_once() {
        let labels: Vec<u32> = [vec![0; 23], vec![1; 7], vec![2; 1], vec![4; 5]].concat();
        let bytes: Vec<u8> = (0..labels.len() as u8).collect();
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: bytes.into() };
        let split = Split { images: Images::Memory(pixels), labels: labels.clone() };
        let alone = FileGroups::default();
        let mut seen = Vec::new();
        for fold in 0..5 {
            let (train, held) = split_fold(&split, &alone, FoldRule { folds: 5, fold, seed: 3 });
            assert_eq!(train.labels.len() + held.labels.len(), labels.len());
            assert!((7..=8).contains(&held.labels.len()), "36 images in 5 folds");
            for (class, images) in [(0, 23), (1, 7), (2, 1), (4, 5)] {
                let number = held.labels.iter().filter(|label| **label == class).count();
                assert!((images / 5..=images / 5 + 1).contains(&number), "class {class}: {number}");
            }
            seen.extend(held.images.pixels().expect("in memory").bytes.to_vec());
            assert_eq!(split_fold(&split, &alone, FoldRule { folds: 5, fold, seed: 3 }).1, held);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..36).collect::<Vec<u8>>());
        let first = |seed| split_fold(&split, &alone, FoldRule { folds: 5, fold: 0, seed }).1;
        assert_ne!(first(3), first(4));
    }

    #[test]
    fn groups_stay_together_and_classes_are_spread() {
        let labels: Vec<u32> = (0..100).map(|i| u32::from(i >= 80)).collect();
        let groups: Vec<u64> = (0..100).map(|i| i / 4).collect();
        let folds = folds_of_groups((&labels, &groups), 5, &key(1));
        for (i, fold) in folds.iter().enumerate() {
            assert_eq!(*fold, folds[i / 4 * 4], "image {i}");
        }
        for fold in 0..5 {
            let of = |class| folds.iter().zip(&labels).filter(|(f, l)| **f == fold && **l == class).count();
            assert_eq!((of(0), of(1)), (16, 4), "fold {fold}");
        }
    }
}
