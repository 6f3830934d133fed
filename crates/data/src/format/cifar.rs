//! CIFAR-10 and CIFAR-100, the binary version: a folder or the official .tar.gz.
//!
//! A record is the label (for CIFAR-100 the coarse one, then the fine one, which is used) and 3 x 32 x 32 bytes, channel
//! after channel. Learning multiple layers of features from tiny images, Krizhevsky, 2009.

use std::path::Path;

use crate::error::DataError;
use crate::set::{DataSet, Images, Part, Pixels};
use crate::source::{Loaded, named};

/// Bytes of an image.
const IMAGE: usize = 3 * 32 * 32;
/// The largest file accepted: the official ones have at most 154 MB.
const MOST: u64 = 1 << 30;

const NAMES_10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Which of the two.
struct Layout {
    name: &'static str,
    /// The folder that the official archive unpacks to.
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    names: &'static str,
    /// Label bytes before the image; the last one counts.
    labels: usize,
    classes: usize,
}

const CIFAR_10: Layout = Layout {
    name: "cifar10",
    folder: "cifar-10-batches-bin",
    train: &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
    test: "test_batch.bin",
    names: "batches.meta.txt",
    labels: 1,
    classes: 10,
};

const CIFAR_100: Layout = Layout {
    name: "cifar100",
    folder: "cifar-100-binary",
    train: &["train.bin"],
    test: "test.bin",
    names: "fine_label_names.txt",
    labels: 2,
    classes: 100,
};

/// Reads CIFAR-10 from a folder or archive.
///
/// # Errors
/// Names the file that is missing, torn or has a label out of range.
pub fn cifar10(path: &Path) -> Result<DataSet, DataError> {
    CIFAR_10.read(path)
}

/// Reads CIFAR-100 from a folder or archive, with its fine labels.
///
/// # Errors
/// Names the file that is missing, torn or has a label out of range.
pub fn cifar100(path: &Path) -> Result<DataSet, DataError> {
    CIFAR_100.read(path)
}

impl Layout {
    fn read(&self, path: &Path) -> Result<DataSet, DataError> {
        let wanted: Vec<&str> = self.train.iter().copied().chain([self.test, self.names]).collect();
        let files = named(path, self.folder, &wanted, MOST)?;
        let part = |names: &[&str]| {
            let (mut bytes, mut labels) = (Vec::new(), Vec::new());
            for name in names {
                let missing = || DataError::Missing { folder: path.to_owned(), name: (*name).to_owned() };
                self.records(files.get(*name).ok_or_else(missing)?, &mut bytes, &mut labels)?;
            }
            let pixels = Pixels { channels: 3, height: 32, width: 32, bytes: bytes.into() };
            Ok(Part { images: Images::Memory(pixels), labels })
        };
        let (train, test) = (part(self.train)?, part(&[self.test])?);
        let classes = match files.get(self.names) {
            Some(file) => self.read_names(file)?,
            None if self.classes == 10 => NAMES_10.map(str::to_owned).to_vec(),
            None => (0..self.classes).map(|c| format!("class {c}")).collect(),
        };
        Ok(DataSet { name: self.name.to_owned(), classes, train, val: None, test, problems: Vec::new() })
    }

    fn records(&self, file: &Loaded, bytes: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<(), DataError> {
        let record = self.labels + IMAGE;
        if file.bytes.is_empty() || !file.bytes.len().is_multiple_of(record) {
            let (got, want) = (file.bytes.len() as u64, format!("a multiple of {record}"));
            return Err(DataError::Size { path: file.path.clone(), got, want });
        }
        for (number, record) in file.bytes.chunks_exact(record).enumerate() {
            let (head, image) = record.split_at(self.labels);
            let label = head[self.labels - 1];
            if usize::from(label) >= self.classes {
                let (path, label, classes) = (file.path.clone(), label.into(), self.classes);
                return Err(DataError::Label { path, record: number, label, classes });
            }
            labels.push(label.into());
            bytes.extend_from_slice(image);
        }
        Ok(())
    }

    fn read_names(&self, file: &Loaded) -> Result<Vec<String>, DataError> {
        let text = String::from_utf8_lossy(&file.bytes);
        let names: Vec<String> = text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
        if names.len() == self.classes {
            return Ok(names);
        }
        let what = format!("{} names for {} classes", names.len(), self.classes);
        Err(DataError::Line { path: file.path.clone(), line: names.len().min(self.classes) + 1, what })
    }
}
