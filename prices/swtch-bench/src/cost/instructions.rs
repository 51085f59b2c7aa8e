//! Measures how many instructions the CPU runs per nanosecond, to tell how many it could run in the
//! time of a switch. This is the only use of hardware counters.
//!
//! The number of instructions that fit into the time of a switch depends on how well they run in
//! parallel. Two loops bound it: a chain in which each instruction waits for the one before, and
//! independent sums. Virtual machines often hide the counters; then there is no answer.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::clock;
use crate::error::{Error, checked};

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
    let mut counter = Counter::open()?;
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
struct Counter(File);

/// `struct perf_event_attr`, first version (`include/uapi/linux/perf_event.h`, v6.18): 64 bytes.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// `PERF_TYPE_HARDWARE` of the kernel's `enum perf_type_id`.
const HARDWARE: u32 = 0;

/// `PERF_COUNT_HW_INSTRUCTIONS` of the kernel's `enum perf_hw_id`.
const INSTRUCTIONS: u64 = 1;

/// `exclude_kernel` and `exclude_hv`: any user may count this for their own tasks.
const USER_MODE_ONLY: u64 = 1 << 5 | 1 << 6;

/// `PERF_FLAG_FD_CLOEXEC`: the descriptor is closed on exec.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

impl Counter {
    fn open() -> Result<Self, Error> {
        let attributes = Attributes {
            kind: HARDWARE,
            size: u32::try_from(size_of::<Attributes>()).expect("invariant: 64 fits"),
            config: INSTRUCTIONS,
            flags: USER_MODE_ONLY,
            ..Attributes::default()
        };
        let (own_thread, any_cpu, no_group) = (0, -1, -1);
        // SAFETY: the attributes have the layout that their size stands for and live across the
        // call, which only reads them.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                own_thread,
                any_cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        let fd = checked("perf_event_open", fd)?;
        let fd = i32::try_from(fd).expect("invariant: a descriptor is an int");
        // SAFETY: the descriptor was just opened and nothing else owns it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    fn count(&mut self) -> Result<u64, Error> {
        let mut count = [0; 8];
        self.0
            .read_exact(&mut count)
            .map_err(Error::calling("read"))?;
        Ok(u64::from_ne_bytes(count))
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn rate(&mut self, work: fn()) -> Result<f64, Error> {
        // CPU time excludes what other tasks run meanwhile.
        let (before, start) = (self.count()?, clock::cpu_time());
        work();
        let (after, end) = (self.count()?, clock::cpu_time());
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
        let mut counter = Counter::open().expect("it was opened above");
        let before = counter.count().expect("it can be read");
        independent();
        assert!(counter.count().expect("it can be read") - before > ROUNDS * 6);
    }
}
