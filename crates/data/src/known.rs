//! Data sets by name or path.

use std::path::{Path, PathBuf};

use crate::embedded::{FASHION_NAMES, fashion_mini};
use crate::error::DataError;
use crate::format::folder::{self, Split};
use crate::format::{cifar, idx, inat, list, tiny_imagenet};
use crate::set::DataSet;
use crate::source::is_archive;

/// A set that can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    reader: Reader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Embedded,
    Cifar10,
    Cifar100,
    Idx(Option<&'static [&'static str]>),
    TinyImagenet,
    Tree,
    Inat,
}

/// Every set that can be named.
pub const KNOWN: &[Known] = &[
    Known {
        name: "fashion-mini",
        about: "a long-tailed cut of Fashion-MNIST inside the program",
        reader: Reader::Embedded,
    },
    Known {
        name: "fashion-mnist",
        about: "60,000 + 10,000 grey 28 x 28 images of 10 kinds of clothing",
        reader: Reader::Idx(Some(&FASHION_NAMES)),
    },
    Known { name: "mnist", about: "60,000 + 10,000 grey 28 x 28 images of digits", reader: Reader::Idx(None) },
    Known { name: "cifar10", about: "50,000 + 10,000 colour 32 x 32 images of 10 classes", reader: Reader::Cifar10 },
    Known { name: "cifar100", about: "50,000 + 10,000 colour 32 x 32 images of 100 classes", reader: Reader::Cifar100 },
    Known {
        name: "tiny-imagenet",
        about: "100,000 + 10,000 colour 64 x 64 images of 200 classes",
        reader: Reader::TinyImagenet,
    },
    Known {
        name: "imagenet",
        about: "1,281,167 + 50,000 photographs of 1,000 classes (train/, val/)",
        reader: Reader::Tree,
    },
    Known { name: "inat2017", about: "579,184 + 95,986 photographs of 5,089 species", reader: Reader::Inat },
];

/// Where named sets are kept: `given`, else the environment's `EQUIPOISE_DATA`, else the user's data folder.
#[must_use]
pub fn data_root(given: Option<&Path>) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given
        .map(Path::to_owned)
        .or_else(|| variable("EQUIPOISE_DATA"))
        .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("equipoise")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/equipoise")))
        .unwrap_or_else(|| PathBuf::from("equipoise-data"))
}

/// Reads a set by its name (from `root`) or from a path: a CIFAR folder or archive, a folder of IDX files, a list, or a
/// tree with a folder per class; a list or a tree without parts is split.
///
/// # Errors
/// Says what is missing or wrong, and where.
pub fn load(name_or_path: &str, root: &Path, split: Split) -> Result<DataSet, DataError> {
    if let Some(known) = Known::named(name_or_path) {
        return known.load(&root.join(known.name));
    }
    let path = Path::new(name_or_path);
    if !path.exists() {
        return Err(DataError::Unknown { name: name_or_path.to_owned() });
    }
    let name = path.file_name().map_or_else(|| name_or_path.to_owned(), |n| n.to_string_lossy().into_owned());
    let holds = |names: &[&str]| names.iter().any(|name| path.join(name).exists());
    if list::is_list(path) {
        return list::list(path, split);
    }
    if path.is_file() {
        if !is_archive(path)? {
            return Err(DataError::Unrecognised { path: path.to_owned() });
        }
        // an archive tells by what it holds
        return cifar::cifar10(path).or_else(|error| match error {
            DataError::Missing { .. } => cifar::cifar100(path),
            error => Err(error),
        });
    }
    if holds(&["data_batch_1.bin", "cifar-10-batches-bin"]) {
        cifar::cifar10(path)
    } else if holds(&["train.bin", "cifar-100-binary"]) {
        cifar::cifar100(path)
    } else if holds(&["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"]) {
        idx::folder(path, &name, None)
    } else if tiny_imagenet::is_tiny_imagenet(path) {
        tiny_imagenet::tiny_imagenet(path)
    } else if inat::is_inat(path) {
        inat::inat2017(path)
    } else if folder::is_tree(path) {
        folder::tree(path, split)
    } else {
        Err(DataError::Unrecognised { path: path.to_owned() })
    }
}

impl Known {
    /// The set of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// What an archive of it may unpack to: some times the official size.
    pub(crate) fn most_bytes(&self) -> u64 {
        match self.reader {
            Reader::Embedded => 0,
            Reader::Cifar10 | Reader::Cifar100 | Reader::Idx(_) => 1 << 30,
            Reader::TinyImagenet => 4 << 30,
            Reader::Tree | Reader::Inat => 1 << 40,
        }
    }

    /// Reads it from a folder (or, for CIFAR, the official archive).
    ///
    /// # Errors
    /// Says what is missing or wrong, and where.
    pub fn load(&self, path: &Path) -> Result<DataSet, DataError> {
        match self.reader {
            Reader::Embedded => fashion_mini(),
            Reader::Cifar10 => cifar::cifar10(path),
            Reader::Cifar100 => cifar::cifar100(path),
            Reader::Idx(names) => idx::folder(path, self.name, names),
            Reader::TinyImagenet => tiny_imagenet::tiny_imagenet(path),
            Reader::Tree => {
                folder::tree(path, Split::default()).map(|set| DataSet { name: self.name.to_owned(), ..set })
            }
            Reader::Inat => inat::inat2017(path),
        }
    }
}
