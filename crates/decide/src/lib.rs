//! What to decide when a trained network has computed logits, as plain mathematics on slices.
//!
//! - [`wilson`]: the interval of a rate that was counted.
//! - [`temperature`]: calibrated probabilities. [`prior`]: predictions for other shares of the classes.
//! - [`sweep`]: the trade-off between frequent and rare classes.
//! - [`sets`]: sets of classes that hold the true one with a given probability. [`rejection`]: images that are none of the classes.
//! - [`label_errors`]: labels that are probably wrong.
//!
//! Logits are rows of `f32`, labels are class numbers. Nothing here knows datasets, networks or files.

pub mod label_errors;
pub mod prior;
pub mod rejection;
mod rows;
pub mod sets;
pub mod sweep;
pub mod temperature;
pub mod wilson;

pub use rows::{Logits, log_softmax};
