//! Zip archives, read through the directory at their end.
//!
//! The directory is read by its size in bytes and not by its number of entries, because some archivers let that number
//! overflow beyond 65,535 files. Stored and deflated entries are read and checked
//! against their sizes and checksums. Entries that are encrypted, links, or outside the target folder are refused.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::source::cannot_read;
use super::tar::stays_inside;
use crate::error::DataError;

/// Size limit of the directory: more than a million entries.
const MAX_DIRECTORY: u64 = 256 << 20;

/// Whether a file with these first bytes is a zip archive.
pub(crate) fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

/// Calls `visit` for every entry in the order of the directory: with its name, and with a reader if it is a file. The reader
/// checks the size and checksum when it reaches the end of the file.
///
/// # Errors
/// If the archive is corrupt or hostile, and what `visit` returns.
pub(crate) fn walk(
    path: &Path,
    reader: &mut (impl Read + Seek),
    mut visit: impl FnMut(&Path, Option<&mut dyn Read>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    walk_places(path, reader, |name, entry| visit(name, entry.map(|(_, reader)| reader)))
}

/// Where the bytes of an entry are in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    /// Where its packed bytes start.
    pub(crate) start: u64,
    /// Number of its bytes once unpacked.
    pub(crate) size: u64,
    /// Whether it is stored as it is, so that it can be read in place.
    pub(crate) is_stored: bool,
}

/// As [`walk`], with the place of every file in the archive.
///
/// # Errors
/// As [`walk`].
pub(crate) fn walk_places(
    path: &Path,
    reader: &mut (impl Read + Seek),
    mut visit: impl FnMut(&Path, Option<(EntryPlace, &mut dyn Read)>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let corrupt = |what| corrupt(path, what);
    let Directory { bytes, start, count } = directory(path, reader)?;
    let (mut rest, mut counted) = (&bytes[..], 0u64);
    let (mut size, mut packed) = (0u64, 0u64);
    while !rest.is_empty() {
        let entry = Entry::next(path, &mut rest)?;
        counted += 1;
        let hostile = |what| DataError::HostileArchive { path: path.to_owned(), entry: entry.name.clone(), what };
        if !stays_inside(&entry.name) || entry.name.as_os_str().is_empty() {
            return Err(hostile("it would be unpacked outside the folder"));
        }
        // the Unix file type, where the archiver recorded it
        if !matches!(entry.mode >> 12, 0 | 0o4 | 0o10) {
            return Err(hostile("neither a file nor a folder"));
        }
        if entry.folder {
            visit(&entry.name, None)?;
            continue;
        }
        if entry.flags & 0x2041 != 0 {
            return Err(hostile("it is encrypted"));
        }
        // the same limit as for gzip; bytes that several entries share count once
        (size, packed) = (size.saturating_add(entry.size), packed.saturating_add(entry.packed).min(start));
        if size > packed.saturating_mul(100).saturating_add(8 << 20) {
            return Err(hostile("a zip bomb: more than 100 times what is packed"));
        }
        let head: [u8; 30] = read_at(reader, entry.local).map_err(cannot_read(path))?;
        if !head.starts_with(b"PK\x03\x04") {
            return Err(corrupt("an entry is not where the directory says"));
        }
        let data = entry.local + 30 + u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
        if data.checked_add(entry.packed).is_none_or(|end| end > start) {
            return Err(corrupt("an entry runs past the end of the archive"));
        }
        reader.seek(SeekFrom::Start(data)).map_err(cannot_read(path))?;
        let packed = reader.by_ref().take(entry.packed);
        let place = EntryPlace { start: data, size: entry.size, is_stored: entry.method == 0 };
        if place.is_stored && entry.packed != entry.size {
            return Err(corrupt("a stored entry has two sizes"));
        }
        match entry.method {
            0 => visit(&entry.name, Some((place, &mut CheckedReader::new(packed, &entry))))?,
            8 => visit(&entry.name, Some((place, &mut CheckedReader::new(DeflateDecoder::new(packed), &entry))))?,
            _ => return Err(hostile("neither stored nor deflated")),
        }
    }
    if count.is_none_or(|count| count == counted) {
        Ok(())
    } else {
        Err(corrupt("entries are missing from its directory"))
    }
}

fn corrupt(path: &Path, what: &'static str) -> DataError {
    DataError::Read { path: path.to_owned(), source: invalid(what) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The list of entries.
struct Directory {
    bytes: Vec<u8>,
    /// Where the directory starts and all entries have ended.
    start: u64,
    /// Number of entries, unless it may have overflowed.
    count: Option<u64>,
}

fn directory(path: &Path, reader: &mut (impl Read + Seek)) -> Result<Directory, DataError> {
    let corrupt = |what| corrupt(path, what);
    let size = reader.seek(SeekFrom::End(0)).map_err(cannot_read(path))?;
    // the end record has 22 bytes, and a comment of up to 65,535
    let tail_at = size.saturating_sub(22 + 65_535);
    reader.seek(SeekFrom::Start(tail_at)).map_err(cannot_read(path))?;
    let mut tail = Vec::new();
    reader.by_ref().take(size - tail_at).read_to_end(&mut tail).map_err(cannot_read(path))?;
    let is_end = |record: &[u8]| {
        record.starts_with(b"PK\x05\x06") && record.len() >= 22 && 22 + usize::from(u16_at(record, 20)) == record.len()
    };
    let end = (0..tail.len().saturating_sub(21)).rev().find(|at| is_end(&tail[*at..]));
    let end = end.ok_or_else(|| corrupt("not a complete zip archive: its end is missing"))?;
    let record = &tail[end..];
    let (mut count, mut length, mut start) =
        (u64::from(u16_at(record, 10)), u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)));
    let zip64 = end.checked_sub(20).map(|at| &tail[at..end]).filter(|locator| locator.starts_with(b"PK\x06\x07"));
    if let Some(locator) = zip64 {
        let record: [u8; 56] = read_at(reader, u64_at(locator, 8)).map_err(cannot_read(path))?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(corrupt("its zip64 end record is missing"));
        }
        (count, length, start) = (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48));
    }
    if length > MAX_DIRECTORY {
        let (what, got, limit) = ("bytes of the zip directory", length, MAX_DIRECTORY);
        return Err(DataError::Limit { path: path.to_owned(), what, got, limit });
    }
    if start.checked_add(length).is_none_or(|after| after > tail_at + end as u64) {
        return Err(corrupt("its directory runs past its end"));
    }
    reader.seek(SeekFrom::Start(start)).map_err(cannot_read(path))?;
    let mut bytes = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut bytes).map_err(cannot_read(path))?;
    // a 16-bit count may have overflowed; no entry is shorter than 46 bytes
    let count = (zip64.is_some() || length / 46 <= u64::from(u16::MAX)).then_some(count);
    Ok(Directory { bytes, start, count })
}

