//! Matrix products of bf16 by tiles: rows times packed weights, and weight gradients.

use equipoise_simd::{Amx, Bf16, Simd, TILE, TILE_BYTES, Tiles, VectorTiles};

use super::prefetch::Prefetch;

/// Values of bf16 in a row of a tile.
pub(crate) const TILE_VALUES: usize = TILE_BYTES / size_of::<Bf16>();
/// About how many cycles a product of two tiles takes.
pub(crate) const TILE_CYCLES: usize = 16;

/// Columns of a panel of weights that are packed for tiles: two tiles where they divide the columns, else one.
#[inline(always)]
pub(crate) fn tile_panel(columns: usize) -> usize {
    if columns.is_multiple_of(2 * TILE) { 2 * TILE } else { TILE }
}

/// `c[r][j]` = sum over k of `a[r][k] b[k][j]`, where a row of `a` is made of stretches of 32 values.
pub(crate) struct TileProduct<'a> {
    /// Rows, rounded up to whole tiles.
    pub(crate) rows: usize,
    /// Where the last tile of rows begins at most; it may overlap the one before.
    pub(crate) last: usize,
    /// A multiple of 16.
    pub(crate) columns: usize,
    pub(crate) a: *const Bf16,
    /// Distance from one row of `a` to the next, in bytes.
    pub(crate) a_stride: usize,
    /// Where the stretches begin, from the beginning of a row, in bytes.
    pub(crate) stretches: &'a [isize],
    /// Panels of [`tile_panel`] columns.
    pub(crate) b: *const Bf16,
    pub(crate) c: *mut f32,
    /// Distance from one row of `c` to the next, in values.
    pub(crate) c_stride: usize,
    pub(crate) prefetch: &'a Prefetch,
}

/// The weight gradient of some taps: `w[i][j]` += sum over pixels of `a[i][pixel] d[pixel - shift][j]`, by tiles of sixteen rows
/// and columns. A `fresh` w is overwritten.
///
/// Only the output gradient d is shifted, because its pixels are rows of tiles: where a row begins within a cache line makes
/// no difference then, while tiles whose rows cross cache lines are several times as slow to read.
pub(crate) struct TileGradient<'a> {
    pub(crate) fresh: bool,
    /// Rows of `a` and of w, a multiple of 16.
    pub(crate) rows: usize,
    /// Columns of d and of w, a multiple of 16.
    pub(crate) columns: usize,
    pub(crate) a: *const Bf16,
    /// Distance from one row of `a` to the next, in bytes.
    pub(crate) a_stride: usize,
    /// Where every 32 pixels begin in a row of `a`, in bytes, and how many pixels into d that is.
    pub(crate) stretches: &'a [[usize; 2]],
    /// Words of d: the values of a pixel and of the next one, column by column.
    pub(crate) words: *const f32,
    /// Pixels from one row of words to the next: 1, or 2 if there are only rows for even pixels.
    pub(crate) step: usize,
    /// For every tap the shift and the number of its part of w.
    pub(crate) taps: &'a [(isize, usize)],
    pub(crate) w: *mut f32,
    pub(crate) prefetch: &'a Prefetch,
}

/// Where the tiles of a sum are, in bytes.
struct Sum<F> {
    number: usize,
    /// How far the A and the B of a stretch are from the first.
    stretch: F,
    a_stride: usize,
    b_stride: usize,
    c_stride: usize,
    fresh: bool,
}

