//! NumPy's legacy random generator, as far as published long-tailed subsets need it.
//!
//! MT19937 (Matsumoto, Nishimura, "Mersenne Twister", ACM TOMACS 1998), seeded as by `numpy.random.seed(n)` for a 32-bit n,
//! and `numpy.random.shuffle` of a list.

const N: usize = 624;
const M: usize = 397;

/// The Mersenne Twister with 32-bit output.
pub(crate) struct Mt19937 {
    words: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// A generator seeded with one word (`init_genrand`).
    pub(crate) fn new(seed: u32) -> Self {
        let mut words = [seed; N];
        for i in 1..N {
            let last = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { words, next: N }
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// The next 32 bits.
    pub(crate) fn draw(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A uniform number in 0..=max: draws under the smallest bit mask that covers `max` until one fits.
    pub(crate) fn interval(&mut self, max: u32) -> u32 {
        let mask = u32::MAX.checked_shr(max.leading_zeros()).unwrap_or(0);
        loop {
            let value = self.draw() & mask;
            if value <= max {
                return value;
            }
        }
    }

    /// Shuffles in place, as `numpy.random.shuffle` does.
    ///
    /// # Panics
    /// For more than 2^32 items.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let max = u32::try_from(i).expect("at most 2^32 items");
            items.swap(i, self.interval(max) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10,000th draw of the reference implementation seeded with 5489 (also C++'s `std::mt19937`).
    #[test]
    fn the_ten_thousandth_draw() {
        let mut mt = Mt19937::new(5489);
        let last = (0..10_000).map(|_| mt.draw()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    /// `numpy.random.seed(s); x = numpy.arange(10); numpy.random.shuffle(x)`.
    #[test]
    fn numpy_permutations() {
        for (seed, want) in [(0, [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]), (42, [8, 1, 5, 0, 7, 2, 9, 4, 3, 6])] {
            let mut items = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
            Mt19937::new(seed).shuffle(&mut items);
            assert_eq!(items, want, "seed {seed}");
        }
    }

    #[test]
    fn intervals_stay_inside() {
        let mut mt = Mt19937::new(1);
        for max in [0, 1, 2, 3, 1000, u32::MAX] {
            assert!((0..1000).all(|_| mt.interval(max) <= max), "{max}");
        }
    }
}
