//! The figures that are compared: their names, their units, and which direction is worse.
//!
//! **Which direction is worse** decides what `--fail-over` may fail for:
//!
//! | figure | worse is | because |
//! |---|---|---|
//! | length of the run and of spans, price, time in run queues | more | it is time lost |
//! | switches: in all, and by a reason that the program or its neighbours cause | more | each costs time |
//! | switches for `child`, `stop`, `exit` | neither | they follow from what the program was told to do |
//! | preemptions of one program by another | more | as other switches |
//! | waits after `slice`, `wakeup`, …, `yield`, and for `futex`, `ipc`, `io`, `fault` | longer | the task had work to do |
//! | waits for `sleep`, `poll`, `net`, `pipe`, `child`, `stop`, `blocked`, `unknown` | neither | it waited for a time, or for work to come: longer may mean idle |

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use swtch_core::{Category, Reason};

use crate::report::stack::{folded, function_of, is_of_tracing};

/// Functions that name a stack in a line.
pub(super) const FUNCTIONS_NAMED: usize = 3;

/// A figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FigureKey {
    /// The length of the run.
    Length,
    /// An amount that grows with time.
    Amount(AmountKey),
    /// A percentile (0 to 100) of the lengths of waits.
    Percentile(WaitKey, u8),
}

/// An amount that grows with time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AmountKey {
    /// Number of switches: all of them, or those for a reason.
    Switches(Option<Reason>),
    /// Time in run queues.
    RunQueueTime,
    /// Time off the CPU after leaving for a reason.
    WaitTime(Reason),
    /// The number of times that one program took the CPU from another.
    Pair {
        /// The program that took the CPU.
        taker: Rc<str>,
        /// The program that lost it.
        victim: Rc<str>,
    },
    /// Time off the CPU at one place of the program.
    Stack(StackPlace),
    /// Direct cost of the switches.
    Price,
}

/// A place where tasks wait: the same functions, whatever their addresses. Which of them are the program's own is not part
/// of it: a trace without debug information knows less of that.
#[derive(Clone, Debug)]
pub struct StackPlace {
    /// The reason for which tasks waited there.
    pub reason: Reason,
    /// The stack in one line, from the outermost function to the innermost.
    pub folded: Rc<str>,
    /// The program's own functions, the innermost first.
    pub functions: Rc<str>,
}

/// Waits and spans whose lengths are a distribution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKey {
    /// Time in the run queue, of all waits.
    RunQueue,
    /// Time off the CPU after leaving for a reason.
    OffCpu(Reason),
    /// The spans that are called so.
    Span(Rc<str>),
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// A number of events.
    Events,
    /// Time in ns that passes within some time.
    TimeShare,
    /// A length in ns.
    Length,
}

impl StackPlace {
    fn key(&self) -> (Reason, &str) {
        (self.reason, &self.folded)
    }
}

impl PartialEq for StackPlace {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for StackPlace {}

impl PartialOrd for StackPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StackPlace {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for StackPlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl StackPlace {
    /// The place of a user and a kernel stack, and the program's own functions in it. Addresses and offsets differ
    /// between builds and runs, so only names of functions count.
    pub fn new(
        reason: Reason,
        process: &str,
        (user, kernel): (&[String], &[String]),
        functions: Option<String>,
    ) -> Self {
        let user: Vec<_> = user.iter().map(|frame| function_of(frame)).collect();
        let kernel = kernel.iter().filter(|frame| !is_of_tracing(frame));
        let kernel: Vec<_> = kernel.map(|frame| function_of(frame)).collect();
        let functions = functions.or_else(|| user.iter().chain(&kernel).next().cloned());
        let functions = functions.into_iter().chain([process.to_owned()]);
        let functions: Vec<_> = functions.collect();
        Self {
            reason,
            folded: folded(&[process.to_owned()], &user, &kernel).into(),
            functions: functions.join(" < ").into(),
        }
    }
}

impl FigureKey {
    /// Names the figure in a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Length => "length of the run".to_owned(),
            Self::Amount(amount) => amount.words(),
            Self::Percentile(WaitKey::RunQueue, percent) => {
                format!("waits in run queues, p{percent}")
            }
            Self::Percentile(WaitKey::OffCpu(reason), percent) => {
                format!("{}, p{percent}", waits(*reason))
            }
            Self::Percentile(WaitKey::Span(kind), percent) => {
                format!("length of a span {kind}, p{percent}")
            }
        }
    }

