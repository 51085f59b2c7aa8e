//! Pseudo-random numbers that are the same in every run, so that two runs visit places in the same
//! order and take the same branches.

/// `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
pub(in crate::cost) struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of numbers that belongs to `seed`.
    pub(in crate::cost) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub(in crate::cost) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0. The remainder's bias is below `count` / 2⁶⁴.
    pub(in crate::cost) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).expect("invariant: below a usize")
    }

    /// A number from 0 to 1, which is not 1.
    pub(in crate::cost) fn share(&mut self) -> f64 {
        // The 53 bits that a double holds.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles `items` (Fisher and Yates).
    pub(in crate::cost) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
