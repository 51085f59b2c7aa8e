//! The rules for switches of a user-mode scheduler. The scheduler reports what happened, so all are
//! certain; the rules only choose the reason.
//!
//! A wait is named by its type. Types that programs define themselves count as waits for another
//! worker of the program: from outside, a mutex and a channel of the program's own look the same.

use super::Rule;
use crate::reason::{Certainty, Reason};
use crate::user::{UserDeparture, UserWaitType};

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

/// The rule that names the reason of a user-mode switch-out. `wait_rule` is the one of the wait
/// type that the switch names ([`UserRules::of_wait_type`]).
///
/// Yields and preemptive sections are told by the departure, so a worker that waits does neither,
/// whatever the name of its wait type says.
pub(crate) fn classify_user(
    departure: UserDeparture,
    wait_rule: Option<&'static Rule>,
) -> &'static Rule {
    match departure {
        UserDeparture::Yield => &YIELD,
        UserDeparture::Preemptive => &PREEMPTIVE,
        UserDeparture::Done => &DONE,
        UserDeparture::Wait => wait_rule
            .filter(|rule| !matches!(rule.reason, Reason::Yield | Reason::Preemptive))
            .unwrap_or(&SYNCHRONIZATION),
    }
}

/// The rule for a wait of which only the type is known.
fn rule_of_name(name: &str) -> &'static Rule {
    let found = BY_NAME.iter().find(|(part, _)| name.contains(part));
    found.map_or(&SYNCHRONIZATION, |row| row.1)
}

/// The rules of wait types. There are few types and many switches, so each name is looked at once.
#[derive(Debug, Default)]
pub(crate) struct UserRules {
    /// By the number that the trace gave to the name.
    by_number: Vec<Option<&'static Rule>>,
}

impl UserRules {
    /// The rule for a wait of this type.
    pub(crate) fn of_wait_type(&mut self, wait_type: &UserWaitType) -> &'static Rule {
        let Some(number) = wait_type.number else {
            return rule_of_name(&wait_type.name);
        };
        let index = usize::from(number);
        if index >= self.by_number.len() {
            self.by_number.resize(index + 1, None);
        }
        self.by_number[index].get_or_insert_with(|| rule_of_name(&wait_type.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str) -> &'static str {
        rule_of_name(name).reason.as_str()
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
    fn a_worker_that_waits_neither_yields_nor_runs_preemptively() {
        for name in ["MY_YIELD", "PREEMPTIVE_LATCH", "MUTEX"] {
            let rule = classify_user(UserDeparture::Wait, Some(rule_of_name(name)));
            assert_eq!(rule.name, "user_wait", "{name}");
        }
        let slept = classify_user(UserDeparture::Wait, Some(rule_of_name("SLEEP_TASK")));
        assert_eq!(slept.name, "user_sleep");
        assert_eq!(classify_user(UserDeparture::Wait, None).name, "user_wait");
    }

    /// A trace numbers a limited number of names; further ones still have their rule.
    #[test]
    fn a_type_without_a_number_has_the_rule_of_its_name() {
        let mut rules = UserRules::default();
        let mut rule = |number, name: &str| {
            let name = name.to_owned();
            rules.of_wait_type(&UserWaitType { number, name }).name
        };
        assert_eq!(rule(Some(3), "SLEEP_TASK"), "user_sleep");
        assert_eq!(rule(Some(0), "MUTEX"), "user_wait");
        assert_eq!(rule(None, "ASYNC_NETWORK_IO"), "user_net");
        assert_eq!(rule(None, "MUTEX"), "user_wait");
        assert_eq!(rule(Some(3), "SLEEP_TASK"), "user_sleep");
    }

    #[test]
    fn what_the_scheduler_says_is_certain() {
        for rule in TABLE {
            assert_eq!(rule.certainty, Certainty::Certain, "{}", rule.name);
        }
        assert_eq!(
            classify_user(UserDeparture::Done, None).reason,
            Reason::Exit
        );
    }
}
