//! Notes the commit that the program is built from, where there is one.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = said.ok().filter(|said| said.status.success()).map(|said| said.stdout);
    let commit = commit.and_then(|commit| String::from_utf8(commit).ok()).unwrap_or_default();
    let commit = if commit.trim().is_empty() { "unknown" } else { commit.trim() };
    println!("cargo::rustc-env=EQUIPOISE_COMMIT={commit}");
}
