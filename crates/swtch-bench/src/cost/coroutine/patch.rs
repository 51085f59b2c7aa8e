//! A few lines of memory that a coroutine has on its own stack, and comes back to each turn.

use std::hint::black_box;

/// Lines of 64 bytes.
const LINES: usize = 8;

/// The lines, and how far it is.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Patch {
    lines: [[u64; 8]; LINES],
    state: u64,
}

impl Patch {
    /// Lines that nothing else has.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lines: [[seed + 1; 8]; LINES],
            state: seed,
        }
    }

    /// Touches all lines; which word of each, depends on the one before.
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
