//! A report on a dataset before training on it.

use std::collections::HashSet;

use equipoise_pool::Pool;
use serde::Serialize;

use super::advice::{advice, on_broken_files};
pub use super::findings::BrokenImage;
use super::findings::Findings;
use super::groups::GroupRule;
use super::image_groups::ImageGroups;
use crate::batch::loader::Progress;
use crate::dataset::{Dataset, Problem, class_counts};
use crate::error::DataError;

/// A report on a dataset. All counts are of usable images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetReport {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of training images.
    pub train: u64,
    /// Number of validation images, if the dataset has a validation split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<u64>,
    /// Number of test images.
    pub test: u64,
    /// Every class, by label.
    pub classes: Vec<ClassReport>,
    /// Size of the largest class over that of the smallest, without empty classes.
    pub imbalance_factor: f64,
    /// Gini coefficient of the class sizes: 0 if they are equal, towards 1 if one class has everything.
    pub gini: f64,
    /// Classes grouped by size.
    pub groups: Vec<GroupReport>,
    /// Width and height of the images with their number, the most common first, at most ten.
    pub sizes: Vec<(String, u64)>,
    /// Formats of the files with their number, the most common first.
    pub formats: Vec<(String, u64)>,
    /// How images that belong together were split, if they are grouped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_groups: Option<String>,
    /// What is odd about single images and folders.
    pub problems: Vec<Problem>,
    /// What follows from all this.
    pub advice: Vec<String>,
    /// Files that cannot be read. They are among the problems too.
    #[serde(skip)]
    pub broken: Vec<BrokenImage>,
}

impl DatasetReport {
    /// Adds files that cannot be read, of so many images in all; they may have been left out of the dataset.
    pub fn add_broken(&mut self, broken: Vec<BrokenImage>, images: usize) {
        // a list has already named its missing files
        let named: HashSet<&str> = self.problems.iter().map(|problem| problem.path.as_str()).collect();
        let problem =
            |image: &BrokenImage| Problem { path: image.path.display().to_string(), what: image.what.clone() };
        let new = broken.iter().map(problem).filter(|problem| !named.contains(problem.path.as_str()));
        let problems: Vec<Problem> = new.collect();
        self.problems.extend(problems);
        for image in &broken {
            if let Some(class) = self.classes.get_mut(image.label as usize) {
                class.broken += 1;
            }
        }
        self.broken.extend(broken);
        if !self.broken.is_empty() {
            self.advice.insert(0, on_broken_files(self.broken.len(), images));
        }
    }
}

/// A class in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassReport {
    /// Name of the class.
    pub name: String,
    /// Number of usable training images.
    pub train: u64,
    /// Number of usable validation images, if the dataset has a validation split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<u64>,
    /// Number of usable test images.
    pub test: u64,
    /// Number of files that cannot be read.
    #[serde(skip_serializing_if = "is_zero")]
    pub broken: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A group of classes in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// Name of the group.
    pub name: String,
    /// Names of its classes, the largest class first.
    pub classes: Vec<String>,
}

/// Inspects a dataset; files are read and decoded on all threads.
///
/// # Errors
/// For a label out of range.
pub fn inspect(
    dataset: &Dataset,
    rule: GroupRule,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<DatasetReport, DataError> {
    for split in [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)].into_iter().flatten() {
        class_counts(&split.labels, dataset.classes.len())?;
    }
    let found = Findings::of(dataset, pool, progress);
    let [train, val, test] = &found.usable;
    let grouped = rule.groups(train);
    let name = |class: &usize| dataset.classes[*class].clone();
    let groups = grouped
        .iter()
        .map(|group| GroupReport { classes: group.classes.iter().map(name).collect(), name: group.name.clone() });
    let has_val = |number: u64| dataset.val.as_ref().map(|_| number);
    let class =
        |c: usize| ClassReport { name: name(&c), train: train[c], val: has_val(val[c]), test: test[c], broken: 0 };
    let mut report = DatasetReport {
        dataset: dataset.name.clone(),
        train: train.iter().sum(),
        val: has_val(val.iter().sum()),
        test: test.iter().sum(),
        classes: (0..dataset.classes.len()).map(class).collect(),
        imbalance_factor: imbalance(train),
        gini: gini(train),
        groups: groups.collect(),
        sizes: most_common(found.sizes.iter().map(|((w, h), n)| (format!("{w} x {h}"), *n))),
        formats: most_common(found.formats.iter().map(|(name, n)| ((*name).to_owned(), *n))),
        image_groups: None,
        problems: Vec::new(),
        advice: Vec::new(),
        broken: Vec::new(),
    };
    report.advice = advice(&report, &grouped, &found);
    if let Some(ImageGroups { summary, warnings }) = ImageGroups::of(dataset) {
        report.image_groups = Some(summary);
        report.advice.extend(warnings);
    }
    report.problems = found.problems;
    let images =
        dataset.train.labels.len() + dataset.val.as_ref().map_or(0, |val| val.labels.len()) + dataset.test.labels.len();
    report.add_broken(found.broken, images);
    Ok(report)
}

