//! Bytes from files, never more than was asked for.
//!
//! All bytes of a dataset come through here. Gzip that unpacks to more than 100 times its size is refused.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
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

/// MD5 sum of a file, in hexadecimal.
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

/// Opens a file; gzip is unpacked.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, DataError> {
    File::open(path).and_then(unpacked).map_err(cannot_read(path))
}

/// Unpacks gzip, which is recognized by its first bytes; passes everything else through.
pub(crate) fn unpacked<'r>(mut packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut magic = Vec::new();
    packed.by_ref().take(2).read_to_end(&mut magic)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let all = io::Cursor::new(magic).chain(packed);
    Ok(if is_gzip { Box::new(GzipReader::new(all)) } else { Box::new(BufReader::with_capacity(1 << 16, all)) })
}

/// Unpacks a gzip stream, unless it is a bomb: after the first 8 MiB, at most 100 bytes may come from each packed byte.
/// (Images reach 1 to 20, lists up to 30, zeros 200 to 1,000.)
struct GzipReader<R> {
    /// The limit of `Take` counts the packed bytes.
    inner: MultiGzDecoder<io::Take<R>>,
    unpacked: u64,
}

impl<R: Read> GzipReader<R> {
    fn new(packed: R) -> Self {
        Self { inner: MultiGzDecoder::new(packed.take(u64::MAX)), unpacked: 0 }
    }
}

impl<R: Read> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.unpacked += read as u64;
        let packed = u64::MAX - self.inner.get_ref().limit();
        if self.unpacked > (8 << 20) + 100 * packed {
            let what = format!("a gzip bomb: its first {packed} bytes unpack to {}", self.unpacked);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(read)
    }
}

/// A reader that fails beyond a limit. Its user moves the limit on from item to item, so that no item can be larger than
/// allowed, whatever parses it.
pub(crate) struct LimitedReader<R> {
    inner: R,
    position: u64,
    limit: Rc<Cell<u64>>,
    what: &'static str,
}

impl<R: Read> LimitedReader<R> {
    /// `what` is the error beyond the limit.
    pub(crate) fn new(inner: R, limit: u64, what: &'static str) -> Self {
        Self { inner, position: 0, limit: Rc::new(Cell::new(limit)), what }
    }

    /// Allows `more` bytes from here, up to `total` in all.
    pub(crate) fn allow(&self, more: u64, total: u64) {
        self.limit.set(self.position.saturating_add(more).min(total));
    }

    /// The limit, which can be moved while another reader owns this one.
    pub(crate) fn limit(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.limit)
    }
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.limit.get().saturating_sub(self.position);
        // one byte more tells the end of the file from too much
        let length = usize::try_from(allowed.saturating_add(1)).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..length])?;
        self.position += read as u64;
        if read as u64 > allowed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, self.what));
        }
        Ok(read)
    }
}

/// Up to `limit` bytes of a reader. Memory grows only as bytes arrive.
pub(crate) fn up_to(reader: &mut dyn Read, limit: u64, path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes).map_err(cannot_read(path))?;
    Ok(bytes)
}

/// All bytes of a reader that announces `size` bytes; refused at once if that is more than `limit`.
pub(crate) fn at_most(reader: &mut dyn Read, size: u64, limit: u64, path: &Path) -> Result<Vec<u8>, DataError> {
    let too_many = |got| DataError::Limit { path: path.to_owned(), what: "bytes", got, limit };
    if size > limit {
        return Err(too_many(size));
    }
    let bytes = up_to(reader, limit + 1, path)?;
    if bytes.len() as u64 > limit { Err(too_many(bytes.len() as u64)) } else { Ok(bytes) }
}
