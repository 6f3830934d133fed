//! Memory for the kernels: zeroed, aligned so that no vector crosses a cache line, and in huge pages where the system has them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// An aligned array of f32.
pub(crate) struct Buffer {
    start: NonNull<f32>,
    length: usize,
    layout: Layout,
}

// SAFETY: a buffer owns its memory, as a `Vec<f32>` does, which is `Send`.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer gives out its memory for reading only, as a `Vec<f32>` does, which is `Sync`.
unsafe impl Sync for Buffer {}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a huge page, which takes one entry of the TLB instead of 512.
const PAGE: usize = 2 << 20;

impl Buffer {
    /// Allocates zeros.
    pub(crate) fn new(length: usize) -> Self {
        let bytes = length.div_ceil(16).max(1) * LINE;
        let align = if bytes >= PAGE { PAGE } else { LINE };
        let layout = Layout::from_size_align(bytes, align).expect("a buffer is smaller than the address space");
        // SAFETY: the layout has at least one cache line.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        advise_huge_pages(start, bytes / PAGE * PAGE);
        // SAFETY: the allocation above has `bytes` bytes; zero bytes are valid f32.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Self { start: start.cast(), length, layout }
    }

    /// Allocates zeros in whole huge pages.
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
        // SAFETY: `new` allocated the memory with this layout, and a buffer is dropped once.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// Asks the system to back this memory with huge pages.
fn advise_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if bytes > 0 {
        // SAFETY: this advice changes the contents of no memory, whatever the addresses; its failure does not matter.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `new` allocated and zeroed at least `length` values.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: `new` allocated and zeroed at least `length` values, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length) }
    }
}
