//! The image files that a user names to look at: files, folders, lists and patterns. There are no labels here.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::format::class_folders::walk::Walk;
use super::format::list;
use super::options::ReadOptions;
use super::source::open;
use super::text::lines;
use crate::dataset::Problem;
use crate::error::DataError;

/// Size limit of a list.
const MAX_LIST: u64 = 1 << 30;

/// Image files, in the order in which they are looked at.
#[derive(Debug, Default)]
pub struct ImagePaths {
    /// The files. A file that was named may turn out to be missing or not to be an image.
    pub files: Vec<PathBuf>,
    /// What was found in a folder and is not an image, and doubts about the files of a list.
    pub problems: Vec<Problem>,
    /// The column of a list that names the image files; `None` for one with a usual name.
    pub path_column: Option<String>,
    /// The column that names the image files if the list has it and no other one is chosen.
    pub usual_path_column: Option<String>,
}

impl ImagePaths {
    /// Adds what a user named: a file; a folder, whose images are found however deep and sorted by name; a list, which is a text
    /// file with a path per line (`.txt`), or a CSV, TSV or JSON-lines file as datasets are read from, with or without labels; or a
    /// pattern with `*`, `?`, `[a-z]` or `**`, if there is no file of that name.
    ///
    /// Paths in a list are relative to its folder, or to a folder beside it.
    ///
    /// # Errors
    /// If a folder or list cannot be read, or a pattern is malformed or matches nothing.
    pub fn add(&mut self, named: &Path) -> Result<(), DataError> {
        if named.is_dir() {
            return self.add_folder(named);
        }
        if list::is_list(named) {
            let options = ReadOptions { path_column: self.path_column.clone(), ..ReadOptions::default() };
            let (files, problem) = list::image_files(named, &options, self.usual_path_column.as_deref())?;
            self.files.extend(files);
            self.problems.extend(problem);
            return Ok(());
        }
        if named.is_file() && named.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt")) {
            return self.add_text(&mut *open(named)?, named, named.parent().unwrap_or(Path::new("")));
        }
        match named.to_str().filter(|text| text.contains(['*', '?', '['])) {
            Some(pattern) if !named.exists() => self.add_matches(pattern),
            _ => {
                self.files.push(named.to_owned());
                Ok(())
            }
        }
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), DataError> {
        let walk = Walk::below(folder)?;
        self.files.extend(walk.files);
        self.problems.extend(walk.problems);
        Ok(())
    }

    /// Adds the paths in a text, one per line.
    ///
    /// # Errors
    /// If the text cannot be read.
    pub fn add_lines(&mut self, text: &mut dyn Read) -> Result<(), DataError> {
        self.add_text(text, Path::new("standard input"), Path::new(""))
    }

    fn add_text(&mut self, text: &mut dyn Read, name: &Path, folder: &Path) -> Result<(), DataError> {
        for line in lines(text, name, MAX_LIST) {
            let (_, line) = line?;
            let line = String::from_utf8_lossy(&line);
            if !line.trim().is_empty() {
                self.files.push(folder.join(line.trim()));
            }
        }
        Ok(())
    }

    /// Adds the files that match a pattern, and the images in the folders that do.
    fn add_matches(&mut self, pattern: &str) -> Result<(), DataError> {
        let refuse = |what: String| DataError::Pattern { pattern: pattern.to_owned(), what };
        let found = matches(pattern).map_err(refuse)?;
        if found.is_empty() {
            return Err(refuse("nothing matches it".to_owned()));
        }
        for path in found {
            match path.is_dir() {
                // a folder below a folder that matches is found there
                true if pattern.contains("**") => {}
                true => self.add_folder(&path)?,
                false => self.files.push(path),
            }
        }
        Ok(())
    }
}

/// What matches a pattern, sorted. `*`, `?` and `[..]` match within a name, `**` any number of folders; hidden entries match
/// only a pattern that begins with a dot. Names need not be UTF-8.
fn matches(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let parts: Vec<Part> = Path::new(pattern).components().map(Part::new).collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    add_below(Path::new(""), &parts, &mut found).map_err(|error| error.to_string())?;
    found.sort();
    found.dedup();
    Ok(found)
}

