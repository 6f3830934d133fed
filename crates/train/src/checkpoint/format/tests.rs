use equipoise_random::Draws;

use super::*;

/// About two kilobytes, with every kind of tensor.
fn small() -> RawCheckpoint {
    let tensor = |length: u64| (0..length).map(|i| Draws::new(1, length, i).unit(0) as f32 - 0.5).collect();
    let odd = vec![f32::NAN, f32::from_bits(0xffa0_1234), f32::from_bits(0x7f80_0001), -0.0, f32::INFINITY];
    let tensors = vec![tensor(301), vec![], odd, tensor(64), vec![f32::MIN_POSITIVE / 4.0], vec![]];
    RawCheckpoint { header: r#"{"epoch": 7, "name": "Grüße"}"#.to_owned(), tensors }
}

fn checksum_of(words: &[[u8; 8]]) -> u64 {
    let mut checksum = Checksum::new();
    checksum.add(words);
    checksum.finish()
}

/// Bytes with a matching checksum, as a program with a bug would write them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 8;
    let sum = checksum_of(bytes[..end].as_chunks().0);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn corruption(bytes: &[u8]) -> Corruption {
    RawCheckpoint::from_bytes(bytes).expect_err("refused")
}

#[test]
fn a_checkpoint_reads_back_bit_for_bit() {
    let nothing = RawCheckpoint { header: String::new(), tensors: vec![] };
    // several blocks, the last of which ends with half a word
    let large =
        RawCheckpoint { header: "{}".to_owned(), tensors: [5, BLOCK / 4, BLOCK / 2].map(|n| vec![0.25; n]).to_vec() };
    let empty = RawCheckpoint { header: "x".to_owned(), tensors: vec![vec![], vec![]] };
    let unpadded = RawCheckpoint { header: "12345678".to_owned(), tensors: vec![vec![1.0, 2.0]] };
    for checkpoint in [nothing, empty, unpadded, large, small()] {
        let bytes = checkpoint.to_bytes();
        assert_eq!(bytes.len() % 8, 0);
        let got = RawCheckpoint::from_bytes(&bytes).expect("good");
        assert_eq!(got.header, checkpoint.header);
        let bits = |of: &RawCheckpoint| {
            of.tensors.iter().map(|t| t.iter().map(|x| x.to_bits()).collect()).collect::<Vec<Vec<u32>>>()
        };
        assert_eq!(bits(&got), bits(&checkpoint));
    }
}

/// The layout of version 2; the checksum was computed independently, in Python.
#[test]
fn the_layout_is_fixed() {
    let got = RawCheckpoint { header: "{}".to_owned(), tensors: vec![vec![1.0], vec![-2.0, 0.5]] }.to_bytes();
    let mut want = b"EQPCHK02".to_vec();
    for number in [80u64, 2, 2, 1, 2] {
        want.extend_from_slice(&number.to_le_bytes());
    }
    want.extend_from_slice(b"{}\0\0\0\0\0\0");
    want.extend_from_slice(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0, 0, 0]);
    want.extend_from_slice(&0x0c5c_746c_2d1e_f009_u64.to_le_bytes());
    assert_eq!(got, want);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = small().to_bytes();
    for length in 0..bytes.len() {
        let expected = (length >= START).then_some(bytes.len() as u64);
        assert_eq!(corruption(&bytes[..length]), Corruption::Truncated { length: length as u64, expected });
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let mut bytes = small().to_bytes();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(RawCheckpoint::from_bytes(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(RawCheckpoint::from_bytes(&bytes).is_ok());
}

/// The highest bit of a word survives one product unchanged: a flipped bit of the next word must not hide it.
#[test]
fn two_flipped_bits_of_neighbours_are_noticed() {
    let words = [[7; 8]; 4];
    let want = checksum_of(&words);
    for (first, second) in (0..64).flat_map(|first| (0..64).map(move |second| (first, second))) {
        let mut words = words;
        words[1][first / 8] ^= 1 << (first % 8);
        words[2][second / 8] ^= 1 << (second % 8);
        assert_ne!(checksum_of(&words), want);
    }
}

fn mutated(bytes: &[u8], draws: Draws) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for k in 0..1 + draws.at(0) % 3 {
        let [position, kind, value] = [1, 2, 3].map(|i| draws.at(10 * k + i));
        let index = (position % bytes.len() as u64) as usize;
        let word = 8 * (value as usize % 12).min(bytes.len() / 8 - 1);
        match kind % 7 {
            0 => bytes[index] = value as u8,
            1 => bytes[index] ^= 1 << (value % 8),
            2 => bytes.truncate(index.max(16)),
            3 => bytes.extend_from_slice(&value.to_le_bytes()),
            4 => bytes[index..].fill(0),
            // the lengths at the start
            5 => bytes[word..word + 8].copy_from_slice(&(position >> ((kind >> 8) % 64)).to_le_bytes()),
            _ => {
                let other = (value % bytes.len() as u64) as usize;
                bytes.swap(index, other);
            }
        }
    }
    bytes
}

/// 100,000 corrupted files: refused, unless the corruption changed nothing.
#[test]
fn a_hundred_thousand_corrupted_files() {
    let small = small().to_bytes();
    let mut refused = 0;
    for round in 0..100_000 {
        match RawCheckpoint::from_bytes(&mutated(&small, Draws::new(5, 0, round))) {
            Ok(checkpoint) => assert_eq!(checkpoint.to_bytes(), small),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 90_000, "{refused} of 100,000 were refused");
}

/// 100,000 wrong files with the right length and checksum: an error or a checkpoint, never a panic.
#[test]
fn a_hundred_thousand_files_with_a_right_checksum() {
    let small =
        RawCheckpoint { header: "äöü".to_owned(), tensors: vec![vec![1.5; 9], vec![], vec![2.5; 2]] }.to_bytes();
    let (mut lengths, mut header, mut good) = (0, 0, 0);
    for round in 0..100_000 {
        let mut bytes = mutated(&small, Draws::new(6, 0, round));
        bytes.resize(bytes.len().next_multiple_of(8).max(MIN_LENGTH), 0);
        let length = bytes.len() as u64;
        bytes[8..16].copy_from_slice(&length.to_le_bytes());
        match RawCheckpoint::from_bytes(&sealed(bytes)) {
            Err(Corruption::Lengths { .. }) => lengths += 1,
            Err(Corruption::Header) => header += 1,
            Err(Corruption::NotACheckpoint | Corruption::Version { .. }) => {}
            Err(other) => panic!("{other}"),
            Ok(_) => good += 1,
        }
    }
    assert!(lengths > 1000 && header > 1000 && good > 1000, "{lengths} {header} {good}");
}

/// There is no memory for the larger ones: allocating any would abort the test.
#[test]
fn false_lengths_allocate_no_memory() {
    let small = small().to_bytes();
    for lie in [100 << 20, 1 << 40, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
        let with = |word: usize| {
            let mut bytes = small.clone();
            bytes[8 * word..8 * word + 8].copy_from_slice(&lie.to_le_bytes());
            sealed(bytes)
        };
        assert_eq!(corruption(&with(1)), Corruption::Truncated { length: small.len() as u64, expected: Some(lie) });
        // the header, the number of tensors, the first tensor, the second
        for word in 2..6 {
            assert!(matches!(corruption(&with(word)), Corruption::Lengths { .. }), "{lie} in word {word}");
        }
    }
}

#[test]
fn a_corruption_says_what_is_wrong() {
    let bytes = small().to_bytes();
    let length = bytes.len();
    let with = |index: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[index..index + value.len()].copy_from_slice(value);
        bytes
    };
    let message = |bytes: &[u8]| corruption(bytes).to_string();
    assert_eq!(message(b"PK\x03\x04"), "not a checkpoint");
    assert_eq!(message(&with(6, b"x1")), "not a checkpoint");
    assert_eq!(
        message(&with(6, b"12")),
        "a checkpoint of format 12, but this program reads format 2: use the program that wrote it, or train again"
    );
    assert_eq!(message(b""), "truncated: 0 of at least 40 bytes");
    assert_eq!(message(b"EQPCHK02\x10\0\0\0\0\0\0\0"), "truncated: 16 of at least 40 bytes");
    assert_eq!(message(&bytes[..100]), format!("truncated: 100 of {length} bytes"));
    assert_eq!(message(&[&bytes[..], b"x"].concat()), format!("{} bytes, but the file states {length}", length + 1));
    let flipped = message(&with(length - 8, &[!bytes[length - 8]]));
    assert!(flipped.starts_with("corrupt: its checksum is "), "{flipped}");
    assert_eq!(message(&sealed(with(80, &[0xff]))), "its header is not text");
    let lengths = format!("impossible lengths: a header of 255 bytes and 6 tensors in a file of {length} bytes");
    assert_eq!(message(&sealed(with(16, &[255]))), lengths);
    // a length that no file has, but that is stated correctly
    let odd = [b"EQPCHK02", &43u64.to_le_bytes()[..], &[0; 27]].concat();
    assert!(matches!(corruption(&odd), Corruption::Checksum { .. }));
}
