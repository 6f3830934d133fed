//! Data sets by name or path.

use std::path::{Path, PathBuf};

use crate::acquire::embedded::{FASHION_NAMES, fashion_mini};
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::format::class_folders::{self, SplitRule};
use crate::read::format::{cifar, idx, inat, list, tiny_imagenet};
use crate::read::source::{cannot_read, is_archive};

/// A set that can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is made of, as its makers publish it; empty where nobody may fetch it.
    pub files: &'static [Official<'static>],
    /// How large the whole of it is.
    pub size: Size,
    reader: Reader,
}

/// Images and classes of a whole set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
    /// Classes.
    pub classes: usize,
}

/// A file as a set's makers publish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Official<'a> {
    /// Where it is.
    pub url: &'a str,
    /// Its size, where that is certain.
    pub bytes: Option<u64>,
    /// Its MD5 sum in hexadecimal, where that is certain.
    pub md5: Option<&'a str>,
}

impl Official<'static> {
    const fn new(url: &'static str, bytes: u64, md5: &'static str) -> Self {
        Self { url, bytes: Some(bytes), md5: Some(md5) }
    }
}

impl<'a> Official<'a> {
    /// The last part of its address.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.url.rsplit('/').next().unwrap_or(self.url)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Embedded,
    Cifar10,
    Cifar100,
    Idx(&'static [&'static str]),
    TinyImagenet,
    Tree,
    Inat,
}

const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

const FASHION_MNIST: &[Official<'static>] = &[
    Official::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz",
        26_421_880,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ),
    Official::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz",
        29_515,
        "25c81989df183df01b3e8a0aad5dffbe",
    ),
    Official::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz",
        4_422_102,
        "bef4ecab320f06d8554ea6380940ec79",
    ),
    Official::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
        5_148,
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
];
/// The first address stopped answering; this mirror is the one that torchvision uses.
const MNIST: &[Official<'static>] = &[
    Official::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
        9_912_422,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    ),
    Official::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz",
        28_881,
        "d53e105ee54ea40749a09fcbcd1e9432",
    ),
    Official::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
        1_648_877,
        "9fb629c4189551a2d022fa330f9573f3",
    ),
    Official::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
        4_542,
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
];
const CIFAR10: &[Official<'static>] = &[Official::new(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
    "c32a1d4ab5d03f1284b67883e8d87530",
)];
const CIFAR100: &[Official<'static>] = &[Official::new(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    168_513_733,
    "03b5dce01913d631647c71ecec9e9cb8",
)];
const TINY_IMAGENET: &[Official<'static>] = &[Official::new(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    248_100_043,
    "90528d7ca1a48142e341f4ef8d21d0de",
)];
/// Its makers publish a sum of the images only, and no exact size. The annotations come first: they are small.
const INAT2017: &[Official<'static>] = &[
    Official {
        url: "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/train_val2017.zip",
        bytes: None,
        md5: None,
    },
    Official {
        url: "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/train_val_images.tar.gz",
        bytes: None,
        md5: Some("7c784ea5e424efaec655bd392f87301f"),
    },
];

