//! What commands that train share: a run is executed, shown on the terminal, and its times and events recorded.

mod display;
mod journal;

use std::path::Path;

use equipoise_record::RunResult;
use equipoise_record::names::RESULT;
use equipoise_report::run::RecordedRun;
use equipoise_train::run::{ExistingRun, Measurements, Run, RunContext, train};
use equipoise_train::settings::Settings;

pub(crate) use self::display::{DisplayOptions, RunDisplay};
use self::journal::Journal;
use crate::failure::Failure;
use crate::reports::{LiveFolder, LiveReport};
use crate::signals::{Guard, received};

/// Trains a run to its end and writes its result. `resume` is the command that continues the run if a signal stops it.
pub(crate) fn execute(
    run: &mut Run,
    display: &mut RunDisplay,
    live: LiveFolder<'_>,
    resume: &str,
) -> Result<RunResult, Failure> {
    // up to here nothing could be lost; from here on signals wait for the next step
    let _guard = Guard::new();
    let report = match live {
        LiveFolder::Nowhere => None,
        LiveFolder::OfRun => Some(LiveReport::new(&run.folder)),
        LiveFolder::OfComparison(folder) => Some(LiveReport::new(folder)),
    };
    let mut journal = Journal::new(&run.folder, display, report, run.trainer.position().epoch)?;
    let Some(completion) = train(&mut run.trainer, &run.folder, &mut journal)? else {
        return Err(interrupted(run, resume));
    };
    let seconds = journal.finish()?;
    display.clear();
    let measured = Measurements {
        images_per_second: display.images_per_second(),
        seconds,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("EQUIPOISE_COMMIT").to_owned(),
    };
    Ok(run.write_result(&completion, &measured)?)
}

/// How a run was stopped, and how to continue it.
fn interrupted(run: &Run, resume: &str) -> Failure {
    let position = run.trainer.position();
    let when = match run.trainer.finished() {
        true => "stopped before the end of the last evaluation".to_owned(),
        false => format!("stopped in epoch {} after {} steps", position.epoch + 1, position.step),
    };
    Failure::Interrupted(received().unwrap_or(2), format!("{when}; everything is saved. To continue: {resume}"))
}

/// Executes one of several runs in a folder of its own: trains it, resumes it, or reads its result.
pub(crate) fn execute_or_read(
    settings: &Settings,
    folder: &Path,
    context: &RunContext<'_>,
    display: &mut RunDisplay,
    live: LiveFolder<'_>,
    resume: &str,
) -> Result<RunResult, Failure> {
    if ExistingRun::find(folder, settings)? == ExistingRun::Finished {
        return read_result(folder, settings);
    }
    let mut run = Run::start_or_resume(settings, folder, context)?;
    execute(&mut run, display, live, resume)
}

/// The result of a finished run with these settings.
pub(crate) fn read_result(folder: &Path, settings: &Settings) -> Result<RunResult, Failure> {
    let advice = "remove this file to continue the run from its checkpoint";
    let invalid = |what: String| Failure::usage(format!("{what}; {advice}"));
    let run = RecordedRun::read(folder).map_err(|error| invalid(format!("{:#}", anyhow::Error::from(error))))?;
    let belongs = |result: &&RunResult| (result.seed, result.criterion.as_str()) == (settings.seed, run.criterion());
    let result = run.result.as_ref().filter(belongs);
    result.cloned().ok_or_else(|| invalid(format!("{}: not the result of this run", folder.join(RESULT).display())))
}
