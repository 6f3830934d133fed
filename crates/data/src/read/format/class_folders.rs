//! Trees with a folder per class: `train/`, `val/` and `test/` folders of classes, or one tree that is split.
//!
//! Classes and files are sorted by name. Folders inside a class's folder belong to the class, however deep; a path that is
//! longer than the system allows is an error. Links count as what they lead to, as in torchvision; a link to a folder around
//! it is an error. Broken links, devices and pipes are reported as problems, and so are files beside the class folders, and
//! files that are not images by name and content. Hidden entries are counted.
//!
//! Splits are recognized by their names, in upper or lower case (`layout`). If the tree has `train/` alone, it is split; a
//! `test/` or `val/` folder without class folders is not used; one beside the class folders is a split if it holds the same
//! folders. Folders that hold nothing but the folder of the class folders are passed through.
//!
//! A class is named as its folder, byte for byte: `\u{e9}` and `e\u{301}` are two classes, though they look alike. Bytes that
//! are not UTF-8 become U+FFFD and are reported as a problem; two names that become the same text are an error. Names that
//! differ only in case, or only in leading zeros, are reported too.

mod layout;
pub(in crate::read) mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::layout::{SplitFolders, class_root, is_held_out, is_split, nested_classes};
pub(super) use self::layout::{is_image_folder, names_split};
pub(super) use self::walk::Walk;
use self::walk::{check_link, entries, problem};
use super::list::{held_out, list_in};
use crate::dataset::{Dataset, Images, Problem, Split};
use crate::error::DataError;
use crate::read::options::ReadOptions;
use crate::read::source::cannot_read;
use crate::subset::grouping::FileGroups;
use crate::subset::split::{ClassFiles, labeled, split_files};

/// Whether a folder may be a tree of classes: it is not empty.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn is_tree(path: &Path) -> Result<bool, DataError> {
    Ok(path.is_dir() && !entries(path, &mut 0)?.is_empty())
}