/// A function that adds up some tiles of C together. The steps of a stretch read tiles of A and B (`a TILE NUMBER`) and
/// multiply them (`dot C A B`).
macro_rules! sum_of_tiles {
    ($name:ident, $m:literal x $n:literal, [$($c:literal),*], $($step:ident $($number:literal)*;)*) => {
        /// # Safety
        /// `a` and `b` are valid for reading tiles at every stretch, and `c` for reading (unless `fresh`) and writing tiles.
        #[inline(always)]
        unsafe fn $name<T: Tiles, F: Fn(usize) -> [isize; 2]>(
            tiles: &mut T,
            sum: &Sum<F>,
            a: [*const u8; $m],
            b: [*const u8; $n],
            c: [*mut u8; $m * $n],
        ) {
            // SAFETY: the contract.
            unsafe {
                if sum.fresh {
                    $(tiles.zero::<$c>();)*
                } else {
                    $(tiles.load::<$c>(c[$c], sum.c_stride);)*
                }
                for number in 0..sum.number {
                    let [a_at, b_at] = (sum.stretch)(number);
                    $(sum_of_tiles!(@ $step tiles sum a b a_at b_at $($number)*);)*
                }
                $(tiles.store::<$c>(c[$c], sum.c_stride);)*
            }
        }
    };
    (@ a $tiles:ident $sum:ident $a:ident $b:ident $a_at:ident $b_at:ident $tile:literal $i:literal) => {
        $tiles.load::<$tile>($a[$i].wrapping_offset($a_at), $sum.a_stride)
    };
    (@ b $tiles:ident $sum:ident $a:ident $b:ident $a_at:ident $b_at:ident $tile:literal $j:literal) => {
        $tiles.load::<$tile>($b[$j].wrapping_offset($b_at), $sum.b_stride)
    };
    (@ dot $tiles:ident $sum:ident $a:ident $b:ident $a_at:ident $b_at:ident $c:literal $at:literal $bt:literal) => {
        $tiles.dot::<$c, $at, $bt>()
    };
}

sum_of_tiles!(sum_1x1, 1 x 1, [0], b 4 0; a 5 0; dot 0 5 4;);
sum_of_tiles!(sum_4x1, 4 x 1, [0, 1, 2, 3],
    b 4 0; a 5 0; dot 0 5 4; a 6 1; dot 1 6 4; a 7 2; dot 2 7 4; a 5 3; dot 3 5 4;);
sum_of_tiles!(sum_1x4, 1 x 4, [0, 1, 2, 3],
    a 4 0; b 5 0; dot 0 4 5; b 6 1; dot 1 4 6; b 7 2; dot 2 4 7; b 5 3; dot 3 4 5;);
sum_of_tiles!(sum_1x2, 1 x 2, [0, 1], a 4 0; b 6 0; dot 0 4 6; b 7 1; dot 1 4 7;);
sum_of_tiles!(sum_2x2, 2 x 2, [0, 1, 2, 3],
    a 4 0; b 6 0; dot 0 4 6; b 7 1; dot 1 4 7; a 5 1; dot 2 5 6; dot 3 5 7;);

/// Adds up `rows` x `columns` tiles of C, several at a time. The functions say where the A of a row, the B of a column and C are;
/// they may be asked for places behind the last one.
///
/// # Safety
/// As of the functions above, for all tiles.
#[inline(always)]
unsafe fn sum_tiles<T: Tiles, F: Fn(usize) -> [isize; 2]>(
    tiles: &mut T,
    sum: &Sum<F>,
    [rows, columns]: [usize; 2],
    a: impl Fn(usize) -> *const u8,
    b: impl Fn(usize) -> *const u8,
    c: impl Fn(usize, usize) -> *mut u8,
    prefetch: &Prefetch,
) {
    let mut j = 0;
    while j < columns {
        let across = match (rows, columns - j) {
            (1, 4..) => 4,
            (_, 2..) => 2,
            _ => 1,
        };
        let mut i = 0;
        while i < rows {
            let down = match (across, rows - i) {
                (2, 2..) => 2,
                (1, 4..) => 4,
                _ => 1,
            };
            prefetch.during(down * across * sum.number * TILE_CYCLES);
            // SAFETY: by the contract, all of these tiles are there.
            unsafe {
                match (down, across) {
                    (2, _) => {
                        let c = [c(i, j), c(i, j + 1), c(i + 1, j), c(i + 1, j + 1)];
                        sum_2x2(tiles, sum, [a(i), a(i + 1)], [b(j), b(j + 1)], c);
                    }
                    (4, _) => {
                        let c = [0, 1, 2, 3].map(|k| c(i + k, j));
                        sum_4x1(tiles, sum, [a(i), a(i + 1), a(i + 2), a(i + 3)], [b(j)], c);
                    }
                    (_, 4) => {
                        let c = [0, 1, 2, 3].map(|k| c(i, j + k));
                        sum_1x4(tiles, sum, [a(i)], [b(j), b(j + 1), b(j + 2), b(j + 3)], c);
                    }
                    (_, 2) => sum_1x2(tiles, sum, [a(i)], [b(j), b(j + 1)], [c(i, j), c(i, j + 1)]),
                    _ => sum_1x1(tiles, sum, [a(i)], [b(j)], [c(i, j)]),
                }
            }
            i += down;
        }
        j += across;
    }
}

