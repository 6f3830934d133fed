//! An array of numbers or texts inside a file: its type, its shape, and where its values are.

use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use equipoise_simd::{prefetch, prefetch_line};

use super::bytes::FileBytes;
use super::error::FeatureError;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    F16,
    Bf16,
    F32,
    F64,
    /// Whole numbers of so many bytes.
    Signed(usize),
    Unsigned(usize),
    /// Texts of so many characters of four bytes, as NumPy stores them.
    Text(usize),
    /// Texts of so many bytes.
    Bytes(usize),
}

impl ValueType {
    /// Bytes of a value.
    pub(super) fn size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Signed(size) | Self::Unsigned(size) | Self::Bytes(size) => size,
            Self::Text(characters) => 4 * characters,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text(_) | Self::Bytes(_))
    }
}

/// What a header says about an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArrayHeader {
    /// Name of the array, for messages.
    pub(super) name: String,
    pub(super) value_type: ValueType,
    /// The type in the words of the file.
    pub(super) type_name: String,
    pub(super) is_big_endian: bool,
    pub(super) shape: Vec<usize>,
    /// Whether columns are stored one after the other (Fortran's order) rather than rows.
    pub(super) by_columns: bool,
}

/// An array inside a file.
#[derive(Clone)]
pub(super) struct Array {
    pub(super) header: ArrayHeader,
    bytes: Arc<FileBytes>,
    /// Where the values start.
    start: usize,
}

impl Array {
    /// An array whose values start at `start` and end before `end`.
    ///
    /// # Errors
    /// If there are fewer bytes than the shape needs.
    pub(super) fn new(
        header: ArrayHeader,
        bytes: &Arc<FileBytes>,
        start: usize,
        end: usize,
    ) -> Result<Self, FeatureError> {
        let size = header.value_type.size();
        let need = header.shape.iter().try_fold(size, |bytes, side| bytes.checked_mul(*side));
        let got = end.min(bytes.len()).saturating_sub(start);
        match need {
            Some(need) if need <= got => Ok(Self { header, bytes: Arc::clone(bytes), start }),
            need => Err(FeatureError::Truncated {
                array: header.name,
                need: need.map_or(u64::MAX, |need| need as u64),
                got: got as u64,
            }),
        }
    }

    /// Number of the first dimension.
    pub(super) fn rows(&self) -> usize {
        self.header.shape.first().copied().unwrap_or(0)
    }

    /// Number of values of a row.
    pub(super) fn columns(&self) -> usize {
        self.header.shape.iter().skip(1).product()
    }

    /// The bytes of the value at this position of the file's order.
    fn value(&self, position: usize) -> &[u8] {
        let size = self.header.value_type.size();
        &self.bytes[self.start + position * size..][..size]
    }

    /// The bytes of values that are side by side.
    fn values(&self, first: usize, number: usize) -> &[u8] {
        let size = self.header.value_type.size();
        &self.bytes[self.start + first * size..][..number * size]
    }

    /// The bytes of a row whose values are side by side; none if they are not.
    pub(super) fn row_bytes(&self, row: usize) -> &[u8] {
        if self.header.by_columns { &[] } else { self.values(row * self.columns(), self.columns()) }
    }

    /// Copies a row of numbers, and requests other bytes from memory meanwhile: a line of them for every line of the row, because the CPU can
    /// wait for few lines at once.
    pub(super) fn copy_row_and_prefetch(&self, row: usize, to: &mut [f32], next: &[u8]) {
        if self.header.by_columns || self.header.value_type != ValueType::F32 || self.header.is_big_endian {
            prefetch(next);
            return self.copy_row(row, to);
        }
        // lines of a known length are copied by vectors
        let (lines, rest) = self.row_bytes(row).as_chunks::<LINE>();
        let (to_lines, to_rest) = to.as_chunks_mut::<{ LINE / size_of::<f32>() }>();
        for (number, (line, to)) in lines.iter().zip(to_lines).enumerate() {
            prefetch_line(next.as_ptr().wrapping_add(next.len().min(number * LINE)));
            copy_numbers(line, to);
            // otherwise the compiler copies the whole row first
            compiler_fence(Ordering::SeqCst);
        }
        copy_numbers(rest, to_rest);
    }

