//! The byte format of a checkpoint file, with a checksum: a file reads back exactly as it was written, or is refused.
//!
//! All numbers are little-endian. In order: the letters `EQPCHK` and the version `02`; the length of the file, the length of
//! the header, the number of tensors and the length of each tensor (u64); the header; the bits of the tensors; the checksum
//! (u64). Header and tensors are each padded with zeros to a multiple of eight, so that the file is a sequence of 8-byte words.

#[cfg(test)]
mod tests;

use std::io::{self, Read};

use thiserror::Error;

/// The first bytes of every file.
const MAGIC: &[u8; 6] = b"EQPCHK";
/// The version of the format, which follows the magic bytes.
const VERSION: &[u8; 2] = b"02";
/// Length of magic, version and file length.
pub(super) const START: usize = 16;
/// Length of the shortest file: no header, no tensors.
const MIN_LENGTH: usize = 40;
/// Bytes that are made or checked together.
const BLOCK: usize = 1 << 16;

/// The content of a checkpoint file: a header in JSON, and tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct RawCheckpoint {
    /// Everything that is not a tensor, as JSON.
    pub header: String,
    /// The values of the tensors, kept bit for bit.
    pub tensors: Vec<Vec<f32>>,
}

/// Why bytes are not a usable checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Corruption {
    /// The bytes are something else.
    #[error("not a checkpoint")]
    NotACheckpoint,
    /// The checkpoint has another version of the format.
    #[error(
        "a checkpoint of format {found}, but this program reads format 2: use the program that wrote it, or train again"
    )]
    Version {
        /// Version of the file.
        found: u8,
    },
    /// The end is missing.
    #[error("truncated: {length} of {} bytes", expected.map_or("at least 40".to_owned(), |expected| expected.to_string()))]
    Truncated {
        /// Length of the file.
        length: u64,
        /// Length that the file states, if it got that far.
        expected: Option<u64>,
    },
    /// There are bytes after the end.
    #[error("{length} bytes, but the file states {expected}")]
    TooLong {
        /// Length of the file.
        length: u64,
        /// Length that the file states.
        expected: u64,
    },
    /// At least one bit is not as it was written.
    #[error("corrupt: its checksum is {stated:016x}, but its content has {computed:016x}")]
    Checksum {
        /// Checksum at the end of the file.
        stated: u64,
        /// Checksum of the content.
        computed: u64,
    },
    /// The header is not UTF-8.
    #[error("its header is not text")]
    Header,
    /// The stated lengths contradict each other.
    #[error("impossible lengths: a header of {header} bytes and {tensors} tensors in a file of {file} bytes")]
    Lengths {
        /// Stated length of the header.
        header: u64,
        /// Stated number of tensors.
        tensors: u64,
        /// Length of the file.
        file: u64,
    },
}

/// A 64-bit checksum over words. For a given word a step maps different states to different states, and for a given state
/// different words to different states: a change within one word always changes the result.
#[derive(Clone, Copy)]
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }

    fn add(&mut self, words: &[[u8; 8]]) {
        // one product leaves a change of the highest bit in place, where the next word could undo it: shift and multiply again
        self.0 = words.iter().fold(self.0, |state, word| {
            let state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b1_85eb_ca87);
            (state ^ (state >> 32)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        });
    }

    fn finish(self) -> u64 {
        let state = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state ^ (state >> 29)
    }
}

/// Checks the first [`START`] bytes of a file (or all, if there are fewer) against the length of the file.
pub(super) fn check_start(start: &[u8], length: u64) -> Result<(), Corruption> {
    let common = start.len().min(MAGIC.len());
    if start[..common] != MAGIC[..common] {
        return Err(Corruption::NotACheckpoint);
    }
    match start.get(MAGIC.len()..MAGIC.len() + 2) {
        Some(version) if version == VERSION => {}
        Some(&[tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => {
            return Err(Corruption::Version { found: 10 * (tens - b'0') + ones - b'0' });
        }
        Some(_) => return Err(Corruption::NotACheckpoint),
        None => {}
    }
    let stated = start.get(8..).and_then(|rest| rest.first_chunk()).map(|stated| u64::from_le_bytes(*stated));
    match stated {
        None => Err(Corruption::Truncated { length, expected: None }),
        Some(expected) if length < expected => Err(Corruption::Truncated { length, expected: Some(expected) }),
        Some(expected) if length > expected => Err(Corruption::TooLong { length, expected }),
        Some(_) if length < MIN_LENGTH as u64 => Err(Corruption::Truncated { length, expected: None }),
        Some(_) => Ok(()),
    }
}

/// Checks that a file is unchanged since it was written, without keeping it in memory.
pub(super) fn check(file: &mut impl Read, length: u64) -> io::Result<Result<(), Corruption>> {
    let mut start = Vec::new();
    file.by_ref().take(START as u64).read_to_end(&mut start)?;
    if let Err(corruption) = check_start(&start, length) {
        return Ok(Err(corruption));
    }
    let mut sum = Checksum::new();
    sum.add(start.as_chunks().0);
    let mut block = Vec::new();
    // `check_start` made sure that there is a last word
    let mut left = length - START as u64 - 8;
    while left >= 8 {
        block.clear();
        let read = file.by_ref().take(left.min(BLOCK as u64) / 8 * 8).read_to_end(&mut block)?;
        sum.add(block.as_chunks().0);
        left -= read as u64;
        if !read.is_multiple_of(8) || read == 0 {
            break;
        }
    }
    block.clear();
    // one byte more than there may be
    file.by_ref().take(9).read_to_end(&mut block)?;
    let (stated, computed) = (block.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)), sum.finish());
    // no file that was written has a rest
    let is_intact = stated == computed && left == 0 && block.len() == 8;
    Ok(if is_intact { Ok(()) } else { Err(Corruption::Checksum { stated, computed }) })
}

