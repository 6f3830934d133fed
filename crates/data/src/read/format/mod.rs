//! Dataset formats, one reader each.
//!
//! A new format is a file here, and a line in `acquire/catalog.rs` (a dataset with a name) or `load.rs` (a path).

pub mod cifar;
pub mod class_folders;
pub mod idx;
pub mod inat;
pub mod list;
pub mod tiny_imagenet;
