//! One checkpoint as one file, with a checksum: what comes back is what was written, or an error.
//!
//! Everything is little-endian: the letters `EQPCHK` and the version `01`; the length of the file, the length of the
//! header, the number of tensors and each tensor's length (u64); the header; the tensors' bits; the checksum (u64).
//! Header and tensors are each followed by zeros up to a multiple of eight, so that the file is a row of words of eight
//! bytes.

use thiserror::Error;

/// What every file starts with, before its version.
const MAGIC: &[u8; 6] = b"EQPCHK";
/// The version that is written and read.
const VERSION: &[u8; 2] = b"01";
/// Magic, version and the length of the file.
pub(crate) const START: usize = 16;
/// The length of the shortest file: no header, no tensor.
const LEAST: usize = 40;

/// What a checkpoint holds: text (JSON of the caller's) and tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Whatever is no tensor.
    pub header: String,
    /// Values, whose bits are kept as they are.
    pub tensors: Vec<Vec<f32>>,
}

/// Why bytes are no checkpoint that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// Something else.
    #[error("not a checkpoint")]
    NotACheckpoint,
    /// A checkpoint of another version of the format.
    #[error("a checkpoint of version {got}: version 1 is read")]
    Version {
        /// Its version.
        got: u8,
    },
    /// The end is missing.
    #[error("cut off: {have} {} bytes", of.map_or("of at least 40".to_owned(), |of| format!("of {of}")))]
    Cut {
        /// How many bytes there are.
        have: u64,
        /// How many it says there are, if it got that far.
        of: Option<u64>,
    },
    /// There is something behind the end.
    #[error("{have} bytes: it says that it has {of}")]
    Longer {
        /// How many bytes there are.
        have: u64,
        /// How many it says there are.
        of: u64,
    },
    /// At least one bit is not what was written.
    #[error("damaged: its checksum is {got:016x}, that of its content {want:016x}")]
    Checksum {
        /// The one at the end.
        got: u64,
        /// The one it should be.
        want: u64,
    },
    /// The header is not UTF-8.
    #[error("its header is not text")]
    Header,
    /// The lengths of the parts and that of the file contradict each other.
    #[error("impossible lengths: a header of {header} bytes and {tensors} tensors in a file of {file} bytes")]
    Lengths {
        /// The header's length.
        header: u64,
        /// How many tensors it says there are.
        tensors: u64,
        /// Length of the file.
        file: u64,
    },
}

/// Sixty-four bits over words. For a given word a step never maps two states to one, nor two words for a given state: a
/// change inside one word always changes the result.
fn checksum(words: &[[u8; 8]]) -> u64 {
    // one product leaves a change of the highest bit where it is, and the next word could undo it: shift, and once more
    let state = words.iter().fold(0x2545_f491_4f6c_dd1du64, |state, word| {
        let state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b1_85eb_ca87);
        (state ^ (state >> 32)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
    });
    let state = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    state ^ (state >> 29)
}

