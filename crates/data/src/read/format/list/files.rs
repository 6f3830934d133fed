//! The files that a list names. Backslashes of another system count as slashes, and extensions in upper and lower case are the same,
//! if there is no file of the very name.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::dataset::Problem;

/// Extensions that lists leave out, as in Kaggle's `id,label`.
const EXTENSIONS: [&str; 9] = ["jpg", "jpeg", "png", "JPG", "JPEG", "PNG", "webp", "bmp", "ppm"];

/// Folders beside a list in which its files are looked for, at most.
const MAX_FOLDERS: usize = 16;

/// Names that are looked for in every folder beside a list, at most.
const MAX_SAMPLE: usize = 200;

/// Finds the files of a list: below its folder, or below one folder beside it; with or without their extension.
pub(super) struct FileFinder {
    folder: PathBuf,
    /// The folder beside the list that holds most of its files, if they are not in the list's own.
    beside: Option<PathBuf>,
    /// The extension that led to the last file.
    extension: &'static str,
}

impl FileFinder {
    /// Looks where the files of these names are. Returns a problem if several folders hold some of them.
    pub(super) fn new(folder: &Path, names: &[&Path]) -> (Self, Option<Problem>) {
        let mut finder = Self { folder: folder.to_owned(), beside: None, extension: "" };
        let step = names.len().div_ceil(MAX_SAMPLE).max(1);
        let sample = names.iter().step_by(step).filter(|name| find_in(folder, name, "").is_none());
        let sample: Vec<&&Path> = sample.collect();
        if sample.is_empty() {
            return (finder, None);
        }
        let found = |place: &PathBuf| sample.iter().filter(|name| find_in(place, name, "").is_some()).count();
        let mut places: Vec<(usize, PathBuf)> = subfolders(folder)
            .into_iter()
            .map(|place| (found(&place), place))
            .filter(|(found, _)| *found > 0)
            .collect();
        // most files first; of equals the first by name
        places.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut places = places.into_iter().map(|(_, place)| place);
        finder.beside = places.next();
        let others: Vec<String> = places.map(|place| place.display().to_string()).collect();
        let problem = finder.beside.as_ref().filter(|_| !others.is_empty()).map(|beside| Problem {
            path: beside.display().to_string(),
            what: format!(
                "the files of the list are taken from here; {} also has files of these names",
                others.join(", ")
            ),
        });
        (finder, problem)
    }

    /// The file of this name. If there is none, the path that it would probably have.
    pub(super) fn find(&mut self, name: &Path) -> PathBuf {
        let places = [Some(&self.folder), self.beside.as_ref()].into_iter().flatten();
        for place in places {
            if let Some((found, extension)) = find_in(place, name, self.extension) {
                self.extension = extension;
                return found;
            }
        }
        let place = self.beside.as_ref().unwrap_or(&self.folder);
        with_extension(place.join(name), if has_image_extension(name) { "" } else { self.extension })
    }
}

/// The file of this name in a folder, with the extension that was added to it. `usual` is tried first.
fn find_in(folder: &Path, name: &Path, usual: &'static str) -> Option<(PathBuf, &'static str)> {
    spellings(name).find_map(|name| find_exactly(folder, &name, usual))
}

/// A name as it stands, then with slashes for backslashes, and then with its extension in lower and in upper case.
fn spellings(name: &Path) -> impl Iterator<Item = PathBuf> {
    let slashes = name.to_str().filter(|text| text.contains('\\')).map(|text| PathBuf::from(text.replace('\\', "/")));
    let plain = slashes.clone().unwrap_or_else(|| name.to_owned());
    let extension = plain.extension().filter(|_| has_image_extension(&plain)).map(OsStr::to_owned);
    let cases = extension.into_iter().flat_map(|own| [own.to_ascii_lowercase(), own.to_ascii_uppercase()]);
    let cases: Vec<PathBuf> = cases.map(|case| plain.with_extension(case)).collect();
    [name.to_owned()].into_iter().chain(slashes).chain(cases)
}

fn find_exactly(folder: &Path, name: &Path, usual: &'static str) -> Option<(PathBuf, &'static str)> {
    let extensions: &[&'static str] = if has_image_extension(name) { &[] } else { &EXTENSIONS };
    let usual = Some(usual).filter(|usual| !usual.is_empty());
    let mut extensions = [""].into_iter().chain(usual).chain(extensions.iter().copied());
    extensions.find_map(|extension| {
        Some((with_extension(folder.join(name), extension), extension)).filter(|(path, _)| path.is_file())
    })
}

fn has_image_extension(name: &Path) -> bool {
    name.extension().is_some_and(|own| EXTENSIONS.iter().any(|known| own.eq_ignore_ascii_case(known)))
}

/// The path with an extension added.
fn with_extension(path: PathBuf, extension: &str) -> PathBuf {
    if extension.is_empty() {
        return path;
    }
    let mut path = path.into_os_string();
    path.push(".");
    path.push(extension);
    path.into()
}

/// The folders in a folder, sorted; none if there are too many of them to be folders of images.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    // a list that is named without a folder is in the current one
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(here).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| folder.join(entry.file_name())).filter(|path| path.is_dir()).collect();
    folders.sort();
    if folders.len() > MAX_FOLDERS { Vec::new() } else { folders }
}
