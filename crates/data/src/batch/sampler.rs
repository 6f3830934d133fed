//! Which examples an epoch shows, in which order: a pure function of (labels, seed, epoch).
//!
//! An epoch has as many examples as the training set, whatever the sampler. Nothing has to be saved to resume: the order is
//! made again and the run goes on at its position. Workers take every W-th example of the same order, so that their shards
//! are disjoint and cover everything.

use std::fmt;
use std::str::FromStr;

use equipoise_random::{Draws, Example, Stream};

use crate::error::DataError;
use crate::subset::long_tail::by_class;

/// How often classes are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Every example once.
    #[default]
    Uniform,
    /// Every class equally often.
    ClassBalanced,
    /// In proportion to the square root of its size (Mahajan et al., ECCV 2018).
    SquareRoot,
    /// From `Uniform` in the first epoch to `ClassBalanced` in the last (Kang et al., ICLR 2020).
    Progressive {
        /// Epochs of the whole run.
        epochs: u64,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::ClassBalanced => "class-balanced",
            Self::SquareRoot => "square-root",
            Self::Progressive { .. } => "progressive",
        })
    }
}

impl Kind {
    /// The sampler of that name for a run of so many epochs.
    #[must_use]
    pub fn named(name: &str, epochs: u64) -> Option<Self> {
        [Self::Uniform, Self::ClassBalanced, Self::SquareRoot, Self::Progressive { epochs }]
            .into_iter()
            .find(|kind| kind.to_string() == name)
    }
}

/// A worker's part of every epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which worker, from 0.
    rank: usize,
    /// How many there are.
    size: usize,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { rank: 0, size: 1 };

    /// The part of worker `rank`, from 0, of `size`.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn new(rank: usize, size: usize) -> Result<Self, DataError> {
        if rank < size { Ok(Self { rank, size }) } else { Err(DataError::Shard { rank, size }) }
    }

    /// Which worker, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many workers there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl FromStr for Shard {
    type Err = String;

    /// `RANK/SIZE`, from 0.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(r, s)| Some((r.parse().ok()?, s.parse().ok()?)));
        match parts {
            Some((rank, size)) if rank < size => Ok(Self { rank, size }),
            _ => Err(format!("`{text}`: must be RANK/SIZE with RANK below SIZE")),
        }
    }
}

/// The order of examples in every epoch of a run.
#[derive(Clone, Debug)]
pub struct Sampler {
    kind: Kind,
    seed: u64,
    /// Positions by class, empty classes left out.
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
    /// A sampler for a training set with these labels.
    ///
    /// # Errors
    /// For a label out of range, or more than 2^32 images.
    pub fn new(kind: Kind, labels: &[u32], classes: usize, seed: u64) -> Result<Self, DataError> {
        let mut classes = by_class(labels, classes)?;
        classes.retain(|positions| !positions.is_empty());
        // by their first example: how classes are numbered does not matter
        classes.sort_unstable();
        Ok(Self { kind, seed, classes, examples: labels.len() })
    }

