//! Features of images from any ONNX backbone, run by onnxruntime.
//!
//! - [`library`] finds and loads onnxruntime, which is not part of the program.
//! - [`Preprocessing`] tells how images are resized and normalized: from options, a file beside the model, or its metadata.
//! - [`Backbone`] runs the model, and turns what it returns into one row of features per image.
//! - [`embed`] goes through a dataset and writes a safetensors file. It continues where an interrupted one stopped.
//! - [`Ranks`] are processes that do so together.

mod backbone;
mod error;
mod file;
pub mod library;
mod preprocessing;
mod ranks;
mod run;

pub use backbone::{Backbone, Pooling};
pub use error::EmbedError;
pub use file::partial_path;
pub use preprocessing::{Overrides, Preprocessing};
pub use ranks::Ranks;
pub use run::{EmbedOptions, Embedded, embed};
