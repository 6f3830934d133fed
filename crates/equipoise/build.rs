//! Records the commit that the program is built from.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = commit.and_then(|commit| String::from_utf8(commit).ok()).unwrap_or_default();
    let commit = if commit.trim().is_empty() { "unknown" } else { commit.trim() };
    println!("cargo::rustc-env=EQUIPOISE_COMMIT={commit}");
}
