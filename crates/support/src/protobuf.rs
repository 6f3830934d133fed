//! As much of the protobuf wire format as TensorBoard's events and ONNX files need.

/// A protobuf message under construction. Fields are written in the order in which they are added.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// The bytes of the message.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// A message that starts with a string field.
    #[must_use]
    pub fn text(field: u32, text: impl AsRef<str>) -> Self {
        Self::default().bytes(field, text.as_ref().as_bytes())
    }

    /// Adds an integer. Zero is omitted, because readers take a missing field for zero.
    #[must_use]
    pub fn integer(self, field: u32, value: u64) -> Self {
        if value > 0 { self.repeated_integer(field, value) } else { self }
    }

    /// Adds an integer of a list, which may be zero.
    #[must_use]
    pub fn repeated_integer(mut self, field: u32, value: u64) -> Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// Adds a number in double precision.
    #[must_use]
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a nested message.
    #[must_use]
    pub fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds a string or bytes.
    #[must_use]
    pub fn bytes(mut self, field: u32, body: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(body.len() as u64);
        self.0.extend(body);
        self
    }

    /// Adds a number in single precision.
    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends the number of a field and how its value is encoded.
    fn key(&mut self, field: u32, encoding: u32) {
        self.varint((field << 3 | encoding).into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_by_hand() {
        let inner = Message::text(1, "ab").integer(2, 300).integer(3, 0);
        let message = Message::default().message(2, &inner).float(3, 1.0).double(4, 2.0).integer(20, 1);
        let float = [0x1d, 0, 0, 0x80, 0x3f];
        let double = [0x21, 0, 0, 0, 0, 0, 0, 0, 0x40];
        let inner = [0x12, 7, 0x0a, 2, b'a', b'b', 0x10, 0xac, 0x02];
        // a field number of 16 or more needs a key of two bytes
        assert_eq!(message.finish(), [&inner[..], &float, &double, &[0xa0, 0x01, 1]].concat());
    }
}
