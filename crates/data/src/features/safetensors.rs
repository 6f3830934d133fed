//! Safetensors files: the length of a JSON header, the header, and the values.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::array::{Array, ArrayHeader, ValueType};
use super::bytes::FileBytes;
use super::error::FeatureError;
use crate::error::DataError;
use crate::read::source::cannot_read;

/// The tensors of a file with their names, and its metadata.
pub(super) struct Tensors {
    pub(super) arrays: Vec<(String, Array)>,
    pub(super) metadata: Map<String, Value>,
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
    let header: Value = serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))?;
    let Value::Object(mut header) = header else { return Err(damaged("it is no JSON object")) };
    let metadata = match header.remove("__metadata__") {
        Some(Value::Object(metadata)) => metadata,
        None => Map::new(),
        Some(_) => return Err(damaged("`__metadata__` is no object")),
    };
    let mut arrays = Vec::new();
    for (name, about) in header {
        let whole = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let list = |key: &str| {
            let list = about.get(key).and_then(Value::as_array);
            list.and_then(|list| list.iter().map(whole).collect::<Option<Vec<usize>>>())
                .ok_or_else(|| damaged(&format!("`{key}` of tensor {name} is no list of numbers")))
        };
        let type_name = about.get("dtype").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (shape, offsets) = (list("shape")?, list("data_offsets")?);
        let [first, last] = offsets[..] else { return Err(damaged("`data_offsets` must be two numbers")) };
        let Some(value_type) = value_type(&type_name) else {
            let want = "numbers are needed";
            return Err(FeatureError::Type { array: name, found: type_name, want });
        };
        let header =
            ArrayHeader { name: name.clone(), value_type, type_name, is_big_endian: false, shape, by_columns: false };
        let start = 8usize.saturating_add(length);
        let array = Array::new(header, bytes, start.saturating_add(first), start.saturating_add(last))?;
        arrays.push((name, array));
    }
    Ok(Tensors { arrays, metadata })
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
        assert!(error("[1]", &[]).ends_with("it is no JSON object"));
        assert!(error(&good.replace("[0, 8]", "[0]"), &[0; 8]).ends_with("`data_offsets` must be two numbers"));
        // a shape that overflows asks for no memory
        assert!(
            error(&good.replace("[1, 2]", "[9999999999999, 9999999999999]"), &[0; 8]).starts_with("it is truncated")
        );
        let long = parse(&Arc::new(FileBytes::Owned(u64::MAX.to_le_bytes().to_vec())));
        assert!(long.map(|_| ()).expect_err("damaged").to_string().starts_with("it is truncated: its header"));
    }
}