/// The ten most common items.
fn most_common(items: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut items: Vec<(String, u64)> = items.collect();
    items.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    items.truncate(10);
    items
}

/// Size of the largest class over that of the smallest, without empty classes.
fn imbalance(counts: &[u64]) -> f64 {
    let filled = || counts.iter().copied().filter(|n| *n > 0);
    match (filled().max(), filled().min()) {
        (Some(largest), Some(smallest)) => largest as f64 / smallest as f64,
        _ => 1.0,
    }
}

/// The Gini coefficient of class sizes.
fn gini(counts: &[u64]) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let (n, total) = (sorted.len() as f64, sorted.iter().sum::<u64>() as f64);
    if total == 0.0 {
        return 0.0;
    }
    let ranked: f64 = sorted.iter().enumerate().map(|(i, x)| (i + 1) as f64 * *x as f64).sum();
    2.0 * ranked / (n * total) - (n + 1.0) / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Images, Pixels, Split};
    use crate::subset::grouping::FileGroups;

    /// One pixel per image, the given bytes.
    fn split(images: &[u8], labels: &[u32]) -> Split {
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: images.to_vec().into() };
        Split { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    fn dataset(train: Split, test: Split) -> Dataset {
        let classes = ["a", "b", "c"].map(str::to_owned).to_vec();
        Dataset {
            name: "own".to_owned(),
            classes,
            train,
            val: None,
            test,
            groups: FileGroups::default(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn counts_problems_and_advice() {
        let train = split(&[1, 2, 3, 4, 5, 6, 7, 8, 2], &[0, 0, 0, 0, 0, 0, 1, 1, 1]);
        let test = split(&[9, 3], &[0, 1]);
        let report = inspect(&dataset(train, test), GroupRule::Rank(3), &Pool::single(), &|_, _| {}).expect("valid");
        assert_eq!((report.train, report.test, report.imbalance_factor), (9, 2, 2.0));
        assert_eq!(report.groups.iter().map(|g| g.classes.concat()).collect::<Vec<_>>(), ["a", "bc"]);
        let problems: Vec<(&str, &str)> = report.problems.iter().map(|p| (p.path.as_str(), p.what.as_str())).collect();
        let want = [
            ("train[8]", "the same image as train[1], with another label"),
            ("test[1]", "the same image as train[2], with another label"),
        ];
        assert_eq!(problems, want);
        let advice = report.advice.join("\n");
        for what in [
            "Imbalance 2.0",
            "No training images: c",
            "Fewer than 20",
            "Few test images in groups Many (1), Few (1): their accuracies are known only to about +- 98, 98 points",
            "No test images: c. ",
            "1 test image is also",
        ] {
            assert!(advice.contains(what), "{what}: {advice}");
        }
    }

    #[test]
    fn gini_has_its_limits() {
        assert_eq!(gini(&[7, 7, 7]), 0.0);
        assert!((gini(&[0, 0, 0, 12]) - 0.75).abs() < 1e-12);
        // sum over pairs of differences / (2 n^2 mean): (1 + 2 + 1) * 2 / (2 * 9 * 2)
        assert!((gini(&[1, 2, 3]) - 2.0 / 9.0).abs() < 1e-12);
        assert_eq!(gini(&[0, 0]), 0.0);
    }
}