/// Computes a matrix product.
///
/// # Safety
/// `a` is valid for reading every stretch of all rows, `b` for 32 rows of weights per stretch, and `c` for writing all rows: up
/// to the end of the last tile.
#[inline(always)]
pub(crate) unsafe fn tile_product<T: Tiles>(tiles: &mut T, p: &TileProduct<'_>) {
    let width = tile_panel(p.columns);
    let row = width * size_of::<f32>();
    let sum = Sum {
        number: p.stretches.len(),
        stretch: |number: usize| [p.stretches[number], (number * TILE * row) as isize],
        a_stride: p.a_stride,
        b_stride: row,
        c_stride: p.c_stride * size_of::<f32>(),
        fresh: true,
    };
    let first_row = |number: usize| (number * TILE).min(p.last);
    for first in (0..p.columns).step_by(width) {
        let panel = p.b.wrapping_add(first * p.stretches.len() * TILE_VALUES).cast::<u8>();
        let a = |i: usize| p.a.cast::<u8>().wrapping_add(first_row(i) * p.a_stride);
        let c = |i: usize, j: usize| p.c.wrapping_add(first_row(i) * p.c_stride + first + j * TILE).cast();
        let tiles_of_panel = [p.rows.div_ceil(TILE), width / TILE];
        // SAFETY: by the contract, `a` and `c` have the rows of every tile, and `b` the panel.
        unsafe { sum_tiles(tiles, &sum, tiles_of_panel, a, |j| panel.wrapping_add(j * TILE_BYTES), c, p.prefetch) };
    }
}

/// Adds a weight gradient.
///
/// # Safety
/// `a` is valid for reading all rows at every stretch, `words` for 32 pixels from every stretch on, shifted by every tap, and
/// `w` for reading and writing all rows of every tap.
#[inline(always)]
pub(crate) unsafe fn tile_gradient<T: Tiles>(tiles: &mut T, g: &TileGradient<'_>) {
    let row = g.columns * size_of::<f32>();
    let sum = Sum {
        number: g.stretches.len(),
        stretch: |number: usize| {
            let [a, pixels] = g.stretches[number];
            [a as isize, (pixels / g.step * row) as isize]
        },
        a_stride: g.a_stride,
        b_stride: 2 / g.step * row,
        c_stride: row,
        fresh: g.fresh,
    };
    let (rows, columns) = (g.rows / TILE, g.columns / TILE);
    let a = |i: usize| g.a.cast::<u8>().wrapping_add(i * TILE * g.a_stride);
    let b = |tap: usize, j: usize| {
        g.words.cast::<u8>().wrapping_offset(-g.taps[tap].0 * row as isize).wrapping_add(j * TILE_BYTES)
    };
    let c = |tap: usize, i: usize, j: usize| {
        g.w.wrapping_add(((g.taps[tap].1 * rows + i) * TILE) * g.columns + j * TILE).cast::<u8>()
    };
    // SAFETY: by the contract, `a`, `words` and `w` have all of these tiles.
    unsafe {
        if rows == 1 {
            // columns of all taps: they have the same A
            let all = [1, g.taps.len() * columns];
            let (b, c) = (|j| b(j / columns, j % columns), |i, j| c(j / columns, i, j % columns));
            sum_tiles(tiles, &sum, all, a, b, c, g.prefetch);
            return;
        }
        for tap in 0..g.taps.len() {
            sum_tiles(tiles, &sum, [rows, columns], a, |j| b(tap, j), |i, j| c(tap, i, j), g.prefetch);
        }
    }
}

