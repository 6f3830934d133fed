//! What to do about a dataset, in sentences.

use super::findings::{Findings, NearDuplicates};
use super::groups::ClassGroup;
use super::inspect::{ClassReport, DatasetReport};

/// Advice that follows from a report.
pub(super) fn advice(report: &DatasetReport, groups: &[ClassGroup], found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    if report.train == 0 {
        advice.push("No training image can be used.".to_owned());
        return advice;
    }
    advice.push(on_imbalance(report.imbalance_factor));
    advice.extend(on_small_classes(&report.classes));
    advice.extend(on_test_images(report, groups));
    advice.extend(on_overlap(found));
    advice.extend(on_near_duplicates(found));
    advice
}

/// What becomes of files that cannot be read.
pub(super) fn on_broken_files(number: usize) -> String {
    let (files, them) = if number == 1 { ("file", "it") } else { ("files", "them") };
    format!(
        "{number} {files} cannot be read: `train` leaves out one file, or up to 1 % of all (--strict: none); repair or remove {them}."
    )
}

fn on_imbalance(factor: f64) -> String {
    match factor {
        ..1.5 => "The classes are about equally large: `softmax` is all you need.".to_owned(),
        1.5..10.0 => format!(
            "Imbalance {factor:.1}: start with `balanced-softmax`, and see what `softmax` loses on the small classes."
        ),
        _ => format!(
            "Imbalance {factor:.0}: compare `balanced-softmax`, `seesaw` and `cwap` with `softmax`; an ordinary run will \
             neglect the small classes."
        ),
    }
}

fn on_small_classes(classes: &[ClassReport]) -> Vec<String> {
    let list = |classes: &[&ClassReport]| {
        let names: Vec<&str> = classes.iter().take(5).map(|class| class.name.as_str()).collect();
        let more = if classes.len() > 5 { format!(" and {} more", classes.len() - 5) } else { String::new() };
        format!("{}{more}", names.join(", "))
    };
    let mut advice = Vec::new();
    let empty: Vec<&ClassReport> = classes.iter().filter(|class| class.train == 0).collect();
    if !empty.is_empty() {
        advice.push(format!("No training images: {}. Leave these classes out, or find some images.", list(&empty)));
    }
    let few: Vec<&ClassReport> = classes.iter().filter(|class| (1..20).contains(&class.train)).collect();
    if !few.is_empty() {
        advice.push(format!(
            "Fewer than 20 training images: {}. What is learned about them depends on which images these are.",
            list(&few)
        ));
    }
    advice
}

/// How well the accuracy on the rarest classes can be measured.
fn on_test_images(report: &DatasetReport, groups: &[ClassGroup]) -> Option<String> {
    let rare = groups.iter().rev().find(|group| !group.classes.is_empty())?;
    let tested: u64 = rare.classes.iter().map(|class| report.classes[*class].test).sum();
    if tested == 0 {
        return Some(format!("No test images in group {}: nothing can be said about it.", rare.name));
    }
    // half the width of a 95 % interval of a share near one half
    let points = 98.0 / (tested as f64).sqrt();
    let images = if tested == 1 { "image" } else { "images" };
    let advice = format!(
        "{tested} test {images} in group {}: its accuracy is known only to about +- {points:.0} points.",
        rare.name
    );
    (points > 5.0).then_some(advice)
}

fn on_overlap(found: &Findings) -> impl Iterator<Item = String> {
    found.overlap.iter().map(|(splits, number)| match splits {
        ("train", "val") => {
            format!("{} also in training: what they select is not to be trusted.", are(*number, "validation"))
        }
        ("train", _) => {
            format!("{} also in training: results will look better than they are.", are(*number, "test"))
        }
        _ => format!("{} also in validation: results will look better than they are.", are(*number, "test")),
    })
}

/// Frames of one scene on both sides of a split. A single pair may be chance.
fn on_near_duplicates(found: &Findings) -> impl Iterator<Item = String> {
    let many = |near: &NearDuplicates| near.near > 1 && 100 * near.near >= near.images;
    found.near.iter().filter(move |(_, near)| many(near)).map(|(split, near)| {
        let (own, other) = near.example.clone().unwrap_or_default();
        format!(
            "{} of {} {split} images look almost like a training image, such as {own} and {other}: frames of one scene on both sides \
             make results look better than they are; --group-by keeps them together.",
            near.near, near.images
        )
    })
}

fn are(number: u64, split: &str) -> String {
    if number == 1 { format!("1 {split} image is") } else { format!("{number} {split} images are") }
}
