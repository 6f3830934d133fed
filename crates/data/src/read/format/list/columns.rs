//! Which columns of a CSV file, or fields of a JSON line, hold path, label and split.

use std::path::Path;

use super::entries::Fields;
use crate::error::DataError;
use crate::read::options::ReadOptions;

/// Usual names of the columns, the most telling first. Case, spaces, `_`, `-` and `.` do not matter.
const PATH: &[&str] = &[
    "path",
    "filepath",
    "imagepath",
    "imgpath",
    "file",
    "filename",
    "imagefile",
    "image",
    "imagename",
    "img",
    "imgname",
    "imageid",
    "id",
];
const LABEL: &[&str] = &[
    "label",
    "class",
    "category",
    "classname",
    "labelname",
    "categoryname",
    "classid",
    "labelid",
    "categoryid",
    "target",
];
const SPLIT: &[&str] = &["split", "part", "set", "subset"];

/// Where the fields of a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) path: usize,
    /// The column of the label, which a list of files to look at need not have.
    pub(super) label: Option<usize>,
    pub(super) split: Option<usize>,
    /// The column that tells which images belong together.
    pub(super) group: Option<usize>,
    /// Number of columns.
    pub(super) width: usize,
}

/// Why the columns of a header are not known.
#[derive(Debug)]
pub(super) enum UnknownColumn {
    /// A column that the user named is missing.
    Named { option: &'static str, name: String },
    /// No column has a usual name.
    Unnamed { options: &'static str, what: &'static str },
}

impl UnknownColumn {
    /// The error about the header in this line, or the fields of an object.
    pub(super) fn error(self, path: &Path, line: usize, header: &[&str]) -> DataError {
        let what = match self {
            Self::Named { option, name } => format!("there is no column `{name}` ({option})"),
            Self::Unnamed { options, what } => format!("no column is known to hold {what}; name it: {options}"),
        };
        let what = format!("the columns are `{}`: {what}", header.join(" | "));
        DataError::Line { path: path.to_owned(), line, what }
    }
}

impl Columns {
    /// The columns of a list without a header.
    pub(super) const UNNAMED: Self = Self { path: 0, label: Some(1), split: Some(2), group: None, width: 3 };

    /// The columns of a header, or of the fields of an object.
    pub(super) fn find(names: &[&str], options: &ReadOptions, fields: Fields<'_>) -> Result<Self, UnknownColumn> {
        let normal: Vec<String> = names.iter().map(|name| normalized(name)).collect();
        let usual = |known: &[&str]| known.iter().find_map(|known| normal.iter().position(|name| name == known));
        let expected = match fields {
            Fields::Path { usual: Some(name) } => normal.iter().position(|other| *other == normalized(name)),
            _ => None,
        };
        let column = |chosen: &Option<String>, option: &'static str, known: &[&str]| match chosen {
            Some(name) => match normal.iter().position(|other| *other == normalized(name)) {
                Some(column) => Ok(Some(column)),
                None => Err(UnknownColumn::Named { option, name: name.clone() }),
            },
            None => Ok(usual(known)),
        };
        let path = match (&options.path_column, expected) {
            (None, Some(expected)) => Some(expected),
            (chosen, _) => column(chosen, "--path-column", PATH)?,
        };
        let label = column(&options.label_column, "--label-column", LABEL)?;
        let group_by = options.group_by.as_ref().map(|by| normalized(by.text()));
        let group = group_by.and_then(|by| normal.iter().position(|name| *name == by));
        let unnamed = |options, what| Err(UnknownColumn::Unnamed { options, what });
        match (path, label) {
            (Some(path), label) if label.is_some() || fields != Fields::PathAndLabel => {
                Ok(Self { path, label, split: usual(SPLIT), group, width: names.len() })
            }
            (None, _) if label.is_some() || fields != Fields::PathAndLabel => {
                unnamed("--path-column NAME", "the image files")
            }
            (Some(_), _) => unnamed("--label-column NAME", "the classes"),
            (None, _) => unnamed("--path-column NAME --label-column NAME", "image files or classes"),
        }
    }

    pub(super) fn contain(&self, column: usize) -> bool {
        [Some(self.path), self.label, self.split, self.group].contains(&Some(column))
    }
}

/// Whether a word names a split.
pub(super) fn split_name(word: &str) -> Option<&'static str> {
    match word.to_ascii_lowercase().as_str() {
        "train" | "training" => Some("train"),
        "val" | "valid" | "validation" => Some("val"),
        "test" | "testing" => Some("test"),
        _ => None,
    }
}

/// A name without what does not matter.
fn normalized(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, ' ' | '_' | '-' | '.')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_other_programs() {
        let find = |header: &str| {
            let names: Vec<&str> = header.split(',').collect();
            let columns = Columns::find(&names, &ReadOptions::default(), Fields::PathAndLabel).ok()?;
            Some((columns.path, columns.label?))
        };
        let gtsrb = "Filename,Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId";
        for (header, want) in [
            (gtsrb, Some((0, 7))),
            ("file_name,label", Some((0, 1))),
            ("image_id,category", Some((0, 1))),
            ("id,label", Some((0, 1))),
            ("id,breed", None),
            ("ID,FileName,Class,Split", Some((1, 2))),
            ("category_id,category,Image Path", Some((2, 1))),
            ("x,y", None),
        ] {
            assert_eq!(find(header), want, "{header}");
        }
        let named = ReadOptions { label_column: Some("Breed".to_owned()), ..ReadOptions::default() };
        let find = |names: &[&str], options: &ReadOptions| Columns::find(names, options, Fields::PathAndLabel);
        assert_eq!(find(&["id", "breed"], &named).expect("named").label, Some(1));
        assert!(find(&["id", "label"], &named).is_err());
    }

    /// A list of files to look at needs no labels, and has its paths where the run had them.
    #[test]
    fn lists_without_labels() {
        let path = |names: &[&str], usual| {
            Columns::find(names, &ReadOptions::default(), Fields::Path { usual }).map(|columns| columns.path).ok()
        };
        assert_eq!(path(&["label", "id"], None), Some(1));
        assert_eq!(path(&["id"], Some("photo")), Some(0));
        assert_eq!(path(&["id", "Photo"], Some("photo")), Some(1));
        assert_eq!(path(&["photo", "breed"], None), None);
    }
}
