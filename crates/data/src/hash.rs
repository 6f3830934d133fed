//! FNV-1a, a hash that is part of published fingerprints and splits and therefore never changes.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over bytes that arrive in pieces.
pub(crate) struct Fnv1a(u64);

impl Fnv1a {
    pub(crate) fn new() -> Self {
        Self(OFFSET)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

/// The 64-bit FNV-1a hash of some bytes.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = Fnv1a::new();
    hash.add(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vectors (Fowler, Noll, Vo).
    #[test]
    fn published_values() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
