//! The messages of an ONNX file, as far as networks need them, with the field numbers of
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.

use equipoise_support::Message;

/// The type of f32 tensors in `TensorProto.DataType`.
pub(crate) const FLOAT: u64 = 1;
/// The type of i64 tensors in `TensorProto.DataType`.
pub(crate) const INT64: u64 = 7;

/// A computation: nodes in the order of their execution, with their constants.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
}

/// An operator with its inputs and its only output, which has the operator's name.
pub(crate) struct Node {
    pub(crate) operator: String,
    pub(crate) name: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) attributes: Vec<Attribute>,
}

/// An attribute of an operator.
pub(crate) enum Attribute {
    /// A number.
    Integer(&'static str, u64),
    /// A list of numbers.
    Integers(&'static str, Vec<usize>),
}

/// A tensor with its values.
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) data_type: u64,
    /// The values in little-endian order.
    pub(crate) bytes: Vec<u8>,
}

/// An f32 input or output whose first dimension, the number of images, is symbolic.
pub(crate) struct Value {
    pub(crate) name: String,
    /// The other dimensions.
    pub(crate) shape: Vec<usize>,
    pub(crate) about: String,
}

/// A `ModelProto`: the bytes of a file.
pub(crate) fn file(
    graph: Graph,
    ir_version: u64,
    opset: u64,
    producer: [&str; 2],
    metadata: &[(&str, String)],
) -> Vec<u8> {
    let [name, version] = producer;
    let model = Message::default().integer(1, ir_version).bytes(2, name.as_bytes()).bytes(3, version.as_bytes());
    // the set of ONNX's own operators has an empty name
    let model = model.message(7, &graph.encode()).message(8, &Message::text(1, "").integer(2, opset));
    let add = |model: Message, (key, value): &(&str, String)| {
        model.message(14, &Message::text(1, key).bytes(2, value.as_bytes()))
    };
    metadata.iter().fold(model, add).finish()
}

impl Graph {
    /// A `GraphProto`.
    fn encode(self) -> Message {
        let Self { name, nodes, constants, inputs, outputs } = self;
        let graph = nodes.iter().fold(Message::default(), |graph, node| graph.message(1, &node.encode()));
        let graph = graph.bytes(2, name.as_bytes());
        let graph = constants.into_iter().fold(graph, |graph, constant| graph.message(5, &constant.encode()));
        let graph = inputs.iter().fold(graph, |graph, value| graph.message(11, &value.encode()));
        outputs.iter().fold(graph, |graph, value| graph.message(12, &value.encode()))
    }
}

impl Node {
    /// A `NodeProto`.
    pub(crate) fn encode(&self) -> Message {
        let node = self.inputs.iter().fold(Message::default(), |node, input| node.bytes(1, input.as_bytes()));
        let node = node.bytes(2, self.name.as_bytes()).bytes(3, self.name.as_bytes());
        let node = node.bytes(4, self.operator.as_bytes());
        self.attributes.iter().fold(node, |node, attribute| node.message(5, &attribute.encode()))
    }
}

impl Attribute {
    /// An `AttributeProto`. Field 20 tells the kind of the attribute: 2 for a number, 7 for a list.
    fn encode(&self) -> Message {
        match self {
            Self::Integer(name, value) => Message::text(1, name).integer(3, *value).integer(20, 2),
            Self::Integers(name, values) => {
                let add = |list: Message, value: &usize| list.repeated_integer(8, *value as u64);
                values.iter().fold(Message::text(1, name), add).integer(20, 7)
            }
        }
    }
}

impl Constant {
    /// A `TensorProto`.
    pub(crate) fn encode(self) -> Message {
        let add = |tensor: Message, side: &usize| tensor.repeated_integer(1, *side as u64);
        let tensor = self.shape.iter().fold(Message::default(), add).integer(2, self.data_type);
        tensor.bytes(8, self.name.as_bytes()).bytes(9, &self.bytes)
    }
}

impl Value {
    /// A `ValueInfoProto`.
    pub(crate) fn encode(&self) -> Message {
        let batch = Message::default().bytes(2, b"batch");
        let size = |side: &usize| Message::default().integer(1, *side as u64);
        let dimensions = std::iter::once(batch).chain(self.shape.iter().map(size));
        let shape = dimensions.fold(Message::default(), |shape, dimension| shape.message(1, &dimension));
        let tensor = Message::default().integer(1, FLOAT).message(2, &shape);
        let kind = Message::default().message(1, &tensor);
        Message::text(1, &self.name).message(2, &kind).bytes(3, self.about.as_bytes())
    }
}
