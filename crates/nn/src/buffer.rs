//! Memory for the kernels: zeroed, aligned so that no register's load crosses a cache line, and in large pages where the system
//! has them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Some f32, aligned.
pub(crate) struct Buffer {
    start: NonNull<f32>,
    length: usize,
    layout: Layout,
}

// SAFETY: a buffer owns its memory, as a `Vec` does.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// A cache line.
const LINE: usize = 64;
/// A large page: one entry of the CPU's address cache instead of 512.
const PAGE: usize = 2 << 20;

impl Buffer {
    pub(crate) fn new(length: usize) -> Self {
        let bytes = length.div_ceil(16).max(1) * LINE;
        let align = if bytes >= PAGE { PAGE } else { LINE };
        let layout = Layout::from_size_align(bytes, align).expect("lengths are those of vectors");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        ask_for_large_pages(start, bytes / PAGE * PAGE);
        // SAFETY: the memory is ours and has that many bytes; zeros are floats.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Self { start: start.cast(), length, layout }
    }

    /// With whole large pages.
    pub(crate) fn in_pages(length: usize) -> Self {
        Self::new(length.next_multiple_of(PAGE / 4))
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.start.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.start.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has it any more.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// Tells the system that this memory is used as a whole.
fn ask_for_large_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes > 0 {
        // SAFETY: the memory is ours, starts at a page and has that many bytes. It is advice: what comes of it does not matter.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: there are at least `length` values, all of them written.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length) }
    }
}
