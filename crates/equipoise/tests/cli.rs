//! The real binary in an empty folder: what it prints, what it refuses, how it ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use equipoise_criterion::Id;
use equipoise_data::read::decode::{DecodeLimits, decode};
use equipoise_testing::TempFolder;
use serde_json::{Value, json};

/// Runs the binary in an empty folder with this standard input.
fn equipoise(args: &[&str], input: &str) -> Output {
    let folder = TempFolder::new("cli");
    let mut child = Command::new(env!("CARGO_BIN_EXE_equipoise"))
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // a command that does not read its input may be gone already
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let out = child.wait_with_output().expect("ends");
    // nothing was left behind
    std::fs::remove_dir(folder.path()).expect("an empty folder");
    out
}

fn stdout(out: &Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout.clone()).expect("UTF-8")
}

#[test]
fn alone_it_names_three_commands() {
    let text = stdout(&equipoise(&[], ""));
    assert_eq!(text.lines().filter(|line| line.starts_with("  equipoise ")).count(), 3, "{text}");
}

#[test]
fn criteria_lists_and_explains() {
    let list = stdout(&equipoise(&["criteria"], ""));
    let json: Value = serde_json::from_str(&stdout(&equipoise(&["criteria", "--json"], ""))).expect("JSON");
    let all = json.as_array().expect("an array");
    // all criteria, and deferred re-weighting
    assert_eq!(all.len(), Id::ALL.len() + 1);
    for one in all {
        let id = one["id"].as_str().expect("an id");
        assert!(list.lines().any(|line| line.starts_with(&format!("{id} "))), "{id} is not in the list");
        let page = stdout(&equipoise(&["criteria", id], ""));
        for heading in ["Equation", "Symbols", "Paper", "Differs", "Reduces to", "Choosing"] {
            assert!(page.lines().any(|line| line == heading), "{id}: no {heading}");
            let key = heading.to_lowercase().replace(' ', "_");
            assert!(!one["sections"][&key].as_str().unwrap_or_default().is_empty(), "{id}: no {key}");
        }
        for parameter in one["parameters"].as_array().expect("parameters") {
            let name = parameter["name"].as_str().expect("a name");
            assert!(page.contains(&format!("  {name}=")) && list.contains(&format!("{name}=")), "{id}: no {name}");
            assert!(!parameter["doc"].as_str().unwrap_or_default().is_empty(), "{id}: {name} is not explained");
        }
        let alone: Value = serde_json::from_str(&stdout(&equipoise(&["criteria", id, "--json"], ""))).expect("JSON");
        assert_eq!(alone, *one);
    }
}

/// `equipoise criteria --docs docs/criteria` has been run since the methods' headers were last changed.
#[test]
fn pages_in_docs_are_what_the_program_says() {
    let folder = TempFolder::new("cli");
    let made = folder.path().join("pages");
    stdout(&equipoise(&["criteria", "--docs", made.to_str().expect("UTF-8")], ""));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/criteria");
    let read = |dir: &Path| {
        let mut pages: Vec<(String, String)> = dir
            .read_dir()
            .expect("pages")
            .map(|entry| entry.expect("a page").path())
            .map(|path| {
                (
                    path.file_name().expect("a name").to_string_lossy().into_owned(),
                    std::fs::read_to_string(path).expect("text"),
                )
            })
            .collect();
        pages.sort();
        pages
    };
    assert_eq!(read(&kept), read(&made), "run: equipoise criteria --docs docs/criteria");
}

/// The example of `loss` in docs/usage.md and in its help: focal loss of one row.
#[test]
fn loss_reads_standard_input() {
    let case = json!({"method": "focal", "counts": [9, 1], "steps": [{"logits": [[2.0, -1.0]], "labels": [1]}]});
    let got: Value = serde_json::from_str(&stdout(&equipoise(&["loss", "-"], &case.to_string()))).expect("JSON");
    // (1 - p) CE with p = 1 / (1 + e^3)
    let p = 1.0 / (1.0 + 3f64.exp());
    let loss = got["steps"][0]["loss"].as_f64().expect("a loss");
    assert!((loss - (1.0 - p) * -p.ln()).abs() < 1e-6, "{got}");
    assert!((got["steps"][0]["weights"][0].as_f64().expect("a weight") - (1.0 - p)).abs() < 1e-6);
}

