//! How sets and rejections do on images with labels.

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::sets::Guarantee;

use super::Decision;

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
        if let Some(set) = self.decision.set(adjusted) {
            let counts = &mut self.sets[label];
            counts[0] += 1;
            counts[1] += u64::from(set.contains(&label));
            counts[2] += set.len() as u64;
        }
        if self.decision.rejection().is_some() {
            let is_wrong = super::largest(probable).0 != label;
            let counts = &mut self.rejections[label][2 * usize::from(is_wrong)..][..2];
            counts[0] += 1;
            counts[1] += u64::from(self.decision.rejects(adjusted));
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
