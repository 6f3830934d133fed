//! Readers, one format each.

pub mod cifar;
pub mod folder;
pub mod idx;
pub mod list;
