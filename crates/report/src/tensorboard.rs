//! Event files that TensorBoard shows: scalars and histograms, encoded by hand.
//!
//! A file is a sequence of records as TensorFlow's `tensorflow/core/lib/io/record_writer.h` describes them: length, masked
//! CRC-32C of the length, data, masked CRC-32C of the data. The data is a protobuf message `Event`, as in TensorBoard's
//! `tensorboard/compat/proto/event.proto`, with a `Summary` as in `summary.proto` beside it. A file's name must contain
//! `tfevents`; the files of a folder are one run, read in the order of their names.

/// Number that TensorFlow's checksums are shifted by, so that a checksum over data with checksums stays a good one.
const MASK: u32 = 0xa282_ead8;

/// `SessionLog.START`.
const START: u64 = 1;

/// `DT_DOUBLE` of `types.proto`.
const DOUBLE: u64 = 2;

/// Checksums of every byte.
const TABLE: [u32; 256] = table();

/// Records that are still to be written to an event file.
#[derive(Clone, Debug)]
pub struct Events {
    bytes: Vec<u8>,
}

/// A bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Where it begins.
    pub left: f64,
    /// Where it ends.
    pub right: f64,
    /// How many values lie in it.
    pub count: f64,
}

impl Events {
    /// The beginning of a file whose first step will be `step`, at a time in seconds since 1970.
    ///
    /// TensorBoard drops what older files of the run have of this step and those after it. One of its two readers does not
    /// look at the start, but drops a tag's values where its steps do not grow: within a file they should.
    #[must_use]
    pub fn new(time: f64, step: u64) -> Self {
        let mut events = Self { bytes: Vec::new() };
        // readers look for the start only in files of version 2
        events.event(time, 0, 3, b"brain.Event:2");
        events.event(time, step, 7, &Message::default().number(1, START).0);
        events
    }

    /// Adds a value of one curve. It is kept in single precision; NaN and infinities are shown as such.
    pub fn scalar(&mut self, time: f64, step: u64, tag: &str, value: f64) {
        self.scalars(time, step, [(tag, value)]);
    }

    /// Adds a step's values of several curves as one record, each with its tag.
    pub fn scalars(&mut self, time: f64, step: u64, values: impl IntoIterator<Item = (impl AsRef<str>, f64)>) {
        let value = |summary: Message, (tag, value): (_, f64)| {
            // the old form, which is shorter; TensorBoard turns it into the new one as it reads
            let value = Message::text(1, &tag).float(2, value as f32);
            summary.bytes(1, &value.0)
        };
        let summary = values.into_iter().fold(Message::default(), value);
        self.event(time, step, 5, &summary.0);
    }

    /// Adds a histogram: buckets from left to right with finite ends, or none.
    pub fn histogram(&mut self, time: f64, step: u64, tag: &str, buckets: &[Bucket]) {
        // the new form, a table of n x 3: the old one has no left ends and comes back in single precision
        let size = |size| Message::default().number(1, size).0;
        let shape = Message::default().bytes(2, &size(buckets.len() as u64)).bytes(2, &size(3));
        let numbers = buckets.iter().flat_map(|bucket| [bucket.left, bucket.right, bucket.count]);
        let content: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
        let tensor = Message::default().number(1, DOUBLE).bytes(2, &shape.0).bytes(4, &content);
        let plugin = Message::text(1, "histograms");
        let metadata = Message::default().bytes(1, &plugin.0);
        let value = Message::text(1, tag).bytes(8, &tensor.0).bytes(9, &metadata.0);
        self.event(time, step, 5, &Message::default().bytes(1, &value.0).0);
    }

    /// What was added since the last call, to be appended to the file.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a record with an `Event` that has `body` in field `what`.
    fn event(&mut self, time: f64, step: u64, what: u8, body: &[u8]) {
        // steps are signed in the file
        let step = step.min(i64::MAX as u64);
        let data = Message::default().double(1, time).number(2, step).bytes(what, body).0;
        let length = (data.len() as u64).to_le_bytes();
        self.bytes.extend(length);
        self.bytes.extend(masked(&length).to_le_bytes());
        self.bytes.extend(&data);
        self.bytes.extend(masked(&data).to_le_bytes());
    }
}

