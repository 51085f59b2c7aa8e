//! Switches of a user-mode scheduler: the level above the kernel's switches.
//!
//! ```text
//! level user    ├─ task 7 ─┤├ 9 ┤├─ 7 ─┤├── 12 ──┤        workers, on one thread
//! level os      ├──── the thread ────┤▒▒▒▒├── the thread ──┤   threads, on a CPU
//! ```
//!
//! The kernel does not know of the upper line, so the user-mode scheduler reports it: it writes its
//! switches to a log, and it keeps one word per thread that names the task running there. The
//! kernel side of a recording reads this word when the thread leaves its CPU.

use std::fmt;
use std::sync::Arc;

use crate::ids::{CpuId, Tid};
use crate::reason::words;
use crate::units::Timestamp;

words! {
    /// The level of a switch: the one who switches.
    Level {
        Os = "os": "the kernel switches threads",
        User = "user": "a user-mode scheduler switches its workers on a thread",
    }
}

/// The task that runs on a thread and the number of its run, packed in one word. 0 is no task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserWord(u64);

impl UserWord {
    /// Number of low bits that hold the run; the bits above hold the task.
    pub const RUN_BITS: u32 = 24;

    /// The word as read from the memory of its process.
    pub const fn from_raw(word: u64) -> Self {
        Self(word)
    }

    /// The word as it is kept in a file.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// The word for a run of `task`. `run` wraps at 2²⁴.
    pub const fn new(task: u64, run: u32) -> Self {
        Self(task << Self::RUN_BITS | run as u64 & ((1 << Self::RUN_BITS) - 1))
    }

    /// The task's number; `None` when the thread runs no task.
    pub const fn task(self) -> Option<u64> {
        match self.0 >> Self::RUN_BITS {
            0 => None,
            task => Some(task),
        }
    }

    /// The number of the task's run, modulo 2²⁴; 0 when there is no task.
    pub const fn run(self) -> u32 {
        (self.0 & ((1 << Self::RUN_BITS) - 1)) as u32
    }
}

/// Columns that only rows of user-mode schedulers, or of their threads, have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserSide {
    /// The run of the task that ended (or was interrupted, at level `os`). If there is a run but no
    /// task, the thread belongs to a scheduler and ran no task.
    pub run: Option<u32>,
    /// The task that ran next. It may be the same task, which is then not a switch.
    pub next_task: Option<u64>,
    /// The task that ended the wait before this run.
    pub waker: Option<u64>,
    /// The type of the wait that the task is in now: the number that the trace gave to its name.
    pub wait_type: Option<u16>,
    /// The type of the wait before this run, numbered in the same way.
    pub off_wait_type: Option<u16>,
}

/// A user-mode scheduler's report of a switch-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserDeparture {
    /// The worker offered its scheduler to others.
    Yield,
    /// The worker waits for something, of which its wait type is the name.
    Wait,
    /// The worker left the scheduler to run code that may block.
    Preemptive,
    /// The task of the worker ended.
    Done,
}

/// A type of wait, as a user-mode scheduler names it. All switches of this type share it.
#[derive(Debug, PartialEq, Eq)]
pub struct UserWaitType {
    /// The number that the trace gave to the name; `None` if the trace has too many names already.
    pub number: Option<u16>,
    /// The name, which comes from the process.
    pub name: String,
}

/// A switch-out as the user-mode scheduler reported it: moments, not lengths, and evidence, not a
/// reason.
#[derive(Clone, Debug)]
pub struct UserSwitchEvent {
    /// The moment of the switch-out, on the trace clock.
    pub ts: Timestamp,
    /// The thread that the switch happened on.
    pub tid: Tid,
    /// The CPU that the scheduler is bound to; `None` if it may run on any.
    pub cpu: Option<CpuId>,
    /// The task that left, with the number of its run.
    pub word: UserWord,
    /// The task that ran next; `None` if the thread went idle.
    pub next_task: Option<u64>,
    /// Start of the run that ended.
    pub run_start: Timestamp,
    /// The way in which the task left.
    pub departure: UserDeparture,
    /// The type of the wait that the task is in now.
    pub wait_type: Option<Arc<UserWaitType>>,
    /// The wait before the run that ended.
    pub before: UserWait,
}

/// The wait before a run of a user-mode task.
#[derive(Clone, Debug)]
pub struct UserWait {
    /// The moment at which the task had left its thread; `None` for the first run of a task.
    pub out: Option<Timestamp>,
    /// The moment at which the task became runnable again.
    pub woken: Timestamp,
    /// The type of what the task had waited for, or had left its thread for.
    pub wait_type: Option<Arc<UserWaitType>>,
    /// The task that ended the wait.
    pub waker: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_task_and_run() {
        let word = UserWord::new(7, 9);
        assert_eq!((word.task(), word.run()), (Some(7), 9));
        assert_eq!(UserWord::from_raw(7 << 24 | 9), word);
        assert_eq!(UserWord::default().task(), None);
    }

    /// A task that is switched in 17 million times is still the same task.
    #[test]
    fn runs_that_overflow_do_not_reach_the_task() {
        assert_eq!(UserWord::new(7, 1 << 24).task(), Some(7));
        assert_eq!(UserWord::new(7, 1 << 24).run(), 0);
    }
}
