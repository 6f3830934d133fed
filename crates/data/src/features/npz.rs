//! NumPy's `.npz` files: zip archives of `.npy` files. What is stored in them as it is stays in the mapped file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::array::Array;
use super::bytes::FileBytes;
use super::error::FeatureError;
use super::npy;
use crate::error::DataError;
use crate::read::source::{at_most, cannot_read};
use crate::read::zip::{is_zip, walk_places};

/// Most bytes of an array that is compressed, and therefore unpacked into memory.
const MAX_UNPACKED: u64 = 64 << 30;

/// All arrays of a file with their names.
pub(super) fn arrays(path: &Path) -> Result<Vec<(String, Array)>, DataError> {
    let unusable = |what: FeatureError| DataError::Features { path: path.to_owned(), what };
    let bytes = Arc::new(FileBytes::open(path).map_err(cannot_read(path))?);
    if !is_zip(&bytes) {
        return Err(unusable(FeatureError::Magic { format: ".npz" }));
    }
    let mut file = File::open(path).map_err(cannot_read(path))?;
    let mut arrays = Vec::new();
    walk_places(path, &mut file, |entry, content| {
        let Some((place, reader)) = content else { return Ok(()) };
        let name = entry.with_extension("").display().to_string();
        let array = if place.is_stored {
            let (start, size) = (place.start as usize, place.size as usize);
            npy::array(&name, &bytes, start..start.saturating_add(size))
        } else {
            let unpacked = at_most(reader, place.size, MAX_UNPACKED, path)?;
            let end = unpacked.len();
            npy::array(&name, &Arc::new(FileBytes::Owned(unpacked)), 0..end)
        };
        arrays.push((name, array.map_err(unusable)?));
        Ok(())
    })?;
    Ok(arrays)
}