/// Computes a matrix product by AMX if there is, else on vectors.
///
/// # Safety
/// The contract of [`tile_product`].
#[inline(always)]
pub(crate) unsafe fn product<I: Simd>(simd: I, amx: Option<Amx>, p: &TileProduct<'_>) {
    // SAFETY: the contract is the same.
    unsafe {
        match amx.filter(|_| I::HAS_DOT_BF16) {
            Some(amx) => tile_product(&mut amx.tiles(), p),
            None => tile_product(&mut VectorTiles::new(simd), p),
        }
    }
}

/// Adds a weight gradient by AMX if there is, else on vectors.
///
/// # Safety
/// The contract of [`tile_gradient`].
#[inline(always)]
pub(crate) unsafe fn gradient<I: Simd>(simd: I, amx: Option<Amx>, g: &TileGradient<'_>) {
    // SAFETY: the contract is the same.
    unsafe {
        match amx.filter(|_| I::HAS_DOT_BF16) {
            Some(amx) => tile_gradient(&mut amx.tiles(), g),
            None => tile_gradient(&mut VectorTiles::new(simd), g),
        }
    }
}

/// Values of a row that has a channel of as many pixels: an odd number of cache lines, so that rows do not share them.
pub(crate) fn exchanged_row(pixels: usize) -> usize {
    (pixels.div_ceil(TILE_VALUES) | 1) * TILE_VALUES
}

/// Writes pixels with rows and columns exchanged: a row of `into` has the values of one channel, and zeros up to a multiple of
/// 32 values.
///
/// # Safety
/// `from` is valid for reading `channels` values, a multiple of 16, of every pixel, `stride` values apart, and `into` for
/// writing `channels` rows of as many values, `row` values apart.
#[inline(always)]
pub(crate) unsafe fn transpose<I: Simd>(
    simd: I,
    from: *const Bf16,
    [stride, pixels, channels]: [usize; 3],
    into: *mut Bf16,
    row: usize,
) {
    let mut words = [0f32; TILE * TILE];
    for first in (0..pixels).step_by(TILE_VALUES) {
        for channel in (0..channels).step_by(TILE) {
            // SAFETY: by the contract, there are sixteen channels of every pixel, and as many rows with 32 values.
            unsafe {
                for pair in 0..TILE {
                    let pixel = first + 2 * pair;
                    for lane in (0..TILE).step_by(I::WIDTH) {
                        let low = from.wrapping_add(pixel * stride + channel + lane);
                        let word = load_pair(simd, low, stride, pixels.saturating_sub(pixel));
                        simd.store(words.as_mut_ptr().add(pair * TILE + lane), word);
                    }
                }
                simd.transpose(words.as_ptr(), TILE, into.add(channel * row + first).cast(), row / 2);
            }
        }
    }
}

/// Writes words for [`TileGradient`]: of every pixel with the next one, or of every second pixel.
///
/// # Safety
/// `from` is valid for reading `pixels` of `channels` values, a multiple of 16; zeros take the places of pixels behind them.
/// `into` is valid for writing `number` rows of `channels` words.
#[inline(always)]
pub(crate) unsafe fn pair_pixels<I: Simd>(
    simd: I,
    from: *const Bf16,
    [pixels, channels]: [usize; 2],
    into: *mut f32,
    [number, step]: [usize; 2],
) {
    for row in 0..number {
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: by the contract, the pixels have a vector at `k`, and so has the row of words.
            unsafe {
                let low = from.wrapping_add(row * step * channels + k);
                let word = load_pair(simd, low, channels, pixels.saturating_sub(row * step));
                simd.store(into.add(row * channels + k), word);
            }
        }
    }
}

/// Pairs of two pixels, of which there may be one or none `left`: zeros take their places.
///
/// # Safety
/// `low` is valid for reading a vector if a pixel is left, and so is what is `next` values further on if two are.
#[inline(always)]
unsafe fn load_pair<I: Simd>(simd: I, low: *const Bf16, next: usize, left: usize) -> I::V {
    // SAFETY: the contract.
    unsafe {
        match left {
            0 => simd.splat(0.0),
            1 => simd.pair_bf16(simd.load_bf16(low), simd.splat(0.0)),
            _ => simd.load_pairs(low, low.add(next)),
        }
    }
}
