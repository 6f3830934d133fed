//! The two inner loops of every convolution: rows times a packed matrix, and sums of outer products.

use equipoise_simd::{Simd, dispatch};

use super::prefetch::Prefetch;
use super::value::Activation;

/// A stretch of a row: its offset from the beginning of the row, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: isize,
    pub(crate) length: usize,
}

/// `c[r][j]` = sum over k of `a[r][k] b[k][j]`, where a row of `a` is made of segments.
///
/// A convolution is such a product without a copy: a row is an output pixel, its segments are the rows of the image
/// that the window covers. `count` such products are computed, each with its own a, b and c, which are `next` apart.
/// The lengths of segments are multiples of a word's number of values.
pub(crate) struct Gemm<'a, A, C> {
    pub(crate) count: usize,
    /// Distances from one product's a, b and c to the next one's.
    pub(crate) next: [usize; 3],
    pub(crate) rows: usize,
    /// A multiple of 16.
    pub(crate) columns: usize,
    pub(crate) a: *const A,
    /// Distance from one row of `a` to the next.
    pub(crate) a_stride: usize,
    pub(crate) segments: &'a [Segment],
    /// Panels of [`panel`] columns, each row of words after row of words.
    pub(crate) b: *const A,
    pub(crate) c: *mut C,
    pub(crate) c_stride: usize,
    pub(crate) prefetch: &'a Prefetch,
}

/// `w[i][j]` += sum over y, x of `a[y][x][i] d[y][x][j]`.
///
/// `count` such sums are computed, each with its own a, d and w, which are `next` apart. A `fresh` w is overwritten.
///
/// `a` has words: with pairs, one of them is made of the values at x and x + 1, for every second x. The last one of an odd
/// number may have anything in its upper half.
pub(crate) struct Outer<'a, D> {
    pub(crate) prefetch: &'a Prefetch,
    pub(crate) count: usize,
    /// Distances from one sum's a, d and w to the next one's.
    pub(crate) next: [usize; 3],
    pub(crate) fresh: bool,
    pub(crate) rows: usize,
    /// A multiple of 16.
    pub(crate) columns: usize,
    /// Numbers of y and x.
    pub(crate) size: [usize; 2],
    pub(crate) a: *const f32,
    /// Distances from one y to the next in `a`, and from the word of one x to the next word.
    pub(crate) a_strides: [usize; 2],
    pub(crate) d: *const D,
    pub(crate) d_strides: [usize; 2],
    pub(crate) w: *mut f32,
    pub(crate) w_stride: usize,
}

/// Columns of a panel of a packed matrix: two vectors where they divide the columns, else one.
#[inline(always)]
pub(crate) fn panel<I: Simd>(columns: usize) -> usize {
    let two = 2 * I::WIDTH;
    if columns.is_multiple_of(two) { two } else { I::WIDTH }
}

/// What a product of values of type A needs.
struct Tiles<I, A>(I, A);

impl<I: Simd, A: Activation> Tiles<I, A> {
    /// Whether products of pairs are computed by other instructions: slow whatever one does, and much code.
    const IS_EMULATED: bool = A::IS_BF16 && !I::HAS_DOT_BF16;
    /// Rows of a matrix product or of a sum of outer products that stay in registers, one or two vectors across.
    const ROWS: [usize; 2] = match (Self::IS_EMULATED, I::REGISTERS) {
        (true, _) => [4, 4],
        (false, 32) => [16, 12],
        (false, _) => [6, 6],
    };
}

