//! Folders that hold a list and the images that it names, beside it or in a folder below.

use std::path::{Path, PathBuf};

use super::is_list;
use crate::error::DataError;
use crate::read::format::class_folders::walk::entries;
use crate::read::format::class_folders::{folders, is_image_folder, names_split};

/// The list in a folder of images, or in the only folder in it, if that is named `images` or the like; `None` if there is none, or the
/// folder is a tree of classes.
///
/// # Errors
/// If the folder cannot be read, or has several lists.
pub(crate) fn list_in(folder: &Path) -> Result<Option<PathBuf>, DataError> {
    let files = entries(folder, &mut 0)?.into_iter().map(|entry| entry.path());
    let mut lists: Vec<PathBuf> = files.filter(|path| is_list(path)).collect();
    if lists.is_empty() {
        return match &folders(folder)?[..] {
            [only] if is_image_folder(only) => list_in(only),
            _ => Ok(None),
        };
    }
    if has_classes(folder)? {
        return Ok(None);
    }
    if lists.len() > 1 {
        // the one that is probably meant comes first
        lists.sort_by_key(|list| !names_split(list, "train"));
        return Err(DataError::SeveralLists { folder: folder.to_owned(), lists });
    }
    Ok(lists.pop())
}

/// Whether the folders in a folder are classes. A folder of images is none if it is the only one, if it or one beside it is named
/// `images`, or if all are named after splits.
fn has_classes(folder: &Path) -> Result<bool, DataError> {
    let inner = folders(folder)?;
    for folder in &inner {
        if !folders(folder)?.is_empty() {
            return Ok(true);
        }
    }
    let is_split = |folder: &PathBuf| ["train", "val", "test"].iter().any(|split| names_split(folder, split));
    Ok(inner.len() > 1 && !inner.iter().any(|folder| is_image_folder(folder)) && !inner.iter().all(is_split))
}
