//! Matrix products of bf16 by tiles, as the instructions of AMX define them, and the same arithmetic on vectors.
//!
//! A tile has sixteen rows of 64 bytes: sixteen f32, or 32 bf16, or sixteen pairs of bf16. A product adds to a tile C the
//! product of A, whose rows have 32 values, and B, whose rows have sixteen pairs. For every value of C, the products of even
//! and those of odd places of the 32 are summed apart, both from zero on and each sum rounded, then both sums are added, and
//! the result is added to C. Numbers too small to be normal become zero.

use crate::Simd;

/// Rows of a tile, and words of four bytes in a row.
pub const TILE: usize = 16;
/// Bytes of a row of a tile.
pub const TILE_BYTES: usize = 64;
/// Number of tiles.
const TILES: usize = 8;

/// Eight tiles, which are called by their numbers.
pub trait Tiles {
    /// Makes a tile zero.
    fn zero<const T: usize>(&mut self);

    /// Reads a tile, whose rows are `stride` bytes apart.
    ///
    /// # Safety
    /// `from` must be valid for reading 64 bytes in each of sixteen rows.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize);

    /// Writes a tile, with rows `stride` bytes apart.
    ///
    /// # Safety
    /// `into` must be valid for writing 64 bytes in each of sixteen rows.
    unsafe fn store<const T: usize>(&mut self, into: *mut u8, stride: usize);

    /// Adds the product of tiles A and B to tile C.
    fn dot<const C: usize, const A: usize, const B: usize>(&mut self);
}

/// Tiles in memory: the arithmetic of AMX on CPUs without it.
#[repr(align(64))]
pub struct VectorTiles<I> {
    words: [[f32; TILE * TILE]; TILES],
    simd: I,
}

impl<I: Simd> VectorTiles<I> {
    /// Tiles of zeros.
    #[inline(always)]
    pub fn new(simd: I) -> Self {
        Self { words: [[0.0; TILE * TILE]; TILES], simd }
    }
}

impl<I: Simd> Tiles for VectorTiles<I> {
    #[inline(always)]
    fn zero<const T: usize>(&mut self) {
        self.words[T].fill(0.0);
    }

