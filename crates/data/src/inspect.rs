//! What there is to know about a data set before training on it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use equipoise_pool::Pool;
use serde::Serialize;

use crate::decode::{Bounds, decode, format_of, read_image};
use crate::error::DataError;
use crate::groups::Rule;
use crate::loader::Progress;
use crate::longtail::counts;
use crate::set::{DataSet, Images, Part, Problem};

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The set's name.
    pub dataset: String,
    /// Training images.
    pub train: u64,
    /// Test images.
    pub test: u64,
    /// Every class.
    pub classes: Vec<Class>,
    /// Largest class over smallest, of those that are not empty.
    pub imbalance_factor: f64,
    /// 0 when all classes are equally large, towards 1 when one has everything.
    pub gini: f64,
    /// Classes by size.
    pub groups: Vec<Group>,
    /// Width and height of the images, the most common first, at most ten.
    pub sizes: Vec<(String, u64)>,
    /// Formats of the files, the most common first.
    pub formats: Vec<(String, u64)>,
    /// What is odd, by image.
    pub problems: Vec<Problem>,
    /// What follows from all this.
    pub advice: Vec<String>,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its training images.
    pub train: u64,
    /// Its test images.
    pub test: u64,
}

/// A group of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its classes' names, the largest first.
    pub classes: Vec<String>,
}

/// Looks at a set; files are read and decoded on all threads.
///
/// # Errors
/// For a label out of range.
pub fn inspect(set: &DataSet, rule: Rule, pool: &Pool, progress: Progress<'_>) -> Result<Report, DataError> {
    let (train, test) = (counts(&set.train.labels, set.classes.len())?, counts(&set.test.labels, set.classes.len())?);
    let name = |class: &usize| set.classes[*class].clone();
    let groups: Vec<Group> = rule
        .groups(&train)
        .into_iter()
        .map(|group| Group { classes: group.classes.iter().map(name).collect(), name: group.name })
        .collect();
    let classes = (0..set.classes.len()).map(|c| Class { name: name(&c), train: train[c], test: test[c] }).collect();
    let found = findings(set, pool, progress);
    let mut report = Report {
        dataset: set.name.clone(),
        train: train.iter().sum(),
        test: test.iter().sum(),
        classes,
        imbalance_factor: imbalance(&train),
        gini: gini(&train),
        groups,
        sizes: common(found.sizes.iter().map(|((w, h), n)| (format!("{w} x {h}"), *n))),
        formats: common(found.formats.iter().map(|(name, n)| ((*name).to_owned(), *n))),
        problems: found.problems,
        advice: Vec::new(),
    };
    report.advice = advice(&report, found.overlap, found.broken);
    Ok(report)
}

/// The most common of some things.
fn common(things: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut things: Vec<(String, u64)> = things.collect();
    things.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    things.truncate(10);
    things
}

