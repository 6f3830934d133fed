//! NumPy's `.npy` files: a header in the syntax of a Python dictionary, then the values.

use std::ops::Range;
use std::sync::Arc;

use super::array::{Array, ArrayHeader, ValueType};
use super::bytes::FileBytes;
use super::error::FeatureError;

/// Longest header of an array of numbers or texts. NumPy reads 10,000 bytes.
const MOST_HEADER: usize = 1 << 16;

/// The array in a stretch of bytes.
///
/// # Errors
/// If the header is damaged, the values are Python objects, or bytes are missing.
pub(super) fn array(name: &str, bytes: &Arc<FileBytes>, stretch: Range<usize>) -> Result<Array, FeatureError> {
    let end = stretch.end.min(bytes.len());
    let start = stretch.start.min(end);
    let (header, length) = header(name, &bytes[start..end])?;
    Array::new(header, bytes, start + length, end)
}

/// The header of an array, and its length in bytes.
fn header(name: &str, bytes: &[u8]) -> Result<(ArrayHeader, usize), FeatureError> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or(FeatureError::Magic { format: ".npy" })?;
    let truncated = |need: usize| FeatureError::Truncated {
        array: format!("the header of {name}"),
        need: need as u64,
        got: bytes.len() as u64,
    };
    let version = *rest.first().ok_or_else(|| truncated(10))?;
    let (length, start) = match version {
        1 => (
            usize::from(u16::from_le_bytes(*rest.get(2..).and_then(<[u8]>::first_chunk).ok_or_else(|| truncated(10))?)),
            10,
        ),
        2 | 3 => (
            u32::from_le_bytes(*rest.get(2..).and_then(<[u8]>::first_chunk).ok_or_else(|| truncated(12))?) as usize,
            12,
        ),
        version => return Err(FeatureError::NpyVersion { version }),
    };
    let text = bytes.get(start..start + length).ok_or_else(|| truncated(start + length))?;
    if length > MOST_HEADER {
        return Err(damaged("it is longer than that of any array"));
    }
    let text = std::str::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    Ok((dictionary(name, text)?, start + length))
}

fn damaged(what: impl Into<String>) -> FeatureError {
    FeatureError::Header { what: what.into() }
}

