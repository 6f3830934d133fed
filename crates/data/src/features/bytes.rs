//! The bytes of a file, mapped into memory rather than loaded where the system can do that.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, or bytes that were unpacked from one.
pub(super) enum FileBytes {
    /// Pages that the system reads when they are needed, and may forget.
    #[cfg(unix)]
    Mapped(FileMap),
    /// In memory.
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        {
            let file = File::open(path)?;
            let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            if length > 0 {
                return FileMap::new(&file, length).map(Self::Mapped);
            }
            Ok(Self::Owned(Vec::new()))
        }
        #[cfg(not(unix))]
        {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut File::open(path)?, &mut bytes)?;
            Ok(Self::Owned(bytes))
        }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            #[cfg(unix)]
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A file that is mapped for reading. As with every mapped file, another process must not shorten it meanwhile.
#[cfg(unix)]
pub(super) struct FileMap {
    start: std::ptr::NonNull<u8>,
    length: usize,
}

#[cfg(unix)]
// SAFETY: a map owns its pages and only gives them out for reading, as a `Box<[u8]>` does, which is `Send`.
unsafe impl Send for FileMap {}
#[cfg(unix)]
// SAFETY: a shared map gives out its pages for reading only.
unsafe impl Sync for FileMap {}

#[cfg(unix)]
impl FileMap {
    /// Maps the first `length` bytes of a file, at least one.
    fn new(file: &File, length: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        // SAFETY: a new private mapping of an open file, at an address that the system chooses, touches no other memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = std::ptr::NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }
}

#[cfg(unix)]
impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` mapped `length` bytes for reading, and they stay mapped until the map is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

#[cfg(unix)]
impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these pages, and a map is dropped once. Unmapping what is mapped cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
