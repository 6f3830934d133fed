//! A subset as text, so that a table can be repeated by others: one position in the original training order per line, class
//! by class, in the order they were drawn. Lines that start with `#` say where it comes from and are ignored.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use crate::error::DataError;
use crate::source::{lines, open};

/// The largest file accepted: ten million positions.
const MOST: u64 = 128 << 20;

/// Writes a subset; `about` becomes comment lines.
#[must_use]
pub fn to_text(positions: &[u32], about: &str) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "# {line}");
    }
    for position in positions {
        let _ = writeln!(text, "{position}");
    }
    text
}

/// Reads a subset of a training set with `images` images from a file.
///
/// # Errors
/// Names the line that is no position, out of range or there twice.
pub fn read(path: &Path, images: usize) -> Result<Vec<u32>, DataError> {
    parse(path, &mut *open(path)?, images)
}

/// Reads a subset from its text; `path` is for messages.
///
/// # Errors
/// Names the line that is no position, out of range or there twice.
pub fn parse(path: &Path, text: &mut dyn Read, images: usize) -> Result<Vec<u32>, DataError> {
    let mut seen = vec![false; images];
    let mut positions = Vec::new();
    for line in lines(text, path, MOST) {
        let (number, line) = line?;
        let line = String::from_utf8_lossy(line.trim_ascii());
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
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subset_comes_back_as_it_was() {
        let positions = [7, 0, 3];
        let text = to_text(&positions, "cifar10\nimbalance 100");
        assert_eq!(text, "# cifar10\n# imbalance 100\n7\n0\n3\n");
        assert_eq!(parse(Path::new("f"), &mut text.as_bytes(), 8).expect("good"), positions);
        assert_eq!(parse(Path::new("f"), &mut &b" 7 \r\n\n0\n3"[..], 8).expect("good"), positions);
    }

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| parse(Path::new("f.txt"), &mut text.as_bytes(), 8).expect_err("wrong").to_string();
        assert_eq!(error("1\nx"), "f.txt: line 2: `x` is not a position");
        assert_eq!(error("1\n\n-1"), "f.txt: line 3: `-1` is not a position");
        assert_eq!(error("8"), "f.txt: line 1: position 8: there are 8 training images");
        assert_eq!(error(&format!("1\n{}", " ".repeat(70_000))), "f.txt: line 2: more than 65536 bytes");
        assert_eq!(error("# a\n1\n2\n1"), "f.txt: line 4: position 1 is there twice");
    }
}