/// `loss` starts from the printed equations, and parameters override presets.
#[test]
fn presets_can_be_named_and_overridden() {
    let weights = |more: Value| {
        let mut case = json!({"method": "cwap", "counts": [9, 1], "steps": [{"logits": [[2.0, -1.0]], "labels": [1]}]});
        case.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let got: Value = serde_json::from_str(&stdout(&equipoise(&["loss", "-"], &case.to_string()))).expect("JSON");
        got["steps"][0]["weights"][0].as_f64().expect("a weight").round()
    };
    assert_eq!(weights(json!({})), 1.0);
    // S / v^alpha of an even histogram is the number of regions
    let literal = |bins: u32| json!({"preset": "printed", "params": {"bins": bins, "normalize": "none", "prior": 0.0}});
    assert_eq!(weights(literal(30)), 30.0);
    assert_eq!(weights(literal(7)), 7.0);
}

/// The presets `reference` and `paper` of `cwap` are the reading of `more_cwap_reference.json`.
#[test]
fn the_reference_of_cwap_has_its_golden_values() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/more_cwap_reference.json");
    let mut case: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("readable")).expect("JSON");
    let golden = case["expected"].take();
    for preset in ["reference", "paper"] {
        case["params"] = json!({});
        case["preset"] = json!(preset);
        let got: Value = serde_json::from_str(&stdout(&equipoise(&["loss", "-"], &case.to_string()))).expect("JSON");
        let (got, want) = (got["steps"].as_array().expect("steps"), golden.as_array().expect("steps"));
        for (got, want) in got.iter().zip(want).filter(|(_, want)| want["loss"].is_number()) {
            let [got, want] = [got, want].map(|step| step["loss"].as_f64().expect("a loss"));
            assert!((got - want).abs() < 1e-6, "{preset}: {got}, not {want}");
        }
    }
}

