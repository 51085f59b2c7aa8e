//! The state in which a task left, as a number that readers of ftrace know. It is computed as the
//! kernel does, but for one thing: every preemption is `R+` ([`of_departure`]).
//!
//! `__trace_sched_switch_state` in `include/trace/events/sched.h` and `__task_state_index` in
//! `include/linux/sched.h` (v4.14 to v6.18): the highest bit of the state within `TASK_REPORT`, two
//! numbers of its own above them, and 0 for a task that stayed runnable.

use swtch_core::{EvidenceBits, Reason, Switch};

const TASK_UNINTERRUPTIBLE: u32 = 0x2;
/// `EXIT_DEAD`, which ftrace shows as `X`.
const EXIT_DEAD: i64 = 0x10;
const EXIT_STATES: u32 = 0x30;
/// `TASK_REPORT`: states from runnable to parked, which are reported unchanged.
const TASK_REPORT: u32 = 0x7f;
const TASK_DEAD: u32 = 0x80;
const TASK_NOLOAD: u32 = 0x400;
const TASK_IDLE: u32 = TASK_UNINTERRUPTIBLE | TASK_NOLOAD;
const TASK_RTLOCK_WAIT: u32 = 0x1000;
const TASK_FROZEN: u32 = 0x8000;
/// `TASK_REPORT_IDLE`, which ftrace shows as `I`.
const REPORT_IDLE: i64 = 0x80;
/// `TASK_REPORT_MAX`, shown as `R+`: the CPU was taken from the task.
const REPORT_PREEMPTED: i64 = 0x100;

/// The state for a time that no row describes, so that no wait is shown longer than the trace says.
/// It means parked and idle at once, which the kernel never reports; Perfetto shows it as `PI`. A
/// number without a meaning would be counted as an error of the trace.
pub const UNKNOWN_STATE: i64 = 0xc0;

/// `prev_state` of `sched_switch` in ftrace.
///
/// The kernel says `R+` only when a task was preempted inside the kernel, which is one in a
/// thousand. This function returns it wherever a rule found that the CPU was taken away, because
/// that is how readers understand it.
pub fn of_departure(row: &Switch) -> i64 {
    let state = row.evidence.state;
    let was_preempted_in_kernel = row.evidence.bits.has(EvidenceBits::KERNEL_PREEMPT);
    if was_preempted_in_kernel {
        return REPORT_PREEMPTED;
    }
    if state == 0 {
        return match row.rule.reason {
            Reason::Slice | Reason::Wakeup | Reason::Class | Reason::Throttle | Reason::Migrate => {
                REPORT_PREEMPTED
            }
            _ => 0,
        };
    }
    of_sleep(state)
}

fn of_sleep(state: u32) -> i64 {
    if state & TASK_IDLE == TASK_IDLE {
        return REPORT_IDLE;
    }
    if state & (TASK_RTLOCK_WAIT | TASK_FROZEN) != 0 {
        return i64::from(TASK_UNINTERRUPTIBLE);
    }
    if state & TASK_DEAD != 0 && state & EXIT_STATES == 0 {
        return EXIT_DEAD;
    }
    let reported = state & TASK_REPORT;
    // Any other state is a sleep of a kind that readers do not know.
    let highest = reported.checked_ilog2().map_or(1, |bit| 1 << bit);
    i64::from(highest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn;
    use swtch_core::Evidence;

    fn left(state: u32, bits: EvidenceBits, reason: Reason) -> i64 {
        let row = drawn::row(1, reason);
        of_departure(&Switch {
            evidence: Evidence {
                state,
                bits,
                ..row.evidence
            },
            ..row
        })
    }

    #[test]
    fn sleeping_states_are_reported_as_the_kernel_does() {
        let none = EvidenceBits(0);
        for (state, expected) in [
            (0x1, 0x1),
            (0x2, 0x2),
            (0x2001, 0x1), // TASK_FREEZABLE
            (0x102, 0x2),  // TASK_KILLABLE
            (0x402, 0x80),
            (0x8000, 0x2),
            (0x4, 0x4),
            (0x8, 0x8),
            (0x40, 0x40),
            (0x80, 0x10),
            (0xa0, 0x20), // TASK_DEAD, EXIT_ZOMBIE
        ] {
            assert_eq!(left(state, none, Reason::Futex), expected, "{state:#x}");
        }
    }

    /// Of the tasks that left runnable, only those whose CPU was taken are called preempted.
    #[test]
    fn a_yield_is_no_preemption() {
        let none = EvidenceBits(0);
        assert_eq!(left(0, none, Reason::Slice), 0x100);
        assert_eq!(left(0, none, Reason::Yield), 0);
        assert_eq!(left(0, none, Reason::Unknown), 0);
        assert_eq!(left(1, EvidenceBits::KERNEL_PREEMPT, Reason::Other), 0x100);
    }
}