dispatch! {
    /// Computes matrix products.
    ///
    /// # Safety
    /// For each of the `count` products: `a` is valid for reading every segment of every row, `b` for the sum of the
    /// segments' lengths times `columns`, and `c` is valid for writing `rows` rows of `columns` values, `c_stride`
    /// apart. `c` may be where `a` is only if a row's products need one panel, so that each row is read before it is
    /// written.
    pub(crate) unsafe fn gemm<A: Activation, C: Activation>(product: &Gemm<'_, A, C>) = gemm_kernel with bf16 if A::IS_BF16 || C::IS_BF16
}

dispatch! {
    /// Computes sums of outer products.
    ///
    /// # Safety
    /// For each of the `count` sums: `a` is valid for reading `rows` values and `d` for `columns` values at every (y,
    /// x), and `w` is valid for reading and writing `rows` rows of `columns` values, `w_stride` apart. `w` overlaps
    /// neither.
    pub(crate) unsafe fn outer<D: Activation>(sum: &Outer<'_, D>) = outer_kernel with bf16 if D::IS_BF16
}

/// Calls `$tile::<$isa, $operand, .., ROWS, $across>` with the number of rows as a constant.
macro_rules! by_rows {
    ($isa:ident, $across:literal, $rows:expr, $tile:ident ::<$operand:ident $(, $more:ident)*> ($($arg:expr),*)) => {
        by_rows!(@ $isa, $operand, $across, $rows, $tile ($operand $($more)*) ($($arg),*), 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    };
    (@ $isa:ident, $operand:ident, $across:literal, $rows:expr, $tile:ident $more:tt $args:tt, $($n:literal)*) => {
        match $rows {
            // what does not fit in the registers is never used, and not compiled
            $($n if const { $n <= Tiles::<$isa, $operand>::ROWS[$across - 1] } => by_rows!(# $isa, $n, $across, $tile $more $args),)*
            _ => unreachable!("rows are split to fit the registers"),
        }
    };
    (# $isa:ident, $n:literal, $across:literal, $tile:ident ($($more:ident)*) ($($arg:expr),*)) => {
        $tile::<$isa, $($more,)* $n, $across>($($arg),*)
    };
}

/// Cuts a whole into the fewest even pieces of at most `most`: how many there are, and how many values the smaller ones
/// have. The first `whole % pieces` have one more.
#[inline(always)]
fn pieces(whole: usize, most: usize) -> (usize, usize) {
    let pieces = whole.div_ceil(most).max(1);
    (pieces, whole / pieces)
}

/// # Safety
/// The contract of [`gemm`].
#[inline(always)]
unsafe fn gemm_kernel<I: Simd, A: Activation, C: Activation>(simd: I, g: &Gemm<'_, A, C>) {
    // rows that are a known distance apart need no registers for their addresses, which pays where the transforms of a
    // convolution are multiplied: their products are f32
    // SAFETY: the contract of `gemm` holds, and the constant is the distance of the rows.
    unsafe {
        match g.a_stride {
            _ if const { C::IS_BF16 || Tiles::<I, A>::IS_EMULATED } => gemm_with::<I, A, C, 0>(simd, g),
            16 => gemm_with::<I, A, C, 16>(simd, g),
            32 => gemm_with::<I, A, C, 32>(simd, g),
            64 => gemm_with::<I, A, C, 64>(simd, g),
            _ => gemm_with::<I, A, C, 0>(simd, g),
        }
    }
}

/// Matrix products with the distance between rows as a constant, unless it is 0.
///
/// # Safety
/// The contract of [`gemm`]; `STRIDE` is 0 or `a_stride`.
#[inline(always)]
unsafe fn gemm_with<I: Simd, A: Activation, C: Activation, const STRIDE: usize>(simd: I, g: &Gemm<'_, A, C>) {
    let width = panel::<I>(g.columns);
    let depth: usize = g.segments.iter().map(|segment| segment.length).sum();
    let across = width / I::WIDTH;
    let (number, least) = pieces(g.rows, Tiles::<I, A>::ROWS[across - 1]);
    let more = g.rows - number * least;
    // few short rows leave most registers empty: two products at a time
    if STRIDE == 16 && g.columns == I::WIDTH && g.rows == PAIRED && g.count.is_multiple_of(2) && g.segments == ROW {
        for at in (0..g.count).step_by(2) {
            g.prefetch.during(2 * g.rows * depth / (2 * A::DEPTH));
            let [a, b, c] = g.next.map(|next| at * next);
            // SAFETY: the contract of `gemm` for products `at` and `at + 1`: `PAIRED` rows, and one vector of columns.
            unsafe { product::<I, A, C, PAIRED, 1, STRIDE, 2>(simd, g, g.a.add(a), g.b.add(b), g.c.add(c)) };
        }
        return;
    }
    for at in 0..g.count {
        for first in (0..g.columns).step_by(width) {
            // SAFETY: the contract of `gemm` for product `at`: the pieces make up `rows`, and the panel begins at
            // column `first`.
            unsafe {
                let b = g.b.add(at * g.next[1] + first * depth);
                let (mut a, mut c) = (g.a.add(at * g.next[0]), g.c.add(at * g.next[2] + first));
                for piece in 0..number {
                    let rows = least + usize::from(piece < more);
                    g.prefetch.during(rows * across * depth / (2 * A::DEPTH));
                    if across == 2 {
                        by_rows!(I, 2, rows, single::<A, C, STRIDE>(simd, g, a, b, c));
                    } else {
                        by_rows!(I, 1, rows, single::<A, C, STRIDE>(simd, g, a, b, c));
                    }
                    (a, c) = (a.wrapping_add(rows * g.a_stride), c.wrapping_add(rows * g.c_stride));
                }
            }
        }
    }
}

/// Rows of two products that are computed together.
const PAIRED: usize = 8;
/// A row of sixteen values in one piece.
const ROW: [Segment; 1] = [Segment { offset: 0, length: 16 }];

/// R rows and N vectors of one product.
///
/// # Safety
/// The contract of [`product`] for one product.
#[inline(always)]
unsafe fn single<I: Simd, A: Activation, C: Activation, const STRIDE: usize, const R: usize, const N: usize>(
    simd: I,
    g: &Gemm<'_, A, C>,
    a: *const A,
    b: *const A,
    c: *mut C,
) {
    // SAFETY: the contract of `single` is that of `product` with P = 1.
    unsafe { product::<I, A, C, R, N, STRIDE, 1>(simd, g, a, b, c) }
}

/// R rows and N vectors of P products.
///
/// # Safety
/// For each of the P products, `g.next` apart: `a` is valid for reading all segments of R rows, `b` for N vectors per
/// value of a row, and `c` for writing N vectors in R rows, `g.c_stride` apart. `STRIDE` is 0 or `g.a_stride`.
#[inline(always)]
unsafe fn product<
    I: Simd,
    A: Activation,
    C: Activation,
    const R: usize,
    const N: usize,
    const STRIDE: usize,
    const P: usize,
>(
    simd: I,
    g: &Gemm<'_, A, C>,
    a: *const A,
    b: *const A,
    c: *mut C,
) {
    let stride = if STRIDE == 0 { g.a_stride } else { STRIDE };
    // SAFETY: by the contract, `a` and `b` are valid for every value of the segments, and `c` for the vectors stored at
    // the end.
    unsafe {
        let mut sums = [[[simd.splat(0.0); N]; R]; P];
        let mut b = b;
        if STRIDE == 16 && g.segments == ROW {
            // a known length: no loop
            for k in (0..16).step_by(A::DEPTH) {
                step(simd, &mut sums, a.add(k), stride, b.add(k * N * I::WIDTH), g.next);
            }
        } else {
            for segment in g.segments {
                let mut a = a.offset(segment.offset);
                for _ in 0..segment.length / A::DEPTH {
                    step(simd, &mut sums, a, stride, b, g.next);
                    (a, b) = (a.wrapping_add(A::DEPTH), b.wrapping_add(N * I::WIDTH * A::DEPTH));
                }
            }
        }
        for (p, sums) in sums.into_iter().enumerate() {
            for (r, sums) in sums.into_iter().enumerate() {
                for (j, sum) in sums.into_iter().enumerate() {
                    C::store(simd, c.add(p * g.next[2] + r * g.c_stride + j * I::WIDTH), sum);
                }
            }
        }
    }
}

/// Adds one column of words of a times one row of words of b, for P products.
///
/// # Safety
/// For each of the P products, `next` apart: `a` is valid for reading R words, `stride` apart, and `b` for N vectors of them.
#[inline(always)]
unsafe fn step<I: Simd, A: Activation, const R: usize, const N: usize, const P: usize>(
    simd: I,
    sums: &mut [[[I::V; N]; R]; P],
    a: *const A,
    stride: usize,
    b: *const A,
    next: [usize; 3],
) {
    // SAFETY: by the contract, `b` is valid for N vectors and `a` for R values of every product.
    unsafe {
        for (p, sums) in sums.iter_mut().enumerate() {
            let mut columns = [simd.splat(0.0); N];
            for (j, column) in columns.iter_mut().enumerate() {
                *column = simd.load(b.add(p * next[1] + j * I::WIDTH * A::DEPTH).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = A::splat_word(simd, a.add(p * next[0] + r * stride));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = A::multiply_add(simd, x, column, *sum);
                }
            }
        }
    }
}

/// # Safety
/// The contract of [`outer`].
#[inline(always)]
unsafe fn outer_kernel<I: Simd, D: Activation>(simd: I, o: &Outer<'_, D>) {
    let width = panel::<I>(o.columns);
    let across = width / I::WIDTH;
    let (number, least) = pieces(o.rows, Tiles::<I, D>::ROWS[across - 1]);
    let more = o.rows - number * least;
    for at in 0..o.count {
        for first in (0..o.columns).step_by(width) {
            // SAFETY: the contract of `outer` for sum `at`: the pieces make up `rows`, and the panel begins at column
            // `first`.
            unsafe {
                let d = o.d.add(at * o.next[1] + first);
                let (mut a, mut w) = (o.a.add(at * o.next[0]), o.w.add(at * o.next[2] + first));
                for piece in 0..number {
                    let rows = least + usize::from(piece < more);
                    o.prefetch.during(rows * across * o.size[0] * o.size[1] / (2 * D::DEPTH));
                    if across == 2 {
                        by_rows!(I, 2, rows, outer_tile::<D>(simd, o, a, d, w));
                    } else {
                        by_rows!(I, 1, rows, outer_tile::<D>(simd, o, a, d, w));
                    }
                    (a, w) = (a.wrapping_add(rows), w.wrapping_add(rows * o.w_stride));
                }
            }
        }
    }
}

/// R rows and N vectors of one sum.
///
/// # Safety
/// At every (y, x) of `o`, `a` is valid for reading R words and `d` for N vectors; `w` is valid for reading and
/// writing N vectors in R rows, `o.w_stride` apart.
#[inline(always)]
unsafe fn outer_tile<I: Simd, D: Activation, const R: usize, const N: usize>(
    simd: I,
    o: &Outer<'_, D>,
    a: *const f32,
    d: *const D,
    w: *mut f32,
) {
    // SAFETY: by the contract, `a` and `d` are valid at every (y, x), and `w` for the vectors loaded first and stored
    // last.
    unsafe {
        let mut sums = [[simd.splat(0.0); N]; R];
        if !o.fresh {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.load(w.add(r * o.w_stride + j * I::WIDTH));
                }
            }
        }
        let [a_next, d_next] = [o.a_strides[1], o.d_strides[1]];
        for y in 0..o.size[0] {
            let (mut a, mut d) = (a.add(y * o.a_strides[0]), d.add(y * o.d_strides[0]));
            for _ in 0..o.size[1] / D::DEPTH {
                let mut columns = [simd.splat(0.0); N];
                for (j, column) in columns.iter_mut().enumerate() {
                    *column = D::load_words(simd, d.add(j * I::WIDTH), d_next);
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = simd.splat(*a.add(r));
                    for (sum, column) in sums.iter_mut().zip(columns) {
                        *sum = D::multiply_add(simd, x, column, *sum);
                    }
                }
                a = a.wrapping_add(a_next);
                d = d.wrapping_add(d_next * D::DEPTH);
            }
            if !o.size[1].is_multiple_of(D::DEPTH) {
                for (r, sums) in sums.iter_mut().enumerate() {
                    // only the lower half counts
                    let x = simd.splat(f32::from_bits((*a.add(r)).to_bits() & 0xffff));
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let column = D::load_last_words(simd, d.add(j * I::WIDTH));
                        *sum = D::multiply_add(simd, x, column, *sum);
                    }
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                simd.store(w.add(r * o.w_stride + j * I::WIDTH), sum);
            }
        }
    }
}
