//! `equipoise inspect`: a data set before training, as bars, figures, problems and advice.

use std::io::Write;

use anyhow::Context;
use equipoise_criterion::Pool;
use equipoise_data::describe::groups::GroupRule;
use equipoise_data::describe::inspect::{DatasetReport, inspect};

use super::data::{Chosen, SetArgs, failure};
use crate::progress::Progress;
use crate::{Failure, printable};

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise inspect fashion-mini
  equipoise inspect cifar10 --imbalance 100
  equipoise inspect path/to/cifar-10-batches-bin --json")]
pub(crate) struct Args {
    #[command(flatten)]
    set: SetArgs,
    /// How classes are grouped: rank:K, mass:K or threshold
    #[arg(long, value_name = "RULE", default_value_t = GroupRule::default())]
    groups: GroupRule,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Problems and classes shown in full before the rest is only counted.
const SHOWN: usize = 20;
/// Classes shown one by one before the middle is left out.
const BARS: usize = 40;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Chosen { mut set, subset, .. } = args.set.load()?;
    if let Some(positions) = subset {
        set.train = set.train.subset(&positions);
    }
    let pool = Pool::new(0).context("cannot start the threads")?;
    let progress = Progress::new("images looked at");
    let report = inspect(&set, args.groups, &pool, &|done, whole| progress.at(done, whole)).map_err(failure)?;
    drop(progress);
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    let report = readable(report);
    let (train, test, classes) = (report.train, report.test, report.classes.len());
    let val = report.val.map_or_else(String::new, |val| format!(", {val} validation"));
    writeln!(out, "{}: {train} training{val} and {test} test images, {classes} classes", report.dataset)?;
    let listed = |things: &[(String, u64)]| {
        let shown: Vec<String> = things.iter().take(5).map(|(what, n)| format!("{what} ({n})")).collect();
        format!("{}{}", shown.join(", "), if things.len() > 5 { ", ..." } else { "" })
    };
    writeln!(out, "formats: {}; sizes: {}", listed(&report.formats), listed(&report.sizes))?;
    writeln!(out, "imbalance factor {:.1}, Gini {:.2}\n", report.imbalance_factor, report.gini)?;
    bars(&report, out)?;
    writeln!(out)?;
    for group in report.groups.iter().filter(|group| !group.classes.is_empty()) {
        let names: Vec<&str> = group.classes.iter().take(8).map(String::as_str).collect();
        let more = if group.classes.len() > 8 { ", ..." } else { "" };
        let number = group.classes.len();
        let plural = if number == 1 { "class" } else { "classes" };
        writeln!(out, "{:<8}{number:>5} {plural}: {}{more}", group.name, names.join(", "))?;
    }
    if !report.problems.is_empty() {
        writeln!(out, "\n{} problems:", report.problems.len())?;
        for problem in report.problems.iter().take(SHOWN) {
            writeln!(out, "  {}: {}", problem.path, problem.what)?;
        }
        if report.problems.len() > SHOWN {
            writeln!(out, "  and {} more (--json lists all)", report.problems.len() - SHOWN)?;
        }
    }
    writeln!(out)?;
    for advice in &report.advice {
        writeln!(out, "- {advice}")?;
    }
    Ok(())
}

/// A report whose names and paths cannot do anything to a terminal.
fn readable(mut report: DatasetReport) -> DatasetReport {
    let classes = report.classes.iter_mut().map(|class| &mut class.name);
    let groups = report.groups.iter_mut().flat_map(|group| &mut group.classes);
    let problems = report.problems.iter_mut().flat_map(|problem| [&mut problem.path, &mut problem.what]);
    for text in classes.chain(groups).chain(problems).chain(&mut report.advice).chain([&mut report.dataset]) {
        *text = printable(text);
    }
    report
}

/// Images per class, the largest first.
fn bars(report: &DatasetReport, out: &mut impl Write) -> Result<(), Failure> {
    const WIDTH: f64 = 50.0;
    let mut classes: Vec<_> = report.classes.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.train));
    let most = classes.first().map_or(1, |class| class.train.max(1)) as f64;
    let name_width = classes.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).clamp(5, 30);
    let val = |text: &str| if report.val.is_some() { format!(" {text:>7}") } else { String::new() };
    writeln!(out, "{:<name_width$} {:>7}{} {:>7}", "class", "train", val("val"), "test")?;
    for (rank, class) in classes.iter().enumerate() {
        if classes.len() > BARS && (BARS / 2..classes.len() - BARS / 2).contains(&rank) {
            if rank == BARS / 2 {
                writeln!(out, "... {} classes between ...", classes.len() - BARS)?;
            }
            continue;
        }
        // a class that has any image shows at least a sliver
        let eighths = (class.train as f64 / most * WIDTH * 8.0).round().max(if class.train > 0 { 1.0 } else { 0.0 });
        let (full, rest) = (eighths as usize / 8, eighths as usize % 8);
        let bar = "█".repeat(full) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][rest];
        let name: String = class.name.chars().take(name_width).collect();
        let val = val(&class.val.unwrap_or(0).to_string());
        let broken = if class.broken > 0 { format!(" ({} broken)", class.broken) } else { String::new() };
        writeln!(out, "{name:<name_width$} {:>7}{val} {:>7} {bar}{broken}", class.train, class.test)?;
    }
    Ok(())
}
