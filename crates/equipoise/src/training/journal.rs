//! Records of a run that depend on the clock: how long epochs took, and TensorBoard events.

use std::fs;
use std::time::{Duration, Instant};

use equipoise_record::{Epoch, NORMS, Norms, TIMES, Time};
use equipoise_report::events;
use equipoise_report::run::Run as RecordedRun;
use equipoise_report::tensorboard::Events;
use equipoise_train::folder::{Folder, StoreError};
use equipoise_train::trainer::{Step, Watch, Wish};

use super::RunDisplay;
use crate::clock::{now, unix_seconds};
use crate::failure::Failure;

/// Start and end of the name of an event file. The time of its first event is in between.
const EVENTS: (&str, &str) = ("events.out.tfevents.", ".equipoise");

/// Shows a run and records its epochs.
pub(super) struct Journal<'a> {
    display: &'a mut RunDisplay,
    folder: &'a Folder,
    events: Events,
    file: String,
    /// Start of the epoch, as far as this process knows.
    epoch_start: Instant,
    /// Time that earlier processes spent on their epochs.
    earlier: Duration,
    /// The first error in writing.
    error: Option<StoreError>,
}

impl<'a> Journal<'a> {
    /// Continues the records of a folder. The events of finished epochs are written again, to one file: a killed process may have left
    /// half an event.
    pub(super) fn new(folder: &'a Folder, display: &'a mut RunDisplay, epochs: u64) -> Result<Self, Failure> {
        for name in [TIMES, NORMS] {
            folder.lines(name, usize::MAX)?;
        }
        let mut events = Events::new(unix_seconds(), 1);
        let mut earlier = Duration::ZERO;
        let recorded = RecordedRun::open(folder.path());
        if let Ok(run) = &recorded {
            for epoch in run.epochs.iter().filter(|epoch| epoch.epoch <= epochs) {
                let norms = run.norms.iter().find(|norms| norms.epoch == epoch.epoch);
                let time = run.times.iter().find(|time| time.epoch == epoch.epoch);
                earlier += Duration::try_from_secs_f64(time.map_or(0.0, |time| time.seconds)).unwrap_or_default();
                events::add(&mut events, epoch, norms, time, unix_seconds());
            }
        }
        let old = event_files(folder);
        let file = new_event_file(&old);
        folder.write(&file, &events.take())?;
        // if the records cannot be read, the old files are all there is
        for name in old.iter().filter(|name| recorded.is_ok() && **name != file) {
            // the new file has everything that this one has
            let _ = fs::remove_file(folder.path().join(name));
        }
        Ok(Self { display, folder, events, file, epoch_start: now(), earlier, error: None })
    }

    /// Seconds that the whole run has taken, or the first error in writing.
    pub(super) fn finish(self) -> Result<f64, StoreError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.earlier.as_secs_f64() + self.display.seconds()),
        }
    }

    fn record(&mut self, epoch: &Epoch, norms: &Norms) -> Result<(), StoreError> {
        let now = now();
        let seconds = (now - self.epoch_start).as_secs_f64();
        self.epoch_start = now;
        let thousandths = |x: f64| (x * 1000.0).round() / 1000.0;
        let time = Time {
            epoch: epoch.epoch,
            seconds: thousandths(seconds),
            images_per_second: thousandths(self.display.epoch_speed()),
            at: thousandths(unix_seconds()),
        };
        // numbers can always be written
        let line = serde_json::to_string(&time).unwrap_or_default() + "\n";
        self.folder.append(TIMES, line.as_bytes())?;
        events::add(&mut self.events, epoch, Some(norms), Some(&time), time.at);
        self.folder.append(&self.file, &self.events.take())
    }
}

/// Names of the event files in a folder.
fn event_files(folder: &Folder) -> Vec<String> {
    let files = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(EVENTS.0) && name.ends_with(EVENTS.1)).collect()
}

/// A name for a new event file that sorts after the old ones, even if the clock was set back.
fn new_event_file(old: &[String]) -> String {
    let (start, end) = EVENTS;
    let time = |name: &String| name.strip_prefix(start)?.strip_suffix(end)?.parse::<u64>().ok();
    let last = old.iter().filter_map(time).filter(|time| *time < 9_999_999_999).max();
    let time = (unix_seconds() as u64).max(last.map_or(0, |last| last + 1));
    format!("{start}{time:010}{end}")
}

impl Watch for Journal<'_> {
    fn step(&mut self, step: &Step) -> Wish {
        self.display.step(step)
    }

    fn evaluating(&mut self, done: usize, total: usize) -> Wish {
        self.display.evaluating(done, total)
    }

    fn epoch(&mut self, epoch: &Epoch, norms: &Norms) {
        self.display.epoch(epoch, norms);
        if let Err(error) = self.record(epoch, norms) {
            self.error.get_or_insert(error);
        }
    }
}
