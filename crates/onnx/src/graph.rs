//! A graph under construction.

use crate::message::{Attribute, Constant, FLOAT, Graph, INT64, Node, Value};

impl Graph {
    /// Adds an f32 constant and returns its name.
    pub(crate) fn floats(&mut self, name: &str, shape: &[usize], values: impl IntoIterator<Item = f32>) -> String {
        self.constant(name, shape, FLOAT, values.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    /// Adds a list of integers as a constant and returns its name.
    pub(crate) fn integers(&mut self, name: &str, values: &[i64]) -> String {
        self.constant(name, &[values.len()], INT64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn constant(&mut self, name: &str, shape: &[usize], data_type: u64, bytes: Vec<u8>) -> String {
        self.constants.push(Constant { name: name.to_owned(), shape: shape.to_vec(), data_type, bytes });
        name.to_owned()
    }

    /// Adds an operator and returns its name, which is also that of its output.
    pub(crate) fn node(
        &mut self,
        operator: &str,
        name: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = Attribute>,
    ) -> String {
        self.nodes.push(Node {
            operator: operator.to_owned(),
            name: name.to_owned(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            attributes: attributes.into_iter().collect(),
        });
        name.to_owned()
    }

    /// Declares an f32 input. The number of images comes before the other dimensions.
    pub(crate) fn input(&mut self, name: &str, shape: &[usize], about: &str) {
        self.inputs.push(Value { name: name.to_owned(), shape: shape.to_vec(), about: about.to_owned() });
    }

    /// Declares an f32 value to be an output. The number of images comes before the other dimensions.
    pub(crate) fn output(&mut self, name: &str, shape: &[usize], about: &str) {
        self.outputs.push(Value { name: name.to_owned(), shape: shape.to_vec(), about: about.to_owned() });
    }
}
