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

/// `w[i][j]` += sum over k of `a[i][k] d[k][j]` for rows of `a` that are in several places. A `fresh` w is overwritten.
pub(crate) struct TileGradient<'a> {
    pub(crate) fresh: bool,
    /// Where tiles of sixteen rows begin in `a`, in bytes. The tiles of w follow each other in the same order.
    pub(crate) tiles: &'a [isize],
    /// A multiple of 16.
    pub(crate) columns: usize,
    pub(crate) a: *const Bf16,
    /// Distance from one row of `a` to the next, in bytes.
    pub(crate) a_stride: usize,
    /// Multiples of a tile's bytes, one for every 32 values of a row.
    pub(crate) stretches: &'a [isize],
    /// Pairs: row k has the values of rows 2 k and 2 k + 1 of d, column by column.
    pub(crate) pairs: *const f32,
    pub(crate) w: *mut f32,
    pub(crate) prefetch: &'a Prefetch,
}

/// A sum of products of tiles: places and distances in bytes.
struct Sum<'a> {
    stretches: &'a [isize],
    a_stride: usize,
    b: *const u8,
    b_stride: usize,
    /// Distance from the B of a stretch to that of the next one.
    b_next: usize,
    c_stride: usize,
    fresh: bool,
}

/// A function that adds up `$m` x `$n` tiles at a time. The steps of a stretch read tiles of A and B (`a TILE NUMBER`) and
/// multiply them (`dot C A B`).
macro_rules! sum_of_tiles {
    ($name:ident, $m:literal x $n:literal, [$($c:literal at $i:literal $j:literal),*], $($step:ident $($number:literal)*;)*) => {
        /// # Safety
        /// `a` is valid for reading tiles at every stretch, `sum.b` for as many tiles, `c` for reading (unless `fresh`) and
        /// writing tiles side by side.
        #[inline(always)]
        unsafe fn $name<T: Tiles>(tiles: &mut T, sum: &Sum<'_>, a: [*const u8; $m], c: [*mut u8; $m]) {
            // SAFETY: the contract.
            unsafe {
                if sum.fresh {
                    $(tiles.zero::<$c>();)*
                } else {
                    $(tiles.load::<$c>(c[$i].add($j * TILE_BYTES), sum.c_stride);)*
                }
                let mut b = sum.b;
                for &stretch in sum.stretches {
                    $(sum_of_tiles!(@ $step tiles sum a b stretch $($number)*);)*
                    b = b.wrapping_add(sum.b_next);
                }
                $(tiles.store::<$c>(c[$i].add($j * TILE_BYTES), sum.c_stride);)*
            }
        }
    };
    (@ a $tiles:ident $sum:ident $a:ident $b:ident $stretch:ident $tile:literal $i:literal) => {
        $tiles.load::<$tile>($a[$i].wrapping_offset($stretch), $sum.a_stride)
    };
    (@ b $tiles:ident $sum:ident $a:ident $b:ident $stretch:ident $tile:literal $j:literal) => {
        $tiles.load::<$tile>($b.add($j * TILE_BYTES), $sum.b_stride)
    };
    (@ dot $tiles:ident $sum:ident $a:ident $b:ident $stretch:ident $c:literal $at:literal $bt:literal) => {
        $tiles.dot::<$c, $at, $bt>()
    };
}

sum_of_tiles!(sum_4x1, 4 x 1, [0 at 0 0, 1 at 1 0, 2 at 2 0, 3 at 3 0],
    b 4 0; a 5 0; dot 0 5 4; a 6 1; dot 1 6 4; a 7 2; dot 2 7 4; a 5 3; dot 3 5 4;);
sum_of_tiles!(sum_1x1, 1 x 1, [0 at 0 0], b 4 0; a 5 0; dot 0 5 4;);
sum_of_tiles!(sum_2x2, 2 x 2, [0 at 0 0, 1 at 0 1, 2 at 1 0, 3 at 1 1],
    a 4 0; b 6 0; dot 0 4 6; b 7 1; dot 1 4 7; a 5 1; dot 2 5 6; dot 3 5 7;);
sum_of_tiles!(sum_1x2, 1 x 2, [0 at 0 0, 1 at 0 1], a 4 0; b 6 0; dot 0 4 6; b 7 1; dot 1 4 7;);

