//! Training runs that can be repeated and resumed bit for bit.
//!
//! - [`settings`]: everything that a run's result depends on.
//! - [`run`]: a run from its settings to its result. [`recipe`]: the runs behind the tables of the literature.
//! - [`prepare`]: the dataset of a run, ready for training.
//! - [`batches`]: the training batches of an epoch.
//! - [`preview`]: a picture of augmented training images.
//! - [`lbfgs`]: a solver for heads on features, in place of steps.
//! - [`trainer`]: the training loop, over the [`Engine`](equipoise_nn::Engine) and [`Workers`](workers::Workers) traits.
//! - [`mod@evaluate`], [`metrics`], [`details`]: evaluation of a network, counted first and divided last.
//! - [`prior`], [`calibration`], [`decision`], [`sweep`]: what becomes of the logits of a trained network.
//! - [`checkpoint`]: the state of a run in a file with a checksum.

pub mod batches;
pub mod calibration;
pub mod checkpoint;
pub mod decision;
pub mod details;
mod difficulty;
pub mod error;
pub mod evaluate;
pub mod lbfgs;
pub mod metrics;
mod norms;
pub mod prepare;
pub mod preview;
pub mod prior;
pub mod recipe;
pub mod run;
pub mod same_files;
pub mod schedule;
pub mod settings;
pub mod sweep;
pub mod trainer;
pub mod workers;

pub use error::TrainError;

/// The examples of `docs/library.md`, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
