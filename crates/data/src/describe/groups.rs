//! Groups of classes by their number of training images: Many, Medium, Few, Rare.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::DataError;

/// How classes are grouped. As text: `rank:K`, `mass:K` or `threshold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupRule {
    /// `rank:K`: K groups of equally many classes, by size. If the classes do not divide evenly, the middle groups have one
    /// more (ten classes in four groups: 2, 3, 3, 2). Fewer than K classes are a group each. The GHM-CWAP paper uses K = 4.
    Rank(usize),
    /// `threshold`: Many has more than 100 images, Medium 20 to 100, Few less than 20.
    Threshold,
    /// `mass:K`: K groups of about equally many images.
    Mass(usize),
}

impl Default for GroupRule {
    fn default() -> Self {
        Self::Rank(4)
    }
}

impl fmt::Display for GroupRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(k) => write!(f, "rank:{k}"),
            Self::Threshold => f.write_str("threshold"),
            Self::Mass(k) => write!(f, "mass:{k}"),
        }
    }
}

impl FromStr for GroupRule {
    type Err = DataError;

    fn from_str(rule: &str) -> Result<Self, DataError> {
        let invalid = |what: &str| DataError::Groups { rule: rule.to_owned(), what: what.to_owned() };
        let (name, k) = rule.split_once(':').map_or((rule, None), |(name, k)| (name, Some(k)));
        let group_number = |k: Option<&str>| match k.map_or(Ok(4), str::parse) {
            Ok(k @ 1..=26) => Ok(k),
            _ => Err(invalid("the number of groups must be from 1 to 26")),
        };
        match name {
            "rank" => group_number(k).map(Self::Rank),
            "mass" => group_number(k).map(Self::Mass),
            "threshold" if k.is_none() => Ok(Self::Threshold),
            _ => Err(invalid("must be rank:K, mass:K or threshold")),
        }
    }
}

impl TryFrom<String> for GroupRule {
    type Error = DataError;

    fn try_from(rule: String) -> Result<Self, DataError> {
        rule.parse()
    }
}

impl From<GroupRule> for String {
    fn from(rule: GroupRule) -> Self {
        rule.to_string()
    }
}

/// A group of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassGroup {
    /// Name of the group.
    pub name: String,
    /// Labels of its classes, the largest class first.
    pub classes: Vec<usize>,
}

