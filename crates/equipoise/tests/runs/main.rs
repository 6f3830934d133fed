//! Runs of the real binary: repeated, stopped, killed, damaged, and always the same to the bit. One file per topic.

mod interrupted;
mod misused;
mod obstacles;
mod outcomes;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    "--set",
    "epochs=3",
    "--threads",
    "2",
];

fn tiny<'a>(more: &[&'a str]) -> Vec<&'a str> {
    // a criterion that counts, so that checkpoints have a state of it
    let counting = !more.iter().any(|arg| matches!(*arg, "--criterion" | "--config"));
    let criterion = if counting { &["--criterion", "cwap"][..] } else { &[] };
    [&TINY[..], criterion, more].concat()
}

/// What must be the same whatever happened: everything but times.
fn outcome(run: &Path) -> [Vec<u8>; 6] {
    ["checkpoint.eqp", "metrics.jsonl", "config.toml", "norms.jsonl", "details.json", "samples.json"]
        .map(|name| std::fs::read(run.join(name)).expect(name))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(out: &Output) {
    assert!(out.status.success(), "{:?}: {}", out.status, text(&out.stderr));
}

/// The undisturbed run.
fn undisturbed(place: &TempFolder) -> [Vec<u8>; 6] {
    succeeded(&equipoise(place, &tiny(&["--output", "whole", "--quiet"])));
    outcome(&place.path().join("whole"))
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
