//! The safetensors format.
//!
//! A file is the header's length (8 bytes, little-endian), the header (JSON with the dtype, shape and offsets of every
//! tensor), and the bytes of the tensors, without gaps. Nothing in it is ever executed, unlike the pickles in `.pth`
//! files, which are refused.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::COUNTER;
use crate::error::NnError;

/// Longest header that is read; ResNet-50's has 40 KB.
const MOST_HEADER: u64 = 16 << 20;
/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 8;

/// What a header says about a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// Shapes and values of the tensors of a file, by name.
pub(super) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub(super) fn error(what: impl Into<String>) -> NnError {
    NnError::Weights { what: what.into() }
}

/// Reads every tensor of a file except the counters of batches.
pub(super) fn read(bytes: &[u8]) -> Result<Tensors, NnError> {
    let (header, data) = split(bytes)?;
    let header: BTreeMap<String, Value> =
        serde_json::from_slice(header).map_err(|cause| error(format!("the header is not valid: {cause}")))?;
    let mut entries = Vec::new();
    for (name, entry) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let entry: Entry = serde_json::from_value(entry).map_err(|cause| error(format!("tensor '{name}': {cause}")))?;
        entries.push((name, entry));
    }
    check_offsets(&mut entries, data.len())?;
    let mut tensors = Tensors::new();
    for (name, entry) in entries {
        let [from, to] = entry.data_offsets;
        if let Some(values) = decode(&name, &entry, &data[from..to])? {
            tensors.insert(name, (entry.shape, values));
        }
    }
    Ok(tensors)
}

/// Splits a file into its header and the bytes of the tensors.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), NnError> {
    // the length of a header may begin as a pickle does, but then a header follows
    let pickle = bytes.starts_with(b"PK") || matches!(bytes, [0x80, 2..=5, ..]);
    if pickle && bytes.get(8) != Some(&b'{') {
        return Err(error(
            "this is a PyTorch pickle, which could run any code; convert it with \
             `safetensors.torch.save_file(torch.load(\"x.pth\", weights_only=True), \"x.safetensors\")`",
        ));
    }
    let length = bytes.first_chunk().map(|head| u64::from_le_bytes(*head));
    let length = length.ok_or_else(|| error(format!("{} bytes are not a safetensors file", bytes.len())))?;
    if length > MOST_HEADER {
        let what = format!("a header of {length} bytes: this is not a safetensors file, or it has too many tensors");
        return Err(error(what));
    }
    let cut_off = || error(format!("the file is cut off: it has {} bytes and a header of {length}", bytes.len()));
    bytes[8..].split_at_checked(length as usize).ok_or_else(cut_off)
}

/// Sorts the entries by offset and checks that they cover the data exactly.
fn check_offsets(entries: &mut [(String, Entry)], length: usize) -> Result<(), NnError> {
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0;
    for (i, (name, entry)) in entries.iter().enumerate() {
        let [from, to] = entry.data_offsets;
        if from > to || to > length {
            let what = format!("tensor '{name}' has bytes {from} to {to}, but {length} bytes follow the header");
            return Err(error(what));
        }
        if from < end {
            let before = &entries[i - 1].0;
            let what =
                format!("tensors '{before}' and '{name}' overlap: one ends at byte {end}, the other begins at {from}");
            return Err(error(what));
        }
        if from > end {
            return Err(error(format!("bytes {end} to {from}, before tensor '{name}', belong to no tensor")));
        }
        end = to;
    }
    if end < length {
        let after = entries.last().map(|(name, _)| format!(", after tensor '{name}',")).unwrap_or_default();
        return Err(error(format!("bytes {end} to {length}{after} belong to no tensor")));
    }
    Ok(())
}

/// The values of a tensor, widened to f32; `None` for a counter of batches.
fn decode(name: &str, entry: &Entry, raw: &[u8]) -> Result<Option<Vec<f32>>, NnError> {
    let width = match entry.dtype.as_str() {
        "F32" => 4,
        "F16" | "BF16" => 2,
        _ if name.ends_with(COUNTER) => return Ok(None),
        other => return Err(error(format!("tensor '{name}' has dtype {other}; only F32, F16 and BF16 can be read"))),
    };
    let number = match entry.shape.len() {
        0..=MOST_DIMENSIONS => entry.shape.iter().try_fold(1usize, |all, side| all.checked_mul(*side)),
        _ => None,
    };
    if number.and_then(|number| number.checked_mul(width)) != Some(raw.len()) {
        return Err(error(format!("tensor '{name}' has {} bytes for shape {:?}", raw.len(), entry.shape)));
    }
    Ok(Some(match entry.dtype.as_str() {
        "F32" => raw.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect(),
        "F16" => raw.as_chunks().0.iter().map(|x| from_half(u16::from_le_bytes(*x))).collect(),
        _ => raw.as_chunks().0.iter().map(|x| from_bfloat(u16::from_le_bytes(*x))).collect(),
    }))
}

