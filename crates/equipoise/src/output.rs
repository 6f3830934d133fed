//! What commands write: lines that cannot harm a terminal, warnings, files, pages in a browser.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use equipoise_report::statistics::tenths;

use crate::failure::Failure;
use crate::signals::when_interrupted;

/// A message in one line, without terminal commands.
pub(crate) fn one_line(message: &str) -> String {
    printable(&message.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// Foreign text (names, paths) without terminal commands: control characters, characters that change the direction of writing, and
/// invisible characters are escaped.
pub(crate) fn printable(text: &str) -> String {
    let is_unsafe = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|c| if is_unsafe(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A line on standard error. It is lost if nobody can read it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", one_line(text));
}

/// A message of the program on standard error.
pub(crate) fn message(text: &str) {
    note(&format!("equipoise: {text}"));
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    message(&format!("warning: {text}"));
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    equipoise_report::quoted(&path.display().to_string())
}

/// A number of things, such as `1 class` or `2 classes`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    let ending = match number {
        1 => "",
        _ if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {thing}{ending}")
}

/// A percentage, or `n/a`.
pub(crate) fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), tenths)
}

/// Writes a file so that nobody ever sees half of it.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    // replaces what a link points to, not the link; a terminal or pipe is written to directly
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    when_interrupted(&format!("interrupted; {} may not have been written", path.display()));
    let written = match std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        true => std::fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(bytes)),
        false => replace(path, bytes),
    };
    written.with_context(|| format!("cannot write {}", path.display()))?;
    when_interrupted(&format!("interrupted; {} was written", path.display()));
    Ok(())
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let write = |bytes: &[u8]| {
        let mut file = std::fs::File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write(bytes).inspect_err(|_| {
        // the first error is reported
        let _ = std::fs::remove_file(&part);
    })
}

/// Opens a page in the user's browser.
pub(crate) fn open_in_browser(page: &Path) -> Result<(), Failure> {
    let (program, arguments): (&str, &[&str]) = match () {
        () if cfg!(windows) => ("cmd", &["/C", "start", ""]),
        () if cfg!(target_os = "macos") => ("open", &[]),
        () => ("xdg-open", &[]),
    };
    let page = std::fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    let mut command = Command::new(program);
    command.args(arguments).arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot run {program} to open {}", page.display()))?;
    match status.success() {
        true => Ok(()),
        false => Err(anyhow!("{program} cannot open {}: {status}", page.display()).into()),
    }
}

/// Refuses a file for results that is one of those that are read.
pub(crate) fn refuse_inputs(output: Option<&Path>, inputs: &[PathBuf]) -> Result<(), Failure> {
    let Some(target) = output.and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    match inputs.iter().find(|input| input.canonicalize().is_ok_and(|input| input == target)) {
        Some(input) => Err(Failure::usage(format!("{} is read; write to another file", input.display()))),
        None => Ok(()),
    }
}
