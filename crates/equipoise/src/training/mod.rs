//! What commands that train share: a run is executed, shown on the terminal, and its times and events recorded.

mod display;
mod journal;

use std::path::Path;

use equipoise_nn::Engine;
use equipoise_record::names::{FAILURE, RESULT};
use equipoise_record::{RunFolder, RunResult};
use equipoise_report::run::RecordedRun;
use equipoise_support::Examples;
use equipoise_train::run::{ExistingRun, Measurements, Run, RunContext, train, write_result};
use equipoise_train::settings::Settings;
use equipoise_train::trainer::Trainer;
use equipoise_train::workers::Workers;

pub(crate) use self::display::{DisplayOptions, RunDisplay};
use self::journal::Journal;
use crate::failure::Failure;
use crate::live_report::{LiveFolder, LiveReport};
use crate::output::counted;
use crate::signals::{Guard, received, wait_for_the_end};

/// Trains a run to its end and writes its result. `resume` is the command that continues the run if a signal stops it.
pub(crate) fn execute<E: Engine, W: Workers>(
    trainer: &mut Trainer<E, W>,
    folder: &RunFolder,
    display: &mut RunDisplay,
    live: LiveFolder<'_>,
    resume: &str,
) -> Result<RunResult, Failure> {
    // up to here nothing could be lost; from here on signals wait for the next step
    let _guard = Guard::new(Some(resume));
    display.set_examples(Examples::of_features(trainer.data().train.loader.is_of_features()));
    folder.remove(FAILURE)?;
    let mut report = live.report(folder.path(), resume);
    let result = execute_watched(trainer, folder, display, report.as_mut(), resume);
    if let Err(failure) = &result {
        wait_for_the_end();
        if !matches!(failure, Failure::Interrupted(..)) {
            // a disk that is full is the failure itself
            let _ = folder.write(FAILURE, failure.to_string().as_bytes());
        }
        report.iter().for_each(|report| report.end(failure));
    }
    result
}

/// Trains a run while its report is written, also if a signal ends the program in the middle of a step.
fn execute_watched<E: Engine, W: Workers>(
    trainer: &mut Trainer<E, W>,
    folder: &RunFolder,
    display: &mut RunDisplay,
    report: Option<&mut LiveReport>,
    resume: &str,
) -> Result<RunResult, Failure> {
    let _watch = report.as_ref().map(|report| report.watch());
    let mut journal = Journal::new(folder, display, report, trainer.position().epoch)?;
    let Some(completion) = train(trainer, folder, &mut journal)? else {
        return Err(interrupted(trainer, resume));
    };
    let seconds = journal.finish()?;
    display.clear();
    let measured = Measurements {
        images_per_second: display.images_per_second(),
        seconds,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("EQUIPOISE_COMMIT").to_owned(),
    };
    Ok(write_result(trainer, folder, &completion, &measured)?)
}

/// How a run was stopped, and how to continue it.
fn interrupted<E: Engine, W: Workers>(trainer: &Trainer<E, W>, resume: &str) -> Failure {
    let position = trainer.position();
    let when = match trainer.finished() {
        true => "stopped before the end of the last evaluation".to_owned(),
        false => format!("stopped in epoch {} after {}", position.epoch + 1, counted(position.step as usize, "step")),
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
    let mut run = Run::start_or_resume(settings, folder, context).map_err(|error| {
        let failure = Failure::from(error);
        live.report(folder, resume).iter().for_each(|report| report.end(&failure));
        failure
    })?;
    execute(&mut run.trainer, &run.folder, display, live, resume)
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
