//! A delay of a fixed number of steps: a difference of known length, to see that it is found.

use std::hint::black_box;

use super::Work;

/// The work.
pub(super) struct Delay {
    loops: u32,
    state: u64,
}

impl Delay {
    pub(super) const fn new(loops: u32) -> Self {
        Self { loops, state: 1 }
    }
}

impl Work for Delay {
    fn run(&mut self) {
        let mut state = self.state;
        for _ in 0..self.loops {
            // A step waits for the last one, and no compiler looks into it: as many as are asked for.
            state = black_box(step(state));
        }
        self.state = state;
    }
}

/// A multiplication and an addition (Knuth, MMIX).
const fn step(state: u64) -> u64 {
    state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the chain ends depends on every step.
    #[test]
    fn no_step_is_left_out() {
        let mut delay = Delay::new(3);
        delay.run();
        assert_eq!(delay.state, step(step(step(1))));
        Delay::new(0).run();
    }
}