#[test]
fn wrong_cases_are_refused_in_one_line_that_names_the_field() {
    let step = r#"{"logits": [[0, 1], [2, 3]], "labels": [0, 1]}"#;
    let case = |method: &str, more: &str, steps: &str| {
        format!(r#"{{"method": "{method}", "counts": [9, 1]{more}, "steps": [{steps}]}}"#)
    };
    let cases = [
        (case("focall", "", step), "method: unknown criterion 'focall'; did you mean 'focal'?"),
        (case("focal", r#", "params": {"gama": 1}"#, step), "params.gama: unknown parameter; did you mean 'gamma'?"),
        (case("focal", r#", "params": {"gamma": -1}"#, step), "focal: gamma is -1; it must be from 0 to 100"),
        (case("focal", r#", "params": {"gamma": "one"}"#, step), "params.gamma: invalid type: string \"one\""),
        (case("cwap", r#", "params": {"regions": "some"}"#, step), "params.regions: unknown value 'some'"),
        (case("cwap", r#", "params": {"bins": 2.5}"#, step), "params.bins: invalid type: floating point"),
        (case("focal", r#", "preset": "best""#, step), "preset: unknown value 'best'"),
        (case("focal", r#", "drw": {"beta": 0.9}"#, step), "drw: 'start_epoch' is missing"),
        (case("focal", r#", "drw": {"start_epoch": 1, "beta": 1}"#, step), "drw.beta is 1; it must be"),
        (case("focal", r#", "extra": 1"#, step), "extra: unknown name 'extra'"),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2]], "labels": [0, 1]}"#),
            "steps[0].logits[1]: 1 numbers for 2 classes",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2, null]], "labels": [0, 1]}"#),
            "steps[0].logits[1][1]: invalid type: null",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2, 1e39]], "labels": [0, 1]}"#),
            "steps[0].logits[1][1]: number out of range",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2, NaN]], "labels": [0, 1]}"#),
            "steps[0].logits[1][1]: expected value",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2, 3]], "labels": [0, 2]}"#),
            "steps[0].labels[1] is 2; there are 2 classes, numbered from 0",
        ),
        (case("focal", "", r#"{"logits": [[0, 1], [2, 3]], "labels": [0, -1]}"#), "steps[0].labels[1]: invalid value"),
        (
            case("focal", "", r#"{"logits": [[0, 1], [2, 3]], "labels": [0]}"#),
            "steps[0].labels: 1 for 2 rows of logits",
        ),
        (case("focal", "", r#"{"logits": [], "labels": []}"#), "steps[0].labels: the batch is empty"),
        (case("focal", "", r#"{"labels": [0]}"#), "steps[0].logits: missing"),
        (case("focal", "", r#"{"logits": [[0, 1]]}"#), "steps[0].labels: missing"),
        (
            case("focal", "", r#"{"end_epoch": false}"#),
            "steps[0].end_epoch must be true and the only field of its step",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1]], "labels": [0], "mixed": {"labels": [1], "share": [2]}}"#),
            "steps[0].mixed.share[0] is 2",
        ),
        (
            case("focal", "", r#"{"logits": [[0, 1]], "labels": [0], "weights": [1]}"#),
            "steps[0].weights: unknown name 'weights'",
        ),
        (
            case("focal", "", r#"{"end_epoch": true, "train": false}"#),
            "steps[0].end_epoch must be true and the only field of its step",
        ),
        (case("drw", "", step), "method: unknown criterion 'drw'; it is a schedule on top of a criterion"),
        (case("\\u001b[31mred", "", step), "method: unknown criterion '\\u{1b}[31mred'"),
        (r#"["softmax", null, {}, null, [9, 1], [], null]"#.to_owned(), "the case is not a JSON object {..}"),
        (
            r#"{"method": "cwap", "params": {"bins": 10000}, "counts": ["#.to_owned()
                + &"1,".repeat(20_000)
                + r#"1], "steps": []}"#,
            "cwap: bins is 10000; it must be at most 2^27 over",
        ),
        (
            r#"{"method": "focal", "counts": [9], "steps": []}"#.to_owned(),
            "counts: got 1 classes; at least 2 are needed",
        ),
        (r#"{"method": "focal", "counts": [0, 0], "steps": []}"#.to_owned(), "counts: every class is empty"),
        (r#"{"method": "focal", "counts": [9, -1], "steps": []}"#.to_owned(), "counts[1]: invalid value: integer `-1`"),
        (r#"{"method": "focal", "steps": []}"#.to_owned(), "'counts' is missing"),
        (r#"{"method": "focal", "counts": [9, 1], "steps": []} x"#.to_owned(), "trailing characters"),
        ("[1, 2".to_owned(), "the case is not a JSON object"),
        (String::new(), "the case is not a JSON object"),
        (r#"{"method": "focal", "params": "#.to_owned() + &r#"{"a": "#.repeat(100_000), "recursion limit exceeded"),
    ];
    for (input, message) in cases {
        let out = equipoise(&["loss", "-"], &input);
        let error = String::from_utf8(out.stderr).expect("UTF-8");
        let shown = &input[..input.len().min(200)];
        assert_eq!(out.status.code(), Some(2), "{shown}: {error}");
        assert!(out.stdout.is_empty() && error.trim_end().lines().count() == 1, "{shown}: {error}");
        assert!(error.starts_with("equipoise: ") && error.contains(message), "{shown}: {error}");
    }
}

#[test]
fn exit_codes_are_honest() {
    let code = |args: &[&str]| equipoise(args, "").status.code();
    assert_eq!(code(&["criteria", "sesaw"]), Some(2));
    assert_eq!(code(&["no-such-command"]), Some(2));
    assert_eq!(code(&["loss"]), Some(2));
    assert_eq!(code(&["bench", "loss", "--batch-size", "0"]), Some(2));
    assert_eq!(code(&["bench", "loss", "--batch-size", "1000000", "--classes", "10000000"]), Some(2));
    assert_eq!(code(&["bench", "loss", "--criteria", "softmax,sesaw"]), Some(2));
    assert_eq!(code(&["bench", "data", "--policy", "autoaugment"]), Some(2));
    assert_eq!(code(&["bench", "step", "--model", "linear"]), Some(2));
    assert_eq!(code(&["--version"]), Some(0));
    let out = equipoise(&["loss", "no-such-file.json"], "");
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).starts_with("equipoise: cannot read no-such-file.json: "));
    assert_eq!(code(&["data", "import", "mnist", "no-such-folder", "--data-root", "x"]), Some(2));
}

/// A reader that has seen enough is no failure.
#[test]
fn a_closed_pipe_is_no_failure() {
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/more_cwap_517.json");
    for args in [&["criteria", "--json"][..], &["loss", case]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_equipoise"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let out = child.wait_with_output().expect("ends");
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// A device that is full is one, with the reason.
#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_a_failure() {
    let full = std::fs::File::create("/dev/full").expect("opens");
    let out = Command::new(env!("CARGO_BIN_EXE_equipoise"))
        .arg("criteria")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("No space left"), "{out:?}");
}

#[test]
fn warnings_go_to_standard_error() {
    let case = json!({"method": "class-balanced", "counts": [9, 0], "steps": []});
    let out = equipoise(&["loss", "-"], &case.to_string());
    assert_eq!(stdout(&out), "{\"steps\":[]}\n");
    assert_eq!(
        String::from_utf8_lossy(&out.stderr),
        "equipoise: warning: class 1 has no training images: its weight is 0\n"
    );
}

#[test]
fn bench_loss_keeps_its_contract() {
    let args = ["bench", "loss", "--batch-size", "8", "--classes", "50", "--threads", "2", "--repeats", "3", "--json"];
    let text = stdout(&equipoise(&args, ""));
    assert_eq!(text.lines().count(), Id::ALL.len());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let whole = |key: &str| line[key].as_u64().expect("a number");
        assert_eq!((whole("batch"), whole("classes"), whole("threads")), (8, 50, 2));
        let (median, best) = (line["microseconds"].as_f64().expect("a time"), line["best"].as_f64().expect("a time"));
        assert!(0.0 < best && best <= median && line["criterion"].is_string(), "{line}");
    }
    let table = stdout(&equipoise(
        &["bench", "loss", "--batch-size", "8", "--classes", "50", "--repeats", "3", "--criteria", "cwap"],
        "",
    ));
    assert_eq!(table.lines().count(), 3, "{table}");
}

#[test]
fn bench_data_measures_every_policy() {
    for (policy, what) in [("crop", "32"), ("jitter", "32, jitter"), ("randaugment", "32, RandAugment")] {
        let args = ["bench", "data", "--policy", policy, "--rounds", "1", "--threads", "2", "--json"];
        let line: Value = serde_json::from_str(&stdout(&equipoise(&args, ""))).expect("JSON");
        assert!(line["what"].as_str().is_some_and(|it| it.ends_with(what)), "{line}");
        assert!(line["images_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{line}");
    }
}

#[test]
fn inspect_shows_the_embedded_set() {
    let text = stdout(&equipoise(&["inspect", "fashion-mini"], ""));
    for line in [
        "fashion-mini: 1485 training and 1000 test images, 10 classes",
        "imbalance factor 100.0, Gini 0.61",
        "Rare        2 classes: bag, ankle boot",
    ] {
        assert!(text.lines().any(|l| l == line), "no line `{line}` in\n{text}");
    }
    let report: Value =
        serde_json::from_str(&stdout(&equipoise(&["inspect", "fashion-mini", "--json"], ""))).expect("JSON");
    assert_eq!((report["train"].as_u64(), report["test"].as_u64()), (Some(1485), Some(1000)));
    assert_eq!(report["classes"][9], json!({"name": "ankle boot", "train": 6, "test": 100}));
    assert_eq!(report["groups"][3], json!({"name": "Rare", "classes": ["bag", "ankle boot"]}));
    assert!(report["problems"].as_array().is_some_and(Vec::is_empty) && report["advice"].is_array());
    assert_eq!(report["imbalance_factor"].as_f64(), Some(100.0));
}

/// A picture of training images, as they are and augmented.
#[test]
fn inspect_draws_augmented_images() {
    let folder = TempFolder::new("cli");
    let drawn = |data: &str, more: &[&str]| {
        let file = folder.path().join("batch.png");
        let file = file.to_str().expect("UTF-8");
        stdout(&equipoise(&[&["inspect", data, "--output", file], more].concat(), ""));
        let bytes = std::fs::read(file).expect("a picture");
        let image = decode(&bytes, DecodeLimits::default()).expect("a PNG file");
        (image.width, image.height, bytes)
    };
    let usual = drawn("fashion-mini", &[]);
    // eight columns; four groups of an original and three versions
    assert_eq!((usual.0, usual.1), (968, 2240));
    assert!(usual == drawn("fashion-mini", &[]), "the same again");
    for augment in ["randaugment=[2, 9]", "randaugment=[2, \"difficulty\"]", "policy=trivialaugment", "cmo=0.5"] {
        assert!(drawn("fashion-mini", &["--augment", augment]).2 != usual.2, "{augment}");
    }
    let plain = drawn("fashion-mini", &["--augment", "augment.flip=false", "--augment", "crop_padding=0"]);
    assert_ne!(plain.2, usual.2);
    assert_eq!(drawn("fashion-mini", &["--augment", "recommended", "--groups", "rank:2", "--json"]).1, 1128);
    // two classes of four images; one of them cannot be read
    let data = folder.path().join("data");
    for number in 0..8 {
        let class = data.join(["cat", "dog"][number / 4]);
        std::fs::create_dir_all(&class).expect("a folder");
        let image = [&b"P6\n9 9\n255\n"[..], &[30 * number as u8; 243]].concat();
        let image = if number == 2 { &image[..40] } else { &image[..] };
        std::fs::write(class.join(format!("{number}.ppm")), image).expect("a file");
    }
    drawn(data.to_str().expect("UTF-8"), &["--augment", "cutmix=1.0"]);
    let refused = |more: &[&str]| {
        let out = equipoise(&[&["inspect", "fashion-mini"], more].concat(), "");
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(refused(&["--augment", "cutout=8"]).contains("--output <FILE>"));
    let output = ["--output", "batch.png", "--augment"];
    assert!(
        refused(&[&output[..], &["cutot=8"]].concat())
            .contains("unknown setting 'cutot'; did you mean 'augment.cutout'?")
    );
    assert!(
        refused(&[&output[..], &["cutmix=2"]].concat())
            .contains("setting 'augment.cutmix' is 2; it must be more than 0")
    );
    assert!(refused(&[&output[..], &["best"]].concat()).contains("--augment best: no such file"));
    let out = equipoise(&["inspect", "fashion-mini", "--output", "nowhere/batch.png"], "");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("cannot write nowhere/batch.png"));
}

#[test]
fn data_lists_sets_and_writes_subsets() {
    let list = stdout(&equipoise(&["data", "list"], ""));
    assert!(
        list.contains("fashion-mini") && list.contains("built into the program") && list.contains("cifar100"),
        "{list}"
    );
    let list = stdout(&equipoise(&["data", "list", "--json", "--data-root", "nowhere"], ""));
    let list: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&list[0]["here"], &list[0]["path"]), (&json!(true), &Value::Null));
    assert_eq!((&list[3]["here"], &list[3]["path"]), (&json!(false), &Value::Null));
    assert_eq!(list[3]["files"][0]["bytes"], 170_052_171);
    let text = stdout(&equipoise(&["data", "index", "fashion-mini", "--imbalance", "10"], ""));
    assert!(text.starts_with("# fashion-mini, imbalance 10, profile exp, subset seed 0: "), "{text}");
    let positions: Vec<u32> =
        text.lines().filter(|l| !l.starts_with('#')).map(|l| l.parse().expect("a position")).collect();
    // 148.5 a class were expected; the small classes give what they have
    assert_eq!(positions.len(), 148 + 114 + 89 + 68 + 53 + 41 + 27 + 16 + 10 + 6);
    // what was written can be read back, and is the same subset
    let folder = TempFolder::new("cli");
    let file = folder.path().join("subset.txt");
    let path = file.to_str().expect("UTF-8");
    let said = stdout(&equipoise(&["data", "index", "fashion-mini", "--imbalance", "10", "-o", path], ""));
    assert_eq!(said, format!("{} indices written to {path}\n", positions.len()));
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), text);
    let by_file = stdout(&equipoise(&["inspect", "fashion-mini", "--subset-file", path], ""));
    assert_eq!(by_file, stdout(&equipoise(&["inspect", "fashion-mini", "--imbalance", "10"], "")));
    std::fs::write(&file, text.replace("# fingerprint 1485 ", "# fingerprint 1484 ")).expect("writes");
    let out = equipoise(&["inspect", "fashion-mini", "--subset-file", path], "");
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("subset.txt: it belongs to another dataset: its fingerprint is 1484 "), "{said}");
    std::fs::write(&file, "3\n1485\n").expect("writes");
    let error = |args: &[&str]| {
        let out = equipoise(args, "");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).trim_end().to_owned())
    };
    let (code, said) = error(&["inspect", "fashion-mini", "--subset-file", path]);
    assert_eq!(code, Some(2));
    assert!(said.ends_with("subset.txt: line 2: index 1485, but there are 1485 training images"), "{said}");
    let (code, said) = error(&["data", "index", "fashion-mini"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(2), "equipoise: --imbalance is required: the imbalance factor of the subset")
    );
    let (code, said) = error(&["inspect", "fashion-mini", "--imbalance", "0.5"]);
    assert_eq!((code, said.as_str()), (Some(2), "equipoise: imbalance = 0.5: must be at least 1 and finite"));
    let (code, said) = error(&["inspect", "fashion-mini", "--test-fraction", "2"]);
    assert_eq!((code, said.as_str()), (Some(2), "equipoise: test fraction = 2: must be at least 0 and less than 1"));
    let (code, said) = error(&["inspect", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert!(code == Some(2) && said.contains("Cargo.toml: not a dataset: expected a folder per class,"), "{said}");
    let (code, said) = error(&["inspect", "nowhere"]);
    assert!(code == Some(2) && said.starts_with("equipoise: `nowhere` is neither a known dataset ("), "{said}");
    let (code, said) = error(&["inspect", "cifar10", "--data-root", "nowhere"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.starts_with("equipoise: cifar10 is not in nowhere/cifar10: `equipoise data fetch cifar10` downloads it")
    );
    let (_, said) = error(&["inspect", "imagenet", "--data-root", "nowhere"]);
    assert!(said.ends_with("nowhere/imagenet: `equipoise data import imagenet PATH` takes it from a disk"), "{said}");
    assert_eq!(error(&["inspect", "fashion-mini", "--groups", "size"]).0, Some(2));
}

/// Names and paths of others do nothing to the terminal, and nothing to JSON.
#[cfg(unix)]
#[test]
fn odd_names_are_shown_and_do_nothing() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = TempFolder::new("cli");
    let tree = folder.path();
    for class in [
        &b"red\x1b[31m"[..],
        b"two\nlines",
        b"bell\x07",
        "left\u{202e}".as_bytes(),
        "mark\u{feff}\u{200b}".as_bytes(),
        b"\xff\xfe",
        "\u{1f431}".as_bytes(),
    ] {
        let class = tree.join(OsStr::from_bytes(class));
        std::fs::create_dir_all(&class).expect("a folder");
        for name in [&b"a"[..], b"b\r\n\x1b]0;title\x07", b"\x9b\xff"] {
            std::fs::write(class.join(OsStr::from_bytes(name)), b"P6 no image").expect("writes");
        }
    }
    let path = tree.to_str().expect("UTF-8");
    let text = stdout(&equipoise(&["inspect", path], ""));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    for shown in [
        "red\\u{1b}[31m",
        "two\\nlines",
        "bell\\u{7}",
        "left\\u{202e}",
        "mark\\u{feff}\\u{200b}",
        "\u{fffd}\u{fffd}",
        "\u{1f431}",
        "b\\r\\n",
    ] {
        assert!(text.contains(shown), "no {shown} in {text}");
    }
    let json = stdout(&equipoise(&["inspect", path, "--json"], ""));
    assert_eq!(json.lines().count(), 1);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let names: Vec<&str> =
        report["classes"].as_array().expect("classes").iter().filter_map(|c| c["name"].as_str()).collect();
    assert!(names.contains(&"two\nlines") && names.contains(&"red\u{1b}[31m"), "{names:?}");
    // one for every file, and one for the name that is not UTF-8
    assert_eq!(report["problems"].as_array().expect("problems").len(), 21 + 1);
    let out = equipoise(&["inspect", tree.join("no\x1b[31m\nfolder").to_str().expect("UTF-8")], "");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.trim_end().chars().all(|c| !c.is_control()), "{said:?}");
}

/// A class without enough images for its quota is named.
#[test]
fn a_subset_that_cannot_be_filled_says_so() {
    let out = equipoise(&["inspect", "fashion-mini", "--imbalance", "10"], "");
    let said = String::from_utf8_lossy(&out.stderr);
    let want = "equipoise: warning: 4 classes have fewer images than the subset asks for, so all of them are used: ";
    assert!(out.status.success() && said.starts_with(want) && said.lines().count() == 1, "{said}");
    assert!(said.contains("shirt has 27 of 31, ") && said.ends_with(" of 14\n"), "{said}");
    let out = equipoise(&["inspect", "fashion-mini", "--imbalance", "1000000"], "");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("warning: 6 classes are left without images: coat, sandal, "), "{said}");
    assert!(said.ends_with(" and 1 more\n"), "{said}");
    let out = equipoise(&["inspect", "fashion-mini"], "");
    assert!(out.status.success() && out.stderr.is_empty());
}

/// Every error names what went wrong, and nothing is put in place.
#[test]
fn data_fetch_refuses_what_is_not_official() {
    let folder = TempFolder::new("cli");
    let root = folder.path();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let from = format!("http://{}/", listener.local_addr().expect("an address"));
    // the official size of the set's first file, and what is not in it
    let body = vec![0; 9_912_422];
    let answers = [
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(), body].concat(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec(),
    ];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("reads") == 1 {
                head.push(byte[0]);
            }
            stream.write_all(&answer).expect("writes");
        }
    });
    let root_name = root.to_str().expect("UTF-8");
    let fetch = |name: &str| {
        let out = equipoise(&["data", "fetch", name, "--from", &from, "--data-root", root_name], "");
        assert!(out.status.code() == Some(1) && out.stdout.is_empty(), "{out:?}");
        assert!(!root.join(name).exists());
        String::from_utf8(out.stderr).expect("UTF-8")
    };
    let said = fetch("mnist");
    let lines: Vec<&str> = said.lines().collect();
    let name = "train-images-idx3-ubyte.gz";
    assert_eq!(lines[0], format!("equipoise: fetching {from}{name}"));
    assert!(lines.contains(&"equipoise: 0.0 MB of 9.9 MB"), "{said}");
    assert!(lines.iter().any(|line| line.starts_with("equipoise: 9.9 MB of 9.9 MB, ")), "{said}");
    assert!(lines.contains(&format!("equipoise: {name} is complete: verifying its checksum").as_str()), "{said}");
    let last = lines.last().expect("a line");
    assert!(last.starts_with(&format!("equipoise: {from}{name}: its MD5 sum is ")), "{said}");
    assert!(
        last.ends_with(", but the official one is f68b3c2dcbeaaa9fbdd348bbdeb94873; the download was removed"),
        "{said}"
    );
    let said = fetch("cifar10");
    assert!(said.ends_with(": the server announces 5 bytes, but the official file has 170052171\n"), "{said}");
    let said = fetch("tiny-imagenet");
    assert!(said.ends_with("/tiny-imagenet-200.zip: the server answers 403\n"), "{said}");
    server.join().expect("served");
}

#[test]
fn data_fetch_says_what_it_cannot_do() {
    let error = |args: &[&str]| {
        let out = equipoise(&[&["data", "fetch"], args].concat(), "");
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        String::from_utf8(out.stderr).expect("UTF-8")
    };
    let said = error(&["imagenet"]);
    assert!(
        said.starts_with("equipoise: imagenet is only available after a login at https://www.image-net.org"),
        "{said}"
    );
    assert!(said.contains("`equipoise data import imagenet PATH`"), "{said}");
    let said = error(&["fashion-mini"]);
    assert_eq!(said, "equipoise: fashion-mini is built into the program: there is nothing to fetch\n");
    assert!(error(&["nowhere"]).starts_with("equipoise: `nowhere` is neither a known dataset ("));
    let said = error(&["cifar10", "--from", "mirror"]);
    assert_eq!(said, "equipoise: mirror: a mirror must start with http:// or https:// and name a server\n");
    let list = stdout(&equipoise(&["data", "list", "--json"], ""));
    let sets: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let files = |name: &str| sets.iter().find(|set| set["name"] == name).expect("listed")["files"].clone();
    let url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
    assert_eq!(
        files("cifar10"),
        json!([{"url": url, "bytes": 170_052_171, "md5": "c32a1d4ab5d03f1284b67883e8d87530"}])
    );
    assert_eq!((files("imagenet"), files("inat2017")[0]["md5"].clone()), (json!([]), Value::Null));
}

/// A part of a set is imported under its name, but not in silence; what cannot be of the set is refused.
#[test]
fn data_import_compares_with_the_whole_set() {
    let folder = TempFolder::new("cli");
    let here = folder.path();
    let write = |name: &str, head: &[u32], bytes: &[u8]| {
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        std::fs::write(here.join("from").join(name), [&head, bytes].concat()).expect("writes");
    };
    std::fs::create_dir(here.join("from")).expect("a folder");
    for part in ["train", "t10k"] {
        write(&format!("{part}-images-idx3-ubyte"), &[0x803, 2, 1, 1], &[1, 2]);
        write(&format!("{part}-labels-idx1-ubyte"), &[0x801, 2], &[0, 10]);
    }
    let [from, root] = ["from", "root"].map(|name| here.join(name).to_str().expect("UTF-8").to_owned());
    let run = |from: &str| {
        let out = equipoise(&["data", "import", "mnist", from, "--data-root", &root], "");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).trim_end().to_owned())
    };
    let (code, said) = run(&from);
    assert!(code == Some(2) && said.ends_with("record 1: label 10, but there are 10 classes"), "{said}");
    assert!(said.starts_with(&format!("equipoise: {from}")), "{said}");
    for part in ["train", "t10k"] {
        write(&format!("{part}-labels-idx1-ubyte"), &[0x801, 2], &[0, 9]);
    }
    let want = "equipoise: warning: this is not the whole dataset: 2 of 60000 training images, 2 of 10000 test images";
    assert_eq!(run(&from), (Some(0), want.to_owned()));
    std::fs::remove_dir_all(here.join("root")).expect("removes");
    let (code, said) = run("nowhere");
    assert_eq!((code, said.as_str()), (Some(2), "equipoise: nowhere: there is no such file or folder"));
}

/// Every kernel is measured beside the peak.
#[test]
fn bench_kernels() {
    let out = equipoise(&["bench", "kernels", "--rounds", "1", "--json"], "");
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.lines().count() > 5);
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        for key in ["peak", "forward", "backward"] {
            assert!(line[key].as_f64().is_some_and(|x| x > 0.0), "{line}");
        }
    }
}

/// The contract of `bench step`, and what it refuses before memory is taken.
#[test]
fn bench_step() {
    let line = stdout(&equipoise(
        &["bench", "step", "--model", "resnet8", "--batch-size", "4", "--steps", "2", "--threads", "2", "--json"],
        "",
    ));
    let report: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&report["model"], &report["batch"], &report["threads"]), (&json!("resnet8"), &json!(4), &json!(2)));
    let (median, best) = (report["images_per_second"].as_f64(), report["best"].as_f64());
    assert!(median > Some(0.0) && best >= median, "{report}");
    assert!(report["device"].as_str().is_some_and(|device| device.starts_with("cpu ")), "{report}");
    for (args, want) in [
        (["--image-size", "60000"], "equipoise: a batch of 60000 images takes about "),
        (
            ["--model", "resnet31"],
            "error: invalid value 'resnet31' for '--model <NAME>': unknown model 'resnet31'; did you mean 'resnet32'? Known models: resnet8, ",
        ),
        (["--channels", "0"], "equipoise: channels = 0: must be 1 to 1024"),
    ] {
        let out = equipoise(&[&["bench", "step", "--batch-size", "60000"], &args[..]].concat(), "");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.starts_with(want), "{said}");
    }
}
