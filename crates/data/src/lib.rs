//! Image datasets with long tails: from files on disk to images, labels, counts and batches.
//!
//! Data flows from [`acquire`] and [`read`] to a [`Dataset`], and from there through [`subset`] to [`batch`]; [`describe`]
//! looks at a dataset before training.

pub mod acquire;
pub mod batch;
pub mod dataset;
pub mod describe;
pub mod error;
mod hash;
mod load;
pub mod read;
pub mod subset;

pub use dataset::{Dataset, Images, Pixels, Problem, Split};
pub use error::DataError;
pub use load::{is_list, load};
pub use read::options::ReadOptions;