/// A protobuf message in the making. Numbers of fields are below 16, so that a field begins with one byte.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A message that begins with a text.
    fn text(field: u8, text: impl AsRef<str>) -> Self {
        Self::default().bytes(field, text.as_ref().as_bytes())
    }

    /// Adds an integer; a 0 is left out, as it is what readers take for a missing field.
    fn number(mut self, field: u8, value: u64) -> Self {
        if value > 0 {
            self.0.push(field << 3);
            self.varint(value);
        }
        self
    }

    /// Adds a number of double precision.
    fn double(mut self, field: u8, value: f64) -> Self {
        self.0.push(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds text, bytes or a message.
    fn bytes(mut self, field: u8, body: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(body.len() as u64);
        self.0.extend(body);
        self
    }

    /// Adds a number of single precision.
    fn float(mut self, field: u8, value: f32) -> Self {
        self.0.push(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds an integer in groups of 7 bits, lowest first; all but the last have the top bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Checksum as records have it.
fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(MASK)
}

/// CRC-32C, the one of Castagnoli's polynomial.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            // the polynomial with its bits reversed
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `tools/check_tensorboard.py --bytes` prints: TensorBoard 2.21's own messages and record writer.
    const THEIRS: &str = "\
        1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b3531100f000000000000006d532b0909000020\
        40fc54d94110033a02080120ab681c2d000000000000003c418afb0900006040fc54d94110032a200a0b0a046c6f7373150000803e0a110a\
        0a6772c3b6c39f652fc2b5150000c07f25ccceac6600000000000000723b876a090000a040fc54d94110ac022a580a560a0462617273423e\
        0802120812020802120208032230000000000000f0bf000000000000e03f0000000000000040000000000000e03f00000000000000400000\
        000000001c404a0e0a0c0a0a686973746f6772616d7315dcc487";

    /// A field as the reader below sees it.
    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Number(u64),
        Double(f64),
        Float(f32),
        Bytes(Vec<u8>),
    }

    impl Field {
        fn bytes(&self) -> &[u8] {
            match self {
                Self::Bytes(bytes) => bytes,
                other => panic!("{other:?} where bytes should be"),
            }
        }
    }

    fn cut<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        let (first, rest) = bytes.split_first_chunk().unwrap();
        *bytes = rest;
        *first
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = cut(bytes);
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        panic!("a number without an end");
    }

    /// The fields of a message, with their numbers.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Double(f64::from_le_bytes(cut(&mut bytes))),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (body, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(body.to_vec())
                }
                5 => Field::Float(f32::from_le_bytes(cut(&mut bytes))),
                kind => panic!("kind {kind}"),
            };
            fields.push((key >> 3, field));
        }
        fields
    }

    /// The one field of this number.
    fn field(bytes: &[u8], number: u64) -> Field {
        let mut found = fields(bytes).into_iter().filter(|(n, _)| *n == number);
        let (Some((_, field)), None) = (found.next(), found.next()) else { panic!("field {number} not once") };
        field
    }

    /// The data of all records, after checking their checksums.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length: [u8; 8] = cut(&mut bytes);
            assert_eq!(u32::from_le_bytes(cut(&mut bytes)), masked(&length));
            let (data, rest) = bytes.split_at(u64::from_le_bytes(length) as usize);
            bytes = rest;
            assert_eq!(u32::from_le_bytes(cut(&mut bytes)), masked(data));
            records.push(data.to_vec());
        }
        records
    }

    /// Events after the two at the beginning.
    fn after(add: impl FnOnce(&mut Events)) -> Vec<Vec<u8>> {
        let mut events = Events::new(0.5, 0);
        add(&mut events);
        records(&events.take()).split_off(2)
    }

    /// Tag and value of each scalar of an event.
    fn scalars(event: &[u8]) -> Vec<(String, f32)> {
        let scalar = |(number, value): (u64, Field)| {
            assert_eq!(number, 1);
            let tag = String::from_utf8(field(value.bytes(), 1).bytes().to_vec()).unwrap();
            let Field::Float(value) = field(value.bytes(), 2) else { panic!("a value that is not single") };
            (tag, value)
        };
        fields(field(event, 5).bytes()).into_iter().map(scalar).collect()
    }

    #[test]
    fn checksums() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, B.4
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&std::array::from_fn::<u8, 32, _>(|i| i as u8)), 0x46dd_794e);
        // masked_crc32c of tensorboard.compat.tensorflow_stub.pywrap_tensorflow
        assert_eq!(masked(b"123456789"), 0xc78a_b0e5);
        assert_eq!(masked(b""), MASK);
    }

    #[test]
    fn the_bytes_are_tensorboards() {
        let mut events = Events::new(1_700_000_000.5, 3);
        events.scalars(1_700_000_001.5, 3, [("loss", 0.25), ("größe/µ", f64::NAN)]);
        let bars = [Bucket { left: -1.0, right: 0.5, count: 2.0 }, Bucket { left: 0.5, right: 2.0, count: 7.0 }];
        events.histogram(1_700_000_002.5, 300, "bars", &bars);
        let hex: String = events.take().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, THEIRS);
    }

    #[test]
    fn a_file_begins_with_its_version_and_a_start() {
        let records = records(&Events::new(12.5, 7).take());
        assert_eq!(records.len(), 2);
        let version = Field::Bytes(b"brain.Event:2".to_vec());
        assert_eq!(fields(&records[0]), [(1, Field::Double(12.5)), (3, version)]);
        let start = Field::Bytes(vec![8, 1]);
        assert_eq!(fields(&records[1]), [(1, Field::Double(12.5)), (2, Field::Number(7)), (7, start)]);
    }

    #[test]
    fn what_was_taken_is_not_given_again() {
        let mut events = Events::new(1.0, 0);
        let mut file = events.take();
        assert!(events.take().is_empty());
        events.scalar(2.0, 1, "a", 3.0);
        file.extend(events.take());
        let mut whole = Events::new(1.0, 0);
        whole.scalar(2.0, 1, "a", 3.0);
        assert_eq!(file, whole.take());
    }

    #[test]
    fn scalars_of_a_step_are_one_event() {
        let values = vec![("loss".to_string(), 0.1), (String::new(), -0.0), ("high".to_string(), 1e300)];
        let events = after(|events| events.scalars(3.0, 12, values));
        let [event] = &events[..] else { panic!("{} events", events.len()) };
        assert_eq!((field(event, 1), field(event, 2)), (Field::Double(3.0), Field::Number(12)));
        let want = [("loss".to_string(), 0.1), (String::new(), -0.0), ("high".to_string(), f32::INFINITY)];
        assert_eq!(scalars(event), want);
    }

    #[test]
    fn values_and_steps_at_the_ends() {
        let events = after(|events| {
            events.scalar(1.0, 0, "a", f64::NAN);
            events.scalar(1.0, u64::MAX, "a", f64::NEG_INFINITY);
        });
        assert!(scalars(&events[0])[0].1.is_nan());
        assert!(fields(&events[0]).iter().all(|(number, _)| *number != 2));
        assert_eq!(scalars(&events[1])[0].1, f32::NEG_INFINITY);
        assert_eq!(field(&events[1], 2), Field::Number(i64::MAX as u64));
    }

    #[test]
    fn tags_of_any_length_and_script() {
        for tag in ["", "accuracy/few shot", "größe/µ/試験/\u{1f40b}", &"x".repeat(127), &"é".repeat(100_000)] {
            let events = after(|events| {
                events.scalar(1.0, 1, tag, 2.0);
                events.histogram(1.0, 1, tag, &[]);
            });
            assert_eq!(scalars(&events[0]), [(tag.to_string(), 2.0)]);
            let value = field(field(&events[1], 5).bytes(), 1);
            assert_eq!(field(value.bytes(), 1).bytes(), tag.as_bytes());
        }
    }

    #[test]
    fn histograms_are_tables_of_three_columns() {
        let bucket = |i: usize| Bucket { left: i as f64 / 3.0, right: (i + 1) as f64 / 3.0, count: (i * i) as f64 };
        for n in [0, 1, 2, 200] {
            let buckets: Vec<Bucket> = (0..n).map(bucket).collect();
            let events = after(|events| events.histogram(1.0, 5, "weights", &buckets));
            let value = field(field(&events[0], 5).bytes(), 1);
            let metadata = field(value.bytes(), 9);
            assert_eq!(field(field(metadata.bytes(), 1).bytes(), 1).bytes(), b"histograms");
            let tensor = field(value.bytes(), 8);
            assert_eq!(field(tensor.bytes(), 1), Field::Number(DOUBLE));
            let shape = fields(field(tensor.bytes(), 2).bytes());
            // a size of 0 is an empty message
            let rows = if n == 0 { vec![] } else { vec![(1, Field::Number(n as u64))] };
            assert_eq!(fields(shape[0].1.bytes()), rows);
            assert_eq!((fields(shape[1].1.bytes()), shape.len()), (vec![(1, Field::Number(3))], 2));
            let content = field(tensor.bytes(), 4);
            let (numbers, rest) = content.bytes().as_chunks();
            assert!(rest.is_empty());
            let numbers: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
            let want: Vec<f64> = buckets.iter().flat_map(|b| [b.left, b.right, b.count]).collect();
            assert_eq!(numbers, want);
        }
    }
}