/// A bfloat16 number as f32.
fn from_bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An IEEE 754 half-precision number as f32.
fn from_half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, bits & 1023);
    let value = match exponent {
        0 => f32::from(fraction) * 2f32.powi(-24),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -value } else { value }
}

/// Writes a file, tensor after tensor.
pub(super) struct Writer {
    header: Map<String, Value>,
    data: Vec<u8>,
}

impl Writer {
    pub(super) fn new(metadata: Value) -> Self {
        Self { header: Map::from_iter([("__metadata__".to_owned(), metadata)]), data: Vec::new() }
    }

    pub(super) fn add(&mut self, name: String, dtype: &str, shape: &[usize], bytes: impl IntoIterator<Item = u8>) {
        let from = self.data.len();
        self.data.extend(bytes);
        let offsets = [from, self.data.len()];
        self.header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let mut header = Value::Object(self.header).to_string();
        // the data begins at a multiple of eight bytes
        header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.append(&mut self.data);
        bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use equipoise_random::Draws;

    use super::*;

    /// A file with these tensors; all values are zero.
    pub(in super::super) fn file(entries: &[(&str, &str, &[usize])]) -> Vec<u8> {
        let mut writer = Writer::new(json!({}));
        for (name, dtype, shape) in entries {
            let size = shape.iter().product::<usize>() * if *dtype == "F32" { 4 } else { 2 };
            writer.add((*name).to_owned(), dtype, shape, vec![0; size]);
        }
        writer.finish()
    }

    /// A file with vectors of F32 at these offsets, and this much data.
    fn file_at(offsets: &[(&str, [usize; 2])], data: usize) -> Vec<u8> {
        let entry = |(name, offsets): &(&str, [usize; 2])| {
            let shape = [(offsets[1] - offsets[0]) / 4];
            ((*name).to_owned(), json!({"dtype": "F32", "shape": shape, "data_offsets": offsets}))
        };
        let mut bytes = Writer { header: offsets.iter().map(entry).collect(), data: Vec::new() }.finish();
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    #[test]
    fn tensors_cover_the_data_exactly() {
        let read = |offsets: &[(&str, [usize; 2])], data: usize| match super::read(&file_at(offsets, data)) {
            Ok(tensors) => format!("{} tensors", tensors.len()),
            Err(error) => error.to_string(),
        };
        // in any order, and with an empty tensor
        assert_eq!(read(&[("b", [0, 8]), ("a", [8, 12]), ("c", [12, 12]), ("d", [12, 20])], 20), "4 tensors");
        assert_eq!(
            read(&[("a", [0, 8]), ("b", [4, 12]), ("c", [16, 20])], 20),
            "cannot read the weights: tensors 'a' and 'b' overlap: one ends at byte 8, the other begins at 4",
            "an overlap and a hole of the same size"
        );
        assert_eq!(
            read(&[("a", [0, 8]), ("b", [12, 20])], 20),
            "cannot read the weights: bytes 8 to 12, before tensor 'b', belong to no tensor"
        );
        assert_eq!(
            read(&[("a", [0, 8])], 20),
            "cannot read the weights: bytes 8 to 20, after tensor 'a', belong to no tensor"
        );
        assert_eq!(read(&[], 4), "cannot read the weights: bytes 0 to 4 belong to no tensor");
        assert_eq!(
            read(&[("a", [0, 24])], 20),
            "cannot read the weights: tensor 'a' has bytes 0 to 24, but 20 bytes follow the header"
        );
    }

    #[test]
    fn pickles_are_refused() {
        let refused = |bytes: &[u8]| read(bytes).expect_err("a pickle").to_string().contains("weights_only=True");
        assert!(refused(b"PK\x03\x04 a zip of pickles"));
        assert!(refused(&[0x80, 2, b'c', 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn halves_are_widened_exactly() {
        for (bits, want) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2f32.powi(-24)), (0x3555, 0.333_251_95)]
        {
            assert_eq!(from_half(bits), want);
        }
        assert!(from_half(0x7c00).is_infinite() && from_half(0x7e00).is_nan());
    }

    /// A damaged file gives an error or a result: never a panic, and never memory for what is not there.
    #[test]
    fn a_hundred_thousand_damaged_files() {
        let small = file(&[("a", "F32", &[2, 3]), ("b", "F16", &[4]), ("c", "BF16", &[])]);
        let mut good = 0;
        for round in 0..100_000 {
            let draws = Draws::new(5, 0, round);
            let mut bytes = small.clone();
            for k in 0..1 + draws.at(0) % 3 {
                let at = (draws.at(10 * k + 1) % bytes.len() as u64) as usize;
                match draws.at(10 * k + 2) % 4 {
                    0 => bytes[at] = draws.at(10 * k + 3) as u8,
                    1 => bytes[at] ^= 1 << (draws.at(10 * k + 3) % 8),
                    2 => bytes[at] = b"0123456789[]{},:\""[(draws.at(10 * k + 3) % 17) as usize],
                    _ => bytes.truncate(at.max(1)),
                }
            }
            good += usize::from(read(&bytes).is_ok());
        }
        assert!((1000..90_000).contains(&good), "{good} of 100,000 could be read");
    }
}
