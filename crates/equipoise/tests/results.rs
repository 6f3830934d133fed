//! Every table of docs/results.md is what a command makes of results/.
//!
//! A table stands between a comment with the command's arguments and an end: `<!-- equipoise ARGUMENTS -->` and `<!-- end -->`;
//! `<!-- file results/FILE -->` is for what a command cannot make again, like times on some machine.
//! With EQUIPOISE_UPDATE=1 the tables are written anew.

use std::path::Path;
use std::process::{Command, Stdio};

const BEGIN: &str = "<!-- ";
const END: &str = "<!-- end -->";

/// Words with spaces between, those in quotes with spaces inside.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

fn made_by(root: &Path, args: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    let out = command.current_dir(root).args(args).stdin(Stdio::null()).output().expect("it runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn tables_are_made_from_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("docs/results.md");
    let page = std::fs::read_to_string(&file).expect("the page");
    let mut made = String::new();
    let (mut rest, mut tables) = (page.as_str(), 0);
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        let (head, body) = block.split_once(" -->\n").expect("an end of the comment");
        let (_, after) = body.split_once(END).expect("an end of the table");
        let args: Vec<String> = words(&head[BEGIN.len()..]);
        let table = match args[0].as_str() {
            "equipoise" => made_by(&root, &args[1..]),
            "file" => format!("```text\n{}```\n", std::fs::read_to_string(root.join(&args[1])).expect("a file")),
            other => panic!("`{other}` is no table"),
        };
        made += &format!("{before}{head} -->\n\n{table}\n{END}");
        (rest, tables) = (after, tables + 1);
    }
    made += rest;
    assert!(tables > 0, "no table");
    if std::env::var_os("EQUIPOISE_UPDATE").is_some() {
        std::fs::write(&file, &made).expect("room");
    } else {
        assert!(
            made == page,
            "docs/results.md is not what results/ says: EQUIPOISE_UPDATE=1 cargo test --release --test results"
        );
    }
}
