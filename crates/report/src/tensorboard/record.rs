//! Records as `tensorflow/core/lib/io/record_writer.h` describes them: length, masked CRC-32C of the length, data,
//! masked CRC-32C of the data.

/// Added to TensorFlow's checksums, so that a checksum over data that contains checksums stays a good one.
pub(super) const MASK: u32 = 0xa282_ead8;

/// Checksum of every byte.
const TABLE: [u32; 256] = table();

/// Appends a record.
pub(super) fn append(bytes: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    bytes.extend(length);
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(data).to_le_bytes());
}

/// Masked checksum of a record.
pub(super) fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(MASK)
}

/// CRC-32C, with Castagnoli's polynomial.
pub(super) fn crc32c(data: &[u8]) -> u32 {
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
