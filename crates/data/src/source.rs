//! Bytes from files, folders and archives, never more than was asked for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::DataError;

pub(crate) fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Read { path, source }
}

pub(crate) fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    let path = path.to_owned();
    move |source| DataError::Write { path, source }
}

/// Whether a name in an archive stays inside the folder that it is unpacked to.
pub(crate) fn inside(name: &Path) -> bool {
    name.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

/// A file's MD5 sum in hexadecimal.
pub(crate) fn md5_of(path: &Path) -> Result<String, DataError> {
    let mut file = File::open(path).map_err(cannot_read(path))?;
    let (mut context, mut buffer) = (md5::Context::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(format!("{:x}", context.finalize())),
            Ok(got) => context.consume(&buffer[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot_read(path)(error)),
        }
    }
}

/// A file's reader; gzip is told by its first bytes and unpacked.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, DataError> {
    let mut file = File::open(path).map_err(cannot_read(path))?;
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic).map_err(cannot_read(path))?;
    let zipped = magic == [0x1f, 0x8b];
    let whole = BufReader::with_capacity(1 << 16, io::Cursor::new(magic).chain(file));
    Ok(if zipped { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// Up to `most` bytes of a reader; memory grows only as bytes arrive.
pub(crate) fn up_to(reader: &mut dyn Read, most: u64, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    reader.take(most).read_to_end(&mut bytes).map_err(cannot_read(path))?;
    Ok(bytes)
}

/// Whether a file is a tar archive, packed or not.
pub(crate) fn is_archive(path: &Path) -> Result<bool, DataError> {
    let mut head = Vec::new();
    // what cannot be unpacked is no archive either
    let read = open(path)?.take(512).read_to_end(&mut head);
    Ok(read.is_ok() && head.get(257..262) == Some(b"ustar"))
}

/// The wanted files of a folder or a .tar.gz, by name, each of at most `most` bytes, with where they come from.
///
/// A folder is searched itself and in its subfolder `inner`; an archive wherever they lie in it.
pub(crate) fn named(
    path: &Path,
    inner: &str,
    wanted: &[&str],
    most: u64,
) -> Result<BTreeMap<String, Loaded>, DataError> {
    let mut found = BTreeMap::new();
    let mut keep = |name: &str, from: PathBuf, reader: &mut dyn Read| {
        let bytes = up_to(reader, most + 1, &from)?;
        if bytes.len() as u64 > most {
            return Err(DataError::Limit { path: from, what: "bytes", got: bytes.len() as u64, most });
        }
        found.insert(name.to_owned(), Loaded { path: from, bytes });
        Ok(())
    };
    let meta = path.metadata().map_err(cannot_read(path))?;
    if meta.is_dir() {
        for folder in [path.to_owned(), path.join(inner)] {
            for name in wanted {
                let file = folder.join(name);
                if file.is_file() {
                    keep(name, file.clone(), &mut *open(&file)?)?;
                }
            }
        }
    } else {
        let mut archive = tar::Archive::new(open(path)?);
        for entry in archive.entries().map_err(cannot_read(path))? {
            let mut entry = entry.map_err(cannot_read(path))?;
            let inside = entry.path().map_err(cannot_read(path))?.into_owned();
            let name = inside.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if entry.header().entry_type().is_file() && wanted.contains(&name.as_str()) {
                keep(&name, path.join(inside), &mut entry)?;
            }
        }
    }
    Ok(found)
}

/// A file that was read.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// The largest text file accepted.
const MOST_TEXT: u64 = 64 << 20;

/// A text file; bytes that are not UTF-8 are replaced.
pub(crate) fn text(path: &Path) -> Result<String, DataError> {
    let bytes = up_to(&mut *open(path)?, MOST_TEXT + 1, path)?;
    if bytes.len() as u64 > MOST_TEXT {
        return Err(DataError::Limit {
            path: path.to_owned(),
            what: "bytes",
            got: bytes.len() as u64,
            most: MOST_TEXT,
        });
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
