//! Bytes from files, folders and archives, never more than was asked for.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

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

/// A file's reader; gzip is unpacked.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, DataError> {
    File::open(path).and_then(unpacked).map_err(cannot_read(path))
}

/// A reader of what another one reads; gzip is told by its first bytes and unpacked, unless it is a bomb.
pub(crate) fn unpacked<'r>(mut packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut magic = Vec::new();
    packed.by_ref().take(2).read_to_end(&mut magic)?;
    let zipped = magic == [0x1f, 0x8b];
    let whole = io::Cursor::new(magic).chain(packed);
    Ok(if zipped { Box::new(Unzipped::new(whole)) } else { Box::new(BufReader::with_capacity(1 << 16, whole)) })
}

/// What a gzip stream unpacks to, as long as that is believable: more than 100 bytes for every packed one, beside the first
/// 8 MiB, are a bomb. (Images have 1 to 20, lists up to 30, zeros 200 to 1,000.)
struct Unzipped<R> {
    /// The limit of `Take` counts what was read.
    inner: MultiGzDecoder<io::Take<R>>,
    out: u64,
}

impl<R: Read> Unzipped<R> {
    fn new(packed: R) -> Self {
        Self { inner: MultiGzDecoder::new(packed.take(u64::MAX)), out: 0 }
    }
}

impl<R: Read> Read for Unzipped<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.out += read as u64;
        let packed = u64::MAX - self.inner.get_ref().limit();
        if self.out > (8 << 20) + 100 * packed {
            let what = format!("a gzip bomb: its first {packed} bytes unpack to {}", self.out);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(read)
    }
}

/// A reader that fails behind a limit, which its user moves on from item to item: so no item can be larger than allowed,
/// whoever reads it.
pub(crate) struct Metered<R> {
    inner: R,
    at: u64,
    limit: Rc<Cell<u64>>,
    what: &'static str,
}

impl<R: Read> Metered<R> {
    /// `what` says what is too large behind the limit.
    pub(crate) fn new(inner: R, limit: u64, what: &'static str) -> Self {
        Self { inner, at: 0, limit: Rc::new(Cell::new(limit)), what }
    }

    /// Allows this many bytes from here, up to `most` in all.
    pub(crate) fn allow(&self, more: u64, most: u64) {
        self.limit.set(self.at.saturating_add(more).min(most));
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = self.limit.get().saturating_sub(self.at);
        // one byte more, to tell the end from too much
        let most = usize::try_from(room.saturating_add(1)).unwrap_or(usize::MAX).min(into.len());
        let read = self.inner.read(&mut into[..most])?;
        self.at += read as u64;
        if read as u64 > room {
            return Err(io::Error::new(io::ErrorKind::InvalidData, self.what));
        }
        Ok(read)
    }
}

/// What some programs write before UTF-8; it is no part of the text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A text's reader without the mark.
pub(crate) fn unmarked(reader: &mut dyn Read) -> io::Result<impl Read> {
    let mut head = Vec::new();
    reader.take(MARK.len() as u64).read_to_end(&mut head)?;
    if head == MARK {
        head.clear();
    }
    Ok(io::Cursor::new(head).chain(reader))
}

/// A hash of 64 bits (FNV-1a).
pub fn fnv1a<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The longest line of a text file.
pub(crate) const MOST_LINE: u64 = 1 << 16;

/// The lines of a text file of at most `most` bytes, without their ends, numbered from 1.
pub(crate) fn lines<'a>(
    reader: &'a mut dyn Read,
    path: &'a Path,
    most: u64,
) -> impl Iterator<Item = Result<(usize, Vec<u8>), DataError>> {
    let mut reader = BufReader::new(Metered::new(reader, most, "the file is too long"));
    let mut number = 0;
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MOST_LINE + 1).read_until(b'\n', &mut line);
        number += 1;
        match read {
            Ok(0) => None,
            Ok(_) if line.len() as u64 > MOST_LINE => {
                let what = format!("more than {MOST_LINE} bytes");
                Some(Err(DataError::Line { path: path.to_owned(), line: number, what }))
            }
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                if number == 1 && line.starts_with(MARK) {
                    line.drain(..MARK.len());
                }
                Some(Ok((number, line)))
            }
            Err(error) => Some(Err(cannot_read(path)(error))),
        }
    })
}

