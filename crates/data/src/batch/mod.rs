//! From images to batches for a network: which examples come when, how they are augmented, and how they are loaded.
//!
//! Everything here is a pure function of (seed, epoch, example).

pub mod augmentation;
mod auto_augment;
pub mod cutmix;
pub mod image_draw;
pub mod loader;
pub mod mixup;
pub mod normalize;
mod op_ranges;
pub mod ops;
pub mod photo;
pub mod pixel;
pub mod random_ops;
mod resize;
pub mod sampler;
pub mod small;
mod thumbnail;
mod trivial_augment;
