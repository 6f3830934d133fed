//! Datasets by name: the catalog, and how their files get onto this machine.
//!
//! Nothing else in the workspace uses the network.

pub mod catalog;
pub mod download;
pub mod embedded;
pub mod fetch;
pub mod import;
pub mod unpack;
