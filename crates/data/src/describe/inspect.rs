//! What there is to know about a data set before training on it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use equipoise_pool::Pool;
use serde::Serialize;

use crate::batch::loader::Progress;
use crate::dataset::{Dataset, Images, Problem, Split};
use crate::describe::groups::{self, Rule};
use crate::error::DataError;
use crate::read::decode::{Bounds, decode_named, format_by_name, read_image};
use crate::read::source::fnv1a;
use crate::subset::long_tail::counts;

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The set's name.
    pub dataset: String,
    /// Training images that can be used.
    pub train: u64,
    /// Validation images that can be used, where the set has such a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<u64>,
    /// Test images that can be used.
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
    /// Its training images that can be used.
    pub train: u64,
    /// Its validation images that can be used, where the set has such a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<u64>,
    /// Its test images that can be used.
    pub test: u64,
    /// Its files that cannot.
    #[serde(skip_serializing_if = "is_zero")]
    pub broken: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A group of classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its classes' names, the largest first.
    pub classes: Vec<String>,
}

/// Looks at a set; files are read and decoded on all threads. Figures, groups and advice count what can be used.
///
/// # Errors
/// For a label out of range.
pub fn inspect(set: &Dataset, rule: Rule, pool: &Pool, progress: Progress<'_>) -> Result<Report, DataError> {
    for part in [Some(&set.train), set.val.as_ref(), Some(&set.test)].into_iter().flatten() {
        counts(&part.labels, set.classes.len())?;
    }
    let found = findings(set, pool, progress);
    let [train, val, test, broken] = &found.classes;
    let grouped = rule.groups(train);
    let name = |class: &usize| set.classes[*class].clone();
    let groups = grouped
        .iter()
        .map(|group| Group { classes: group.classes.iter().map(name).collect(), name: group.name.clone() });
    let has_val = |number: u64| set.val.as_ref().map(|_| number);
    let class =
        |c: usize| Class { name: name(&c), train: train[c], val: has_val(val[c]), test: test[c], broken: broken[c] };
    let mut report = Report {
        dataset: set.name.clone(),
        train: train.iter().sum(),
        val: has_val(val.iter().sum()),
        test: test.iter().sum(),
        classes: (0..set.classes.len()).map(class).collect(),
        imbalance_factor: imbalance(train),
        gini: gini(train),
        groups: groups.collect(),
        sizes: common(found.sizes.iter().map(|((w, h), n)| (format!("{w} x {h}"), *n))),
        formats: common(found.formats.iter().map(|(name, n)| ((*name).to_owned(), *n))),
        problems: Vec::new(),
        advice: Vec::new(),
    };
    report.advice = advice(&report, &grouped, &found);
    report.problems = found.problems;
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
    /// The format that its name speaks of, if that is another one.
    misnamed: Option<&'static str>,
}

