//! Errors of this crate.

use std::path::PathBuf;

use equipoise_data::DataError;
use thiserror::Error;

/// Why features cannot be computed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// onnxruntime was not found.
    #[error(
        "onnxruntime was not found; install it with `pip install onnxruntime`, or name its library with --onnxruntime or \
         ORT_DYLIB_PATH (looked for: {})", .tried.join("; ")
    )]
    NoLibrary {
        /// The places, each with what was found there.
        tried: Vec<String>,
    },
    /// The library cannot be used.
    #[error("{}: this onnxruntime cannot be used: {what}", .path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The model cannot be used.
    #[error("{}: {what}", .path.display())]
    Model {
        /// The model.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The preprocessing cannot be used.
    #[error("{from}: {what}")]
    Preprocessing {
        /// Where it comes from.
        from: String,
        /// What is wrong with it.
        what: String,
    },
    /// Images cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Another process that computes features with this one failed.
    #[error("rank {rank}: {what}")]
    Rank {
        /// Which process.
        rank: usize,
        /// Its error.
        what: String,
    },
    /// The other processes cannot be reached.
    #[error("the other processes cannot be reached: {what}")]
    Unreachable {
        /// What the transport says.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
}
