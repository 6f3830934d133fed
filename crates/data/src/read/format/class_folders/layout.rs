//! Where the splits and the classes of a tree are.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::folders;
use super::walk::{Walk, entries};
use crate::error::DataError;
use crate::read::decode::may_be_image;
use crate::subset::split::ClassFiles;

/// A split of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitName {
    Train,
    Val,
    Test,
}

impl SplitName {
    /// Usual names of the split's folder, the best first.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["train", "training"],
            Self::Val => &["val", "valid", "validation"],
            Self::Test => &["test", "testing"],
        }
    }

    /// The split that a folder is named after, such as `Final_Training`.
    fn in_name(folder: &Path) -> Option<Self> {
        let name = folder.file_name()?.to_string_lossy().to_lowercase();
        let mut words = name.split(|c: char| !c.is_alphanumeric());
        words.find_map(|word| {
            [Self::Train, Self::Val, Self::Test].into_iter().find(|split| split.words().contains(&word))
        })
    }
}

/// The folders of a tree's splits.
pub(super) struct SplitFolders {
    pub(super) train: PathBuf,
    pub(super) val: Option<PathBuf>,
    pub(super) test: Option<PathBuf>,
}

impl SplitFolders {
    /// Finds the splits of a tree: folders named `train`, `val` or `test` (or `training` and so on), or folders that all have
    /// such a word in their names, except for those without images. A folder without folders in it is a class, whatever its name. `None` if there is no
    /// training split.
    pub(super) fn find(folders: &[PathBuf]) -> Result<Option<Self>, DataError> {
        if let Some(train) = named(folders, SplitName::Train)? {
            if super::folders(&train)?.is_empty() && folders.len() > 1 {
                return Ok(None);
            }
            let (val, test) = (named(folders, SplitName::Val)?, named(folders, SplitName::Test)?);
            return Ok(Some(Self { train, val, test }));
        }
        let splits: Vec<Option<SplitName>> = folders.iter().map(|folder| SplitName::in_name(folder)).collect();
        for (folder, _) in folders.iter().zip(&splits).filter(|(_, split)| split.is_none()) {
            if !Walk::below(folder)?.files.is_empty() {
                return Ok(None);
            }
        }
        let only = |name: SplitName| {
            let mut found =
                folders.iter().zip(&splits).filter(|(_, split)| **split == Some(name)).map(|(folder, _)| folder);
            found.next().filter(|_| found.next().is_none()).cloned()
        };
        Ok(only(SplitName::Train).map(|train| Self { train, val: only(SplitName::Val), test: only(SplitName::Test) }))
    }

    /// The splits of a tree whose `val/` or `test/` folders are beside the classes of the training split: all of their folders are
    /// named after these classes.
    pub(super) fn beside_classes(path: &Path, folders: &[PathBuf]) -> Result<Option<Self>, DataError> {
        let (held_out, classes): (Vec<PathBuf>, Vec<PathBuf>) = folders.iter().cloned().partition(|f| is_held_out(f));
        let names: BTreeSet<_> = classes.iter().filter_map(|folder| folder.file_name()).collect();
        if names.len() < 2 || held_out.is_empty() {
            return Ok(None);
        }
        for folder in &held_out {
            let inner = super::folders(&class_root(folder)?)?;
            if inner.is_empty() || !inner.iter().all(|inner| inner.file_name().is_some_and(|name| names.contains(name)))
            {
                return Ok(None);
            }
        }
        let (val, test) = (named(&held_out, SplitName::Val)?, named(&held_out, SplitName::Test)?);
        Ok(Some(Self { train: path.to_owned(), val, test }))
    }
}

/// The first of a split's folders that exists, in upper or lower case.
fn named(folders: &[PathBuf], split: SplitName) -> Result<Option<PathBuf>, DataError> {
    for name in split.words() {
        let mut found = folders.iter().filter(|folder| has_name(folder, name));
        match (found.next(), found.next()) {
            (Some(folder), Some(other)) => {
                return Err(DataError::TwoSplitFolders { folder: folder.clone(), other: other.clone() });
            }
            (Some(folder), None) => return Ok(Some(folder.clone())),
            _ => {}
        }
    }
    Ok(None)
}