impl GroupRule {
    /// Groups the classes of a training split with these counts, the largest first. Classes of equal size are ordered by label.
    /// No group is empty. Classes of about the same size are one group, `All`, except by `threshold`: none of them is rare. Classes
    /// without images belong to the last group and make none of their own.
    #[must_use]
    pub fn groups(&self, counts: &[u64]) -> Vec<ClassGroup> {
        let rule = if *self != Self::Threshold && are_alike(counts) { Self::Rank(1) } else { *self };
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|c| (std::cmp::Reverse(counts[*c]), *c));
        let named = |names: Vec<String>, group_of: &dyn Fn(usize, usize) -> usize| {
            let mut groups: Vec<ClassGroup> =
                names.into_iter().map(|name| ClassGroup { name, classes: Vec::new() }).collect();
            for (rank, &class) in order.iter().enumerate() {
                groups[group_of(rank, class)].classes.push(class);
            }
            groups.retain(|group| !group.classes.is_empty());
            groups
        };
        match rule {
            Self::Rank(k) => {
                let filled = counts.iter().filter(|count| **count > 0).count();
                let k = k.min(filled).max(1);
                let sizes = even_sizes(filled, k);
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
                        // the group whose share of the images contains the middle of this class
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

/// Whether the largest class has at most a tenth more images than the smallest that has any.
fn are_alike(counts: &[u64]) -> bool {
    let filled = || counts.iter().copied().filter(|count| *count > 0);
    let sizes = filled().max().zip(filled().min());
    sizes.is_some_and(|(largest, smallest)| 10 * u128::from(largest) <= 11 * u128::from(smallest))
}

/// Divides `classes` into `k` sizes as evenly as possible, the larger ones in the middle.
fn even_sizes(classes: usize, k: usize) -> Vec<usize> {
    let (size, more) = (classes / k, classes % k);
    let first = (k - more) / 2;
    (0..k).map(|i| size + usize::from((first..first + more).contains(&i))).collect()
}

/// The usual names of up to four groups, and numbers for more.
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

    fn classes(rule: GroupRule, counts: &[u64]) -> Vec<Vec<usize>> {
        rule.groups(counts).into_iter().map(|group| group.classes).collect()
    }

    #[test]
    fn the_papers_groups_of_ten_classes_are_2_3_3_2() {
        let counts = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50];
        let want = [vec![0, 1], vec![2, 3, 4], vec![5, 6, 7], vec![8, 9]];
        assert_eq!(classes(GroupRule::Rank(4), &counts), want);
        let groups = GroupRule::Rank(4).groups(&counts);
        assert_eq!(groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["Many", "Medium", "Few", "Rare"]);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(GroupRule::Rank(4).groups(&hundred).iter().map(|g| g.classes.len()).collect::<Vec<_>>(), [25; 4]);
    }

    #[test]
    fn ranks_go_by_size_and_ties_by_number() {
        assert_eq!(classes(GroupRule::Rank(2), &[3, 9, 3, 10]), [vec![3, 1], vec![0, 2]]);
        assert_eq!(classes(GroupRule::Rank(4), &[5, 6]), [vec![1], vec![0]]);
        let names = |classes: u64| {
            GroupRule::Rank(4).groups(&(1..=classes).collect::<Vec<_>>()).into_iter().map(|group| group.name)
        };
        assert_eq!(names(1).collect::<Vec<_>>(), ["All"]);
        assert_eq!(names(2).collect::<Vec<_>>(), ["Many", "Few"]);
        assert_eq!(names(3).collect::<Vec<_>>(), ["Many", "Medium", "Few"]);
    }

    /// Nothing is rare among classes of one size, nor where a split has made a small difference.
    #[test]
    fn classes_of_one_size_are_one_group() {
        for rule in [GroupRule::Rank(4), GroupRule::Mass(3)] {
            for counts in [[500, 500, 500], [11, 10, 10]] {
                let groups = rule.groups(&counts);
                assert_eq!((groups.len(), groups[0].name.as_str(), groups[0].classes.len()), (1, "All", 3), "{rule}");
            }
            assert!(rule.groups(&[12, 10, 10]).len() > 1);
            assert_eq!(rule.groups(&[0, 0, 0]).len(), 1);
        }
        assert_eq!(GroupRule::Threshold.groups(&[500, 500])[0].name, "Many");
        // a class without images is no group
        assert_eq!(classes(GroupRule::Rank(4), &[0, 9, 0, 5]), [vec![1], vec![3, 0, 2]]);
        assert_eq!(GroupRule::Rank(4).groups(&[0, 5, 5])[0].name, "All");
    }

    #[test]
    fn thresholds() {
        assert_eq!(classes(GroupRule::Threshold, &[101, 100, 20, 19, 0]), [vec![0], vec![1, 2], vec![3, 4]]);
        assert_eq!(classes(GroupRule::Threshold, &[101, 19]), [vec![0], vec![1]]);
    }

    #[test]
    fn masses() {
        assert_eq!(classes(GroupRule::Mass(2), &[50, 20, 20, 10]), [vec![0], vec![1, 2, 3]]);
        assert_eq!(classes(GroupRule::Mass(2), &[0, 0]), [vec![0, 1]]);
    }

    #[test]
    fn rules_are_parsed_and_printed() {
        for rule in [GroupRule::Rank(4), GroupRule::Rank(7), GroupRule::Threshold, GroupRule::Mass(3)] {
            assert_eq!(rule.to_string().parse::<GroupRule>().expect("valid"), rule);
            let json = serde_json::to_string(&rule).expect("serializes");
            assert_eq!(json, format!("\"{rule}\""));
            assert_eq!(serde_json::from_str::<GroupRule>(&json).expect("its own"), rule);
        }
        assert_eq!("rank".parse::<GroupRule>().expect("valid"), GroupRule::Rank(4));
        for bad in ["rank:0", "rank:x", "rank:99", "threshold:3", "size", ""] {
            assert!(matches!(bad.parse::<GroupRule>(), Err(DataError::Groups { .. })), "{bad}");
        }
    }
}
