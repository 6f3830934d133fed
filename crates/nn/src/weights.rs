//! Weights in and out: safetensors, with the names and shapes that PyTorch programs use.
//!
//! A file is the header's length (8 bytes, little-endian), the header (JSON: dtype, shape and place of every tensor), and the
//! tensors' bytes. Nothing in it is ever executed, unlike the pickles in `.pth` files, which are refused.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::NnError;
use crate::network::{Network, Tensor};

/// The values of a network's tensors, in the order of its [`parameters`](Network::parameters) and
/// [`statistics`](Network::statistics).
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// What is trained.
    pub parameters: Vec<Vec<f32>>,
    /// Running means and variances.
    pub statistics: Vec<Vec<f32>>,
}

/// The longest header that is read: ResNet-50's has 40 KB.
const MOST_HEADER: u64 = 16 << 20;
/// How much a header may say about one tensor.
const MOST_SIDES: usize = 8;

/// What PyTorch keeps with every batch norm beside its statistics, and nobody needs.
const COUNTER: &str = "num_batches_tracked";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

fn wrong(what: impl Into<String>) -> NnError {
    NnError::Weights { what: what.into() }
}

/// A network's tensors in the order of their names, statistics included.
fn tensors(network: &Network) -> impl Iterator<Item = Tensor> {
    network.parameters().into_iter().chain(network.statistics())
}

impl Weights {
    /// A safetensors file that PyTorch's `load_state_dict` takes as it is; `batches` is how many the statistics come from.
    ///
    /// # Errors
    /// For values that are not the network's.
    pub fn to_bytes(&self, network: &Network, batches: u64) -> Result<Vec<u8>, NnError> {
        let values = || self.parameters.iter().chain(&self.statistics);
        let want = tensors(network).count();
        if values().count() != want {
            return Err(NnError::Length { what: "tensors", got: values().count(), want });
        }
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), json!({"format": "pt", "network": network.name}));
        let mut data = Vec::new();
        let mut note = |name: String, dtype: &str, shape: &[usize], from: usize, to: usize| {
            header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [from, to]}));
        };
        // eight-byte values first, so that everything is aligned
        let counters = network.statistics().into_iter().filter_map(|tensor| {
            let norm = tensor.name.strip_suffix("running_mean")?;
            Some(format!("{norm}{COUNTER}"))
        });
        for name in counters {
            data.extend_from_slice(&batches.to_le_bytes());
            note(name, "I64", &[], data.len() - 8, data.len());
        }
        for (tensor, values) in tensors(network).zip(values()) {
            if values.len() != tensor.len() {
                return Err(NnError::Shape { name: tensor.name, got: vec![values.len()], want: tensor.shape });
            }
            let from = data.len();
            values.iter().for_each(|x| data.extend_from_slice(&x.to_le_bytes()));
            note(tensor.name, "F32", &tensor.shape, from, data.len());
        }
        let mut text = Value::Object(header).to_string();
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes.append(&mut data);
        Ok(bytes)
    }

    /// Reads a safetensors file with exactly a network's tensors: F32, or F16 and BF16, which are widened.
    ///
    /// # Errors
    /// Names the tensor that is missing, unknown, of another shape or not finite, or what is wrong with the file.
    pub fn from_bytes(bytes: &[u8], network: &Network) -> Result<Self, NnError> {
        let mut found = read(bytes)?;
        // what `DataParallel` puts before every name
        if !found.is_empty() && found.keys().all(|name| name.starts_with("module.")) {
            found = found.into_iter().map(|(name, values)| (name["module.".len()..].to_owned(), values)).collect();
        }
        found.retain(|name, _| !name.ends_with(COUNTER));
        let known: HashMap<String, ()> = tensors(network).map(|tensor| (tensor.name, ())).collect();
        if let Some(name) = found.keys().find(|name| !known.contains_key(*name)) {
            let near = known.keys().map(|known| (strsim::levenshtein(name, known), known)).min();
            let near = near.filter(|(distance, _)| *distance <= 3).map(|(_, known)| known.clone());
            return Err(NnError::UnknownTensor { name: name.clone(), nearest: near });
        }
        let mut take = |tensor: Tensor| {
            let missing = || NnError::MissingTensor { name: tensor.name.clone() };
            let (shape, values) = found.remove(&tensor.name).ok_or_else(missing)?;
            if shape != tensor.shape {
                return Err(NnError::Shape { name: tensor.name, got: shape, want: tensor.shape });
            }
            if let Some(value) = values.iter().copied().find(|x| !x.is_finite()) {
                return Err(NnError::TensorNotFinite { name: tensor.name, value });
            }
            let variance = tensor.name.ends_with("running_var");
            if let Some(value) = values.iter().find(|x| variance && **x < 0.0) {
                return Err(wrong(format!("tensor `{}`: a variance of {value}", tensor.name)));
            }
            Ok(values)
        };
        let parameters = network.parameters().into_iter().map(&mut take).collect::<Result<_, _>>()?;
        let statistics = network.statistics().into_iter().map(take).collect::<Result<_, _>>()?;
        Ok(Self { parameters, statistics })
    }
}