/// Name of a dataset in a folder: that of the folder.
pub(crate) fn name_of(path: &Path) -> String {
    // `.` has no name of its own
    let absolute = if path.file_name().is_none() { path.canonicalize().ok() } else { None };
    let name = absolute.as_deref().unwrap_or(path).file_name();
    name.map_or_else(|| "folder".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Reads a tree.
///
/// # Errors
/// For a folder that cannot be read, a tree without classes or images, a test fraction out of range, or a class of `test/`
/// or `val/` that `train/` does not have.
pub fn tree(path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let root = class_root(path)?;
    let folders = folders(&root)?;
    let splits = match SplitFolders::find(&folders)? {
        None => SplitFolders::beside_classes(&root, &folders)?,
        found => found,
    };
    let dataset = match splits {
        Some(splits) => tree_of_splits(&root, &splits, options),
        None => unsplit_tree(&root, &folders, options),
    };
    dataset.map(|dataset| Dataset { name: name_of(path), ..dataset })
}

/// Reads a tree without a `train/` folder, and splits it.
fn unsplit_tree(path: &Path, folders: &[PathBuf], options: &ReadOptions) -> Result<Dataset, DataError> {
    if !folders.is_empty() && folders.iter().all(|folder| is_held_out(folder)) {
        let name = "train folder beside the others; to use one of them alone, name it".to_owned();
        return Err(DataError::Missing { folder: path.to_owned(), name });
    }
    if folders.len() > 1 && folders.iter().all(|folder| is_split(folder)) {
        // `train` and `test` are splits whose images have no labels, not classes
        let files = entries(&folders[0], &mut 0)?.len();
        return Err(DataError::NoClasses { folder: folders[0].clone(), files });
    }
    let mut problems = Vec::new();
    let files = class_files(path, &[], &mut problems)?;
    let doubtful =
        folders.iter().filter(|folder| is_held_out(folder) && self::folders(folder).is_ok_and(|f| !f.is_empty()));
    problems.extend(
        doubtful.map(|folder| problem(folder, "read as a class, although it is named after a split and holds folders")),
    );
    if let Some(inner) = only_folder_with_classes(path, &files)? {
        let mut dataset = tree(&inner, options)?;
        let others = files.keys().map(|class| path.join(class)).filter(|folder| *folder != inner);
        dataset.problems.extend(others.map(|folder| problem(&folder, "ignored: there are no images in it")));
        return Ok(dataset);
    }
    if let Some(what) = nested_classes(path, &files) {
        problems.insert(0, problem(path, &what));
    }
    let classes: Vec<String> = files.keys().cloned().collect();
    let all = files.values().flatten().map(|file| (path, file));
    let groups = FileGroups::by_path(all, options.group_by.as_ref(), &[])?;
    let (train, test) = split_files(path, files, options, (&classes, &groups))?;
    Ok(Dataset { name: name_of(path), classes, train, val: None, test, groups, problems })
}

/// The folder with the class folders, if it is one of several and the others have no images: `Images/` beside `Annotation/`.
fn only_folder_with_classes(path: &Path, files: &ClassFiles) -> Result<Option<PathBuf>, DataError> {
    let mut filled = files.iter().filter(|(_, files)| !files.is_empty());
    let (Some((name, files)), None) = (filled.next(), filled.next()) else { return Ok(None) };
    let folder = path.join(name);
    let is_inside = |file: &PathBuf| file.parent().is_some_and(|parent| parent != folder);
    let deeper = folder.is_dir() && folders(&folder)?.len() > 1 && files.iter().all(is_inside);
    Ok(deeper.then_some(folder))
}

/// Reads a tree with a `train/` folder, and a `val/` or `test/` folder, or both, or none.
fn tree_of_splits(path: &Path, folders: &SplitFolders, options: &ReadOptions) -> Result<Dataset, DataError> {
    let mut problems = Vec::new();
    let train = class_root(&folders.train)?;
    let held_out: Vec<&PathBuf> = [&folders.val, &folders.test].into_iter().flatten().collect();
    let files = class_files(&train, &held_out, &mut problems)?;
    if let Some(what) = nested_classes(&train, &files) {
        problems.insert(0, problem(&train, &what));
    }
    let classes: Vec<String> = files.keys().cloned().collect();
    let mut read = vec![folders.train.clone()];
    let mut split = |folder: &Option<PathBuf>| -> Result<Option<Split>, DataError> {
        let Some(folder) = folder else { return Ok(None) };
        read.push(folder.clone());
        held_out_split(folder, &train, &classes, &mut problems)
    };
    let (val, test) = (split(&folders.val)?, split(&folders.test)?);
    if train != path {
        ignored_entries(path, &read, &mut problems)?;
    }
    let name = name_of(path);
    let held_out = held_out_files(folders, val.as_ref(), test.as_ref())?;
    let all = files.values().flatten().map(|file| (train.as_path(), file));
    let all = all.chain(held_out.iter().map(|(root, file)| (root.as_path(), *file)));
    let groups = FileGroups::by_path(all, options.group_by.as_ref(), &[])?;
    let (train, val, test) = match (val, test) {
        (val, Some(test)) => (labeled(&files, &classes), val, test),
        // as for ImageNet, `val/` is the test split if there is no other
        (Some(val), None) => {
            let what = "used for testing, because there is no test folder";
            problems.extend(folders.val.as_ref().map(|folder| problem(folder, what)));
            (labeled(&files, &classes), None, val)
        }
        (None, None) => {
            if options.split.test_fraction > 0.0 {
                let percent = 100.0 * options.split.test_fraction;
                let what = format!("{percent:.0} % of every class are for testing, because there is no test folder");
                problems.push(problem(&folders.train, &what));
            }
            let (train, test) = split_files(&train, files, options, (&classes, &groups))?;
            (train, None, test)
        }
    };
    Ok(Dataset { name, classes, train, val, test, groups, problems })
}

/// The files of the validation and test splits, each with the folder of its class folders.
fn held_out_files<'a>(
    folders: &SplitFolders,
    val: Option<&'a Split>,
    test: Option<&'a Split>,
) -> Result<Vec<(PathBuf, &'a PathBuf)>, DataError> {
    let mut all = Vec::new();
    for (folder, split) in [(&folders.val, val), (&folders.test, test)] {
        let (Some(folder), Some(Split { images: Images::Files(files), .. })) = (folder, split) else { continue };
        let root = class_root(folder)?;
        all.extend(files.iter().map(|file| (root.clone(), file)));
    }
    Ok(all)
}

/// The images of a `val/` or `test/` folder; `None` if they are neither in class folders nor in a list, so that they have no labels.
fn held_out_split(
    folder: &Path,
    train: &Path,
    classes: &[String],
    problems: &mut Vec<Problem>,
) -> Result<Option<Split>, DataError> {
    let root = class_root(folder)?;
    let is_class = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| classes.binary_search(&name.to_string_lossy().into_owned()).is_ok())
    };
    let inner = folders(&root)?;
    if inner.len() <= 1 && !inner.iter().any(is_class) {
        if let Some(file) = list_in(folder)? {
            return held_out(&file, classes, problems).map(Some);
        }
        problems.push(problem(folder, "ignored: it has no class folders, so its images have no labels"));
        return Ok(None);
    }
    let files = class_files(&root, &[], problems)?;
    if let Some(extra) = files.keys().find(|class| classes.binary_search(class).is_err()) {
        let similar = classes.iter().find(|class| class.to_lowercase() == extra.to_lowercase()).cloned();
        return Err(DataError::ExtraClass { folder: root.join(extra), train: train.to_owned(), similar });
    }
    Ok(Some(labeled(&files, classes)))
}

