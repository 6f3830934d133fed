//! IDX files, plain or gzip: MNIST, Fashion-MNIST and all datasets in the same format.
//!
//! Two zero bytes, the type (8: bytes), the number of dimensions, each dimension as a big-endian u32, then the bytes.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::dataset::{Dataset, Images, Pixels, Split};
use crate::error::DataError;
use crate::read::source::{cannot_read, open, up_to};
use crate::subset::grouping::FileGroups;

/// Limit on the bytes of a file's images.
const MAX_BYTES: u64 = 16 << 30;
/// Limit on the rows and columns of an image.
const MAX_SIDE: u64 = 4096;

/// Reads a folder with `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the two `t10k` files, each plain or `.gz`.
///
/// Without `names`, classes are named by their number.
///
/// # Errors
/// Names the file that is missing, truncated, too large or does not match the others.
pub fn folder(path: &Path, name: &str, names: Option<&[&str]>) -> Result<Dataset, DataError> {
    path.metadata().map_err(cannot_read(path))?;
    let train = split(path, "train")?;
    let test = split(path, "t10k")?;
    let [train_file, test_file] = ["train", "t10k"].map(|prefix| find(path, prefix, "images-idx3-ubyte"));
    if train.labels.is_empty() {
        return Err(DataError::NoImages { path: train_file? });
    }
    let size = |split: &Split| split.images.pixels().map_or((0, 0), |pixels| (pixels.width, pixels.height));
    if size(&train) != size(&test) {
        return Err(DataError::Shape { path: test_file?, got: size(&test), want: size(&train), other: train_file? });
    }
    let largest = train.labels.iter().chain(&test.labels).copied().max().unwrap_or(0) as usize;
    let classes = match names {
        Some(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        None => (0..=largest).map(|c| c.to_string()).collect::<Vec<_>>(),
    };
    for (prefix, split) in [("train", &train), ("t10k", &test)] {
        if let Some(record) = split.labels.iter().position(|l| *l as usize >= classes.len()) {
            let path = find(path, prefix, "labels-idx1-ubyte")?;
            let label = split.labels[record].into();
            return Err(DataError::Label { path, record, label, classes: classes.len() });
        }
    }
    Ok(Dataset {
        name: name.to_owned(),
        classes,
        train,
        val: None,
        test,
        groups: FileGroups::default(),
        problems: Vec::new(),
    })
}

/// One of the dataset's files.
fn find(folder: &Path, prefix: &str, kind: &str) -> Result<PathBuf, DataError> {
    // the official names, and the name that some archives unpack to
    let names = [
        format!("{prefix}-{kind}"),
        format!("{prefix}-{kind}.gz"),
        format!("{prefix}-{}", kind.replace("-idx", ".idx")),
    ];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| DataError::Missing { folder: folder.to_owned(), name: format!("{prefix}-{kind}[.gz]") })
}

fn split(folder: &Path, prefix: &str) -> Result<Split, DataError> {
    let (image_path, label_path) =
        (find(folder, prefix, "images-idx3-ubyte")?, find(folder, prefix, "labels-idx1-ubyte")?);
    let pixels = images(&image_path, &mut *open(&image_path)?)?;
    let reader = &mut *open(&label_path)?;
    let [number] = header::<1>(&label_path, reader)?;
    // compared before the labels are read
    if number != pixels.len() as u64 {
        return Err(DataError::Mismatch {
            path: label_path,
            what: "labels",
            got: number,
            other_what: "images",
            want: pixels.len() as u64,
            other: image_path,
        });
    }
    Ok(Split { images: Images::Memory(pixels), labels: numbers(&label_path, reader, number)? })
}

/// Reads the header of an IDX file of bytes: its dimensions.
fn header<const DIMENSIONS: usize>(path: &Path, reader: &mut dyn Read) -> Result<[u64; DIMENSIONS], DataError> {
    let head = up_to(reader, 4 + 4 * DIMENSIONS as u64, path)?;
    let magic = [0, 0, 8, DIMENSIONS as u8];
    if !head.starts_with(&magic) {
        let format = if DIMENSIONS == 3 { "an IDX file of images" } else { "an IDX file of labels" };
        return Err(DataError::Magic { path: path.to_owned(), format, got: head.into_iter().take(4).collect() });
    }
    let (words, rest) = head[4..].as_chunks::<4>();
    match <[[u8; 4]; DIMENSIONS]>::try_from(words) {
        Ok(words) if rest.is_empty() => Ok(words.map(|word| u32::from_be_bytes(word).into())),
        _ => {
            Err(DataError::Size { path: path.to_owned(), got: head.len() as u64, want: "a complete header".to_owned() })
        }
    }
}

/// Reads the bytes after a header of `head` bytes: exactly as many as it announces.
fn body(path: &Path, reader: &mut dyn Read, head: u64, want: u64) -> Result<Vec<u8>, DataError> {
    let bytes = up_to(reader, want + 1, path)?;
    if bytes.len() as u64 == want {
        return Ok(bytes);
    }
    let more = if bytes.len() as u64 > want { "no more than " } else { "" };
    let (got, want) = (head + bytes.len() as u64, format!("{more}{}", head + want));
    Err(DataError::Size { path: path.to_owned(), got, want })
}

/// Reads an IDX file of images.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn images(path: &Path, reader: &mut dyn Read) -> Result<Pixels, DataError> {
    let [number, height, width] = header::<3>(path, reader)?;
    let check = |what, got, limit| {
        if got <= limit { Ok(()) } else { Err(DataError::Limit { path: path.to_owned(), what, got, limit }) }
    };
    check("rows", height, MAX_SIDE)?;
    check("columns", width, MAX_SIDE)?;
    if height * width == 0 {
        let want = "images of at least one pixel".to_owned();
        return Err(DataError::Size { path: path.to_owned(), got: 16, want });
    }
    // at most 2^32 * 2^24, so it cannot overflow
    check("bytes of images", number * height * width, MAX_BYTES)?;
    let bytes = body(path, reader, 16, number * height * width)?;
    Ok(Pixels { channels: 1, height: height as usize, width: width as usize, bytes: bytes.into() })
}

/// Reads an IDX file of labels.
///
/// # Errors
/// Names the file and what is wrong with it.
pub fn labels(path: &Path, reader: &mut dyn Read) -> Result<Vec<u32>, DataError> {
    let [number] = header::<1>(path, reader)?;
    numbers(path, reader, number)
}

fn numbers(path: &Path, reader: &mut dyn Read, number: u64) -> Result<Vec<u32>, DataError> {
    Ok(body(path, reader, 8, number)?.into_iter().map(u32::from).collect())
}
