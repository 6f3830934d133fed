//! Reports of the real binary: what stands on the page is what the runs have written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use equipoise_testing::TempFolder;
use roxmltree::{Document, ParsingOptions};
use serde_json::Value;

/// A folder of this file's own, with runs in it that all tests read.
fn place() -> &'static Path {
    static FOLDER: OnceLock<TempFolder> = OnceLock::new();
    let create = || {
        let folder = TempFolder::new("report");
        let args = "compare --criteria softmax,cwap --epochs 3 --batch-size 64 --imbalance 100 --seeds 2 --output runs --quiet";
        succeeded(&equipoise(folder.path(), &args.split(' ').collect::<Vec<_>>()));
        folder
    };
    FOLDER.get_or_init(create).path()
}

fn equipoise(place: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    command.current_dir(place).stdin(Stdio::null()).args(args).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(out: &Output) {
    assert!(out.status.success(), "{:?}: {}", out.status, text(&out.stderr));
}

fn said(place: &Path, args: &[&str]) -> String {
    let out = equipoise(place, args);
    succeeded(&out);
    text(&out.stdout)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("there")).expect("JSON")
}

/// Every figure of the table, and of every class, against the results.
#[test]
fn the_page_shows_what_the_results_say() {
    let place = place();
    let page = std::fs::read_to_string(place.join("runs/report.html")).expect("a page");
    let page = Document::parse_with_options(&page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() });
    let page = page.expect("well-formed");
    let mut checked = 0;
    for (variant, criterion) in ["softmax", "cwap"].iter().enumerate() {
        let results = [0, 1].map(|seed| json(&place.join(format!("runs/{criterion}-s{seed}/result.json"))));
        let mean = |of: &dyn Fn(&Value) -> f64| (of(&results[0]["last"]) + of(&results[1]["last"])) / 2.0;
        for column in 0..5 {
            let want = match column {
                4 => mean(&|last| last["top1"].as_f64().expect("a number")),
                group => mean(&|last| last["groups"][group]["accuracy"].as_f64().expect("a number")),
            };
            let cell = page.descendants().find(|node| {
                node.attribute("data-variant") == Some(&variant.to_string())
                    && node.attribute("data-column") == Some(&column.to_string())
                    && node.has_attribute("data-mean")
            });
            let cell = cell.expect("a cell");
            let got: f64 = cell.attribute("data-mean").expect("a mean").parse().expect("a number");
            assert!((got - want).abs() < 1e-9, "{criterion} {column}: {got}, not {want}");
            let shown: String = cell.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
            assert!(shown.contains(&tenths(want)), "{shown}: {want}");
            checked += 1;
        }
    }
    assert_eq!(checked, 10);
    let summary = json(&place.join("runs/compare.json"));
    let verdict = summary["verdict"].as_str().expect("a sentence");
    let shown = |text: &str| text.replace(['−', '\u{a0}'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let whole: String = page.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
    assert!(shown(&whole.replace('−', "-")).contains(&shown(verdict)), "{verdict}");
}

/// A number as tables show it: halves are rounded up.
fn tenths(x: f64) -> String {
    format!("{:.1}", x + 1e-9)
}

/// The same figures in every format.
#[test]
fn tables_in_all_formats() {
    let place = place();
    let want = json(&place.join("runs/compare.json"));
    let mean = want["rows"][1]["mean"][4].as_f64().expect("a number");
    let (mean, sd) = (tenths(mean), tenths(want["rows"][1]["sd"][4].as_f64().expect("a number")));
    let plain = said(place, &["report", "runs", "--plain"]);
    assert!(plain.contains(&format!("{mean} +- {sd}")) && plain.contains("On two seeds"), "{plain}");
    assert!(plain.contains(&want["verdict"].as_str().expect("a sentence").replace('±', "+-")), "{plain}");
    let markdown = said(place, &["report", "runs", "--format", "markdown"]);
    assert!(markdown.starts_with("| criterion | seeds | Many |") && markdown.contains(&mean), "{markdown}");
    let latex = said(place, &["report", "runs", "--format", "latex"]);
    assert!(latex.contains(r"\begin{tabular}") && latex.contains(&mean), "{latex}");
    let csv = said(place, &["report", "runs", "--format", "csv", "--table", "classes"]);
    assert!(csv.lines().count() == 11 && csv.contains("t-shirt,Many,148,100,"), "{csv}");
    // an interval is that of the mean over the seeds, which see the same images: the score test just accepts its ends
    let mut fractional = 0;
    for line in csv.lines().skip(1) {
        let numbers: Vec<f64> = line.split(',').skip(3).map(|field| field.trim().parse().expect("a number")).collect();
        for rate in numbers[1..].chunks_exact(3) {
            let (n, p) = (numbers[0], rate[0] / 100.0);
            for q in [rate[1] / 100.0, rate[2] / 100.0].into_iter().filter(|q| *q > 0.0 && *q < 1.0) {
                let distance = (p - q).abs() - 1.959_963_984_540_054 * (q * (1.0 - q) / n).sqrt();
                assert!(distance.abs() < 1e-5, "{line}");
            }
            fractional += usize::from((p * n).fract() > 0.1);
        }
    }
    assert!(fractional > 0, "some class has half a hit in the mean of two seeds");
    let all: Value = serde_json::from_str(&said(place, &["report", "runs", "--format", "json"])).expect("JSON");
    assert_eq!(all[0]["rows"], want["rows"]);
    // runs named one by one, in any order
    let one = said(place, &["report", "runs/cwap-s1", "runs/softmax-s0", "runs/cwap-s0", "runs/softmax-s1", "--plain"]);
    assert_eq!(one, plain);
}

#[test]
fn pages_go_where_they_are_wanted() {
    let place = place();
    let out = said(place, &["report", "runs/cwap-s0", "runs/softmax-s0", "-o", "two runs.html"]);
    assert!(out.contains("one seed cannot tell") && out.ends_with("'two runs.html'\n"), "{out}");
    assert!(std::fs::read_to_string(place.join("two runs.html")).expect("a page").contains("</html>"));
    let out = equipoise(place, &["report", "runs/cwap-s0", "-o", "not/there.html"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("not/there.html"), "{}", text(&out.stderr));
    std::fs::create_dir_all(place.join("empty")).expect("a folder");
    for (args, want) in [
        (&["report"][..], "RUN"),
        (&["report", "nowhere"], "nowhere"),
        (&["report", "empty"], "not a run"),
        (&["report", "runs/cwap-s0", "runs/cwap-s0"], "more than once"),
        (&["report", "runs", "runs/cwap-s0"], "more than once"),
        (&["report", "runs/cwap-s0/result.json"], "result.json"),
        (&["report", "runs", "--plain", "-o", "x"], "cannot be used with"),
        (&["report", "runs", "--format", "latex", "--table", "best"], "nothing"),
    ] {
        let out = equipoise(place, args);
        assert!(out.status.code() == Some(2) && text(&out.stderr).contains(want), "{args:?}: {}", text(&out.stderr));
    }
    // what is damaged is named
    std::fs::create_dir_all(place.join("bad")).expect("a folder");
    for name in ["config.toml", "result.json", "metrics.jsonl"] {
        std::fs::copy(place.join("runs/cwap-s0").join(name), place.join("bad").join(name)).expect("there");
    }
    for (name, what) in [("result.json", "{"), ("metrics.jsonl", "{}\n"), ("config.toml", "=")] {
        let whole = std::fs::read(place.join("bad").join(name)).expect("there");
        std::fs::write(place.join("bad").join(name), what).expect("room");
        let out = equipoise(place, &["report", "bad"]);
        assert!(out.status.code() == Some(2) && text(&out.stderr).contains(name), "{}", text(&out.stderr));
        std::fs::write(place.join("bad").join(name), whole).expect("room");
    }
    // and without the records of a newer version it works
    succeeded(&equipoise(place, &["report", "bad"]));
}

/// Records beside the result: an epoch per line, one event file also after a stop.
#[test]
fn records_of_a_run_that_was_stopped() {
    let place = place();
    let run = place.join("stopped");
    let args = "train --model resnet8 --epochs 3 --batch-size 64 --imbalance 100 --output stopped --quiet";
    let args: Vec<&str> = args.split(' ').collect();
    // as if it had been killed after its end, before the result was written, in the middle of a line
    succeeded(&equipoise(place, &args));
    let events = || -> Vec<String> {
        let names = std::fs::read_dir(&run).expect("a folder").flatten().map(|e| e.file_name().display().to_string());
        names.filter(|name| name.contains("tfevents")).collect()
    };
    let before = events();
    std::fs::remove_file(run.join("result.json")).expect("there");
    let details = std::fs::read(run.join("details.json")).expect("there");
    let times = std::fs::read_to_string(run.join("times.jsonl")).expect("there");
    std::fs::write(run.join("times.jsonl"), &times[..times.len() - 9]).expect("room");
    succeeded(&equipoise(place, &["train", "--resume", "stopped", "--quiet"]));
    assert_eq!((before.len(), events().len()), (1, 1));
    assert_ne!(before, events());
    let size = |name: &str| std::fs::metadata(run.join(name)).expect("there").len();
    // three epochs of four views and as many scalars
    assert!(size(&events()[0]) > 20_000, "{}", size(&events()[0]));
    assert_eq!(std::fs::read(run.join("details.json")).expect("there"), details);
    let lines = |name: &str| std::fs::read_to_string(run.join(name)).expect("there").lines().count();
    assert_eq!((lines("norms.jsonl"), lines("times.jsonl"), lines("metrics.jsonl")), (3, 2, 3));
    let seconds = json(&run.join("result.json"))["seconds"].as_f64().expect("a number");
    assert!(seconds > 0.0);
    succeeded(&equipoise(place, &["report", "stopped", "--plain"]));
}

/// A run that is killed before its first evaluation keeps its events and its time.
#[test]
fn events_of_a_run_that_was_killed() {
    let place = place();
    let args = "train --model resnet8 --epochs 8 --batch-size 64 --imbalance 100 --output killed --quiet --set evaluate_every=8";
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    let mut child = command.current_dir(place).args(args.split(' ')).stdin(Stdio::null()).spawn().expect("it runs");
    let run = place.join("killed");
    let lines = |name: &str| std::fs::read_to_string(run.join(name)).map_or(0, |text| text.lines().count());
    while lines("times.jsonl") < 3 && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    // it may have ended: then there is nothing to test, and no harm done
    let _ = child.kill();
    let killed = !child.wait().expect("a child").success();
    // as something else might leave it
    std::fs::write(run.join("events.out.tfevents.18446744073709551615.equipoise"), "").expect("room");
    if killed {
        succeeded(&equipoise(place, &["train", "--resume", "killed", "--quiet"]));
        let names = std::fs::read_dir(&run).expect("a folder").flatten().map(|entry| entry.path());
        let events: Vec<PathBuf> = names.filter(|path| path.display().to_string().contains("tfevents")).collect();
        assert_eq!(events.len(), 1);
        let bytes = std::fs::read(&events[0]).expect("there");
        let tag = b"training/loss";
        assert_eq!(bytes.windows(tag.len()).filter(|window| window == tag).count(), 8);
        let spent: f64 =
            std::fs::read_to_string(run.join("times.jsonl")).expect("there").lines().fold(0.0, |sum, line| {
                sum + serde_json::from_str::<Value>(line).expect("JSON")["seconds"].as_f64().expect("a number")
            });
        let seconds = json(&run.join("result.json"))["seconds"].as_f64().expect("a number");
        assert!(seconds > 0.9 * spent - 0.1, "{seconds} {spent}");
    }
}

/// A page can go through a link or into a pipe, and takes nobody's place there.
#[cfg(unix)]
#[test]
fn pages_through_links_and_pipes() {
    let place = place();
    std::fs::write(place.join("target.html"), "old").expect("room");
    std::os::unix::fs::symlink("target.html", place.join("link.html")).expect("a link");
    succeeded(&equipoise(place, &["report", "runs/cwap-s0", "-o", "link.html"]));
    assert!(place.join("link.html").is_symlink());
    assert!(std::fs::read_to_string(place.join("target.html")).expect("there").ends_with("</html>\n"));
    let out = equipoise(place, &["report", "runs/cwap-s0", "-o", "/dev/null"]);
    succeeded(&out);
    assert!(!std::fs::metadata("/dev/null").expect("there").is_file());
}

/// Names of classes that would be commands elsewhere.
#[cfg(unix)]
#[test]
fn hostile_class_names() {
    let place = place();
    let names = [
        "<script>alert(1)</script>".replace('/', "\u{2215}"),
        "\" onload=\"alert(1)".to_owned(),
        "]]>&amp;'".to_owned(),
    ];
    for (number, name) in names.iter().enumerate() {
        for image in 0..6 {
            for part in ["train", "test"] {
                let folder = place.join("hostile").join(part).join(name);
                std::fs::create_dir_all(&folder).expect("a folder");
                let pixels: Vec<u8> = (0..12u32).map(|i| (i * 20 + number as u32 * 70 + image) as u8).collect();
                let file = [b"P6 2 2 255\n".as_slice(), &pixels].concat();
                std::fs::write(folder.join(format!("{image}.ppm")), file).expect("room");
            }
        }
    }
    let args = "train hostile --model resnet8 --epochs 1 --batch-size 4 --output hostile-run --quiet";
    succeeded(&equipoise(place, &args.split(' ').collect::<Vec<_>>()));
    let page = std::fs::read_to_string(place.join("hostile-run/report.html")).expect("a page");
    let page = Document::parse_with_options(&page, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() });
    let page = page.expect("well-formed");
    assert!(page.descendants().all(|node| !node.has_attribute("onload")));
    let scripts = page.descendants().filter(|node| node.has_tag_name("script"));
    assert!(scripts.into_iter().all(|script| !script.text().unwrap_or("").trim_start().starts_with("alert")));
    let whole: String = page.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
    assert!(names.iter().all(|name| whole.contains(name.as_str())));
}

/// A small table.
const RECIPE: &str = include_str!("small_table.toml");

/// A recipe of the user's: planned, run, interrupted, resumed, shown.
#[test]
fn a_table_is_reproduced() {
    let place = &place().join("table");
    std::fs::create_dir_all(place).expect("room");
    std::fs::write(place.join("recipe.toml"), RECIPE).expect("room");
    let plan = said(place, &["reproduce", "recipe.toml", "--dry-run"]);
    assert!(plan.contains("fashion/100") && plan.contains("in total"), "{plan}");
    // only what was published, unless others are named
    let plan = |more: &[&str]| -> Vec<Value> {
        let args = [&["reproduce", "recipe.toml", "--dry-run", "--json"], more].concat();
        serde_json::from_str(&said(place, &args)).expect("JSON")
    };
    assert_eq!(plan(&["--seeds", "3", "--criteria", "softmax,"]).len(), 3);
    assert_eq!(plan(&["--criteria", "softmax,late", "--seeds", "2"]).len(), 4);
    let args = ["reproduce", "recipe.toml", "--criteria", "softmax,late", "--seeds", "2", "--quiet"];
    let table = said(place, &[&args[..], &["--jobs", "2", "--json"]].concat());
    // a run that two tables share is made once, also by several jobs
    let twice = ["reproduce", "recipe.toml", "recipe.toml", "--criteria", "softmax", "--jobs", "2", "--quiet"];
    assert_eq!(said(place, &[&twice[..], &["-o", "shared", "--markdown"]].concat()).matches("Softmax").count(), 2);
    let script = ["reproduce", "recipe.toml", "--engine", "torch", "--criteria", "softmax,late", "--seeds", "3"];
    let script = said(place, &script);
    let last = "equipoise reproduce recipe.toml --criteria softmax,late --seeds 3 --show -o runs/reproduce\n";
    assert!(script.contains("torchrun ") && script.ends_with(last), "{script}");
    let narrow = ["reproduce", "readings", "--schedule", "paper-bf16", "--engine", "torch"];
    let narrow = text(&equipoise(place, &narrow).stderr);
    assert!(narrow.contains("--schedule paper-bf16 sets the precision bf16"), "{narrow}");
    let cells: Vec<Value> = serde_json::from_str(&table).expect("JSON");
    // two methods, two columns, last and best
    assert_eq!(cells.len(), 8);
    for cell in &cells {
        let method = cell["method"].as_str().expect("a name");
        let which = if cell["epoch"] == "last" { "last" } else { "best" };
        let value = |seed: u32| {
            let run = place.join(format!("runs/reproduce/paper/fashion-100/{method}-s{seed}"));
            let figures = json(&run.join("result.json"))[which].clone();
            let value = if cell["column"] == "overall" { &figures["top1"] } else { &figures["groups"][3]["accuracy"] };
            value.as_f64().expect("a number")
        };
        let want = (value(0) + value(1)) / 2.0;
        assert!((cell["mean"].as_f64().expect("a number") - want).abs() < 1e-9, "{cell}");
        assert_eq!(cell["published"].is_null(), method == "late");
    }
    assert!(plan(&["--criteria", "softmax,late", "--seeds", "2"]).iter().all(|job| job["seconds"] == 0.0));
    // several tables are one queue, with the recipes' own numbers of seeds; what they share is made once
    let second = RECIPE.replace("label = \"Softmax\"", "label = \"Softmax\"\nseeds = 3\ncells = [\"fashion\"]");
    assert_ne!(second, RECIPE);
    std::fs::write(place.join("second.toml"), &second).expect("room");
    let queue = plan(&["second.toml"]);
    let of = |job: &Value| (job["seed"].as_u64(), job["done"] == job["epochs"]);
    assert_eq!(
        queue.iter().map(of).collect::<Vec<_>>(),
        [(Some(0), true), (Some(0), true), (Some(1), true), (Some(2), false)]
    );
    std::fs::write(place.join("second.toml"), second.replace("[\"fashion\"]", "[\"mnist\"]")).expect("room");
    let refused = equipoise(place, &["reproduce", "second.toml", "--show"]);
    assert!(text(&refused.stderr).contains("method 'softmax': there is no cell 'mnist'"), "{}", text(&refused.stderr));
    // the recipe of the manual
    let manual = include_str!("../../../docs/usage.md");
    let manual =
        manual.split("```toml\n").find(|text| text.starts_with("title")).and_then(|text| text.split("```").next());
    std::fs::write(place.join("manual.toml"), manual.expect("an example")).expect("room");
    assert!(said(place, &["reproduce", "manual.toml", "--dry-run"]).contains("fashion-mini/50"));
    // of the methods that were asked for, every table has its own; a name that none has is refused
    std::fs::write(place.join("second.toml"), RECIPE.replace("name = \"late\"", "name = \"later\"")).expect("room");
    let queue = plan(&["second.toml", "--criteria", "later,late"]);
    let of = |job: &Value| [&job["table"], &job["method"]].map(|name| name.as_str().expect("a name").to_owned());
    assert_eq!(queue.iter().map(of).collect::<Vec<_>>(), [["recipe.toml", "late"], ["second.toml", "later"]]);
    let unknown = ["reproduce", "recipe.toml", "second.toml", "--criteria", "later,latest", "--dry-run"];
    assert!(text(&equipoise(place, &unknown).stderr).contains("unknown method 'latest'"));
    let nothing = ["reproduce", "recipe.toml", "readings", "--only", "fashion/100", "--criteria", "live", "--dry-run"];
    assert!(text(&equipoise(place, &nothing).stderr).contains("none of the tables has both"));
    // two tables whose runs would be in one folder, and are not the same
    std::fs::write(place.join("second.toml"), RECIPE.replace("batch_size = 64", "batch_size = 32")).expect("room");
    for option in ["--dry-run", "--engine=torch", "--show"] {
        let refused = equipoise(place, &["reproduce", "recipe.toml", "second.toml", option, "-o", "new"]);
        let want = "recipe.toml and second.toml: their runs of 'softmax' in fashion/100 would share a folder, with different 'batch_size'";
        assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains(want), "{}", text(&refused.stderr));
    }
    // one that was interrupted is resumed, and the others are left alone
    let run = place.join("runs/reproduce/paper/fashion-100/softmax-s1");
    let before = std::fs::read(run.join("checkpoint.eqp")).expect("there");
    std::fs::copy(run.join("previous.eqp"), run.join("checkpoint.eqp")).expect("room");
    std::fs::remove_file(run.join("result.json")).expect("there");
    let in_use = equipoise_record::RunFolder::open(&run).expect("free");
    let left = equipoise(place, &args);
    assert!(left.status.success() && text(&left.stderr).contains("left to it"), "{}", text(&left.stderr));
    assert!(text(&left.stderr).contains("1 run is not finished in other processes yet"), "{}", text(&left.stderr));
    drop(in_use);
    assert_eq!(said(place, &[&args[..], &["--json"]].concat()), table);
    assert_eq!(std::fs::read(run.join("checkpoint.eqp")).expect("there"), before);
    let shown =
        said(place, &["reproduce", "recipe.toml", "--criteria", "late", "--seeds", "2", "--show", "--markdown"]);
    assert!(shown.contains(r"LDAM \| deferred") && shown.contains("n/a"), "{shown}");
    std::fs::write(place.join("settings.toml"), "epochs = 3\n").expect("room");
    std::fs::write(place.join("mistyped.toml"), RECIPE.replace("fashion-mini", "fashion-mimi")).expect("room");
    for (args, want) in [
        (&["reproduce", "table9"][..], "table1, table2, table3, readings, live, within, choices, ingredients"),
        (&["reproduce", "nowhere.toml"], "nowhere.toml"),
        (
            &["reproduce", "settings.toml"],
            "these are the settings of a run, not a table; use `equipoise train --config",
        ),
        (&["train", "--config", "recommendd"], "the only recipe by name is 'recommended'"),
        (&["reproduce", "mistyped.toml", "--output", "new"], "fashion-mimi: neither a known dataset"),
        (&["reproduce", "table1", "--only", "mnist"], "cifar10/500"),
        (&["reproduce", "table1", "--criteria", "sofmax"], "softmax"),
        (
            &["reproduce", "table1", "--schedule", "long"],
            "unknown schedule 'long'; the table has paper, paper-bf16, short",
        ),
        (&["reproduce", "table1", "--only", "cifar10/100", "--data-root", "empty"], "data fetch cifar10"),
    ] {
        let out = equipoise(place, args);
        assert!(out.status.code() == Some(2) && text(&out.stderr).contains(want), "{args:?}: {}", text(&out.stderr));
    }
    // data that cannot be used leaves no folder behind that would be in the way of other data
    std::fs::create_dir(place.join("nothing")).expect("room");
    std::fs::write(place.join("mistyped.toml"), RECIPE.replace("fashion-mini", "nothing")).expect("room");
    let out = equipoise(place, &["reproduce", "mistyped.toml", "--output", "new", "--quiet"]);
    assert!(out.status.code() == Some(1) && text(&out.stderr).contains("1 of 1 runs failed"), "{}", text(&out.stderr));
    assert!(!place.join("new/paper/fashion-100/softmax-s0").exists());
    for table in ["table1", "table2", "table3"] {
        let plan = said(place, &["reproduce", table, "--dry-run", "--data-root", "empty"]);
        assert!(plan.contains("no dataset"), "{plan}");
    }
}

