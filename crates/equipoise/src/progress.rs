//! Progress on standard error: a line that is redrawn on a terminal, else a line now and then.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use equipoise_train::run::Feedback;

use crate::clock::{duration, now};
use crate::output;

/// Progress of work with a known size. Work of less than a second shows nothing.
pub(crate) struct Progress {
    what: &'static str,
    state: Mutex<State>,
    terminal: bool,
}

struct State {
    start: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let state = Mutex::new(State { start: now(), drawn: None });
        Self { what, state, terminal: io::stderr().is_terminal() }
    }

    pub(crate) fn update(&self, done: u64, total: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, interval) = (now(), if self.terminal { Duration::from_millis(100) } else { Duration::from_secs(10) });
        let since = now - state.drawn.unwrap_or(state.start);
        if since < interval || now - state.start < Duration::from_secs(1) {
            return;
        }
        state.drawn = Some(now);
        let speed = done as f64 / (now - state.start).as_secs_f64();
        let left = (total - done) as f64 / speed.max(1e-9);
        let line = format!("{}: {done} of {total}, {speed:.0} per second, {} left", self.what, duration(left));
        // progress that nobody can read is lost
        let _ = if self.terminal {
            write!(io::stderr(), "\r\x1b[2K{} {line}", bar(30, done, total))
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }
}

impl Drop for Progress {
    /// Clears the line on the terminal.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && state.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// A progress bar.
pub(crate) fn bar(width: usize, done: u64, total: u64) -> String {
    let filled = ((width as u64 * done / total.max(1)) as usize).min(width);
    format!("[{}{}]", "=".repeat(filled), " ".repeat(width - filled))
}

/// Shows the warnings and the progress of a run that is built.
#[derive(Default)]
pub(crate) struct Console {
    reading: Mutex<Option<Progress>>,
    /// Warnings and notes that were shown: several runs of a command give the same one.
    shown: Mutex<HashSet<String>>,
}

impl Console {
    fn reading(&self) -> std::sync::MutexGuard<'_, Option<Progress>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_new(&self, text: &str) -> bool {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned())
    }
}

impl Feedback for Console {
    fn warn(&self, text: &str) {
        if self.is_new(text) {
            output::warn(text);
        }
    }

    fn note(&self, text: &str) {
        if self.is_new(text) {
            output::note(text);
        }
    }

    fn reading(&self, done: u64, total: u64) {
        self.reading().get_or_insert_with(|| Progress::new("images read")).update(done, total);
    }

    fn reading_done(&self) {
        self.reading().take();
    }
}
