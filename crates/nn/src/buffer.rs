//! Memory for the kernels: zeroed, and aligned so that no register's load crosses a cache line.

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read through pointers")] [f32; 16]);

/// Some f32, aligned.
pub(crate) struct Buffer {
    lines: Vec<Line>,
    length: usize,
}

impl Buffer {
    pub(crate) fn new(length: usize) -> Self {
        Self { lines: vec![Line([0.0; 16]); length.div_ceil(16)], length }
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.lines.as_ptr().cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.lines.as_mut_ptr().cast()
    }
}

impl std::ops::Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: the lines hold at least `length` values, all of them written.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length) }
    }
}