    /// Copies a row of numbers.
    pub(super) fn copy_row(&self, row: usize, to: &mut [f32]) {
        let (rows, columns) = (self.rows(), self.columns());
        if self.header.by_columns {
            for (column, to) in to.iter_mut().enumerate() {
                *to = self.number(self.value(column * rows + row)) as f32;
            }
            return;
        }
        let values = self.values(row * columns, columns);
        match (self.header.value_type, self.header.is_big_endian) {
            (ValueType::F32, false) => copy_numbers(values, to),
            (value_type, _) => {
                let values = values.chunks_exact(value_type.size());
                to.iter_mut().zip(values).for_each(|(to, value)| *to = self.number(value) as f32);
            }
        }
    }

    /// The number at a position of a one-dimensional array.
    pub(super) fn number_at(&self, position: usize) -> f64 {
        self.number(self.value(position))
    }

    /// The text at a position of a one-dimensional array.
    pub(super) fn text_at(&self, position: usize) -> String {
        let value = self.value(position);
        match self.header.value_type {
            ValueType::Text(_) => {
                let is_big = self.header.is_big_endian;
                let code =
                    |bytes: &[u8; 4]| if is_big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
                let characters = value.as_chunks::<4>().0.iter().map(code).take_while(|code| *code != 0);
                characters.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            _ => {
                let length = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
                String::from_utf8_lossy(&value[..length]).into_owned()
            }
        }
    }

    /// A number of up to eight bytes.
    fn number(&self, value: &[u8]) -> f64 {
        let mut bits = 0u64;
        for (i, byte) in value.iter().enumerate() {
            let place = if self.header.is_big_endian { value.len() - 1 - i } else { i };
            bits |= u64::from(*byte) << (8 * place);
        }
        match self.header.value_type {
            ValueType::F16 => f64::from(half(bits as u16)),
            ValueType::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            ValueType::F32 => f64::from(f32::from_bits(bits as u32)),
            ValueType::F64 => f64::from_bits(bits),
            ValueType::Signed(size) => {
                let shift = 64 - 8 * size as u32;
                ((bits << shift) as i64 >> shift) as f64
            }
            ValueType::Unsigned(_) | ValueType::Text(_) | ValueType::Bytes(_) => bits as f64,
        }
    }
}

/// Copies numbers of 32 bits.
#[inline(always)]
fn copy_numbers(values: &[u8], to: &mut [f32]) {
    to.iter_mut().zip(values.as_chunks::<4>().0).for_each(|(to, value)| *to = f32::from_le_bytes(*value));
}

/// A number of IEEE 754's 16 bits.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    match exponent {
        // 2^-24 is the smallest number
        0 => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_by_hand() {
        let cases = [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333_251_95), (0x7bff, 65504.0), (1, 5.960_464_5e-8)];
        for (bits, want) in cases {
            assert_eq!(half(bits), want);
        }
        assert_eq!((half(0x7c00), half(0xfc00), half(0x8000).to_bits()), (f32::INFINITY, f32::NEG_INFINITY, 1 << 31));
        assert!(half(0x7e00).is_nan());
    }

    fn array(value_type: ValueType, bytes: Vec<u8>, shape: &[usize]) -> Array {
        let header = ArrayHeader {
            name: "x".to_owned(),
            value_type,
            type_name: String::new(),
            is_big_endian: true,
            shape: shape.to_vec(),
            by_columns: false,
        };
        let end = bytes.len();
        Array::new(header, &Arc::new(FileBytes::Owned(bytes)), 0, end).expect("complete")
    }

    #[test]
    fn numbers_of_every_type() {
        let number = |value_type, bytes: &[u8]| array(value_type, bytes.to_vec(), &[1]).number_at(0);
        assert_eq!(number(ValueType::Signed(2), &(-3i16).to_be_bytes()), -3.0);
        assert_eq!(number(ValueType::Unsigned(8), &7u64.to_be_bytes()), 7.0);
        assert_eq!(number(ValueType::F64, &0.1f64.to_be_bytes()), 0.1);
        assert_eq!(number(ValueType::F32, &0.5f32.to_be_bytes()), 0.5);
        assert_eq!(number(ValueType::Bf16, &[0x3f, 0x80]), 1.0);
        let texts = array(ValueType::Bytes(3), b"ab\0cde".to_vec(), &[2]);
        assert_eq!([texts.text_at(0), texts.text_at(1)], ["ab", "cde"]);
    }
}
