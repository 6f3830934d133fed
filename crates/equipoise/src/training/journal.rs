//! Records of a run that depend on the clock: how long epochs took, and TensorBoard events.

use std::fs;
use std::time::{Duration, Instant};

use equipoise_record::names::{EVENTS_PREFIX, EVENTS_SUFFIX, NORMS, TIMES};
use equipoise_record::{EpochRecord, EpochTime, FolderError, GradientNorms, RunFolder};
use equipoise_report::run::RecordedRun;
use equipoise_report::tensorboard::EventWriter;
use equipoise_train::trainer::{Directive, Observer, StepProgress};

use super::RunDisplay;
use crate::clock::{now, unix_seconds};
use crate::failure::Failure;
use crate::reports::LiveReport;

/// Shows a run and records its epochs.
pub(super) struct Journal<'a> {
    display: &'a mut RunDisplay,
    folder: &'a RunFolder,
    /// The report that is shown meanwhile.
    report: Option<LiveReport<'a>>,
    events: EventWriter,
    file: String,
    /// Start of the epoch, as far as this process knows.
    epoch_start: Instant,
    /// Time that earlier processes spent on their epochs.
    earlier: Duration,
    /// The first error in writing.
    error: Option<FolderError>,
}

impl<'a> Journal<'a> {
    /// Continues the records of a folder. The events of finished epochs are written again, to one file: a killed process may have left
    /// half an event.
    pub(super) fn new(
        folder: &'a RunFolder,
        display: &'a mut RunDisplay,
        report: Option<LiveReport<'a>>,
        epochs: u64,
    ) -> Result<Self, Failure> {
        for name in [TIMES, NORMS] {
            folder.truncate_lines(name, usize::MAX)?;
        }
        let mut events = EventWriter::new(unix_seconds(), 1);
        let mut earlier = Duration::ZERO;
        let recorded = RecordedRun::open(folder.path());
        if let Ok(run) = &recorded {
            for epoch in run.epochs.iter().filter(|epoch| epoch.epoch <= epochs) {
                let norms = run.norms.iter().find(|norms| norms.epoch == epoch.epoch);
                let time = run.times.iter().find(|time| time.epoch == epoch.epoch);
                earlier += Duration::try_from_secs_f64(time.map_or(0.0, |time| time.seconds)).unwrap_or_default();
                events.epoch(epoch, norms, time, unix_seconds());
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
        Ok(Self { display, folder, report, events, file, epoch_start: now(), earlier, error: None })
    }

    /// Seconds that the whole run has taken, or the first error in writing.
    pub(super) fn finish(self) -> Result<f64, FolderError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.earlier.as_secs_f64() + self.display.seconds()),
        }
    }

    fn record(&mut self, epoch: &EpochRecord, norms: &GradientNorms) -> Result<(), FolderError> {
        let now = now();
        let seconds = (now - self.epoch_start).as_secs_f64();
        self.epoch_start = now;
        let thousandths = |x: f64| (x * 1000.0).round() / 1000.0;
        let time = EpochTime {
            epoch: epoch.epoch,
            seconds: thousandths(seconds),
            images_per_second: thousandths(self.display.epoch_speed()),
            ended_at: thousandths(unix_seconds()),
        };
        self.folder.append_json_lines(TIMES, &[time])?;
        self.events.epoch(epoch, Some(norms), Some(&time), time.ended_at);
        self.folder.append(&self.file, &self.events.take())
    }
}

/// Names of the event files in a folder.
fn event_files(folder: &RunFolder) -> Vec<String> {
    let files = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(EVENTS_PREFIX) && name.ends_with(EVENTS_SUFFIX)).collect()
}

/// A name for a new event file that sorts after the old ones, even if the clock was set back.
fn new_event_file(old: &[String]) -> String {
    let time = |name: &String| name.strip_prefix(EVENTS_PREFIX)?.strip_suffix(EVENTS_SUFFIX)?.parse::<u64>().ok();
    let last = old.iter().filter_map(time).filter(|time| *time < 9_999_999_999).max();
    let time = (unix_seconds() as u64).max(last.map_or(0, |last| last + 1));
    format!("{EVENTS_PREFIX}{time:010}{EVENTS_SUFFIX}")
}

impl Observer for Journal<'_> {
    fn step(&mut self, step: &StepProgress) -> Directive {
        self.display.step(step)
    }

    fn evaluating(&mut self, done: usize, total: usize) -> Directive {
        self.display.evaluating(done, total)
    }

    fn epoch(&mut self, epoch: &EpochRecord, norms: &GradientNorms) {
        self.display.epoch(epoch, norms);
        if let Err(error) = self.record(epoch, norms) {
            self.error.get_or_insert(error);
        }
        // the report of the finished run follows the last epoch
        let is_shown = epoch.test.is_some() && epoch.epoch < self.display.epochs();
        if let Some(report) = self.report.as_mut().filter(|_| is_shown) {
            report.update();
        }
    }

    fn warn(&mut self, text: &str) {
        self.display.warn(text);
    }
}
