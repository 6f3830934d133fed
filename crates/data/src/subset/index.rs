//! Subsets as text, so that others can reproduce a table: one index into the original training split per line, class by
//! class, in the order they were drawn. Lines that start with `#` are comments, except for the fingerprint of the training
//! split, which must match if it is there.

use std::fmt::{self, Write};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::dataset::{Images, Split};
use crate::error::DataError;
use crate::hash::Fnv1a;
use crate::read::source::open;
use crate::read::text::lines;

/// Size limit of a file: ten million indices.
const MAX_BYTES: u64 = 128 << 20;

/// Start of the line with the fingerprint.
const FINGERPRINT_PREFIX: &str = "# fingerprint ";

/// Tells one training split from another: the number of images, and a hash of their labels and, for files, of their paths
/// below their common folder. Another choice of images has another fingerprint; a dataset that was moved keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Number of images.
    pub images: usize,
    /// FNV-1a of labels and paths.
    pub hash: u64,
}

impl Fingerprint {
    /// Fingerprint of a split.
    #[must_use]
    pub fn of(split: &Split) -> Self {
        let mut hash = Fnv1a::new();
        split.labels.iter().for_each(|label| hash.add(&label.to_le_bytes()));
        if let Images::Files(files) = &split.images {
            let folder = common_folder(files);
            for file in files {
                hash.add(file.strip_prefix(folder).unwrap_or(file).as_os_str().as_encoded_bytes());
                // a byte that no name contains
                hash.add(&[0]);
            }
        }
        Self { images: split.labels.len(), hash: hash.finish() }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x}", self.images, self.hash)
    }
}

/// The innermost folder that holds all files.
fn common_folder(files: &[PathBuf]) -> &Path {
    let folder = files.first().and_then(|file| file.parent()).unwrap_or(Path::new(""));
    files.iter().fold(folder, |folder, file| {
        folder.ancestors().find(|folder| file.starts_with(folder)).unwrap_or(Path::new(""))
    })
}

/// Writes a subset of a training split as text; `about` becomes comment lines.
#[must_use]
pub fn to_text(indices: &[u32], about: &str, fingerprint: Fingerprint) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = writeln!(text, "{FINGERPRINT_PREFIX}{fingerprint}");
    for index in indices {
        let _ = writeln!(text, "{index}");
    }
    text
}

/// Reads a subset of the training split with this fingerprint from a file.
///
/// # Errors
/// Names the line that is not an index, out of range or repeated; if the file belongs to another dataset, or lists nothing.
pub fn read(path: &Path, fingerprint: Fingerprint) -> Result<Vec<u32>, DataError> {
    parse(path, &mut *open(path)?, fingerprint)
}

/// Reads a subset from its text; `path` is for messages.
///
/// # Errors
/// Names the line that is not an index, out of range or repeated; if the text belongs to another dataset, or lists nothing.
pub fn parse(path: &Path, text: &mut dyn Read, fingerprint: Fingerprint) -> Result<Vec<u32>, DataError> {
    let images = fingerprint.images;
    let mut seen = vec![false; images];
    let mut indices = Vec::new();
    for line in lines(text, path, MAX_BYTES) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(line.trim_ascii());
        if let Some(got) = line.strip_prefix(FINGERPRINT_PREFIX)
            && got != fingerprint.to_string()
        {
            let (got, want) = (got.chars().take(40).collect(), fingerprint.to_string());
            return Err(DataError::OtherDataset { path: path.to_owned(), got, want });
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let invalid = |what: String| DataError::Line { path: path.to_owned(), line: number, what };
        let shown: String = line.chars().take(40).collect();
        let index: u32 = line.parse().map_err(|_| invalid(format!("`{shown}` is not an index")))?;
        match seen.get_mut(index as usize) {
            None => return Err(invalid(format!("index {index}, but there are {images} training images"))),
            Some(true) => return Err(invalid(format!("index {index} is repeated"))),
            Some(seen) => *seen = true,
        }
        indices.push(index);
    }
    if indices.is_empty() { Err(DataError::EmptySubset { path: path.to_owned() }) } else { Ok(indices) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: Fingerprint = Fingerprint { images: 8, hash: 0xab };

    #[test]
    fn a_subset_comes_back_as_it_was() {
        let indices = [7, 0, 3];
        let text = to_text(&indices, "cifar10\nimbalance 100", EIGHT);
        assert_eq!(text, "# cifar10\n# imbalance 100\n# fingerprint 8 00000000000000ab\n7\n0\n3\n");
        assert_eq!(parse(Path::new("f"), &mut text.as_bytes(), EIGHT).expect("good"), indices);
        assert_eq!(parse(Path::new("f"), &mut &b" 7 \r\n\n0\n3"[..], EIGHT).expect("good"), indices);
    }

    #[test]
    fn invalid_lines_are_named() {
        let error = |text: &str| parse(Path::new("f.txt"), &mut text.as_bytes(), EIGHT).expect_err("wrong").to_string();
        assert_eq!(error("1\nx"), "f.txt: line 2: `x` is not an index");
        assert_eq!(error("1\n\n-1"), "f.txt: line 3: `-1` is not an index");
        assert_eq!(error("8"), "f.txt: line 1: index 8, but there are 8 training images");
        assert_eq!(error(&format!("1\n{}", " ".repeat(70_000))), "f.txt: line 2: more than 65536 bytes");
        assert_eq!(error("# fingerprint 8 00000000000000ab\n# nothing\n"), "f.txt: it lists no image");
        let want = "f.txt: it belongs to another dataset: its fingerprint is 8 cd, that of the training images is 8 00000000000000ab";
        assert_eq!(error("# fingerprint 8 cd\n1"), want);
        assert_eq!(error("# a\n1\n2\n1"), "f.txt: line 4: index 1 is repeated");
    }

    #[test]
    fn fingerprints_tell_labels_and_paths_apart() {
        let files = |root: &str, names: [&str; 2], labels: [u32; 2]| {
            let images = Images::Files(names.iter().map(|name| Path::new(root).join(name)).collect());
            Fingerprint::of(&Split { images, labels: labels.to_vec() })
        };
        let one = files("/data/x", ["a/1.png", "b/1.png"], [0, 1]);
        assert_eq!(one, files("y", ["a/1.png", "b/1.png"], [0, 1]));
        assert_ne!(one, files("/data/x", ["a/1.png", "b/2.png"], [0, 1]));
        assert_ne!(one, files("/data/x", ["a/1.png", "b/1.png"], [1, 0]));
    }
}
