//! What a run's folder holds beside its result: how long epochs took, and TensorBoard's events.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_record::names::{EVENTS_PREFIX, EVENTS_SUFFIX, NORMS, TIMES};
use equipoise_record::{EpochRecord, EpochTime, FolderError, GradientNorms, RunFolder};
use equipoise_report::run::Run;
use equipoise_report::tensorboard::EventWriter;
use equipoise_train::TrainError;
use equipoise_train::trainer::{Directive, Observer, StepProgress};

use crate::runs::{Show, now};

/// Shows a run and notes its epochs.
pub(crate) struct Log<'a> {
    show: &'a mut Show,
    folder: &'a RunFolder,
    events: EventWriter,
    file: String,
    /// When the epoch began, as far as this process knows.
    began: Instant,
    /// What processes before this one took for their epochs.
    before: Duration,
    /// The first thing that could not be written.
    failed: Option<FolderError>,
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "when something happened is not part of a result")]
fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl<'a> Log<'a> {
    /// Goes on with a folder's notes. Events of epochs that are done are written anew, in one file: what a killed process has
    /// left may end in half a record.
    pub(crate) fn new(folder: &'a RunFolder, show: &'a mut Show, done: u64) -> Result<Self, TrainError> {
        for name in [TIMES, NORMS] {
            folder.truncate_lines(name, usize::MAX)?;
        }
        let mut events = EventWriter::new(wall(), 1);
        let mut before = Duration::ZERO;
        let run = Run::open(folder.path());
        if let Ok(run) = &run {
            for epoch in run.epochs.iter().filter(|epoch| epoch.epoch <= done) {
                let norms = run.norms.iter().find(|norms| norms.epoch == epoch.epoch);
                let time = run.times.iter().find(|time| time.epoch == epoch.epoch);
                before += Duration::try_from_secs_f64(time.map_or(0.0, |time| time.seconds)).unwrap_or_default();
                events.epoch(epoch, norms, time, wall());
            }
        }
        let old: Vec<_> = fs::read_dir(folder.path()).into_iter().flatten().flatten().collect();
        let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let old: Vec<String> = old
            .iter()
            .map(name)
            .filter(|name| name.starts_with(EVENTS_PREFIX) && name.ends_with(EVENTS_SUFFIX))
            .collect();
        // later than all others, also where the clock was put back
        let number = |name: &String| name.strip_prefix(EVENTS_PREFIX)?.strip_suffix(EVENTS_SUFFIX)?.parse::<u64>().ok();
        let last = old.iter().filter_map(number).filter(|time| *time < 9_999_999_999).max();
        let time = (wall() as u64).max(last.map_or(0, |last| last + 1));
        let file = format!("{EVENTS_PREFIX}{time:010}{EVENTS_SUFFIX}");
        folder.write(&file, &events.take())?;
        // what cannot be read now is at least still in the old ones
        for name in old.iter().filter(|name| run.is_ok() && **name != file) {
            // a second copy of what the new file has
            let _ = fs::remove_file(folder.path().join(name));
        }
        Ok(Self { show, folder, events, file, began: now(), before, failed: None })
    }

    /// Seconds that all of the run has taken; or what could not be written.
    pub(crate) fn finish(self) -> Result<f64, FolderError> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.before.as_secs_f64() + self.show.seconds()),
        }
    }

    fn note(&mut self, epoch: &EpochRecord, norms: &GradientNorms) -> Result<(), FolderError> {
        let now = now();
        let seconds = (now - self.began).as_secs_f64();
        self.began = now;
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        let time = EpochTime {
            epoch: epoch.epoch,
            seconds: round(seconds),
            images_per_second: round(self.show.epoch_speed()),
            ended_at: round(wall()),
        };
        // three numbers and a counter can be written
        let line = serde_json::to_string(&time).unwrap_or_default() + "\n";
        self.folder.append(TIMES, line.as_bytes())?;
        self.events.epoch(epoch, Some(norms), Some(&time), time.ended_at);
        self.folder.append(&self.file, &self.events.take())
    }
}

impl Observer for Log<'_> {
    fn step(&mut self, step: &StepProgress) -> Directive {
        self.show.step(step)
    }

    fn evaluating(&mut self, done: usize, whole: usize) -> Directive {
        self.show.evaluating(done, whole)
    }

    fn epoch(&mut self, epoch: &EpochRecord, norms: &GradientNorms) {
        self.show.epoch(epoch, norms);
        if let Err(error) = self.note(epoch, norms) {
            self.failed.get_or_insert(error);
        }
    }
}
