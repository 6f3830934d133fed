//! A head on features behind its backbone: one file, images in, probabilities out.
//!
//! The backbone's file is taken apart field by field. Its nodes and weights stay as they are, except that they read normalized pixels in
//! place of the input; the nodes of the head are added with names that start with `head.`.

use std::collections::HashSet;

use equipoise_support::Message;
use thiserror::Error;

use crate::IR_VERSION;
use crate::message::{Attribute, Graph, Value};
use crate::network::{Model, feature_head};

/// The newest version of ONNX's operators that those of a head are the same in.
const NEWEST: u64 = 24;

/// Why a head cannot be joined with a backbone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// The file is no ONNX model.
    #[error("it is no ONNX model: {what}")]
    NotOnnx {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The model has no output of this name.
    #[error("it has no output `{name}`, which the features came from; its outputs are {outputs}")]
    NoOutput {
        /// The name.
        name: String,
        /// The outputs that it has.
        outputs: String,
    },
    /// The output has a shape that is not turned into features here.
    #[error(
        "its output `{name}` has {dimensions} dimensions; only rows of features and maps that are averaged can be joined"
    )]
    Dimensions {
        /// The output.
        name: String,
        /// Number of its dimensions.
        dimensions: usize,
    },
    /// The model has more than one input.
    #[error("it has {inputs} inputs; a backbone of images has one")]
    Inputs {
        /// Number of inputs.
        inputs: usize,
    },
    /// The operators of the model are too old or too new for those of the head.
    #[error(
        "it uses version {opset} of ONNX's operators; the head needs 13 to {NEWEST}, so export the backbone again with `opset_version=17`"
    )]
    Opset {
        /// The version.
        opset: u64,
    },
    /// The model has a value with a name that the head needs.
    #[error("it has a value named `{name}`, which the joined file needs for its own")]
    NameTaken {
        /// The name.
        name: String,
    },
}

/// A backbone, and how images become its input.
#[derive(Clone, Copy, Debug)]
pub struct BackboneFile<'a> {
    /// The bytes of its file.
    pub bytes: &'a [u8],
    /// The output that holds the features.
    pub output: &'a str,
    /// Mean of the pixels by channel, in 0..=1.
    pub mean: &'a [f32],
    /// Standard deviation of the pixels by channel, in 0..=1.
    pub std: &'a [f32],
    /// Height and width of the images.
    pub image_size: usize,
}

/// A field of a message: its number, and a number or bytes.
enum Field<'a> {
    Number(u32, u64),
    Bytes(u32, &'a [u8]),
}

const TRUNCATED: JoinError = JoinError::NotOnnx { what: "it ends in the middle of a field" };

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> Result<Vec<Field<'_>>, JoinError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes)?;
        let field = u32::try_from(tag >> 3).map_err(|_| TRUNCATED)?;
        match tag & 7 {
            // fixed numbers are not among the fields that are read here
            1 => bytes = bytes.get(8..).ok_or(TRUNCATED)?,
            5 => bytes = bytes.get(4..).ok_or(TRUNCATED)?,
            0 => all.push(Field::Number(field, number(&mut bytes)?)),
            2 => {
                let length = usize::try_from(number(&mut bytes)?).map_err(|_| TRUNCATED)?;
                let (taken, rest) = bytes.split_at_checked(length).ok_or(TRUNCATED)?;
                bytes = rest;
                all.push(Field::Bytes(field, taken));
            }
            _ => return Err(JoinError::NotOnnx { what: "a field has an unknown type" }),
        }
    }
    Ok(all)
}

/// Takes a number of variable length.
fn number(bytes: &mut &[u8]) -> Result<u64, JoinError> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or(TRUNCATED)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(JoinError::NotOnnx { what: "a number is too long" })
}

