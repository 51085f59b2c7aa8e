//! Switches of a user-mode scheduler: the other level.
//!
//! ```text
//! level user    ├─ task 7 ─┤├ 9 ┤├─ 7 ─┤├── 12 ──┤        workers, on one thread
//! level os      ├──── the thread ────┤▒▒▒▒├── the thread ──┤   threads, on a CPU
//! ```
//!
//! The kernel does not know of the upper line. A user-mode scheduler says it itself: it writes its
//! switches down, and it keeps one word per thread that says what runs there, which the kernel side
//! of a recording reads when the thread leaves its CPU.

use std::fmt;

use crate::ids::{CpuId, Tid};
use crate::reason::words;
use crate::rules::Rule;
use crate::units::Timestamp;

words! {
    /// Who switches.
    Level {
        Os = "os": "the kernel switches threads",
        User = "user": "a user-mode scheduler switches its workers on a thread",
    }
}

/// What runs on a thread, in one word: the task and the number of its run. 0 is no task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserWord(u64);

impl UserWord {
    /// The lower bits of the word, which count the runs.
    pub const RUN_BITS: u32 = 24;

    /// The word as it stands in the memory of its process.
    pub const fn from_raw(word: u64) -> Self {
        Self(word)
    }

    /// The word of a task's run.
    pub const fn new(task: u64, run: u32) -> Self {
        Self(task << Self::RUN_BITS | run as u64 & ((1 << Self::RUN_BITS) - 1))
    }

    /// The task; `None` when the thread runs none.
    pub const fn task(self) -> Option<u64> {
        match self.0 >> Self::RUN_BITS {
            0 => None,
            task => Some(task),
        }
    }

    /// Which of its runs; 0 when there is no task.
    pub const fn run(self) -> u32 {
        (self.0 & ((1 << Self::RUN_BITS) - 1)) as u32
    }
}

/// What only rows of user-mode schedulers, or of their threads, have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserSide {
    /// Which run of the task ended (or was interrupted, at level `os`). Without a task: the thread is
    /// a scheduler's, and ran none.
    pub run: Option<u32>,
    /// The task that came. The same task again is no switch.
    pub next_task: Option<u64>,
    /// The task that ended the wait before this run.
    pub waker: Option<u64>,
    /// What it waits for now, by the number that the trace gave the name.
    pub wait_type: Option<u16>,
    /// What it had waited for before this run.
    pub off_wait_type: Option<u16>,
}

/// A switch-out as the scheduler wrote it down, its lengths in ns.
#[derive(Clone, Copy, Debug)]
pub struct UserSwitchEvent {
    /// The moment of the switch-out.
    pub ts: Timestamp,
    /// The thread it happened on.
    pub tid: Tid,
    /// The CPU that the scheduler is bound to.
    pub cpu: Option<CpuId>,
    /// Who left.
    pub word: UserWord,
    /// Who came.
    pub next_task: Option<u64>,
    /// Start of the run that ends.
    pub run_start: Timestamp,
    /// The rule that names the reason: see [`crate::rules::classify_user`].
    pub rule: &'static Rule,
    /// What it waits for now.
    pub wait_type: Option<u16>,
    /// The wait before the run.
    pub before: UserWait,
}

/// The wait before a run of a user-mode task.
#[derive(Clone, Copy, Debug)]
pub struct UserWait {
    /// When it had left; `None` for the first run of a task.
    pub out: Option<Timestamp>,
    /// When it became runnable.
    pub woken: Timestamp,
    /// Why it had left; `None` for the first run of a task.
    pub rule: Option<&'static Rule>,
    /// What it had waited for.
    pub wait_type: Option<u16>,
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
