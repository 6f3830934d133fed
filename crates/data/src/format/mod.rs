//! Readers, one format each.

pub mod cifar;
pub mod idx;
