//! The rules for switches of a user-mode scheduler. The scheduler reports what happened, so all are
//! certain; the rules only choose the reason.
//!
//! A wait is named by its type. Types that programs define themselves count as waits for another
//! worker of the program: from outside, a mutex and a channel of the program's own look the same.

use super::Rule;
use crate::reason::{Certainty, Reason};

/// What a user-mode scheduler reports of a switch-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserDeparture<'a> {
    /// The worker offered its scheduler to others.
    Yield,
    /// The worker waits for something of this type.
    Wait(&'a str),
    /// The worker left the scheduler to run code that may block.
    Preemptive,
    /// The task of the worker ended.
    Done,
}

/// Part of a wait type's name, and the rule for it; the first that matches decides.
const BY_NAME: &[(&str, &Rule)] = &[
    ("YIELD", &YIELD),
    ("PREEMPTIVE", &PREEMPTIVE),
    ("SLEEP", &SLEEP),
    ("NETWORK", &NET),
    ("SOCKET", &NET),
    ("IO_", &IO),
    ("_IO", &IO),
    ("FILE", &IO),
    ("THREADPOOL", &FIRST),
];

const fn rule(name: &'static str, reason: Reason, help: &'static str) -> Rule {
    Rule {
        name,
        reason,
        certainty: Certainty::Certain,
        help,
        when: |_| false,
    }
}

static YIELD: Rule = rule(
    "user_yield",
    Reason::Yield,
    "level user: the worker offered its scheduler, by itself or because its quantum was used up",
);
static SLEEP: Rule = rule(
    "user_sleep",
    Reason::Sleep,
    "level user: a wait type of sleep",
);
static NET: Rule = rule(
    "user_net",
    Reason::Net,
    "level user: a wait type of network I/O",
);
static IO: Rule = rule("user_io", Reason::Io, "level user: a wait type of file I/O");
static SYNCHRONIZATION: Rule = rule(
    "user_wait",
    Reason::Futex,
    "level user: a wait for another worker: mutex, channel, join, or a type of the program's own",
);
static PREEMPTIVE: Rule = rule(
    "user_preemptive",
    Reason::Preemptive,
    "level user: the worker left its scheduler to run code that may block",
);
static FIRST: Rule = rule(
    "user_threadpool",
    Reason::Futex,
    "level user: the task waited for a worker",
);
static DONE: Rule = rule(
    "user_done",
    Reason::Exit,
    "level user: the worker's task ended",
);

/// All rules of level `user`.
pub(super) static TABLE: [&Rule; 8] = [
    &YIELD,
    &SLEEP,
    &NET,
    &IO,
    &SYNCHRONIZATION,
    &PREEMPTIVE,
    &FIRST,
    &DONE,
];

/// The rule that names the reason of a user-mode switch-out.
pub fn classify_user(departure: UserDeparture<'_>) -> &'static Rule {
    match departure {
        UserDeparture::Yield => &YIELD,
        UserDeparture::Preemptive => &PREEMPTIVE,
        UserDeparture::Done => &DONE,
        UserDeparture::Wait(name) => {
            let found = BY_NAME.iter().find(|(part, _)| name.contains(part));
            found.map_or(&SYNCHRONIZATION, |row| row.1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str) -> &'static str {
        classify_user(UserDeparture::Wait(name)).reason.as_str()
    }

    #[test]
    fn a_wait_is_named_by_its_type() {
        for (name, reason) in [
            ("SOS_SCHEDULER_YIELD", "yield"),
            ("SLEEP_TASK", "sleep"),
            ("ASYNC_NETWORK_IO", "net"),
            ("ASYNC_IO_COMPLETION", "io"),
            ("PREEMPTIVE_OS_FILEOPS", "preemptive"),
            ("MUTEX", "futex"),
            ("CHANNEL", "futex"),
            ("JOIN", "futex"),
            ("THREADPOOL", "futex"),
        ] {
            assert_eq!(word(name), reason, "{name}");
        }
    }

    /// Programs may name wait types of their own.
    #[test]
    fn an_unknown_type_is_a_wait_for_another() {
        assert_eq!((word("my latch"), word("")), ("futex", "futex"));
    }

    #[test]
    fn what_the_scheduler_says_is_certain() {
        for rule in TABLE {
            assert_eq!(rule.certainty, Certainty::Certain, "{}", rule.name);
        }
        assert_eq!(classify_user(UserDeparture::Done).reason, Reason::Exit);
    }
}
