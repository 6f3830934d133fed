//! The folder of a training run: the records in its files, and the one owner of the folder itself.
//!
//! - [`RunFolder`]: the lock, atomic writes, checkpoint rotation. [`names`]: every file name in a run folder.
//! - The records, one module per file: [`baselines`], [`metrics`] (`metrics.jsonl`, `times.jsonl`), [`norms`], [`details`], [`result`],
//!   [`samples`], [`calibration`].
//!
//! The trainer writes the records and the report reads them; neither depends on the other. A value that is not known is
//! `None`, never 0. Files of older versions lack some fields, so those fields have defaults.

pub mod baselines;
pub mod calibration;
pub mod details;
pub mod folder;
pub mod metrics;
pub mod names;
pub mod norms;
pub mod result;
pub mod samples;

pub use baselines::BaselineResult;
pub use calibration::{
    BeforeAndAfter, Calibration, CalibrationImages, ClassProbabilities, Decisions, ProbabilityFigures, RejectionCounts,
    SetCounts, TemperatureFit,
};
pub use details::{
    ConfusedPair, CorrectImages, EvaluationDetails, GroupMembers, HardExample, ReliabilityBin, SweepPoint,
};
pub use folder::{FolderError, RunFolder};
pub use metrics::{ClassCounts, EpochRecord, EpochTime, GroupAccuracy, Metrics};
pub use norms::{GradientNorms, NormRegions, NormView};
pub use result::{DIVERGED, EpochMetrics, RunResult, SelectionSplit};
pub use samples::{SampleGroup, SampleImage, TrainingSamples};