    /// Examples in an epoch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.examples
    }

    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.examples == 0
    }

    /// Positions in the training set, in the order an epoch (from 0) shows them to a worker.
    ///
    /// The shards of several workers differ in length by at most one.
    #[must_use]
    pub fn epoch(&self, epoch: u64, shard: Shard) -> Vec<u32> {
        let whole = match self.kind {
            Kind::Uniform => self.every_example(epoch),
            _ => self.by_share(epoch),
        };
        whole.into_iter().skip(shard.rank).step_by(shard.size).collect()
    }

    fn draws(&self, epoch: u64, purpose: Purpose, of: u64) -> Draws {
        Example { seed: self.seed, epoch, example: (of << 2) | purpose as u64 }.draws(Stream::Sampler)
    }

    /// Every example once, by a random key of its own.
    fn every_example(&self, epoch: u64) -> Vec<u32> {
        let draws = self.draws(epoch, Purpose::Order, 0);
        let mut keyed: Vec<(u64, u32)> =
            self.classes.iter().flatten().map(|example| (draws.at(u64::from(*example)), *example)).collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, example)| example).collect()
    }

    /// Classes by their share, examples of a class in turns: none comes twice before all came once.
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
                    // keyed by the class's first example, not by its number: the order of classes does not matter
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

    /// How often each class is drawn; the shares add up to 1.
    fn shares(&self, epoch: u64) -> Vec<f64> {
        let (n, c) = (self.examples as f64, self.classes.len() as f64);
        let sizes = self.classes.iter().map(|positions| positions.len() as f64);
        match self.kind {
            Kind::Uniform => sizes.map(|size| size / n).collect(),
            Kind::ClassBalanced => sizes.map(|_| 1.0 / c).collect(),
            Kind::SquareRoot => {
                let total: f64 = sizes.clone().map(f64::sqrt).sum();
                sizes.map(|size| size.sqrt() / total).collect()
            }
            Kind::Progressive { epochs } => {
                let t = if epochs > 1 { epoch.min(epochs - 1) as f64 / (epochs - 1) as f64 } else { 1.0 };
                sizes.map(|size| (1.0 - t) * size / n + t / c).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 4] = [Kind::Uniform, Kind::ClassBalanced, Kind::SquareRoot, Kind::Progressive { epochs: 5 }];

    /// 900 of class 0, 90 of class 1, 10 of class 2, none of class 3; in mixed order.
    fn labels() -> Vec<u32> {
        let mut labels: Vec<u32> = [vec![0; 900], vec![1; 90], vec![2; 10]].concat();
        labels.rotate_left(450);
        labels
    }

    fn sampler(kind: Kind) -> Sampler {
        Sampler::new(kind, &labels(), 4, 7).expect("valid")
    }

    fn per_class(order: &[u32]) -> [usize; 3] {
        let labels = labels();
        let mut counts = [0; 3];
        order.iter().for_each(|i| counts[labels[*i as usize] as usize] += 1);
        counts
    }

    #[test]
    fn uniform_shows_every_example_once_in_a_new_order_every_epoch() {
        let sampler = sampler(Kind::Uniform);
        let (first, second) = (sampler.epoch(0, Shard::WHOLE), sampler.epoch(1, Shard::WHOLE));
        assert_ne!(first, second);
        assert_eq!(first, sampler.epoch(0, Shard::WHOLE));
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, (0..1000).collect::<Vec<u32>>());
        }
        let other = Sampler::new(Kind::Uniform, &labels(), 4, 8).expect("valid");
        assert_ne!(other.epoch(0, Shard::WHOLE), sampler.epoch(0, Shard::WHOLE));
    }

    #[test]
    fn classes_come_by_their_share() {
        let near = |kind: Kind, epoch: u64, want: [f64; 3]| {
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
            near(Kind::ClassBalanced, epoch, [1.0 / 3.0; 3]);
            near(Kind::SquareRoot, epoch, roots.map(|r| r / total));
        }
        let progressive = Kind::Progressive { epochs: 5 };
        near(progressive, 0, [0.9, 0.09, 0.01]);
        near(progressive, 2, [(0.9 + 1.0 / 3.0) / 2.0, (0.09 + 1.0 / 3.0) / 2.0, (0.01 + 1.0 / 3.0) / 2.0]);
        near(progressive, 4, [1.0 / 3.0; 3]);
    }

    #[test]
    fn examples_of_a_class_take_turns() {
        let labels = labels();
        let order = sampler(Kind::ClassBalanced).epoch(3, Shard::WHOLE);
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
    fn shards_are_disjoint_and_make_the_whole() {
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

    /// Numbering the classes otherwise changes nothing.
    #[test]
    fn the_order_of_classes_does_not_matter() {
        let renamed: Vec<u32> = labels().iter().map(|l| 3 - l).collect();
        for kind in KINDS {
            let other = Sampler::new(kind, &renamed, 4, 7).expect("valid");
            assert_eq!(other.epoch(1, Shard::WHOLE), sampler(kind).epoch(1, Shard::WHOLE), "{kind:?}");
        }
    }

    #[test]
    fn names_and_shards_are_read() {
        for kind in KINDS {
            assert_eq!(Kind::named(&kind.to_string(), 5), Some(kind));
        }
        assert_eq!(Kind::named("random", 5), None);
        assert_eq!("1/3".parse(), Ok(Shard { rank: 1, size: 3 }));
        for (rank, size) in [(0, 0), (3, 3), (4, 3)] {
            let error = Shard::new(rank, size).expect_err("no such worker").to_string();
            assert_eq!(error, format!("shard {rank}/{size}: the first must be below the second"));
        }
        for bad in ["3/3", "1", "a/b", "-1/3", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
        assert!(Sampler::new(Kind::Uniform, &[], 3, 0).expect("valid").epoch(0, Shard::WHOLE).is_empty());
        assert!(Sampler::new(Kind::ClassBalanced, &[], 3, 0).expect("valid").epoch(0, Shard::WHOLE).is_empty());
    }
}
