//! A few cache lines that a coroutine keeps on its own stack and touches at each turn.

use std::hint::black_box;

/// Number of lines, of 64 bytes each.
const LINES: usize = 8;

/// The lines, and the state that selects the next word.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Patch {
    lines: [[u64; 8]; LINES],
    state: u64,
}

impl Patch {
    /// Lines of its own, filled from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lines: [[seed + 1; 8]; LINES],
            state: seed,
        }
    }

    /// Touches all lines; which word of a line is touched depends on the line before.
    pub(super) fn touch(&mut self) {
        let mut state = self.state;
        for line in &mut self.lines {
            let word = &mut line[(state >> 61) as usize];
            // Knuth's multiplier for 64 bits (MMIX).
            state = (state ^ *word).wrapping_mul(6_364_136_223_846_793_005);
            *word = state;
        }
        self.state = black_box(state);
    }
}
