//! How sets and rejections do on images with labels.

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::sets::Guarantee;
use equipoise_record::{Decisions, RejectionCounts, SetCounts};

use super::{Decision, REPORTED_ALPHA, REPORTED_RATE};

/// Prediction sets of some images.
#[derive(Clone, Debug, PartialEq)]
pub struct SetFigures {
    /// The promise for each class.
    pub guarantees: Vec<Guarantee>,
    /// Every group.
    pub groups: Vec<GroupSets>,
    /// Every class: images, images whose set holds their class, sum of the sizes.
    pub classes: Vec<[u64; 3]>,
}

/// Prediction sets of a group's images. Every class counts the same.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSets {
    /// Name of the group.
    pub name: String,
    /// Share of the images whose set holds their class; `None` without images.
    pub coverage: Option<f64>,
    /// Mean number of classes in a set; `None` without images.
    pub size: Option<f64>,
    /// Classes of the group for which the promise holds by themselves.
    pub own: usize,
    /// Classes of the group.
    pub classes: usize,
}

/// Rejections of some images.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectionFigures {
    /// Every group.
    pub groups: Vec<GroupRejections>,
}

/// Rejections of a group's images. Every class counts the same.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRejections {
    /// Name of the group.
    pub name: String,
    /// Rejected share of the images that are classified correctly; `None` without any.
    pub right: Option<f64>,
    /// Rejected share of the images that are classified wrongly; `None` without any.
    pub wrong: Option<f64>,
    /// Accuracy on the images that are left; `None` without any.
    pub accuracy: Option<f64>,
    /// Whether the group has too few calibration images for a threshold of its own.
    pub sparse: bool,
}

/// What is decided about an image with a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowDecision {
    /// Number of classes in its set; 0 without sets.
    size: u16,
    /// Whether its set holds its class.
    is_covered: bool,
    /// Whether it is classified correctly.
    is_right: bool,
    /// Whether it is rejected.
    is_rejected: bool,
}

impl RowDecision {
    /// Number of bytes of a decision.
    pub(crate) const BYTES: usize = 3;

    /// Decides about an image by its adjusted logits and by those of its probabilities.
    pub(crate) fn new(decision: &Decision, adjusted: &[f32], probable: &[f32], label: usize) -> Self {
        let set = decision.set(adjusted).unwrap_or_default();
        Self {
            size: u16::try_from(set.len()).unwrap_or(u16::MAX),
            is_covered: set.contains(&label),
            is_right: super::largest(probable).0 == label,
            is_rejected: decision.rejects(adjusted),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let [low, high] = self.size.to_le_bytes();
        let flags = [self.is_covered, self.is_right, self.is_rejected];
        [low, high, flags.into_iter().rev().fold(0, |bits, flag| 2 * bits + u8::from(flag))]
    }

    pub(crate) fn from_bytes([low, high, flags]: [u8; Self::BYTES]) -> Self {
        let [is_covered, is_right, is_rejected] = [1, 2, 4].map(|bit| flags & bit > 0);
        Self { size: u16::from_le_bytes([low, high]), is_covered, is_right, is_rejected }
    }
}

/// Counts sets and rejections image by image.
#[derive(Clone, Debug)]
pub struct DecisionTally<'a> {
    decision: &'a Decision,
    groups: &'a [ClassGroup],
    /// Images, covered images and sizes, by class.
    sets: Vec<[u64; 3]>,
    /// Right answers, rejected right answers, wrong answers, rejected wrong answers, by class.
    rejections: Vec<[u64; 4]>,
}

impl<'a> DecisionTally<'a> {
    /// Counts of no images.
    #[must_use]
    pub fn new(decision: &'a Decision, groups: &'a [ClassGroup], classes: usize) -> Self {
        Self { decision, groups, sets: vec![[0; 3]; classes], rejections: vec![[0; 4]; classes] }
    }

    /// Counts an image by its adjusted logits and by those of its probabilities.
    pub fn add(&mut self, adjusted: &[f32], probable: &[f32], label: usize) {
        self.add_decided(RowDecision::new(self.decision, adjusted, probable, label), label);
    }

    /// Counts what was decided about an image.
    pub(crate) fn add_decided(&mut self, row: RowDecision, label: usize) {
        let sets = &mut self.sets[label];
        sets[0] += 1;
        sets[1] += u64::from(row.is_covered);
        sets[2] += u64::from(row.size);
        let answers = &mut self.rejections[label][2 * usize::from(!row.is_right)..][..2];
        answers[0] += 1;
        answers[1] += u64::from(row.is_rejected);
    }

    /// The counts for the report, of decisions at its shares.
    pub(crate) fn record(&self) -> Decisions {
        let (alpha, rate) = (REPORTED_ALPHA, REPORTED_RATE);
        let (sets, rejections) = (self.sets.clone(), self.rejections.clone());
        Decisions {
            sets: self.decision.sets().map(|_| SetCounts { alpha, classes: sets }),
            rejections: self.decision.rejection().map(|_| RejectionCounts { rate, classes: rejections }),
        }
    }

    /// What was asked for.
    #[must_use]
    pub fn finish(&self) -> (Option<SetFigures>, Option<RejectionFigures>) {
        let members = |group: usize| self.groups[group].classes.iter().copied();
        let sets = self.decision.sets().map(|sets| {
            let of = |(number, group): (usize, &ClassGroup)| {
                let rate =
                    |part: usize| mean(members(number).map(|class| ratio(self.sets[class][part], self.sets[class][0])));
                let own = members(number).filter(|class| sets.guarantees()[*class] == Guarantee::Class).count();
                let (coverage, size) = (rate(1), rate(2));
                GroupSets { name: group.name.clone(), coverage, size, own, classes: group.classes.len() }
            };
            let groups =
                self.groups.iter().enumerate().filter(|(_, group)| !group.classes.is_empty()).map(of).collect();
            SetFigures { guarantees: sets.guarantees().to_vec(), groups, classes: self.sets.clone() }
        });
        let rejection = self.decision.rejection().map(|rejection| {
            let of = |(number, group): (usize, &ClassGroup)| {
                let rate = |part: usize, of: usize| {
                    mean(members(number).map(|class| ratio(self.rejections[class][part], self.rejections[class][of])))
                };
                let accepted = |class: usize| {
                    let [right, lost, wrong, caught] = self.rejections[class];
                    ratio(right - lost, right - lost + wrong - caught)
                };
                GroupRejections {
                    name: group.name.clone(),
                    right: rate(1, 0),
                    wrong: rate(3, 2),
                    accuracy: mean(members(number).map(accepted)),
                    sparse: rejection.sparse().get(number).copied().unwrap_or(true),
                }
            };
            let groups = self.groups.iter().enumerate().filter(|(_, group)| !group.classes.is_empty());
            RejectionFigures { groups: groups.map(of).collect() }
        });
        (sets, rejection)
    }
}

fn ratio(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Mean of the numbers that are known.
fn mean(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = numbers.flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_survive_as_bytes() {
        for bits in 0..8 {
            let [is_covered, is_right, is_rejected] = [1, 2, 4].map(|bit| bits & bit > 0);
            let row = RowDecision { size: 700 + bits, is_covered, is_right, is_rejected };
            assert_eq!(RowDecision::from_bytes(row.to_bytes()), row);
        }
    }
}