/// Largest over smallest, empty classes left out.
fn imbalance(counts: &[u64]) -> f64 {
    let filled = || counts.iter().copied().filter(|n| *n > 0);
    match (filled().max(), filled().min()) {
        (Some(most), Some(least)) => most as f64 / least as f64,
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

/// What a look at one image says.
struct Look {
    /// Of its content: equal images have equal ones, others practically never.
    key: u128,
    width: u64,
    height: u64,
    format: &'static str,
}

/// Looks at every image of a part, files on all threads.
fn look(part: &Part, pool: &Pool, step: &(dyn Fn(u64) + Sync)) -> Vec<Result<Look, String>> {
    let mut looks: Vec<Result<Look, String>> = (0..part.labels.len()).map(|_| Err(String::new())).collect();
    const AT_ONCE: usize = 16;
    let mut tasks: Vec<&mut [Result<Look, String>]> = looks.chunks_mut(AT_ONCE).collect();
    pool.each(&mut tasks, |task, looks| {
        for (i, look) in looks.iter_mut().enumerate() {
            let at = task * AT_ONCE + i;
            *look = match &part.images {
                Images::Memory(pixels) => {
                    let (width, height) = (pixels.width as u64, pixels.height as u64);
                    Ok(Look { key: key(pixels.image(at)), width, height, format: "in memory" })
                }
                Images::Files(files) => look_at(&files[at]),
            };
        }
        step(looks.len() as u64);
    });
    looks
}

/// Reads and decodes a file.
fn look_at(file: &Path) -> Result<Look, String> {
    let bytes = read_image(file)?;
    let format = format_of(&bytes);
    let image = decode(&bytes, Bounds::default()).map_err(|error| error.to_string())?;
    Ok(Look { key: key(&bytes), width: image.width.into(), height: image.height.into(), format })
}

/// A hash of 128 bits.
fn key(bytes: &[u8]) -> u128 {
    let step = |h: u64, b: &u8, by: u64| (h ^ u64::from(*b)).wrapping_mul(by);
    let low = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| step(h, b, 0x0100_0000_01b3));
    let high = bytes.iter().fold(bytes.len() as u64, |h, b| step(h, b, 0x9e37_79b9_7f4a_7c15).rotate_left(23));
    u128::from(high) << 64 | u128::from(low)
}

/// What a look at all images says.
#[derive(Default)]
struct Findings {
    problems: Vec<Problem>,
    /// Test images that are also trained on.
    overlap: u64,
    /// Images that cannot be read.
    broken: u64,
    sizes: BTreeMap<(u64, u64), u64>,
    formats: BTreeMap<&'static str, u64>,
}

fn findings(set: &DataSet, pool: &Pool, progress: Progress<'_>) -> Findings {
    let mut found = Findings { problems: set.problems.clone(), ..Findings::default() };
    let mut first: HashMap<u128, (&str, usize, u32)> = HashMap::new();
    let parts = [("train", Some(&set.train)), ("val", set.val.as_ref()), ("test", Some(&set.test))];
    let parts: Vec<(&str, &Part)> = parts.into_iter().filter_map(|(name, part)| Some((name, part?))).collect();
    let path = |part: &str, at: usize| match parts.iter().find(|(name, _)| *name == part).map(|(_, part)| &part.images)
    {
        Some(Images::Files(files)) => files[at].display().to_string(),
        _ => format!("{part}[{at}]"),
    };
    let total: u64 = parts.iter().map(|(_, part)| part.labels.len() as u64).sum();
    let done = AtomicU64::new(0);
    let step = |images: u64| progress(done.fetch_add(images, Ordering::Relaxed) + images, total);
    for &(name, part) in &parts {
        for (at, look) in look(part, pool, &step).into_iter().enumerate() {
            let look = match look {
                Ok(look) => look,
                Err(what) => {
                    found.broken += 1;
                    found.problems.push(Problem { path: path(name, at), what });
                    continue;
                }
            };
            *found.sizes.entry((look.width, look.height)).or_default() += 1;
            *found.formats.entry(look.format).or_default() += 1;
            let label = part.labels[at];
            let (before, place, other) = *first.entry(look.key).or_insert((name, at, label));
            if (before, place) != (name, at) {
                found.overlap += u64::from(before == "train" && name == "test");
                let class = if other == label { "" } else { ", with another label" };
                let what = format!("the same image as {}{class}", path(before, place));
                found.problems.push(Problem { path: path(name, at), what });
            }
        }
    }
    found
}

fn advice(report: &Report, overlap: u64, broken: u64) -> Vec<String> {
    let mut advice = Vec::new();
    if broken > 0 {
        advice.push(format!("{broken} files cannot be read: mend or remove them before training."));
    }
    let factor = report.imbalance_factor;
    advice.push(match factor {
        ..1.5 => "The classes are about equally large: `softmax` is all you need.".to_owned(),
        1.5..10.0 => format!("Imbalance {factor:.1}: start with `balanced-softmax`, and see what `softmax` loses on the small classes."),
        _ => format!("Imbalance {factor:.0}: compare `balanced-softmax`, `seesaw` and `cwap` with `softmax`; an ordinary run will neglect the small classes."),
    });
    let listed = |classes: &[&Class]| {
        let names: Vec<&str> = classes.iter().take(5).map(|class| class.name.as_str()).collect();
        let more = if classes.len() > 5 { format!(" and {} more", classes.len() - 5) } else { String::new() };
        format!("{}{more}", names.join(", "))
    };
    let empty: Vec<&Class> = report.classes.iter().filter(|class| class.train == 0).collect();
    if !empty.is_empty() {
        advice.push(format!("No training image at all: {}. Leave these classes out, or find some.", listed(&empty)));
    }
    let few: Vec<&Class> = report.classes.iter().filter(|class| (1..20).contains(&class.train)).collect();
    if !few.is_empty() {
        advice.push(format!(
            "Fewer than 20 training images: {}. What they learn depends on which images these are.",
            listed(&few)
        ));
    }
    if let Some(rare) = report.groups.iter().rev().find(|group| !group.classes.is_empty()) {
        let in_group = |class: &&Class| rare.classes.contains(&class.name);
        let tested: u64 = report.classes.iter().filter(in_group).map(|class| class.test).sum();
        // half of a 95 % interval of a share near one half
        let half = 98.0 / (tested.max(1) as f64).sqrt();
        if tested == 0 {
            advice.push(format!("No test image in group {}: nothing can be said about it.", rare.name));
        } else if half > 5.0 {
            advice.push(format!(
                "{tested} test images in group {}: its accuracy is known to about +- {half:.0} points only.",
                rare.name
            ));
        }
    }
    if overlap > 0 {
        advice.push(format!("{overlap} test images are also trained on: results will look better than they are."));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Pixels;

    /// One pixel per image, the given bytes.
    fn part(images: &[u8], labels: &[u32]) -> Part {
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: images.to_vec().into() };
        Part { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    fn set(train: Part, test: Part) -> DataSet {
        let classes = ["a", "b", "c"].map(str::to_owned).to_vec();
        DataSet { name: "own".to_owned(), classes, train, val: None, test, problems: Vec::new() }
    }

    #[test]
    fn figures_problems_and_advice() {
        let train = part(&[1, 2, 3, 4, 5, 6, 7, 8, 2], &[0, 0, 0, 0, 0, 0, 1, 1, 1]);
        let test = part(&[9, 3], &[0, 1]);
        let report = inspect(&set(train, test), Rule::Rank(3), &Pool::single(), &|_, _| {}).expect("valid");
        assert_eq!((report.train, report.test, report.imbalance_factor), (9, 2, 2.0));
        assert_eq!(report.groups.iter().map(|g| g.classes.concat()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let problems: Vec<(&str, &str)> = report.problems.iter().map(|p| (p.path.as_str(), p.what.as_str())).collect();
        let want = [
            ("train[8]", "the same image as train[1], with another label"),
            ("test[1]", "the same image as train[2], with another label"),
        ];
        assert_eq!(problems, want);
        let advice = report.advice.join("\n");
        for what in [
            "Imbalance 2.0",
            "No training image at all: c",
            "Fewer than 20",
            "No test image in group Few",
            "1 test images are also",
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
