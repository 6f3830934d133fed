//! Image data sets with long tails: what is on disk becomes images, labels and counts.

pub mod error;
pub mod groups;
pub mod longtail;
pub mod mt19937;
pub mod sampler;

pub use error::DataError;
