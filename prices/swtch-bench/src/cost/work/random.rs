//! Pseudo-random numbers that are the same in every run, so that two runs visit places in the same
//! order and take the same branches.

/// `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of numbers that belongs to `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Shuffles `items` (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // The remainder's bias is below items / 2⁶⁴.
            let swap_with = self.next() % (last as u64 + 1);
            items.swap(
                last,
                usize::try_from(swap_with).expect("invariant: at most `last`"),
            );
        }
    }
}
