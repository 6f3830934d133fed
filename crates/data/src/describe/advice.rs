//! What to do about a dataset, in sentences.

use equipoise_support::Examples;

use super::broken_files::{MAX_BROKEN, allowed_broken, option_to_allow};
use super::findings::{Findings, NearDuplicates};
use super::groups::ClassGroup;
use super::inspect::{ClassReport, DatasetReport};

/// Advice that follows from a report.
pub(super) fn advice(report: &DatasetReport, groups: &[ClassGroup], found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let examples = Examples::of_features(report.features.is_some());
    if report.train == 0 {
        advice.push(examples.say("No training image can be used."));
        return advice;
    }
    if report.classes.len() < 2 {
        advice.push("There is only one class: `train` will refuse this dataset, because it needs two.".to_owned());
        return advice;
    }
    advice.push(on_imbalance(report.imbalance_factor));
    advice.extend(on_small_classes(&report.classes, examples.many()));
    advice.extend(on_test_images(report, groups, examples));
    advice.extend(on_overlap(found, examples));
    advice.extend(on_near_duplicates(found));
    advice
}

/// What becomes of files that cannot be read, of so many images in all.
pub(super) fn on_broken_files(broken: usize, images: usize) -> String {
    let (files, them) = if broken == 1 { ("file", "it") } else { ("files", "them") };
    let allowed = allowed_broken(MAX_BROKEN, images);
    if broken <= allowed {
        return format!(
            "{broken} {files} cannot be read: `train` leaves out one file, or up to 1 % of all (--strict: none); repair or remove {them}."
        );
    }
    let option =
        option_to_allow(broken, images).map_or_else(String::new, |option| format!(", or type `train {option}`"));
    format!(
        "{broken} {files} cannot be read: `train` will refuse this dataset, because it leaves out {allowed} of {images} at most; repair or \
         remove {them}{option}."
    )
}

fn on_imbalance(factor: f64) -> String {
    match factor {
        ..2.0 => {
            "The classes are about equally large: the default criterion, `balanced-softmax`, is little else than `softmax` here."
                .to_owned()
        }
        _ => {
            let digits = usize::from(factor < 10.0);
            format!(
                "Imbalance {factor:.digits$}: use `balanced-softmax`, the default; `softmax` would neglect the small classes, and \
                 `compare` shows by how much."
            )
        }
    }
}

/// The first few classes, and how many more there are.
fn list(classes: &[&ClassReport]) -> String {
    let names: Vec<&str> = classes.iter().take(5).map(|class| class.name.as_str()).collect();
    let more = if classes.len() > 5 { format!(" and {} more", classes.len() - 5) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

fn on_small_classes(classes: &[ClassReport], examples: &str) -> Vec<String> {
    let mut advice = Vec::new();
    let empty: Vec<&ClassReport> = classes.iter().filter(|class| class.train == 0).collect();
    if !empty.is_empty() {
        advice.push(format!(
            "No training {examples}: {}. Leave these classes out, or find some {examples}.",
            list(&empty)
        ));
    }
    let few: Vec<&ClassReport> = classes.iter().filter(|class| (1..20).contains(&class.train)).collect();
    if !few.is_empty() {
        advice.push(format!(
            "Fewer than 20 training {examples}: {}. What is learned about them depends on which {examples} these are.",
            list(&few)
        ));
    }
    advice
}

/// How well the accuracy of every group can be measured, and which classes cannot be tested.
fn on_test_images(report: &DatasetReport, groups: &[ClassGroup], examples: Examples) -> Vec<String> {
    let many = examples.many();
    let tested = |group: &ClassGroup| group.classes.iter().map(|class| report.classes[*class].test).sum::<u64>();
    // half the width of a 95 % interval of a share near one half
    let points = |group: &ClassGroup| 98.0 / (tested(group) as f64).sqrt();
    let each = |groups: &[&ClassGroup], text: &dyn Fn(&ClassGroup) -> String| {
        groups.iter().map(|group| text(group)).collect::<Vec<_>>().join(", ")
    };
    let mut advice = Vec::new();
    let empty: Vec<&ClassGroup> = groups.iter().filter(|group| tested(group) == 0).collect();
    let name = |group: &ClassGroup| group.name.clone();
    match &empty[..] {
        [] => {}
        [group] => advice.push(format!("No test {many} in group {}: nothing can be said about it.", group.name)),
        _ => advice.push(format!("No test {many} in groups {}: nothing can be said about them.", each(&empty, &name))),
    }
    let few: Vec<&ClassGroup> = groups.iter().filter(|group| tested(group) > 0 && points(group) > 5.0).collect();
    match &few[..] {
        [] => {}
        [group] => {
            advice.push(format!(
                "{} in group {}: its accuracy is known only to about +- {:.0} points.",
                examples.counted(tested(group), "test"),
                group.name,
                points(group)
            ));
        }
        _ => advice.push(format!(
            "Few test {many} in groups {}: their accuracies are known only to about +- {} points.",
            each(&few, &|group| format!("{} ({})", group.name, tested(group))),
            each(&few, &|group| format!("{:.0}", points(group)))
        )),
    }
    let untested: Vec<&ClassReport> = report.classes.iter().filter(|class| class.test == 0).collect();
    if report.test > 0 && !untested.is_empty() {
        advice.push(format!("No test {many}: {}. The accuracy of these classes remains unknown.", list(&untested)));
    }
    advice
}

fn on_overlap(found: &Findings, examples: Examples) -> impl Iterator<Item = String> {
    let are = move |number, split| are(examples, number, split);
    found.overlap.iter().map(move |(splits, number)| match splits {
        ("train", "val") => {
            format!("{} also in training: what they select is not to be trusted.", are(*number, "validation"))
        }
        ("train", _) => {
            format!("{} also in training: results will look better than they are.", are(*number, "test"))
        }
        _ => format!("{} also in validation: results will look better than they are.", are(*number, "test")),
    })
}

/// Frames of one scene on both sides of a split. A few pairs may be chance: 2 % of unrelated images of clothes look almost alike.
fn on_near_duplicates(found: &Findings) -> impl Iterator<Item = String> {
    let many = |near: &NearDuplicates| near.near > 1 && 100 * near.near >= 3 * near.images;
    found.near.iter().filter(move |(_, near)| many(near)).map(|(split, near)| {
        let (own, other) = near.example.clone().unwrap_or_default();
        format!(
            "{} of {} {split} images look almost like a training image, such as {own} and {other}: frames of one scene on both sides \
             make results look better than they are; --group-by keeps them together.",
            near.near, near.images
        )
    })
}

fn are(examples: Examples, number: u64, split: &str) -> String {
    format!("{} {}", examples.counted(number, split), if number == 1 { "is" } else { "are" })
}
