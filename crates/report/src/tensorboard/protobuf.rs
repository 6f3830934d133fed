//! As much of the protobuf wire format as events need.

/// A protobuf message under construction. Field numbers are below 16, so that a field's key is one byte.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    /// A message that starts with a string field.
    pub(super) fn text(field: u8, text: impl AsRef<str>) -> Self {
        Self::default().bytes(field, text.as_ref().as_bytes())
    }

    /// Adds an integer. Zero is omitted, because readers take a missing field for zero.
    pub(super) fn integer(mut self, field: u8, value: u64) -> Self {
        if value > 0 {
            self.0.push(field << 3);
            self.varint(value);
        }
        self
    }

    /// Adds a number in double precision.
    pub(super) fn double(mut self, field: u8, value: f64) -> Self {
        self.0.push(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a string, bytes or a nested message.
    pub(super) fn bytes(mut self, field: u8, body: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(body.len() as u64);
        self.0.extend(body);
        self
    }

    /// Adds a number in single precision.
    pub(super) fn float(mut self, field: u8, value: f32) -> Self {
        self.0.push(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends an integer in groups of 7 bits, lowest first; all but the last have the top bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