/// Checks the first [`START`] bytes of a file (all of them, if there are fewer) against its length.
pub(crate) fn check_start(start: &[u8], length: u64) -> Result<(), Damage> {
    let common = start.len().min(MAGIC.len());
    if start[..common] != MAGIC[..common] {
        return Err(Damage::NotACheckpoint);
    }
    match start.get(MAGIC.len()..MAGIC.len() + 2) {
        Some(version) if version == VERSION => {}
        Some(&[tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => {
            return Err(Damage::Version { got: 10 * (tens - b'0') + ones - b'0' });
        }
        Some(_) => return Err(Damage::NotACheckpoint),
        None => {}
    }
    let says = start.get(8..).and_then(|rest| rest.first_chunk()).map(|says| u64::from_le_bytes(*says));
    match says {
        None => Err(Damage::Cut { have: length, of: None }),
        Some(of) if length < of => Err(Damage::Cut { have: length, of: Some(of) }),
        Some(of) if length > of => Err(Damage::Longer { have: length, of }),
        Some(_) if length < LEAST as u64 => Err(Damage::Cut { have: length, of: None }),
        Some(_) => Ok(()),
    }
}

/// Checks that nothing was changed since bytes were written.
pub(crate) fn check(bytes: &[u8]) -> Result<(), Damage> {
    check_start(bytes, bytes.len() as u64)?;
    let (words, rest) = bytes.as_chunks::<8>();
    // no file that was written has a rest, and the start was long enough for a last word
    let [words @ .., last] = words else { return Err(Damage::NotACheckpoint) };
    let (got, want) = (u64::from_le_bytes(*last), checksum(words));
    if got == want && rest.is_empty() { Ok(()) } else { Err(Damage::Checksum { got, want }) }
}

impl Snapshot {
    /// The file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let values: usize = self.tensors.iter().map(Vec::len).sum();
        let header = self.header.len().next_multiple_of(8);
        let length = LEAST + 8 * self.tensors.len() + header + (4 * values).next_multiple_of(8);
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(VERSION);
        let numbers = [length, self.header.len(), self.tensors.len()];
        for number in numbers.into_iter().chain(self.tensors.iter().map(Vec::len)) {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        }
        let mut at = bytes.len() + header;
        bytes.extend_from_slice(self.header.as_bytes());
        bytes.resize(length - 8, 0);
        for tensor in &self.tensors {
            let end = at + 4 * tensor.len();
            let places = bytes[at..end].as_chunks_mut().0;
            places.iter_mut().zip(tensor).for_each(|(place, x)| *place = x.to_le_bytes());
            at = end;
        }
        let sum = checksum(bytes.as_chunks().0);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a file. Memory is taken only after all lengths have been found to fit it.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        check(bytes)?;
        // the start and the checksum are behind us; two words at least are left
        let words = bytes[START..bytes.len() - 8].as_chunks::<8>().0;
        let (header, tensors) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        let impossible = || Damage::Lengths { header, tensors, file: bytes.len() as u64 };
        let (lengths, rest) = usize::try_from(tensors)
            .ok()
            .and_then(|tensors| words[2..].split_at_checked(tensors))
            .ok_or_else(impossible)?;
        let lengths = lengths.iter().map(|word| u64::from_le_bytes(*word));
        let values = lengths.clone().try_fold(0u64, u64::checked_add).ok_or_else(impossible)?;
        // at most 2^61 and 2^63
        if header.div_ceil(8) + values.div_ceil(2) != rest.len() as u64 {
            return Err(impossible());
        }
        // from here on every length is at most that of the file
        let (text, values) = rest.split_at(header.div_ceil(8) as usize);
        let text = &text.as_flattened()[..header as usize];
        let header = str::from_utf8(text).map_err(|_| Damage::Header)?.to_owned();
        let mut values = values.as_flattened().as_chunks::<4>().0;
        let tensors = lengths.map(|length| {
            let (tensor, rest) = values.split_at(length as usize);
            values = rest;
            tensor.iter().map(|x| f32::from_le_bytes(*x)).collect()
        });
        Ok(Self { header, tensors: tensors.collect() })
    }
}

#[cfg(test)]
mod tests {
    use equipoise_random::Draws;

    use super::*;

    /// About two kilobytes, of every kind of tensor.
    fn small() -> Snapshot {
        let tensor = |length: u64| (0..length).map(|i| Draws::new(1, length, i).unit(0) as f32 - 0.5).collect();
        let odd = vec![f32::NAN, f32::from_bits(0xffa0_1234), f32::from_bits(0x7f80_0001), -0.0, f32::INFINITY];
        let tensors = vec![tensor(301), vec![], odd, tensor(64), vec![f32::MIN_POSITIVE / 4.0], vec![]];
        Snapshot { header: r#"{"epoch": 7, "name": "Grüße"}"#.to_owned(), tensors }
    }

    /// Bytes with the checksum that belongs to them, as a program with a bug would write them.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let end = bytes.len() - 8;
        let sum = checksum(bytes[..end].as_chunks().0);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn damage(bytes: &[u8]) -> Damage {
        Snapshot::from_bytes(bytes).expect_err("refused")
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit() {
        let nothing = Snapshot { header: String::new(), tensors: vec![] };
        let empty = Snapshot { header: "x".to_owned(), tensors: vec![vec![], vec![]] };
        let whole = Snapshot { header: "12345678".to_owned(), tensors: vec![vec![1.0, 2.0]] };
        for snapshot in [nothing, empty, whole, small()] {
            let bytes = snapshot.to_bytes();
            assert_eq!(bytes.len() % 8, 0);
            let got = Snapshot::from_bytes(&bytes).expect("good");
            assert_eq!(got.header, snapshot.header);
            let bits = |of: &Snapshot| {
                of.tensors.iter().map(|t| t.iter().map(|x| x.to_bits()).collect()).collect::<Vec<Vec<u32>>>()
            };
            assert_eq!(bits(&got), bits(&snapshot));
        }
    }

    /// The layout of version 1 stays what it is; the checksum comes from a few lines of Python.
    #[test]
    fn the_bytes_of_a_file() {
        let got = Snapshot { header: "{}".to_owned(), tensors: vec![vec![1.0], vec![-2.0, 0.5]] }.to_bytes();
        let mut want = b"EQPCHK01".to_vec();
        for number in [80u64, 2, 2, 1, 2] {
            want.extend_from_slice(&number.to_le_bytes());
        }
        want.extend_from_slice(b"{}\0\0\0\0\0\0");
        want.extend_from_slice(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0, 0, 0]);
        want.extend_from_slice(&0x4ee1_036a_1edd_9dd3_u64.to_le_bytes());
        assert_eq!(got, want);
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = small().to_bytes();
        for have in 0..bytes.len() {
            let of = (have >= START).then_some(bytes.len() as u64);
            assert_eq!(damage(&bytes[..have]), Damage::Cut { have: have as u64, of });
        }
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let mut bytes = small().to_bytes();
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Snapshot::from_bytes(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Snapshot::from_bytes(&bytes).is_ok());
    }

    /// The highest bit of a word survives one product as it is: flipped bits of the next word must not hide it.
    #[test]
    fn two_flipped_bits_of_neighbours_are_noticed() {
        let words = [[7; 8]; 4];
        let want = checksum(&words);
        for (first, second) in (0..64).flat_map(|first| (0..64).map(move |second| (first, second))) {
            let mut words = words;
            words[1][first / 8] ^= 1 << (first % 8);
            words[2][second / 8] ^= 1 << (second % 8);
            assert_ne!(checksum(&words), want);
        }
    }

    fn mutated(bytes: &[u8], draws: Draws) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for k in 0..1 + draws.at(0) % 3 {
            let [place, kind, value] = [1, 2, 3].map(|i| draws.at(10 * k + i));
            let at = (place % bytes.len() as u64) as usize;
            let word = 8 * (value as usize % 12).min(bytes.len() / 8 - 1);
            match kind % 7 {
                0 => bytes[at] = value as u8,
                1 => bytes[at] ^= 1 << (value % 8),
                2 => bytes.truncate(at.max(16)),
                3 => bytes.extend_from_slice(&value.to_le_bytes()),
                4 => bytes[at..].fill(0),
                // the lengths, which are at the start
                5 => bytes[word..word + 8].copy_from_slice(&(place >> ((kind >> 8) % 64)).to_le_bytes()),
                _ => {
                    let other = (value % bytes.len() as u64) as usize;
                    bytes.swap(at, other);
                }
            }
        }
        bytes
    }

    /// 100,000 damaged files: refused, unless the damage changed nothing.
    #[test]
    fn a_hundred_thousand_damaged_files() {
        let small = small().to_bytes();
        let mut refused = 0;
        for round in 0..100_000 {
            match Snapshot::from_bytes(&mutated(&small, Draws::new(5, 0, round))) {
                Ok(snapshot) => assert_eq!(snapshot.to_bytes(), small),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 90_000, "{refused} of 100,000 were refused");
    }

    /// 100,000 wrong files whose length and checksum are right: an error or a snapshot, never a panic.
    #[test]
    fn a_hundred_thousand_files_with_a_right_checksum() {
        let small = Snapshot { header: "äöü".to_owned(), tensors: vec![vec![1.5; 9], vec![], vec![2.5; 2]] }.to_bytes();
        let (mut lengths, mut header, mut good) = (0, 0, 0);
        for round in 0..100_000 {
            let mut bytes = mutated(&small, Draws::new(6, 0, round));
            bytes.resize(bytes.len().next_multiple_of(8).max(LEAST), 0);
            let length = bytes.len() as u64;
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
            match Snapshot::from_bytes(&sealed(bytes)) {
                Err(Damage::Lengths { .. }) => lengths += 1,
                Err(Damage::Header) => header += 1,
                Err(Damage::NotACheckpoint | Damage::Version { .. }) => {}
                Err(other) => panic!("{other}"),
                Ok(_) => good += 1,
            }
        }
        assert!(lengths > 1000 && header > 1000 && good > 1000, "{lengths} {header} {good}");
    }

    /// Memory for the greater ones does not exist: taking any would end the test.
    #[test]
    fn lengths_that_are_lies_take_no_memory() {
        let small = small().to_bytes();
        for lie in [100 << 20, 1 << 40, 1 << 61, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
            let with = |word: usize| {
                let mut bytes = small.clone();
                bytes[8 * word..8 * word + 8].copy_from_slice(&lie.to_le_bytes());
                sealed(bytes)
            };
            assert_eq!(damage(&with(1)), Damage::Cut { have: small.len() as u64, of: Some(lie) });
            // the header, the number of tensors, the first tensor, the second
            for word in 2..6 {
                assert!(matches!(damage(&with(word)), Damage::Lengths { .. }), "{lie} in word {word}");
            }
        }
    }

    #[test]
    fn damage_says_what_is_wrong() {
        let bytes = small().to_bytes();
        let length = bytes.len();
        let with = |at: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        };
        let said = |bytes: &[u8]| damage(bytes).to_string();
        assert_eq!(said(b"PK\x03\x04"), "not a checkpoint");
        assert_eq!(said(&with(6, b"x1")), "not a checkpoint");
        assert_eq!(said(&with(6, b"12")), "a checkpoint of version 12: version 1 is read");
        assert_eq!(said(b""), "cut off: 0 of at least 40 bytes");
        assert_eq!(said(b"EQPCHK01\x10\0\0\0\0\0\0\0"), "cut off: 16 of at least 40 bytes");
        assert_eq!(said(&bytes[..100]), format!("cut off: 100 of {length} bytes"));
        assert_eq!(said(&[&bytes[..], b"x"].concat()), format!("{} bytes: it says that it has {length}", length + 1));
        let flipped = said(&with(length - 8, &[!bytes[length - 8]]));
        assert!(flipped.starts_with("damaged: its checksum is "), "{flipped}");
        assert_eq!(said(&sealed(with(80, &[0xff]))), "its header is not text");
        let lengths = format!("impossible lengths: a header of 255 bytes and 6 tensors in a file of {length} bytes");
        assert_eq!(said(&sealed(with(16, &[255]))), lengths);
        // a length that no file has, and that the file tells truly
        let odd = [b"EQPCHK01", &43u64.to_le_bytes()[..], &[0; 27]].concat();
        assert!(matches!(damage(&odd), Damage::Checksum { .. }));
    }
}
