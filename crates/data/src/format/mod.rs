//! Readers, one format each.

pub mod cifar;
pub mod folder;
pub mod idx;
pub mod inat;
pub mod list;
pub mod tiny_imagenet;
