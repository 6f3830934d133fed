//! Safetensors files: the length of a JSON header, the header, and the values.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::array::{Array, ArrayHeader, ValueType};
use super::bytes::FileBytes;
use super::error::FeatureError;
use crate::error::DataError;
use crate::read::source::cannot_read;

/// The tensors of a file with their names, and its metadata.
pub(super) struct Tensors {
    pub(super) arrays: Vec<(String, Array)>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// Reads the header of a file.
pub(super) fn tensors(path: &Path) -> Result<Tensors, DataError> {
    let bytes = Arc::new(FileBytes::open(path).map_err(cannot_read(path))?);
    parse(&bytes).map_err(|what| DataError::Features { path: path.to_owned(), what })
}

fn parse(bytes: &Arc<FileBytes>) -> Result<Tensors, FeatureError> {
    let damaged = |what: &str| FeatureError::Header { what: what.to_owned() };
    let length = bytes.first_chunk::<8>().ok_or(FeatureError::Magic { format: "safetensors" })?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let got = bytes.len() as u64;
    let truncated = || FeatureError::Truncated { array: "its header".to_owned(), need: length as u64, got };
    let text = bytes[8..].get(..length).ok_or_else(truncated)?;
    if length > MOST_HEADER {
        return Err(damaged("it is longer than 100 MB"));
    }
    let Header { tensors, metadata } = serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))?;
    let mut arrays = Vec::new();
    for (name, TensorHeader { dtype: type_name, shape, data_offsets }) in tensors {
        let [first, last] = data_offsets.0[..] else { return Err(damaged("`data_offsets` must be two numbers")) };
        let Some(value_type) = value_type(&type_name) else {
            let (found, want) = (type_name.chars().take(40).collect(), "numbers are needed");
            return Err(FeatureError::Type { array: name, found, want });
        };
        let shape = shape.0;
        let header =
            ArrayHeader { name: name.clone(), value_type, type_name, is_big_endian: false, shape, by_columns: false };
        let start = 8usize.saturating_add(length);
        let array = Array::new(header, bytes, start.saturating_add(first), start.saturating_add(last))?;
        arrays.push((name, array));
    }
    Ok(Tensors { arrays, metadata })
}

/// Longest header in bytes, by the definition of the format.
const MOST_HEADER: usize = 100_000_000;
/// Most tensors of a file, and most bytes of a name.
const MOST_TENSORS: usize = 10_000;
const LONGEST_NAME: usize = 1000;
/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 32;

/// The header, read so that it takes little more memory than its text.
struct Header {
    tensors: BTreeMap<String, TensorHeader>,
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: FewNumbers,
    data_offsets: FewNumbers,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { tensors: BTreeMap::new(), metadata: BTreeMap::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else if name.len() > LONGEST_NAME || header.tensors.len() == MOST_TENSORS {
                        return Err(A::Error::custom("there are too many tensors, or one has too long a name"));
                    } else {
                        header.tensors.insert(name, map.next_value()?);
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Some whole numbers, as few as a tensor has dimensions.
struct FewNumbers(Vec<usize>);

impl<'de> Deserialize<'de> for FewNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;
        impl<'de> Visitor<'de> for Numbers {
            type Value = FewNumbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FewNumbers, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = list.next_element()? {
                    if numbers.len() == MOST_DIMENSIONS {
                        return Err(A::Error::custom("a tensor has too many dimensions"));
                    }
                    numbers.push(number);
                }
                Ok(FewNumbers(numbers))
            }
        }
        deserializer.deserialize_seq(Numbers)
    }
}

fn value_type(name: &str) -> Option<ValueType> {
    Some(match name {
        "F16" => ValueType::F16,
        "BF16" => ValueType::Bf16,
        "F32" => ValueType::F32,
        "F64" => ValueType::F64,
        "I8" => ValueType::Signed(1),
        "I16" => ValueType::Signed(2),
        "I32" => ValueType::Signed(4),
        "I64" => ValueType::Signed(8),
        "U8" | "BOOL" => ValueType::Unsigned(1),
        "U16" => ValueType::Unsigned(2),
        "U32" => ValueType::Unsigned(4),
        "U64" => ValueType::Unsigned(8),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str, data: &[u8]) -> Result<Tensors, FeatureError> {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat();
        parse(&Arc::new(FileBytes::Owned(bytes)))
    }

    #[test]
    fn damaged_headers_are_refused() {
        let error = |header: &str, data: &[u8]| read(header, data).map(|_| ()).expect_err("damaged").to_string();
        let good = r#"{"x": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}"#;
        assert_eq!(read(good, &[0; 8]).map(|tensors| tensors.arrays.len()), Ok(1));
        assert_eq!(error(good, &[0; 7]), "it is truncated: x needs 8 bytes, and 7 are there");
        assert_eq!(
            error(&good.replace("F32", "F8_E4M3"), &[0; 8]),
            "x has values of type F8_E4M3, but numbers are needed"
        );
        assert!(error("[1]", &[]).contains("expected a JSON object"), "{}", error("[1]", &[]));
        let many = good.replace("[1, 2]", &format!("[{}1]", "1, ".repeat(40)));
        assert!(error(&many, &[0; 8]).contains("a tensor has too many dimensions"));
        assert!(error(&good.replace("[0, 8]", "[0]"), &[0; 8]).ends_with("`data_offsets` must be two numbers"));
        // a shape that overflows asks for no memory
        assert!(
            error(&good.replace("[1, 2]", "[9999999999999, 9999999999999]"), &[0; 8]).starts_with("it is truncated")
        );
        let long = parse(&Arc::new(FileBytes::Owned(u64::MAX.to_le_bytes().to_vec())));
        assert!(long.map(|_| ()).expect_err("damaged").to_string().starts_with("it is truncated: its header"));
    }
}
