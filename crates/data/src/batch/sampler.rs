//! The order of examples in an epoch: a pure function of (labels, seed, epoch).
//!
//! An epoch has as many examples as the training split, whatever the sampler. A resumed run computes the order again and
//! continues at its position. Each of W workers takes every W-th example of the same order, so their shards are disjoint and
//! cover the epoch.

use std::fmt;
use std::str::FromStr;

use equipoise_random::{Draws, Example, Stream};
use serde::{Deserialize, Serialize};

use crate::dataset::indices_by_class;
use crate::error::DataError;

/// How often classes are drawn. As text: `uniform`, `class-balanced`, `square-root` or `progressive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplerKind {
    /// Every example comes once.
    #[default]
    Uniform,
    /// Every class is drawn equally often.
    ClassBalanced,
    /// A class is drawn in proportion to the square root of its size (Mahajan et al., ECCV 2018).
    SquareRoot,
    /// Goes from `Uniform` in the first epoch to `ClassBalanced` in the last (Kang et al., ICLR 2020).
    Progressive,
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::ClassBalanced => "class-balanced",
            Self::SquareRoot => "square-root",
            Self::Progressive => "progressive",
        })
    }
}

impl FromStr for SamplerKind {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let known = "uniform, class-balanced, square-root, progressive";
        [Self::Uniform, Self::ClassBalanced, Self::SquareRoot, Self::Progressive]
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| DataError::Name { what: "sampler", name: name.to_owned(), known })
    }
}

/// The part of every epoch that one worker sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    rank: usize,
    size: usize,
}

impl Shard {
    /// The complete epoch, for a single worker.
    pub const WHOLE: Self = Self { rank: 0, size: 1 };

    /// The shard of worker `rank`, from 0, of `size` workers.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn new(rank: usize, size: usize) -> Result<Self, DataError> {
        if rank < size { Ok(Self { rank, size }) } else { Err(DataError::Shard { rank, size }) }
    }

    /// Rank of the worker, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of workers.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

/// The order of examples in every epoch of a run.
#[derive(Clone, Debug)]
pub struct Sampler {
    kind: SamplerKind,
    /// Epochs of the run.
    epochs: u64,
    seed: u64,
    /// Indices by class, without empty classes.
    classes: Vec<Vec<u32>>,
    examples: usize,
}

/// What the draws of one epoch are for.
#[derive(Clone, Copy)]
enum Purpose {
    Order,
    Class,
    Within,
}

impl Sampler {
    /// A sampler for a run of this many epochs on a training split with these labels.
    ///
    /// # Errors
    /// For a label out of range, or more than 2^32 images.
    pub fn new(kind: SamplerKind, epochs: u64, labels: &[u32], classes: usize, seed: u64) -> Result<Self, DataError> {
        let mut classes = indices_by_class(labels, classes)?;
        classes.retain(|indices| !indices.is_empty());
        // sorted by their first example, so that the numbering of classes does not matter
        classes.sort_unstable();
        Ok(Self { kind, epochs, seed, classes, examples: labels.len() })
    }

