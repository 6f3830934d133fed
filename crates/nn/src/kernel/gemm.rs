//! The two inner loops of everything: rows times a packed matrix, and sums of outer products.

use crate::isa::{Isa, panel};

/// A stretch of a row: where it starts from the row's beginning, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: isize,
    pub(crate) length: usize,
}

/// c[r][j] = sum over k of a[r][k] b[k][j], where a row of `a` is made of segments.
///
/// A convolution is such a product without a copy: a row is an output pixel, its segments are the rows of the image that the
/// window covers.
///
/// # Safety
/// For whoever runs it: `a` must be good for every segment of every row, `b` for the sum of the lengths times `columns`, `c`
/// for `rows` rows of `columns`, `stride` apart; `columns` is a multiple of 16.
pub(crate) struct Gemm<'a> {
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
}

/// w[i][j] += sum over y, x of a[y][x][i] d[y][x][j].
///
/// # Safety
/// For whoever runs it: `a` must be good for `rows` values and `d` for `columns` at every (y, x), `w` for `rows` rows of
/// `columns`; `columns` is a multiple of 16.
pub(crate) struct Outer {
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

/// Calls `$tile::<$isa, ROWS, $across>` with the number of rows as a constant.
macro_rules! by_rows {
    ($isa:ident, $across:literal, $rows:expr, $tile:ident($($arg:expr),*)) => {
        by_rows!(@ $isa, $across, $rows, $tile($($arg),*), 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $isa:ident, $across:literal, $rows:expr, $tile:ident $args:tt, $($n:literal)*) => {
        match $rows {
            // what has no room in the registers is never asked for, and not compiled
            $($n if $n <= $isa::ROWS[$across - 1] => by_rows!(# $isa, $n, $across, $tile $args),)*
            _ => unreachable!("rows are split to fit the registers"),
        }
    };
    (# $isa:ident, $n:literal, $across:literal, $tile:ident($($arg:expr),*)) => {
        $tile::<$isa, $n, $across>($($arg),*)
    };
}

/// The length of the next piece when `rest` is split into the fewest pieces of at most `most`, as even as possible.
#[inline(always)]
fn piece(rest: usize, most: usize) -> usize {
    rest.div_ceil(rest.div_ceil(most))
}

// No closures around registers: the compiler may leave one outside of the function that has the level's instructions.

#[inline(always)]
pub(crate) unsafe fn gemm<I: Isa>(g: &Gemm<'_>) {
    let width = panel::<I>(g.columns);
    let depth: usize = g.segments.iter().map(|segment| segment.length).sum();
    let across = width / I::WIDTH;
    for first in (0..g.columns).step_by(width) {
        // SAFETY: the caller's promise about `b`.
        let b = unsafe { g.b.add(first * depth) };
        let mut row = 0;
        while row < g.rows {
            let rows = piece(g.rows - row, I::ROWS[across - 1]);
            // SAFETY: the caller's promises about `a` and `c`.
            unsafe {
                let (a, c) = (g.a.add(row * g.a_stride), g.c.add(row * g.c_stride + first));
                if across == 2 {
                    by_rows!(I, 2, rows, product(g, a, b, c));
                } else {
                    by_rows!(I, 1, rows, product(g, a, b, c));
                }
            }
            row += rows;
        }
    }
}

#[inline(always)]
unsafe fn product<I: Isa, const R: usize, const N: usize>(g: &Gemm<'_>, a: *const f32, b: *const f32, c: *mut f32) {
    // SAFETY: the caller's promises about `a`, `b` and `c`.
    unsafe {
        let mut sums = [[I::splat(0.0); N]; R];
        let mut b = b;
        for segment in g.segments {
            let mut a = a.offset(segment.offset);
            for _ in 0..segment.length {
                let mut columns = [I::splat(0.0); N];
                for (j, column) in columns.iter_mut().enumerate() {
                    *column = I::load(b.add(j * I::WIDTH));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = I::splat(*a.add(r * g.a_stride));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = I::fma(x, column, *sum);
                    }
                }
                a = a.wrapping_add(1);
                b = b.wrapping_add(N * I::WIDTH);
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                I::store(c.add(r * g.c_stride + j * I::WIDTH), sum);
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn outer<I: Isa>(o: &Outer) {
    let width = panel::<I>(o.columns);
    let across = width / I::WIDTH;
    for first in (0..o.columns).step_by(width) {
        let mut row = 0;
        while row < o.rows {
            let rows = piece(o.rows - row, I::ROWS[across - 1]);
            // SAFETY: the caller's promises.
            unsafe {
                let (a, d, w) = (o.a.add(row), o.d.add(first), o.w.add(row * o.w_stride + first));
                if across == 2 {
                    by_rows!(I, 2, rows, products(o, a, d, w));
                } else {
                    by_rows!(I, 1, rows, products(o, a, d, w));
                }
            }
            row += rows;
        }
    }
}

#[inline(always)]
unsafe fn products<I: Isa, const R: usize, const N: usize>(o: &Outer, a: *const f32, d: *const f32, w: *mut f32) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[I::splat(0.0); N]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = I::load(w.add(r * o.w_stride + j * I::WIDTH));
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
