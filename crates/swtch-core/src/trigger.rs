//! Conditions on switches: when a flight recorder shall write down what it has.
//!
//! ```text
//! runq > 20ms                a thread waited that long for a CPU
//! reason = throttle          a quota or budget stopped one
//! off > 1s & comm ~ ^web     a thread whose name begins so was away that long
//! switches/s > 200k          more than so many in a second, of the whole recording
//! ```
//!
//! A comparison is of a field, an operator and a value. `&`, `|`, `!` and parentheses join them; `&`
//! binds closer than `|`. A comparison with something that is not known of a switch is false, also
//! with `!=`.

mod parse;

use std::fmt;
use std::str::FromStr;

use regex_lite::Regex;

use crate::ids::{CpuId, Pid, Tid};
use crate::reason::Reason;
use crate::switch::Switch;
use crate::units::Nanos;

/// A condition.
#[derive(Clone, Debug)]
pub struct Trigger {
    words: String,
    condition: TriggerCondition,
}

/// The moment that a condition is asked about: a switch-out with the wait before the run that it ends, or a wait that
/// still lasts.
#[derive(Clone, Copy, Debug)]
pub struct TriggerMoment<'a> {
    /// The CPU that the thread left.
    pub cpu: CpuId,
    /// The reason for which it left.
    pub reason: Reason,
    /// Length of the run; `None` of a wait that lasts.
    pub ran: Option<Nanos>,
    /// Run-queue time of the wait.
    pub runq: Option<Nanos>,
    /// Length of the wait.
    pub off: Option<Nanos>,
    /// Blocked time of the wait.
    pub blocked: Option<Nanos>,
    /// The thread; `None` if it could not be named.
    pub thread: Option<TriggerThread<'a>>,
    /// Number of switches in the second before.
    pub switches_per_second: u64,
}

impl<'a> TriggerMoment<'a> {
    /// A switch-out.
    pub fn of_switch(
        switch: &Switch,
        thread: Option<TriggerThread<'a>>,
        switches_per_second: u64,
    ) -> Self {
        Self {
            cpu: switch.cpu,
            reason: switch.rule.reason,
            ran: switch.ran,
            runq: switch.wait.runq,
            off: switch.wait.off,
            blocked: switch.wait.blocked(),
            thread,
            switches_per_second,
        }
    }
}

/// The names of a thread.
#[derive(Clone, Copy, Debug)]
pub struct TriggerThread<'a> {
    /// Its process.
    pub pid: Pid,
    /// Its own id.
    pub tid: Tid,
    /// Its name.
    pub comm: &'a str,
}

/// A mistake in a condition, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerMistake {
    words: String,
    /// The first character of the place, and the number of its characters.
    at: usize,
    length: usize,
    what: String,
}

#[derive(Clone, Debug)]
enum TriggerCondition {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Length(LengthField, Relation, Nanos),
    Number(NumberField, Relation, u64),
    Reason(Relation, Reason),
    Comm(Relation, String),
    CommLike(Regex),
}

#[derive(Clone, Copy, Debug)]
enum LengthField {
    RunQueue,
    Off,
    Blocked,
    Ran,
}

#[derive(Clone, Copy, Debug)]
enum NumberField {
    Cpu,
    Pid,
    Tid,
    SwitchesPerSecond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Trigger {
    /// Returns true if it holds.
    pub fn holds(&self, moment: &TriggerMoment<'_>) -> bool {
        self.condition.holds(moment)
    }

    /// Returns true if it may hold for a switch whose wait and run are not longer than this. Quick, and true when in
    /// doubt: most switches need no further look.
    pub fn may_hold(&self, wait_at_most: Nanos, run_at_most: Nanos) -> bool {
        self.condition.may_hold(wait_at_most, run_at_most)
    }

    /// Returns true if it can come to hold while a wait lasts, because it compares the wait's length.
    pub fn is_about_waits(&self) -> bool {
        self.condition.is_about_waits()
    }
}

impl FromStr for Trigger {
    type Err = TriggerMistake;

    fn from_str(words: &str) -> Result<Self, TriggerMistake> {
        Ok(Self {
            words: words.to_owned(),
            condition: parse::condition(words)?,
        })
    }
}

/// In the words in which it was given.
impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The sentence, and below it the condition with the place marked.
impl fmt::Display for TriggerMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            words,
            at,
            length,
            what,
        } = self;
        let marks = "^".repeat((*length).max(1));
        write!(f, "{what}\n  {words}\n  {:at$}{marks}", "")
    }
}

impl std::error::Error for TriggerMistake {}

impl TriggerCondition {
    fn is_about_waits(&self) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::is_about_waits),
            Self::Not(one) => one.is_about_waits(),
            Self::Length(field, ..) => matches!(field, LengthField::Off | LengthField::Blocked),
            Self::Number(..) | Self::Reason(..) | Self::Comm(..) | Self::CommLike(_) => false,
        }
    }

    fn may_hold(&self, wait_at_most: Nanos, run_at_most: Nanos) -> bool {
        let may_hold = |one: &Self| one.may_hold(wait_at_most, run_at_most);
        match self {
            Self::All(all) => all.iter().all(may_hold),
            Self::Any(any) => any.iter().any(may_hold),
            Self::Length(field, Relation::More | Relation::AtLeast | Relation::Equal, least) => {
                let longest = match field {
                    LengthField::RunQueue | LengthField::Off | LengthField::Blocked => wait_at_most,
                    LengthField::Ran => run_at_most,
                };
                longest >= *least
            }
            _ => true,
        }
    }

    fn holds(&self, moment: &TriggerMoment<'_>) -> bool {
        let thread = moment.thread;
        match self {
            Self::All(all) => all.iter().all(|one| one.holds(moment)),
            Self::Any(any) => any.iter().any(|one| one.holds(moment)),
            Self::Not(one) => !one.holds(moment),
            Self::Length(field, relation, value) => field
                .of(moment)
                .is_some_and(|length| relation.holds(&length, value)),
            Self::Number(field, relation, value) => field
                .of(moment)
                .is_some_and(|number| relation.holds(&number, value)),
            Self::Reason(relation, reason) => {
                (moment.reason == *reason) == (*relation == Relation::Equal)
            }
            Self::Comm(relation, comm) => {
                let is_it = thread.map(|thread| thread.comm == comm);
                is_it == Some(*relation == Relation::Equal)
            }
            Self::CommLike(pattern) => thread.is_some_and(|thread| pattern.is_match(thread.comm)),
        }
    }
}

impl LengthField {
    const fn of(self, moment: &TriggerMoment<'_>) -> Option<Nanos> {
        match self {
            Self::RunQueue => moment.runq,
            Self::Off => moment.off,
            Self::Blocked => moment.blocked,
            Self::Ran => moment.ran,
        }
    }
}

impl NumberField {
    fn of(self, moment: &TriggerMoment<'_>) -> Option<u64> {
        let thread = moment.thread;
        match self {
            Self::Cpu => Some(u64::from(moment.cpu.get())),
            Self::Pid => thread.map(|thread| u64::from(thread.pid.get())),
            Self::Tid => thread.map(|thread| u64::from(thread.tid.get())),
            Self::SwitchesPerSecond => Some(moment.switches_per_second),
        }
    }
}

impl Relation {
    fn holds<T: Ord>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::More => left > right,
            Self::AtLeast => left >= right,
        }
    }
}

#[cfg(test)]
mod tests;
