//! Runs among damaged files, full disks, other processes and changed data, and runs that take long.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use equipoise_testing::TempFolder;

use super::{command, equipoise, finish, now, outcome, signal_after, start, succeeded, text, tiny, undisturbed};

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
        let line = format!("ulimit -f {kilobytes}; exec {program} {} --output {run} --quiet", tiny(&[]).join(" "));
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
        // the last epoch is evaluated, which takes memory of its own, and the report reads all that was written, once
        let training = lines > 10 && lines + 1 < epochs.parse::<usize>().expect("a number");
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
