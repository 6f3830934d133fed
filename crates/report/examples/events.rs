//! Writes event files for `tools/check_tensorboard.py`: those of a run that was killed in the middle of a record of
//! step 6 and then restarted from step 3.
//!
//!     cargo run --release -p equipoise-report --example events -- FOLDER

use std::path::Path;

use equipoise_report::tensorboard::{EventWriter, HistogramBin};

/// A file with the steps from `first` to `last`.
fn file(time: f64, first: u64, last: u64) -> Vec<u8> {
    let mut events = EventWriter::new(time, first);
    for step in first..=last {
        let now = time + step as f64;
        events.scalars(now, step, [("train/loss", 1.0 / step as f64), ("größe/µ", f64::NAN), ("", -1e300)]);
        events.scalar(now, step, &"long ".repeat(200), time);
        let bin = |i: u64| HistogramBin { left: i as f64 / 3.0, right: (i + 1) as f64 / 3.0, count: (i * step) as f64 };
        events.histogram(now, step, "weights", &(0..4).map(bin).collect::<Vec<_>>());
        events.histogram(now, step, "none", &[]);
    }
    events.take()
}

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: events FOLDER");
        std::process::exit(2);
    };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let (killed, complete) = (file(1.7e9, 1, 6), file(1.7e9, 1, 5).len());
    std::fs::write(folder.join("events.out.tfevents.1700000000"), &killed[..complete + 20])?;
    std::fs::write(folder.join("events.out.tfevents.1700000100"), file(1.7e9 + 100.0, 3, 8))
}