/// Shape and values by name; counters are left out.
type Found = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Every tensor of a file.
fn read(bytes: &[u8]) -> Result<Found, NnError> {
    // a header's length may begin like a pickle too, but then a header follows
    let pickle = bytes.starts_with(b"PK") || matches!(bytes, [0x80, 2..=5, ..]);
    if pickle && bytes.get(8) != Some(&b'{') {
        return Err(wrong(
            "a PyTorch pickle, which could run anything: convert it with `safetensors.torch.save_file(torch.load(\"x.pth\", \
             weights_only=True), \"x.safetensors\")`",
        ));
    }
    let length = bytes.first_chunk().map(|head| u64::from_le_bytes(*head));
    let length = length.ok_or_else(|| wrong(format!("{} bytes: not a safetensors file", bytes.len())))?;
    if length > MOST_HEADER {
        return Err(wrong(format!("a header of {length} bytes: not a safetensors file, or one with too many tensors")));
    }
    let (header, data) = (bytes[8..].split_at_checked(length as usize))
        .ok_or_else(|| wrong(format!("cut off: a header of {length} bytes in a file of {}", bytes.len())))?;
    let header: BTreeMap<String, Value> =
        serde_json::from_slice(header).map_err(|error| wrong(format!("its header: {error}")))?;
    let mut found = Found::new();
    let mut used = 0;
    for (name, entry) in header {
        if name == "__metadata__" {
            continue;
        }
        let entry: Entry = serde_json::from_value(entry).map_err(|error| wrong(format!("tensor `{name}`: {error}")))?;
        let [from, to] = entry.data_offsets;
        let raw = data.get(from..to).ok_or_else(|| {
            wrong(format!("tensor `{name}`: bytes {from} to {to}, but there are {} behind the header", data.len()))
        })?;
        used += raw.len();
        let width = match entry.dtype.as_str() {
            "F32" => 4,
            "F16" | "BF16" => 2,
            _ if name.ends_with(COUNTER) => continue,
            other => return Err(wrong(format!("tensor `{name}`: dtype {other}: F32, F16 and BF16 are read"))),
        };
        let number = match entry.shape.len() {
            0..=MOST_SIDES => entry.shape.iter().try_fold(1usize, |all, side| all.checked_mul(*side)),
            _ => None,
        };
        if number.and_then(|number| number.checked_mul(width)) != Some(raw.len()) {
            return Err(wrong(format!("tensor `{name}`: {} bytes for shape {:?}", raw.len(), entry.shape)));
        }
        let values = match entry.dtype.as_str() {
            "F32" => raw.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect(),
            "BF16" => {
                raw.as_chunks().0.iter().map(|x| f32::from_bits(u32::from(u16::from_le_bytes(*x)) << 16)).collect()
            }
            _ => raw.as_chunks().0.iter().map(|x| half(u16::from_le_bytes(*x))).collect(),
        };
        found.insert(name, (entry.shape, values));
    }
    if used > data.len() {
        return Err(wrong("tensors overlap"));
    }
    Ok(found)
}