/// Every set that can be named.
pub const KNOWN: &[Known] = &[
    Known {
        name: "fashion-mini",
        about: "a long-tailed cut of Fashion-MNIST inside the program",
        files: &[],
        size: Size { train: 1485, test: 1000, classes: 10 },
        reader: Reader::Embedded,
    },
    Known {
        name: "fashion-mnist",
        about: "60,000 + 10,000 grey 28 x 28 images of 10 kinds of clothing",
        files: FASHION_MNIST,
        size: Size { train: 60_000, test: 10_000, classes: 10 },
        reader: Reader::Idx(&FASHION_NAMES),
    },
    Known {
        name: "mnist",
        about: "60,000 + 10,000 grey 28 x 28 images of digits",
        files: MNIST,
        size: Size { train: 60_000, test: 10_000, classes: 10 },
        reader: Reader::Idx(&DIGITS),
    },
    Known {
        name: "cifar10",
        about: "50,000 + 10,000 colour 32 x 32 images of 10 classes",
        files: CIFAR10,
        size: Size { train: 50_000, test: 10_000, classes: 10 },
        reader: Reader::Cifar10,
    },
    Known {
        name: "cifar100",
        about: "50,000 + 10,000 colour 32 x 32 images of 100 classes",
        files: CIFAR100,
        size: Size { train: 50_000, test: 10_000, classes: 100 },
        reader: Reader::Cifar100,
    },
    Known {
        name: "tiny-imagenet",
        about: "100,000 + 10,000 colour 64 x 64 images of 200 classes",
        files: TINY_IMAGENET,
        size: Size { train: 100_000, test: 10_000, classes: 200 },
        reader: Reader::TinyImagenet,
    },
    Known {
        name: "imagenet",
        about: "1,281,167 + 50,000 photographs of 1,000 classes (train/, val/)",
        files: &[],
        size: Size { train: 1_281_167, test: 50_000, classes: 1000 },
        reader: Reader::Tree,
    },
    Known {
        name: "inat2017",
        about: "579,184 + 95,986 photographs of 5,089 species",
        files: INAT2017,
        size: Size { train: 579_184, test: 95_986, classes: 5089 },
        reader: Reader::Inat,
    },
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
pub fn load(name_or_path: &str, root: &Path, split: SplitRule) -> Result<Dataset, DataError> {
    if let Some(known) = Known::named(name_or_path) {
        let place = root.join(known.name);
        if known.reader != Reader::Embedded && is_missing(&place)? {
            return Err(DataError::NotHere { name: known.name, place });
        }
        return known.load(&place);
    }
    let path = Path::new(name_or_path);
    if is_missing(path)? {
        return Err(DataError::Unknown { name: name_or_path.to_owned() });
    }
    let name = class_folders::name_of(path);
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
            DataError::Missing { .. } => cifar::cifar100(path).map_err(|error| match error {
                DataError::Missing { .. } => DataError::ForeignArchive { path: path.to_owned() },
                error => error,
            }),
            error => Err(error),
        });
    }
    if holds(&["data_batch_1.bin", "cifar-10-batches-bin", "data_batch_1", "cifar-10-batches-py"]) {
        cifar::cifar10(path)
    } else if holds(&["train.bin", "cifar-100-binary", "cifar-100-python"]) {
        cifar::cifar100(path)
    } else if holds(&["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"]) {
        idx::folder(path, &name, None)
    } else if tiny_imagenet::is_tiny_imagenet(path) {
        tiny_imagenet::tiny_imagenet(path)
    } else if inat::is_inat(path) {
        inat::inat2017(path)
    } else if class_folders::is_tree(path)? {
        class_folders::tree(path, split)
    } else {
        Err(DataError::Unrecognised { path: path.to_owned() })
    }
}

/// Whether nothing is there; what the system does not let us see is an error.
fn is_missing(path: &Path) -> Result<bool, DataError> {
    path.try_exists().map(|there| !there).map_err(cannot_read(path))
}

impl Known {
    /// The set of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// Whether it is inside the program.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.reader == Reader::Embedded
    }

    /// Whether it is read from files as they are published, without unpacking an archive.
    pub(crate) fn has_plain_files(&self) -> bool {
        matches!(self.reader, Reader::Idx(_))
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
    pub fn load(&self, path: &Path) -> Result<Dataset, DataError> {
        match self.reader {
            Reader::Embedded => fashion_mini(),
            Reader::Cifar10 => cifar::cifar10(path),
            Reader::Cifar100 => cifar::cifar100(path),
            Reader::Idx(names) => idx::folder(path, self.name, Some(names)),
            Reader::TinyImagenet => tiny_imagenet::tiny_imagenet(path),
            Reader::Tree => {
                class_folders::tree(path, SplitRule::default()).map(|set| Dataset { name: self.name.to_owned(), ..set })
            }
            Reader::Inat => inat::inat2017(path),
        }
    }
}