/// The bytes of a checkpoint file, made as they are read: a file is written without a second copy of all tensors.
struct FileBytes<V> {
    /// What is read next, and how much of it was.
    block: Vec<u8>,
    read: usize,
    values: V,
    /// The checksum of what was made; `None` behind its own bytes.
    checksum: Option<Checksum>,
}

impl<V: Iterator<Item = f32>> FileBytes<V> {
    /// Makes the next bytes; none are left if the block is empty afterwards.
    fn fill(&mut self) {
        self.block.clear();
        self.read = 0;
        let Some(checksum) = &mut self.checksum else { return };
        self.block.extend(self.values.by_ref().take(BLOCK / 4).flat_map(f32::to_le_bytes));
        match self.block.is_empty() {
            true => {
                self.block.extend_from_slice(&checksum.finish().to_le_bytes());
                self.checksum = None;
            }
            false => {
                self.block.resize(self.block.len().next_multiple_of(8), 0);
                checksum.add(self.block.as_chunks().0);
            }
        }
    }
}

impl<V: Iterator<Item = f32>> Read for FileBytes<V> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read == self.block.len() {
            self.fill();
        }
        let number = into.len().min(self.block.len() - self.read);
        into[..number].copy_from_slice(&self.block[self.read..self.read + number]);
        self.read += number;
        Ok(number)
    }
}

impl RawCheckpoint {
    /// The bytes of the file, to be read once.
    pub fn bytes(&self) -> impl Read + '_ {
        let values: usize = self.tensors.iter().map(Vec::len).sum();
        let padded_header = self.header.len().next_multiple_of(8);
        let length = MIN_LENGTH + 8 * self.tensors.len() + padded_header + (4 * values).next_multiple_of(8);
        let mut block = [&MAGIC[..], VERSION].concat();
        let numbers = [length, self.header.len(), self.tensors.len()];
        for number in numbers.into_iter().chain(self.tensors.iter().map(Vec::len)) {
            block.extend_from_slice(&(number as u64).to_le_bytes());
        }
        block.extend_from_slice(self.header.as_bytes());
        block.resize(block.len().next_multiple_of(8), 0);
        let mut checksum = Checksum::new();
        checksum.add(block.as_chunks().0);
        FileBytes { block, read: 0, values: self.tensors.iter().flatten().copied(), checksum: Some(checksum) }
    }

    /// All bytes of the file.
    ///
    /// # Panics
    /// Never: reading from memory does not fail.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.bytes().read_to_end(&mut bytes).expect("memory can be read");
        bytes
    }

    /// Reads the bytes of a file. Memory is allocated only after all lengths are known to fit the file.
    ///
    /// # Errors
    /// If the bytes are not a checkpoint, or not as they were written.
    ///
    /// # Panics
    /// Never: reading from memory does not fail.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Corruption> {
        check(&mut &bytes[..], bytes.len() as u64).expect("memory can be read")?;
        // without the start and the checksum; at least two words are left
        let words = bytes[START..bytes.len() - 8].as_chunks::<8>().0;
        let (header, tensors) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        let impossible = || Corruption::Lengths { header, tensors, file: bytes.len() as u64 };
        let (lengths, rest) = usize::try_from(tensors)
            .ok()
            .and_then(|tensors| words[2..].split_at_checked(tensors))
            .ok_or_else(impossible)?;
        let lengths = lengths.iter().map(|word| u64::from_le_bytes(*word));
        let values = lengths.clone().try_fold(0u64, u64::checked_add).ok_or_else(impossible)?;
        // no overflow: the terms are at most 2^61 and 2^63
        if header.div_ceil(8) + values.div_ceil(2) != rest.len() as u64 {
            return Err(impossible());
        }
        // from here on no length exceeds that of the file
        let (text, values) = rest.split_at(header.div_ceil(8) as usize);
        let text = &text.as_flattened()[..header as usize];
        let header = str::from_utf8(text).map_err(|_| Corruption::Header)?.to_owned();
        let mut values = values.as_flattened().as_chunks::<4>().0;
        let tensors = lengths.map(|length| {
            let (tensor, rest) = values.split_at(length as usize);
            values = rest;
            tensor.iter().map(|x| f32::from_le_bytes(*x)).collect()
        });
        Ok(Self { header, tensors: tensors.collect() })
    }
}
