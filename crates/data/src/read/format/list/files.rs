//! The files that a list names.

use std::fs;
use std::path::{Path, PathBuf};

/// Extensions that lists leave out, as in Kaggle's `id,label`.
const EXTENSIONS: [&str; 9] = ["jpg", "jpeg", "png", "JPG", "JPEG", "PNG", "webp", "bmp", "ppm"];

/// Folders beside a list in which its files are looked for, at most.
const MAX_FOLDERS: usize = 16;

/// Finds the files of a list: below its folder, or below a folder beside it; with or without their extension.
pub(super) struct FileFinder {
    folder: PathBuf,
    /// Folders beside the list, once they were needed.
    folders: Option<Vec<PathBuf>>,
    /// What led to the last file: the folder and the extension.
    last: (PathBuf, &'static str),
}

impl FileFinder {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), folders: None, last: (folder.to_owned(), "") }
    }

    /// The file of this name. If there is none, the path that it would have in the folder of the list.
    pub(super) fn find(&mut self, name: &Path) -> PathBuf {
        let plain = self.folder.join(name);
        if plain.is_file() || name.is_absolute() {
            return plain;
        }
        let (folder, extension) = self.last.clone();
        if let Some(found) = with_extension(&folder.join(name), extension) {
            return found;
        }
        let extensions: &[&str] = if has_image_extension(name) { &[""] } else { &EXTENSIONS };
        let folders = self.folders.get_or_insert_with(|| subfolders(&self.folder));
        for folder in [&self.folder].into_iter().chain(&*folders) {
            for extension in extensions {
                if let Some(found) = with_extension(&folder.join(name), extension) {
                    self.last = (folder.clone(), extension);
                    return found;
                }
            }
        }
        plain
    }
}

fn has_image_extension(name: &Path) -> bool {
    name.extension().is_some_and(|own| EXTENSIONS.iter().any(|known| own.eq_ignore_ascii_case(known)))
}

/// The path with an extension added, if that is a file.
fn with_extension(path: &Path, extension: &str) -> Option<PathBuf> {
    let mut path = path.as_os_str().to_owned();
    if !extension.is_empty() {
        path.push(".");
        path.push(extension);
    }
    Some(PathBuf::from(path)).filter(|path| path.is_file())
}

/// The folders in a folder, sorted; none if there are too many of them to be folders of images.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    if folders.len() > MAX_FOLDERS { Vec::new() } else { folders }
}