    /// Number of examples in an epoch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.examples
    }

    /// Whether an epoch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.examples == 0
    }

    /// Indices of the training images that a worker sees in an epoch (from 0), in order.
    ///
    /// Shards differ in length by at most one.
    #[must_use]
    pub fn epoch(&self, epoch: u64, shard: Shard) -> Vec<u32> {
        let order = match self.kind {
            SamplerKind::Uniform => self.every_example(epoch),
            _ => self.by_share(epoch),
        };
        order.into_iter().skip(shard.rank).step_by(shard.size).collect()
    }

    fn draws(&self, epoch: u64, purpose: Purpose, of: u64) -> Draws {
        Example { seed: self.seed, epoch, example: (of << 2) | purpose as u64 }.draws(Stream::Sampler)
    }

    /// Every example once, sorted by a random key.
    fn every_example(&self, epoch: u64) -> Vec<u32> {
        let draws = self.draws(epoch, Purpose::Order, 0);
        let mut keyed: Vec<(u64, u32)> =
            self.classes.iter().flatten().map(|example| (draws.at(u64::from(*example)), *example)).collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, example)| example).collect()
    }

    /// Classes by their share; the examples of a class take turns, so that none comes twice before all came once.
    fn by_share(&self, epoch: u64) -> Vec<u32> {
        let shares = self.shares(epoch);
        let mut ends = Vec::with_capacity(shares.len());
        shares.iter().fold(0.0, |sum, share| {
            ends.push(sum + share);
            sum + share
        });
        let last = self.classes.len().saturating_sub(1);
        let draws = self.draws(epoch, Purpose::Class, 0);
        let mut turns: Vec<(usize, Vec<u32>)> = vec![(0, Vec::new()); self.classes.len()];
        (0..self.examples)
            .map(|k| {
                let u = draws.unit(k as u64);
                let class = ends.partition_point(|end| *end <= u).min(last);
                let (taken, order) = &mut turns[class];
                let size = self.classes[class].len();
                if *taken % size == 0 {
                    // keyed by the first example of the class, so that the numbering of classes does not matter
                    let within = self.draws(epoch, Purpose::Within, u64::from(self.classes[class][0]));
                    let round = (*taken / size * self.examples) as u64;
                    let mut keyed: Vec<(u64, u32)> =
                        self.classes[class].iter().map(|e| (within.at(round + u64::from(*e)), *e)).collect();
                    keyed.sort_unstable();
                    *order = keyed.into_iter().map(|(_, example)| example).collect();
                }
                *taken += 1;
                order[(*taken - 1) % size]
            })
            .collect()
    }

    /// The share of each class in an epoch; the shares add up to 1.
    fn shares(&self, epoch: u64) -> Vec<f64> {
        let (n, c) = (self.examples as f64, self.classes.len() as f64);
        let sizes = self.classes.iter().map(|indices| indices.len() as f64);
        match self.kind {
            SamplerKind::Uniform => sizes.map(|size| size / n).collect(),
            SamplerKind::ClassBalanced => sizes.map(|_| 1.0 / c).collect(),
            SamplerKind::SquareRoot => {
                let total: f64 = sizes.clone().map(f64::sqrt).sum();
                sizes.map(|size| size.sqrt() / total).collect()
            }
            SamplerKind::Progressive => {
                let last = self.epochs.saturating_sub(1);
                let t = if last > 0 { epoch.min(last) as f64 / last as f64 } else { 1.0 };
                sizes.map(|size| (1.0 - t) * size / n + t / c).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [SamplerKind; 4] =
        [SamplerKind::Uniform, SamplerKind::ClassBalanced, SamplerKind::SquareRoot, SamplerKind::Progressive];

    /// 900 of class 0, 90 of class 1, 10 of class 2, none of class 3; in mixed order.
    fn labels() -> Vec<u32> {
        let mut labels: Vec<u32> = [vec![0; 900], vec![1; 90], vec![2; 10]].concat();
        labels.rotate_left(450);
        labels
    }

    fn sampler(kind: SamplerKind) -> Sampler {
        Sampler::new(kind, 5, &labels(), 4, 7).expect("valid")
    }

    fn per_class(order: &[u32]) -> [usize; 3] {
        let labels = labels();
        let mut counts = [0; 3];
        order.iter().for_each(|i| counts[labels[*i as usize] as usize] += 1);
        counts
    }

    #[test]
    fn uniform_shows_every_example_once_in_a_new_order_every_epoch() {
        let sampler = sampler(SamplerKind::Uniform);
        let (first, second) = (sampler.epoch(0, Shard::WHOLE), sampler.epoch(1, Shard::WHOLE));
        assert_ne!(first, second);
        assert_eq!(first, sampler.epoch(0, Shard::WHOLE));
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, (0..1000).collect::<Vec<u32>>());
        }
        let other = Sampler::new(SamplerKind::Uniform, 5, &labels(), 4, 8).expect("valid");
        assert_ne!(other.epoch(0, Shard::WHOLE), sampler.epoch(0, Shard::WHOLE));
    }

    #[test]
    fn classes_come_by_their_share() {
        let check = |kind: SamplerKind, epoch: u64, want: [f64; 3]| {
            let got = per_class(&sampler(kind).epoch(epoch, Shard::WHOLE));
            for (got, want) in got.iter().zip(want) {
                // four standard deviations of 1000 draws
                let bound = 4.0 * (1000.0 * want * (1.0 - want)).sqrt();
                assert!((*got as f64 - 1000.0 * want).abs() <= bound, "{kind:?}: {got} of 1000 at {want}");
            }
        };
        let roots = [900f64.sqrt(), 90f64.sqrt(), 10f64.sqrt()];
        let total: f64 = roots.iter().sum();
        for epoch in 0..5 {
            check(SamplerKind::ClassBalanced, epoch, [1.0 / 3.0; 3]);
            check(SamplerKind::SquareRoot, epoch, roots.map(|r| r / total));
        }
        let progressive = SamplerKind::Progressive;
        check(progressive, 0, [0.9, 0.09, 0.01]);
        check(progressive, 2, [(0.9 + 1.0 / 3.0) / 2.0, (0.09 + 1.0 / 3.0) / 2.0, (0.01 + 1.0 / 3.0) / 2.0]);
        check(progressive, 4, [1.0 / 3.0; 3]);
    }

    #[test]
    fn examples_of_a_class_take_turns() {
        let labels = labels();
        let order = sampler(SamplerKind::ClassBalanced).epoch(3, Shard::WHOLE);
        let rare: Vec<u32> = order.into_iter().filter(|i| labels[*i as usize] == 2).collect();
        for round in rare.chunks_exact(10) {
            let mut seen = round.to_vec();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 10, "an example came twice in a round");
        }
        assert_ne!(rare[..10], rare[10..20], "every round has an order of its own");
    }

    #[test]
    fn shards_are_disjoint_and_cover_the_epoch() {
        for kind in KINDS {
            let sampler = sampler(kind);
            let whole = sampler.epoch(2, Shard::WHOLE);
            for size in [2, 3, 7] {
                let shards: Vec<Vec<u32>> =
                    (0..size).map(|rank| sampler.epoch(2, Shard::new(rank, size).expect("a worker"))).collect();
                // interleaved again they are the order that one worker would see
                let joined: Vec<u32> = (0..1000).map(|i| shards[i % size][i / size]).collect();
                assert_eq!(joined, whole, "{kind:?}, {size} workers");
                assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), 1000);
            }
        }
    }

    /// Another numbering of the classes changes nothing.
    #[test]
    fn the_order_of_classes_does_not_matter() {
        let renamed: Vec<u32> = labels().iter().map(|l| 3 - l).collect();
        for kind in KINDS {
            let other = Sampler::new(kind, 5, &renamed, 4, 7).expect("valid");
            assert_eq!(other.epoch(1, Shard::WHOLE), sampler(kind).epoch(1, Shard::WHOLE), "{kind:?}");
        }
    }

    #[test]
    fn names_are_parsed_and_printed() {
        for kind in KINDS {
            assert_eq!(kind.to_string().parse::<SamplerKind>().expect("known"), kind);
            assert_eq!(serde_json::to_string(&kind).expect("serializes"), format!("\"{kind}\""));
        }
        let error = "random".parse::<SamplerKind>().expect_err("unknown").to_string();
        assert!(error.starts_with("unknown sampler `random`: must be one of uniform,"), "{error}");
    }

    #[test]
    fn shards_and_empty_epochs() {
        assert_eq!(Shard::new(1, 3).expect("a worker"), Shard { rank: 1, size: 3 });
        for (rank, size) in [(0, 0), (3, 3), (4, 3)] {
            let error = Shard::new(rank, size).expect_err("no such worker").to_string();
            assert_eq!(error, format!("shard {rank}/{size}: the rank must be less than the number of workers"));
        }
        assert!(Sampler::new(SamplerKind::Uniform, 5, &[], 3, 0).expect("valid").epoch(0, Shard::WHOLE).is_empty());
        assert!(
            Sampler::new(SamplerKind::ClassBalanced, 5, &[], 3, 0).expect("valid").epoch(0, Shard::WHOLE).is_empty()
        );
    }
}
