//! Figures of classes with their intervals, as tables for people and as CSV.

use std::io::Write;

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::wilson;
use equipoise_record::{ClassCounts, Metrics};
use equipoise_report::csv_field;
use equipoise_support::Examples;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{percent, printable};

/// The interval of a rate, in percent.
pub(crate) fn interval_percent(hits: u64, trials: u64) -> Option<[f64; 2]> {
    // counts of a class are consistent, but hits of a class may exceed what was predicted as it only in damaged files
    wilson::interval(hits.min(trials), trials).map(|interval| interval.map(|bound| 100.0 * bound))
}

/// The interval of a rate as text, in percent.
fn interval_text(hits: u64, trials: u64) -> String {
    interval_percent(hits, trials).map_or_else(String::new, |[low, high]| format!("{low:.1} to {high:.1}"))
}

/// Metrics for programs: every class with its accuracy, and the intervals of accuracy and precision.
pub(crate) fn with_intervals(metrics: &Metrics) -> Value {
    let mut value = json!(metrics);
    let class = |class: &ClassCounts| {
        let mut object = json!(class);
        object["accuracy"] = json!(class.recall().map(|recall| 100.0 * recall));
        object["accuracy_interval"] = json!(interval_percent(class.hits, class.test));
        object["precision_interval"] = json!(interval_percent(class.hits, class.predicted));
        object
    };
    value["per_class"] = metrics.per_class.iter().map(class).collect();
    value
}

/// The figures of every class, in the order of the classes.
pub(crate) fn classes_csv(metrics: &Metrics, groups: &[ClassGroup], raw: bool) -> String {
    let mut text = "class,group,train,images,hits,predicted,accuracy,accuracy_low,accuracy_high,precision,precision_low,precision_high,f1\n".to_owned();
    let number = |x: Option<f64>| x.map_or_else(String::new, |x| format!("{x:.4}"));
    for (index, class) in metrics.per_class.iter().enumerate() {
        let group = groups.iter().find(|group| group.classes.contains(&index));
        let group = group.map_or_else(String::new, |group| csv_field(&group.name, raw));
        let rate = |trials: u64| {
            let rate = (trials > 0).then(|| 100.0 * class.hits as f64 / trials as f64);
            let interval = interval_percent(class.hits, trials);
            let [low, high] = [0, 1].map(|end| number(interval.map(|interval| interval[end])));
            format!("{},{low},{high}", number(rate))
        };
        let ClassCounts { name, train, test, hits, predicted } = class;
        let (name, f1) = (csv_field(name, raw), number(class.f1().map(|f1| 100.0 * f1)));
        text +=
            &format!("{name},{group},{train},{test},{hits},{predicted},{},{},{f1}\n", rate(*test), rate(*predicted));
    }
    text
}

/// Accuracy by class with its interval, the largest class first.
pub(crate) fn print_classes(metrics: &Metrics, examples: Examples, out: &mut impl Write) -> Result<(), Failure> {
    const SHOWN: usize = 40;
    let width = metrics.per_class.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).clamp(5, 30);
    writeln!(
        out,
        "\n{:<width$} {:>7} {:>7} {:>9} {:>15}",
        "class",
        "train",
        examples.many(),
        "accuracy",
        "95 % interval"
    )?;
    let mut classes: Vec<_> = metrics.per_class.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.train));
    for (rank, class) in classes.iter().enumerate() {
        if classes.len() > SHOWN && (SHOWN / 2..classes.len() - SHOWN / 2).contains(&rank) {
            if rank == SHOWN / 2 {
                writeln!(out, "... {} more classes (--classes FILE lists all) ...", classes.len() - SHOWN)?;
            }
            continue;
        }
        let name: String = printable(&class.name).chars().take(width).collect();
        let (accuracy, interval) = (class.recall().map(|recall| 100.0 * recall), interval_text(class.hits, class.test));
        let line =
            format!("{name:<width$} {:>7} {:>7} {:>9} {interval:>15}", class.train, class.test, percent(accuracy));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(writeln!(out)?)
}

/// Metrics over several classes; those of probabilities also before calibration.
pub(crate) fn print_averages(
    metrics: &Metrics,
    before: Option<&Metrics>,
    examples: Examples,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let groups = metrics.several_groups().iter().map(|group| (group.name.as_str(), group.accuracy));
    let averages = [
        ("overall", metrics.top1),
        ("top 5", metrics.top5),
        ("balanced", metrics.balanced),
        ("macro F1", metrics.macro_f1),
    ];
    for (name, value) in groups.chain(averages) {
        let interval = if name == "overall" { overall_interval(metrics) } else { String::new() };
        writeln!(out, "{name:<20}{:>6}{interval}", percent(value))?;
    }
    let note =
        |before: Option<String>| before.map_or_else(String::new, |before| format!("  (before calibration {before})"));
    let loss = |metrics: &Metrics| metrics.loss.map_or_else(|| "n/a".to_owned(), |loss| format!("{loss:.3}"));
    let error = note(before.map(|before| percent(before.calibration)));
    writeln!(out, "{:<20}{:>6}{error}", "calibration error", percent(metrics.calibration))?;
    if metrics.unusable > 0 {
        writeln!(
            out,
            "{} with logits that are not finite count as misclassified",
            examples.counted(metrics.unusable, "")
        )?;
    }
    Ok(writeln!(out, "{:<20}{:>6}{}", "cross-entropy", loss(metrics), note(before.map(loss)))?)
}

fn overall_interval(metrics: &Metrics) -> String {
    let (hits, images) = metrics.per_class.iter().fold((0, 0), |(h, n), class| (h + class.hits, n + class.test));
    format!("  (95 % interval {})", interval_text(hits, images))
}