/// An entry of the directory.
struct Entry {
    name: PathBuf,
    folder: bool,
    flags: u16,
    method: u16,
    mode: u32,
    crc: u32,
    packed: u64,
    size: u64,
    /// Offset of the entry's own header.
    local: u64,
}

impl Entry {
    /// Takes an entry off the directory's bytes.
    fn next(path: &Path, rest: &mut &[u8]) -> Result<Self, DataError> {
        let corrupt = |what| corrupt(path, what);
        let short = || corrupt("its directory is corrupt");
        let (head, more) = rest.split_at_checked(46).ok_or_else(short)?;
        if !head.starts_with(b"PK\x01\x02") {
            return Err(short());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(head, at)));
        let (name, more) = more.split_at_checked(name).ok_or_else(short)?;
        let (extra, more) = more.split_at_checked(extra).ok_or_else(short)?;
        *rest = more.get(comment..).ok_or_else(short)?;
        let name = std::str::from_utf8(name).map_err(|_| corrupt("an entry's name is not UTF-8"))?;
        let [packed, size, local] = [20, 24, 42].map(|at| u32_at(head, at));
        let mut long = zip64_sizes(extra);
        // the 64-bit values come in this order, each only where the 32-bit one is full
        let mut value = |short: u32| {
            if short < u32::MAX {
                Ok(u64::from(short))
            } else {
                long.next().ok_or_else(|| corrupt("a size is missing"))
            }
        };
        let (size, packed, local) = (value(size)?, value(packed)?, value(local)?);
        Ok(Self {
            folder: name.ends_with('/'),
            name: PathBuf::from(name),
            flags: u16_at(head, 8),
            method: u16_at(head, 10),
            mode: u32_at(head, 38) >> 16,
            crc: u32_at(head, 16),
            packed,
            size,
            local: local.min(u64::MAX / 2),
        })
    }
}

/// The 64-bit sizes in an entry's extra fields.
fn zip64_sizes(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while let Some((head, more)) = extra.split_at_checked(4) {
        let Some((field, more)) = more.split_at_checked(usize::from(u16_at(head, 2))) else { break };
        if u16_at(head, 0) == 1 {
            found = field;
            break;
        }
        extra = more;
    }
    found.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// A reader that returns exactly the announced bytes, or an error.
struct CheckedReader<R> {
    inner: R,
    remaining: u64,
    crc: Crc,
    want: u32,
}

impl<R: Read> CheckedReader<R> {
    fn new(inner: R, entry: &Entry) -> Self {
        Self { inner, remaining: entry.size, crc: Crc::new(), want: entry.crc }
    }
}

impl<R: Read> Read for CheckedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.remaining =
            self.remaining.checked_sub(got as u64).ok_or_else(|| invalid("an entry is larger than it says"))?;
        self.crc.update(&buffer[..got]);
        if got == 0 && !buffer.is_empty() {
            if self.remaining > 0 {
                return Err(invalid("an entry is smaller than it says"));
            }
            if self.crc.sum() != self.want {
                return Err(invalid("an entry's checksum is wrong"));
            }
        }
        Ok(got)
    }
}

fn read_at<const N: usize>(reader: &mut (impl Read + Seek), at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.seek(SeekFrom::Start(at.min(i64::MAX as u64)))?;
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
