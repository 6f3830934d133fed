//! Training runs that can be trusted: what is trained is described once, every step can be repeated, nothing is lost.
//!
//! - [`settings`]: everything that a run's result depends on.
//! - [`run`]: a run from its settings to its result. [`recipe`]: the runs behind the tables of the literature.
//! - [`prepare`]: what a run sees of a data set.
//! - [`trainer`]: the loop, over an engine that it sees only through its seam, and over workers through theirs.
//! - [`mod@evaluate`], [`metrics`]: counted first, divided last.
//! - [`checkpoint`], [`snapshot`], [`folder`]: checkpoints with a checksum, in folders that never lose one.

pub mod checkpoint;
mod details;
pub mod error;
pub mod evaluate;
pub mod folder;
pub mod metrics;
mod norms;
pub mod prepare;
pub mod recipe;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod snapshot;
pub mod trainer;
pub mod workers;

pub use error::TrainError;
