//! From images to batches for a network: which examples come when, how they are augmented, and how they are loaded.
//!
//! Everything here is a pure function of (seed, epoch, example).

pub mod augmentation;
pub mod loader;
pub mod mixup;
pub mod normalize;
pub mod ops;
pub mod photo;
pub mod random_ops;
mod resize;
pub mod sampler;
pub mod small;
mod thumbnail;
