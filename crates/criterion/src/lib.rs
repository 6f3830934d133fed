//! Training criteria for long-tailed classification, on plain f32 slices.
//!
//! A criterion takes logits, labels and the number of training images per class. It writes the gradient with respect to
//! the logits and a weight per example into the caller's buffers, and returns the loss. No tensor library is involved,
//! so a CPU engine, a GPU run and a Python package can all use this one implementation.
//!
//! - `init` checks a configuration ([`CwapConfig`], [`SeesawConfig`], ..., or [`Config`] for any of them) and builds a
//!   [`Criterion`].
//! - [`Criterion::train`] takes a [`Batch`]. [`Criterion::end_epoch`] follows the last batch of an epoch.
//! - [`State`] is what a criterion has counted. It can be saved, restored and merged over workers.
//!
//! A [`Workspace`] with a [`Pool`] splits batches over its threads. Results do not depend on their number.

mod assumed_prior;
mod batch;
mod config;
mod counts;
mod criterion;
mod documentation;
mod drw;
mod error;
mod kernel;
mod margin;
mod method;
mod parameters;
mod registry;
mod state;

pub use assumed_prior::AssumedPrior;
pub use batch::{Batch, Mixed, Output, Summary};
pub use config::{Config, Preset};
pub use criterion::Criterion;
pub use documentation::{Documentation, Section};
pub use drw::DrwConfig;
pub use equipoise_pool::Pool;
pub use equipoise_random as random;
pub use equipoise_simd::SimdLevel;
pub use error::{BatchError, ConfigError, StateError, without_type_names};
pub use kernel::rows::Workspace;
pub use method::*;
pub use parameters::Field;
