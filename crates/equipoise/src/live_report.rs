//! The report of a run that is being trained: it is written again and again, and once more when training ends early.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use equipoise_record::RunFolder;
use equipoise_record::names::{COMMAND, FAILURE, REPORT, is_under_way};
use equipoise_report::comparison::Comparison;
use equipoise_report::page::{LiveStatus, PageStatus, unfinished_page};
use equipoise_report::run::RecordedRun;

use crate::clock::{now, timed, unix_seconds};
use crate::failure::Failure;
use crate::output::{quoted, write_file};
use crate::reports::read_runs;
use crate::signals::received;

/// The folder that shows a report while a run trains.
#[derive(Clone, Copy)]
pub(crate) enum LiveFolder<'a> {
    /// None.
    Nowhere,
    /// The run's own.
    OfRun,
    /// The folder of a comparison, with all of its runs.
    OfComparison(&'a RunFolder),
}

impl<'a> LiveFolder<'a> {
    /// The report of a run in `folder`; `resume` is the command that continues if training ends early.
    pub(crate) fn report(self, folder: &'a Path, resume: &str) -> Option<LiveReport> {
        let page = match self {
            Self::Nowhere => return None,
            Self::OfRun => folder,
            Self::OfComparison(all) => all.path(),
        };
        Some(LiveReport::new(page, folder, resume))
    }
}

/// A report that is written again and again while a run trains. It takes a small share of the time.
pub(crate) struct LiveReport {
    page: UnfinishedPage,
    start: Instant,
    /// When the report was last written, and how long that took.
    written: Option<(Instant, Duration)>,
}

impl LiveReport {
    /// Shortest time between two reports. The page reloads itself as often.
    const EVERY: Duration = Duration::from_secs(10);
    /// A report is written again after this many times the time that it took.
    const RARELY: u32 = 30;
    /// A page is out of date after this many times the time between two reports, and not before five minutes.
    const PATIENCE: u32 = 3;

    fn new(folder: &Path, run: &Path, resume: &str) -> Self {
        let page = UnfinishedPage { folder: folder.to_owned(), run: run.to_owned(), resume: resume.to_owned() };
        Self { page, start: now(), written: None }
    }

    /// Writes the report after an evaluated epoch, if it is time. A report that cannot be written is no reason to stop training: the
    /// last one tells what is wrong.
    pub(crate) fn update(&mut self) {
        let is_due = |(at, took): (Instant, Duration)| now() - at >= Self::EVERY.max(took * Self::RARELY);
        if self.written.is_none_or(is_due) {
            let since = now() - self.written.map_or(self.start, |(at, _)| at);
            let status = LiveStatus {
                reload: Self::EVERY.as_secs(),
                written: unix_seconds() as u64,
                patience: (since * Self::PATIENCE).max(Duration::from_secs(300)).as_secs(),
                resume: Some(self.page.resume.clone()),
            };
            let ((), took) = timed(|| drop(self.page.write(&PageStatus::UnderWay(status))));
            self.written = Some((now(), took));
        }
    }

    /// Writes the report of a run that has failed or was stopped.
    pub(crate) fn end(&self, failure: &Failure) {
        let status = match failure {
            Failure::Interrupted(..) => self.page.stopped(),
            failure => self.page.failed(&failure.to_string()),
        };
        // the failure is reported, whether or not there is a page about it
        let _ = self.page.write(&status);
    }

    /// Writes the report if a signal comes in the middle of a step that is not waited for.
    pub(crate) fn watch(&self) -> StopWatch {
        StopWatch::new(self.page.clone())
    }
}

/// The page of runs of which one has not finished.
#[derive(Clone)]
struct UnfinishedPage {
    /// The folder of the page, and of all runs on it.
    folder: PathBuf,
    /// The run that is trained.
    run: PathBuf,
    /// The command that continues.
    resume: String,
}

/// What has become of runs in a folder of which one has no result, as far as its files tell.
pub(crate) fn unfinished_status(folder: &Path, runs: &[&RecordedRun]) -> Option<PageStatus> {
    let recorded = runs.iter().find(|run| run.result.is_none())?;
    let run = &recorded.path;
    let resume = match run == folder {
        // only the owner of a loop of its own knows how it goes on
        true if recorded.setting(COMMAND).is_some() => "the command that recorded this run".to_owned(),
        true => format!("equipoise train --resume {}", quoted(run)),
        false => format!("the same command with --output {}", quoted(folder)),
    };
    let page = UnfinishedPage { folder: folder.to_owned(), run: run.clone(), resume };
    Some(match fs::read_to_string(run.join(FAILURE)) {
        _ if is_under_way(run) => page.under_way(),
        Ok(what) => page.failed(&what),
        Err(_) => page.stopped(),
    })
}

impl UnfinishedPage {
    /// Writes the page, unless there is nothing to show and no earlier page to replace.
    fn write(&self, status: &PageStatus) -> Result<(), Failure> {
        let (runs, _) = read_runs(std::slice::from_ref(&self.folder))?;
        let page = self.folder.join(REPORT);
        match runs.is_empty() && !page.exists() {
            true => Ok(()),
            false => write_file(&page, unfinished_page(&Comparison::all(runs), status).as_bytes()),
        }
    }

    fn under_way(&self) -> PageStatus {
        PageStatus::Ended {
            what: format!("{} was under way when this page was written.", self.subject()),
            resume: None,
        }
    }

    /// A run that was stopped, as far as its records tell.
    fn stopped(&self) -> PageStatus {
        let run = RecordedRun::open(&self.run).ok();
        let planned = run.as_ref().map_or(0, RecordedRun::planned_epochs);
        let next = run.and_then(|run| run.epochs.last().map(|epoch| epoch.epoch)).unwrap_or(0) + 1;
        let what = match planned {
            planned if next > planned => format!("{} was stopped before its last evaluation.", self.subject()),
            planned => format!("{} was stopped in epoch {next} of {planned}.", self.subject()),
        };
        PageStatus::Ended { what, resume: Some(self.resume.clone()) }
    }

    fn failed(&self, what: &str) -> PageStatus {
        let end = if what.ends_with('.') { "" } else { "." };
        PageStatus::Ended { what: format!("{} has failed: {what}{end}", self.subject()), resume: None }
    }

    /// What has ended: the training, or one run of several.
    fn subject(&self) -> String {
        match self.run.file_name() {
            Some(name) if self.run != self.folder => format!("Training of {}", name.to_string_lossy()),
            _ => "Training".to_owned(),
        }
    }
}

/// A thread that writes the page of a run which is about to be ended in the middle of a long step.
pub(crate) struct StopWatch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StopWatch {
    /// Time between two looks at the signal.
    const TICK: Duration = Duration::from_millis(50);
    /// How many ticks after a signal the page is written: the program is ended after 1.7 seconds.
    const TICKS: u32 = 16;

    fn new(page: UnfinishedPage) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let watch = move || {
            let mut ticks = 0;
            while ticks < Self::TICKS {
                thread::park_timeout(Self::TICK);
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                ticks += u32::from(received().is_some());
            }
            let _ = page.write(&page.stopped());
        };
        // without a thread, the page finds out by itself that it is out of date
        let thread = thread::Builder::new().name("stop-watch".to_owned()).spawn(watch).ok();
        Self { is_over, thread }
    }
}

impl Drop for StopWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // a page that could not be written is no failure
            let _ = thread.join();
        }
    }
}
