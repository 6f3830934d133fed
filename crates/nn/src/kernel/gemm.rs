//! The two inner loops of everything: rows times a packed matrix, and sums of outer products.

use super::prefetch::Prefetch;
use crate::isa::{Isa, panel};

/// A stretch of a row: where it starts from the row's beginning, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: isize,
    pub(crate) length: usize,
}

/// `c[r][j]` = sum over k of `a[r][k] b[k][j]`, where a row of `a` is made of segments.
///
/// A convolution is such a product without a copy: a row is an output pixel, its segments are the rows of the image that the
/// window covers.
///
/// # Safety
/// For whoever runs it: `a` must be good for every segment of every row, `b` for the sum of the lengths times `columns`, `c`
/// for `rows` rows of `columns`, `stride` apart; `columns` is a multiple of 16.
///
/// `count` such products are made, each with its own a, b and c, which are `next` apart.
pub(crate) struct Gemm<'a> {
    pub(crate) count: usize,
    /// From one product's a, b and c to the next one's.
    pub(crate) next: [usize; 3],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) a: *const f32,
    /// From one row of `a` to the next.
    pub(crate) a_stride: usize,
    pub(crate) segments: &'a [Segment],
    /// Panels of `panel::<I>(columns)` columns, each row after row.
    pub(crate) b: *const f32,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    pub(crate) prefetch: &'a Prefetch,
}

/// `w[i][j]` += sum over y, x of `a[y][x][i] d[y][x][j]`.
///
/// # Safety
/// For whoever runs it: `a` must be good for `rows` values and `d` for `columns` at every (y, x), `w` for `rows` rows of
/// `columns`; `columns` is a multiple of 16.
///
/// `count` such sums are made, each with its own a, d and w, which are `next` apart. A `fresh` w is not read first.
pub(crate) struct Outer<'a> {
    pub(crate) prefetch: &'a Prefetch,
    pub(crate) count: usize,
    /// From one sum's a, d and w to the next one's.
    pub(crate) next: [usize; 3],
    pub(crate) fresh: bool,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Numbers of y and x.
    pub(crate) size: [usize; 2],
    pub(crate) a: *const f32,
    /// Of y and x.
    pub(crate) a_strides: [usize; 2],
    pub(crate) d: *const f32,
    pub(crate) d_strides: [usize; 2],
    pub(crate) w: *mut f32,
    pub(crate) w_stride: usize,
}

