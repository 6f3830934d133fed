//! CIFAR-10 and CIFAR-100, the binary version: a folder or the official .tar.gz.
//!
//! A record is the label (for CIFAR-100 the coarse one, then the fine one, which is used) and 3 x 32 x 32 bytes, channel
//! after channel. Learning multiple layers of features from tiny images, Krizhevsky, 2009.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use crate::dataset::{Dataset, Images, Pixels, Split};
use crate::error::DataError;
use crate::read::source::{Loaded, cannot_read, members, named, unpacked};

/// Bytes of an image.
const IMAGE: usize = 3 * 32 * 32;
/// The most records that a file may have: those of the whole set.
const MOST_RECORDS: u64 = 60_000;

const NAMES_10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Which of the two: what their files look like.
pub struct Layout {
    name: &'static str,
    /// The folder that the official archive unpacks to.
    folder: &'static str,
    /// The folder that the archive for Python unpacks to.
    python: &'static str,
    /// The official archive.
    archive: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    /// The file with the classes' names.
    names_file: &'static str,
    /// Label bytes before the image; the last one counts.
    labels: usize,
    classes: usize,
}

/// CIFAR-10.
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

/// CIFAR-100.
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
/// Names the file that is missing, torn or has a label out of range.
pub fn cifar10(path: &Path) -> Result<Dataset, DataError> {
    CIFAR_10.read(path)
}

/// Reads CIFAR-100 from a folder or archive, with its fine labels.
///
/// # Errors
/// Names the file that is missing, torn or has a label out of range.
pub fn cifar100(path: &Path) -> Result<Dataset, DataError> {
    CIFAR_100.read(path)
}

impl Layout {
    fn read(&self, path: &Path) -> Result<Dataset, DataError> {
        // data_batch_1 or train beside batches.meta or meta: what Python pickled
        let python = |folder: &Path| {
            folder.join("batches.meta").is_file() || folder.join("meta").is_file() && folder.join("train").is_file()
        };
        if python(path) || python(&path.join(self.python)) {
            return Err(DataError::Python { path: path.to_owned(), archive: self.archive });
        }
        self.set(path, &named(path, self.folder, &self.files(), self.most_bytes())?)
    }

    /// Reads the set from an archive, packed or not; `path` is for messages.
    ///
    /// # Errors
    /// Names the file that is missing, torn or has a label out of range.
    pub fn archive(&self, path: &Path, reader: &mut dyn Read) -> Result<Dataset, DataError> {
        let mut reader = unpacked(reader).map_err(cannot_read(path))?;
        self.set(path, &members(path, &mut *reader, &self.files(), self.most_bytes())?)
    }

    fn files(&self) -> Vec<&'static str> {
        self.train.iter().copied().chain([self.test, self.names_file]).collect()
    }

    fn most_bytes(&self) -> u64 {
        MOST_RECORDS * (self.labels + IMAGE) as u64
    }

    fn set(&self, path: &Path, files: &BTreeMap<String, Loaded>) -> Result<Dataset, DataError> {
        let part = |names: &[&str]| {
            let (mut bytes, mut labels) = (Vec::new(), Vec::new());
            for name in names {
                let missing = || DataError::Missing { folder: path.to_owned(), name: (*name).to_owned() };
                let file = files.get(*name).ok_or_else(missing)?;
                self.records(&file.path, &file.bytes, &mut bytes, &mut labels)?;
            }
            let pixels = Pixels { channels: 3, height: 32, width: 32, bytes: bytes.into() };
            Ok(Split { images: Images::Memory(pixels), labels })
        };
        let (train, test) = (part(self.train)?, part(&[self.test])?);
        let classes = match files.get(self.names_file) {
            Some(file) => self.names(&file.path, &file.bytes)?,
            None if self.classes == 10 => NAMES_10.map(str::to_owned).to_vec(),
            None => (0..self.classes).map(|c| format!("class {c}")).collect(),
        };
        Ok(Dataset { name: self.name.to_owned(), classes, train, val: None, test, problems: Vec::new() })
    }

    /// Reads the records of a file (`path` is for messages) and puts pixels and labels behind those that are there.
    ///
    /// # Errors
    /// If the file is torn or has a label out of range.
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

    /// Reads the classes' names; `path` is for messages.
    ///
    /// # Errors
    /// If there are more or fewer than classes.
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
