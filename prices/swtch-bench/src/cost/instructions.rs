//! Measures how many instructions the CPU runs per nanosecond, to tell how many it could run in the
//! time of a switch. This is the only use of hardware counters.
//!
//! The number of instructions that fit into the time of a switch depends on how well they run in
//! parallel. Two loops bound it: a chain in which each instruction waits for the one before, and
//! independent sums. Virtual machines often hide the counters; then there is no answer.

use std::hint::black_box;

use crate::clock;
use crate::error::Error;

use super::counted_event::{CountedEvent, EventChoice};

/// Iterations of each loop, which take a few milliseconds.
const ROUNDS: u64 = 4_000_000;

/// Instructions per nanosecond in user mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstructionRate {
    /// For a chain of dependent multiplications.
    pub chained: f64,
    /// For sums that are independent of one another.
    pub independent: f64,
}

/// Measures both loops on the calling thread.
///
/// # Errors
///
/// The kernel refuses a counter (`perf_event_paranoid` above 2), or the machine has none.
pub fn instruction_rate() -> Result<InstructionRate, Error> {
    let counter = Counter::open()?;
    Ok(InstructionRate {
        chained: counter.rate(chained)?,
        independent: counter.rate(independent)?,
    })
}

/// Each product is a factor of the next. The rotation keeps the compiler from merging two steps.
fn chained() {
    let mut state = black_box(1_u64);
    for round in 0..ROUNDS {
        state = state.rotate_left(7).wrapping_mul(6_364_136_223_846_793_005) ^ round;
    }
    black_box(state);
}

/// Six independent sums. The rotation keeps the compiler from replacing the loop by a formula.
fn independent() {
    let mut sums = black_box([0_u64; 6]);
    for round in 0..ROUNDS {
        for sum in &mut sums {
            *sum = sum.rotate_left(7) ^ round;
        }
    }
    black_box(sums);
}

/// A counter of the instructions that the calling thread runs in user mode.
struct Counter(CountedEvent);

/// `PERF_TYPE_HARDWARE` of the kernel's `enum perf_type_id`.
const HARDWARE: u32 = 0;

/// `PERF_COUNT_HW_INSTRUCTIONS` of the kernel's `enum perf_hw_id`.
const INSTRUCTIONS: u64 = 1;

/// `exclude_kernel` and `exclude_hv`: any user may count this for their own tasks.
const USER_MODE_ONLY: u64 = 1 << 5 | 1 << 6;

impl Counter {
    fn open() -> Result<Self, Error> {
        let instructions = EventChoice {
            kind: HARDWARE,
            config: INSTRUCTIONS,
            flags: USER_MODE_ONLY,
        };
        let (own_thread, any_cpu) = (0, -1);
        CountedEvent::open(instructions, own_thread, any_cpu).map(Self)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn rate(&self, work: fn()) -> Result<f64, Error> {
        // CPU time excludes what other tasks run meanwhile.
        let (before, start) = (self.0.count()?, clock::cpu_time());
        work();
        let (after, end) = (self.0.count()?, clock::cpu_time());
        let ns = end.saturating_sub(start).as_nanos().max(1);
        if after == before {
            return Err(Error::NotHere(
                "the counter of instructions stands still".to_owned(),
            ));
        }
        Ok((after - before) as f64 / ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler has not removed the loops: each iteration is at least one instruction per sum.
    #[test]
    fn independent_instructions_go_faster_than_chained_ones() {
        let Ok(rate) = instruction_rate() else {
            swtch_test::skip!("no hardware counters here");
        };
        assert!(rate.independent > rate.chained, "{rate:?}");
        let counter = Counter::open().expect("it was opened above");
        let before = counter.0.count().expect("it can be read");
        independent();
        assert!(counter.0.count().expect("it can be read") - before > ROUNDS * 6);
    }
}
