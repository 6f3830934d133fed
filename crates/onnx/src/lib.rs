//! Networks as ONNX files, for onnxruntime and other programs.
//!
//! - [`write()`] turns a network with its weights into the bytes of a file: images in, logits and probabilities out. The number
//!   of images is symbolic. Batch norms are folded into the convolutions before them.
//! - [`write_joined`] puts a head on features behind its backbone: images in, probabilities out.
//! - `network` lays the layers of a network out; `graph` adds nodes and weights; `message` encodes them.

mod graph;
mod join;
mod message;
mod network;

pub use join::{BackboneFile, JoinError, write_joined};
pub use network::{FeatureScale, Model, write};

/// Version of ONNX's file format: 8, that of ONNX 1.12.
const IR_VERSION: u64 = 8;
/// Version of ONNX's operators.
const OPSET: u64 = 17;
