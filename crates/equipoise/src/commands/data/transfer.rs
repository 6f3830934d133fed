//! Progress of a download on standard error: a line that is redrawn on a terminal, else a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use equipoise_data::acquire::download::DownloadEvent;

use crate::clock::now;
use crate::output::message;

/// Shows the progress of a download.
pub(super) struct TransferDisplay {
    terminal: bool,
    /// Whether the current line will be redrawn.
    line_is_open: bool,
    drawn: Option<Instant>,
    /// When this transfer started, and with how many bytes.
    start: Option<(Instant, u64)>,
}

impl TransferDisplay {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), line_is_open: false, drawn: None, start: None }
    }

    pub(super) fn show(&mut self, event: DownloadEvent<'_>) {
        match event {
            DownloadEvent::Start { url, have } => {
                self.start = None;
                let continued =
                    if have > 0 { format!(", continuing after {}", megabytes(have)) } else { String::new() };
                self.line(&format!("fetching {url}{continued}"));
            }
            DownloadEvent::Bytes { have, total } => self.bytes(have, total),
            DownloadEvent::Retry { what } => {
                self.start = None;
                self.line(&format!("{what}: trying again"));
            }
            DownloadEvent::Complete { name, checked: true } => {
                self.line(&format!("{name} is complete: verifying its checksum"));
            }
            DownloadEvent::Complete { name, checked: false } => {
                self.line(&format!("warning: {name} cannot be verified: it has no official checksum"));
            }
            DownloadEvent::Unpacking => self.line("unpacking and reading the dataset"),
        }
    }

    fn bytes(&mut self, have: u64, of: Option<u64>) {
        let now = now();
        let (start, before) = *self.start.get_or_insert((now, have));
        let interval = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        let is_complete = of == Some(have);
        if !is_complete && self.drawn.is_some_and(|drawn| now - drawn < interval) {
            return;
        }
        self.drawn = Some(now);
        let speed = have.saturating_sub(before) as f64 / (now - start).as_secs_f64().max(1e-3);
        let text = progress(have, of, speed);
        if self.terminal {
            self.line_is_open = true;
            // progress that nobody can read is lost
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        } else {
            self.line(&text);
        }
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        message(text);
    }

    pub(super) fn end_line(&mut self) {
        if std::mem::take(&mut self.line_is_open) {
            let _ = writeln!(io::stderr());
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// How far a transfer is, at this many bytes per second.
fn progress(have: u64, of: Option<u64>, speed: f64) -> String {
    let mut text = megabytes(have);
    if let Some(of) = of {
        text += &format!(" of {}", megabytes(of));
    }
    if speed > 0.0 {
        text += &format!(", {:.1} MB/s", speed / 1e6);
        if let Some(left) = of.and_then(|of| of.checked_sub(have)).filter(|left| *left > 0) {
            let seconds = (left as f64 / speed).ceil() as u64;
            text += &format!(", {}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
    }
    text
}