/// Calls `$tile::<$isa, ROWS, $across, ..>` with the number of rows as a constant.
macro_rules! by_rows {
    ($isa:ident, $across:literal, $rows:expr, $tile:ident $(::<$more:ident>)? ($($arg:expr),*)) => {
        by_rows!(@ $isa, $across, $rows, $tile ($($more)?) ($($arg),*), 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    };
    (@ $isa:ident, $across:literal, $rows:expr, $tile:ident $more:tt $args:tt, $($n:literal)*) => {
        match $rows {
            // what has no room in the registers is never asked for, and not compiled
            $($n if $n <= $isa::OUTER_ROWS[$across - 1] => by_rows!(# $isa, $n, $across, $tile $more $args),)*
            _ => unreachable!("rows are split to fit the registers"),
        }
    };
    (# $isa:ident, $n:literal, $across:literal, $tile:ident () ($($arg:expr),*)) => {
        $tile::<$isa, $n, $across>($($arg),*)
    };
    (# $isa:ident, $n:literal, $across:literal, $tile:ident ($more:ident) ($($arg:expr),*)) => {
        $tile::<$isa, $n, $across, $more>($($arg),*)
    };
}

/// The fewest pieces of at most `most` that make up a whole, as even as possible: how many there are, and how many values the
/// smaller ones have; the first `whole % pieces` have one more.
#[inline(always)]
fn pieces(whole: usize, most: usize) -> (usize, usize) {
    let pieces = whole.div_ceil(most).max(1);
    (pieces, whole / pieces)
}

// No closures around registers: the compiler may leave one outside of the function that has the level's instructions.

#[inline(always)]
pub(crate) unsafe fn gemm<I: Isa>(g: &Gemm<'_>) {
    // rows that are a known distance apart need no registers for their addresses
    // SAFETY: the caller's promises.
    unsafe {
        match g.a_stride {
            16 => gemm_with::<I, 16>(g),
            32 => gemm_with::<I, 32>(g),
            64 => gemm_with::<I, 64>(g),
            _ => gemm_with::<I, 0>(g),
        }
    }
}

/// With the distance of rows as a constant, unless it is 0.
#[inline(always)]
unsafe fn gemm_with<I: Isa, const S: usize>(g: &Gemm<'_>) {
    let width = panel::<I>(g.columns);
    let depth: usize = g.segments.iter().map(|segment| segment.length).sum();
    let across = width / I::WIDTH;
    let (number, least) = pieces(g.rows, I::ROWS[across - 1]);
    let more = g.rows - number * least;
    // few short rows leave most registers empty: two products at a time
    if S == 16 && g.columns == I::WIDTH && g.rows == PAIRED && g.count.is_multiple_of(2) && g.segments == ROW {
        for at in (0..g.count).step_by(2) {
            g.prefetch.during(2 * g.rows * depth / 2);
            let [a, b, c] = g.next.map(|next| at * next);
            // SAFETY: the caller's promises.
            unsafe { product::<I, PAIRED, 1, S, 2>(g, g.a.add(a), g.b.add(b), g.c.add(c)) };
        }
        return;
    }
    for at in 0..g.count {
        for first in (0..g.columns).step_by(width) {
            // SAFETY: the caller's promises about `a`, `b` and `c`.
            unsafe {
                let b = g.b.add(at * g.next[1] + first * depth);
                let (mut a, mut c) = (g.a.add(at * g.next[0]), g.c.add(at * g.next[2] + first));
                for piece in 0..number {
                    let rows = least + usize::from(piece < more);
                    g.prefetch.during(rows * across * depth / 2);
                    if across == 2 {
                        by_rows!(I, 2, rows, single::<S>(g, a, b, c));
                    } else {
                        by_rows!(I, 1, rows, single::<S>(g, a, b, c));
                    }
                    (a, c) = (a.wrapping_add(rows * g.a_stride), c.wrapping_add(rows * g.c_stride));
                }
            }
        }
    }
}

/// Rows of two products that are made together.
const PAIRED: usize = 8;
/// A row of sixteen values in one piece.
const ROW: [Segment; 1] = [Segment { offset: 0, length: 16 }];

#[inline(always)]
unsafe fn single<I: Isa, const R: usize, const N: usize, const S: usize>(
    g: &Gemm<'_>,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe { product::<I, R, N, S, 1>(g, a, b, c) }
}

/// R rows and N registers of P products.
#[inline(always)]
unsafe fn product<I: Isa, const R: usize, const N: usize, const S: usize, const P: usize>(
    g: &Gemm<'_>,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
) {
    let stride = if S == 0 { g.a_stride } else { S };
    // SAFETY: the caller's promises about `a`, `b` and `c`.
    unsafe {
        let mut sums = [[[I::splat(0.0); N]; R]; P];
        let mut b = b;
        if S == 16 && g.segments == ROW {
            // a known length: no loop
            for k in 0..16 {
                step::<I, R, N, P>(&mut sums, a.add(k), stride, b.add(k * N * I::WIDTH), g.next);
            }
        } else {
            for segment in g.segments {
                let mut a = a.offset(segment.offset);
                for _ in 0..segment.length {
                    step::<I, R, N, P>(&mut sums, a, stride, b, g.next);
                    (a, b) = (a.wrapping_add(1), b.wrapping_add(N * I::WIDTH));
                }
            }
        }
        for (p, sums) in sums.into_iter().enumerate() {
            for (r, sums) in sums.into_iter().enumerate() {
                for (j, sum) in sums.into_iter().enumerate() {
                    I::store(c.add(p * g.next[2] + r * g.c_stride + j * I::WIDTH), sum);
                }
            }
        }
    }
}

/// Adds one column of a times one row of b.
#[inline(always)]
unsafe fn step<I: Isa, const R: usize, const N: usize, const P: usize>(
    sums: &mut [[[I::V; N]; R]; P],
    a: *const f32,
    stride: usize,
    b: *const f32,
    next: [usize; 3],
) {
    // SAFETY: the caller's promises.
    unsafe {
        for (p, sums) in sums.iter_mut().enumerate() {
            let mut columns = [I::splat(0.0); N];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = I::load(b.add(p * next[1] + j * I::WIDTH));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = I::splat(*a.add(p * next[0] + r * stride));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = I::fma(x, column, *sum);
                }
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn outer<I: Isa>(o: &Outer<'_>) {
    let width = panel::<I>(o.columns);
    let across = width / I::WIDTH;
    let (number, least) = pieces(o.rows, I::OUTER_ROWS[across - 1]);
    let more = o.rows - number * least;
    for at in 0..o.count {
        for first in (0..o.columns).step_by(width) {
            // SAFETY: the caller's promises.
            unsafe {
                let d = o.d.add(at * o.next[1] + first);
                let (mut a, mut w) = (o.a.add(at * o.next[0]), o.w.add(at * o.next[2] + first));
                for piece in 0..number {
                    let rows = least + usize::from(piece < more);
                    o.prefetch.during(rows * across * o.size[0] * o.size[1] / 2);
                    if across == 2 {
                        by_rows!(I, 2, rows, products(o, a, d, w));
                    } else {
                        by_rows!(I, 1, rows, products(o, a, d, w));
                    }
                    (a, w) = (a.wrapping_add(rows), w.wrapping_add(rows * o.w_stride));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn products<I: Isa, const R: usize, const N: usize>(o: &Outer<'_>, a: *const f32, d: *const f32, w: *mut f32) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[I::splat(0.0); N]; R];
        if !o.fresh {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = I::load(w.add(r * o.w_stride + j * I::WIDTH));
                }
            }
        }
        for y in 0..o.size[0] {
            let (mut a, mut d) = (a.add(y * o.a_strides[0]), d.add(y * o.d_strides[0]));
            for _ in 0..o.size[1] {
                let mut columns = [I::splat(0.0); N];
                for (j, column) in columns.iter_mut().enumerate() {
                    *column = I::load(d.add(j * I::WIDTH));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = I::splat(*a.add(r));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = I::fma(x, column, *sum);
                    }
                }
                a = a.wrapping_add(o.a_strides[1]);
                d = d.wrapping_add(o.d_strides[1]);
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                I::store(w.add(r * o.w_stride + j * I::WIDTH), sum);
            }
        }
    }
}
