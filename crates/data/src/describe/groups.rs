//! Groups of classes by training size: Many, Medium, Few, Rare.

use std::fmt;
use std::str::FromStr;

use crate::error::DataError;

/// How classes are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `rank:K`: K groups with equally many classes, by size; where that does not come out even the middle groups have one
    /// more (ten classes in four groups: 2, 3, 3, 2). K = 4 is the GHM-CWAP paper's.
    Rank(usize),
    /// `threshold`: many above 100 images, medium 20 to 100, few below 20.
    Threshold,
    /// `mass:K`: K groups with about equally many images.
    Mass(usize),
}

impl Default for Rule {
    fn default() -> Self {
        Self::Rank(4)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(k) => write!(f, "rank:{k}"),
            Self::Threshold => f.write_str("threshold"),
            Self::Mass(k) => write!(f, "mass:{k}"),
        }
    }
}

impl FromStr for Rule {
    type Err = DataError;

    fn from_str(rule: &str) -> Result<Self, DataError> {
        let wrong = |what: &str| DataError::Groups { rule: rule.to_owned(), what: what.to_owned() };
        let (name, k) = rule.split_once(':').map_or((rule, None), |(name, k)| (name, Some(k)));
        let number = |k: Option<&str>| match k.map_or(Ok(4), str::parse) {
            Ok(k @ 1..=26) => Ok(k),
            _ => Err(wrong("the number of groups must be in 1..=26")),
        };
        match name {
            "rank" => number(k).map(Self::Rank),
            "mass" => number(k).map(Self::Mass),
            "threshold" if k.is_none() => Ok(Self::Threshold),
            _ => Err(wrong("must be rank:K, mass:K or threshold")),
        }
    }
}

/// A group of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its classes, the largest first; may be empty.
    pub classes: Vec<usize>,
}

impl Rule {
    /// Groups the classes of a training set with these counts, the largest first. Equal counts go by class number.
    #[must_use]
    pub fn groups(&self, counts: &[u64]) -> Vec<Group> {
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|c| (std::cmp::Reverse(counts[*c]), *c));
        let named = |names: Vec<String>, group_of: &dyn Fn(usize, usize) -> usize| {
            let mut groups: Vec<Group> = names.into_iter().map(|name| Group { name, classes: Vec::new() }).collect();
            for (rank, &class) in order.iter().enumerate() {
                groups[group_of(rank, class)].classes.push(class);
            }
            groups
        };
        match *self {
            Self::Rank(k) => {
                let sizes = even(counts.len(), k);
                let group_of = |rank: usize, _| {
                    let mut end = 0;
                    let past = |size: &usize| {
                        end += size;
                        rank < end
                    };
                    sizes.iter().position(past).unwrap_or(k - 1)
                };
                named(names(k), &group_of)
            }
            Self::Threshold => {
                let names = ["Many", "Medium", "Few"].map(str::to_owned).to_vec();
                named(names, &|_, class| match counts[class] {
                    101.. => 0,
                    20..=100 => 1,
                    _ => 2,
                })
            }
            Self::Mass(k) => {
                let total: u128 = counts.iter().map(|n| u128::from(*n)).sum();
                let mut before = 0u128;
                let group: Vec<usize> = order
                    .iter()
                    .map(|class| {
                        // the group in whose share of the images the middle of this class lies
                        let middle = 2 * before + u128::from(counts[*class]);
                        before += u128::from(counts[*class]);
                        if total == 0 { 0 } else { ((middle * k as u128 / (2 * total)) as usize).min(k - 1) }
                    })
                    .collect();
                named(names(k), &|rank, _| group[rank])
            }
        }
    }
}

/// `classes` in `k` parts as even as can be, the larger ones in the middle.
fn even(classes: usize, k: usize) -> Vec<usize> {
    let (size, more) = (classes / k, classes % k);
    let first = (k - more) / 2;
    (0..k).map(|i| size + usize::from((first..first + more).contains(&i))).collect()
}

/// The usual names for up to four groups, numbers beyond.
fn names(k: usize) -> Vec<String> {
    let usual: &[&str] = match k {
        1 => &["All"],
        2 => &["Many", "Few"],
        3 => &["Many", "Medium", "Few"],
        4 => &["Many", "Medium", "Few", "Rare"],
        _ => return (1..=k).map(|i| format!("Group {i}")).collect(),
    };
    usual.iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(rule: Rule, counts: &[u64]) -> Vec<Vec<usize>> {
        rule.groups(counts).into_iter().map(|group| group.classes).collect()
    }

    #[test]
    fn the_papers_groups_of_ten_classes_are_2_3_3_2() {
        let counts = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50];
        let want = [vec![0, 1], vec![2, 3, 4], vec![5, 6, 7], vec![8, 9]];
        assert_eq!(classes(Rule::Rank(4), &counts), want);
        let groups = Rule::Rank(4).groups(&counts);
        assert_eq!(groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["Many", "Medium", "Few", "Rare"]);
        assert_eq!(Rule::Rank(4).groups(&[7; 100]).iter().map(|g| g.classes.len()).collect::<Vec<_>>(), [25; 4]);
    }

    #[test]
    fn ranks_go_by_size_and_ties_by_number() {
        assert_eq!(classes(Rule::Rank(2), &[3, 9, 3, 10]), [vec![3, 1], vec![0, 2]]);
        assert_eq!(classes(Rule::Rank(4), &[5, 6]), [vec![], vec![1], vec![0], vec![]]);
    }

    #[test]
    fn thresholds() {
        assert_eq!(classes(Rule::Threshold, &[101, 100, 20, 19, 0]), [vec![0], vec![1, 2], vec![3, 4]]);
    }

    #[test]
    fn masses() {
        assert_eq!(classes(Rule::Mass(2), &[50, 20, 20, 10]), [vec![0], vec![1, 2, 3]]);
        assert_eq!(classes(Rule::Mass(2), &[0, 0]), [vec![0, 1], vec![]]);
    }

    #[test]
    fn rules_are_read_and_written() {
        for rule in [Rule::Rank(4), Rule::Rank(7), Rule::Threshold, Rule::Mass(3)] {
            assert_eq!(rule.to_string().parse::<Rule>().expect("valid"), rule);
        }
        assert_eq!("rank".parse::<Rule>().expect("valid"), Rule::Rank(4));
        for bad in ["rank:0", "rank:x", "rank:99", "threshold:3", "size", ""] {
            assert!(matches!(bad.parse::<Rule>(), Err(DataError::Groups { .. })), "{bad}");
        }
    }
}
