//! A delay of a fixed number of steps: a known difference, to check that the measurement finds it.

use std::hint::black_box;

use super::Work;

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
            // Each step depends on the last one, and is opaque to the compiler, so all of them are
            // executed.
            state = black_box(step(state));
        }
        self.state = state;
    }
}

/// One multiplication and one addition (Knuth, MMIX).
const fn step(state: u64) -> u64 {
    state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of the chain depends on every step.
    #[test]
    fn no_step_is_left_out() {
        let mut delay = Delay::new(3);
        delay.run();
        assert_eq!(delay.state, step(step(step(1))));
        // No step at all is allowed.
        Delay::new(0).run();
    }
}
