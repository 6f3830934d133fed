//! Verdicts and labels: what a comparison may claim, which is never more than the seeds support.

mod common;

use std::path::Path;

use common::{FakeRun, folder, names};
use equipoise_record::names::CONFIG;
use equipoise_report::comparison::Comparison;
use equipoise_report::run::{RecordedRun, ReportError};
use equipoise_report::statistics::{Difference, Spread};

fn run(criterion: &'static str, seed: u64, gain: u64) -> FakeRun {
    let mut run = FakeRun::new(criterion, seed, names(10), &[("Many", 3), ("Medium", 4), ("Few", 3)]);
    (run.gain, run.has_details) = (gain, false);
    run
}

fn all(root: &Path) -> Vec<Comparison> {
    Comparison::all(RecordedRun::all(&[root.to_path_buf()]).expect("runs").0)
}

/// The only comparison of runs with these criteria, seeds and gains.
fn compared(test: &str, runs: &[(&'static str, u64, u64)]) -> Comparison {
    let root = folder(test);
    for (number, (criterion, seed, gain)) in runs.iter().enumerate() {
        run(criterion, *seed, *gain).write(&root, &format!("{number:02}"));
    }
    let mut all = all(&root);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn the_same_seed_twice_is_one_seed() {
    let twice = compared("twice", &[("softmax", 0, 0), ("cwap", 0, 40), ("cwap", 0, 40)]);
    assert_eq!(twice.variants[1].runs.len(), 1);
    assert!(twice.verdict().0.starts_with("In one run each, cwap is "), "{}", twice.verdict().0);
    assert!(twice.variants.iter().flat_map(|variant| &variant.cells).all(|cell| !cell.bold));
    assert!(twice.notes.iter().any(|note| note.contains("only the first run of each counts")), "{:?}", twice.notes);
}

#[test]
fn unequal_seeds_are_stated() {
    let softmax = [("softmax", 0, 0), ("softmax", 1, 0), ("softmax", 2, 0)];
    let one = compared("one", &[&softmax[..], &[("cwap", 1, 40)]].concat());
    assert!(one.verdict().0.starts_with("On the only seed that both have, cwap is "), "{}", one.verdict().0);
    let apart = compared("apart", &[&softmax[..], &[("cwap", 9, 40)]].concat());
    let verdict = apart.verdict().0;
    assert!(verdict.starts_with("In 1 against 3 runs without a common seed, cwap is "), "{verdict}");
}

/// The verdict is about what is known best, not about what a single run happened to reach.
#[test]
fn an_interval_comes_before_a_single_run() {
    let runs = [("softmax", 0, 0), ("softmax", 1, 0), ("softmax", 2, 0)];
    let runs = [&runs[..], &[("seesaw", 0, 30), ("seesaw", 1, 30), ("seesaw", 2, 30), ("focal", 0, 60)]].concat();
    let comparison = compared("first", &runs);
    assert!(comparison.verdict().0.starts_with("Compared with softmax, seesaw gains "), "{}", comparison.verdict().0);
    let order: Vec<&str> = comparison.variants.iter().map(|variant| variant.label.as_str()).collect();
    assert_eq!(order, ["softmax", "focal", "seesaw"]);
}

/// Two seeds show something and prove nothing, however well they agree.
#[test]
fn two_seeds_prove_nothing() {
    let comparison = compared("two", &[("softmax", 0, 0), ("softmax", 1, 0), ("cwap", 0, 40), ("cwap", 1, 40)]);
    assert!(
        (0..comparison.columns.len()).all(|column| comparison
            .difference(1, column)
            .expect("both")
            .half_width
            .is_none())
    );
    let verdict = comparison.verdict().0;
    assert!(verdict.starts_with("On two seeds, cwap is "), "{verdict}");
    assert!(verdict.ends_with("; two seeds cannot tell how much of that is chance."), "{verdict}");
    assert!(comparison.variants.iter().flat_map(|variant| &variant.cells).all(|cell| !cell.bold));
}

/// Hits of the runs of a criterion by class, from the records: 100 test images each.
fn mean_hits(comparison: &Comparison, variant: usize, class: usize) -> f64 {
    comparison.class_accuracies(variant)[class].expect("tested").mean / 100.0
}

/// The interval joins the spread of the seeds with the error of the test images: from accuracies alone as if the images
/// were not the same, and image by image where runs recorded them.
#[test]
fn intervals_cover_other_test_images() {
    let seeds = |criterion, gain| (0..3).map(move |seed| (criterion, seed, gain));
    let runs: Vec<(&'static str, u64, u64)> = seeds("softmax", 0).chain(seeds("cwap", 40)).collect();
    let plain = compared("images", &runs);
    let overall = plain.groups.len();
    // the seeds alone
    let seed_half = |comparison: &Comparison, column: usize| {
        let [own, other] = [1, 0].map(|variant| comparison.variants[variant].cells[column].values.clone());
        Difference::of(&own, &other, 0.05).and_then(|difference| difference.half_width).expect("three pairs")
    };
    let half = |comparison: &Comparison, column: usize| {
        comparison.difference(1, column).and_then(|difference| difference.half_width).expect("an interval")
    };
    let bound: f64 = (0..10)
        .flat_map(|class| [0, 1].map(|variant| mean_hits(&plain, variant, class)))
        .map(|p| {
            let p = (p * 100.0 + 1.0) / 102.0;
            p * (1.0 - p) / 100.0
        })
        .sum();
    let want = seed_half(&plain, overall).hypot(1.959_964 * 100.0 * bound.sqrt() / 10.0);
    assert!((half(&plain, overall) - want).abs() < 1e-4, "{}, not {want}", half(&plain, overall));
    // the same images are easy for both, so what is known of them narrows the interval
    let root = folder("image-by-image");
    for (number, (criterion, seed, gain)) in runs.iter().enumerate() {
        let mut run = run(criterion, *seed, *gain);
        run.has_details = true;
        run.write(&root, &format!("{number:02}"));
    }
    let paired = all(&root).remove(0);
    for column in 0..paired.columns.len() {
        assert!(half(&paired, column) < half(&plain, column), "{column}");
        assert!(half(&paired, column) > seed_half(&paired, column), "{column}");
    }
    let difference = |class: usize, image: usize| {
        let share = |criterion: &'static str, gain: u64| {
            let hits = |seed: u64| run(criterion, seed, gain).metrics(12).per_class[class].hits;
            (0..3).filter(|seed| (image as u64) < hits(*seed)).count() as f64 / 3.0
        };
        share("cwap", 40) - share("softmax", 0)
    };
    let variance: f64 = (0..10)
        .map(|class| {
            let values: Vec<f64> = (0..100).map(|image| difference(class, image)).collect();
            Spread::of(&values).and_then(|spread| spread.sd).expect("many").powi(2) / 100.0
        })
        .sum();
    let want = seed_half(&paired, overall).hypot(1.959_964 * 100.0 * variance.sqrt() / 10.0);
    assert!((half(&paired, overall) - want).abs() < 1e-4, "{}, not {want}", half(&paired, overall));
}

/// A style belongs to a criterion, whatever it is compared with; variants of one criterion have different styles.
#[test]
fn styles_belong_to_criteria() {
    let styles = |test: &str, runs: &[(&'static str, u64, u64)]| -> Vec<(String, usize)> {
        compared(test, runs).variants.iter().map(|variant| (variant.label.clone(), variant.style)).collect()
    };
    let three = styles("styles3", &[("cwap", 0, 0), ("balanced-softmax", 0, 0), ("softmax", 0, 0)]);
    assert_eq!(three, [("softmax".to_owned(), 0), ("cwap".to_owned(), 1), ("balanced-softmax".to_owned(), 2)]);
    assert_eq!(styles("styles1", &[("cwap", 0, 0)]), [("cwap".to_owned(), 1)]);
    let root = folder("variants");
    for (number, params) in ["prior = 1.0", "prior = 5.0"].iter().enumerate() {
        let mut run = run("cwap", 0, 0);
        run.params = params;
        run.write(&root, &number.to_string());
    }
    let comparison = all(&root).remove(0);
    assert_ne!(comparison.variants[0].style, comparison.variants[1].style);
    assert_eq!(comparison.variants[1].label, "cwap, prior 5.0");
}

/// Labels omit what most variants of a criterion share; any variant can be the baseline.
#[test]
fn labels_name_unusual_settings() {
    let root = folder("labels");
    let params = ["prior = 1.0\nbins = 30", "prior = 5.0\nbins = 30", "prior = 1.0\nbins = 7"];
    for (number, params) in params.iter().enumerate() {
        let mut run = run("cwap", 0, number as u64);
        run.params = params;
        run.write(&root, &number.to_string());
    }
    run("softmax", 0, 0).write(&root, "softmax");
    let labels = |comparison: &Comparison| -> Vec<String> {
        comparison.variants.iter().map(|variant| variant.label.clone()).collect()
    };
    let comparison = all(&root).remove(0);
    assert_eq!(labels(&comparison), ["softmax", "cwap", "cwap, bins 7", "cwap, prior 5.0"]);
    let based = comparison.clone().with_baseline("cwap, bins 7").expect("there");
    assert_eq!(labels(&based), ["cwap, bins 7", "softmax", "cwap", "cwap, prior 5.0"]);
    assert!(based.sentence(1).ends_with("one seed cannot tell how much of that is chance."));
    assert_eq!(comparison.with_baseline("focal").expect_err("not there").len(), 4);
}

/// Deferred re-weighting and the schedule distinguish variants of any criterion.
#[test]
fn labels_name_deferred_reweighting_and_schedules() {
    let root = folder("trained");
    let write = |name: &str, criterion: &'static str, more: &str| {
        run(criterion, 0, 0).write(&root, name);
        let config = root.join(name).join(CONFIG);
        let text = std::fs::read_to_string(&config).expect("there");
        std::fs::write(config, text + more).expect("room");
    };
    let cosine = "[optimizer.schedule]\nname = \"cosine\"\nwarmup_epochs = 2.0\n";
    write("a", "softmax", "");
    write("b", "seesaw", "");
    write("c", "ldam", "[criterion.drw]\nstart_epoch = 8\nbeta = 0.99\n");
    write("d", "softmax", cosine);
    let labels = |comparison: &Comparison| -> Vec<String> {
        comparison.variants.iter().map(|variant| variant.label.clone()).collect()
    };
    let want = ["softmax", "softmax, cosine schedule", "seesaw", "ldam, drw from 8"];
    assert_eq!(labels(&all(&root)[0]), want);
    // where most have a setting, labels name those that lack it
    for (name, criterion) in [("e", "seesaw"), ("f", "ldam"), ("g", "focal"), ("h", "cwap")] {
        write(name, criterion, cosine);
    }
    let labels = labels(&all(&root)[0]);
    for want in
        ["softmax", "softmax, paper schedule", "ldam", "ldam, drw from 8, paper schedule", "seesaw, paper schedule"]
    {
        assert!(labels.iter().any(|label| label == want), "{labels:?}");
    }
}

/// Datasets with the same classes but different names are different datasets.
#[test]
fn datasets_are_told_apart_by_name() {
    let root = folder("names");
    for (number, dataset) in ["one", "two"].iter().enumerate() {
        let mut run = run("softmax", number as u64, 0);
        (*dataset).clone_into(&mut run.dataset);
        run.write(&root, dataset);
    }
    assert_eq!(all(&root).iter().map(|comparison| comparison.dataset.as_str()).collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn impossible_values_are_refused() {
    let root = folder("cannot");
    let path = run("softmax", 0, 0).write(&root, "run");
    let result = std::fs::read_to_string(path.join("result.json")).expect("there");
    let top1 =
        format!("\"top1\":{}", serde_json::from_str::<serde_json::Value>(&result).expect("JSON")["last"]["top1"]);
    for invalid in ["250.0", "-5.0", "1e308"] {
        std::fs::write(path.join("result.json"), result.replace(&top1, &format!("\"top1\":{invalid}"))).expect("room");
        match RecordedRun::read(&path) {
            Err(ReportError::Format { path, .. }) => assert!(path.ends_with("result.json")),
            other => panic!("{invalid}: {other:?}"),
        }
    }
    // a run that has just started is an error on its own, and is skipped among others
    std::fs::write(path.join("result.json"), &result).expect("room");
    let started = root.join("started");
    std::fs::create_dir_all(&started).expect("a folder");
    std::fs::copy(path.join("config.toml"), started.join("config.toml")).expect("there");
    std::fs::write(started.join("metrics.jsonl"), "").expect("room");
    assert!(matches!(RecordedRun::read(&started), Err(ReportError::Empty { .. })));
    let (runs, skipped) = RecordedRun::all(&[root.to_path_buf()]).expect("one run");
    assert_eq!(runs.len(), 1);
    assert!(matches!(&skipped[..], [ReportError::Empty { path }] if *path == started), "{skipped:?}");
}
