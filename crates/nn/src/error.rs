//! What can be wrong with what an engine is given.

use thiserror::Error;

/// A network cannot be made, or does not fit what it is given.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NnError {
    /// There is no network of that name.
    #[error("model `{name}`: known are {}", crate::network::NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A number in a network's description is out of range.
    #[error("{field} = {got}: must be {must}")]
    Description {
        /// Which number.
        field: &'static str,
        /// Its value.
        got: String,
        /// What it must be.
        must: String,
    },
    /// A batch of no image, or of more than the engine has room for.
    #[error("{got} images: the engine takes 1 to {most}")]
    Batch {
        /// How many.
        got: usize,
        /// How many there is room for.
        most: usize,
    },
    /// A network and a batch that no memory holds.
    #[error("a batch of {batch} images takes about {} GB", bytes >> 30)]
    Memory {
        /// Images in the batch.
        batch: usize,
        /// Bytes in all.
        bytes: u64,
    },
    /// Another number of values than the network's input or output needs.
    #[error("{what}: {got} values: {want} are needed")]
    Length {
        /// Of what.
        what: &'static str,
        /// How many.
        got: usize,
        /// How many it should be.
        want: usize,
    },
    /// Values that are not a number of whole images.
    #[error("images: {got} values: an image has {channels} x {height} x {width}")]
    Images {
        /// How many values.
        got: usize,
        /// Channels of an image.
        channels: usize,
        /// Its rows.
        height: usize,
        /// Its columns.
        width: usize,
    },
    /// A value that is not a number, or infinite.
    #[error("{what}: image {image}: {value} is not finite")]
    NotFinite {
        /// Of what.
        what: &'static str,
        /// Which image of the batch.
        image: usize,
        /// The value.
        value: f32,
    },
    /// Backward without a forward pass in training before it.
    #[error("there was no forward pass in training to go back through")]
    NoForward,
    /// An EMA of the weights is used before it is started.
    #[error("the engine keeps no EMA of the weights; call `start_ema` first")]
    NoEma,
    /// A tensor that the network does not have.
    #[error("tensor `{name}`: the network has none of that name{}", near.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    NoTensor {
        /// Its name.
        name: String,
        /// The nearest name that there is.
        near: Option<String>,
    },
    /// A tensor that the network needs.
    #[error("tensor `{name}` is missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape.
    #[error("tensor `{name}`: shape {got:?}: {want:?} is needed")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        got: Vec<usize>,
        /// What it should be.
        want: Vec<usize>,
    },
    /// A tensor with a value that is not a number, or infinite.
    #[error("tensor `{name}`: {value} is not finite")]
    Value {
        /// Its name.
        name: String,
        /// The value.
        value: f32,
    },
    /// A file of weights that cannot be read.
    #[error("weights: {what}")]
    Weights {
        /// What is wrong with it.
        what: String,
    },
}