/// Names what is beside the folders that are read.
fn ignored_entries(path: &Path, read: &[PathBuf], problems: &mut Vec<Problem>) -> Result<(), DataError> {
    let mut hidden = 0;
    for entry in entries(path, &mut hidden)? {
        if !read.contains(&entry.path()) {
            let read: Vec<_> = read.iter().filter_map(|split| split.file_name()).map(|n| n.to_string_lossy()).collect();
            problems.push(problem(&entry.path(), &format!("ignored: the dataset is in {}", read.join(", "))));
        }
    }
    problems.extend(hidden_problem(path, hidden));
    Ok(())
}

/// The classes of a folder with their files, except for some of its folders; anything odd goes to `problems`.
fn class_files(path: &Path, except: &[&PathBuf], problems: &mut Vec<Problem>) -> Result<ClassFiles, DataError> {
    let mut classes = ClassFiles::new();
    let (mut beside, mut hidden) = (Vec::new(), 0);
    for entry in entries(path, &mut hidden)? {
        let folder = entry.path();
        if except.contains(&&folder) {
            continue;
        }
        if !folder.is_dir() {
            beside.push(entry.file_name().to_string_lossy().into_owned());
            continue;
        }
        if entry.file_type().map_err(cannot_read(path))?.is_symlink() {
            check_link(&folder)?;
        }
        let raw = entry.file_name();
        let name = raw.to_string_lossy().into_owned();
        let walk = Walk::below(&folder)?;
        hidden += walk.hidden;
        problems.extend(walk.problems);
        if raw.to_str().is_none() {
            problems.push(problem(&folder, "the class name is not UTF-8"));
        }
        if walk.files.is_empty() {
            problems.push(problem(&folder, "a class without images"));
        }
        if classes.contains_key(&name) {
            return Err(DataError::SameClass { folder });
        }
        classes.insert(name, walk.files);
    }
    if classes.is_empty() && !beside.is_empty() {
        return Err(DataError::NoClasses { folder: path.to_owned(), files: beside.len() });
    }
    problems.extend(beside_problem(path, beside));
    problems.extend(hidden_problem(path, hidden));
    if classes.values().all(Vec::is_empty) {
        return Err(DataError::NoImages { path: path.to_owned() });
    }
    let names: Vec<String> = classes.keys().cloned().collect();
    problems.extend(similar_names(&names, path));
    Ok(classes)
}

/// The problem that files are beside the class folders.
fn beside_problem(path: &Path, mut beside: Vec<String>) -> Option<Problem> {
    let number = beside.len();
    let (files, more) = (if number == 1 { "file" } else { "files" }, if number > 3 { ", ..." } else { "" });
    beside.truncate(3);
    let what = format!("ignored {number} {files} beside the class folders: {}{more}", beside.join(", "));
    (number > 0).then(|| problem(path, &what))
}

/// The problem that a folder has hidden entries.
pub(super) fn hidden_problem(path: &Path, hidden: usize) -> Option<Problem> {
    let entries = if hidden == 1 { "entry" } else { "entries" };
    (hidden > 0).then(|| problem(path, &format!("ignored {hidden} hidden {entries}")))
}

/// Classes of the list or folder `path` that differ only in case or, as numbers, in leading zeros.
pub(super) fn similar_names(names: &[String], path: &Path) -> Vec<Problem> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    let mut problems = Vec::new();
    for name in names {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let key = if number { format!("{:0>1}", name.trim_start_matches('0')) } else { name.to_lowercase() };
        if let Some(other) = seen.insert(key, name) {
            let how = if number { "leading zeros" } else { "upper and lower case" };
            let what = format!("class `{name}` differs from `{other}` only in {how}");
            problems.push(problem(path, &what));
        }
    }
    problems
}

/// The folders in a folder that are not hidden, sorted. Links to folders count, because a split may be one.
pub(super) fn folders(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = entries(path, &mut 0)?.into_iter();
    Ok(entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}