    /// The kind of figure, for those who read the answer by a program.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Length => "run_length",
            Self::Amount(AmountKey::Switches(_)) => "switches",
            Self::Amount(AmountKey::RunQueueTime) => "run_queue_time",
            Self::Amount(AmountKey::WaitTime(_)) => "wait_time",
            Self::Amount(AmountKey::Pair { .. }) => "preemptions",
            Self::Amount(AmountKey::Stack(_)) => "stack",
            Self::Amount(AmountKey::Price) => "price",
            Self::Percentile(WaitKey::RunQueue, _) => "run_queue_wait",
            Self::Percentile(WaitKey::OffCpu(_), _) => "wait",
            Self::Percentile(WaitKey::Span(_), _) => "span",
        }
    }

    pub const fn unit(&self) -> FigureUnit {
        match self {
            Self::Length | Self::Percentile(..) => FigureUnit::Length,
            Self::Amount(AmountKey::Switches(_) | AmountKey::Pair { .. }) => FigureUnit::Events,
            Self::Amount(_) => FigureUnit::TimeShare,
        }
    }

    /// The reason of the switches or waits, where there is one.
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Amount(AmountKey::Switches(reason)) => *reason,
            Self::Amount(AmountKey::WaitTime(reason))
            | Self::Percentile(WaitKey::OffCpu(reason), _) => Some(*reason),
            Self::Amount(AmountKey::Stack(place)) => Some(place.reason),
            _ => None,
        }
    }

    /// Returns true if it is time for which a task waited for the next request or message: at another load that is longer
    /// or shorter, whatever the program does.
    pub const fn follows_from_load(&self) -> bool {
        let (Self::Amount(AmountKey::WaitTime(reason))
        | Self::Percentile(WaitKey::OffCpu(reason), _)
        | Self::Amount(AmountKey::Stack(StackPlace { reason, .. }))) = self
        else {
            return false;
        };
        matches!(reason.category(), Category::Sleep | Category::Wait)
            || matches!(reason, Reason::Poll | Reason::Net | Reason::Pipe)
    }

    /// Returns true if more of it is worse. (Less of it is better then.)
    pub const fn is_worse_if_more(&self) -> bool {
        match self {
            Self::Amount(AmountKey::Switches(Some(reason))) => {
                !matches!(reason, Reason::Child | Reason::Stop | Reason::Exit)
            }
            Self::Amount(AmountKey::WaitTime(reason))
            | Self::Percentile(WaitKey::OffCpu(reason), _) => is_wait_of_a_busy_task(*reason),
            Self::Amount(AmountKey::Stack(place)) => is_wait_of_a_busy_task(place.reason),
            _ => true,
        }
    }
}

impl AmountKey {
    fn words(&self) -> String {
        match self {
            Self::Switches(None) => "context switches".to_owned(),
            Self::Switches(Some(reason)) => format!("switches: {reason}"),
            Self::RunQueueTime => "time in run queues".to_owned(),
            Self::WaitTime(reason) => match reason.category() {
                Category::Preemption | Category::Yield => format!("time off CPU after {reason}"),
                _ => format!("time waiting for {reason}"),
            },
            Self::Pair { taker, victim } => format!("preemptions: {taker} took from {victim}"),
            Self::Stack(place) => {
                format!("time waiting for {} in {}", place.reason, place.functions)
            }
            Self::Price => "price of the switches".to_owned(),
        }
    }
}

fn waits(reason: Reason) -> String {
    match reason.category() {
        Category::Preemption | Category::Yield => format!("waits after {reason}"),
        _ => format!("waits for {reason}"),
    }
}

/// Returns true if a task that waits for this reason has work that it could do, or is held up by another thread, the
/// disk or memory.
const fn is_wait_of_a_busy_task(reason: Reason) -> bool {
    match reason.category() {
        Category::Preemption | Category::Yield | Category::Synchronization | Category::Memory => {
            true
        }
        Category::Io => matches!(reason, Reason::Io),
        Category::Sleep | Category::Wait | Category::Exit | Category::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same functions at other addresses are the same place.
    #[test]
    fn a_place_is_told_by_its_functions() {
        let place = |offset: &str| {
            let user = [
                format!("lock+{offset} [server]"),
                format!("main+{offset} [server]"),
            ];
            StackPlace::new(
                Reason::Futex,
                "server",
                (&user, &["schedule+0x10".to_owned()]),
                Some("lock < main".to_owned()),
            )
        };
        assert_eq!(place("0x12"), place("0x450"));
        let traced = ["__traceiter_sched_exit_tp+0x4d [kernel]", "schedule+0x10"];
        let traced = traced.map(str::to_owned);
        let [seen, unseen] = [&traced[..], &traced[1..]]
            .map(|kernel| StackPlace::new(Reason::Futex, "server", (&[], kernel), None));
        assert_eq!(seen, unseen);
        assert_eq!(&*place("0x12").functions, "lock < main < server");
    }

    #[test]
    fn idle_waits_are_neither_better_nor_worse() {
        let p99 = |reason| FigureKey::Percentile(WaitKey::OffCpu(reason), 99);
        assert!(p99(Reason::Futex).is_worse_if_more() && p99(Reason::Io).is_worse_if_more());
        for reason in [Reason::Sleep, Reason::Poll, Reason::Net, Reason::Pipe] {
            assert!(!p99(reason).is_worse_if_more(), "{reason}");
            let switches = FigureKey::Amount(AmountKey::Switches(Some(reason)));
            assert!(switches.is_worse_if_more(), "{reason}");
        }
        let exits = FigureKey::Amount(AmountKey::Switches(Some(Reason::Exit)));
        assert!(!exits.is_worse_if_more());
    }
}
