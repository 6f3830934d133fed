//! `equipoise label-errors`: labels that are probably wrong.

use std::io::Write;
use std::path::PathBuf;

use equipoise_criterion::Id;
use equipoise_decide::label_errors::Suspect;
use equipoise_report::csv_field;
use equipoise_report::page::{SuspectImage, SuspectList, label_errors_page};
use equipoise_support::Examples;
use equipoise_train::run::cross_validation::OutOfFold;
use equipoise_train::settings::Settings;
use serde_json::json;

use crate::cross_validation::{Plan, cross_validate};
use crate::failure::Failure;
use crate::options::{Environment, SettingArgs};
use crate::output::{open_in_browser, printable, quoted, warn};

/// Images per class on the page.
const SHOWN_PER_CLASS: usize = 12;
/// Images on the page.
const SHOWN: usize = 600;
/// Images in the printed list.
const PRINTED: usize = 10;
/// A list that doubts a larger share of the labels says more about the networks than about the labels.
const TOO_MANY: f64 = 0.3;

#[derive(clap::Args)]
#[command(after_long_help = "\
Networks are trained on parts of the images, and every image is judged by one that has not seen it (cross-validation). Probabilities are for \
shares of the classes half-way between those of the labels and equal ones; otherwise every image of a rare class would look wrong. All images are listed in label-errors.csv, the most \
suspicious first, with the more probable class. The order is by p_value, the expected share of the right labels of the class that look at least as wrong, so that rare \
and hard classes are not listed more often than others for being rare or hard. label-errors.html shows the first of every class. Nothing is changed or deleted: look at the \
images and decide.

Only training images are looked at; of a dataset without a test split these are all images. A short training is enough. The runs stay in the \
output folder; the same command with --output continues or reuses them, as well as those of `train --folds`.

Examples:
  equipoise label-errors path/to/images --epochs 20
  equipoise label-errors cifar10 --imbalance 100 --model resnet8 --epochs 15 -o runs/label-errors")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// Criterion to train with; `equipoise criteria` lists them [default: balanced-softmax]
    #[arg(long, value_name = "ID")]
    criterion: Option<Id>,
    /// Number of parts
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    folds: u32,
    /// Folder of the runs and the list; runs in it that were stopped are resumed [default: a new one in runs/]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Do not show progress
    #[arg(long)]
    quiet: bool,
    /// Write CSV texts as they are, even if a spreadsheet would run them as formulas
    #[arg(long)]
    raw: bool,
    /// Print a line of JSON per image, the most suspicious first
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let settings = args.settings.settings(Settings::default(), args.criterion)?;
    args.settings.note_data(&settings)?;
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    let plan = Plan {
        folds: args.folds,
        repeats: 1,
        output: args.output.as_deref(),
        quiet: args.quiet,
        name: "label-errors",
        title: "",
    };
    let validated = cross_validate(&settings, plan, &environment)?;
    let images = &validated.out_of_fold;
    validated.write_report(&settings, &images.figures(), plan)?;
    let suspects = images.suspects();
    let folder = &validated.folder;
    folder.write("label-errors.csv", csv(images, &suspects, args.raw).as_bytes())?;
    let dataset = validated.results.first().map_or_else(String::new, |result| result.dataset.clone());
    let examples = Examples::of_model(validated.results.first().map_or("", |run| run.model.as_str()));
    let groups = shares(&settings, images, &suspects);
    let list = SuspectList { dataset, examples, images: suspects.len(), groups };
    folder.write("label-errors.html", label_errors_page(&list, &shown(images, &suspects)).as_bytes())?;
    let page = folder.path().join("label-errors.html");
    if args.open {
        open_in_browser(&page)?;
    }
    if args.json {
        for suspect in &suspects {
            writeln!(out, "{}", json_line(images, suspect))?;
        }
        return Ok(());
    }
    print(images, &suspects, examples, out)?;
    let doubted = suspects.iter().filter(|suspect| suspect.is_doubted()).count();
    if doubted as f64 > TOO_MANY * suspects.len() as f64 {
        let other = match examples {
            Examples::Images => ", or on features of a pretrained backbone (`equipoise embed`)",
            Examples::Rows => "",
        };
        warn(&format!(
            "the networks know these classes too badly to tell wrong labels from hard ones: train them longer (--epochs){other}"
        ));
    }
    let all = quoted(&folder.path().join("label-errors.csv"));
    Ok(writeln!(
        out,
        "all {} are in {all}, the first of every class on {}",
        examples.counted(suspects.len() as u64, ""),
        quoted(&page)
    )?)
}

