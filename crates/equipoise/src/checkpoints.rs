//! What users read about the weights in a checkpoint.

use std::fs;
use std::path::Path;

use equipoise_record::RunResult;
use equipoise_record::names::{FAILURE, RESULT};
use equipoise_train::checkpoint::{Checkpoint, CheckpointHeader};
use equipoise_train::run::build::second_correction;
use equipoise_train::run::weights::load_checkpoint;
use equipoise_train::settings::{Precision, SelectBest};

use crate::failure::Failure;
use crate::options::PostHocArgs;
use crate::output::{counted, quoted, warn};
use crate::progress::Console;

/// The checkpoint of a run folder or file. Warns if the run has failed.
pub(crate) fn read(path: &Path) -> Result<Checkpoint, Failure> {
    let checkpoint = load_checkpoint(path, &Console::default())?;
    if let Ok(why) = fs::read_to_string(path.join(FAILURE)) {
        warn(&format!("the training of {} has failed, and these are the weights from before: {why}", quoted(path)));
    }
    let result = fs::read(path.join(RESULT)).ok().and_then(|bytes| serde_json::from_slice::<RunResult>(&bytes).ok());
    if let Some(warning) = result.as_ref().and_then(RunResult::divergence) {
        warn(&format!("{}: {warning}", quoted(path)));
    }
    Ok(checkpoint)
}

/// How the epoch of a checkpoint was selected.
pub(crate) fn selected_by(header: &CheckpointHeader) -> &'static str {
    match (header.best == Some(header.position.epoch) && header.position.step == 0, header.settings.select_best) {
        (false, _) => "not selected",
        (true, SelectBest::Test) => "selected on the test split: an optimistic figure",
        (true, _) => "selected on the validation split",
    }
}

/// How far the weights of a checkpoint are trained.
pub(crate) fn describe(header: &CheckpointHeader) -> String {
    let weights = match header.position.step {
        0 => format!("weights of epoch {}, {}", header.position.epoch, selected_by(header)),
        step => format!("weights after epoch {} and {}", header.position.epoch, counted(step as usize, "step")),
    };
    match header.settings.precision {
        Precision::F32 => weights,
        precision => format!("{weights}, in {precision}"),
    }
}

/// Warns of weights that no step has changed.
pub(crate) fn warn_if_untrained(header: &CheckpointHeader) {
    if header.position.total_steps == 0 {
        warn("nothing has been trained yet: these are the weights that the run started from");
    }
}

/// Warns of what corrects a second time for class sizes, if an option adjusts logits.
pub(crate) fn warn_of_second_correction(header: &CheckpointHeader, post_hoc: PostHocArgs) {
    let tau = post_hoc.logit_adjustment.filter(|tau| *tau > 0.0);
    if let Some(correction) = tau.and_then(|tau| second_correction(&header.settings, tau)) {
        warn(&correction);
    }
}
