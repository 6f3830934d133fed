//! From bytes on disk to images and labels: dataset formats, image files, archives.
//!
//! Bytes are read up to a bound, sizes are checked before memory is allocated, and nothing is skipped without a named problem.

pub mod decode;
pub mod format;
pub(crate) mod source;
pub mod zip;
