//! The file names in a run folder, and what a folder is by the files in it.

use std::path::Path;

use equipoise_support::is_held;

/// All settings of the run, in TOML. A folder with this file is a run.
pub const CONFIG: &str = "config.toml";
/// The key in [`CONFIG`] under which a training loop of its own records its command. `equipoise train` has no such setting.
pub const COMMAND: &str = "command";
/// One [`EpochRecord`](crate::EpochRecord) per line, in JSON.
pub const METRICS: &str = "metrics.jsonl";
/// One [`GradientNorms`](crate::GradientNorms) per line, in JSON.
pub const NORMS: &str = "norms.jsonl";
/// One [`EpochTime`](crate::EpochTime) per line, in JSON. Unlike the other records it differs between runs with the
/// same settings.
pub const TIMES: &str = "times.jsonl";
/// [`EvaluationDetails`](crate::EvaluationDetails), in JSON.
pub const DETAILS: &str = "details.json";
/// The [`RunResult`](crate::RunResult), in JSON. A run with this file has ended.
pub const RESULT: &str = "result.json";
/// Why training failed, in words. It is gone when the run goes on.
pub const FAILURE: &str = "failure.txt";
/// [`TrainingSamples`](crate::TrainingSamples), in JSON, written once at the start of the run.
pub const SAMPLES: &str = "samples.json";
/// The [`Calibration`](crate::Calibration), in JSON, if there are images for it.
pub const CALIBRATION: &str = "calibration.json";
/// The report page.
pub const REPORT: &str = "report.html";
/// The newest checkpoint.
pub const CHECKPOINT: &str = "checkpoint.eqp";
/// The checkpoint before the newest.
pub const PREVIOUS: &str = "previous.eqp";
/// The checkpoint of the best epoch.
pub const BEST: &str = "best.eqp";
/// The start of the name of a TensorBoard event file; the time follows, then [`EVENTS_SUFFIX`].
pub const EVENTS_PREFIX: &str = "events.out.tfevents.";
/// The end of the name of a TensorBoard event file.
pub const EVENTS_SUFFIX: &str = ".equipoise";
/// The settings that the runs of a comparison share, in TOML. A folder with this file holds runs and is not a run
/// itself.
pub const COMPARISON: &str = "compare.toml";
/// The table of a comparison, in JSON.
pub const COMPARISON_RESULT: &str = "compare.json";
/// The criteria of a comparison in the order in which its user named them, the baseline first, as a JSON list.
pub const CRITERIA: &str = "criteria.json";
/// The folder in that of a cross-validation which holds its figures over all images, as those of one run per repetition.
pub const POOLED: &str = "pooled";
/// Results of classifiers without training in the folder of a comparison on features.
pub const BASELINES: &str = "baselines.json";

/// The file that the writing process locks. It contains the process id.
pub(crate) const LOCK: &str = "lock";
/// The suffix of temporary files.
pub(crate) const PART: &str = ".part";

/// Whether a folder is a run: it has the settings of a run and is not a comparison.
///
/// A run that has only just started is one too, although it has no checkpoint yet.
#[must_use]
pub fn is_run(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() && !is_comparison(folder)
}

/// Whether a process writes the folder of a run.
#[must_use]
pub fn is_under_way(folder: &Path) -> bool {
    is_held(&folder.join(LOCK))
}

/// Whether a folder holds the runs of a comparison.
#[must_use]
pub fn is_comparison(folder: &Path) -> bool {
    [COMPARISON, COMPARISON_RESULT].iter().any(|name| folder.join(name).is_file())
}