fn json_line(images: &OutOfFold, suspect: &Suspect) -> serde_json::Value {
    json!({
        "path": images.name(suspect.row), "label": images.classes[suspect.label], "suggested": images.classes[suspect.suggested],
        "label_probability": suspect.label_probability, "suggested_probability": suspect.suggested_probability,
        "p_value": suspect.p_value, "rank_in_class": suspect.rank_in_class,
    })
}

fn csv(images: &OutOfFold, suspects: &[Suspect], raw: bool) -> String {
    let mut text =
        "rank,path,label,suggested,label_probability,suggested_probability,p_value,rank_in_class\n".to_owned();
    for (rank, suspect) in (1..).zip(suspects) {
        let Suspect { row, label, suggested, label_probability, suggested_probability, p_value, rank_in_class } =
            *suspect;
        let [path, label, suggested] =
            [&images.name(row), &images.classes[label], &images.classes[suggested]].map(|text| csv_field(text, raw));
        text += &format!(
            "{rank},{path},{label},{suggested},{label_probability:.6},{suggested_probability:.6},{p_value:.3e},{rank_in_class}\n"
        );
    }
    text
}

/// By group: its name, its images, and how many of them another class fits better.
fn shares(settings: &Settings, images: &OutOfFold, suspects: &[Suspect]) -> Vec<(String, u64, u64)> {
    let groups = settings.groups.groups(&images.counts);
    let of = |classes: &[usize]| {
        let total = classes.iter().map(|class| images.counts[*class]).sum();
        let doubted = suspects.iter().filter(|suspect| suspect.is_doubted() && classes.contains(&suspect.label));
        (total, doubted.count() as u64)
    };
    groups
        .iter()
        .filter(|group| !group.classes.is_empty())
        .map(|group| {
            let (total, doubted) = of(&group.classes);
            (group.name.clone(), total, doubted)
        })
        .collect()
}

/// The most suspicious images of every class, for the page.
fn shown(images: &OutOfFold, suspects: &[Suspect]) -> Vec<SuspectImage> {
    let chosen = suspects.iter().filter(|suspect| suspect.is_doubted() && suspect.rank_in_class <= SHOWN_PER_CLASS);
    let image = |suspect: &Suspect| SuspectImage {
        name: images.name(suspect.row),
        label: images.classes[suspect.label].clone(),
        suggested: images.classes[suspect.suggested].clone(),
        label_probability: suspect.label_probability,
        suggested_probability: suspect.suggested_probability,
        thumbnail: images.thumbnail(suspect.row),
    };
    chosen.take(SHOWN).map(image).collect()
}

fn print(images: &OutOfFold, suspects: &[Suspect], examples: Examples, out: &mut impl Write) -> Result<(), Failure> {
    let doubted = suspects.iter().filter(|suspect| suspect.is_doubted()).count();
    writeln!(
        out,
        "another class is more probable than the label for {doubted} of {}",
        examples.counted(suspects.len() as u64, "")
    )?;
    for suspect in suspects.iter().take(PRINTED) {
        let [label, suggested] = [suspect.label, suspect.suggested].map(|class| printable(&images.classes[class]));
        let [p, q] = [suspect.label_probability, suspect.suggested_probability].map(|p| 100.0 * p);
        writeln!(out, "{}: {label} ({p:.1} %), or {suggested} ({q:.1} %)", printable(&images.name(suspect.row)))?;
    }
    Ok(())
}
