//! Readers, one format each.

pub mod cifar;
pub mod class_folders;
pub mod idx;
pub mod inat;
pub mod list;
pub mod tiny_imagenet;