/// The text of the first field with this number.
fn text(message: &[u8], wanted: u32) -> Result<String, JoinError> {
    let found = fields(message)?.into_iter().find_map(|field| match field {
        Field::Bytes(number, bytes) if number == wanted => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    Ok(found.unwrap_or_default())
}

/// The bytes of all fields with this number.
fn messages(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>, JoinError> {
    let of = |field| match field {
        Field::Bytes(number, bytes) if number == wanted => Some(bytes),
        _ => None,
    };
    Ok(fields(message)?.into_iter().filter_map(of).collect())
}

/// Number of dimensions of a `ValueInfoProto`: its type, its tensor type, its shape, its dimensions.
fn dimensions(value: &[u8]) -> Result<usize, JoinError> {
    let mut inner = value;
    for number in [2, 1, 2] {
        match messages(inner, number)?.first() {
            Some(next) => inner = next,
            None => return Ok(0),
        }
    }
    Ok(messages(inner, 1)?.len())
}

/// The bytes of an ONNX file with a backbone and a head on its features. Its input `images` is batch x channels x height x width, with
/// pixels in 0..=1; its outputs are `logits` and `probabilities`.
///
/// # Errors
/// If the backbone cannot be joined.
///
/// # Panics
/// If the model is not a head on features, or its values do not have its shapes.
pub fn write_joined(model: &Model<'_>, backbone: &BackboneFile<'_>) -> Result<Vec<u8>, JoinError> {
    let parts = fields(backbone.bytes)?;
    let graph = parts.iter().find_map(|field| match field {
        Field::Bytes(7, graph) => Some(*graph),
        _ => None,
    });
    let graph = graph.ok_or(JoinError::NotOnnx { what: "it has no graph" })?;
    let opset = opset(&parts)?;
    if !(13..=NEWEST).contains(&opset) {
        return Err(JoinError::Opset { opset });
    }
    let outputs = messages(graph, 12)?;
    let names: Vec<String> = outputs.iter().map(|value| text(value, 1)).collect::<Result<_, _>>()?;
    let Some(position) = names.iter().position(|name| name == backbone.output) else {
        return Err(JoinError::NoOutput { name: backbone.output.to_owned(), outputs: names.join(", ") });
    };
    let input = only_input(graph)?;
    let mut head = Graph::default();
    normalize(&mut head, backbone);
    let before = head.nodes.len();
    let features = match dimensions(outputs[position])? {
        2 => backbone.output.to_owned(),
        4 => {
            let pooled = head.node("GlobalAveragePool", "head.pooled", &[backbone.output], []);
            head.node("Flatten", "head.features", &[&pooled], [Attribute::Integer("axis", 1)])
        }
        dimensions => return Err(JoinError::Dimensions { name: backbone.output.to_owned(), dimensions }),
    };
    feature_head(&mut head, model, &features, "head.");
    check_names(graph, &head)?;
    // what normalizes comes first, and what reads the features last: nodes are in the order of their execution
    let after = head.nodes.split_off(before);
    let mut joined = Message::default();
    for node in &head.nodes {
        joined = joined.message(1, &node.encode());
    }
    for node in messages(graph, 1)? {
        joined = joined.message(1, &with_input(node, &input)?);
    }
    for node in &after {
        joined = joined.message(1, &node.encode());
    }
    joined = joined.bytes(2, model.network.name.as_bytes());
    for constant in messages(graph, 5)? {
        joined = joined.bytes(5, constant);
    }
    for constant in head.constants {
        joined = joined.message(5, &constant.encode());
    }
    for value in &head.inputs {
        joined = joined.message(11, &value.encode());
    }
    for value in &head.outputs {
        joined = joined.message(12, &value.encode());
    }
    for known in messages(graph, 13)? {
        joined = joined.bytes(13, known);
    }
    Ok(file(&parts, &joined, model))
}

/// Version of ONNX's own operators.
fn opset(parts: &[Field<'_>]) -> Result<u64, JoinError> {
    for field in parts {
        if let Field::Bytes(8, set) = field
            && matches!(text(set, 1)?.as_str(), "" | "ai.onnx")
        {
            let version = fields(set)?.into_iter().find_map(|field| match field {
                Field::Number(2, version) => Some(version),
                _ => None,
            });
            return Ok(version.unwrap_or(0));
        }
    }
    Ok(0)
}

/// The name of the only input that is no constant.
fn only_input(graph: &[u8]) -> Result<String, JoinError> {
    let constants: HashSet<String> =
        messages(graph, 5)?.into_iter().map(|tensor| text(tensor, 8)).collect::<Result<_, _>>()?;
    let inputs: Vec<String> = messages(graph, 11)?.into_iter().map(|value| text(value, 1)).collect::<Result<_, _>>()?;
    let inputs: Vec<String> = inputs.into_iter().filter(|name| !constants.contains(name)).collect();
    match &inputs[..] {
        [input] => Ok(input.clone()),
        _ => Err(JoinError::Inputs { inputs: inputs.len() }),
    }
}

/// What the backbone reads in place of its input.
const NORMALIZED: &str = "head.normalized";

/// Adds the input, and what makes the backbone's input of it.
fn normalize(graph: &mut Graph, backbone: &BackboneFile<'_>) {
    let (channels, size) = (backbone.mean.len(), backbone.image_size);
    graph.inputs.push(Value {
        name: "images".to_owned(),
        shape: vec![channels, size, size],
        about: "pixels in 0 to 1".to_owned(),
    });
    let mean = graph.floats("head.mean", &[1, channels, 1, 1], backbone.mean.iter().copied());
    let std = graph.floats("head.std", &[1, channels, 1, 1], backbone.std.iter().copied());
    let centered = graph.node("Sub", "head.centered", &["images", &mean], []);
    graph.node("Div", NORMALIZED, &[&centered, &std], []);
}

/// A node of the backbone that reads normalized pixels where it read the input.
fn with_input(node: &[u8], input: &str) -> Result<Message, JoinError> {
    let mut changed = Message::default();
    for field in fields(node)? {
        changed = match field {
            Field::Bytes(1, name) if name == input.as_bytes() => changed.bytes(1, NORMALIZED.as_bytes()),
            Field::Bytes(number, bytes) => changed.bytes(number, bytes),
            Field::Number(number, value) => changed.integer(number, value),
        };
    }
    Ok(changed)
}

/// Refuses names that both have.
fn check_names(graph: &[u8], head: &Graph) -> Result<(), JoinError> {
    let mut taken: HashSet<String> = HashSet::new();
    for node in messages(graph, 1)? {
        taken.extend(messages(node, 2)?.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()));
    }
    for tensor in messages(graph, 5)? {
        taken.insert(text(tensor, 8)?);
    }
    let own = head.nodes.iter().map(|node| &node.name).chain(head.constants.iter().map(|constant| &constant.name));
    let own = own.chain(head.inputs.iter().map(|value| &value.name));
    match own.into_iter().find(|name| taken.contains(*name)) {
        Some(name) => Err(JoinError::NameTaken { name: name.clone() }),
        None => Ok(()),
    }
}

/// The file: the fields of the backbone's, with another graph, another writer and other metadata.
fn file(parts: &[Field<'_>], graph: &Message, model: &Model<'_>) -> Vec<u8> {
    let version = parts.iter().find_map(|field| match field {
        Field::Number(1, version) => Some(*version),
        _ => None,
    });
    let mut file = Message::default().integer(1, version.unwrap_or(0).max(IR_VERSION));
    file = file.bytes(2, b"equipoise").bytes(3, model.version.as_bytes()).message(7, graph);
    for field in parts {
        // operators and functions
        if let Field::Bytes(number @ (8 | 25), bytes) = field {
            file = file.bytes(*number, bytes);
        }
    }
    for (key, value) in model.metadata {
        file = file.message(14, &Message::text(1, key).bytes(2, value.as_bytes()));
    }
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_refused() {
        assert_eq!(fields(&[0x0a, 5, 1]).map(|_| ()), Err(TRUNCATED));
        assert_eq!(fields(&[0x80; 11]).map(|_| ()), Err(JoinError::NotOnnx { what: "a number is too long" }));
        assert!(matches!(fields(&[0x0b]), Err(JoinError::NotOnnx { .. })));
        let bytes = Message::text(1, "x").integer(2, 300).finish();
        let found = fields(&bytes).expect("good");
        assert!(matches!(found[..], [Field::Bytes(1, b"x"), Field::Number(2, 300)]));
    }

    #[test]
    fn nodes_read_normalized_pixels() {
        let node = Message::text(1, "input").bytes(1, b"weight").bytes(2, b"y").finish();
        let changed = with_input(&node, "input").expect("good").finish();
        assert_eq!(changed, Message::text(1, NORMALIZED).bytes(1, b"weight").bytes(2, b"y").finish());
    }
}
