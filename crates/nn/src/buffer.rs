//! Memory for the kernels: zeroed, aligned so that no vector crosses a cache line, and in huge pages where the system has them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::kernel::value::Activation;

/// An aligned array of plain numbers, f32 unless said.
///
/// Large ones are mapped on Linux, so that parts that are never used, such as those for gradients in an evaluation, cost
/// nothing, and the others are zeroed by the thread that uses them first.
pub(crate) struct Buffer<T = f32> {
    start: NonNull<T>,
    length: usize,
    memory: Memory,
}

/// How to release the memory of a buffer.
enum Memory {
    Allocated(Layout),
    #[cfg(all(target_os = "linux", not(miri)))]
    Mapped {
        /// Where the mapping starts: its first huge page begins here or later.
        start: NonNull<libc::c_void>,
        bytes: usize,
    },
}

// SAFETY: a buffer owns its memory, as a `Vec<T>` does.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: a shared buffer gives out its memory for reading only, as a `Vec<T>` does.
unsafe impl<T: Sync> Sync for Buffer<T> {}

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a huge page, which takes one entry of the TLB instead of 512.
const PAGE: usize = 2 << 20;

impl<T: Activation> Buffer<T> {
    /// Allocates zeros.
    pub(crate) fn new(length: usize) -> Self {
        let bytes = (length * size_of::<T>()).next_multiple_of(LINE).max(LINE);
        #[cfg(all(target_os = "linux", not(miri)))]
        if bytes >= PAGE {
            return Self::mapped(length, bytes);
        }
        let layout = layout(bytes, LINE);
        // SAFETY: the layout has at least one cache line.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start: start.cast(), length, memory: Memory::Allocated(layout) }
    }

    /// Maps zeros, in huge pages as far as the system has them.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn mapped(length: usize, bytes: usize) -> Self {
        let layout = layout(bytes + PAGE, PAGE);
        let (readable, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere changes no memory that is in use.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), readable, private, -1, 0) };
        let start = NonNull::new(mapping).filter(|_| mapping != libc::MAP_FAILED);
        let Some(start) = start else { handle_alloc_error(layout) };
        let offset = mapping.align_offset(PAGE);
        // SAFETY: the mapping is one page longer than the buffer, so the buffer fits behind the offset. The advice changes
        // the contents of no memory; its failure does not matter.
        let first = unsafe {
            let first = start.byte_add(offset);
            libc::madvise(first.as_ptr(), bytes / PAGE * PAGE, libc::MADV_HUGEPAGE);
            first
        };
        Self { start: first.cast(), length, memory: Memory::Mapped { start, bytes: layout.size() } }
    }

    /// Allocates zeros in whole huge pages.
    pub(crate) fn in_pages(length: usize) -> Self {
        Self::new(length.next_multiple_of(PAGE / size_of::<T>()))
    }
}

impl<T> Buffer<T> {
    pub(crate) fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }

    /// The start of a buffer that several owners share. It may be written to as long as nobody has a reference to the values.
    pub(crate) fn shared_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).expect("a buffer is smaller than the address space")
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        match self.memory {
            // SAFETY: `new` allocated the memory with this layout, and a buffer is dropped once.
            Memory::Allocated(layout) => unsafe { dealloc(self.start.as_ptr().cast(), layout) },
            #[cfg(all(target_os = "linux", not(miri)))]
            Memory::Mapped { start, bytes } => {
                // SAFETY: `mapped` made this mapping, and a buffer is dropped once. It cannot fail for a whole mapping.
                unsafe { libc::munmap(start.as_ptr(), bytes) };
            }
        }
    }
}

impl<T> std::ops::Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the buffer has at least `length` values, of any bits.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl<T> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the buffer has at least `length` values, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length) }
    }
}
