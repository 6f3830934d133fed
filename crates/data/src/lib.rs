//! Image data sets with long tails: what is on disk becomes images, labels and counts.

pub mod augment;
pub mod chance;
pub mod change;
pub mod decode;
pub mod download;
pub mod embedded;
pub mod error;
pub mod fetch;
pub mod format;
pub mod groups;
pub mod import;
pub mod index;
pub mod inspect;
pub mod known;
pub mod loader;
pub mod longtail;
pub mod mix;
pub mod mt19937;
pub mod photo;
mod picture;
pub mod sampler;
pub mod set;
mod source;
pub mod zip;

pub use error::DataError;
pub use set::{DataSet, Images, Part, Pixels, Problem};
pub use source::fnv1a;
