//! The clock. Only progress, speeds and the times of a run depend on it, never a result.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[expect(clippy::disallowed_methods, reason = "speeds and progress are not part of a result")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the time of an event is not part of a result")]
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The value of a function, and how long it took.
pub(crate) fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let value = f();
    (value, start.elapsed())
}

/// A duration for people.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_readable() {
        assert_eq!(
            [0.4, 59.4, 60.0, 125.0, 3600.0, 5430.0].map(duration),
            ["0 s", "59 s", "1:00 min", "2:05 min", "1:00 h", "1:30 h"]
        );
    }
}
