//! Waits that last: what the kernel side keeps of a task from its last switch-out on, until the next.
//!
//! ```text
//!   switch-out       wakeup   in          switch-out
//!  ─────┼───────────────┼──────┼───────────────┼──▶ of one task
//!       └ blocked: here ┘                      └ only now is its wait in the table of groups
//! ```

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::MapCore;
use swtch_core::{StackNumbers, SwitchGroup, Timestamp};
use swtch_wire::stack_numbers;

use crate::error::Error;
use crate::load::Capture;
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::task_state;

/// A task that is blocked now.
#[derive(Clone, Copy, Debug)]
pub struct BlockedTask {
    /// The moment at which it left its CPU.
    pub since: Timestamp,
    /// The task, and what the rules read of that switch-out.
    pub group: SwitchGroup,
    /// The stacks of the place where it is, if they are taken and were when it left.
    pub stacks: StackNumbers,
}

/// The states of all tasks, which the kernel side writes.
pub(crate) struct TaskStates(Mapped<task_state>);

impl TaskStates {
    pub fn map(map: &impl MapCore, slots: u32) -> Result<Self, Error> {
        Mapped::new(map, usize::try_from(slots).unwrap_or(usize::MAX)).map(Self)
    }

    fn word(&self, slot: usize, offset: usize) -> u64 {
        self.0.word(slot, offset).load(Ordering::Relaxed)
    }

    fn read(&self, slot: usize) -> task_state {
        const WORDS: usize = size_of::<task_state>() / 8;
        let words: [u64; WORDS] = std::array::from_fn(|index| self.word(slot, index * 8));
        // SAFETY: both have the same size, and any words are a state (plain numbers).
        unsafe { std::mem::transmute::<[u64; WORDS], task_state>(words) }
    }

    /// The wait of the task in this slot, if it is blocked. A state that changed while it was read is
    /// that of a task which has just left or come: it has no wait that lasts.
    fn wait(&self, slot: usize) -> Option<BlockedTask> {
        let out_at = |slot| self.word(slot, offset_of!(task_state, out_ts));
        if self.word(slot, offset_of!(task_state, owner)) == 0 || out_at(slot) == 0 {
            return None;
        }
        let state = self.read(slot);
        fence(Ordering::Acquire);
        (out_at(slot) == state.out_ts).then(|| open_wait(&state))?
    }
}

/// The wait that a task is in, by its state.
fn open_wait(state: &task_state) -> Option<BlockedTask> {
    let left = state.has_pending != 0 && state.pending_ts == state.out_ts;
    let is_blocked = left && state.left_runnable == 0 && state.wake_ts < state.out_ts;
    if state.in_scope == 0 || !is_blocked {
        return None;
    }
    // SAFETY: both variants of the union are plain numbers, so any bytes are a key.
    let key = unsafe { state.pending.key };
    Some(BlockedTask {
        since: Timestamp::from_ns(state.out_ts),
        group: super::group(&key)?,
        stacks: stack_numbers(state.kernel_stack, state.user_stack),
    })
}

impl Capture {
    /// The tasks that are blocked now, in no order; none if records are written. Some 1 ms for 65,536
    /// slots.
    pub fn blocked_tasks(&self) -> impl Iterator<Item = BlockedTask> {
        let states = self.task_states().into_iter();
        states.flat_map(|states| (0..states.0.len()).filter_map(|slot| states.wait(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It blocked at 1000 and has not been woken since.
    fn blocked() -> task_state {
        let mut state = task_state {
            owner: 0xffff_8880_0000_0000,
            out_ts: 1_000,
            pending_ts: 1_000,
            wake_ts: 700,
            in_scope: 1,
            has_pending: 1,
            ..Default::default()
        };
        state.pending.key.task = 7;
        state.pending.key.state = 1;
        state.pending.key.syscall = 202;
        state.pending.key.futex = 0x7f00_0000_1000;
        state
    }

    #[test]
    fn a_task_that_was_not_woken_is_blocked() {
        let wait = open_wait(&blocked()).unwrap();
        assert_eq!(wait.since, Timestamp::from_ns(1_000));
        assert_eq!(wait.group.futex, 0x7f00_0000_1000);
        let woken = task_state {
            wake_ts: 1_500,
            ..blocked()
        };
        assert!(open_wait(&woken).is_none());
        let preempted = task_state {
            left_runnable: 1,
            ..blocked()
        };
        assert!(open_wait(&preempted).is_none());
    }

    /// A switch-out that was missed, or one that is of no interest, is not a wait.
    #[test]
    fn what_is_not_of_the_last_switch_out_is_no_wait() {
        let another = task_state {
            pending_ts: 900,
            ..blocked()
        };
        assert!(open_wait(&another).is_none());
        let not_asked_for = task_state {
            in_scope: 0,
            ..blocked()
        };
        assert!(open_wait(&not_asked_for).is_none());
        let none_pending = task_state {
            has_pending: 0,
            ..blocked()
        };
        assert!(open_wait(&none_pending).is_none());
    }
}