/// Bytes that may stand before an entry of an archive: its header, long names, attributes.
const MOST_HEAD: u64 = 1 << 20;
/// Entries of an archive.
const MOST_ENTRIES: usize = 4_000_000;

/// What is in an archive.
type Member<'a, 'r> = tar::Entry<'a, Metered<&'r mut dyn Read>>;

/// A tar archive. Whatever its headers say, memory is taken for [`MOST_HEAD`] bytes of them at most.
pub(crate) struct Archive<'r> {
    inner: tar::Archive<Metered<&'r mut dyn Read>>,
    limit: Rc<Cell<u64>>,
}

impl<'r> Archive<'r> {
    pub(crate) fn new(reader: &'r mut dyn Read) -> Self {
        let reader = Metered::new(reader, MOST_HEAD, "an entry's name and attributes are too long");
        let limit = Rc::clone(&reader.limit);
        Self { inner: tar::Archive::new(reader), limit }
    }

    /// What is in it; `path` is for messages.
    pub(crate) fn entries<'a>(
        &'a mut self,
        path: &'a Path,
    ) -> Result<impl Iterator<Item = Result<Member<'a, 'r>, DataError>>, DataError> {
        let limit = Rc::clone(&self.limit);
        let entries = self.inner.entries().map_err(cannot_read(path))?;
        Ok(entries.enumerate().map(move |(number, entry)| {
            let entry = entry.map_err(cannot_read(path))?;
            if number >= MOST_ENTRIES {
                let (got, most) = (number as u64 + 1, MOST_ENTRIES as u64);
                return Err(DataError::Limit { path: path.to_owned(), what: "entries", got, most });
            }
            // the size of a sparse file counts holes that are not in the archive
            let sparse = entry.header().entry_type().is_gnu_sparse();
            let size = if sparse { entry.header().entry_size().unwrap_or(0) } else { entry.size() };
            limit.set(entry.raw_file_position().saturating_add(size).saturating_add(MOST_HEAD));
            Ok(entry)
        }))
    }
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
    if !path.metadata().map_err(cannot_read(path))?.is_dir() {
        return members(path, &mut *open(path)?, wanted, most);
    }
    let mut found = BTreeMap::new();
    for folder in [path.to_owned(), path.join(inner)] {
        for name in wanted {
            let file = folder.join(name);
            if file.is_file() {
                let size = file.metadata().map_err(cannot_read(&file))?.len();
                let bytes = at_most(&mut *open(&file)?, size, most, &file)?;
                found.insert((*name).to_owned(), Loaded { path: file, bytes });
            }
        }
    }
    Ok(found)
}

/// The wanted files of an archive; `path` is for messages.
pub(crate) fn members(
    path: &Path,
    reader: &mut dyn Read,
    wanted: &[&str],
    most: u64,
) -> Result<BTreeMap<String, Loaded>, DataError> {
    let mut found = BTreeMap::new();
    for entry in Archive::new(reader).entries(path)? {
        let mut entry = entry?;
        let inside = entry.path().map_err(cannot_read(path))?.into_owned();
        let name = inside.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.header().entry_type().is_file() && wanted.contains(&name) {
            let Entry::Vacant(place) = found.entry(name.to_owned()) else {
                let what = "there is another file of this name";
                return Err(DataError::Hostile { path: path.to_owned(), entry: inside, what });
            };
            let from = path.join(&inside);
            let size = entry.size();
            let bytes = at_most(&mut entry, size, most, &from)?;
            if bytes.len() as u64 != size {
                return Err(DataError::Size { path: from, got: bytes.len() as u64, want: size.to_string() });
            }
            place.insert(Loaded { path: from, bytes });
        }
    }
    Ok(found)
}

/// All bytes of a reader, which is said to have `size`; refused at once if that is more than `most`.
fn at_most(reader: &mut dyn Read, size: u64, most: u64, path: &Path) -> Result<Vec<u8>, DataError> {
    let too_many = |got| DataError::Limit { path: path.to_owned(), what: "bytes", got, most };
    if size > most {
        return Err(too_many(size));
    }
    let bytes = up_to(reader, most + 1, path)?;
    if bytes.len() as u64 > most { Err(too_many(bytes.len() as u64)) } else { Ok(bytes) }
}

/// A file that was read.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}
