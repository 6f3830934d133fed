//! Memory that is requested before it is needed.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks the CPU to bring a slice into the cache, without waiting for it.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    bytes.chunks(LINE).for_each(|line| prefetch_line(line.as_ptr()));
}

/// Asks the CPU to bring the cache line at an address into the cache. Does nothing on CPUs without such an instruction.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that every x86-64 has; it reads nothing and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Lets other threads see what this one has streamed, before anything that it writes from now on.
#[inline(always)]
pub fn finish_streaming() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every CPU of the target has SSE, and a fence changes no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
