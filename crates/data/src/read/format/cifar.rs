//! CIFAR-10 and CIFAR-100 in their binary version: a folder or the official .tar.gz.
//!
//! A record is the label (for CIFAR-100 the coarse label, then the fine one, which is used) and 3 x 32 x 32 bytes, channel
//! after channel. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use crate::dataset::{Dataset, Images, Pixels, Split};
use crate::error::DataError;
use crate::read::source::{cannot_read, unpacked};
use crate::read::tar::{LoadedFile, wanted_entries, wanted_files};
use crate::subset::grouping::FileGroups;

/// Bytes of an image.
const IMAGE: usize = 3 * 32 * 32;
/// Limit on the records of a file: all records of the dataset.
const MAX_RECORDS: u64 = 60_000;

const NAMES_10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Files and records of one of the two datasets.
pub struct Layout {
    name: &'static str,
    /// Folder that the official archive unpacks to.
    folder: &'static str,
    /// Folder that the Python archive unpacks to.
    python: &'static str,
    /// Name of the official archive.
    archive: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    /// File with the class names.
    names_file: &'static str,
    /// Label bytes before the image; the last one is used.
    labels: usize,
    classes: usize,
}

/// Layout of CIFAR-10.
pub const CIFAR_10: Layout = Layout {
    name: "cifar10",
    folder: "cifar-10-batches-bin",
    python: "cifar-10-batches-py",
    archive: "cifar-10-binary.tar.gz",
    train: &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
    test: "test_batch.bin",
    names_file: "batches.meta.txt",
    labels: 1,
    classes: 10,
};

/// Layout of CIFAR-100.
pub const CIFAR_100: Layout = Layout {
    name: "cifar100",
    folder: "cifar-100-binary",
    python: "cifar-100-python",
    archive: "cifar-100-binary.tar.gz",
    train: &["train.bin"],
    test: "test.bin",
    names_file: "fine_label_names.txt",
    labels: 2,
    classes: 100,
};

/// Reads CIFAR-10 from a folder or archive.
///
/// # Errors
/// Names the file that is missing, truncated or has a label out of range.
pub fn cifar10(path: &Path) -> Result<Dataset, DataError> {
    CIFAR_10.read(path)
}

/// Reads CIFAR-100 from a folder or archive, with its fine labels.
///
/// # Errors
/// Names the file that is missing, truncated or has a label out of range.
pub fn cifar100(path: &Path) -> Result<Dataset, DataError> {
    CIFAR_100.read(path)
}

impl Layout {
    fn read(&self, path: &Path) -> Result<Dataset, DataError> {
        // the Python version has these files
        let python = |folder: &Path| {
            folder.join("batches.meta").is_file() || folder.join("meta").is_file() && folder.join("train").is_file()
        };
        if python(path) || python(&path.join(self.python)) {
            return Err(DataError::PythonCifar { path: path.to_owned(), archive: self.archive });
        }
        self.dataset(path, wanted_files(path, self.folder, &self.files(), self.max_bytes())?)
    }

    /// Reads the dataset from an archive, packed or not; `path` is for messages.
    ///
    /// # Errors
    /// Names the file that is missing, truncated or has a label out of range.
    pub fn archive(&self, path: &Path, reader: &mut dyn Read) -> Result<Dataset, DataError> {
        let mut reader = unpacked(reader).map_err(cannot_read(path))?;
        self.dataset(path, wanted_entries(path, &mut *reader, &self.files(), self.max_bytes())?)
    }

    fn files(&self) -> Vec<&'static str> {
        self.train.iter().copied().chain([self.test, self.names_file]).collect()
    }

    fn max_bytes(&self) -> u64 {
        MAX_RECORDS * (self.labels + IMAGE) as u64
    }

    fn dataset(&self, path: &Path, mut files: BTreeMap<String, LoadedFile>) -> Result<Dataset, DataError> {
        let mut split = |names: &[&str]| {
            let sizes = names.iter().filter_map(|name| Some(files.get(*name)?.bytes.len()));
            let (mut bytes, mut labels) = (Vec::with_capacity(sizes.sum()), Vec::new());
            for name in names {
                let missing = || DataError::Missing { folder: path.to_owned(), name: (*name).to_owned() };
                // each file is dropped when it has been read
                let file = files.remove(*name).ok_or_else(missing)?;
                self.records(&file.path, &file.bytes, &mut bytes, &mut labels)?;
            }
            let pixels = Pixels { channels: 3, height: 32, width: 32, bytes: bytes.into() };
            Ok(Split { images: Images::Memory(pixels), labels })
        };
        let (train, test) = (split(self.train)?, split(&[self.test])?);
        let classes = match files.get(self.names_file) {
            Some(file) => self.names(&file.path, &file.bytes)?,
            None if self.classes == 10 => NAMES_10.map(str::to_owned).to_vec(),
            None => (0..self.classes).map(|c| format!("class {c}")).collect(),
        };
        Ok(Dataset {
            name: self.name.to_owned(),
            classes,
            train,
            val: None,
            test,
            groups: FileGroups::default(),
            problems: Vec::new(),
        })
    }

    /// Reads the records of a file and appends their pixels and labels; `path` is for messages.
    ///
    /// # Errors
    /// If the file is truncated or has a label out of range.
    pub fn records(
        &self,
        path: &Path,
        file: &[u8],
        bytes: &mut Vec<u8>,
        labels: &mut Vec<u32>,
    ) -> Result<(), DataError> {
        let record = self.labels + IMAGE;
        if file.is_empty() || !file.len().is_multiple_of(record) {
            let (got, want) = (file.len() as u64, format!("a multiple of {record}"));
            return Err(DataError::Size { path: path.to_owned(), got, want });
        }
        for (number, record) in file.chunks_exact(record).enumerate() {
            let (head, image) = record.split_at(self.labels);
            let label = head[self.labels - 1];
            if usize::from(label) >= self.classes {
                let (path, label, classes) = (path.to_owned(), label.into(), self.classes);
                return Err(DataError::Label { path, record: number, label, classes });
            }
            labels.push(label.into());
            bytes.extend_from_slice(image);
        }
        Ok(())
    }

    /// Reads the class names; `path` is for messages.
    ///
    /// # Errors
    /// If there are not as many names as classes.
    pub fn names(&self, path: &Path, file: &[u8]) -> Result<Vec<String>, DataError> {
        let text = String::from_utf8_lossy(file);
        let names: Vec<String> = text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        if names.len() == self.classes {
            return Ok(names);
        }
        let what = format!("{} names for {} classes", names.len(), self.classes);
        Err(DataError::Line { path: path.to_owned(), line: names.len().min(self.classes) + 1, what })
    }
}
