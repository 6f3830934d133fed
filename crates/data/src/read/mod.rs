//! From bytes on disk to images and labels: dataset formats, image files, archives.
//!
//! Bytes are read up to a limit, sizes are checked before memory is allocated, and nothing is skipped without a named problem.

pub mod decode;
pub mod format;
pub mod image_paths;
pub mod options;
pub(crate) mod source;
pub(crate) mod tar;
pub(crate) mod text;
pub mod zip;
