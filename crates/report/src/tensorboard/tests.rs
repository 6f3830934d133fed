//! The event files, read back byte by byte.

use super::record::{MASK, crc32c, masked};
use super::*;

/// Output of `tools/check_tensorboard.py --bytes`: messages and records that TensorBoard 2.21 itself wrote.
const WRITTEN_BY_TENSORBOARD: &str = "\
    1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b3531100f000000000000006d532b0909000020\
    40fc54d94110033a02080120ab681c2d000000000000003c418afb0900006040fc54d94110032a200a0b0a046c6f7373150000803e0a110a\
    0a6772c3b6c39f652fc2b5150000c07f25ccceac6600000000000000723b876a090000a040fc54d94110ac022a580a560a0462617273423e\
    0802120812020802120208032230000000000000f0bf000000000000e03f0000000000000040000000000000e03f00000000000000400000\
    000000001c404a0e0a0c0a0a686973746f6772616d7315dcc487";

/// A decoded protobuf field.
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
            other => panic!("expected bytes, found {other:?}"),
        }
    }
}

fn read<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().unwrap();
    *bytes = rest;
    *first
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = read(bytes);
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("unterminated varint");
}

/// Fields of a message, with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Double(f64::from_le_bytes(read(&mut bytes))),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (body, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(body.to_vec())
            }
            5 => Field::Float(f32::from_le_bytes(read(&mut bytes))),
            wire_type => panic!("wire type {wire_type}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

/// The only field with this number.
fn field(bytes: &[u8], number: u64) -> Field {
    let mut found = fields(bytes).into_iter().filter(|(n, _)| *n == number);
    let (Some((_, field)), None) = (found.next(), found.next()) else { panic!("expected exactly one field {number}") };
    field
}

/// Data of all records; their checksums are verified.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length: [u8; 8] = read(&mut bytes);
        assert_eq!(u32::from_le_bytes(read(&mut bytes)), masked(&length));
        let (data, rest) = bytes.split_at(u64::from_le_bytes(length) as usize);
        bytes = rest;
        assert_eq!(u32::from_le_bytes(read(&mut bytes)), masked(data));
        records.push(data.to_vec());
    }
    records
}

/// Events after the two that start every file.
fn added(add: impl FnOnce(&mut EventWriter)) -> Vec<Vec<u8>> {
    let mut events = EventWriter::new(0.5, 0);
    add(&mut events);
    records(&events.take()).split_off(2)
}

/// Tag and value of each scalar in an event.
fn scalars(event: &[u8]) -> Vec<(String, f32)> {
    let scalar = |(number, value): (u64, Field)| {
        assert_eq!(number, 1);
        let tag = String::from_utf8(field(value.bytes(), 1).bytes().to_vec()).unwrap();
        let Field::Float(value) = field(value.bytes(), 2) else { panic!("expected a float") };
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
fn bytes_are_those_of_tensorboard() {
    let mut events = EventWriter::new(1_700_000_000.5, 3);
    events.scalars(1_700_000_001.5, 3, [("loss", 0.25), ("größe/µ", f64::NAN)]);
    let bins =
        [HistogramBin { left: -1.0, right: 0.5, count: 2.0 }, HistogramBin { left: 0.5, right: 2.0, count: 7.0 }];
    events.histogram(1_700_000_002.5, 300, "bars", &bins);
    let hex: String = events.take().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, WRITTEN_BY_TENSORBOARD);
}

#[test]
fn a_file_starts_with_its_version_and_a_session_start() {
    let records = records(&EventWriter::new(12.5, 7).take());
    assert_eq!(records.len(), 2);
    let version = Field::Bytes(b"brain.Event:2".to_vec());
    assert_eq!(fields(&records[0]), [(1, Field::Double(12.5)), (3, version)]);
    let start = Field::Bytes(vec![8, 1]);
    assert_eq!(fields(&records[1]), [(1, Field::Double(12.5)), (2, Field::Number(7)), (7, start)]);
}

#[test]
fn taken_bytes_are_not_returned_again() {
    let mut events = EventWriter::new(1.0, 0);
    let mut file = events.take();
    assert!(events.take().is_empty());
    events.scalar(2.0, 1, "a", 3.0);
    file.extend(events.take());
    let mut at_once = EventWriter::new(1.0, 0);
    at_once.scalar(2.0, 1, "a", 3.0);
    assert_eq!(file, at_once.take());
}

#[test]
fn scalars_of_a_step_are_one_event() {
    let values = vec![("loss".to_string(), 0.1), (String::new(), -0.0), ("high".to_string(), 1e300)];
    let events = added(|events| events.scalars(3.0, 12, values));
    let [event] = &events[..] else { panic!("{} events", events.len()) };
    assert_eq!((field(event, 1), field(event, 2)), (Field::Double(3.0), Field::Number(12)));
    let want = [("loss".to_string(), 0.1), (String::new(), -0.0), ("high".to_string(), f32::INFINITY)];
    assert_eq!(scalars(event), want);
}

#[test]
fn extreme_values_and_steps() {
    let events = added(|events| {
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
        let events = added(|events| {
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
    let bin = |i: usize| HistogramBin { left: i as f64 / 3.0, right: (i + 1) as f64 / 3.0, count: (i * i) as f64 };
    for n in [0, 1, 2, 200] {
        let bins: Vec<HistogramBin> = (0..n).map(bin).collect();
        let events = added(|events| events.histogram(1.0, 5, "weights", &bins));
        let value = field(field(&events[0], 5).bytes(), 1);
        let metadata = field(value.bytes(), 9);
        assert_eq!(field(field(metadata.bytes(), 1).bytes(), 1).bytes(), b"histograms");
        let tensor = field(value.bytes(), 8);
        assert_eq!(field(tensor.bytes(), 1), Field::Number(DT_DOUBLE));
        let shape = fields(field(tensor.bytes(), 2).bytes());
        // a size of 0 is an empty message
        let rows = if n == 0 { vec![] } else { vec![(1, Field::Number(n as u64))] };
        assert_eq!(fields(shape[0].1.bytes()), rows);
        assert_eq!((fields(shape[1].1.bytes()), shape.len()), (vec![(1, Field::Number(3))], 2));
        let content = field(tensor.bytes(), 4);
        let (numbers, rest) = content.bytes().as_chunks();
        assert!(rest.is_empty());
        let numbers: Vec<f64> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let want: Vec<f64> = bins.iter().flat_map(|b| [b.left, b.right, b.count]).collect();
        assert_eq!(numbers, want);
    }
}