/// What is wrong with a recipe is found before anything is run.
#[test]
fn wrong_recipes() {
    let place = place();
    let softmax = "name = \"softmax\"";
    for (old, new, want) in [
        ("\"Rare\", \"overall\"", "\"rare\", \"overall\"", "column 'rare': must be one of overall, Many"),
        ("[\"Rare\", \"overall\"]", "[]", "there is no column"),
        ("name = \"late\"", softmax, "method 'softmax': there are two methods with this name"),
        ("name = \"late\"", "name = \"late.part\"", "method 'late.part': a name has letters"),
        ("name = \"fashion/100\"", "name = \"a//b\"", "cell 'a//b': a name has letters"),
        ("name = \"fashion/100\"", "name = \"../b\"", "cell '../b': a name has letters"),
        ("drw = 0.5", "drw = nan", "method 'late': drw is NaN"),
        ("drw = 0.5", "drw = -3.0", "it must be more than 0 and less than 1"),
        ("[12.5, 50.25]", "[12.5]", "softmax has 1 numbers for 2 columns"),
        ("[12.5, 50.25]", "[12.5, inf]", "inf is not an accuracy"),
        ("softmax = [12.5", "sofmax = [12.5", "there is no method 'sofmax'"),
        ("batch_size = 64", "seed = 7", "'seed' cannot be set in a recipe"),
        (
            "batch_size = 64",
            "bach_size = 64",
            "cell 'fashion/100', method 'softmax': unknown setting 'bach_size'; did you mean 'batch_size'?",
        ),
        ("[cell.published]", "[cell.schedules.shrt]\nepochs = 1\n[cell.published]", "there is no schedule 'shrt'"),
        ("title", "titel", "titel"),
        (
            "\"Rare\", \"overall\"",
            "\"validation\", \"overall\"",
            "there is a column 'validation', and the run holds no images out",
        ),
    ] {
        assert!(RECIPE.contains(old), "{old}");
        std::fs::write(place.join("wrong.toml"), RECIPE.replacen(old, new, 1)).expect("room");
        let out = equipoise(place, &["reproduce", "wrong.toml", "--show"]);
        let said = text(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(want), "{new}: {said}");
    }
    let twice =
        RECIPE.replace("[[cell]]", "[[cell]]\nname = \"fashion-100\"\nimages = [1, 1]\nsettings = {}\n[[cell]]");
    std::fs::write(place.join("wrong.toml"), twice).expect("room");
    let said = text(&equipoise(place, &["reproduce", "wrong.toml", "--show"]).stderr);
    assert!(said.contains("two cells whose runs would be in fashion-100"), "{said}");
}