    #[inline(always)]
    unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
        for (row, words) in self.words[T].chunks_exact_mut(TILE).enumerate() {
            // SAFETY: by the contract, there are 64 bytes in each of sixteen rows, and `words` has as many.
            unsafe { std::ptr::copy_nonoverlapping(from.add(row * stride), words.as_mut_ptr().cast(), TILE_BYTES) };
        }
    }

    #[inline(always)]
    unsafe fn store<const T: usize>(&mut self, into: *mut u8, stride: usize) {
        for (row, words) in self.words[T].chunks_exact(TILE).enumerate() {
            // SAFETY: by the contract, there is room for 64 bytes in each of sixteen rows, and `words` has as many.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr().cast(), into.add(row * stride), TILE_BYTES) };
        }
    }

    #[inline(always)]
    fn dot<const C: usize, const A: usize, const B: usize>(&mut self) {
        let simd = self.simd;
        for at in (0..TILE * TILE).step_by(I::WIDTH) {
            let (row, column) = (at / TILE, at % TILE);
            // SAFETY: `at` is the place of a vector in C, and every row of B has a vector at its column.
            unsafe {
                let [mut even, mut odd] = [simd.splat(0.0); 2];
                for k in 0..TILE {
                    let a = self.words[A][row * TILE + k].to_bits();
                    let b = simd.load(self.words[B].as_ptr().add(k * TILE + column));
                    even = simd.dot_bf16(simd.splat(f32::from_bits(a & 0xffff)), b, even);
                    odd = simd.dot_bf16(simd.splat(f32::from_bits(a & 0xffff_0000)), b, odd);
                }
                let zero = simd.splat(0.0);
                // a product of zeros flushes a sum that is too small
                let product = simd.dot_bf16(zero, zero, simd.add(even, odd));
                let c = self.words[C].as_mut_ptr().add(at);
                simd.store(c, simd.dot_bf16(zero, zero, simd.add(simd.load(c), product)));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
pub use amx::{Amx, AmxTiles};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod amx {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::marker::PhantomData;
    use std::sync::OnceLock;

    use super::{TILE, TILE_BYTES, TILES, Tiles};

    /// Proof that this CPU has AMX with bf16, and that the system lets this process use it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Amx(());

    impl Amx {
        /// Asks CPU and system. The system's answer holds for all threads.
        #[must_use]
        pub fn request() -> Option<Self> {
            static ANSWER: OnceLock<bool> = OnceLock::new();
            ANSWER.get_or_init(|| has_instructions() && system_permits()).then_some(Self(()))
        }

        /// The tiles of this thread. There may be one value of them at a time in a thread.
        #[inline(always)]
        #[must_use]
        pub fn tiles(self) -> AmxTiles {
            // SAFETY: `self` proves the instruction, and the configuration has the 64 bytes that it reads.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &CONFIGURATION, options(nostack, preserves_flags)) };
            AmxTiles(PhantomData)
        }
    }

    /// Whether the CPU has tiles, and their products of bf16.
    fn has_instructions() -> bool {
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        if __cpuid_count(0, 0).eax < 7 {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        features & (BF16 | TILE) == BF16 | TILE
    }

    /// Asks the system to keep the contents of tiles between the turns of a thread, which it does on request only.
    fn system_permits() -> bool {
        const ARCH_PRCTL: isize = 158;
        const REQUEST: usize = 0x1023;
        const TILE_DATA: usize = 18;
        let mut result = ARCH_PRCTL;
        // SAFETY: the system call changes nothing but what this process may use.
        unsafe {
            asm!("syscall", inlateout("rax") result, in("rdi") REQUEST, in("rsi") TILE_DATA, out("rcx") _, out("r11") _, options(nostack));
        }
        result == 0
    }

    /// What `ldtilecfg` reads: the palette, and bytes and rows of every tile.
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    static CONFIGURATION: Configuration = {
        let (mut bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < TILES {
            bytes[tile] = TILE_BYTES as u16;
            rows[tile] = TILE as u8;
            tile += 1;
        }
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
    };

    /// The tiles of a thread, configured until this is dropped.
    ///
    /// The compiler uses no tiles by itself, so that they keep their contents from one instruction here to the next.
    pub struct AmxTiles(PhantomData<*const ()>);

    impl Drop for AmxTiles {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: the instruction is there, because `Amx` was.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }

    impl Tiles for AmxTiles {
        #[inline(always)]
        fn zero<const T: usize>(&mut self) {
            // SAFETY: the tiles are configured.
            unsafe { asm!("tilezero tmm{}", const T, options(nomem, nostack, preserves_flags)) };
        }

        #[inline(always)]
        unsafe fn load<const T: usize>(&mut self, from: *const u8, stride: usize) {
            // SAFETY: the tiles are configured, and by the contract every row can be read.
            unsafe {
                asm!("tileloadd tmm{}, [{} + {}]", const T, in(reg) from, in(reg) stride, options(readonly, nostack, preserves_flags));
            }
        }

        #[inline(always)]
        unsafe fn store<const T: usize>(&mut self, into: *mut u8, stride: usize) {
            // SAFETY: the tiles are configured, and by the contract every row can be written.
            unsafe {
                asm!("tilestored [{} + {}], tmm{}", in(reg) into, in(reg) stride, const T, options(nostack, preserves_flags));
            }
        }

        #[inline(always)]
        fn dot<const C: usize, const A: usize, const B: usize>(&mut self) {
            // SAFETY: the tiles are configured.
            unsafe {
                asm!("tdpbf16ps tmm{}, tmm{}, tmm{}", const C, const A, const B, options(nomem, nostack, preserves_flags));
            };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
pub use none::{Amx, AmxTiles};

/// What stands for AMX where it cannot be: types of which there are no values.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod none {
    use std::convert::Infallible;

    use super::Tiles;

    /// Proof that this CPU has AMX, of which there is none.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Amx(Infallible);

    impl Amx {
        /// There is none.
        #[must_use]
        pub fn request() -> Option<Self> {
            None
        }

        /// The tiles of this thread.
        #[must_use]
        pub fn tiles(self) -> AmxTiles {
            match self.0 {}
        }
    }

    /// The tiles of a thread.
    pub struct AmxTiles(Infallible);

    impl Tiles for AmxTiles {
        fn zero<const T: usize>(&mut self) {
            match self.0 {}
        }
        unsafe fn load<const T: usize>(&mut self, _from: *const u8, _stride: usize) {
            match self.0 {}
        }
        unsafe fn store<const T: usize>(&mut self, _into: *mut u8, _stride: usize) {
            match self.0 {}
        }
        fn dot<const C: usize, const A: usize, const B: usize>(&mut self) {
            match self.0 {}
        }
    }
}
