//! What the tests of this crate share.
#![allow(unreachable_pub, reason = "a part of every test that asks for it")]

use equipoise_random::Draws;

/// A file with some bytes changed, cut off, repeated or taken out.
pub fn damaged(file: &[u8], draws: Draws) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for k in 0..1 + draws.at(0) % 4 {
        let at = |salt: u64| (draws.at(10 * k + salt) % bytes.len().max(1) as u64) as usize;
        let (place, other) = (at(1), at(2));
        if bytes.is_empty() {
            break;
        }
        match draws.at(10 * k + 3) % 6 {
            0 | 1 => bytes[place] = draws.at(10 * k + 4) as u8,
            2 => bytes[place] ^= 1 << (draws.at(10 * k + 4) % 8),
            3 => bytes.truncate(place),
            4 => bytes[place] = [0, 0xff, 0x7f, 0x80][(draws.at(10 * k + 4) % 4) as usize],
            _ => {
                let (from, to) = (place.min(other), place.max(other).min(place.min(other) + 40));
                let piece = bytes[from..to].to_vec();
                if draws.at(10 * k + 5) & 1 == 0 {
                    bytes.splice(from..from, piece);
                } else {
                    bytes.drain(from..to);
                }
            }
        }
    }
    bytes
}