/// A run that fails is named, and the others are run nevertheless; a result that cannot be is not believed.
#[test]
fn one_bad_run_of_a_table() {
    let place = place();
    let wild = RECIPE.replacen("settings.criterion.method = \"softmax\"", "settings.optimizer.learning_rate = 1e30", 1);
    std::fs::write(place.join("wild.toml"), wild).expect("room");
    let args =
        ["reproduce", "wild.toml", "--criteria", "softmax, late", "--schedule", "short", "--output", "wild", "--quiet"];
    let out = equipoise(place, &args);
    let said = text(&out.stderr);
    assert!(out.status.code() == Some(1), "{said}");
    assert!(said.contains("[1/2] fashion/100 softmax seed 0") && said.contains("1 of 2 runs failed"), "{said}");
    let done = place.join("wild/short/fashion-100/late-s0/result.json");
    let mut result = json(&done);
    let overall = result["last"]["top1"].as_f64().expect("a number");
    assert!(text(&out.stdout).contains(&equipoise_report::statistics::tenths(overall)));
    for (field, value) in [("top1", serde_json::json!(4000.0)), ("groups", serde_json::json!(3))] {
        let good = std::mem::replace(&mut result["last"][field], value);
        std::fs::write(&done, result.to_string()).expect("room");
        result["last"][field] = good;
        let said = text(&equipoise(place, &[&args[..], &["--show"]].concat()).stderr);
        assert!(said.contains("result.json") && said.contains("continue the run from its checkpoint"), "{said}");
    }
    result["seed"] = 9.into();
    std::fs::write(&done, result.to_string()).expect("room");
    let said = text(&equipoise(place, &[&args[..], &["--show"]].concat()).stderr);
    assert!(said.contains("result.json: not the result of this run"), "{said}");
}

