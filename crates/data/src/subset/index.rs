//! A subset as text, so that a table can be repeated by others: one position in the original training order per line, class
//! by class, in the order they were drawn. Lines that start with `#` say where it comes from and are ignored, except for the
//! fingerprint of the training set, which has to be the right one where there is one.

use std::fmt::{self, Write};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::dataset::{Images, Split};
use crate::error::DataError;
use crate::read::source::{lines, open};

/// The largest file accepted: ten million positions.
const MOST: u64 = 128 << 20;

/// What the line with the fingerprint starts with.
const MARK: &str = "# fingerprint ";

/// What tells one training set from another: the number of images, and a hash of labels and, for files, of their places in the
/// folder that holds them all. So another split is another set, and one that was moved is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Number of images.
    pub images: usize,
    /// FNV-1a of the rest.
    pub hash: u64,
}

impl Fingerprint {
    /// That of a training set.
    #[must_use]
    pub fn of(part: &Split) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            hash = bytes.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        };
        part.labels.iter().for_each(|label| add(&label.to_le_bytes()));
        if let Images::Files(files) = &part.images {
            let folder = common(files);
            for file in files {
                add(file.strip_prefix(folder).unwrap_or(file).as_os_str().as_encoded_bytes());
                // no name has it
                add(&[0]);
            }
        }
        Self { images: part.labels.len(), hash }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x}", self.images, self.hash)
    }
}

/// The innermost folder that holds all files.
fn common(files: &[PathBuf]) -> &Path {
    let folder = files.first().and_then(|file| file.parent()).unwrap_or(Path::new(""));
    files.iter().fold(folder, |folder, file| {
        folder.ancestors().find(|folder| file.starts_with(folder)).unwrap_or(Path::new(""))
    })
}

/// Writes a subset of a training set; `about` becomes comment lines.
#[must_use]
pub fn to_text(positions: &[u32], about: &str, set: Fingerprint) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = writeln!(text, "{MARK}{set}");
    for position in positions {
        let _ = writeln!(text, "{position}");
    }
    text
}

/// Reads a subset of a training set from a file.
///
/// # Errors
/// Names the line that is no position, out of range or there twice; if the file is of another set, or lists nothing.
pub fn read(path: &Path, set: Fingerprint) -> Result<Vec<u32>, DataError> {
    parse(path, &mut *open(path)?, set)
}

/// Reads a subset from its text; `path` is for messages.
///
/// # Errors
/// Names the line that is no position, out of range or there twice; if the text is of another set, or lists nothing.
pub fn parse(path: &Path, text: &mut dyn Read, set: Fingerprint) -> Result<Vec<u32>, DataError> {
    let images = set.images;
    let mut seen = vec![false; images];
    let mut positions = Vec::new();
    for line in lines(text, path, MOST) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(line.trim_ascii());
        if let Some(got) = line.strip_prefix(MARK)
            && got != set.to_string()
        {
            let (got, want) = (got.chars().take(40).collect(), set.to_string());
            return Err(DataError::OtherSet { path: path.to_owned(), got, want });
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: String| DataError::Line { path: path.to_owned(), line: number, what };
        let shown: String = line.chars().take(40).collect();
        let position: u32 = line.parse().map_err(|_| wrong(format!("`{shown}` is not a position")))?;
        match seen.get_mut(position as usize) {
            None => return Err(wrong(format!("position {position}: there are {images} training images"))),
            Some(true) => return Err(wrong(format!("position {position} is there twice"))),
            Some(seen) => *seen = true,
        }
        positions.push(position);
    }
    if positions.is_empty() { Err(DataError::NoPositions { path: path.to_owned() }) } else { Ok(positions) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: Fingerprint = Fingerprint { images: 8, hash: 0xab };

    #[test]
    fn a_subset_comes_back_as_it_was() {
        let positions = [7, 0, 3];
        let text = to_text(&positions, "cifar10\nimbalance 100", EIGHT);
        assert_eq!(text, "# cifar10\n# imbalance 100\n# fingerprint 8 00000000000000ab\n7\n0\n3\n");
        assert_eq!(parse(Path::new("f"), &mut text.as_bytes(), EIGHT).expect("good"), positions);
        assert_eq!(parse(Path::new("f"), &mut &b" 7 \r\n\n0\n3"[..], EIGHT).expect("good"), positions);
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| parse(Path::new("f.txt"), &mut text.as_bytes(), EIGHT).expect_err("wrong").to_string();
        assert_eq!(error("1\nx"), "f.txt: line 2: `x` is not a position");
        assert_eq!(error("1\n\n-1"), "f.txt: line 3: `-1` is not a position");
        assert_eq!(error("8"), "f.txt: line 1: position 8: there are 8 training images");
        assert_eq!(error(&format!("1\n{}", " ".repeat(70_000))), "f.txt: line 2: more than 65536 bytes");
        assert_eq!(error("# fingerprint 8 00000000000000ab\n# nothing\n"), "f.txt: it lists no position");
        let want =
            "f.txt: a subset of another set: its fingerprint is 8 cd, that of the training images 8 00000000000000ab";
        assert_eq!(error("# fingerprint 8 cd\n1"), want);
        assert_eq!(error("# a\n1\n2\n1"), "f.txt: line 4: position 1 is there twice");
    }

    #[test]
    fn fingerprints_tell_labels_and_places_apart() {
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