/// Looks at every image of a part, files on all threads.
fn look(part: &Split, pool: &Pool, step: &(dyn Fn(u64) + Sync)) -> Vec<Result<Look, String>> {
    let mut looks: Vec<Result<Look, String>> = (0..part.labels.len()).map(|_| Err(String::new())).collect();
    const AT_ONCE: usize = 16;
    let mut tasks: Vec<&mut [Result<Look, String>]> = looks.chunks_mut(AT_ONCE).collect();
    pool.each(&mut tasks, |task, looks| {
        for (i, look) in looks.iter_mut().enumerate() {
            let at = task * AT_ONCE + i;
            *look = match &part.images {
                Images::Memory(pixels) => {
                    let (width, height) = (pixels.width as u64, pixels.height as u64);
                    let key = key(width, height, pixels.image(at));
                    Ok(Look { key, width, height, format: "in memory", misnamed: None })
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
    let (image, format) = decode_named(&read_image(file)?, Bounds::default()).map_err(|error| error.to_string())?;
    let (width, height) = (image.width.into(), image.height.into());
    let misnamed = format_by_name(file).filter(|named| *named != format);
    Ok(Look { key: key(width, height, &image.bytes), width, height, format, misnamed })
}

/// A hash of 128 bits of an image's size and pixels.
fn key(width: u64, height: u64, pixels: &[u8]) -> u128 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let high = pixels.iter().fold(width << 32 | height, step);
    u128::from(high) << 64 | u128::from(fnv1a(pixels))
}

/// What a look at all images says.
#[derive(Default)]
struct Findings {
    problems: Vec<Problem>,
    /// By class: usable images of train, val and test, and files that cannot be read.
    classes: [Vec<u64>; 4],
    /// Images of one part that are in an earlier one too, by the names of both.
    overlap: BTreeMap<(&'static str, &'static str), u64>,
    sizes: BTreeMap<(u64, u64), u64>,
    formats: BTreeMap<&'static str, u64>,
}

fn findings(set: &Dataset, pool: &Pool, progress: Progress<'_>) -> Findings {
    let none = || vec![0; set.classes.len()];
    let classes = [none(), none(), none(), none()];
    let mut found = Findings { problems: set.problems.clone(), classes, ..Findings::default() };
    let said: HashSet<&str> = set.problems.iter().map(|problem| problem.path.as_str()).collect();
    let mut first: HashMap<u128, (&'static str, usize, u32)> = HashMap::new();
    let parts = [("train", Some(&set.train)), ("val", set.val.as_ref()), ("test", Some(&set.test))];
    let path = |part: &str, at: usize| match parts.iter().find(|(name, _)| *name == part).and_then(|(_, part)| *part) {
        Some(Split { images: Images::Files(files), .. }) => files[at].display().to_string(),
        _ => format!("{part}[{at}]"),
    };
    let total: u64 = parts.iter().flat_map(|(_, part)| *part).map(|part| part.labels.len() as u64).sum();
    let done = AtomicU64::new(0);
    let step = |images: u64| progress(done.fetch_add(images, Ordering::Relaxed) + images, total);
    for (number, (name, part)) in parts.into_iter().enumerate() {
        let Some(part) = part else { continue };
        for (at, look) in look(part, pool, &step).into_iter().enumerate() {
            let label = part.labels[at];
            let look = match look {
                Ok(look) => look,
                Err(what) => {
                    found.classes[3][label as usize] += 1;
                    let path = path(name, at);
                    // a list names what is not there with its line
                    if !said.contains(path.as_str()) {
                        found.problems.push(Problem { path, what });
                    }
                    continue;
                }
            };
            found.classes[number][label as usize] += 1;
            if let Some(named) = look.misnamed {
                let what = format!("a {} file with the name of a {named}", look.format);
                found.problems.push(Problem { path: path(name, at), what });
            }
            *found.sizes.entry((look.width, look.height)).or_default() += 1;
            *found.formats.entry(look.format).or_default() += 1;
            let (before, place, other) = *first.entry(look.key).or_insert((name, at, label));
            if (before, place) != (name, at) {
                if before != name {
                    *found.overlap.entry((before, name)).or_default() += 1;
                }
                let class = if other == label { "" } else { ", with another label" };
                let what = format!("the same image as {}{class}", path(before, place));
                found.problems.push(Problem { path: path(name, at), what });
            }
        }
    }
    found
}

fn advice(report: &Report, groups: &[groups::Group], found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let broken: u64 = found.classes[3].iter().sum();
    if broken > 0 {
        advice.push(format!("{broken} files cannot be read: mend or remove them before training."));
    }
    if report.train == 0 {
        advice.push("No training image can be used.".to_owned());
        return advice;
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
    if let Some(rare) = groups.iter().rev().find(|group| !group.classes.is_empty()) {
        let tested: u64 = rare.classes.iter().map(|class| report.classes[*class].test).sum();
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
    for ((before, name), overlap) in &found.overlap {
        advice.push(match (*before, *name) {
            ("train", "val") => {
                format!(
                    "{overlap} validation images are also trained on: what is chosen by them will be chosen wrongly."
                )
            }
            ("train", _) => {
                format!("{overlap} test images are also trained on: results will look better than they are.")
            }
            _ => format!("{overlap} test images are also validation images: results will look better than they are."),
        });
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Pixels;

    /// One pixel per image, the given bytes.
    fn part(images: &[u8], labels: &[u32]) -> Split {
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: images.to_vec().into() };
        Split { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    fn set(train: Split, test: Split) -> Dataset {
        let classes = ["a", "b", "c"].map(str::to_owned).to_vec();
        Dataset { name: "own".to_owned(), classes, train, val: None, test, problems: Vec::new() }
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