fn has_name(folder: &Path, name: &str) -> bool {
    folder.file_name().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a folder is named after a split other than training.
pub(super) fn is_held_out(folder: &Path) -> bool {
    [SplitName::Val, SplitName::Test].into_iter().any(|split| split.words().iter().any(|name| has_name(folder, name)))
}

/// Whether a folder has exactly the name of a split.
pub(super) fn is_split(folder: &Path) -> bool {
    is_held_out(folder) || SplitName::Train.words().iter().any(|name| has_name(folder, name))
}

/// The folder that holds the class folders: this one, or one below that is alone in its folder and not named after another split,
/// as in `Final_Training/Images/00000/..` and `training_set/training_set/cat/..`.
pub(super) fn class_root(folder: &Path) -> Result<PathBuf, DataError> {
    let mut root = folder.to_owned();
    // a link could lead back
    for _ in 0..8 {
        let inner = folders(&root)?;
        let [only] = &inner[..] else { break };
        let is_other_split = SplitName::in_name(only).is_some_and(|split| SplitName::in_name(&root) != Some(split));
        if is_other_split || folders(only)?.is_empty() || has_images(&root)? || has_images(only)? {
            break;
        }
        root.clone_from(only);
    }
    Ok(root)
}

/// Whether images are directly in a folder.
fn has_images(folder: &Path) -> Result<bool, DataError> {
    Ok(entries(folder, &mut 0)?.iter().map(std::fs::DirEntry::path).any(|path| path.is_file() && may_be_image(&path)))
}

/// Whether a file or folder has a word for this split, `train`, `val` or `test`, in its name.
pub(in crate::read) fn names_split(path: &Path, split: &str) -> bool {
    SplitName::in_name(&path.with_extension("")).is_some_and(|name| name.words()[0] == split)
}

/// Whether a folder has a usual name of a folder with images.
pub(in crate::read) fn is_image_folder(folder: &Path) -> bool {
    IMAGE_FOLDERS.iter().any(|name| has_name(folder, name))
}

/// Usual names of a folder with images, or with the class folders.
const IMAGE_FOLDERS: [&str; 7] = ["images", "image", "imgs", "img", "jpegimages", "photos", "pictures"];

/// What is odd about a tree whose class folders hold nothing but several folders each: perhaps those were meant to be the classes,
/// in this folder or in one of the others (`Images/` beside `Masks/`, or two folders with the same folders in them).
pub(super) fn nested_classes(path: &Path, files: &ClassFiles) -> Option<String> {
    let inner = |(class, files): (&String, &Vec<PathBuf>)| {
        let folder = path.join(class);
        let name = |file: &PathBuf| {
            let mut below = file.strip_prefix(&folder).ok()?.components();
            let first = below.next()?.as_os_str().to_owned();
            below.next().map(|_| first)
        };
        let names = files.iter().map(name).collect::<Option<BTreeSet<OsString>>>()?;
        (names.len() > 1).then_some((folder, names))
    };
    let filled = files.iter().filter(|(_, files)| !files.is_empty());
    let found = filled.map(inner).collect::<Option<Vec<_>>>()?;
    let (folder, names) = found.first().filter(|_| found.len() > 1)?;
    let usual = found.iter().find(|(folder, _)| is_image_folder(folder));
    let are_alike = found.iter().all(|(_, others)| others == names);
    let what = "its folders are read as the classes, although they hold nothing but folders";
    Some(match usual.map(|(folder, _)| folder).or(are_alike.then_some(folder)) {
        Some(meant) => format!("{what}; did you mean {}?", meant.display()),
        None => {
            let some: Vec<_> = names.iter().take(2).map(|name| name.to_string_lossy()).collect();
            format!("{what} ({} and others); if those are the classes, put them all in one folder", some.join(", "))
        }
    })
}