/// Ctrl-C saves every run that is under way, also when another has ended before.
#[cfg(unix)]
#[test]
fn several_runs_are_stopped_at_once() {
    let place = place();
    let longer = RECIPE.replacen("drw = 0.5\nsettings = {", "settings = { epochs = 5000,", 1);
    std::fs::write(place.join("longer.toml"), longer).expect("room");
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    let args = "reproduce longer.toml --criteria softmax,late --schedule short --output longer --quiet --jobs 2";
    let command = command.current_dir(place).stdin(Stdio::null()).args(args.split(' '));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let runs = place.join("longer/short/fashion-100");
    // the short one has ended and the other is saved now and then: how long that takes is not what is tested
    while !(runs.join("softmax-s0/result.json").exists() && runs.join("late-s0/checkpoint.eqp").exists()) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    Command::new("kill").args(["-2", &child.id().to_string()]).status().expect("it runs");
    let out = child.wait_with_output().expect("it ends");
    let said = text(&out.stderr);
    assert!(out.status.code() == Some(130), "{:?}: {said}", out.status);
    assert!(said.contains("[2/2] fashion/100 late seed 0: stopped in epoch") && said.contains("is saved"), "{said}");
}

/// The page is there after the first epoch, reloads itself while the run goes on, and no longer does when it has ended.
#[test]
fn the_page_is_there_while_a_run_trains() {
    let place = place().join("live");
    std::fs::create_dir_all(&place).expect("room");
    let settings = ["--model", "resnet8", "--batch-size", "64", "--imbalance", "100", "--quiet"];
    let command = |epochs: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
        command.current_dir(&place).args(["compare", "fashion-mini", "--criteria", "softmax", "--seeds", "2"]);
        command.args(settings).args(["--epochs", epochs, "--output", epochs]);
        command
    };
    let mut training = command("5000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    let page = place.join("5000/report.html");
    for _ in 0..6000 {
        if page.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let html = std::fs::read_to_string(&page).expect("a page after the first epoch");
    training.kill().expect("running");
    training.wait().expect("ended");
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(&html, options).expect("a whole page");
    assert!(html.contains(r#"<noscript><meta http-equiv="refresh" content="10"/></noscript>"#));
    // the page can tell by itself that it is out of date
    assert!(html.contains(r#"data-patience="300""#) && html.contains("No update since"), "{html}");
    assert!(html.contains("has not finished: epoch 1 of 5000"), "the position");
    assert!(command("2").output().expect("started").status.success());
    let html = std::fs::read_to_string(place.join("2/report.html")).expect("a page");
    assert!(!html.contains("http-equiv=\"refresh\"") && !html.contains("under way"));
}

/// A page of training that was stopped or has failed says so, has all epochs, and no longer reloads itself.
#[cfg(unix)]
#[test]
fn the_page_says_how_training_has_ended() {
    let place = place().join("ended");
    std::fs::create_dir_all(&place).expect("room");
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
        let settings = ["--model", "resnet8", "--batch-size", "64", "--imbalance", "100", "--quiet"];
        command.current_dir(&place).args(args).args(settings).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let wait_for = |file: &str| {
        for _ in 0..6000 {
            if place.join(file).exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no {file}");
    };
    for (args, page, run, signal, what) in [
        (
            &["train", "fashion-mini", "--epochs", "5000", "--output", "a run"][..],
            "a run/report.html",
            "a run",
            "-2",
            "Training was stopped in epoch",
        ),
        (
            &["compare", "fashion-mini", "--criteria", "softmax", "--epochs", "5000", "--output", "some"],
            "some/report.html",
            "some/softmax-s0",
            "-1",
            "Training of softmax-s0 was stopped in epoch",
        ),
    ] {
        let mut training = command(args).spawn().expect("started");
        wait_for(page);
        // some epochs later than the page
        std::thread::sleep(std::time::Duration::from_millis(700));
        Command::new("kill").args([signal, &training.id().to_string()]).status().expect("it runs");
        assert!(matches!(training.wait().expect("ended").code(), Some(130 | 129)), "{args:?}");
        let html = std::fs::read_to_string(place.join(page)).expect("a page");
        let epochs = std::fs::read_to_string(place.join(run).join("metrics.jsonl")).expect("records").lines().count();
        let sentence = format!("{what} {} of 5000.", epochs + 1);
        assert!(html.contains(&sentence) && html.contains("To continue: <code>"), "no '{sentence}'");
        assert!(html.contains(&format!("has not finished: epoch {epochs} of 5000")), "not all epochs");
        assert!(!html.contains("http-equiv=\"refresh\"") && !html.contains("under way"), "{args:?}");
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(&html, options).expect("a whole page");
    }
    let wild = "optimizer.schedule={name=\"multi-step\",milestones=[{epoch=3,factor=1e30}]}";
    let mut diverging = command(&["train", "fashion-mini", "--epochs", "5", "--output", "wild", "--set", wild]);
    assert_eq!(diverging.status().expect("it runs").code(), Some(1));
    let html = std::fs::read_to_string(place.join("wild/report.html")).expect("a page");
    assert!(html.contains("Training has failed: the run diverged in epoch 3"), "how it ended");
    assert!(html.contains("has not finished: epoch 2 of 5") && !html.contains("under way"));
    // a page on demand says so too
    let report = |run: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
        command.current_dir(&place).args(["report", run]).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    for (run, sentence) in [
        ("wild", "Training has failed: the run diverged in epoch 3"),
        ("a run", "Training was stopped in epoch"),
        ("some", "Training of softmax-s0 was stopped in epoch"),
    ] {
        assert!(report(run).expect("it runs").success(), "{run}");
        let html = std::fs::read_to_string(place.join(run).join("report.html")).expect("a page");
        assert!(html.contains(sentence), "{run}");
    }
}