/// A number of 16 bits (IEEE 754 half precision) in 32.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, bits & 1023);
    let value = match exponent {
        0 => f32::from(fraction) * 2f32.powi(-24),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(i32::from(exponent) - 15),
    };
    if sign == 1 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use equipoise_random::Draws;

    use super::*;
    use crate::network::Architecture;

    fn network() -> Network {
        Network::new(Architecture::ResNet8, 3, [8, 8], 4).expect("known")
    }

    fn weights(network: &Network) -> Weights {
        let statistics = network.statistics().iter().map(|t| (0..t.len()).map(|i| i as f32 * 0.5).collect()).collect();
        Weights { parameters: network.initial_parameters(3), statistics }
    }

    /// A header's length may begin as a pickle does.
    #[test]
    fn lengths_that_look_like_pickles() {
        let mut refused = 0;
        for extra in 0..800 {
            let mut network = Network::new(Architecture::ResNet8, 1, [4, 4], 2).expect("known");
            network.name += &"x".repeat(8 * extra);
            let weights = Weights {
                parameters: network.initial_parameters(0),
                statistics: network.statistics().iter().map(|tensor| vec![1.0; tensor.len()]).collect(),
            };
            let bytes = weights.to_bytes(&network, 0).expect("its own");
            refused += usize::from(bytes[0] == 0x80 || bytes.starts_with(b"PK"));
            assert_eq!(Weights::from_bytes(&bytes, &network).expect("its own"), weights);
        }
        assert!(refused > 10, "the case was met");
        assert!(read(b"PK\x03\x04 a zip of pickles").expect_err("zip").to_string().contains("pickle"));
        assert!(read(&[0x80, 2, b'c', 0, 0, 0, 0, 0, 0, 0]).expect_err("pickle").to_string().contains("pickle"));
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit() {
        let network = network();
        let weights = weights(&network);
        let bytes = weights.to_bytes(&network, 7).expect("its own shapes");
        assert_eq!(Weights::from_bytes(&bytes, &network).expect("good"), weights);
        assert_eq!(u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")) % 8, 0);
    }

    /// A file with these tensors, all F32 zeros unless they say otherwise.
    fn file(entries: &[(&str, &str, &[usize])]) -> Vec<u8> {
        let (mut header, mut at) = (Map::new(), 0);
        for (name, dtype, shape) in entries {
            let size = shape.iter().product::<usize>() * if *dtype == "F32" { 4 } else { 2 };
            header.insert((*name).to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}));
            at += size;
        }
        let text = Value::Object(header).to_string();
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &vec![0; at]].concat()
    }

    fn error(bytes: &[u8]) -> String {
        Weights::from_bytes(bytes, &network()).expect_err("refused").to_string()
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(error(&file(&[])), "tensor 'conv1.weight' is missing");
        let near = error(&file(&[("layer1.0.conv1.weigth", "F32", &[1])]));
        assert_eq!(
            near,
            "tensor 'layer1.0.conv1.weigth': the network has no tensor of this name; did you mean 'layer1.0.conv1.weight'?"
        );
        assert_eq!(error(&file(&[("fc.w", "F32", &[1])])), "tensor 'fc.w': the network has no tensor of this name");
        let shape = error(&file(&[("conv1.weight", "F32", &[16, 3, 3, 2])]));
        assert_eq!(shape, "tensor 'conv1.weight' has shape [16, 3, 3, 2], but the network needs [16, 3, 3, 3]");
        assert!(error(&file(&[("conv1.weight", "I8", &[3])])).contains("dtype I8"));
        assert!(error(b"PK\x03\x04").contains("weights_only=True"));
        assert!(error(b"\x80\x02}q").contains("pickle"));
        assert!(error(b"abc").contains("3 bytes"));
        assert!(error(&[0xff; 40]).contains("header of"));
        let network = network();
        let mut spoilt = weights(&network);
        spoilt.parameters[2][5] = f32::NAN;
        assert_eq!(error(&spoilt.to_bytes(&network, 0).expect("shapes")), "tensor 'bn1.bias': NaN is not finite");
        spoilt.parameters.pop();
        assert!(matches!(spoilt.to_bytes(&network, 0), Err(NnError::Length { .. })));
    }

    #[test]
    fn halves_are_widened_exactly() {
        for (bits, want) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2f32.powi(-24)), (0x3555, 0.333_251_95)]
        {
            assert_eq!(half(bits), want);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
    }

    /// 100,000 damaged files: an error or a result, never a panic, never memory for what is not there.
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
