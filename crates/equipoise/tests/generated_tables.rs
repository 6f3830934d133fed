//! The generated tables of the documentation are what their commands print now.
//!
//! A table stands between a comment with the arguments of a command and an end: `<!-- equipoise ARGUMENTS -->` and
//! `<!-- end -->`. With EQUIPOISE_UPDATE=1 the tables are rewritten.

use std::path::Path;
use std::process::{Command, Stdio};

const BEGIN: &str = "<!-- ";
const END: &str = "<!-- end -->";

/// Splits a line at spaces, except inside of double quotes.
fn arguments(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

fn output_of(root: &Path, args: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    let out = command.current_dir(root).args(args).stdin(Stdio::null()).output().expect("the binary starts");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The page with every table generated again, and the number of its tables.
fn generate(root: &Path, page: &str) -> (String, usize) {
    let mut generated = String::new();
    let (mut rest, mut tables) = (page, 0);
    while let Some(start) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(start);
        let (head, body) = block.split_once(" -->\n").expect("the comment has an end");
        let (_, after) = body.split_once(END).expect("the table has an end");
        let args = arguments(&head[BEGIN.len()..]);
        let table = match args[0].as_str() {
            "equipoise" => output_of(root, &args[1..]),
            other => panic!("'{other}' generates no table"),
        };
        generated += &format!("{before}{head} -->\n\n{table}\n{END}");
        (rest, tables) = (after, tables + 1);
    }
    (generated + rest, tables)
}

fn check(page: &str, at_least: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join(page);
    let written = std::fs::read_to_string(&file).expect("the page");
    let (generated, tables) = generate(&root, &written);
    assert!(tables >= at_least, "{page} has {tables} generated tables, expected at least {at_least}");
    if std::env::var_os("EQUIPOISE_UPDATE").is_some() {
        std::fs::write(&file, &generated).expect("the page is writable");
    } else {
        let cure = "EQUIPOISE_UPDATE=1 cargo test --release --test generated_tables";
        assert!(generated == written, "{page} is out of date: {cure}");
    }
}

#[test]
fn results_are_what_the_files_in_results_say() {
    check("docs/results.md", 8);
    check("docs/results-short.md", 8);
}

#[test]
fn usage_lists_every_setting() {
    check("docs/usage.md", 1);
}