/// A component of a pattern.
enum Part {
    /// As it stands: a plain name, the root, or `..`.
    Plain(PathBuf),
    Pattern(glob::Pattern),
    /// `**`: any number of folders.
    Folders,
}

impl Part {
    fn new(component: Component<'_>) -> Result<Self, String> {
        let text = component.as_os_str().to_string_lossy();
        match () {
            () if text == "**" => Ok(Self::Folders),
            () if text.contains(['*', '?', '[']) => {
                glob::Pattern::new(&text).map(Self::Pattern).map_err(|error| error.to_string())
            }
            () => Ok(Self::Plain(component.as_os_str().into())),
        }
    }
}

/// Adds what matches these parts of a pattern below a folder.
fn add_below(folder: &Path, parts: &[Part], found: &mut Vec<PathBuf>) -> io::Result<()> {
    // hidden files are skipped, as in folders
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let Some((part, rest)) = parts.split_first() else {
        found.push(folder.to_owned());
        return Ok(());
    };
    if let Part::Plain(name) = part {
        let path = folder.join(name);
        return if path.exists() { add_below(&path, rest, found) } else { Ok(()) };
    }
    if matches!(part, Part::Folders) {
        add_below(folder, rest, found)?;
    }
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if !listed.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(listed)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        let name = name.to_string_lossy();
        match part {
            Part::Pattern(pattern) if pattern.matches_with(&name, options) => add_below(&path, rest, found)?,
            // links are not followed here: they may lead back
            Part::Folders if entry.file_type()?.is_dir() && !name.starts_with('.') => add_below(&path, parts, found)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    fn names(named: &[&Path], under: &Path) -> Vec<String> {
        let mut paths = ImagePaths::default();
        named.iter().for_each(|named| paths.add(named).expect("found"));
        let relative = |path: &PathBuf| path.strip_prefix(under).expect("below").display().to_string();
        paths.files.iter().map(relative).collect()
    }

    #[test]
    fn files_folders_lists_and_patterns() {
        let folder = TempFolder::new("paths");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/deep")).expect("a folder");
        for name in ["b.png", "a/2.png", "a/1.png", "a/deep/3.png", "odd [1].png", "a/._1.png"] {
            std::fs::write(at(name), b"").expect("written");
        }
        std::fs::write(at("a/notes.md"), b"text").expect("written");
        let found = |named: &str| names(&[&at(named)], folder.path());
        assert_eq!(found("b.png"), ["b.png"]);
        assert_eq!(found("a"), ["a/1.png", "a/2.png", "a/deep/3.png"]);
        assert_eq!(found("a/*.png"), ["a/1.png", "a/2.png"]);
        assert_eq!(found("**/[23].png"), ["a/2.png", "a/deep/3.png"]);
        assert_eq!(found("*/deep/?.png"), ["a/deep/3.png"]);
        assert_eq!(found("*/deep"), ["a/deep/3.png"]);
        assert_eq!(found("a/../b.*"), ["a/../b.png"]);
        // a file of that name is that file
        assert_eq!(found("odd [1].png"), ["odd [1].png"]);
        for (list, text) in [
            ("l.txt", "\u{feff}a/1.png\r\n\n b.png\n"),
            ("l.csv", "a/1.png,cat\nb.png,dog\n"),
            ("h.csv", "label;Filename\ncat;a/1.png\ndog;\"b.png\"\n"),
            ("t.tsv", "id\tx\na/1\t1\nb\t2\n"),
            ("o.csv", "path\na/1.png\nb.png\n"),
            ("l.jsonl", "{\"path\": \"a/1.png\"}\n{\"image\": \"b.png\", \"label\": 3}\n"),
        ] {
            std::fs::write(at(list), text).expect("written");
            assert_eq!(found(list), ["a/1.png", "b.png"], "{list}");
        }
        let refused = |named: &str| ImagePaths::default().add(&at(named)).expect_err("refused").to_string();
        assert!(refused("c*.png").ends_with("nothing matches it"), "{}", refused("c*.png"));
        std::fs::write(at("bad.jsonl"), "{}\n").expect("written");
        assert!(refused("bad.jsonl").contains("--path-column NAME"), "{}", refused("bad.jsonl"));
    }
}