/// The fields of `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }`.
fn dictionary(name: &str, text: &str) -> Result<ArrayHeader, FeatureError> {
    let field = |key: &str| {
        let after = text.find(&format!("'{key}'")).map(|at| text[at + key.len() + 2..].trim_start());
        after
            .and_then(|rest| rest.strip_prefix(':'))
            .map(str::trim_start)
            .ok_or_else(|| damaged(format!("it has no `{key}`")))
    };
    let descr = field("descr")?;
    let quoted = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let Some((type_name, _)) = quoted else {
        let found = descr.chars().take(40).collect();
        return Err(FeatureError::Type { array: name.to_owned(), found, want: "one plain type is needed" });
    };
    let order = field("fortran_order")?;
    let by_columns = match order {
        _ if order.starts_with("True") => true,
        _ if order.starts_with("False") => false,
        _ => return Err(damaged("`fortran_order` is neither True nor False")),
    };
    let shape = field("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (shape, _) = shape.ok_or_else(|| damaged("`shape` is no tuple"))?;
    let sides = shape.split(',').map(str::trim).filter(|side| !side.is_empty());
    let shape: Result<Vec<usize>, _> = sides.map(str::parse).collect();
    let shape = shape.map_err(|_| damaged("`shape` is no tuple of numbers"))?;
    let (value_type, is_big_endian) = value_type(name, type_name)?;
    let (name, type_name) = (name.to_owned(), type_name.to_owned());
    Ok(ArrayHeader { name, value_type, type_name, is_big_endian, shape, by_columns })
}

/// The type of values that NumPy calls `<f4`, and whether their first byte is the largest.
fn value_type(name: &str, text: &str) -> Result<(ValueType, bool), FeatureError> {
    let unusable =
        || FeatureError::Type { array: name.to_owned(), found: text.to_owned(), want: "numbers or texts are needed" };
    let (is_big, rest) = match text.as_bytes().first() {
        Some(b'>') => (true, &text[1..]),
        Some(b'<' | b'|' | b'=') => (false, &text[1..]),
        _ => (false, text),
    };
    let kind = rest.chars().next().ok_or_else(unusable)?;
    if kind == 'O' {
        return Err(FeatureError::Objects { array: name.to_owned() });
    }
    let size: usize = rest[kind.len_utf8()..].parse().map_err(|_| unusable())?;
    let value_type = match (kind, size) {
        ('f', 2) => ValueType::F16,
        ('f', 4) => ValueType::F32,
        ('f', 8) => ValueType::F64,
        ('i', 1 | 2 | 4 | 8) => ValueType::Signed(size),
        ('u', 1 | 2 | 4 | 8) | ('b', 1) => ValueType::Unsigned(size),
        // a label of more than a million characters is none
        ('U', 1..=1_000_000) => ValueType::Text(size),
        ('S', 1..=1_000_000) => ValueType::Bytes(size),
        _ => return Err(unusable()),
    };
    Ok((value_type, is_big))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dictionary: &str, values: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        bytes.extend(dictionary.as_bytes());
        bytes.extend(values);
        bytes
    }

    fn read(bytes: Vec<u8>) -> Result<Array, FeatureError> {
        let end = bytes.len();
        array("x.npy", &Arc::new(FileBytes::Owned(bytes)), 0..end)
    }

    fn row(array: &Array, row: usize) -> Vec<f32> {
        let mut values = vec![0.0; array.columns()];
        array.copy_row(row, &mut values);
        values
    }

    #[test]
    fn both_orders_and_both_ends() {
        let numbers: Vec<u8> = (0..6).flat_map(|x| (x as f32).to_le_bytes()).collect();
        let by_rows =
            read(file("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n", &numbers)).expect("good");
        assert_eq!([row(&by_rows, 0), row(&by_rows, 2)], [[0.0, 1.0], [4.0, 5.0]]);
        let by_columns =
            read(file("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }\n", &numbers)).expect("good");
        assert_eq!([row(&by_columns, 0), row(&by_columns, 2)], [[0.0, 3.0], [2.0, 5.0]]);
        let numbers: Vec<u8> = [1.5f64, -2.0].iter().flat_map(|x| x.to_be_bytes()).collect();
        let big = read(file("{'shape': (1, 2), 'fortran_order': False, 'descr': '>f8'}", &numbers)).expect("good");
        assert_eq!(row(&big, 0), [1.5, -2.0]);
    }

    #[test]
    fn damaged_files_say_what_is_wrong() {
        let error = |bytes: Vec<u8>| read(bytes).map(|_| ()).expect_err("damaged").to_string();
        let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n";
        assert_eq!(error(b"PK".to_vec()), "it is no .npy file: its first bytes are not those of one");
        assert_eq!(error(file(head, &[0; 20])), "it is truncated: x.npy needs 24 bytes, and 20 are there");
        assert_eq!(
            error(file(head, &[])[..30].to_vec()),
            "it is truncated: the header of x.npy needs 70 bytes, and 30 are there"
        );
        assert_eq!(
            error(b"\x93NUMPY\x09\x00".to_vec()),
            "it has version 9 of the .npy format; versions 1 to 3 are read"
        );
        let of = |descr: &str| error(file(&head.replace("<f4", descr), &[0; 64]));
        assert!(of("|O").starts_with("x.npy holds Python objects"), "{}", of("|O"));
        assert_eq!(of("<c8"), "x.npy has values of type <c8, but numbers or texts are needed");
        assert_eq!(error(file("{'descr': '<f4'}", &[])), "its header cannot be read: it has no `fortran_order`");
        // sizes are checked before anything is allocated
        let huge = error(file(&head.replace("(3, 2)", "(9999999999999, 9999999999999)"), &[]));
        assert!(huge.starts_with("it is truncated"), "{huge}");
    }
}
