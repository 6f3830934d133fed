//! Runs of the real binary: repeated, stopped, killed, damaged, and always the same to the bit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use equipoise_criterion::random::Draws;
use equipoise_testing::TempFolder;

#[expect(clippy::disallowed_methods, reason = "how long a process may take to end is part of its promise")]
fn now() -> Instant {
    Instant::now()
}

fn command(place: &TempFolder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    command.current_dir(place.path()).env("EQUIPOISE_DATA", place.path().join("data")).stdin(Stdio::null());
    command
}

fn equipoise(place: &TempFolder, args: &[&str]) -> Output {
    command(place).args(args).output().expect("it runs")
}

/// A tiny run: some hundred images, a small network.
const TINY: [&str; 12] = [
    "train",
    "fashion-mini",
    "--model",
    "resnet8",
    "--imbalance",
    "200",
    "--batch-size",
    "16",
    "--epochs",
    "3",
    "--threads",
    "2",
];

fn tiny<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TINY[..], more].concat()
}

/// What must be the same whatever happened: everything but times.
fn outcome(run: &Path) -> [Vec<u8>; 5] {
    ["checkpoint.eqp", "metrics.jsonl", "config.toml", "norms.jsonl", "details.json"]
        .map(|name| std::fs::read(run.join(name)).expect(name))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(out: &Output) {
    assert!(out.status.success(), "{:?}: {}", out.status, text(&out.stderr));
}

/// The undisturbed run.
fn undisturbed(place: &TempFolder) -> [Vec<u8>; 5] {
    succeeded(&equipoise(place, &tiny(&["--output", "whole", "--quiet"])));
    outcome(&place.path().join("whole"))
}

#[test]
fn the_same_again_and_with_other_threads() {
    let place = TempFolder::new("runs");
    let want = undisturbed(&place);
    for (name, threads) in [("again", "2"), ("one", "1"), ("five", "5")] {
        let args: Vec<&str> = tiny(&["--output", name, "--quiet"]);
        let args: Vec<&str> = args.iter().map(|arg| if *arg == "2" { threads } else { *arg }).collect();
        succeeded(&equipoise(&place, &args));
        assert!(outcome(&place.path().join(name)) == want, "{name}");
    }
    // and the seed matters
    succeeded(&equipoise(&place, &tiny(&["--output", "other", "--quiet", "--seed", "1"])));
    assert!(outcome(&place.path().join("other"))[0] != want[0]);
}

/// Every kind of state there is: an average of the weights, mixed labels, levels of augmentation, deferred weights, a criterion
/// that counts, a validation part that chooses.
#[test]
fn all_state_survives_a_stop_in_mid_epoch() {
    let place = TempFolder::new("runs");
    for (number, (criterion, augment, mixing)) in [
        ("cwap", "augment.policy=autoaugment-cifar10", "augment.mixup_alpha=0.2"),
        ("seesaw", "augment.randaugment=[2, \"difficulty\"]", "augment.cutmix=0.5"),
        ("ghm", "augment.policy=trivialaugment", "augment.mixup_alpha=0.2"),
    ]
    .iter()
    .enumerate()
    {
        let more = [
            "--criterion",
            criterion,
            "--val-fraction",
            "0.2",
            "--set",
            "optimizer.ema_decay=0.9",
            "--set",
            augment,
            "--set",
            mixing,
            "--set",
            "criterion.drw.start_epoch=1",
            "--set",
            "data.sampler=square-root",
            "--quiet",
        ];
        let (whole, parts) = (format!("whole-{number}"), format!("parts-{number}"));
        succeeded(&equipoise(&place, &[tiny(&more), vec!["--output", &whole]].concat()));
        let child = start(&place, &[tiny(&more), vec!["--output", &parts]].concat());
        let code = signal_after(child, libc_sigterm(), Duration::from_millis(120));
        assert!(matches!(code, Some(0 | 143)), "{code:?}");
        if code == Some(143) && place.path().join(&parts).join("config.toml").exists() {
            finish(&place, &parts);
        } else if code == Some(143) {
            succeeded(&equipoise(&place, &[tiny(&more), vec!["--output", &parts]].concat()));
        }
        assert!(outcome(&place.path().join(&parts)) == outcome(&place.path().join(&whole)), "{criterion}");
        assert!(place.path().join(&parts).join("best.eqp").exists());
    }
}

fn libc_sigterm() -> i32 {
    15
}

fn start(place: &TempFolder, args: &[&str]) -> Child {
    command(place).args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Sends a signal after some time; the exit code, unless it was killed. It must end within two seconds.
fn signal_after(mut child: Child, signal: i32, after: Duration) -> Option<i32> {
    std::thread::sleep(after);
    let _ = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).stderr(Stdio::null()).status();
    let sent = now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        assert!(sent.elapsed() < Duration::from_secs(2), "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Takes a run up until it is finished.
fn finish(place: &TempFolder, run: &str) {
    let out = equipoise(place, &["train", "--resume", run, "--quiet"]);
    let finished = text(&out.stderr).contains("is finished");
    assert!(out.status.success() || finished, "{}", text(&out.stderr));
}

/// Whether a file is being written in a run's folder.
fn half_written(run: &Path) -> bool {
    let files = std::fs::read_dir(run).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(".part"))
}

/// How many kills: 200, or as many as EQUIPOISE_KILLS says.
fn kills() -> u64 {
    std::env::var("EQUIPOISE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// Killed at random moments, with a checkpoint after every step so that many of them fall into a save, a run ends as if nothing
/// had happened.
#[test]
fn killed_again_and_again() {
    let place = TempFolder::new("runs");
    let want = undisturbed(&place);
    let draws = Draws::new(5, 0, 0);
    let (mut done, mut runs, mut saving, mut under_way) = (0, 0, 0u64, 0u64);
    // until enough of them, and a fifth of all inside a save
    while done < kills() || 5 * saving < done {
        assert!(done < 4 * kills(), "{done} kills, only {saving} of them inside a save");
        runs += 1;
        let run = format!("run-{runs}");
        let path = place.path().join(&run);
        let mut begun = false;
        loop {
            let args = match begun {
                true => vec!["train", "--resume", &run, "--quiet", "--checkpoint-minutes", "0"],
                false => tiny(&["--output", &run, "--quiet", "--checkpoint-minutes", "0"]),
            };
            let mut child = start(&place, &args);
            let (wait, began) = (Duration::from_micros((draws.unit(done) * 250_000.0) as u64), now());
            // every fourth one as soon as a save is seen
            while began.elapsed() < wait && !(done % 4 == 0 && begun && half_written(&path)) {
                std::thread::sleep(Duration::from_micros(200));
            }
            let ended = child.try_wait().expect("a child");
            let _ = child.kill();
            let status = child.wait().expect("a child");
            if let Some(ended) = ended {
                let out = child.stderr.take().map(|mut e| {
                    let mut said = String::new();
                    let _ = std::io::Read::read_to_string(&mut e, &mut said);
                    said
                });
                let said = out.unwrap_or_default();
                assert!(ended.success() || said.contains("is finished"), "{said}");
                break;
            }
            done += 1;
            assert!(!status.success() || path.join("result.json").exists());
            begun = path.join("config.toml").exists();
            under_way += u64::from(begun);
            saving += u64::from(half_written(&path));
            if !begun {
                // killed before there was anything
                let _ = std::fs::remove_dir_all(&path);
            }
            if done >= kills() && 5 * saving >= done {
                if begun {
                    finish(&place, &run);
                } else {
                    succeeded(&equipoise(&place, &tiny(&["--output", &run, "--quiet"])));
                }
                break;
            }
        }
        assert!(outcome(&path) == want, "run {runs} after {done} kills");
        assert!(!half_written(&path));
        std::fs::remove_dir_all(&path).expect("a folder");
    }
    // it was the run that was killed
    assert!(10 * under_way > 7 * done, "{done} kills, {under_way} of a run");
    println!("{done} kills, {under_way} of a run under way, {saving} in a save; {runs} runs, all alike");
}

#[test]
fn signals_save_and_end_with_their_code() {
    let place = TempFolder::new("runs");
    let want = undisturbed(&place);
    let draws = Draws::new(6, 0, 0);
    for number in 0..24u64 {
        let run = format!("run-{number}");
        let (signal, code) = if number % 2 == 0 { (2, 130) } else { (15, 143) };
        let child = start(&place, &tiny(&["--output", &run, "--quiet"]));
        let got = signal_after(child, signal, Duration::from_micros((draws.unit(number) * 600_000.0) as u64));
        match got {
            Some(0) => {}
            Some(got) if got == code => {
                if place.path().join(&run).join("config.toml").exists() {
                    finish(&place, &run);
                } else {
                    let _ = std::fs::remove_dir_all(place.path().join(&run));
                    succeeded(&equipoise(&place, &tiny(&["--output", &run, "--quiet"])));
                }
            }
            // before the program could say what it wants to do with it
            None => continue,
            other => panic!("{other:?}"),
        }
        assert!(outcome(&place.path().join(&run)) == want, "run {number}");
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_and_the_one_before_used() {
    let place = TempFolder::new("runs");
    let want = undisturbed(&place);
    // stopped after its first epoch
    let two = tiny(&["--output", "run", "--quiet"]);
    succeeded(&equipoise(&place, &two));
    let run = place.path().join("run");
    let newest = run.join("checkpoint.eqp");
    let good = std::fs::read(&newest).expect("a checkpoint");
    let mut cases: Vec<(&str, Vec<u8>)> = vec![("cut", good[..good.len() / 2].to_vec()), ("empty", Vec::new())];
    let mut flipped = good.clone();
    flipped[good.len() / 3] ^= 4;
    cases.push(("flipped", flipped));
    for (what, bytes) in cases {
        std::fs::write(&newest, bytes).expect("written");
        std::fs::remove_file(run.join("result.json")).expect("there");
        let out = equipoise(&place, &["train", "--resume", "run", "--quiet"]);
        succeeded(&out);
        assert!(text(&out.stderr).contains("previous.eqp"), "{what}: {}", text(&out.stderr));
        assert!(outcome(&run) == want, "{what}");
    }
    // and with both gone it says so, and changes nothing
    std::fs::remove_file(run.join("result.json")).expect("there");
    for name in ["checkpoint.eqp", "previous.eqp"] {
        std::fs::write(run.join(name), b"EQPCHK02 torn").expect("written");
    }
    let out = equipoise(&place, &["train", "--resume", "run"]);
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("checkpoint.eqp") && said.contains("previous.eqp"), "{said}");
    assert_eq!(std::fs::read(&newest).expect("there"), b"EQPCHK02 torn");
}

/// Files may not grow beyond a limit: an error, and what was there before still loads.
#[cfg(unix)]
#[test]
fn no_space() {
    let place = TempFolder::new("runs");
    let want = undisturbed(&place);
    succeeded(&equipoise(&place, &tiny(&["--output", "part", "--quiet", "--set", "seed=0"])));
    for kilobytes in [0, 1, 4, 64, 300, 600] {
        let run = format!("run-{kilobytes}");
        let program = env!("CARGO_BIN_EXE_equipoise");
        let line = format!("ulimit -f {kilobytes}; exec {program} {} --output {run} --quiet", TINY.join(" "));
        let out = Command::new("bash").arg("-c").arg(&line).current_dir(place.path()).output().expect("bash");
        assert_eq!(out.status.code(), Some(1), "{kilobytes}: {}", text(&out.stderr));
        let said = text(&out.stderr);
        assert!(said.contains("cannot write") && said.contains(&run), "{said}");
        // with room again it goes on, or starts
        if place.path().join(&run).join("config.toml").exists() {
            finish(&place, &run);
        } else {
            let _ = std::fs::remove_dir_all(place.path().join(&run));
            succeeded(&equipoise(&place, &tiny(&["--output", &run, "--quiet"])));
        }
        assert!(outcome(&place.path().join(&run)) == want, "{kilobytes}");
    }
}

#[test]
fn two_processes_on_one_folder() {
    let place = TempFolder::new("runs");
    let long = ["train", "--model", "resnet8", "--epochs", "1000", "--output", "run", "--quiet"];
    let mut first = start(&place, &long);
    let began = now();
    while !place.path().join("run").join("checkpoint.eqp").exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let out = equipoise(&place, &["train", "--resume", "run"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains(&first.id().to_string()), "{}", text(&out.stderr));
    // reading is allowed
    succeeded(&equipoise(&place, &["evaluate", "run", "--json"]));
    // a lock that a killed process leaves is no lock
    first.kill().expect("a child");
    first.wait().expect("a child");
    let again = start(&place, &["train", "--resume", "run", "--quiet"]);
    assert_eq!(signal_after(again, 15, Duration::from_millis(500)), Some(143));
}

#[test]
fn a_run_that_diverges_stops_and_keeps_what_was_good() {
    let place = TempFolder::new("runs");
    let out = equipoise(&place, &tiny(&["--lr", "1e30", "--output", "run", "--quiet"]));
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    for part in [
        "the run diverged in epoch 1, step",
        "try a lower learning rate",
        "largest weight is",
        "images of this batch: number ",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // the checkpoint from before
    succeeded(&equipoise(&place, &["evaluate", "run", "--json"]));
    // a step that is seen in the evaluation only: nothing of it is kept
    let args = [
        "train",
        "--model",
        "resnet8",
        "--batch-size",
        "1485",
        "--lr",
        "1e30",
        "--epochs",
        "3",
        "--output",
        "late",
        "--quiet",
    ];
    let out = equipoise(&place, &args);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("epoch 1, step 1"), "{}", text(&out.stderr));
    let out = equipoise(&place, &["evaluate", "late", "--json"]);
    succeeded(&out);
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&said["epoch"], &said["metrics"]["unusable"]), (&serde_json::json!(0), &serde_json::json!(0)));
}

/// An adjustment that a run is set to is what `evaluate` can do afterwards, and its own figures, predictions and table have it.
#[test]
fn a_run_can_be_adjusted_after_training() {
    let place = TempFolder::new("runs");
    let train =
        |more: &[&'static str]| succeeded(&equipoise(&place, &tiny(&[more, &["--criterion", "softmax"]].concat())));
    train(&["--output", "plain"]);
    train(&["--output", "adjusted", "--set", "logit_adjustment=1"]);
    let evaluate = |args: &[&str]| {
        let out = equipoise(&place, &[&["evaluate"], args, &["--json"]].concat());
        succeeded(&out);
        let mut said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        (said["metrics"].take(), said["logit_adjustment"].take())
    };
    let (plain, adjusted) = (evaluate(&["plain"]), evaluate(&["adjusted"]));
    assert_eq!((&plain.1, &adjusted.1), (&serde_json::json!(0.0), &serde_json::json!(1.0)));
    assert_ne!(plain.0, adjusted.0);
    assert_eq!(evaluate(&["plain", "--logit-adjustment", "1"]), adjusted);
    assert_eq!(evaluate(&["adjusted", "--logit-adjustment", "0"]), plain);
    let result = std::fs::read(place.path().join("adjusted").join("result.json")).expect("a result");
    let result: serde_json::Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result["last"]["top1"], adjusted.0["top1"]);
    // the weights know nothing of it
    let out = equipoise(&place, &["export", "adjusted", "-o", "w.safetensors"]);
    succeeded(&out);
    assert!(text(&out.stdout).contains("logit_offsets"), "{}", text(&out.stdout));
}

/// A run that stops early is evaluated at its end, and cannot be resumed.
#[test]
fn early_stopping() {
    let place = TempFolder::new("runs");
    let args = [
        "train",
        "--model",
        "resnet8",
        "--imbalance",
        "50",
        "--val-fraction",
        "0.3",
        "--batch-size",
        "512",
        "--epochs",
        "200",
        "--set",
        "patience=3",
        "--set",
        "evaluate_every=2",
        "--output",
        "run",
        "--json",
        "--quiet",
    ];
    let out = equipoise(&place, &args);
    succeeded(&out);
    let result: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(result["stopped_early"], true);
    let (last, best) =
        (result["last"]["epoch"].as_u64().expect("last"), result["best"]["epoch"].as_u64().expect("best"));
    assert!(last.is_multiple_of(2) && last >= best + 3 && result["last"]["top1"].is_number(), "{last} {best}");
    let out = equipoise(&place, &["train", "--resume", "run"]);
    assert!(text(&out.stderr).contains("is finished"), "{}", text(&out.stderr));
}

/// Every output says that the best epoch was selected on the test set.
#[test]
fn selection_on_the_test_set_is_labeled() {
    let place = TempFolder::new("runs");
    let args = tiny(&["--set", "select_best=test", "--output", "run"]);
    let out = equipoise(&place, &args);
    succeeded(&out);
    assert!(text(&out.stdout).contains("best epoch on the test set (optimistic) ("), "{}", text(&out.stdout));
    let (evaluated, exported) =
        (equipoise(&place, &["evaluate", "run"]), equipoise(&place, &["export", "run", "-o", "w.safetensors"]));
    for out in [evaluated, exported, equipoise(&place, &["evaluate", "run", "--json"])] {
        assert!(text(&out.stdout).contains("selected on the test split"), "{}", text(&out.stdout));
    }
}

/// What we recommend can be run for any number of epochs; its average of the weights is one of weights that were trained.
#[test]
fn what_we_recommend() {
    let place = TempFolder::new("runs");
    let overall = |more: &[&'static str]| {
        let out = equipoise(&place, &tiny(&[&["--config", "recommended", "--json", "--quiet"], more].concat()));
        succeeded(&out);
        let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        said["last"]["top1"].as_f64().expect("a number")
    };
    overall(&["--set", "epochs=1"]);
    let plain = ["--set", "augment.cutout=0", "--set", "augment.randaugment=none"];
    let (averaged, not) = (overall(&plain), overall(&[&plain[..], &["--set", "optimizer.ema_decay=0"]].concat()));
    assert!(averaged > 20.0 && averaged > not - 10.0, "{averaged} and without an average {not}");
}

/// A preset is every criterion's own; options are stronger than files.
#[test]
fn presets_and_options() {
    let place = TempFolder::new("runs");
    let config = |args: &[&str]| {
        let out = equipoise(&place, &[args, &["--print-config"]].concat());
        succeeded(&out);
        text(&out.stdout)
    };
    std::fs::write(place.path().join("base.toml"), config(&["train"])).expect("written");
    let seesaw = config(&["train", "--config", "base.toml", "--criterion", "seesaw", "--preset", "paper"]);
    assert!(seesaw.contains("q = 0.0") && seesaw.contains("select_best = \"test\""), "{seesaw}");
    let focal =
        config(&["train", "--config", "base.toml", "--criterion", "focal", "--set", "criterion.params.gamma=5"]);
    assert!(focal.contains("gamma = 5.0"), "{focal}");
    let kept = config(&["train", "--set", "criterion.drw.start_epoch=3", "--set", "criterion.preset=reference"]);
    assert!(kept.contains("[criterion.drw]"), "{kept}");
}

/// Data that has changed is not taken for the same; data that has moved is.
#[test]
fn changed_and_moved_data() {
    let place = TempFolder::new("runs");
    let tree = place.path().join("tree");
    let image = |part: &str, class: &str, i: u8| {
        let folder = tree.join(part).join(class);
        std::fs::create_dir_all(&folder).expect("a folder");
        let pixels: Vec<u8> = (0..192).map(|k| (k * 7 + i * 31 + u8::from(class == "b") * 90) % 251).collect();
        std::fs::write(folder.join(format!("{i}.ppm")), [b"P6 8 8 255\n".to_vec(), pixels].concat()).expect("written");
    };
    for class in ["a", "b"] {
        (0..6).for_each(|i| image("train", class, i));
        (0..3).for_each(|i| image("test", class, i));
    }
    let args = [
        "train",
        "tree",
        "--model",
        "resnet8",
        "--set",
        "data.image_size=8",
        "--batch-size",
        "4",
        "--epochs",
        "2",
        "--output",
        "run",
        "--quiet",
    ];
    succeeded(&equipoise(&place, &args));
    // from another folder
    let out = command(&place)
        .current_dir("/")
        .args(["evaluate", &place.path().join("run").display().to_string()])
        .output()
        .expect("it runs");
    succeeded(&out);
    // moved
    std::fs::rename(&tree, place.path().join("moved")).expect("moved");
    std::fs::remove_file(place.path().join("run").join("result.json")).expect("there");
    assert_eq!(equipoise(&place, &["train", "--resume", "run"]).status.code(), Some(2));
    succeeded(&equipoise(&place, &["train", "moved", "--resume", "run", "--quiet"]));
    std::fs::rename(place.path().join("moved"), &tree).expect("moved");
    // a test image more
    image("test", "a", 9);
    std::fs::remove_file(place.path().join("run").join("result.json")).expect("there");
    for args in [&["evaluate", "run"][..], &["train", "--resume", "run"]] {
        let out = equipoise(&place, args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains("images"), "{}", text(&out.stderr));
    }
    succeeded(&equipoise(&place, &["evaluate", "run", "tree"]));
}

/// A comparison that was interrupted is resumed and ends with the same table.
#[test]
fn compare_is_resumed() {
    let place = TempFolder::new("runs");
    let args = |out: &'static str| {
        ["compare", "--criteria", "softmax,cwap", "--epochs", "3", "--output", out, "--json", "--quiet"]
    };
    let out = equipoise(&place, &args("whole"));
    succeeded(&out);
    let rows = |out: &Output| serde_json::from_slice::<serde_json::Value>(&out.stdout).expect("JSON")["rows"].clone();
    let code = signal_after(start(&place, &args("parts")), 2, Duration::from_millis(900));
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    let again = equipoise(&place, &args("parts"));
    succeeded(&again);
    assert_eq!(rows(&again), rows(&out));
    let other = equipoise(&place, &["compare", "--criteria", "softmax", "--epochs", "4", "--output", "parts"]);
    assert!(other.status.code() == Some(2) && text(&other.stderr).contains("'epochs'"), "{}", text(&other.stderr));
}

/// The folder of a comparison is not a run: it cannot be resumed as one, and stays as it is.
#[test]
fn a_comparison_is_not_resumed_as_a_run() {
    let place = TempFolder::new("runs");
    let args = ["compare", "--criteria", "softmax", "--epochs", "1", "--output", "several", "--quiet"];
    succeeded(&equipoise(&place, &args));
    let files = || {
        let files = std::fs::read_dir(place.path().join("several")).expect("a folder").flatten();
        let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
        names.sort();
        names
    };
    let refused = |before: &[std::ffi::OsString]| {
        let out = equipoise(&place, &["train", "--resume", "several"]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("several is the folder of a comparison") && said.contains("equipoise compare"), "{said}");
        let out = equipoise(&place, &["train", "--output", "several", "--epochs", "1"]);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
        assert_eq!(files(), before, "nothing is written");
    };
    refused(&files());
    // as it is while it runs, and after it was stopped
    std::fs::remove_file(place.path().join("several/compare.json")).expect("there");
    refused(&files());
    // the command that the message names continues it
    succeeded(&equipoise(&place, &args));
}

/// Memory and open files of a long run: 300 epochs, or as many as EQUIPOISE_EPOCHS says.
#[cfg(target_os = "linux")]
#[test]
fn a_long_run_takes_no_more_and_more() {
    let place = TempFolder::new("runs");
    let epochs = std::env::var("EQUIPOISE_EPOCHS").unwrap_or_else(|_| "300".to_owned());
    let args = [
        "train",
        "--model",
        "resnet8",
        "--imbalance",
        "1000",
        "--batch-size",
        "64",
        "--epochs",
        &epochs,
        "--output",
        "run",
        "--quiet",
        "--set",
        "evaluate_every=100000",
    ];
    let mut child = start(&place, &args);
    let (mut memory, mut files) = (Vec::new(), Vec::new());
    let proc = PathBuf::from(format!("/proc/{}", child.id()));
    while child.try_wait().expect("a child").is_none() {
        let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
        let lines = std::fs::read_to_string(place.path().join("run").join("metrics.jsonl"))
            .map_or(0, |text| text.lines().count());
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        // the report at the end reads all that was written, once
        let training = lines > 10 && !place.path().join("run").join("result.json").exists();
        if let (Some(resident), true) = (resident, training) {
            memory.push(resident);
            files.push(std::fs::read_dir(proc.join("fd")).map_or(0, Iterator::count));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().expect("a child").success());
    assert!(memory.len() > 20, "{} looks", memory.len());
    let (early, late) = (&memory[..memory.len() / 4], &memory[3 * memory.len() / 4..]);
    let most = |values: &[u64]| values.iter().max().copied().unwrap_or(0);
    // 2 MB for the record of its epochs and the allocator's mood
    assert!(most(late) <= most(early) + 2048, "{early:?} {late:?}");
    let (first, last) = (files[..files.len() / 4].iter().max(), files[3 * files.len() / 4..].iter().max());
    assert!(last <= first, "{files:?}");
}

#[test]
fn compare_shows_what_is_gained() {
    let place = TempFolder::new("runs");
    let args =
        ["compare", "--criteria", "softmax,balanced-softmax", "--epochs", "2", "--seeds", "2", "--json", "--quiet"];
    let out = equipoise(&place, &args);
    succeeded(&out);
    let table: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(table["columns"], serde_json::json!(["Many", "Medium", "Few", "Rare", "overall"]));
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["mean"].as_array().expect("means").iter().all(serde_json::Value::is_number), "{row}");
        assert!(row["sd"].as_array().expect("deviations").iter().all(serde_json::Value::is_number), "{row}");
    }
    let folder = place.path().join(table["folder"].as_str().expect("a folder"));
    assert!(folder.join("compare.json").exists() && folder.join("softmax-s0").join("result.json").exists());
    // and a second one does not touch the first
    succeeded(&equipoise(&place, &args));
    assert!(place.path().join("runs").join(format!("{}-2", folder.file_name().expect("a name").display())).exists());
}

/// A head is trained on top of another run's frozen backbone; heads of other sizes start anew.
#[test]
fn starting_from_another_run() {
    let place = TempFolder::new("runs");
    undisturbed(&place);
    let args = tiny(&[
        "--output",
        "head",
        "--quiet",
        "--weights",
        "whole",
        "--freeze-backbone",
        "--set",
        "data.sampler=class-balanced",
    ]);
    succeeded(&equipoise(&place, &args));
    // through a file that PyTorch reads too, and back
    succeeded(&equipoise(&place, &["export", "whole", "-o", "w.safetensors"]));
    let args = tiny(&[
        "--output",
        "file",
        "--quiet",
        "--weights",
        "w.safetensors",
        "--freeze-backbone",
        "--set",
        "data.sampler=class-balanced",
    ]);
    succeeded(&equipoise(&place, &args));
    let metrics = |run: &str| std::fs::read(place.path().join(run).join("metrics.jsonl")).expect("metrics");
    assert!(metrics("head") == metrics("file"));
    assert_eq!(
        equipoise(&place, &["export", "whole", "-o", "w.safetensors"]).status.code(),
        Some(2),
        "nothing is overwritten"
    );
    let out = equipoise(
        &place,
        &["train", "--weights", "whole", "--model", "resnet14", "--epochs", "1", "--output", "other"],
    );
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("another network"), "{}", text(&out.stderr));
    assert!(!place.path().join("other").exists(), "nothing is made for a run that cannot start");
}

/// What cannot be done is said in one line, with a code, and leaves nothing behind.
#[test]
fn bad_input() {
    let place = TempFolder::new("runs");
    let folder = place.path().join("tree");
    for (class, part, number) in [("a", "train", 3), ("b", "train", 2), ("a", "test", 1), ("b", "test", 1)] {
        std::fs::create_dir_all(folder.join(part).join(class)).expect("a folder");
        for i in 0..number {
            let image: Vec<u8> = [b"P6 4 4 255\n".to_vec(), vec![i * 40; 48]].concat();
            std::fs::write(folder.join(part).join(class).join(format!("{i}.ppm")), image).expect("written");
        }
    }
    for part in ["train", "test"] {
        let one = place.path().join("one").join(part).join("a");
        std::fs::create_dir_all(&one).expect("a folder");
        std::fs::write(one.join("x.ppm"), [b"P6 4 4 255\n".to_vec(), vec![9; 48]].concat()).expect("written");
    }
    undisturbed(&place);
    let before = std::fs::read_dir(place.path()).expect("a folder").count();
    for (args, code, part) in [
        (&["train", "no-such-set"][..], 2, "no-such-set"),
        (&["train", "--criterion", "sesaw"], 2, "seesaw"),
        (&["train", "--set", "data.imbalanse=3"], 2, "data.imbalance"),
        (&["train", "--epochs", "0"], 2, "epochs"),
        (&["train", "--model", "resnet9"], 2, "resnet9"),
        (&["train", "one"], 2, "class"),
        (&["train", "--resume", "tree"], 2, "config.toml"),
        (&["train", "--resume", "whole"], 0, "is finished"),
        (&["train", "--output", "whole"], 2, "whole"),
        (&["train", "--config", "nowhere.toml"], 2, "nowhere.toml"),
        (&["train", "--resume", "whole", "--epochs", "9"], 2, "--epochs"),
        (&["train", "--set", "select_best=val"], 2, "validation"),
        (&["evaluate", "tree"], 2, "not a run"),
        (&["evaluate", "whole", "tree"], 2, "classes"),
        (&["evaluate", "whole", "--tau-norm=-1"], 2, "--tau-norm"),
        (&["train", "--set", "logit_adjustment=-1"], 2, "logit_adjustment"),
        (&["predict", "whole", "no.png"], 2, "no.png"),
        (&["compare", "--criteria", "softmax,softmax"], 2, "twice"),
        (&["completions", "fishy"], 2, "fishy"),
    ] {
        let out = equipoise(&place, args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        println!("$ equipoise {}\n{}", args.join(" "), said.trim());
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("a folder").count(), before, "nothing was made");
    // a class without training images is trained without, and named
    let out = equipoise(&place, &tiny(&["--output", "t"]));
    assert!(text(&out.stderr).contains("class 'ankle boot' has no training images"), "{}", text(&out.stderr));
    succeeded(&out);
    // a batch larger than the set is the whole set
    let out = equipoise(
        &place,
        &["train", "tree", "--model", "resnet8", "--epochs", "1", "--set", "data.image_size=8", "--output", "u"],
    );
    assert!(
        text(&out.stderr).contains("a batch of 128 is the whole training split of 5 images"),
        "{}",
        text(&out.stderr)
    );
    succeeded(&out);
}

/// Labels for images of all kinds, in every form of output.
#[test]
fn predictions() {
    let place = TempFolder::new("runs");
    undisturbed(&place);
    std::fs::write(place.path().join("a,b.ppm"), [b"P6 4 4 255\n".to_vec(), vec![90; 48]].concat()).expect("written");
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm", "--top", "3", "--json"]);
    succeeded(&out);
    let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let found = line["predictions"].as_array().expect("predictions");
    let sum: f64 = found.iter().map(|p| p["probability"].as_f64().expect("a number")).sum();
    assert!(found.len() == 3 && sum > 0.0 && sum <= 1.0 + 1e-9, "{line}");
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm", "--csv"]);
    assert!(text(&out.stdout).starts_with("path,label,probability\n\"a,b.ppm\","), "{}", text(&out.stdout));
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm"]);
    assert!(text(&out.stdout).starts_with("a,b.ppm: "), "{}", text(&out.stdout));
}
