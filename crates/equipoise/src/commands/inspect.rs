//! `equipoise inspect`: a dataset before training: class sizes, imbalance, problems and advice.

use std::io::Write;
use std::path::PathBuf;

use equipoise_data::describe::groups::GroupRule;
use equipoise_data::describe::inspect::DatasetReport;
use equipoise_train::preview::preview;
use equipoise_train::run::RunContext;
use equipoise_train::run::inspection::inspect;
use equipoise_train::settings::{KEYS, Settings};

use crate::failure::Failure;
use crate::options::{DatasetArgs, pool, read_config};
use crate::output::{counted, printable, write_file};
use crate::progress::Console;

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise inspect fashion-mini
  equipoise inspect cifar10 --imbalance 100
  equipoise inspect path/to/cifar-10-batches-bin --json
  equipoise inspect features.safetensors
  equipoise inspect fashion-mini --augment randaugment=[2,9] --augment cutout=8 --output batch.png
  equipoise inspect path/to/images --augment recommended --output batch.png")]
pub(crate) struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    /// How classes are grouped: rank:K, mass:K or threshold
    #[arg(long, value_name = "RULE", default_value_t = GroupRule::default())]
    groups: GroupRule,
    /// Draw training images of every group, as they are and augmented, into a PNG file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Augmentation to draw: a setting of `augment` as KEY=VALUE, a TOML file of settings or `recommended`; may be repeated
    #[arg(long, value_name = "SETTINGS", requires = "output")]
    augment: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Problems that are shown; the others are counted.
const SHOWN: usize = 20;
/// Classes that are shown; those in the middle are left out.
const BARS: usize = 40;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let (pool, data_root) = (pool(0)?, args.dataset.root());
    let context = RunContext { data_root: &data_root, pool: &pool, feedback: &Console::default(), processes: None };
    let (report, dataset) = inspect(&args.dataset.settings(), args.groups, &context)?;
    if let Some(file) = &args.output {
        let settings = preview_settings(args)?;
        let picture = preview(&dataset, &settings, &pool)?;
        write_file(file, &picture)?;
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    print_report(&readable(report), out)
}

/// The settings whose augmentation is drawn. Later ones override earlier ones.
fn preview_settings(args: &Args) -> Result<Settings, Failure> {
    let mut settings = Settings { groups: args.groups, ..Settings::default() };
    for given in &args.augment {
        settings = match given.split_once('=') {
            Some((key, value)) => {
                let key = key.trim();
                // `randaugment` is `augment.randaugment`; any other setting has its full name
                let augment = format!("augment.{key}");
                let is_augment = KEYS.iter().any(|known| known.name == augment);
                settings.with_value(if is_augment { &augment } else { key }, value.trim())?
            }
            None => Settings { groups: args.groups, ..read_config("--augment", given.as_ref(), &settings)? },
        };
    }
    settings.check()?;
    Ok(settings)
}

fn print_report(report: &DatasetReport, out: &mut impl Write) -> Result<(), Failure> {
    let (train, test, classes) = (report.train, report.test, counted(report.classes.len(), "class"));
    let val = report.val.map_or_else(String::new, |val| format!(", {val} validation"));
    let things = if report.features.is_some() { "rows of features" } else { "images" };
    writeln!(out, "{}: {train} training{val} and {test} test {things}, {classes}", report.dataset)?;
    let listed = |things: &[(String, u64)]| {
        let shown: Vec<String> = things.iter().take(5).map(|(what, n)| format!("{what} ({n})")).collect();
        format!("{}{}", shown.join(", "), if things.len() > 5 { ", ..." } else { "" })
    };
    match &report.features {
        Some(features) => {
            let ([shortest, median, longest], constant) = (features.norms, features.constant);
            let constant = if constant > 0 { format!(", {constant} of them constant") } else { String::new() };
            let norms = format!("lengths of rows {shortest:.3} to {longest:.3}, median {median:.3}");
            writeln!(out, "{} features{constant}; {norms}", features.dimensions)?;
        }
        None if report.formats.is_empty() => {}
        None => writeln!(out, "formats: {}; sizes: {}", listed(&report.formats), listed(&report.sizes))?,
    }
    writeln!(out, "imbalance factor {:.1}, Gini {:.2}", report.imbalance_factor, report.gini)?;
    if let Some(groups) = &report.image_groups {
        writeln!(out, "{groups}")?;
    }
    writeln!(out)?;
    print_bars(report, out)?;
    writeln!(out)?;
    for group in &report.groups {
        let names: Vec<&str> = group.classes.iter().take(8).map(String::as_str).collect();
        let more = if group.classes.len() > 8 { ", ..." } else { "" };
        let number = group.classes.len();
        let plural = if number == 1 { "class" } else { "classes" };
        writeln!(out, "{:<8}{number:>5} {plural}: {}{more}", group.name, names.join(", "))?;
    }
    print_problems(report, out)?;
    writeln!(out)?;
    for advice in &report.advice {
        writeln!(out, "- {advice}")?;
    }
    Ok(())
}

fn print_problems(report: &DatasetReport, out: &mut impl Write) -> Result<(), Failure> {
    if report.problems.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}:", counted(report.problems.len(), "problem"))?;
    for problem in report.problems.iter().take(SHOWN) {
        writeln!(out, "  {}: {}", problem.path, problem.what)?;
    }
    if report.problems.len() > SHOWN {
        writeln!(out, "  and {} more (--json lists all)", report.problems.len() - SHOWN)?;
    }
    Ok(())
}

/// The report with printable names and paths.
fn readable(mut report: DatasetReport) -> DatasetReport {
    let classes = report.classes.iter_mut().map(|class| &mut class.name);
    let groups = report.groups.iter_mut().flat_map(|group| &mut group.classes);
    let problems = report.problems.iter_mut().flat_map(|problem| [&mut problem.path, &mut problem.what]);
    for text in classes
        .chain(groups)
        .chain(problems)
        .chain(&mut report.advice)
        .chain([&mut report.dataset])
        .chain(&mut report.image_groups)
    {
        *text = printable(text);
    }
    report
}

/// Images per class as bars, the largest class first.
fn print_bars(report: &DatasetReport, out: &mut impl Write) -> Result<(), Failure> {
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
                writeln!(out, "... {} more classes ...", classes.len() - BARS)?;
            }
            continue;
        }
        // a class with any image has a visible bar
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