/// Adds up all tiles of some columns, several at a time. `place` says where the A and the C of a tile begin; it may be asked for
/// tiles that there are not.
///
/// # Safety
/// As of the functions above, for every one of `number` tiles; C has `across` tiles side by side, one or two.
#[inline(always)]
unsafe fn sum_tiles<T: Tiles>(
    tiles: &mut T,
    sum: &Sum<'_>,
    number: usize,
    across: usize,
    place: impl Fn(usize) -> (*const u8, *mut u8),
    prefetch: &Prefetch,
) {
    let mut at = 0;
    while at < number {
        let step = match (across, number - at) {
            (2, 2..) => 2,
            (1, 4..) => 4,
            _ => 1,
        };
        prefetch.during(step * across * sum.stretches.len() * TILE_CYCLES);
        let [p, q, r, s] = [0, 1, 2, 3].map(|i| place(at + i));
        // SAFETY: by the contract, the `step` tiles from `at` on are there.
        unsafe {
            match (step, across) {
                (2, _) => sum_2x2(tiles, sum, [p.0, q.0], [p.1, q.1]),
                (4, _) => sum_4x1(tiles, sum, [p.0, q.0, r.0, s.0], [p.1, q.1, r.1, s.1]),
                (_, 2) => sum_1x2(tiles, sum, [p.0], [p.1]),
                _ => sum_1x1(tiles, sum, [p.0], [p.1]),
            }
        }
        at += step;
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
    for first in (0..p.columns).step_by(width) {
        let sum = Sum {
            stretches: p.stretches,
            a_stride: p.a_stride,
            b: p.b.wrapping_add(first * p.stretches.len() * TILE_VALUES).cast(),
            b_stride: row,
            b_next: TILE * row,
            c_stride: p.c_stride * size_of::<f32>(),
            fresh: true,
        };
        let place = |number: usize| {
            let row = (number * TILE).min(p.last);
            (p.a.cast::<u8>().wrapping_add(row * p.a_stride), p.c.wrapping_add(row * p.c_stride + first).cast())
        };
        // SAFETY: by the contract, `a` and `c` have the rows of every tile.
        unsafe { sum_tiles(tiles, &sum, p.rows.div_ceil(TILE), width / TILE, place, p.prefetch) };
    }
}

/// Adds a weight gradient.
///
/// # Safety
/// `a` is valid for reading every stretch of sixteen rows at every tile, `pairs` for sixteen rows of `columns` words per
/// stretch, and `w` for reading and writing sixteen rows of `columns` values per tile.
#[inline(always)]
pub(crate) unsafe fn tile_gradient<T: Tiles>(tiles: &mut T, g: &TileGradient<'_>) {
    let width = tile_panel(g.columns);
    let row = g.columns * size_of::<f32>();
    for first in (0..g.columns).step_by(width) {
        let sum = Sum {
            stretches: g.stretches,
            a_stride: g.a_stride,
            b: g.pairs.wrapping_add(first).cast(),
            b_stride: row,
            b_next: TILE * row,
            c_stride: row,
            fresh: g.fresh,
        };
        let place = |number: usize| {
            let number = number.min(g.tiles.len() - 1);
            let a = g.a.cast::<u8>().wrapping_offset(g.tiles[number]);
            (a, g.w.wrapping_add(number * TILE * g.columns + first).cast())
        };
        // SAFETY: by the contract, `a` has the rows of every tile, and `w` as many.
        unsafe { sum_tiles(tiles, &sum, g.tiles.len(), width / TILE, place, g.prefetch) };
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

/// Multiples of a tile's bytes, as many as `values` need.
pub(crate) fn multiples(values: usize) -> Vec<isize> {
    (0..values.div_ceil(TILE_VALUES)).map(|k| (k * TILE_BYTES) as isize).collect()
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

/// Writes pairs of pixels for [`TileGradient`], and zeros up to a multiple of 32 pixels.
///
/// # Safety
/// `from` is valid for reading as many pixels of `channels` values, a multiple of 16, and `into` for writing half as many rows
/// of `channels` words.
#[inline(always)]
pub(crate) unsafe fn pair_pixels<I: Simd>(simd: I, from: *const Bf16, pixels: usize, channels: usize, into: *mut f32) {
    for pixel in (0..pixels.next_multiple_of(TILE_VALUES)).step_by(2) {
        for k in (0..channels).step_by(I::WIDTH) {
            // SAFETY: by the contract, the pixels have a vector at `k`, and so has the row of pairs.
            unsafe {
                let low = from.wrapping_add(pixel * channels + k);
                let word = load_pair(simd, low, channels, pixels.saturating_sub(pixel));
                simd.store(into.add(pixel / 2 * channels + k), word);
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
