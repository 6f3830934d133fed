//! How far a command is: one line on a terminal, redrawn; a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shows how much of a whole is done. It writes to standard error only, and nothing for what is done within a second.
pub(crate) struct Progress {
    what: &'static str,
    state: Mutex<State>,
    terminal: bool,
}

struct State {
    start: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let state = Mutex::new(State { start: now(), shown: None });
        Self { what, state, terminal: io::stderr().is_terminal() }
    }

    /// Some of the whole is done.
    pub(crate) fn at(&self, done: u64, whole: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, pause) = (now(), if self.terminal { Duration::from_millis(100) } else { Duration::from_secs(10) });
        let since = now - state.shown.unwrap_or(state.start);
        // short work says nothing
        if since < pause || now - state.start < Duration::from_secs(1) {
            return;
        }
        state.shown = Some(now);
        let spent = (now - state.start).as_secs_f64();
        let rate = done as f64 / spent;
        let left = (whole - done) as f64 / rate.max(1e-9);
        let line = format!("{}: {done} of {whole}, {rate:.0} a second, {} left", self.what, time(left));
        // nobody to tell if this fails
        let _ = if self.terminal {
            const WIDTH: usize = 30;
            let filled = (WIDTH as u64 * done / whole.max(1)) as usize;
            write!(io::stderr(), "\r\x1b[2K[{}{}] {line}", "=".repeat(filled), " ".repeat(WIDTH - filled))
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }
}

impl Drop for Progress {
    /// Leaves the terminal's line free for what comes.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && state.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Seconds as a person would say them.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

#[expect(clippy::disallowed_methods, reason = "a person wants to know how long it takes")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_readable() {
        assert_eq!(
            [0.4, 59.4, 60.0, 125.0, 3600.0, 5430.0].map(time),
            ["0 s", "59 s", "1:00 min", "2:05 min", "1:00 h", "1:30 h"]
        );
    }
}
