//! Errors of networks, engines and files of weights.

use std::fmt::Display;

use thiserror::Error;

use crate::network::Architecture;

/// A network cannot be built, or does not fit what it is given.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NnError {
    /// No architecture has this name.
    #[error("unknown model '{name}'{} Known models: {}", did_you_mean(*nearest).unwrap_or(".".to_owned()), known())]
    UnknownArchitecture {
        /// The unknown name.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// A number in a network's description is out of range.
    #[error("{field} = {got}: must be {must}")]
    Description {
        /// The field of the description.
        field: &'static str,
        /// The value of the field.
        got: String,
        /// The values that are allowed.
        must: String,
    },
    /// A batch is empty, or larger than the engine was built for.
    #[error("a batch of {got} images: the engine takes 1 to {most}")]
    BatchSize {
        /// Number of images.
        got: usize,
        /// Largest number of images.
        most: usize,
    },
    /// A network and a batch size need more memory than there is.
    #[error("a batch of {batch_size} {} takes about {} GB, more than there is: use a smaller batch size or image size", if *batch_size == 1 { "image" } else { "images" }, bytes.div_ceil(1 << 30))]
    Memory {
        /// Number of images.
        batch_size: usize,
        /// Number of bytes for everything.
        bytes: u64,
    },
    /// A list has the wrong length.
    #[error("{what}: {got} values, but {want} are needed")]
    Length {
        /// The list.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length that is needed.
        want: usize,
    },
    /// A number of values that is not a whole number of images.
    #[error("images: {got} values are not whole images of {channels} x {height} x {width}")]
    Images {
        /// Number of values.
        got: usize,
        /// Channels of an image.
        channels: usize,
        /// Height of an image.
        height: usize,
        /// Width of an image.
        width: usize,
    },
    /// An image has a value that is NaN or infinite.
    #[error("image {image} of the batch: {value} is not finite")]
    NotFinite {
        /// Index of the image in the batch.
        image: usize,
        /// The value.
        value: f32,
    },
    /// A backward pass does not follow a forward pass in training.
    #[error("a backward pass needs a forward pass in training before it")]
    NoForward,
    /// An EMA of the weights is used before it is started.
    #[error("the engine keeps no EMA of the weights; call `start_ema` first")]
    NoEma,
    /// A file has a tensor that the network does not have.
    #[error("tensor '{name}': the network has no tensor of this name{}", did_you_mean(nearest.as_ref()).unwrap_or_default())]
    UnknownTensor {
        /// Name of the tensor.
        name: String,
        /// The network's tensor with the most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// A file lacks a tensor that the network needs.
    #[error("tensor '{name}' is missing")]
    MissingTensor {
        /// Name of the tensor.
        name: String,
    },
    /// A tensor has the wrong shape.
    #[error("tensor '{name}' has shape {got:?}, but the network needs {want:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape of the tensor.
        got: Vec<usize>,
        /// Shape that the network needs.
        want: Vec<usize>,
    },
    /// A tensor has a value that is NaN or infinite.
    #[error("tensor '{name}': {value} is not finite")]
    TensorNotFinite {
        /// Name of the tensor.
        name: String,
        /// The value.
        value: f32,
    },
    /// The device that computes the network failed.
    #[error("{what}")]
    Device {
        /// What it says.
        what: String,
    },
    /// A file of weights cannot be read.
    #[error("cannot read the weights: {what}")]
    Weights {
        /// What is wrong with the file.
        what: String,
    },
}

fn did_you_mean(nearest: Option<impl Display>) -> Option<String> {
    nearest.map(|nearest| format!("; did you mean '{nearest}'?"))
}

fn known() -> String {
    Architecture::ALL.map(Architecture::name).join(", ")
}
