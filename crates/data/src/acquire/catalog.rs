//! The datasets that have a name: their official files, checksums and readers.

use std::path::{Path, PathBuf};

use super::embedded::{FASHION_NAMES, fashion_mini};
use crate::batch::normalize::Normalize;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::read::format::{cifar, class_folders, idx, inat, tiny_imagenet};
use crate::read::options::ReadOptions;

/// A dataset that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownDataset {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Files as its authors publish them; empty if they are not open to everybody.
    pub files: &'static [OfficialFile<'static>],
    /// Number of images and classes.
    pub size: DatasetSize,
    /// The usual shorter side of its images, in pixels.
    pub image_side: u32,
    reader: Reader,
}

/// Number of images and classes of a complete dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetSize {
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
    /// Classes.
    pub classes: usize,
}

/// A file as the authors of a dataset publish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfficialFile<'a> {
    /// URL of the file.
    pub url: &'a str,
    /// Size in bytes, if it is certain.
    pub bytes: Option<u64>,
    /// MD5 sum in hexadecimal, if it is certain.
    pub md5: Option<&'a str>,
}

impl OfficialFile<'static> {
    const fn new(url: &'static str, bytes: u64, md5: &'static str) -> Self {
        Self { url, bytes: Some(bytes), md5: Some(md5) }
    }
}

impl<'a> OfficialFile<'a> {
    /// Name of the file: the last part of its URL.
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

const FASHION_MNIST: &[OfficialFile<'static>] = &[
    OfficialFile::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz",
        26_421_880,
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ),
    OfficialFile::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz",
        29_515,
        "25c81989df183df01b3e8a0aad5dffbe",
    ),
    OfficialFile::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz",
        4_422_102,
        "bef4ecab320f06d8554ea6380940ec79",
    ),
    OfficialFile::new(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz",
        5_148,
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
];
/// The original server no longer answers; torchvision uses this mirror too.
const MNIST: &[OfficialFile<'static>] = &[
    OfficialFile::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
        9_912_422,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    ),
    OfficialFile::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz",
        28_881,
        "d53e105ee54ea40749a09fcbcd1e9432",
    ),
    OfficialFile::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
        1_648_877,
        "9fb629c4189551a2d022fa330f9573f3",
    ),
    OfficialFile::new(
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
        4_542,
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
];
const CIFAR10: &[OfficialFile<'static>] = &[OfficialFile::new(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
    "c32a1d4ab5d03f1284b67883e8d87530",
)];
const CIFAR100: &[OfficialFile<'static>] = &[OfficialFile::new(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    168_513_733,
    "03b5dce01913d631647c71ecec9e9cb8",
)];
const TINY_IMAGENET: &[OfficialFile<'static>] = &[OfficialFile::new(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    248_100_043,
    "90528d7ca1a48142e341f4ef8d21d0de",
)];
/// The authors publish a checksum of the images only, and no exact sizes. The annotations come first because they are small.
const INAT2017: &[OfficialFile<'static>] = &[
    OfficialFile {
        url: "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/train_val2017.zip",
        bytes: None,
        md5: None,
    },
    OfficialFile {
        url: "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/train_val_images.tar.gz",
        bytes: None,
        md5: Some("7c784ea5e424efaec655bd392f87301f"),
    },
];

/// Every dataset that is known by name.
pub const KNOWN_DATASETS: &[KnownDataset] = &[
    KnownDataset {
        name: "fashion-mini",
        about: "a long-tailed cut of Fashion-MNIST, built into the program",
        files: &[],
        size: DatasetSize { train: 1485, test: 1000, classes: 10 },
        image_side: 28,
        reader: Reader::Embedded,
    },
    KnownDataset {
        name: "fashion-mnist",
        about: "60,000 + 10,000 gray 28 x 28 images of 10 kinds of clothing",
        files: FASHION_MNIST,
        size: DatasetSize { train: 60_000, test: 10_000, classes: 10 },
        image_side: 28,
        reader: Reader::Idx(&FASHION_NAMES),
    },
    KnownDataset {
        name: "mnist",
        about: "60,000 + 10,000 gray 28 x 28 images of digits",
        files: MNIST,
        size: DatasetSize { train: 60_000, test: 10_000, classes: 10 },
        image_side: 28,
        reader: Reader::Idx(&DIGITS),
    },
    KnownDataset {
        name: "cifar10",
        about: "50,000 + 10,000 color 32 x 32 images of 10 classes",
        files: CIFAR10,
        size: DatasetSize { train: 50_000, test: 10_000, classes: 10 },
        image_side: 32,
        reader: Reader::Cifar10,
    },
    KnownDataset {
        name: "cifar100",
        about: "50,000 + 10,000 color 32 x 32 images of 100 classes",
        files: CIFAR100,
        size: DatasetSize { train: 50_000, test: 10_000, classes: 100 },
        image_side: 32,
        reader: Reader::Cifar100,
    },
    KnownDataset {
        name: "tiny-imagenet",
        about: "100,000 + 10,000 color 64 x 64 images of 200 classes",
        files: TINY_IMAGENET,
        size: DatasetSize { train: 100_000, test: 10_000, classes: 200 },
        image_side: 64,
        reader: Reader::TinyImagenet,
    },
    KnownDataset {
        name: "imagenet",
        about: "1,281,167 + 50,000 photographs of 1,000 classes (train/, val/)",
        files: &[],
        size: DatasetSize { train: 1_281_167, test: 50_000, classes: 1000 },
        image_side: 375,
        reader: Reader::Tree,
    },
    KnownDataset {
        name: "inat2017",
        about: "579,184 + 95,986 photographs of 5,089 species",
        files: INAT2017,
        size: DatasetSize { train: 579_184, test: 95_986, classes: 5089 },
        image_side: 600,
        reader: Reader::Inat,
    },
];

/// The folder of known datasets: `given`, else the environment variable `EQUIPOISE_DATA`, else the user's data folder.
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

impl KnownDataset {
    /// The dataset of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KNOWN_DATASETS.iter().find(|known| known.name == name)
    }

    /// Whether the dataset is built into the program.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.reader == Reader::Embedded
    }

    /// The published normalization of the dataset's pixels, if there is one.
    #[must_use]
    pub fn normalize(&self) -> Option<Normalize> {
        match self.reader {
            Reader::Cifar10 | Reader::Cifar100 => Some(Normalize::cifar()),
            Reader::Embedded | Reader::Idx(_) | Reader::TinyImagenet | Reader::Tree | Reader::Inat => None,
        }
    }

    /// Whether the published files are read as they are, without unpacking an archive.
    pub(crate) fn has_plain_files(&self) -> bool {
        matches!(self.reader, Reader::Idx(_))
    }

    /// Limit on the unpacked size: a few times the official size.
    pub(crate) fn max_unpacked_bytes(&self) -> u64 {
        match self.reader {
            Reader::Embedded => 0,
            Reader::Cifar10 | Reader::Cifar100 | Reader::Idx(_) => 1 << 30,
            Reader::TinyImagenet => 4 << 30,
            Reader::Tree | Reader::Inat => 1 << 40,
        }
    }

    /// Reads the dataset from a folder (or, for CIFAR, from the official archive).
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
            Reader::Tree => class_folders::tree(path, &ReadOptions::default())
                .map(|dataset| Dataset { name: self.name.to_owned(), ..dataset }),
            Reader::Inat => inat::inat2017(path),
        }
    }
}
