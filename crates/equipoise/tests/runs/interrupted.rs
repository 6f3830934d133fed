//! Runs that are stopped or killed end as if nothing had happened.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use equipoise_criterion::random::Draws;
use equipoise_testing::TempFolder;

use super::{equipoise, finish, libc_sigterm, now, outcome, signal_after, start, succeeded, text, tiny, undisturbed};
use std::process::Output;

/// Every kind of state there is: an average of the weights, mixed labels, levels of augmentation, deferred weights, a criterion
/// that counts, a validation part that chooses.
#[test]
fn all_state_survives_a_stop_in_mid_epoch() {
    let place = TempFolder::new("runs");
    for (number, (criterion, augment, mixing)) in [
        ("cwap", "augment.policy=autoaugment-cifar10", "augment.cutmix=0.5"),
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
            // stopped before it was a run
            let _ = std::fs::remove_dir_all(place.path().join(&parts));
            succeeded(&equipoise(&place, &[tiny(&more), vec!["--output", &parts]].concat()));
        }
        assert!(outcome(&place.path().join(&parts)) == outcome(&place.path().join(&whole)), "{criterion}");
        assert!(place.path().join(&parts).join("best.eqp").exists());
    }
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

/// A step that takes long is not waited for: the program ends at once, names the run and says how to continue it.
#[test]
fn a_long_step_is_not_waited_for() {
    let place = TempFolder::new("runs");
    let args =
        ["train", "fashion-mini", "--model", "resnet32x4", "--batch-size", "256", "--threads", "1", "--epochs", "2"];
    let mut child = start(&place, &[&args[..], &["--output", "a long run", "--data-root", "my data"]].concat());
    let mut said = child.stderr.take().expect("piped");
    while !place.path().join("a long run/config.toml").exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // a step takes several seconds
    assert_eq!(signal_after(child, 2, Duration::from_millis(700)), Some(130));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut said, &mut text).expect("text");
    assert!(text.contains("stopped during a long step"), "{text}");
    assert!(text.ends_with("To continue: equipoise train --resume 'a long run' --data-root 'my data'\n"), "{text}");
}

/// Commands that only read end at once, and say what was written.
#[test]
fn interrupted_commands_say_so() {
    let place = TempFolder::new("runs");
    let large = ["--model", "resnet32x4", "--batch-size", "256", "--threads", "1", "--epochs", "2", "--output", "run"];
    let mut child = start(&place, &[&["train", "fashion-mini"][..], &large].concat());
    while !place.path().join("run/checkpoint.eqp").exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // the weights that it starts from are enough
    child.kill().expect("a child");
    child.wait().expect("a child");
    std::fs::create_dir_all(place.path().join("images")).expect("a folder");
    for number in 0..1000 {
        let image = [&b"P6 28 28 255\n"[..], &[number as u8; 28 * 28 * 3]].concat();
        std::fs::write(place.path().join(format!("images/{number}.ppm")), image).expect("room");
    }
    let predict = ["predict", "run", "images", "--threads", "1"];
    let evaluate = ["evaluate", "run", "--split", "train", "--threads", "1", "--predictions", "predictions.csv"];
    for (args, said) in [
        (&predict[..], "interrupted; the predictions that were printed are complete, and the others are missing"),
        (&[&predict[..], &["-o", "predictions.csv"]].concat(), "interrupted; predictions.csv was not written"),
        (&evaluate, "interrupted; nothing was written"),
    ] {
        let mut child = start(&place, args);
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        while !text.contains("nothing has been trained yet") {
            assert_ne!(stderr.read_line(&mut text).expect("text"), 0, "{text}");
        }
        assert_eq!(signal_after(child, 2, Duration::from_millis(300)), Some(130));
        stderr.read_to_string(&mut text).expect("text");
        assert!(text.ends_with(&format!("\nequipoise: {said}\n")), "{text}");
        assert!(!place.path().join("predictions.csv").exists());
    }
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
