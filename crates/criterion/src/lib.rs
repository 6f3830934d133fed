//! Training criteria for long-tailed classification, on plain f32 slices.
//!
//! Logits, labels and images per class go in; loss, gradient with respect to the logits and per-example weights come
//! out, in buffers of the caller. No tensor library is involved, so that a CPU engine, a GPU run and a Python package
//! can all use this one implementation.
//!
//! - A configuration ([`CwapConfig`], [`SeesawConfig`], ..., or [`Config`] for any of them) is checked by `init` and
//!   becomes a [`Criterion`].
//! - [`Criterion::train`] takes a [`Batch`]; [`Criterion::end_epoch`] follows the last batch of an epoch.
//! - [`State`] is what a criterion has counted: taken, put back, merged over workers.
//!
//! A [`Work`] made with a [`Pool`] splits batches over its threads; results do not depend on their number.

mod batch;
mod config;
mod counts;
mod criterion;
mod drw;
mod error;
mod kernel;
mod method;
mod page;
mod relative;
mod state;

pub use batch::{Batch, Mixed, Output, Summary};
pub use config::{Config, Field, Id, MethodConfig, Preset};
pub use criterion::Criterion;
pub use drw::DrwConfig;
pub use equipoise_pool::Pool;
pub use equipoise_random as random;
pub use equipoise_simd::SimdLevel;
pub use error::{BatchError, ConfigError, StateError};
pub use kernel::rows::Work;
pub use method::*;
pub use page::{Page, Section};
pub use state::State;
